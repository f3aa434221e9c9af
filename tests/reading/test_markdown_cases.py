"""Situations of `tests/cases/reports.jsonl` about structure, titles and passages, and more of their
kinds.
"""

import pytest
from conftest import write_files
from parts.cases import read_cases, write_case

from langchain_lookup_knowledge import KnowledgeBase, create_lookup_knowledge_graph
from langchain_lookup_knowledge.l1.models.embeddings import estimated_token_starts
from langchain_lookup_knowledge.reading.documents import read_folder
from langchain_lookup_knowledge.reading.passages import split_passages
from langchain_lookup_knowledge.types import FrontmatterFields

CASES = read_cases("reports")


def entries_of(folder, **fields):
    entries, _ = read_folder(folder, FrontmatterFields(**fields))
    return {entry.entry_id: entry for entry in entries}


def titles(folder):
    return {name: entry.title for name, entry in entries_of(folder).items()}


def passages_of(entry):
    return split_passages(entry, size=200, units=estimated_token_starts)


def test_px_14_a_fence_in_a_list_item_ends_where_it_closes(tmp_path):
    for name, entry in entries_of(write_case(tmp_path, CASES["PX-14"])).items():
        for hidden in ("spare key", "4711", "secret", "<!--", "hidden"):
            assert hidden not in entry.text
        heading = {"pump.md": "## Cleaning", "b.md": "## Later"}[name]
        assert heading in entry.text.split("\n")


def test_px_16_a_heading_below_the_first_level_is_no_title(tmp_path):
    assert titles(write_case(tmp_path, CASES["PX-16"])) == {
        "Daily shutdown.md": "Daily shutdown",
        "Weekly review.md": "Weekly review",
        "Oven.md": "Oven safety",
    }


def test_px_17_underlined_headings_are_headings(tmp_path):
    with KnowledgeBase.open(write_case(tmp_path, CASES["PX-17"]), index=None) as kb:
        (entry,) = kb.entries
        result = create_lookup_knowledge_graph(kb, record=None).invoke(
            {"query": "what does the backup rotation say"}
        )
    assert entry.title == "Backup rotation"
    assert result["primary"]["entry_id"] == "p1.md"
    (passage,) = passages_of(entry)
    assert passage.heading == "Backup rotation"
    assert "## Weekly cycle" in passage.text


def test_px_18_markup_in_a_heading_is_no_part_of_the_title(tmp_path):
    assert set(titles(write_case(tmp_path, CASES["PX-18"])).values()) == {
        "Tinderbox",
        "Quillbase",
        "Garage door opener-cli & remote",
        "Dog rota",
        "Payroll run checklist",
        "Incident review",
    }


def test_px_38_a_row_of_an_html_table_has_the_head(tmp_path):
    (entry,) = entries_of(write_case(tmp_path, CASES["PX-38"])).values()
    found = passages_of(entry)
    assert len(found) > 2
    for passage in found:
        assert "<th>Item</th><th>Price</th>" in passage.text
    (row,) = [passage for passage in found if "Widget 21<" in passage.text]
    assert row.lines[0] <= 26 <= row.lines[1]


@pytest.mark.parametrize(
    ("name", "text", "title"),
    [
        ("guide/README.md", "Text.\n", "guide"),
        ("guide/index.md", "## Section\n\nText.\n", "guide"),
        ("README.md", "Text.\n", "README"),
        ("README.md", "# The guide\n\nText.\n", "The guide"),
        ("Boiler 11112222333344445555666677778888.md", "Text.\n", "Boiler"),
        ("Wiki 0a1b2c3d4e5f60718293a4b5c6d7e8f9/index.md", "Text.\n", "Wiki"),
        ("Plan.excalidraw.md", "# Text Elements\n\nWorkbench\n", "Plan"),
    ],
)
def test_a_file_without_a_title_is_named_after_itself_or_its_folder(tmp_path, name, text, title):
    assert titles(write_files(tmp_path, {name: text})) == {name: title}


def test_a_category_from_the_path_is_without_the_id_of_an_export(tmp_path):
    name = "Wiki 0a1b2c3d4e5f60718293a4b5c6d7e8f9/a.md"
    (entry,) = entries_of(write_files(tmp_path, {name: "x\n"}), category_from_path=1).values()
    assert entry.categories == ("Wiki",)


def test_a_bound_that_a_file_passes_is_in_problems_with_its_line(tmp_path):
    deep = "---\ntitle: Deep\n---\n\n" + "> " * 120 + "a\n"
    _, report = read_folder(write_files(tmp_path, {"a.md": deep}), FrontmatterFields())
    ((line, message),) = [(problem.line, problem.message) for problem in report.problems]
    assert (line, message.split(":")[0]) == (5, "lists or quotes are nested 100 levels deep")
