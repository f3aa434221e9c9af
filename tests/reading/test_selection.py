"""Which files are entries, and that what is left out is counted by its reason."""

import os

import pytest
from conftest import write_files
from parts.cases import read_cases, write_case

from langchain_lookup_knowledge import KnowledgeBase
from langchain_lookup_knowledge.errors import DocumentError
from langchain_lookup_knowledge.reading.documents import read_folder
from langchain_lookup_knowledge.reading.selection import Selection, chosen_selection
from langchain_lookup_knowledge.types import FrontmatterFields

CASES = read_cases("reports")


def read(folder, **selection):
    entries, report = read_folder(folder, FrontmatterFields(), Selection(**selection))
    left = {(out.reason, out.files, out.folders, out.example) for out in report.left_out}
    return [entry.entry_id for entry in entries], left, [str(one) for one in report.problems]


def test_px_29_markdown_has_many_endings(tmp_path):
    folder = write_case(tmp_path / "kb", CASES["PX-29"])
    write_files(folder, {"b.txt": "x", "c.TXT": "x", "d.rst": "x", "e.png": "x"})
    found, left, _ = read(folder)
    assert found == ["a.md", "guide.qmd", "lab.Rmd", "old.mkd", "rule.mdc"]
    assert left == {("the ending .txt", 2, 0, "b.txt"), ("the ending .rst", 1, 0, "d.rst")}
    found, left, _ = read(folder, endings=(".md", ".TXT"))
    assert found == ["a.md", "b.txt", "c.TXT"]
    assert ("the ending .qmd", 1, 0, "guide.qmd") in left


def test_px_30_folders_and_files_can_be_left_out(tmp_path):
    folder = write_case(tmp_path / "kb", CASES["PX-30"])
    found, left, problems = read(folder, exclude=("Templates/",))
    assert (found, problems) == (["pages/Router.md"], [])
    assert left == {
        ("exclude", 0, 1, "Templates"),
        (".gitignore", 0, 1, "drafts"),
        ("a file or folder of a tool", 0, 1, "logseq/bak"),
    }


def test_px_36_versions_can_be_left_out(tmp_path):
    folder = write_case(tmp_path / "kb", CASES["PX-36"])
    assert read(folder, exclude=("versioned_docs/",))[0] == ["docs/install.md", "docs/proxy.md"]


@pytest.mark.parametrize(
    ("files", "exclude", "found"),
    [
        (["a.md", "b/a.md"], ("/a.md",), ["b/a.md"]),
        (["a.md", "b/a.md"], ("a.md",), []),
        (["a.md", "b/c/d.md", "b/e.md"], ("b/**/d.md",), ["a.md", "b/e.md"]),
        (["a.draft.md", "b.md"], ("*.draft.md",), ["b.md"]),
        (["a.sync-conflict-20240101-1-A.md", "a.md"], (), ["a.md"]),
        (["a.sync-conflict-1.md"], ("!*.sync-conflict-*",), ["a.sync-conflict-1.md"]),
        (["node_modules/p/a.md", "x/site-packages/a.md", "__pycache__/a.md", "b.md"], (), ["b.md"]),
        (["bak/a.md", "logseq/bak/a.md"], (), ["bak/a.md"]),
        (["Ünï/a.md", "b.md"], ("Ünï/",), ["b.md"]),
    ],
)
def test_patterns(tmp_path, files, exclude, found):
    write_files(tmp_path, dict.fromkeys(files, "x"))
    assert read(tmp_path, exclude=exclude)[0] == found


@pytest.mark.parametrize(
    ("files", "exclude", "found"),
    [
        ({".gitignore": "*.md\n!keep.md\n"}, (), ["keep.md"]),
        ({"sub/.gitignore": "/b.md\n# a\n\n"}, (), ["a.md", "keep.md", "sub/c/b.md"]),
        ({".gitignore": "sub\n"}, ("!sub/",), ["a.md", "keep.md", "sub/b.md", "sub/c/b.md"]),
        (
            {".gitignore": "b.md", "sub/.gitignore": "!b.md"},
            ("/a.md",),
            ["keep.md", "sub/b.md", "sub/c/b.md"],
        ),
    ],
)
def test_gitignore_of_the_folder_and_its_subfolders(tmp_path, files, exclude, found):
    write_files(tmp_path, files | dict.fromkeys(["a.md", "keep.md", "sub/b.md", "sub/c/b.md"], "x"))
    assert read(tmp_path, exclude=exclude)[0] == found


def test_a_pattern_that_cannot_be_used_is_reported(tmp_path):
    write_files(tmp_path, {"a.md": "x", ".gitignore": "[z-a]\n*a*a*a*a*\n!\nb.md\n", "b.md": "x"})
    found, _, problems = read(tmp_path)
    assert found == ["a.md"]
    assert problems == [
        ".gitignore: the pattern '[z-a]' is not a pattern of .gitignore and is ignored: correct it",
        ".gitignore: the pattern '*a*a*a*a*' has more than 3 wildcards and is ignored: shorten it",
        ".gitignore: the pattern '!' is not a pattern of .gitignore and is ignored: correct it",
    ]


def test_a_link_does_not_lead_around_a_pattern(tmp_path):
    write_files(tmp_path, {"private/a.md": "x", "b.md": "x"})
    (tmp_path / "c.md").symlink_to("private/a.md")
    found, _, problems = read(tmp_path, exclude=("private/",))
    assert found == ["b.md"]
    assert problems[0].startswith("c.md: skipped: a link that leaves the knowledge folder")


def test_a_gitignore_that_is_no_plain_file_is_not_read(tmp_path):
    write_files(tmp_path / "outside", {"ignore": "*\n"})
    kb = write_files(tmp_path / "kb", {"a.md": "x", "sub/b.md": "x"})
    (kb / ".gitignore").symlink_to(tmp_path / "outside" / "ignore")
    os.mkfifo(kb / "sub" / ".gitignore")
    assert read(kb)[0] == ["a.md", "sub/b.md"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"exclude": "drafts/"}, "exclude takes a tuple of strings"),
        ({"exclude": ["[z-a]"]}, "is not a pattern"),
        ({"exclude": ["*a*a*a*a*"]}, "more than 3 wildcards"),
        ({"exclude": [7]}, "exclude takes a tuple of strings"),
        ({"endings": "md"}, "endings takes a tuple of strings"),
        ({"endings": ["md"]}, "begin with a dot"),
        ({"endings": []}, "begin with a dot"),
    ],
)
def test_an_argument_that_cannot_be_used_is_named(tmp_path, arguments, message):
    write_files(tmp_path, {"a.md": "x"})
    with pytest.raises(ValueError, match=message):
        KnowledgeBase.open(tmp_path, index=None, **arguments)


def test_the_selection_is_saved_and_an_argument_wins(tmp_path):
    write_files(tmp_path, {"a.md": "x", "b/c.md": "x", "d.txt": "x"})
    with KnowledgeBase.open(tmp_path, index=None, exclude=["b/"], endings=[".md", ".txt"]) as kb:
        kb.save_settings()
    with KnowledgeBase.open(tmp_path, index=None) as kb:
        assert [entry.entry_id for entry in kb.entries] == ["a.md", "d.txt"]
    with KnowledgeBase.open(tmp_path, index=None, exclude=()) as kb:
        assert [entry.entry_id for entry in kb.entries] == ["a.md", "d.txt", "b/c.md"]


def test_a_saved_selection_that_cannot_be_used_is_named():
    with pytest.raises(DocumentError, match=r"settings\.json holds a selection of files"):
        chosen_selection({"selection": {"exclude": 7}})
