"""Links become ids of entries, as the tool that they were written for resolves them."""

import pytest
from conftest import write_files
from langchain_core.documents import Document

from langchain_lookup_knowledge import KnowledgeBase
from langchain_lookup_knowledge.reading.documents import read_documents, read_folder
from langchain_lookup_knowledge.reading.links import MAX_LINKS
from langchain_lookup_knowledge.reading.selection import ENDINGS
from langchain_lookup_knowledge.types import FrontmatterFields

FILES = {
    "index.md": "# Home\n\nText.\n",
    "Payroll.md": "---\ntitle: Payroll run\naliases: [Pay day]\n---\nOn the 25th.\n",
    "guides/setup.md": "# Setup\n\nText.\n",
    "guides/Setup Mac (M1).md": "# Mac\n\nText.\n",
    "guides/vpn/README.md": "# VPN\n\nText.\n",
    "guides/vpn/faq.md": "# Questions\n\nText.\n",
    "teams/faq.md": "# Team questions\n\nText.\n",
    "teams/pump___valve.md": "# Valve\n\nText.\n",
    "teams/Überstunden.md": "# Overtime\n\nText.\n",
}

LINKS = [
    # wikilinks, as Obsidian and Logseq find them
    ("a.md", "[[Payroll]]", ["Payroll.md"]),
    ("a.md", "[[payroll]]", ["Payroll.md"]),
    ("a.md", "[[Payroll.md]]", ["Payroll.md"]),
    ("a.md", "[[Payroll|the run]] and [[Payroll#Dates]]", ["Payroll.md"]),
    ("a.md", "| [[Payroll\\|the run]] | x |", ["Payroll.md"]),
    ("a.md", "[[guides/setup]]", ["guides/setup.md"]),
    ("guides/a.md", "[[faq]]", ["guides/vpn/faq.md"]),
    ("teams/a.md", "[[faq]]", ["teams/faq.md"]),
    ("a.md", "[[faq]]", ["teams/faq.md"]),
    ("a.md", "[[vpn/faq]]", ["guides/vpn/faq.md"]),
    ("teams/a.md", "[[../guides/setup]]", ["guides/setup.md"]),
    ("a.md", "[[Pay day]] [[Payroll run]]", ["Payroll.md"]),
    ("a.md", "[[pump/valve]]", ["teams/pump___valve.md"]),
    ("a.md", "![[Payroll]]", ["Payroll.md"]),
    ("a.md", "[[No such page]] [[#Below]] [[]]", []),
    ("a.md", "[[photo.png]] [[Payroll.pdf]]", []),
    # relative links
    ("guides/a.md", "[x](setup.md)", ["guides/setup.md"]),
    ("guides/a.md", "[x](./setup)", ["guides/setup.md"]),
    ("guides/a.md", '[x](setup.md#mac "Setup")', ["guides/setup.md"]),
    ("teams/a.md", "[x](../guides/setup.md?plain=1)", ["guides/setup.md"]),
    ("guides/a.md", "[x](Setup%20Mac%20(M1).md)", ["guides/Setup Mac (M1).md"]),
    ("guides/a.md", "[x](<Setup Mac (M1).md>)", ["guides/Setup Mac (M1).md"]),
    ("a.md", "[x](teams/%C3%9Cberstunden.md)", ["teams/Überstunden.md"]),
    ("guides/a.md", "[x](SETUP.MD)", ["guides/setup.md"]),
    ("guides/a.md", "[x](vpn/) and [y](vpn)", ["guides/vpn/README.md"]),
    ("guides/vpn/a.md", "[home](/)", ["index.md"]),
    ("guides/vpn/a.md", "[x](/guides/setup/)", ["guides/setup.md"]),
    ("guides/vpn/a.md", "[x](/docs/guides/setup/)", ["guides/setup.md"]),
    ("a.md", "[x](/vpn/faq/)", ["guides/vpn/faq.md"]),
    ("guides/setup-more.md", "[x](../setup/)", ["guides/setup.md"]),
    ("a.md", "[x](guides/setup.html)", ["guides/setup.md"]),
    ("a.md", "[x][faq]\n\n[faq]: teams/faq.md", ["teams/faq.md"]),
    ("a.md", "[![b](b.png)](guides/setup.md)", ["guides/setup.md"]),
    ("a.md", '[x]({% page "/guides/setup/#mac" %})', ["guides/setup.md"]),
    ("a.md", '[x]({{< ref "guides/setup.md" >}})', ["guides/setup.md"]),
    ("a.md", "[x](https://example.org/Payroll.md) [y](mailto:a@b.c) [z](//h/Payroll)", []),
    ("a.md", "[x](../Payroll.md) [y](../../etc/passwd)", []),
    ("a.md", "[x](nothing.md) [y](#below)", []),
    # what is no link
    ("a.md", "`[[Payroll]]` and `` [x](Payroll.md) ``", []),
    ("a.md", "```\n[[Payroll]]\n```\n\n~~~\n[x](Payroll.md)\n~~~", []),
    ("a.md", "Text:\n\n    [[Payroll]]\n", []),
    ("a.md", "<!-- [[Payroll]] [x](Payroll.md) -->", []),
    ("a.md", "\\[[Payroll]]", []),
    ("a.md", "`a` [[Payroll]] `b`", ["Payroll.md"]),
]


@pytest.mark.parametrize(("host", "text", "expected"), LINKS)
def test_links_lead_to_entries(tmp_path, host, text, expected):
    folder = write_files(tmp_path, {**FILES, host: f"# A\n\n{text}\n"})
    entries = {entry.entry_id: entry for entry in read_folder(folder, FrontmatterFields())[0]}
    assert list(entries[host].links) == expected
    backlinks = [name for name, entry in entries.items() if host in entry.backlinks]
    assert backlinks == sorted(expected)


