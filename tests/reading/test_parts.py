"""Parts of an entry: by heading, by lines, and what a message says about one that is not there."""

import pytest
from conftest import write_files

from langchain_lookup_knowledge import EntryNotFoundError, FrontmatterFields
from langchain_lookup_knowledge.reading.documents import read_folder
from langchain_lookup_knowledge.reading.parts import cited, parse_lines, part_of

GUIDE = """---
title: Guide
---
# Guide

Intro.

## Install

Do it.

<!-- hidden
lines -->

### Linux

apt

## Use

Run it.

### Linux

./run
"""


@pytest.fixture
def entry(tmp_path):
    (found,), _ = read_folder(write_files(tmp_path, {"guide.md": GUIDE}), FrontmatterFields())
    return found


@pytest.mark.parametrize(
    ("heading", "lines", "path", "span", "begins", "ends"),
    [
        (None, None, "", (4, 25), "# Guide", "./run"),
        ("guide", None, "Guide", (4, 25), "# Guide", "./run"),
        ("install", None, "Guide > Install", (8, 17), "## Install", "apt"),
        ("Linux", None, "Guide > Install > Linux", (15, 17), "### Linux", "apt"),
        ("use > linux", None, "Guide > Use > Linux", (23, 25), "### Linux", "./run"),
        ("Guide > Use", None, "Guide > Use", (19, 25), "## Use", "./run"),
        (None, (6, 10), "", (6, 10), "Intro.", "Do it."),
        (None, (10, 16), "", (10, 15), "Do it.", "### Linux"),
        (None, (20, 99), "", (21, 25), "Run it.", "./run"),
        ("Install", (1, 12), "Guide > Install", (8, 10), "## Install", "Do it."),
    ],
)
def test_a_part_has_the_lines_of_the_file(entry, heading, lines, path, span, begins, ends):
    part = part_of(entry, heading=heading, lines=lines)
    assert (part.heading, part.lines) == (path, span)
    written = part.text.split("\n")
    assert (written[0], written[-1]) == (begins, ends)
    assert "hidden" not in part.text
    file = GUIDE.split("\n")
    assert all(file[n - 1] == line for n, line in zip(part.numbers, written, strict=True) if line)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"heading": "instal"}, "'guide.md' has no heading 'instal'; the nearest: 'Install'"),
        ({"lines": (40, 50)}, "'guide.md' has no text in these lines: it ends at line 25"),
        ({"lines": (12, 13)}, "'guide.md' has no text in these lines"),
    ],
)
def test_what_is_not_there_is_named(entry, arguments, message):
    with pytest.raises(EntryNotFoundError) as error:
        part_of(entry, **arguments)
    assert str(error.value).startswith(message)


def test_lines_are_a_first_and_a_last_one():
    assert [parse_lines(written) for written in ("12-40", " 7 ", "3–5", "3:5")] == [
        (12, 40),
        (7, 7),
        (3, 5),
        (3, 5),
    ]
    for written in ("", "x", "5-3", "0-4", "1-2-3", "9" * 99):
        with pytest.raises(ValueError, match="lines takes the first and the last line"):
            parse_lines(written)


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("a/b.md", ("a/b.md", None, None)),
        ("a/b.md:12-20 > Install", ("a/b.md", (12, 20), None)),
        ("a/b.md:12", ("a/b.md", (12, 12), None)),
        ("a/b.md > Install > Linux", ("a/b.md", None, "Install > Linux")),
        ("a/b.md:20-12", ("a/b.md", None, None)),
        ("https://x.example:80/a", ("https://x.example:80/a", None, None)),
    ],
)
def test_a_place_as_a_lookup_cites_it_names_its_source_and_its_part(written, expected):
    assert cited(written) == expected
