"""Embeds and includes show the right part, within limits, only to callers who may see it."""

from dataclasses import replace
from itertools import product

import pytest
from conftest import WordEmbeddings, write_files
from langchain_core.documents import Document
from parts.cases import read_cases
from parts.growth import grows_with_its_input

from langchain_lookup_knowledge import (
    KnowledgeBase,
    LookupOptions,
    create_lookup_knowledge_graph,
)
from langchain_lookup_knowledge.l1.index_state import digest
from langchain_lookup_knowledge.reading import embeds
from langchain_lookup_knowledge.reading.documents import read_again, read_documents, read_folder
from langchain_lookup_knowledge.reading.known.files import KnownFolder
from langchain_lookup_knowledge.reading.passages import split_passages
from langchain_lookup_knowledge.reading.selection import Selection
from langchain_lookup_knowledge.types import FrontmatterFields

FACTS = (
    "---\ntitle: Facts\n---\n"
    "# Facts\n\nAll figures.\n\n"
    "## Days per year\n\nStaff have 31 days.\n\n### Part time\n\nHalf of it.\n\n"
    "## Rooms\n\n### Part time\n\nRoom 4.\n\n"
    "## Blocks\n\nA named paragraph\nof two lines. ^para\n\n"
    "- first item\n- second item ^item\n  - below it\n- third item\n\n"
    "| a | b |\n|---|---|\n| 1 | 2 |\n\n^table\n"
)
OTHERS = {
    "facts.md": FACTS,
    "parts/_note.md": "Included note.\n",
    "_includes/warning.md": "Mind the step.\n",
    "draft.md": "---\ndraft: true\n---\nUnfinished.\n",
}


def read(tmp_path, files, fields=None):
    entries, report = read_folder(write_files(tmp_path, files), fields or FrontmatterFields())
    return {entry.entry_id: entry for entry in entries}, report


def shown(entry):
    return [(embed.path, embed.text.strip()) for embed in entry.embeds]


PARTS = [
    ("![[facts#Rooms#Part time]]", "### Part time\n\nRoom 4."),
    ("![[facts#Part time]]", "### Part time\n\nHalf of it."),
    (
        "![[facts#Days per year|shown so]]",
        "## Days per year\n\nStaff have 31 days.\n\n### Part time\n\nHalf of it.",
    ),
    ("![[Facts.md#days PER year]]", None),
    ("![[facts#^para]]", "A named paragraph\nof two lines."),
    ("![[facts#^item]]", "- second item\n  - below it"),
    ("![[facts#^table]]", "| a | b |\n|---|---|\n| 1 | 2 |"),
    ("{{embed [[parts/_note]]}}", "Included note."),
    ('{{% include "parts/_note.md" %}}', "Included note."),
    ("{{< include parts/_note.md >}}", "Included note."),
    ('{{< readfile file="/parts/_note.md" >}}', "Included note."),
    ('{% include "warning.md" %}', "Mind the step."),
    ("{%- include warning.md -%}", "Mind the step."),
    ("{%\n  include-markdown 'parts/_note.md'\n%}", "Included note."),
    ("{% include_relative parts/_note.md %}", "Included note."),
    ('--8<-- "parts/_note.md"', "Included note."),
    (":::{include} parts/_note.md\n:::", "Included note."),
    ("```{include} parts/_note.md\n```", "Included note."),
]


@pytest.mark.parametrize(("written", "part"), PARTS, ids=[written for written, _ in PARTS])
def test_the_part_that_is_named_is_read_in_place(tmp_path, written, part):
    entries, report = read(
        tmp_path, {**OTHERS, "a.md": f"# Host\n\nAbove.\n\n{written}\n\nBelow.\n"}
    )
    (embed,) = entries["a.md"].embeds
    if part is not None:
        assert embed.text.strip() == part
    assert (embed.line, report.problems) == (5, ())
    *above, below = entries["a.md"].text.split()
    assert (above[:3], below) == (["#", "Host", "Above."], "Below.")
    assert " ".join(above[3:]) in written  # an include leaves its path
    last = len(f"# Host\n\nAbove.\n\n{written}\n\nBelow.".split("\n"))
    assert entries["a.md"].text.split("\n")[last - 1] == "Below."  # lines keep their numbers
    lines = (tmp_path / embed.path).read_text().split("\n")
    first = embed.text.split("\n")[0]
    assert lines[embed.shifts[0][1]].startswith(first)
    assert embed.path in entries["a.md"].links


