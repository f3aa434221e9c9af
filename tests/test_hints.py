"""L0: what matches, what does not, and what may name a domain."""

import pytest
from conftest import shared_cases, write_files

from langchain_lookup_knowledge.documents import Entry, read_folder
from langchain_lookup_knowledge.hints import HintIndex
from langchain_lookup_knowledge.types import FrontmatterFields


def entry(name, keywords=(), title="", text="", categories=("c",), entities=()):
    return Entry(name, title or name, tuple(keywords), tuple(categories), tuple(entities), text)


def keywords(query, *terms, **arguments):
    return HintIndex([entry("e", terms)], **arguments).hints(query)["keywords"]


def test_categories_that_differ_in_case_or_blanks_are_one_domain():
    entries = [entry("a", ["refund"], categories=["Billing"]), entry("b", ["refund"], categories=[" billing "])]
    assert HintIndex(entries).hints("refund")["domains"] == ["Billing"]


@pytest.mark.parametrize("case", shared_cases("keyword_matching"))
def test_shared_case(case, tmp_path):
    entries, problems = read_folder(write_files(tmp_path, case["input"]["files"]), FrontmatterFields())
    index = HintIndex(entries, case_sensitive=case["input"].get("config", {}).get("case_sensitive_keywords", ()))
    for expected in case["input"]["queries"]:
        hints = index.hints(expected["query"])
        for field in ("keywords", "titles", "entities", "domains"):
            if field in expected:
                assert sorted(hints[field]) == sorted(expected[field]), expected["query"]
    if case["id"] == "K-24":
        assert len(index.problems) == 1
    assert problems == []