def test_a_title_that_two_entries_have_leads_to_neither(tmp_path):
    folder = write_files(
        tmp_path,
        {
            "a.md": "[[Rota]]\n",
            "b.md": "---\ntitle: Rota\n---\nx\n",
            "c.md": "---\ntitle: Rota\n---\nx\n",
        },
    )
    entries, _ = read_folder(folder, FrontmatterFields())
    assert [entry.links for entry in entries] == [(), (), ()]


def test_links_are_in_order_once_each_and_never_to_the_entry_itself(tmp_path):
    folder = write_files(
        tmp_path, {"a.md": "[[c]] [[b]] [[c]] [[a]] [x](b.md)\n", "b.md": "[[a]]\n", "c.md": "x\n"}
    )
    first, second, third = read_folder(folder, FrontmatterFields())[0]
    assert (first.links, first.backlinks) == (("c.md", "b.md"), ("b.md",))
    assert (second.links, second.backlinks, third.backlinks) == (("a.md",), ("a.md",), ("a.md",))


def test_documents_are_linked_by_their_sources():
    from langchain_core.documents import Document

    documents = [
        Document("See [[pump]] and [x](pump.md).", metadata={"source": "docs/valve.md"}),
        Document("The pump.", metadata={"source": "docs/pump.md"}),
    ]
    valve, pump = read_documents(documents, FrontmatterFields())[0]
    assert (valve.links, pump.backlinks) == (("docs/pump.md",), ("docs/valve.md",))


def test_the_number_of_links_of_an_entry_is_limited(tmp_path):
    pages = {f"p{number:04}.md": "x\n" for number in range(MAX_LINKS + 5)}
    folder = write_files(tmp_path, {**pages, "a.md": " ".join(f"[[{name}]]" for name in pages)})
    first = read_folder(folder, FrontmatterFields())[0][0]
    assert len(first.links) == MAX_LINKS


def tenant(value, text):
    return f"---\ntenant: {value}\n---\n{text}\n"


NAMESAKES = {  # what hides of another tenant, and how acme's host writes its link or embed
    "a shorter path": ("note.md", "[[note]]"),
    "the folder of the host": ("acme/sub/note.md", "[[note]]"),
    "the same path, with another ending": ("acme/lib/note.markdown", "[x](/lib/note)"),
    "the same end of a path": ("other/lib/note.md", "[x](/lib/note)"),
    "the same title": ("other/x.md", "[[The note]]"),
    "a part of a path": ("beta/note.md", "![[note]]"),
    "an include": ("lib/note.md", "{% include lib/note.md %}"),
}


@pytest.mark.parametrize("situation", NAMESAKES)
def test_a_hidden_namesake_changes_no_link_and_no_embed(tmp_path, situation):
    hidden, written = NAMESAKES[situation]
    files = {
        "acme/sub/host.md": tenant("acme", f"# Host\n\n{written}"),
        "acme/lib/note.md": tenant("acme\ntitle: The note", "Ours."),
    }
    other = {hidden: tenant("beta\ntitle: The note", "CANARY.")}
    seen = []
    for place, given in (("without", files), ("with", files | other)):
        folder = write_files(tmp_path / place, given)
        with KnowledgeBase.open(folder, index=None) as kb:
            view = kb.seen_by({"tenant": "acme"})
            seen.append((dict(view.entries), view.problems))
    assert seen[0] == seen[1]


def test_the_problems_in_a_scope_are_those_of_its_files(tmp_path):
    files = {
        "a.md": tenant("acme", "![[b]] ![[gone]]"),
        "b.md": tenant("beta\ntags: {x: y}", "![[gone]]"),
        "c.md": "---\ntenant: beta\n",
        "d.md": "",
        "e.md": tenant("acme\ntags: {x: y}", "E."),
    }
    with KnowledgeBase.open(write_files(tmp_path, files), index=None) as kb:
        own = kb.seen_by({"tenant": "acme"})
        assert {problem.path for problem in kb.problems} >= {"a.md", "b.md", "d.md", "e.md"}
    assert {problem.path for problem in own.problems} == {"a.md", "e.md"}
    assert [p.message.partition(" is not")[0] for p in own.problems if p.path == "a.md"] == [
        "![[b]]",
        "![[gone]]",
    ]
    assert (own.report.seen, own.report.loaded, own.report.skipped) == (2, 2, ())


@pytest.mark.parametrize("ending", ENDINGS)
def test_every_ending_of_an_entry_is_one_of_a_link_and_of_an_embed(ending):
    files = {"a.md": f"[[b{ending}]] ![[c{ending}]]", f"b{ending}": "B.", f"c{ending}": "C."}
    given = [Document(text, metadata={"source": name}) for name, text in files.items()]
    entries, _ = read_documents(given, FrontmatterFields())
    assert entries[0].links == (f"b{ending}", f"c{ending}")
    assert [embed.text for embed in entries[0].embeds] == ["C."]


def test_a_link_in_a_hidden_part_after_code_in_it_is_not_read():
    written = "<div hidden>`x` [[b]] ![[b]]</div>\n\n<!-- `x` [y](b.md) -->\n"
    given = [
        Document(text, metadata={"source": name})
        for name, text in {"a.md": written, "b.md": "B."}.items()
    ]
    entries, _ = read_documents(given, FrontmatterFields())
    assert (entries[0].links, entries[0].embeds) == ((), ())
