"""The documentation is a knowledge base: the product itself finds its passages."""

import json
import shutil

import pytest
from parts.pages import ROOT

from langchain_lookup_knowledge import KnowledgeBase, LookupOptions, create_lookup_knowledge_tool

pytestmark = [pytest.mark.docs, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def documentation(tmp_path_factory):
    folder = tmp_path_factory.mktemp("documentation") / "docs"
    shutil.copytree(ROOT / "docs", folder, ignore=shutil.ignore_patterns(".lookup-knowledge"))
    with KnowledgeBase.open(folder, progress=False) as kb:
        yield kb


def test_every_page_is_read_as_it_is_written(documentation):
    assert documentation.problems == []


def test_nineteen_of_twenty_questions_find_their_passage(documentation):
    lines = (ROOT / "tests/docs/questions.jsonl").read_text("utf-8").splitlines()
    questions = [json.loads(line) for line in lines]
    assert len(questions) == 20
    options = LookupOptions(l1_timeout=60)
    tool = create_lookup_knowledge_tool(documentation, record=None, options=options)
    missed = []
    for question in questions:
        text = " ".join(tool.invoke({"query": question["query"]}).split())
        if not any(evidence in text for evidence in question["evidence"]):
            missed.append(question["query"])
    assert len(missed) <= 1, missed
