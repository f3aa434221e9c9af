"""Headers of many tools: the fields they give, and that no line of the text is lost or moved."""

import pytest
from conftest import write_files
from parts.cases import read_cases, write_case

from langchain_lookup_knowledge.reading.documents import read_folder
from langchain_lookup_knowledge.types import FrontmatterFields

CASES = read_cases("reports")


def read(tmp_path, text, **fields):
    (entry,), report = read_folder(
        write_files(tmp_path, {"a.md": text}), FrontmatterFields(**fields)
    )
    return entry, [str(problem) for problem in report.problems]


@pytest.mark.parametrize(
    ("case_id", "fields", "expected"),
    [
        ("PX-24", {}, ("Kiln book", ("kiln",), ())),
        ("PX-25", {}, ("Router swap", ("router",), ())),
        (
            "PX-26",
            {},
            ("Gateway renewal", ("networking", "hardware"), ("gateway swap", "edge box")),
        ),
        ("PX-28", {}, ("a", ("welding",), ("Blue torch",))),
        (
            "PX-28",
            {"inline_tags": True},
            ("a", ("welding", "urgent-repair", "house/heating"), ("Blue torch",)),
        ),
    ],
)
def test_a_reported_header(tmp_path, case_id, fields, expected):
    (entry,), report = read_folder(
        write_case(tmp_path, CASES[case_id]), FrontmatterFields(**fields)
    )
    assert (entry.title, entry.keywords, entry.entities) == expected
    assert report.problems == ()
    for shown in ("title", "Copyright", "id::"):
        assert shown not in entry.text


@pytest.mark.parametrize(
    ("text", "title", "keywords"),
    [
        ("---\ntitle: T\ntags: [k]\n...\nText.\n", "T", ("k",)),
        ("---\ntitle: T\n...\n\nText.\n---\nMore.\n", "T", ()),
        ("<!-- SPDX: MIT -->\n<!-- two\nlines -->\n\n---\ntitle: T\n---\nText.\n", "T", ()),
        ("<!-- by X -->\n+++\ntitle = 'T'\n+++\nText.\n", "T", ()),
        ("# Copyright 2026 X\n# All rights reserved\n---\ntitle: T\n---\nText.\n", "T", ()),
        ("title:: T\ntags:: #k, [[Page|l]]\n\n- Text.\n", "T", ("k", "l")),
        ("- tags:: k\n- Text.\n", "a", ("k",)),
        ("% T\n% Jane\n% June 2026\n\nText.\n", "T", ()),
        ("% T\n  of two lines\n%\n% 2026-01-01\n\nText.\n", "T of two lines", ()),
        ("% T(1) Manual\n\nText.\n", "T(1) Manual", ()),
        ("Title: T\nKeywords: k, l\nDate: 2026\n\nText.\n", "T", ("k", "l")),
        ("Author: X\ntitle:  T\nTags: k\n  l\n\nText.\n", "T", ("k l",)),
        ("---\ntag: k\nkeyword: l\n---\nText.\n", "a", ("l", "k")),
        ("---\ntags: '#k #l, m'\n---\nText.\n", "a", ("k", "l", "m")),
        ("---\ntags: '[''k'', \"it''s\", 7]'\n---\nText.\n", "a", ("k", "it's", "7")),
        ("---\ntags: ['[[K]]', '[[p|L]]']\n---\nText.\n", "a", ("K", "L")),
    ],
)
def test_a_header_of_another_tool(tmp_path, text, title, keywords):
    entry, problems = read(tmp_path, text)
    assert (entry.title, entry.keywords, problems) == (title, keywords, [])
    lines = text.split("\n")
    shown = entry.text.split("\n")
    place = next(number for number, line in enumerate(shown, start=1) if "Text." in line)
    assert shown[place - 1] == lines[entry.file_line(place) - 1]
    assert entry.text.strip().startswith(("Text.", "- Text."))


@pytest.mark.parametrize(
    "text",
    [
        "...\ntitle: T\n...\n",
        "<!-- a -->\n---\nText between rules.\n---\n",
        "<!-- a -->\n---\n\nText below a rule.\n",
        "<!-- a --> ---\ntitle: T\n---\n",
        "# Title\n---\ntitle: T\n---\n",
        "% a comment of MyST\n\nText.\n",
        "% Copyright X\n% see the licence\n\nText.\n",
        "% one\n% two\n% 2026\nText.\n",
        "std::vector holds values.\n",
        "Note: this is a sentence.\n\nText.\n",
        "Status: In progress\nTags: heating\n\nText.\n",
        "Title: a sentence\nthat goes on.\n\nText.\n",
    ],
)
def test_text_that_looks_like_a_header_stays_text(tmp_path, text):
    entry, problems = read(tmp_path, text)
    assert (entry.keywords, entry.attributes, problems) == ((), (), [])
    assert entry.text.strip().endswith(text.strip().split("\n")[-1])


