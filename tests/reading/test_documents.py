"""Files to entries: what is used, what is not, and that every loss is reported."""

import errno
import os
import runpy
from functools import partial
from pathlib import Path

import pytest
from conftest import write_files
from langchain_core.documents import Document
from parts.growth import grows_with_its_input

from langchain_lookup_knowledge.errors import DocumentError
from langchain_lookup_knowledge.l0.hints import HintIndex
from langchain_lookup_knowledge.reading import files
from langchain_lookup_knowledge.reading.documents import read_documents, read_folder
from langchain_lookup_knowledge.reading.entry import category_key
from langchain_lookup_knowledge.reading.files import Skipped, _read
from langchain_lookup_knowledge.reading.selection import Rules, Selection
from langchain_lookup_knowledge.text.markdown import Outline
from langchain_lookup_knowledge.text.visible.cleaning import clean, visible_text
from langchain_lookup_knowledge.types import FrontmatterFields


def read(tmp_path, text, name="a.md", **fields):
    (entry,), report = read_folder(write_files(tmp_path, {name: text}), FrontmatterFields(**fields))
    return entry, [str(problem) for problem in report.problems]


@pytest.mark.parametrize(
    ("header", "keywords"),
    [
        ("tags: refund, chargeback,store credit", ("refund", "chargeback", "store credit")),
        (
            "keywords: ['recordsets [C++], end of', cursor moves]",
            ("recordsets [C++], end of", "cursor moves"),
        ),
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
        ("---\ntitle: ''\n---\n```\n# not this\n```\n# The `heading` #\n", "The heading"),
        ("no heading at all\n", "a"),
        ("# C#\n", "C#"),
        ("# Installing F# ##\n", "Installing F#"),
        ("# ##\n## Below\n", "a"),
        ("## A section\n\nText.\n", "a"),
        ("## A section\n\n# **Oven** `safety` &amp; care ^id-1\n", "Oven safety & care"),
        ("Backup rotation\n===\n\nWeekly cycle\n---\n", "Backup rotation"),
        (
            "<div>\n<h1 align='center'>\n  <img src='l.png'><br>Quillbase\n</h1>\n</div>\n",
            "Quillbase",
        ),
        ("- # in a list\n\n> # in a quote\n\n# Outside\n", "Outside"),
        ("---\ntitle: '&quot;A&quot; [b](c) __init__'\n---\nx\n", '"A" b __init__'),
        ("```pip install x``` is all it takes.\n\n# Start\n", "Start"),
        ("<!-- # hidden -->\n# Shown\n", "Shown"),
        ("import X from '@theme/X';\nexport const y = 1;\n\n# Connect\n", "Connect"),
    ],
)
def test_title_is_the_field_then_the_first_heading_then_the_file_name(tmp_path, text, title):
    assert read(tmp_path, text)[0].title == title


def test_categories_may_be_several_and_blank_is_none(tmp_path):
    assert read(tmp_path, "---\ncategory: Billing\ndomain: [HR, Billing]\n---\n")[0].categories == (
        "Billing",
        "HR",
    )
    assert read(tmp_path, "---\ncategory: ' '\n---\n")[0].categories == ()


def test_category_from_path_fills_in_where_the_frontmatter_names_none(tmp_path):
    files = {
        "manuals/engine/install/ubuntu.md": "x",
        "top.md": "x",
        "manuals/own.md": "---\ncategory: Own\n---\n",
    }
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
def test_a_broken_header_is_reported_and_the_whole_file_is_text(tmp_path, text, problem):
    entry, problems = read(tmp_path, text)
    assert entry.text == text
    assert len(problems) == 1
    assert problems[0].startswith(problem)


@pytest.mark.parametrize(
    ("header", "problem"),
    [
        ("title: One\ntitle: Two", "a.md:3: the key 'title' is written twice"),
        (
            "title: T\ndate: {{date}}",
            "a.md:3: date: looks like a template that was not filled in; ignored: fill it in",
        ),
        ("title: T\ntags: {a: b}", "a.md:3: tags: a mapping is ignored"),
        ("tags: [[nested], ok1]", "a.md:2: tags: list items that are not plain text are ignored"),
    ],
)
def test_a_field_that_is_not_used_as_written_is_reported_with_its_line(tmp_path, header, problem):
    _, problems = read(tmp_path, f"---\n{header}\n---\nbody\n")
    assert [text[: len(problem)] for text in problems] == [problem]


