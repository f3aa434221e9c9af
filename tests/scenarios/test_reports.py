"""Situations from public reports, as somebody meets them: files, a question, and what must come of
it.
"""

import re
from pathlib import Path

import pytest
from parts.cases import read_cases, write_case

from langchain_lookup_knowledge import (
    FrontmatterFields,
    KnowledgeBase,
    create_lookup_knowledge_graph,
)
from langchain_lookup_knowledge.reading.documents import read_folder
from langchain_lookup_knowledge.reading.passages import split_passages

TESTS = Path(__file__).parents[1]
CASES = read_cases("reports")
LOOKUPS = [case for case in CASES.values() if "first" in case.get("expect", ())]


def test_every_case_is_run_or_says_where_or_when():
    for case in CASES.values():
        assert sum(key in case for key in ("expect", "test", "later")) == 1, case["id"]
        assert re.fullmatch(r"P[XP]-\d\d", case["id"])
        assert "test" not in case or (TESTS / case["test"]).exists(), case["test"]


@pytest.mark.slow
@pytest.mark.parametrize("case", LOOKUPS, ids=lambda case: case["id"])
def test_a_reported_lookup_with_the_default_model(case, tmp_path):
    folder = write_case(tmp_path / "kb", case)
    with KnowledgeBase.open(folder, progress=False) as kb:
        result = create_lookup_knowledge_graph(kb, record=None).invoke(
            {"query": case["input"]["query"]}
        )
    first = case["expect"]["first"]
    assert {match["entry_id"] for match in result["matches"][: len(first)]} == set(first)
    assert set(case["expect"].get("keywords", ())) <= set(result["hints"]["keywords"])
    assert case["expect"].get("snippet", "") in result["matches"][0]["snippet"]
    assert result["relevance"]["level"] == case["expect"].get("level", result["relevance"]["level"])


HIDDEN = [case for case in CASES.values() if "hidden" in case.get("expect", ())]
OF_THE_KIND = [
    (
        {
            "a.md": "%%\n# Draft\n\n```\nsecret\n```\n%%\n\nSeen.\n",
            "b.md": "Seen %%secret%% and %%VARIABLE%% of 5%% here.\n",
        },
        ["Seen.", "Seen  and %%VARIABLE%% of 5%% here."],
    ),
    (
        {
            "a.md": "Seen.\n\n{{/* secret\n\nsecret */}}\n{{!-- secret --}}\n",
            "b.md": "{% # secret %}{%- comment -%}secret\n\nsecret{%- endcomment -%}Seen.\n",
            "c.md": "{#- secret\nsecret -#}\n\n% secret\n% secret\nSeen {#not-one}.\n",
        },
        ["Seen.", "Seen.", "Seen {#not-one}."],
    ),
]


@pytest.mark.parametrize("case", HIDDEN, ids=lambda case: case["id"])
def test_what_a_dialect_hides_is_not_in_a_reported_text(case, tmp_path):
    entries, _ = read_folder(write_case(tmp_path / "kb", case), FrontmatterFields())
    for entry in entries:
        assert [text for text in case["expect"]["hidden"] if text in entry.text] == []
        assert [text for text in case["expect"]["shown"] if text not in entry.text] == []


@pytest.mark.parametrize(("files", "seen"), OF_THE_KIND)
def test_what_a_dialect_hides_in_other_ways_is_not_in_the_text(files, seen, tmp_path):
    case = {"input": {"files": files}}
    entries, _ = read_folder(write_case(tmp_path / "kb", case), FrontmatterFields())
    assert [entry.text.strip() for entry in entries] == seen


def test_pp_07_comments_in_code_are_no_headings(tmp_path):
    case = CASES["PP-07"]
    (entry,), _ = read_folder(write_case(tmp_path / "kb", case), FrontmatterFields())
    passages = split_passages(entry, size=20, units=lambda text: range(len(text)))
    headings = {part for passage in passages for part in passage.heading.split(" > ")}
    assert sorted(headings) == case["expect"]["headings"]


def test_px_40_ids_of_exports_are_neither_in_titles_nor_in_categories(tmp_path):
    case = CASES["PX-40"]
    fields = FrontmatterFields(**case["input"]["options"]["fields"])
    entries, _ = read_folder(write_case(tmp_path / "kb", case), fields)
    assert [entry.title for entry in entries] == case["expect"]["titles"]
    assert [name for entry in entries for name in entry.categories] == case["expect"]["categories"]
