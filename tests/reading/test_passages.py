"""Passages: cut where Markdown has a joint, never too long, and nothing lost."""

import re

import pytest
from conftest import write_files
from hypothesis import given
from hypothesis import strategies as st

from langchain_lookup_knowledge.l0.lints import left_out_of_passages
from langchain_lookup_knowledge.reading.documents import read_folder
from langchain_lookup_knowledge.reading.entry import Entry
from langchain_lookup_knowledge.reading.passages import MAX_HEADING, Passage, split_passages
from langchain_lookup_knowledge.text.substance import is_links_alone
from langchain_lookup_knowledge.types import FrontmatterFields

SIZE = 300


def characters(text):
    """Return where the units of a text begin, if it is measured in characters."""
    return range(len(text))


def passages(text, size=SIZE):
    return split_passages(Entry("a.md", "Title", (), (), (), text), size=size, units=characters)


def texts(text, size=SIZE):
    return [passage.text for passage in passages(text, size)]


def lines(count, start="line"):
    return "\n".join(f"{start} {i} of the block" for i in range(count))


def test_passages_follow_headings_and_size():
    long = "\n\n".join(f"Paragraph {i} " + "word " * 20 for i in range(10))
    found = passages(f"Intro.\n\n# One\n\n## Two\n\n{long}\n\n# Three\n\nEnd.\n")
    assert [passage.number for passage in found] == list(range(len(found)))
    assert all(len(passage.text) <= SIZE for passage in found)
    assert found[0].text.startswith("Intro.")
    assert found[1].heading == "One > Two"
    assert "Paragraph 9" in " ".join(passage.text for passage in found)
    assert found[-1].text.endswith("End.")


def test_an_entry_without_text_is_one_passage():
    assert texts("") == ["Title"]


def test_a_code_block_that_fits_is_not_cut():
    code = f"```sh\n{lines(8)}\n\n{lines(2)}\n```"
    before = "Some words before it. " * 10
    assert texts(f"{before}\n\n{code}\n\nafter") == [before.strip(), f"{code}\n\nafter"]


@pytest.mark.parametrize(("opening", "closing"), [("```sh", "```"), ("~~~~", "~~~~"), ("```", "")])
def test_each_piece_of_a_long_code_block_is_a_code_block(opening, closing):
    found = texts(f"{opening}\n{lines(40)}\n{closing}".rstrip())
    assert len(found) == 3
    assert all(
        text.startswith(f"{opening}\n") and text.endswith(opening.strip("sh")) for text in found
    )
    assert "\n".join(text.split("\n", 1)[1].rsplit("\n", 1)[0] for text in found) == lines(40)


def test_each_piece_of_a_long_table_has_its_head():
    head = "| name | value |\n|:-----|------:|"
    rows = "\n".join(f"| row {i} | {i * i} |" for i in range(60))
    found = texts(f"{head}\n{rows}")
    assert len(found) > 3
    assert all(text.startswith(f"{head}\n|") for text in found)
    assert "\n".join(text.removeprefix(f"{head}\n") for text in found) == rows


def test_a_long_list_is_cut_between_its_items():
    items = [f"- item {i}\n  with a second line\n\n  - and a part of its own\n" for i in range(20)]
    found = texts("\n".join(items))
    assert len(found) > 3
    assert all(text.startswith("- item") and text.endswith("of its own") for text in found)


def test_a_paragraph_is_cut_between_sentences():
    found = texts("This is a sentence of some length, more or less. " * 20)
    assert len(found) > 1
    assert all(text.rstrip().endswith("less.") for text in found)


def test_one_word_longer_than_a_passage_is_cut():
    assert "".join(texts("x" * 1000)) == "x" * 1000


LINES = [
    "# Head",
    "## Sub",
    "- item",
    "  - inner",
    "1. one",
    "```",
    "~~~ sh",
    "| a | b |",
    "|---|---|",
    "| 1 | 2 |",
]
LINES += [
    "",
    "  ",
    "word",
    "a longer line of words, with a comma",
    "x" * 70,
    "中文字符",
    "    code",
    "> quote",
    "\tx",
]
MARKDOWN = st.lists(st.sampled_from(LINES), max_size=60).map("\n".join)


@given(MARKDOWN)
def test_no_passage_is_too_long_and_no_word_is_lost(text):
    found = passages(text, 60)
    assert all(len(passage.text) <= 60 for passage in found)
    shown = "".join("".join((passage.heading, passage.text)) for passage in found)
    for word in ("item", "inner", "word", "comma", "quote", "code"):
        assert shown.count(word) >= text.count(word)


@pytest.mark.slow
def test_many_blocks_take_time_in_proportion():
    assert len(texts("- item of a list\n\n" * 20_000)) > 1000


def test_headings_without_text_are_not_lost():
    found = passages("# Outline\n\n## Refund of damaged goods\n\n## Chargebacks\n")
    assert "Refund of damaged goods" in found[0].text
    assert "Chargebacks" in found[0].text
    (found,) = passages("# Title\n\n## Section\n\nText.\n")
    assert found == Passage(0, "Title > Section", "Text.", (5, 5))