NOT_READ = [
    ("![[missing]]", "'missing' is no entry of this knowledge base"),
    ("![[facts#No heading]]", "facts.md has no 'No heading'"),
    ("![[facts#^nothing]]", "facts.md has no '^nothing'"),
    ("![[draft]]", "draft.md is a draft (draft: true)"),
    ("![[a]]", "a.md embeds itself"),
    ('{% include "../../etc/passwd.md" %}', "is no entry"),
    ('{{% include "/etc/motd.md" %}}', "is no entry"),
    ('--8<-- "facts.md:2:4"', "only whole files are included"),
    (":::{include} facts.md\n:start-line: 3\n:::", "only whole files are included"),
    ('{% include-markdown "facts.md" start="x" %}', "only whole files are included"),
]


@pytest.mark.parametrize(("written", "reason"), NOT_READ, ids=[written for written, _ in NOT_READ])
def test_what_is_not_read_in_place_stays_and_is_reported(tmp_path, written, reason):
    entries, report = read(tmp_path, {**OTHERS, "a.md": f"Above.\n\n{written}\n"})
    assert entries["a.md"].embeds == ()
    (problem,) = report.problems
    assert (problem.path, problem.line) == ("a.md", 3)
    assert " is not embedded: " in problem.message
    assert reason in problem.message
    assert written.startswith("!") is (written in entries["a.md"].text)
    assert "{" not in entries["a.md"].text


@pytest.mark.parametrize(
    "written",
    [
        "`![[facts]]`",
        "```\n![[facts]]\n{% include facts.md %}\n```",
        "````\n```{include} facts.md\n```\n````",
        'Text:\n\n    --8<-- "facts.md"',
        "\\![[facts]]",
        "![[picture.png]]",
        "![[scan.pdf#page=2]]",
        "# ![[facts]]",
        ';--8<-- "facts.md"',
    ],
)
def test_code_images_and_other_files_are_no_embeds(tmp_path, written):
    entries, report = read(tmp_path, {**OTHERS, "a.md": f"Above.\n\n{written}\n"})
    assert (entries["a.md"].embeds, report.problems) == ((), ())
    assert written in entries["a.md"].text


def test_an_embed_in_a_comment_is_not_read(tmp_path):
    entries, report = read(tmp_path, {**OTHERS, "a.md": "Above.\n\n<!-- ![[facts]] -->\n"})
    assert (entries["a.md"].embeds, entries["a.md"].text.strip()) == ((), "Above.")
    assert report.problems == ()


def test_a_passage_cites_the_lines_of_the_target(tmp_path):
    entries, _ = read(
        tmp_path,
        {
            "a.md": "---\ntitle: Host\n---\n# Host\n\nAbove.\n\n![[b#Two]]\n\nBelow.\n",
            "b.md": "---\nx: 1\n---\n# One\n\n<!-- gone\ngone -->\n\n"
            "## Two\n\nThe answer.\n\nMore.\n",
        },
    )
    passages = split_passages(entries["a.md"], size=200, units=lambda text: range(len(text)))
    assert [(p.number, p.text.split("\n")[0], p.lines) for p in passages] == [
        (0, "Above.", (6, 10)),
        (1, "The answer.", (11, 13)),
    ]
    assert (passages[0].embed, passages[1].embed.path) == (None, "b.md")
    assert (tmp_path / "b.md").read_text().split("\n")[10] == "The answer."


def test_embeds_of_embeds_are_read_to_a_depth_and_never_in_a_circle(tmp_path):
    chain = {f"{n}.md": f"text {n}\n\n![[{n + 1}]]\n" for n in range(1, 7)}
    entries, report = read(tmp_path, {**chain, "7.md": "text 7\n\n![[1]]\n"})
    assert [embed.sources for embed in entries["1.md"].embeds] == [
        ("2.md",),
        ("2.md", "3.md"),
        ("2.md", "3.md", "4.md"),
    ]
    assert "![[5]]" in entries["1.md"].embeds[-1].text
    assert sum("nested more than 3 levels deep" in str(problem) for problem in report.problems) == 7
    pair, report = read(tmp_path / "pair", {"a.md": "one ![[b]]\n", "b.md": "two ![[a]]\n"})
    assert shown(pair["a.md"]) == [("b.md", "two ![[a]]")]
    assert sum("embeds itself" in str(problem) for problem in report.problems) == 2


