"""Knowledge bases and questions in languages that the default model does not know."""

import json
from collections import Counter
from pathlib import Path

import pytest

from langchain_lookup_knowledge import KnowledgeBase, create_lookup_knowledge_graph
from langchain_lookup_knowledge.l1.models.languages import NAMES

CASES = Path(__file__).parents[1] / "cases"
LANGUAGES = sorted((CASES / "languages").glob("*.json"), key=lambda path: path.name)


@pytest.fixture(params=LANGUAGES, ids=lambda path: path.stem)
def case(request):
    return json.loads(request.param.read_text("utf-8"))


def opened(folder, files):
    folder.mkdir()
    for name, text in files.items():
        (folder / name).write_text(text, "utf-8")
    return KnowledgeBase.open(folder)


@pytest.mark.slow
def test_relevance_of_questions_in_a_language_that_the_model_does_not_know(case, tmp_path):
    with opened(tmp_path / "kb", case["files"]) as kb:
        graph = create_lookup_knowledge_graph(kb)
        answered = [(graph.invoke({"query": query}), page) for query, page in case["answered"]]
        unanswered = [graph.invoke({"query": query}) for query in case["unanswered"]]
        problems = [str(problem) for problem in kb.problems]
    name = NAMES[case["language"]]
    assert any(f"in {name}, which the embedding model does not know" in p for p in problems)
    levels = Counter(found["relevance"]["level"] for found in unanswered)
    assert not levels["high"]
    assert levels["medium"] <= 1
    right = [found for found, page in answered if found["matches"][0]["entry_id"] == page]
    assert len(right) >= 9
    assert sum(found["relevance"]["level"] == "medium" for found in right) >= 6
    for found in (*unanswered, *right):
        assert not found["relevance"]["semantic_support"]
        if found["l1"]["status"] == "ok":
            assert f"the embedding model does not know {name}" in found["relevance"]["reason"]
