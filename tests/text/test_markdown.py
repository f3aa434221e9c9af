"""Block structure: what is a heading, a fence, a list or HTML is what the parser says."""

import re

import pytest
from markdown_it import MarkdownIt
from parts.markdown_documents import markdown_documents

from langchain_lookup_knowledge.text.headings import file_title, heading_text
from langchain_lookup_knowledge.text.markdown import (
    MAX_LINES,
    MAX_TOKENS,
    Outline,
    code_ranges,
    limits,
    outline,
)
from langchain_lookup_knowledge.text.visible.cleaning import visible_text

DOCUMENTS = list(markdown_documents(300, seed=16))
PARSER = MarkdownIt("commonmark", {"maxNesting": 100}).enable("table")


def all_blocks(blocks):
    for block in blocks:
        yield block
        yield from all_blocks(block.children)


def written_lines(text, first, end):
    return [n for n, line in enumerate(text.split("\n")[first:end], first) if line.strip()]


@pytest.mark.parametrize("number", range(0, 300, 50))
def test_headings_code_lists_tables_and_html_are_those_of_the_parser(number):
    for text in DOCUMENTS[number : number + 50]:
        tokens = PARSER.parse(text.removesuffix("\n") + "\n")
        ours = list(all_blocks(outline(text).blocks))
        of_html = {
            line
            for token in tokens
            if token.type == "html_block"
            for line in written_lines(text, *token.map)
        }
        assert [
            (block.level, block.first, block.raw)
            for block in ours
            if block.kind == "heading" and block.first not in of_html
        ] == [
            (int(token.tag[1]), token.map[0], tokens[place + 1].content)
            for place, token in enumerate(tokens)
            if token.type == "heading_open"
        ]
        assert of_html == {
            line
            for block in ours
            for line in written_lines(text, block.first, block.last + 1)
            if block.kind == "html" or (block.kind == "heading" and block.first in of_html)
        }
        for kind, types in {
            "code": ("fence", "code_block"),
            "list": ("bullet_list_open", "ordered_list_open"),
            "item": ("list_item_open",),
            "quote": ("blockquote_open",),
            "table": ("table_open",),
        }.items():
            assert [block.first for block in ours if block.kind == kind] == [
                token.map[0] for token in tokens if token.type in types
            ]
        lines = outline(text)
        assert code_ranges(text) == [
            (lines.start(token.map[0]), lines.start(token.map[1]))
            for token in tokens
            if token.type in ("fence", "code_block")
        ]


def test_the_documents_hold_enough_of_each_construct():
    tokens = [token for text in DOCUMENTS for token in PARSER.parse(text)]
    for kind in ("heading_open", "fence", "code_block", "html_block", "table_open"):
        assert sum(token.type == kind for token in tokens) > 40, kind
    assert any(token.type == "fence" and token.level > 3 for token in tokens)


def test_comments_on_one_line_go_wherever_they_are_but_in_code():
    numbers = re.compile(r"<!-- (c\d+) -->")
    for text in DOCUMENTS:
        tokens = [
            inner for token in PARSER.parse(text) for inner in (token, *(token.children or ()))
        ]
        code = "".join(
            token.content
            for token in tokens
            if token.type in ("fence", "code_block", "code_inline")
        )
        assert sorted(numbers.findall(visible_text(text))) == sorted(numbers.findall(code)), text


def test_each_line_that_is_not_blank_is_in_one_block():
    for text in DOCUMENTS:
        covered = [line for b in outline(text).blocks for line in range(b.first, b.last + 1)]
        assert len(covered) == len(set(covered))
        assert set(written_lines(text, 0, None)) <= set(covered)


@pytest.mark.parametrize(
    ("text", "headings"),
    [
        ("# A #\n\nB\n===\n\nC\nD\n---\n", [(1, "A"), (1, "B"), (2, "C\nD")]),
        ("<h1>A</h1>\n<h2 id='b'>\nB\n</h2>\ntext\n", [(1, "A"), (2, "\nB\n")]),
        ("<div><h1>A</h1></div>\n\n<p>x <h2>B</h2>\n", [(1, "A")]),
        ("<h1>A</h2>\n\n<h1>B\n\n- # C\n\n> # D\n", []),
        ("```\n# A\n```\n\n    # B\n\n<!--\n# C\n-->\n\n<pre>\n<h1>D</h1>\n</pre>\n", [(1, "D")]),
    ],
)
def test_sections_begin_at_headings_of_any_form(text, headings):
    found = [(s.level, s.heading) for s in Outline(text).sections() if s.level]
    assert found == headings


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        ("[Tinderbox](https://e.org/t) [![build](i.svg)](https://ci.org)", "Tinderbox"),
        ("![Quillbase](logo.png)", "Quillbase"),
        ("\n  <img src='l.png'><br>Quillbase\n", "Quillbase"),
        ("**Garage** door `opener-cli` &amp; remote", "Garage door opener-cli & remote"),
        ('<a name="dog"></a>Dog rota', "Dog rota"),
        ("[[Payroll|Payroll run]] list, [[hr/Leave]], [[#Pay]]", "Payroll run list, Leave, Pay"),
        ("Incident review ^inc-1", "Incident review"),
        ("Setup {#setup} ", "Setup"),
        ("Setup {: .wide } ^a", "Setup"),
        ("Setup [¶](#setup 'Link')", "Setup"),
        ("[Install][i] and [use][]", "Install and use"),
        ("[Unreleased]", "Unreleased"),
        ("Vec<T> and List<String> <Badge text='new'/>", "Vec<T> and List<String>"),
        ("C# \\* &#8203;x  y", "C# * x y"),
        ("a < b > c", "a < b > c"),
        ("", ""),
        ("[" * 100_000, "[" * 1000),
    ],
)  # fmt: skip
def test_a_heading_is_what_a_reader_sees(raw, shown):
    assert heading_text(raw) == shown


def test_marks_of_emphasis_are_text_in_the_title_of_a_frontmatter():
    assert heading_text("__init__ &amp; [*args](x)", is_markdown=False) == "__init__ & *args"


@pytest.mark.parametrize(
    ("stem", "title"),
    [
        ("Boiler 11112222333344445555666677778888", "Boiler"),
        ("11112222333344445555666677778888", "11112222333344445555666677778888"),
        ("Boiler 1234", "Boiler 1234"),
    ],
)
def test_the_id_of_an_export_is_no_part_of_a_title(stem, title):
    assert file_title(stem) == title


def test_what_passes_a_bound_is_named_and_not_lost():
    deep = "> " * 120 + "a\n\n# After\n"
    ((line, message),) = limits(deep)
    assert (line, "nested 100 levels deep" in message) == (1, True)
    assert not list(limits("> " * 30 + "a\n\n# After\n"))


@pytest.mark.parametrize(
    ("start", "line"),
    [
        ("x\n" * MAX_LINES, MAX_LINES + 1),
        ("- a\n" * (MAX_TOKENS // 5), 3),
        ("# a\n" * 40_000, 33_335),
    ],
)
@pytest.mark.slow
def test_what_passes_a_bound_is_plain_text(start, line):
    text = f"# Title\n\n{start}\n\n# Late\n"
    ((found, message),) = limits(text)
    assert (found, "too long" in message) == (line, True)
    sections = list(Outline(text).sections())
    assert sections[1].heading == "Title"
    assert sections[-1].heading != "Late"
    last = sections[-1].blocks[-1]
    assert (last.kind, last.first) == ("paragraph", text.count("\n") - 1)