def test_the_number_and_the_size_of_embedded_parts_are_limited(tmp_path, monkeypatch):
    monkeypatch.setattr(embeds, "MAX_EMBEDS", 3)
    many, report = read(tmp_path / "many", {"a.md": "![[b]] " * 5, "b.md": "x\n"})
    assert len(many["a.md"].embeds) == 3
    assert sum("may embed 3 parts" in str(problem) for problem in report.problems) == 2
    monkeypatch.setattr(embeds, "MAX_EMBEDDED_CHARS", 50)
    big, report = read(tmp_path / "big", {"a.md": "![[b]] ![[c]]\n", "b.md": "y" * 60, "c.md": "z"})
    assert shown(big["a.md"]) == [("c.md", "z")]
    assert "characters" in str(report.problems[0])
    monkeypatch.setattr(embeds, "MAX_TOTAL_CHARS", 50)
    files = {f"a{n}.md": "![[b]]\n" for n in range(4)} | {"b.md": "y" * 20}
    total, _ = read(tmp_path / "total", files)
    assert [len(entry.embeds) for entry in total.values()] == [1, 1, 0, 0, 0]


@pytest.mark.nightly
def test_many_namesakes_headings_and_embeds_take_linear_time():
    def documents(size):
        headings = "".join(f"## H{number}\n\nx ^b{number}\n\n" for number in range(size * 100))
        marks = "".join(f"![[t#H{number}]] ![[t#^b{number}]] [[t]]\n" for number in range(500))
        files = {f"h{number}.md": marks for number in range(size)} | {"deep/t.md": headings}
        files |= {f"{number}/t.md": "x" for number in range(size * 10)}
        return [Document(text, metadata={"source": name}) for name, text in files.items()]

    def joined(given):
        entries, _ = read_documents(given, FrontmatterFields())
        assert len(entries[0].links) == 1

    assert grows_with_its_input(joined, documents(10), documents(40))


def test_a_change_of_the_target_renews_the_host_in_the_next_sync(tmp_path):
    folder = write_files(
        tmp_path / "kb", {"a.md": "# Leave\n\n![[b]]\n", "b.md": "31 days.\n", "c.md": "[[a]]\n"}
    )
    with KnowledgeBase.open(folder, embedding=WordEmbeddings(), progress=False) as kb:
        (folder / "b.md").write_text("32 days.\n")
        assert kb.sync().renewed == 2
        (folder / "d.md").write_text("[[a]] [[c]]\n")
        assert kb.sync().renewed == 1  # a new link to an entry does not renew it
        before = digest(kb.l0.entries["a.md"])
        (folder / "b.md").write_text("\n32 days.\n")
        kb.sync()
        assert digest(kb.l0.entries["a.md"]) != before  # the lines that it cites moved


OF_THE_KIND = {
    "PX-39": (read_cases("reports")["PX-39"]["input"], "policy.md", "31 days of holiday"),
    "an include in a shared folder": (
        {
            "files": {
                "guides/boiler.md": "# Boiler\n\n"
                '{{% include "shared/gas.md" %}}\n\nCall the fitter.\n',
                "shared/gas.md": "Close valve 12 before you open the boiler.\n",
                "other.md": "# Choir\n\nMeets on Wednesdays.\n",
            },
            "query": "how to service the boiler",
        },
        "guides/boiler.md",
        "Close valve 12",
    ),
    "a block of a list": (
        {
            "files": {
                "Trip.md": "# Trip to Gent\n\n![[Contacts#^night]]\n\nTrains leave hourly.\n",
                "Contacts.md": "# Contacts\n\n- Day: 555-0100\n- Night: 555-0199 ^night\n",
                "other.md": "# Choir\n\nMeets on Wednesdays.\n",
            },
            "query": "trip to Gent",
        },
        "Trip.md",
        "Night: 555-0199",
    ),
}


