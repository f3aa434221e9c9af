"""Files to entries: what is used, what is not, and that every loss is told."""

import os
import time

import pytest
from conftest import write_files

from langchain_lookup_knowledge.documents import category_key, read_folder, sections, visible_text
from langchain_lookup_knowledge.errors import DocumentError
from langchain_lookup_knowledge.types import FrontmatterFields


def read(tmp_path, text, name="a.md", **fields):
    (entry,), report = read_folder(write_files(tmp_path, {name: text}), FrontmatterFields(**fields))
    return entry, [str(problem) for problem in report.problems]


@pytest.mark.parametrize(
    ("header", "keywords"),
    [
        ("tags: refund, chargeback,store credit", ("refund", "chargeback", "store credit")),
        ("keywords: ['recordsets [C++], end of', cursor moves]", ("recordsets [C++], end of", "cursor moves")),
        ("tags:\n-\n- billing\n- ~", ("billing",)),
        ("tags: [2024, 1.10, 010, on, 2024-02-30]", ("2024", "1.10", "010", "on", "2024-02-30")),
        ("keywords: [a1]\ntags: [a1, b2]", ("a1", "b2")),
        ("tags: don't fix", ("don't fix",)),
        ("a: &a [x1, y1]\ntags: *a", ("x1", "y1")),
    ],
)
def test_keywords_are_kept_as_written(tmp_path, header, keywords):
    assert read(tmp_path, f"---\n{header}\n---\nbody\n")[0].keywords == keywords


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("---\ntitle: 20240425\n---\n# Heading\n", "20240425"),
        ("---\ntitle: ''\n---\n```\n# not this\n```\n## The `heading` #\n", "The `heading`"),
        ("no heading at all\n", "a"),
        ("<!-- # hidden -->\n# Shown\n", "Shown"),
        ("import X from '@theme/X';\nexport const y = 1;\n\n# Connect\n", "Connect"),
    ],
)
def test_title_is_the_field_then_the_first_heading_then_the_file_name(tmp_path, text, title):
    assert read(tmp_path, text)[0].title == title


def test_categories_may_be_several_and_blank_is_none(tmp_path):
    assert read(tmp_path, "---\ncategory: Billing\ndomain: [HR, Billing]\n---\n")[0].categories == ("Billing", "HR")
    assert read(tmp_path, "---\ncategory: ' '\n---\n")[0].categories == ()


def test_category_from_path_fills_in_where_the_frontmatter_names_none(tmp_path):
    files = {"manuals/engine/install/ubuntu.md": "x", "top.md": "x", "manuals/own.md": "---\ncategory: Own\n---\n"}
    entries, _ = read_folder(write_files(tmp_path, files), FrontmatterFields(category_from_path=2))
    assert {entry.entry_id: entry.categories for entry in entries} == {
        "manuals/engine/install/ubuntu.md": ("manuals/engine",),
        "manuals/own.md": ("Own",),
        "top.md": (),
    }


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("---\ntitle: x: y\n---\nkept\n", "a.md:2: the frontmatter is not YAML"),
        ("---\ntitle: open\n\nkept\n", "a.md:1: the frontmatter is never closed"),
        ("---\n- a list\n---\nkept\n", "a.md:2: the frontmatter is not a mapping"),
    ],
)
def test_a_broken_header_is_told_and_the_whole_file_is_text(tmp_path, text, problem):
    entry, problems = read(tmp_path, text)
    assert entry.text == text
    assert len(problems) == 1
    assert problems[0].startswith(problem)


@pytest.mark.parametrize(
    ("header", "problem"),
    [
        ("title: One\ntitle: Two", "a.md:3: the key 'title' is written twice"),
        ("title: T\ndate: {{date}}", "a.md:3: date: looks like a template that was not filled in"),
        ("title: T\ntags: {a: b}", "a.md:3: tags: a mapping is ignored"),
        ("tags: [[nested], ok1]", "a.md:2: tags: list items that are not plain text are ignored"),
    ],
)
def test_a_field_that_is_not_used_as_written_is_told_with_its_line(tmp_path, header, problem):
    _, problems = read(tmp_path, f"---\n{header}\n---\nbody\n")
    assert [text[: len(problem)] for text in problems] == [problem]


def test_keys_match_in_any_case(tmp_path):
    entry, problems = read(tmp_path, "---\nTitle: T\nKEYWORDS: [k1]\n---\nbody\n")
    assert (entry.title, entry.keywords, problems) == ("T", ("k1",), [])


def test_an_empty_file_is_told(tmp_path):
    assert read(tmp_path, " \n")[1] == ["a.md: the file is empty"]


def test_anchors_do_not_expand(tmp_path):
    levels = "".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9) if i else 'x'}]\n" for i in range(12))
    entry, problems = read(tmp_path, f"---\n{levels}tags: *a11\n---\nbody stays\n")
    assert entry.keywords == ()
    assert "ignored" in problems[0]