def test_a_block_without_a_title_is_a_header_on_request(tmp_path):
    text = "Status: In progress\nTags: heating, basement\n\nCall the fitter.\n"
    entry, _ = read(tmp_path, text, plain_headers=True)
    assert entry.keywords == ("heating", "basement")
    assert entry.other_values == ("In progress",)
    assert entry.text.strip() == "Call the fitter."


def test_a_header_below_a_comment_is_reported_with_its_line(tmp_path):
    entry, problems = read(tmp_path, "<!-- a -->\n---\ntitle: a: b\n---\nText.\n")
    assert "Text." in entry.text
    assert [problem[: len("a.md:3: the frontmatter is not YAML")] for problem in problems] == [
        "a.md:3: the frontmatter is not YAML"
    ]


@pytest.mark.parametrize(
    ("text", "tags"),
    [
        ("#one and (#two), #three/four. a#no `#no` #12 #v2", ("one", "two", "three/four", "v2")),
        ("# Heading\n\n```sh\n#no\n```\n#yes\n#yes", ("yes",)),
        ("see https://example.org/#no and &#39; ##no", ()),
        ("标签 #厨房 #Größe", ("厨房", "Größe")),
    ],
)
def test_inline_tags_are_keywords_on_request(tmp_path, text, tags):
    assert read(tmp_path, text, inline_tags=True)[0].keywords == tags
    assert read(tmp_path, text)[0].keywords == ()


def test_only_what_logseq_hides_goes_from_its_blocks(tmp_path):
    text = (
        "- One\n  id:: 64b0c1f2-0000-4000-8000-000000000001\n  collapsed:: true\n"
        "- price:: 12 euro\n- id:: seven\n"
    )
    entry, _ = read(tmp_path, f"Text.\n{text}")
    assert entry.text == "Text.\n- One\n  \n  \n- price:: 12 euro\n- id:: seven\n"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("<!--" * 50_000, 190_000),
        ("a:: b\n" * 50_000, 290_000),
        ("% a\n" + " b\n" * 50_000, 140_000),
        ("% a\n% b\n% c\n" + "% a comment of MyST\n" * 50_000 + "Seen.", 5),
        ("Title: a\n" * 50_000, 440_000),
        ("# Copyright\n" * 50_000, 590_000),
    ],
)
@pytest.mark.slow
def test_an_unusual_beginning_is_read_in_linear_time(tmp_path, text, shown):
    found = read(tmp_path, text)[0].text.strip()
    assert shown <= len(found) <= shown + 10_000
    assert found.endswith(text[-5:].strip())


def test_the_clocks_of_a_logseq_block_are_hidden_and_its_lines_stay(tmp_path):
    drawer = "  :LOGBOOK:\n  CLOCK: [2026-01-02 Fri 10:00:00]\n  :END:\n"
    files = {"a.md": f"- TODO Repair it.\n{drawer}- Next.\n  :LOGBOOK: is a word.\n"}
    (entry,), _ = read_folder(write_files(tmp_path, files), FrontmatterFields())
    assert entry.text == "- TODO Repair it.\n\n\n\n- Next.\n  :LOGBOOK: is a word.\n"


PROPERTIES = "# Valve swap\n\nStatus: In use\nTags: valve, pump\nOwner: Jane Doe\n\nClose it.\n"


@pytest.mark.parametrize(
    ("name", "text", "keywords"),
    [
        (f"Valve swap {'0123456789abcdef' * 2}.md", PROPERTIES, ("valve", "pump")),
        ("Valve swap.md", PROPERTIES, ()),
        (f"a {'0123456789abcdef' * 2}.md", PROPERTIES.replace("Owner: ", "Ask "), ()),
        (
            f"a {'0123456789abcdef' * 2}.md",
            PROPERTIES.replace("Owner", "\nOwner"),
            ("valve", "pump"),
        ),
        (f"a {'0123456789abcdef' * 2}.md", PROPERTIES.replace("# Valve", "Valve"), ()),
        (f"a {'0123456789abcdef' * 2}.md", PROPERTIES.replace("\n\nS", "\n\nIt is.\n\nS"), ()),
    ],
)
def test_properties_below_the_title_of_an_exported_page(tmp_path, name, text, keywords):
    """An export of Notion writes them as text; another page may only look like one."""
    (entry,), report = read_folder(write_files(tmp_path, {name: text}), FrontmatterFields())
    assert entry.keywords == keywords
    assert (("status", "In use") in entry.attributes) == bool(keywords)
    assert entry.text == text  # nothing that may be prose is lost
    assert report.problems == ()


def test_a_problem_with_an_exported_property_names_its_line(tmp_path):
    text = PROPERTIES.replace("Owner", "Status")
    files = write_files(tmp_path, {f"a {'0123456789abcdef' * 2}.md": text})
    _, report = read_folder(files, FrontmatterFields())
    assert [problem.line for problem in report.problems] == [5]