@pytest.mark.parametrize(("situation", "host", "text"), OF_THE_KIND.values(), ids=OF_THE_KIND)
def test_embedded_text_is_in_the_match_of_its_host(tmp_path, situation, host, text):
    folder = write_files(tmp_path / "kb", situation["files"])
    with KnowledgeBase.open(folder, progress=False) as kb:
        graph = create_lookup_knowledge_graph(kb, record=None, options=LookupOptions(k=1))
        match = graph.invoke({"query": situation["query"]})["matches"][0]
    assert (match["entry_id"], text in match["snippet"]) == (host, True)
    assert [p["path"] for p in match["passages"] if "path" in p] == [
        name for name, held in situation["files"].items() if text in held
    ]


# who may see what

CANARY = "CANARY-4711"
SCOPED = LookupOptions(scope_fields=("tenant",), k=100)


def tenant(value, text):
    header = {"public": "public: true", None: "x: 1"}.get(value, f"tenant: {value}")
    return f"---\n{header}\n---\n{text}\n"


def everything_found(kb, value, query):
    """Return all that lookups of a caller give, with L1 and without, as one text."""
    found = []
    for options in (SCOPED, replace(SCOPED, l1_enabled=False)):
        graph = create_lookup_knowledge_graph(kb, record=None, options=options)
        result = graph.invoke({"query": query}, {"configurable": {"tenant": value}})
        found.append(str(result))
        for match in result["matches"]:
            around = kb.surrounding_passages(match, 9, scope=(("tenant", value),))
            found.append(" ".join(passage.text for passage in around))
    return "\n".join(found)


VISIBLE = [
    # host, target, callers who may see the target's text in the host
    ("acme", "acme", {"acme"}),
    ("acme", "beta", set()),
    ("acme", "public", {"acme"}),
    ("acme", None, set()),
    ("public", "acme", {"acme"}),
    ("public", "beta", {"beta"}),
    ("public", "public", {"acme", "beta", "gamma"}),
    ("public", None, set()),
    (None, "acme", set()),
    ("[acme, beta]", "acme", {"acme"}),
    ("[acme, beta]", "[beta, acme]", {"acme", "beta"}),
]
WAYS = [
    (number, *case, through)
    for number, (case, through) in enumerate(product(VISIBLE, (None, "acme", "public")))
]


@pytest.fixture(scope="module")
def embedding_kb(tmp_path_factory):
    files = {}
    for n, host, target, _, through in WAYS:
        embedded = f"![[secret{n}#Part]]" if through is None else f"![[next{n}]]"
        files[f"host{n}.md"] = tenant(host, f"# Host {n}\n\nHost words.\n\n{embedded}")
        if through:
            files[f"next{n}.md"] = tenant(through, f"# Next\n\n![[secret{n}#Part]]")
        part = f"## Part\n\nHost words of {CANARY}-{n}-END."
        files[f"secret{n}.md"] = tenant(target, f"# Secret\n\nOther.\n\n{part}")
    folder = write_files(tmp_path_factory.mktemp("kb"), files)
    with KnowledgeBase.open(folder, embedding=WordEmbeddings(), progress=False) as kb:
        yield kb


@pytest.mark.parametrize("caller", ["acme", "beta", "gamma"])
def test_a_caller_sees_an_embedded_part_only_if_he_sees_all_on_its_way(embedding_kb, caller):
    scope = (("tenant", caller),)
    seen = embedding_kb.l0.seen_by(scope)
    for n, _, _, callers, through in WAYS:
        host = seen.entries.get(f"host{n}.md")
        shown = caller in callers and (through != "acme" or caller == "acme")
        assert (host is not None and f"{CANARY}-{n}-END" in str(host.embeds)) is shown, n
        assert (f"{CANARY}-{n}-END" in str(seen.excerpt(f"host{n}.md", ["host"]))) is shown, n


@pytest.mark.parametrize("caller", ["acme", "beta", "gamma"])
@pytest.mark.parametrize("query", ["host words", CANARY, f"secret part next {CANARY} {CANARY}-4"])
def test_no_lookup_shows_a_caller_what_he_may_not_see(embedding_kb, caller, query):
    visible = embedding_kb.l0.seen_by((("tenant", caller),)).entries
    text = everything_found(embedding_kb, caller, query)
    for n, *_ in WAYS:
        if f"secret{n}.md" not in visible:
            assert f"{CANARY}-{n}-END" not in text
            assert f"secret{n}.md" not in text
        if f"host{n}.md" not in visible:
            assert f"host{n}.md" not in text


