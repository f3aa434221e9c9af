"""`lookup-knowledge check`: what was read, what could be better, and that it writes nothing."""

import json
import re
from pathlib import Path

import pytest
from conftest import write_files
from parts.command_line import run

from langchain_lookup_knowledge import (
    FrontmatterFields,
    KnowledgeBase,
    create_lookup_knowledge_graph,
)
from langchain_lookup_knowledge.l0.hints import HintIndex
from langchain_lookup_knowledge.l0.lints import out_of_step, suggestions
from langchain_lookup_knowledge.reading.documents import read_folder
from langchain_lookup_knowledge.reading.entry import Entry


def entry(entry_id, title="T", keywords=("k1",), categories=("c",), entities=(), text=""):
    return Entry(entry_id, title, keywords, categories, entities, text)


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        ([entry("a.md")], []),
        (
            [entry("a.md", categories=())],
            ["a.md: no category: add category: to its frontmatter, or use category_from_path"],
        ),
        (
            [entry("a.md", keywords=())],
            ["a.md: no keywords: add the terms that people use when they ask"],
        ),
        ([entry("a.md", keywords=(), entities=("E",))], []),
        (
            [entry("a.md", "README", keywords=())],
            [
                "a.md: no keywords: add the terms that people use when they ask",
                "a.md: the title 'README' says nothing: choose one that names its topic",
            ],
        ),
        ([entry("a.md", "README")], []),
        (
            [entry("a.md", "One  x"), entry("b.md", "one x")],
            ["b.md: a.md has the same title, 'one x': change one of them"],
        ),
        (
            [entry(f"{i}.md", f"T{i}", categories=(c,)) for i, c in enumerate(["HR", "HR", "hr "])],
            ["2.md: the category 'hr ' (1 entry) is also written 'HR': use one spelling"],
        ),
        (
            [entry(f"{i}.md", f"T{i}", ("guide", f"k{i}")) for i in range(4)],
            [
                "0.md: the keyword 'guide' appears in 4 entries, so it says nothing: "
                "choose a more specific one"
            ],
        ),
        ([entry(f"{i}.md", f"T{i}", ("guide", f"k{i}")) for i in range(3)], []),
    ],
)
def test_each_suggestion_names_the_entry_and_the_fix(entries, expected):
    assert [str(problem) for problem in suggestions(entries, HintIndex(entries))] == expected


def test_an_index_out_of_step_is_reported_entry_by_entry():
    found = out_of_step({"a": "1", "b": "1", "c": "1"}, {"b": "1", "c": "2", "d": "1"})
    assert [str(problem) for problem in found] == [
        "a: is not in the index yet: run `lookup-knowledge index`",
        "c: has changed since it was indexed: run `lookup-knowledge index`",
        "d: is in the index, but no longer in the folder: run `lookup-knowledge index`",
    ]


def snapshot(folder):
    return {path: path.stat().st_mtime_ns for path in [folder, *folder.rglob("*")]}


def test_a_clean_folder_has_status_0_and_nothing_is_written(folder):
    before = snapshot(folder)
    checked = run("check", folder)
    assert (checked.returncode, checked.stderr) == (0, "")
    assert checked.stdout == "3 files seen: 3 loaded, 0 skipped\n0 problems, 0 suggestions\n"
    assert snapshot(folder) == before


def test_problems_have_status_1_and_are_the_same_as_json(folder):
    write_files(folder, {"broken.md": "---\ntitle: a: b\n---\n"})
    (folder / "latin.md").write_bytes(b"caf\xe9")
    checked = run("check", folder)
    assert checked.returncode == 1
    assert checked.stdout.splitlines()[:2] == [
        "broken.md:2: the frontmatter is not YAML (mapping values are not allowed in this "
        "context); the whole file is used as"
        " text: quote the value",
        "latin.md:1: skipped: not utf-8 at byte 3: save the file as UTF-8",
    ]
    assert checked.stdout.endswith("5 files seen: 4 loaded, 1 skipped\n2 problems, 2 suggestions\n")
    report = json.loads(run("check", folder, "--json").stdout)
    assert (report["seen"], report["loaded"]) == (5, 4)
    assert [(problem["path"], problem["line"]) for problem in report["skipped"]] == [
        ("latin.md", 1)
    ]
    lines = [*report["problems"], *report["suggestions"]]
    assert [f"{p['path']}:{p['line']}" if p["line"] else p["path"] for p in lines] == [
        "broken.md:2",
        "latin.md:1",
        "broken.md",
        "broken.md",
    ]


def test_a_folder_that_is_not_there_has_status_2(tmp_path):
    checked = run("check", tmp_path / "nowhere")
    assert checked.returncode == 2
    assert checked.stderr.count("\n") == 1