def test_encodings_are_read_or_told(tmp_path):
    header = "---\ntitle: Wide\n---\nbody\n"
    (tmp_path / "bom.md").write_bytes(b"\xef\xbb\xbf" + header.encode())
    (tmp_path / "crlf.md").write_bytes(header.replace("\n", "\r\n").encode())
    (tmp_path / "utf16.md").write_bytes(header.encode("utf-16"))
    (tmp_path / "gbk.md").write_bytes("退款".encode("gbk"))
    entries, report = read_folder(tmp_path, FrontmatterFields())
    assert [(entry.entry_id, entry.title) for entry in entries] == [
        ("bom.md", "Wide"),
        ("crlf.md", "Wide"),
        ("utf16.md", "Wide"),
    ]
    assert list(map(str, report.skipped)) == ["gbk.md:1: skipped: not utf-8 at byte 0: save the file as UTF-8"]


def test_only_markdown_of_this_folder_is_read(tmp_path):
    write_files(tmp_path / "outside", {"secret.md": "x"})
    kb = write_files(tmp_path / "kb", {"A.MD": "x", "b.mdx": "x", "c.markdown": "x", "d.txt": "x", ".git/e.md": "x"})
    write_files(kb, {"node_modules/p/f.md": "x", "folder.md/g.txt": "x"})
    (kb / "leak.md").symlink_to("../outside/secret.md")
    (kb / "loop").symlink_to("../kb")
    (kb / "broken.md").symlink_to("nowhere.md")
    (kb / "round.md").symlink_to("round.md")
    os.mkfifo(kb / "pipe.md")
    entries, report = read_folder(kb, FrontmatterFields())
    assert [entry.entry_id for entry in entries] == ["A.MD", "b.mdx", "c.markdown"]
    loop = "it cannot be read (Too many levels of symbolic links): make it readable, or remove it"
    out = "a link out of the knowledge folder, or in a loop: copy the file instead"
    assert sorted(str(problem).replace(loop, out) for problem in report.problems) == [
        "broken.md: skipped: it cannot be read (No such file or directory): make it readable, or remove it",
        f"leak.md: skipped: {out}",
        "loop: linked folder not followed: copy it, or open it as a knowledge base of its own",
        "pipe.md: skipped: not a regular file: move it out of the folder",
        f"round.md: skipped: {out}",
    ]
    assert (report.seen, report.loaded, len(report.skipped)) == (7, 3, 4)


def test_entry_ids_are_composed_and_never_lone_surrogates(tmp_path):
    (tmp_path / "cafe\u0301.md").write_text("x")
    (tmp_path / b"\xff.md".decode("utf-8", "surrogateescape")).write_text("x")
    entries, _ = read_folder(tmp_path, FrontmatterFields())
    assert [entry.entry_id for entry in entries] == ["caf\u00e9.md", "\\xff.md"]


def test_a_folder_without_markdown_is_told(tmp_path):
    _, report = read_folder(write_files(tmp_path, {"a.txt": "x"}), FrontmatterFields())
    assert str(report.problems[0]) == ".: no Markdown file (.md, .markdown, .mdx) was read in this folder"


def test_a_folder_that_is_not_there_is_named(tmp_path):
    with pytest.raises(DocumentError, match="nowhere is not a folder"):
        read_folder(tmp_path / "nowhere", FrontmatterFields())


def test_visible_text_leaves_code_alone():
    body = "a <!-- b --> c ![d](data:image/png;base64,QUJD)\n```html\n<!-- kept -->\nimport x from 'y'\n```\nend\n"
    assert visible_text(body) == "a  c ![d]()\n```html\n<!-- kept -->\nimport x from 'y'\n```\nend\n"


@pytest.mark.parametrize(
    "prose",
    [
        "Write `<!--` to open a comment.\n\nThe zebra procedure.\n",
        "An open <!-- comment hides nothing.\n",
        'export default quagga settings are here.\nimport "panda" first.\n',
    ],
)
def test_visible_text_loses_no_prose(prose):
    assert visible_text(prose) == prose


def test_text_after_an_embedded_image_stays():
    assert visible_text("[logo]: data:image/png;base64,AAAA\n\nThe okapi.\n") == "[logo]: \n\nThe okapi.\n"


def test_control_characters_go(tmp_path):
    assert read(tmp_path, "a\x1b[2Jb\0c\td\n")[0].text == "a[2Jbc\td\n"


def test_too_many_values_are_told(tmp_path):
    entry, problems = read(tmp_path, f"---\nkeywords: [{', '.join(f'k{i}' for i in range(1500))}]\n---\nx\n")
    assert len(entry.keywords) == 1000
    assert problems == ["a.md: keywords and tags: 1500 values; those after the first 1000 are ignored"]


def test_a_long_heading_is_read_in_linear_time():
    def seconds(blanks):
        start = time.perf_counter()
        for _ in range(20):
            list(sections("# a" + " " * blanks + "b"))
        return time.perf_counter() - start

    assert seconds(1_000_000) < 100 * seconds(50_000) + 0.01


def test_category_key_folds_case_width_and_blanks():
    assert category_key("  Ｂilling \t Desk ") == category_key("billing desk")