def test_a_caller_who_sees_both_finds_the_embedded_text_in_the_host(tmp_path):
    files = {
        "host.md": tenant("public", "# Host words\n\nHost words.\n\n![[secret#Part]]"),
        "secret.md": tenant("acme", f"# Secret\n\n## Part\n\nHost words {CANARY}."),
    }
    folder = write_files(tmp_path / "kb", files)
    with KnowledgeBase.open(folder, embedding=WordEmbeddings(), progress=False) as kb:
        options = LookupOptions(scope_fields=("tenant",))
        graph = create_lookup_knowledge_graph(kb, record=None, options=options)
        for caller, expected in (("acme", True), ("beta", False)):
            result = graph.invoke({"query": "host words"}, {"configurable": {"tenant": caller}})
            (host,) = [match for match in result["matches"] if match["entry_id"] == "host.md"]
            assert (CANARY in host["snippet"]) is expected
            paths = [passage.get("path") for passage in host["passages"]]
            assert paths.count("secret.md") == expected
        (problem,) = kb.problems
        assert (problem.path, problem.line) == ("host.md", 8)
        assert "only to callers who may see both" in problem.message


HIDDEN = {
    "missing": {},
    "hidden": {"secret.md": tenant("beta", f"# Secret\n\n## Part\n\nHost words {CANARY}. ^id")},
    "hidden, without that part": {"secret.md": tenant("beta", "Host words.")},
    "hidden, on the way to a visible one": {
        "secret.md": tenant("beta", "# Secret\n\n## Part\n\n![[public]] ^id")
    },
}
MARKS = [
    "![[secret]]",
    "![[secret#Part]]",
    "![[secret#^id]]",
    "{{embed [[secret]]}}",
    '--8<-- "secret.md"',
]


@pytest.mark.parametrize("mark", MARKS)
def test_a_host_does_not_show_which_hidden_entries_exist(tmp_path, mark):
    scope, seen = {"tenant": "acme"}, {}
    for world, others in HIDDEN.items():
        files = {
            "host.md": tenant(
                "acme", f"# Host words\n\nHost words.\n\n{mark}\n\nThey go on.\n\n![[next]]"
            ),
            "next.md": tenant("acme", f"# Next\n\n{mark}\n\nNext words."),
            "public.md": tenant("public", "A public page."),
            **others,
        }
        folder = write_files(tmp_path / world, files)
        with KnowledgeBase.open(folder, embedding=WordEmbeddings(), progress=False) as kb:
            entry = kb.entry("host.md", scope=scope)
            excerpt = kb.seen_by(scope).excerpt("host.md", ["host"])
            matches = []
            for options in (SCOPED, replace(SCOPED, l1_enabled=False)):
                graph = create_lookup_knowledge_graph(kb, record=None, options=options)
                result = graph.invoke({"query": "host words next"}, {"configurable": scope})
                matches += sorted(
                    (match["entry_id"], match["snippet"], match["lines"])
                    for match in result["matches"]
                )
        assert [embed.path for embed in entry.embeds] == ["next.md"]
        assert (entry.links, len(matches) > 2) == (("next.md",), True)
        seen[world] = (entry, excerpt, matches)
    assert list(seen.values()) == [seen["missing"]] * len(seen)


def test_an_index_that_is_behind_shows_no_part_that_was_taken_from_the_caller(tmp_path):
    files = {
        "host.md": tenant("acme", "# Host words\n\nHost words.\n\n![[secret]]"),
        "secret.md": tenant("acme", f"Host words {CANARY}."),
    }
    folder = write_files(tmp_path / "kb", files)
    with KnowledgeBase.open(folder, embedding=WordEmbeddings(), progress=False) as kb:
        assert CANARY in everything_found(kb, "acme", "host words")
    (folder / "secret.md").write_text(tenant("beta", f"Host words {CANARY}."))
    with KnowledgeBase.open(folder, embedding=WordEmbeddings(), sync=False) as kb:
        assert CANARY not in everything_found(kb, "acme", "host words")
        assert "host.md" in everything_found(kb, "acme", "host words")