def test_an_index_behind_the_folder_is_reported_and_not_changed(folder):
    assert run("index", folder).returncode == 0
    assert run("check", folder).returncode == 0
    write_files(
        folder,
        {"it/vpn.md": "---\ntitle: VPN\nkeywords: [vpn]\ncategory: IT\n---\nAnother text.\n"},
    )
    before = snapshot(folder)
    for _ in range(2):
        checked = run("check", folder)
        assert checked.returncode == 1
        assert checked.stdout.startswith(
            "it/vpn.md: has changed since it was indexed: run `lookup-knowledge index`\n"
        )
    assert snapshot(folder) == before


def test_remembered_fields_count(folder):
    write_files(folder, {"draft.md": "---\ntitle: D\ndraft: true\n---\n"})
    assert run("index", folder, "--skip-drafts").returncode == 0
    checked = run("check", folder)
    assert checked.stdout.splitlines()[0] == (
        "draft.md: skipped: a draft (draft: true): remove that field, or set skip_drafts=False"
    )


def test_an_index_that_cannot_be_read_is_a_problem_not_a_failure(folder):
    assert run("index", folder).returncode == 0
    (folder / ".lookup-knowledge" / "index" / "CURRENT").write_text("generation-gone")
    checked = run("check", folder)
    assert checked.returncode == 1
    assert checked.stdout.startswith(".: the index is damaged")


def test_the_load_report_of_a_knowledge_base_adds_up(tmp_path):
    write_files(tmp_path, {"a.md": "x", "b.md": "---\ndraft: true\n---\n", "c.txt": "x"})
    (tmp_path / "d.md").write_bytes(b"\xff")
    with KnowledgeBase.open(tmp_path, index=None, fields=FrontmatterFields(skip_drafts=True)) as kb:
        report = kb.load_report
    assert (report.seen, report.loaded) == (3, 1)
    assert [(problem.path, problem.line) for problem in report.skipped] == [
        ("b.md", None),
        ("d.md", 1),
    ]
    assert set(report.skipped) <= set(kb.problems)


def test_files_over_the_limits_are_skipped_and_the_limit_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr("langchain_lookup_knowledge.reading.documents.MAX_FILES", 2)
    write_files(
        tmp_path,
        {"a.md": "x", "b.md": "x" * 10_000_001, "c.md": "x" * 10_000_000, "d.md": "x", "e.md": "x"},
    )
    entries, report = read_folder(tmp_path, FrontmatterFields())
    assert [entry.entry_id for entry in entries] == ["a.md", "c.md"]
    assert [str(problem) for problem in report.skipped] == [
        "b.md: skipped: it has 10000001 bytes, more than 10000000: split the file",
        "d.md: skipped: the knowledge base already has 2 files: split it",
        "e.md: skipped: the knowledge base already has 2 files: split it",
    ]


def test_the_limits_are_those_of_their_page():
    from langchain_lookup_knowledge.lookup import nodes
    from langchain_lookup_knowledge.lookup.answer import snippets
    from langchain_lookup_knowledge.reading import documents, files
    from langchain_lookup_knowledge.reading.metadata import frontmatter, headers

    page = (Path(__file__).parents[3] / "docs/limits.md").read_text("utf-8")
    for what, limit in (
        ("size of a file |", files.MAX_FILE_BYTES),
        ("files |", documents.MAX_FILES),
        ("frontmatter of a file |", headers.MAX_HEADER_CHARS),
        ("keywords, categories, entities of an entry |", frontmatter.MAX_VALUES),
        (
            "keywords, categories, entities of an entry | 1,000 of each,",
            frontmatter.MAX_VALUE_CHARS,
        ),
        ("a query |", nodes.MAX_QUERY_CHARS),
        ("a passage that is cut for display |", snippets.MAX_WINDOW),
    ):
        assert f"| {what} {limit:,} " in page


@pytest.mark.parametrize(
    "query", ["", "   ", "\u200b", "?!", "-" * 100, "x" * 20_001, "a " * 50_000]
)
def test_a_query_outside_the_limits_is_reported_not_searched(kb, query):
    result = create_lookup_knowledge_graph(kb).invoke({"query": query})
    assert (result["status"], result["l1"]["status"], result["recorded"]) == (
        "invalid_query",
        "skipped",
        "stored",
    )
    assert re.search("no letter, digit or emoji|more than 20000", result["l1"]["reason"])


def test_a_query_at_the_limit_is_searched(kb):
    assert (
        create_lookup_knowledge_graph(kb).invoke({"query": "refund" + " ?" * 9_997})["status"]
        == "ok"
    )