FILE = """\
---
title: Gateway
tags: [gateway]
---

# Gateway

Intro of the gateway.
<!-- A hidden comment
of several lines,

with a blank one. -->
It forwards requests.

## Ports

| port | use |
|------|-----|
{rows}

## Script

```sh
{code}
```

## One

First short section.

## Two

Second short section.
"""


def in_file(tmp_path, text):
    """Return the passages of a file, and its lines."""
    folder = write_files(tmp_path, {"a.md": text})
    (entry,), _ = read_folder(folder, FrontmatterFields())
    return split_passages(entry, size=SIZE, units=characters), text.split("\n")


def test_a_passage_names_the_lines_of_the_file_that_it_was_cut_from(tmp_path):
    rows = [f"| {8000 + i} | use number {i} |" for i in range(40)]
    code = [f"echo step {i} of the script" for i in range(40)]
    written = FILE.format(rows="\n".join(rows), code="\n".join(code))
    found, of_file = in_file(tmp_path, written)
    repeated = {"| port | use |", "|------|-----|", "```sh", "```"}
    for one in found:
        first, last = one.lines
        covered = of_file[first - 1 : last]
        own = [line for line in one.text.split("\n") if line and line not in repeated]
        assert [line for line in own if line not in covered] == []
        assert covered[0].strip()
        assert covered[-1].strip()
        numbered = [line for line in covered if line in {*rows, *code}]
        assert numbered == [line for line in own if line in {*rows, *code}]
    assert found[0].lines == (8, 26)  # the short introduction, and the first rows
    assert found[0].text.split("\n")[0] == "Intro of the gateway."
    in_order = [place for one in found for place in one.lines]
    assert in_order == sorted(in_order)
    of_rows = [one for one in found if one.heading.endswith("Ports")]
    of_code = [one for one in found if one.heading.endswith("Script")]
    assert min(len(of_rows), len(of_code)) > 2
    assert of_rows[0].lines[0] == found[0].lines[1] + 1
    assert of_code[-1].text.count("```") == 2
    assert of_file[found[-1].lines[1] - 1] == "Second short section."


def test_short_sections_in_one_passage_are_lines_from_the_first_to_the_last(tmp_path):
    (found,), of_file = in_file(tmp_path, "# Guide\n\n\nText.\n\n## One\n\n1.\n\n## Two\n\n2.\n\n")
    assert found.lines == (4, 12)
    assert (of_file[3], of_file[11]) == ("Text.", "2.")


def test_a_long_paragraph_on_one_line_is_that_line(tmp_path):
    found, _ = in_file(tmp_path, "# Guide\n\n" + "A sentence of some length. " * 40 + "\n\nEnd.\n")
    assert len(found) > 2
    assert {one.lines for one in found[:-1]} == {(3, 3)}
    assert found[-1].lines in {(3, 5), (5, 5)}


def test_equal_lines_are_told_apart_by_their_order(tmp_path):
    block = "\n\n".join(f"Paragraph {n} of many.\n\nThe same words again." for n in range(40))
    found, of_file = in_file(tmp_path, block)
    assert len(found) > 5
    for one in found:
        first, last = one.lines
        assert one.text.split("\n") == of_file[first - 1 : last]


@given(MARKDOWN)
def test_lines_are_in_order_and_within_the_text(text):
    found = passages(text, 60)
    places = [one.lines for one in found]
    assert all(1 <= first <= last <= max(1, text.count("\n") + 1) for first, last in places)
    assert [first for first, _ in places] == sorted(first for first, _ in places)


FAQ = "# Boiler\n\n" + "\n\n".join(
    f"**May tenant {n} move it?**\n\nNo, ask the fitter of house {n}.\n\n- By telephone {n}."
    for n in range(12)
)
VERSIONS = "# Changes\n\n" + "\n\n".join(
    f"**1.{n}.0**\n\n- Added the pump {n}.\n- Removed the valve {n}.\n- Fixed the lid {n}."
    for n in range(12)
)
TERMS = "# Terms\n\n" + "\n\n".join(
    f"Term {n}\n: What the term means in house {n}.\n\n  More of it, as {n} words."
    for n in range(12)
)
GLOSSARY = "# Terms\n\n" + "\n".join(f"- **T{n}**: what it\n  means, {n}\n" for n in range(40))


@pytest.mark.parametrize(
    ("text", "first", "last"),
    [
        (FAQ, r"\*\*May tenant (\d+)", r"telephone (\d+)\."),
        (VERSIONS, r"\*\*1\.(\d+)", r"lid (\d+)"),
        (TERMS, r"Term (\d+)", r"as (\d+) words"),
        (GLOSSARY, r"\*\*T(\d+)", r"means, (\d+)"),
    ],
    ids=["questions", "versions", "definitions", "glossary"],
)
def test_what_belongs_together_is_not_cut(text, first, last):
    found = texts(text)
    assert len(found) > 2
    for passage in found:
        assert re.findall(first, passage) == re.findall(last, passage) != []