def test_the_links_of_an_entry_in_a_scope_name_no_hidden_entry(tmp_path):
    files = {
        "a.md": tenant("acme", "[[b]] [[c]]"),
        "b.md": tenant("beta", "[[a]]"),
        "c.md": tenant("acme", "x"),
    }
    folder = write_files(tmp_path / "kb", files)
    with KnowledgeBase.open(folder, index=None) as kb:
        seen = kb.l0.seen_by((("tenant", "acme"),)).entries["a.md"]
        assert (seen.links, seen.backlinks) == (("c.md",), ())


def test_the_text_for_the_model_cites_the_target(tmp_path):
    from langchain_lookup_knowledge.lookup.answer.rendering import render

    folder = write_files(
        tmp_path / "kb",
        {
            "policy.md": "# Leave policy\n\nAsk the lead.\n\n![[facts#Days per year]]\n",
            "facts.md": "# Facts\n\n## Days per year\n\nStaff have 31 days of leave policy.\n",
        },
    )
    with KnowledgeBase.open(folder, embedding=WordEmbeddings(), progress=False) as kb:
        graph = create_lookup_knowledge_graph(kb, record=None, options=LookupOptions(k=1))
        result = graph.invoke({"query": "leave policy"})
        text = render(result, 4400)
        lookup = LookupOptions(k=1, l1_enabled=False)
        alone = create_lookup_knowledge_graph(kb, record=None, options=lookup)
        assert (
            "## Facts (facts.md:3-5)"
            in alone.invoke({"query": "leave policy"})["matches"][0]["snippet"]
        )
    assert "source: policy.md:3-5 " in text.replace("\n", " ")
    assert "## Days per year (facts.md:5)\n\nStaff have 31 days" in text
    (own, part) = sorted(result["primary"]["passages"], key=lambda passage: "path" in passage)
    assert (own["lines"], part["path"], part["lines"]) == ([3, 5], "facts.md", [5, 5])
    assert result["matches"][0]["snippet"][slice(*part["span"])].startswith("Staff have 31")


def test_the_words_of_a_hidden_part_are_not_counted(embedding_kb):
    graph = create_lookup_knowledge_graph(embedding_kb, record=None, options=SCOPED)
    n = next(n for n, host, target, *_ in WAYS if (host, target) == ("public", "acme"))
    query = {"query": f"host words {CANARY}-{n}-END"}
    for caller, is_absent in (("acme", False), ("beta", True)):
        reason = graph.invoke(query, {"configurable": {"tenant": caller}})["relevance"]["reason"]
        assert ("no passage holds" in reason) is is_absent


EDITS = {
    "text": ("a.md", "# A\n\nchanged text [[b]]\n"),
    "link": ("a.md", "# A\n\nchanged text [[c]]\n"),
    "title": ("b.md", "# Other\n\nthe text of b\n"),
    "alias": ("b.md", "---\naliases: [c]\n---\n# B\n\nthe text of b\n"),
    "embedded text": ("c.md", "# C\n\nchanged c\n"),
    "text with an embed": ("d.md", "# D\n\nchanged d\n\n![[c]]\n"),
    "wanted page": ("e.md", "# E\n\nfound\n"),
    "nothing left": ("c.md", ""),
}


@pytest.mark.parametrize("edit", EDITS)
def test_an_edited_folder_is_joined_as_if_it_were_new(tmp_path, edit):
    texts = {
        "a.md": "# A\n\nsee [[b]] and [[e]]\n",
        "b.md": "# B\n\nthe text of b\n",
        "c.md": "# C\n\nthe text of c\n",
        "d.md": "# D\n\nsee ![[c]]\n",
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    arguments = FrontmatterFields(), Selection()
    known, _ = read_again(tmp_path, *arguments, KnownFolder())
    name, text = EDITS[edit]
    (tmp_path / name).write_text(text, encoding="utf-8")
    again, report = read_again(tmp_path, *arguments, known)
    new, expected = read_again(tmp_path, *arguments, KnownFolder())
    assert (list(again.entries), report) == (list(new.entries), expected)
    assert list(again.entries) != list(known.entries)