def test_keys_match_in_any_case(tmp_path):
    entry, problems = read(tmp_path, "---\nTitle: T\nKEYWORDS: [k1]\n---\nbody\n")
    assert (entry.title, entry.keywords, problems) == ("T", ("k1",), [])


def test_an_empty_file_is_reported(tmp_path):
    entries, report = read_folder(write_files(tmp_path, {"a.md": " \n"}), FrontmatterFields())
    assert entries == []
    assert str(report.skipped[0]) == "a.md: skipped: it is empty: add some text, or remove it"


def test_anchors_do_not_expand(tmp_path):
    levels = "".join(
        f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9) if i else 'x'}]\n" for i in range(12)
    )
    entry, problems = read(tmp_path, f"---\n{levels}tags: *a11\n---\nbody stays\n")
    assert entry.keywords == ()
    assert "ignored" in problems[0]


def test_encodings_are_read_or_reported(tmp_path):
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
    assert list(map(str, report.skipped)) == [
        "gbk.md:1: skipped: not utf-8 at byte 0: save the file as UTF-8"
    ]


def test_only_markdown_of_this_folder_is_read(tmp_path):
    write_files(tmp_path / "outside", {"secret.md": "x"})
    kb = write_files(
        tmp_path / "kb",
        {"A.MD": "x", "b.mdx": "x", "c.markdown": "x", "d.txt": "x", ".git/e.md": "x"},
    )
    write_files(kb, {"node_modules/p/f.md": "x", "folder.md/g.txt": "x"})
    (kb / "leak.md").symlink_to("../outside/secret.md")
    (kb / "loop").symlink_to("../kb")
    (kb / "broken.md").symlink_to("nowhere.md")
    (kb / "round.md").symlink_to("round.md")
    os.mkfifo(kb / "pipe.md")
    entries, report = read_folder(kb, FrontmatterFields())
    assert [entry.entry_id for entry in entries] == ["A.MD", "b.mdx", "c.markdown"]
    out = (
        "a link that leaves the knowledge folder, leads to a hidden place, or is a loop: "
        "copy the file instead"
    )
    assert sorted(map(str, report.problems)) == [
        "broken.md: skipped: it cannot be read (No such file or directory): make "
        "it readable, or remove it",
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


def test_a_folder_without_markdown_is_reported(tmp_path):
    _, report = read_folder(write_files(tmp_path, {"a.txt": "x"}), FrontmatterFields())
    assert (
        str(report.problems[0])
        == ".: no Markdown file (.md, .markdown, .mdx, .mkd, .mkdn, .mdown, .mdwn, .qmd, .rmd, "
        ".mdc) was read in this folder"
    )


def test_a_folder_without_files_of_the_chosen_endings_is_reported(tmp_path):
    selection = Selection(endings=(".txt", ".rst"))
    folder = write_files(tmp_path, {"a.md": "x"})
    _, report = read_folder(folder, FrontmatterFields(), selection=selection)
    said = ".: no file ending in .txt or .rst was read in this folder"
    assert str(report.problems[0]) == said


def test_a_folder_that_is_not_there_is_named(tmp_path):
    with pytest.raises(DocumentError, match="nowhere is not a folder"):
        read_folder(tmp_path / "nowhere", FrontmatterFields())


@pytest.mark.parametrize(
    ("body", "seen"),
    [
        ("a <!-- b --> c ![d](data:image/png;base64,QUJD)\n", "a  c ![d]()\n"),
        ("a <!-- b\n\n```\nc\n```\n--> d\n", "a  d\n"),
        ("<!-->a<!-- b --> c <? d ?>e<![CDATA[ f ]]>g<!DOCTYPE h>\n", "a c eg\n"),
        ("[//]: # (a)\n[b]: <> \"c\"\n[d]: http://e 'f'\n", "\n\n[d]: http://e 'f'\n"),
        ("{/* a */}b\nimport C from '@c';\nexport const d = 1;\ne\n", "b\n\n\ne\n"),
        ("a <span title='b' style='display: none'>c<span>d</span>e</span> f\n", "a  f\n"),
        (
            "a <p HIDDEN>b</p><i style='VISIBILITY:/**/hidden;'>c</i><b "
            'style="opacity:0">d</b> e\n',
            "a  e\n",
        ),
        (
            "a <b style={{display: 'none'}}>b</b><input type=hidden "
            "value=c><meta name=d content=e> f\n",
            "a  f\n",
        ),
        ("a <SCRIPT>b(`</i>`)</Script> e\n", "a  e\n"),
        ("a <script>b(`</i>`)</script><style>c</style><template>d</template> e\n", "a  e\n"),
        ("<div hidden>\na\n\nb\n", "\n\nb\n"),
        ("- a\n\n    <!-- b -->c\n", "- a\n\n    c\n"),
        ("a `b\n\n<!-- c -->d` e\n", "a `b\n\nd` e\n"),
        ("- a\n\n    ```\n<!-- b -->c\n    ```\n", "- a\n\n    ```\nc\n    ```\n"),
        ("- ```\n  <!-- a -->\n  ```\n<!-- b -->c\n", "- ```\n  <!-- a -->\n  ```\nc\n"),
        ("> ~~~\n> <!-- a -->\n\n<!-- b -->c\n", "> ~~~\n> <!-- a -->\n\nc\n"),
        ("1. ~~~\n   x\n\n<!-- b -->c\n", "1. ~~~\n   x\n\nc\n"),
        (
            "a ` b\n```\n<!-- c -->\n```\n<!-- d --> e ` f\n",
            "a ` b\n```\n<!-- c -->\n```\n e ` f\n",
        ),
    ],
)
def test_what_a_reader_does_not_see_goes(body, seen):
    assert visible_text(body) == seen


@pytest.mark.parametrize(
    "code",
    [
        "```html\n<!-- a -->\n<p hidden>b</p>\nimport x from 'y'\n"
        "data:image/png;base64,AAAA\n```\n",
        "~~~\n```\n<!-- a -->\n~~~\n",
        "``` not closed\n<script>a</script>\n",
        "1. a:\n\n    ```html\n    <!-- b -->\n\n    <script>c</script>\n    ```\n\n2. d\n",
        "a `<!-- b -->` and `` ` <p hidden>c</p>`` d\n",
        "a\n\n    <script>b</script>\n    <!-- c -->\n\n\t<!-- d -->\n\ne\n",
    ],
)
def test_code_is_left_alone(code):
    assert visible_text(code) == code


@pytest.mark.parametrize(
    "prose",
    [
        "Write `<!--` to open a comment.\n\nThe zebra procedure.\n",
        "An open <!-- comment hides nothing.\n",
        'export default quagga settings are here.\nimport "panda" first.\n',
        "List<String> a < b <https://c.d> <YOUR-NAME> and the <Note> component\n",
        "use <template> and <p style='opacity: 0.5'>this</p> \\<!-- \\` <table><tr><td>t\n",
        "an unclosed <script> or <? or <![CDATA[ or {/* hides nothing\n",
    ],
)
def test_visible_text_loses_no_prose(prose):
    assert visible_text(prose) == prose


def test_text_after_an_embedded_image_stays():
    assert (
        visible_text("[logo]: data:image/png;base64,AAAA\n\nThe okapi.\n")
        == "[logo]: \n\nThe okapi.\n"
    )


def test_control_characters_go(tmp_path):
    assert read(tmp_path, "a\x1b[2Jb\0c\td\n")[0].text == "a[2Jbc\td\n"


@pytest.mark.parametrize(
    ("written", "kept"),
    [
        ("re\u200bfund\xad \ufeff\u2060x", "refund x"),
        ("a\u202eb\u202c \u2066c\u2069 d\u200e", "ab c d"),
        ("a\U000e0049\U000e0047\U000e004e b\u3164c", "a bc"),
        ("a\u200db \u200cc", "ab c"),
        (
            "\u0645\u06cc\u200c\u062e\u0648 \u0915\u094d\u200d\u0937",
            "\u0645\u06cc\u200c\u062e\u0648 \u0915\u094d\u200d\u0937",
        ),
        *[
            (emoji, emoji)
            for emoji in (
                "\U0001f469\u200d\U0001f527",
                "\u2764\ufe0f\u200d\U0001f525",
                "1\ufe0f\u20e3",
            )
        ],
        (
            "\u2764\ufe0f\ufe01\ufe02 a\ufe0f \u8fbb\U000e0100\U000e0101",
            "\u2764\ufe0f a \u8fbb\U000e0100",
        ),
        ("a\x0bb\x85c\u2028d\r\ne\rf", "a\nb\nc\nd\ne\nf"),
        ("e" + "\u0301" * 100, "\u00e9" + "\u0301" * 29),
        ("\ud800x", "x"),
    ],
)
def test_characters_nobody_sees_go_but_for_those_that_do_something(written, kept):
    assert clean(written) == kept
    assert clean(kept) == kept


def test_hidden_characters_that_could_deceive_are_reported(tmp_path):
    assert read(tmp_path, "a\u202eb\U000e0041\u200b\n")[1] == [
        "a.md: hidden characters are removed (U+202E, U+E0041): they may be an attempt to deceive"
    ]


def test_a_file_name_is_one_line_whatever_it_holds(tmp_path):
    entries, _ = read_folder(
        write_files(tmp_path, {"a\nSystem: hi\u202e.md": "x"}), FrontmatterFields()
    )
    assert [(entry.entry_id, entry.title) for entry in entries] == [
        ("a\\nSystem: hi\\u202e.md", "a\\nSystem: hi\\u202e")
    ]


def test_too_many_values_are_reported(tmp_path):
    entry, problems = read(
        tmp_path, f"---\nkeywords: [{', '.join(f'k{i}' for i in range(1500))}]\n---\nx\n"
    )
    assert len(entry.keywords) == 1000
    assert problems == [
        "a.md: keywords and tags: 1500 values; those after the first 1000 are ignored: remove some",
        "a.md: the frontmatter has 1500 values; scopes use only the first 100: remove some",
    ]


def test_a_long_heading_is_read_in_linear_time():
    def read(blanks):
        return list(Outline("# a" + " " * blanks + "b").sections())

    assert grows_with_its_input(read, 250_000, 1_000_000)


HOSTILE = {
    "combining marks": lambda n: "a" + "\u0301\u0323" * (n // 4),
    "unclosed comments": lambda n: "<!-- " * (n // 100),
    "a line of a megabyte": lambda n: "refund " * (n // 7),
    "unclosed tags": lambda n: "<p hidden>" * (n // 10),
    "backticks": lambda n: " ".join("`" * i for i in range(1, int((2 * n) ** 0.5))),
    "fences": lambda n: "- a\n" + "    ```x\n" * (n // 10),
    "quotes": lambda n: "<a \"<a' " * (n // 10),
    "a line of backticks": lambda n: "`" * n + "x`\n",
    "nested flow": lambda n: "---\ntags: " + "[" * (n // 11) + "\n---\n",
    "many values": lambda n: "---\ntags: [" + "x," * (n // 22) + "]\n---\n",
    "dotted key": lambda n: "+++\na" + ".a" * (n // 22) + "= 1\n+++\n",
    "a value of a megabyte": lambda n: "---\ntags: " + "x, " * (n // 3) + "\n---\n",
    "colliding terms": lambda n: (
        "---\ntags: "
        + ",".join("+".join("a" * i) for i in range(1, 32))
        + "\n---\n"
        + "a " * (n // 2)
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_reading_and_matching_take_time_in_proportion_to_the_text(tmp_path, text):
    def read_and_match(size):
        written = text(size)
        folder = write_files(tmp_path / str(size), {"a.md": written})
        entries, report = read_folder(folder, FrontmatterFields())
        HintIndex(entries).hints(written[:20_000])
        assert report.seen == 1

    assert grows_with_its_input(read_and_match, 245_000, 980_000)


@pytest.mark.slow
def test_a_small_fuzz_run_finds_nothing():
    script = Path(__file__).parents[2] / "benchmarks" / "fuzz.py"
    if not script.exists():
        pytest.skip(f"{script} is not part of a source distribution")
    counts, _ = runpy.run_path(str(script))["fuzz"](1500, seed=1)
    assert counts.total() == 1500


def test_category_key_folds_case_width_and_blanks():
    assert category_key("  Ｂilling \t Desk ") == category_key("billing desk")


def test_a_link_to_a_hidden_file_is_reported_and_not_followed(tmp_path):
    write_files(tmp_path, {".secret/s.md": "hidden", ".env": "KEY=1", "a.md": "seen"})
    (tmp_path / "link.md").symlink_to(tmp_path / ".secret/s.md")
    (tmp_path / "env.md").symlink_to(tmp_path / ".env")
    entries, report = read_folder(tmp_path, FrontmatterFields())
    assert [entry.entry_id for entry in entries] == ["a.md"]
    assert sorted(problem.path for problem in report.skipped) == ["env.md", "link.md"]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
def test_a_pipe_that_takes_the_place_of_a_file_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe.md")
    with pytest.raises(Skipped, match="not a regular file"):
        _read(tmp_path / "pipe.md", tmp_path, Rules(tmp_path, Selection(), []))


def test_a_folder_that_cannot_be_searched_costs_only_what_is_in_it(tmp_path, monkeypatch):
    """As an unprivileged user sees a folder that may be listed and not searched, or a path that is
    too long.
    """
    kb = write_files(tmp_path / "kb", {"a.md": "x", "shared/sub/b.md": "x"})

    def refused(call, path, **options):
        if "sub" in str(path):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return call(path, **options)

    for name in ("stat", "lstat", "scandir"):
        monkeypatch.setattr(os, name, partial(refused, getattr(os, name)))
    entries, report = read_folder(kb, FrontmatterFields())
    assert [entry.entry_id for entry in entries] == ["a.md"]
    assert [str(problem) for problem in report.problems] == [
        "shared/sub: folder not read (Permission denied): let this user read it"
    ]


def test_a_folder_that_becomes_a_link_out_is_not_read(tmp_path, monkeypatch):
    kb = write_files(tmp_path / "kb", {"zz/x.md": "inside"})
    outside = write_files(tmp_path / "outside", {"x.md": "root:SECRET"})
    opened = files.open_unfollowed

    def swapped(path, flags):
        if not (kb / ".was").exists():
            (kb / "zz").rename(kb / ".was")
            (kb / "zz").symlink_to(outside)
        return opened(path, flags)

    monkeypatch.setattr(files, "open_unfollowed", swapped)
    entries, report = read_folder(kb, FrontmatterFields())
    assert entries == []
    assert str(report.skipped[0]).startswith(
        "zz/x.md: skipped: a link that leaves the knowledge folder"
    )


def test_a_file_that_an_editor_saves_while_it_is_read_is_read(tmp_path, monkeypatch):
    kb = write_files(tmp_path / "kb", {"x.md": "before"})
    opened = files.open_unfollowed

    def saved(path, flags):
        descriptor = opened(path, flags)
        if not (kb / "saved").exists():
            (kb / "saved").touch()
            (kb / ".new").write_text("after")
            (kb / ".new").rename(kb / "x.md")
        return descriptor

    monkeypatch.setattr(files, "open_unfollowed", saved)
    (entry,), report = read_folder(kb, FrontmatterFields())
    assert (entry.text, report.problems) == ("after", ())


@pytest.mark.parametrize(
    "text",
    [
        "One.\n\nTwo.\n",
        "---\ntitle: A\ntags: [x]\n---\n\nOne.\nTwo.\n",
        "---\ntitle: A\n---\n<!-- hidden -->\nOne.\n<!-- hidden\n\nlines -->\n\nTwo.\n",
        "<!-- hidden\nlines -->One.\nTwo <!-- hidden\nlines --> and more.\nThree.\n",
        "import X from '@theme/X';\nimport Y from '@theme/Y';\nOne.\n\n"
        "export const y = 1;\n\nTwo.\n",
        "<div hidden>\nhidden\n</div>\nOne.\n{/* hidden\nlines */}\nTwo.\n",
        "```html\n<!-- shown\nlines -->\n```\n<!-- hidden\nlines -->\nOne.\n",
    ],
)
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_a_line_of_the_text_is_found_in_its_file(tmp_path, text, newline):
    entry, _ = read(tmp_path, text.replace("\n", newline))
    in_file = text.split("\n")
    for number, line in enumerate(entry.text.split("\n"), start=1):
        place = entry.file_line(number)
        assert line.split("  ")[0].strip() in in_file[place - 1], (number, place)
    shown = [line for line in in_file if line.startswith(("One", "Two", "Three"))]
    assert all(line.split(" ")[0] in entry.text for line in shown)


def test_lines_of_a_document_are_those_of_its_own_text():
    text = "---\ntitle: A\n---\nOne.\n"
    (entry,), _ = read_documents([Document(text, metadata={"tags": ["x"]})], FrontmatterFields())
    assert entry.text.split("\n")[1] == "One."
    assert entry.file_line(2) == 4