def html_rows(count):
    return [f"<tr><td>Widget {n}</td><td>{7 * n} euro</td></tr>" for n in range(count)]


@pytest.mark.parametrize("joint", ["\n", ""])
@pytest.mark.parametrize(
    "head",
    [
        "<table>\n<tr><th>Item</th><th>Price</th></tr>",
        "<table><thead><tr><th>Item<th>Price</tr></thead>",
    ],
)
def test_each_piece_of_a_long_html_table_has_its_head(head, joint):
    rows = html_rows(30)
    found = texts(f"{head}{joint}{joint.join(rows)}{joint}</table>\n")
    assert len(found) > 3
    assert all(text.startswith(head) and text.endswith("</table>") for text in found)
    assert [row for text in found for row in rows if row in text] == rows


def test_a_fence_in_a_list_item_keeps_its_indentation_and_fence():
    found = texts(
        "1. Run\n\n   ```sh\n"
        + "\n".join(f"   echo {n} of it" for n in range(60))
        + "\n   ```\n2. Wait\n"
    )
    assert len(found) > 2
    for text in found[1:-1]:
        assert text.startswith("   ```sh\n")
        assert text.endswith("\n   ```")


PROSE = "A sentence of some length about the kiln. " * 6
LINKS = "".join(f"- [Page {n}](guide/{n}.md)\n" for n in range(5))


@pytest.mark.parametrize(
    ("text", "gone"),
    [
        (f"[![build](https://b.io/a.svg)](https://ci.io) [![npm](b.svg)](c)\n\n{PROSE}", "build"),
        (f"- [A](#a)\n- [B](#b)\n  - [C](#c)\n\n{PROSE}", "[A]"),
        (f"{PROSE}\n\n```compressed-json\n{'uwoIhaFjfBVf5wSmO' * 20}\n```\n", "uwo"),
        (f"{PROSE}\n\n{'iVBORw0KGgoAAAANSUhEUgAA9x/+' * 20}\n", "iVBO"),
        (f"{'kiln ' * 59}\n\n# B\n\n<br>\n\n<a name='x'></a>\n\n# C\n\n{'kiln ' * 59}", "<br>"),
    ],
    ids=["badges", "contents", "drawing", "base64", "html"],
)
def test_what_says_nothing_is_in_no_passage(text, gone):
    found = texts(text)
    assert not any(gone in passage for passage in found)
    assert "".join(found).count("kiln") == text.count("kiln")


def test_what_is_left_out_is_a_suggestion():
    drawing = "uwoIhaFjfBVf5wSmO" * 20
    entry = Entry("a.md", "A", (), (), (), f"# A\n\n{PROSE}\n\n- [A](#a)\n- [B](#b)\n\n{drawing}\n")
    contents, data = left_out_of_passages([entry])
    assert (contents.line, contents.message.split(" (")[0]) == (5, "a table of contents")
    assert (data.line, f"{len(drawing)} characters" in data.message) == (8, True)


@pytest.mark.parametrize(
    "text",
    [
        f"# A\n\n{PROSE}\n\nA short end.\n",
        f"# A\n\nA short start.\n\n{PROSE}\n\n{PROSE}",
        f"# A\n\n{PROSE}{PROSE}\n\n# B\n\nA short section.\n",
        f"# A\n\n{PROSE}\n\n{LINKS}",
        f"# A\n\nA few words of it.\n\n{PROSE}\n\n# See also\n\n{LINKS}",
        "# A\n\n" + "A sentence of it, here. " * 13,
    ],
)  # fmt: skip
def test_no_passage_is_short_or_of_links_alone_where_a_neighbor_has_room(text):
    for passage in texts(text, 330):
        assert len(passage) >= 330 // 5
        assert not is_links_alone(passage)


def test_links_to_elsewhere_are_not_lost_where_no_neighbor_has_room():
    links = "".join(f"- [Page {n}](guide/{n}.md)\n" for n in range(40))
    found = passages(f"# A\n\n{PROSE}\n\n## See also\n\n{links}")
    assert "".join(passage.text for passage in found).count("](guide") == 40
    assert all("## See also" in p.text for p in found if is_links_alone(p.text.split("\n\n")[-1]))


def test_a_long_heading_is_whole_in_the_text_and_short_in_the_path():
    (found,) = passages("# " + "long " * 50 + "end\n\nText.\n")
    assert len(found.heading) <= MAX_HEADING
    assert found.text.startswith("# long ")
    assert "end\n\nText." in found.text
    assert all(len(text) <= 300 for text in texts("# " + "long " * 50 + f"end\n\n{PROSE}"))


def test_headings_are_as_a_reader_sees_them():
    (found,) = passages("# [Kiln](x) `one` &amp; two {#id}\n\nText.\n\n## **Sub** ^a\n\nMore.\n")
    assert found.heading == "Kiln one & two"
    assert found.text == "Text.\n\n## Sub\n\nMore."