def test_findings_of_one_kind_are_counted_and_three_are_shown(tmp_path):
    bare = {f"{number}.md": f"# Title {number}\n\nText {number}.\n" for number in range(5)}
    write_files(tmp_path, bare | {f"bad{number}.md": "---\na: b: c\n---\n" for number in range(4)})
    checked = run("check", tmp_path)
    assert checked.returncode == 1
    lines = checked.stdout.splitlines()
    assert lines[:5] == [
        "4 times: the frontmatter is not YAML (mapping values are not allowed in this context); "
        "the whole file is used as text: quote the value",
        "  bad0.md:2",
        "  bad1.md:2",
        "  bad2.md:2",
        "  and 1 more: --verbose lists them",
    ]
    assert "9 times: no keywords: add the terms that people use when they ask" in lines
    every = run("check", tmp_path, "--verbose").stdout.splitlines()
    assert (
        sum(
            line.endswith("no keywords: add the terms that people use when they ask")
            for line in every
        )
        == 9
    )
    assert every[-2:] == lines[-2:]


def test_kinds_with_different_texts_show_their_messages(tmp_path):
    names = ("faq", "home", "index", "notes", "overview")
    write_files(
        tmp_path, {f"{name}.md": f"---\ncategory: c\n---\nAll about {name}.\n" for name in names}
    )
    lines = run("check", tmp_path).stdout.splitlines()
    assert lines[5:10] == [
        "5 times: the title … says nothing: choose one that names its topic",
        "  faq.md: the title 'faq' says nothing: choose one that names its topic",
        "  home.md: the title 'home' says nothing: choose one that names its topic",
        "  index.md: the title 'index' says nothing: choose one that names its topic",
        "  and 2 more: --verbose lists them",
    ]


def test_suggestions_alone_have_status_0(tmp_path):
    write_files(tmp_path, {"a.md": "# Boiler\n\nCall the fitter.\n"})
    checked = run("check", tmp_path)
    assert checked.returncode == 0
    assert checked.stdout.endswith("0 problems, 2 suggestions\n")


def test_what_is_left_out_is_counted_by_reason(folder):
    write_files(folder, {"a.txt": "x", "b.txt": "x", "old/c.md": "x", ".gitignore": "old/\n"})
    assert run("index", folder, "--exclude", "it/", "--endings", "md,mdx").returncode == 0
    checked = run("check", folder)
    assert checked.stdout.splitlines()[:3] == [
        "left out: 1 folder (.gitignore), such as old",
        "left out: 1 folder (exclude), such as it",
        "left out: 2 files (the ending .txt), such as a.txt",
    ]
    report = json.loads(run("check", folder, "--json").stdout)
    assert report["left_out"][0] == {
        "reason": ".gitignore",
        "files": 0,
        "folders": 1,
        "example": "old",
    }


LINKS = "# Links\n\n" + "".join(f"- [Page {n}](page-{n}.md)\n" for n in range(6))
PAGE = " ".join(f"word{n}" for n in range(60))


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        (
            {"faq.md": "---\ntags: [a]\ncategory: c\nquestion: May I?\nanswer: No.\n---\n"},
            ["faq.md: its frontmatter holds all its text"],
        ),
        (
            {"faq.md": "---\ntags: [a]\ncategory: c\nquestion: May I?\n---\nAsk first.\n"},
            [],
        ),
        ({"a.md": f"---\ntags: [a]\ncategory: c\n---\n{LINKS}"}, ["a.md: it is a list of links"]),
        ({"a.md": f"---\ntags: [a]\ncategory: c\n---\n{LINKS}\n{PAGE}\n"}, []),
        (
            {
                name: f"---\ntitle: T\ntags: [{name[0]}]\ncategory: c\n---\n{PAGE} {name}\n"
                for name in ("a.md", "b.md")
            },
            ["b.md: a.md has the same title and nearly the same text"],
        ),
        (
            {
                f"v{n}/a.md": f"---\ntitle: T\ntags: [t{n}]\ncategory: c\n---\n{text}\n"
                for n, text in enumerate([PAGE, PAGE, "Another text."])
            },
            [],
        ),
        (
            {
                f"{n}.md": f"---\ntitle: T\ntags: [t{n}]\ncategory: c\n{state}---\n{PAGE} {n}\n"
                for n, state in enumerate(["status: superseded\n", ""])
            },
            [],
        ),
        (
            {
                name: f"---\ntitle: T{name}\ntags: [{name[0]}]\ncategory: c\n---\n{PAGE}\n"
                for name in ("a.md", "b.md")
            },
            ["b.md: a.md has the same text"],
        ),
    ],
)
def test_suggestions_about_the_text_of_entries(tmp_path, files, expected):
    with KnowledgeBase.open(write_files(tmp_path, files), index=None) as kb:
        found = [str(problem) for problem in kb.suggestions()]
    assert [text[: len(start)] for text, start in zip(found, expected, strict=True)] == expected
