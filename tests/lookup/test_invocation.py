"""What the record holds of a lookup: where each match is, and what it owes to which layer."""

import json

import pytest
from conftest import write_files
from langchain_core.documents import BaseDocumentCompressor

from langchain_lookup_knowledge import (
    KnowledgeBase,
    LookupOptions,
    SQLInvocationRecorder,
    create_lookup_knowledge_graph,
    hash_query,
)
from langchain_lookup_knowledge.lookup.invocation import passage_digest


@pytest.fixture
def looked_up(kb, tmp_path):
    """Look up a query; return the result and the details of its record."""
    recorder = SQLInvocationRecorder.in_file(tmp_path / "calls.db")
    options = LookupOptions(filter_mode="off")
    graph = create_lookup_knowledge_graph(kb, record=recorder, options=options)

    def run(query):
        result = graph.invoke({"query": query})
        return result, recorder.invocations(limit=1)[0]["retrieval_details"]

    yield run
    recorder.close()


def test_the_record_says_where_each_match_is_and_which_words_matched(looked_up):
    result, details = looked_up("how long does a refund take")
    for match, kept in zip(result["matches"], details["matches"], strict=True):
        for name in ("title", "heading", "lines", "matched"):
            assert kept[name] == match[name]
        texts = [match["snippet"][slice(*passage["span"])] for passage in match["passages"]]
        assert [place["digest"] for place in kept["passages"]] == [*map(passage_digest, texts)]
        assert [place["chars"] for place in kept["passages"]] == [*map(len, texts)]
        assert match["snippet"] not in json.dumps(kept)


def test_the_shares_of_a_match_add_up_to_its_score(looked_up):
    _, details = looked_up("refund")
    first, *others = details["matches"]
    for match in details["matches"]:
        assert sum(match["shares"].values()) == pytest.approx(match["score"], abs=2e-4)
        assert min(match["shares"].values()) >= 0
    assert min(first["shares"].values()) > 0
    assert others
    assert not any(match["shares"]["hints"] for match in others)


def test_the_record_says_how_rare_the_words_of_the_query_are(looked_up):
    _, details = looked_up("refund within grimble days")
    assert details["rare"] == {"refund": 1, "within": 0, "grimble": 0, "day": 1}


def test_without_l1_there_are_no_shares(kb, tmp_path, embedding):
    embedding.failure = RuntimeError()
    recorder = SQLInvocationRecorder.in_file(tmp_path / "calls.db")
    create_lookup_knowledge_graph(kb, record=recorder).invoke({"query": "refund"})
    (match,) = recorder.invocations(limit=1)[0]["retrieval_details"]["matches"]
    assert "shares" not in match
    recorder.close()


def test_the_best_candidate_outside_a_kept_filter_is_recorded(tmp_path):
    files = {
        f"{category}/{number}.md": f"---\ntitle: {category} {number}\ncategory: {category}\n"
        f"keywords: [{keyword}]\n---\nThe {keyword} takes {number} days.\n"
        for category, keyword in (("billing", "refund"), ("it", "vpn"))
        for number in range(3)
    }
    recorder = SQLInvocationRecorder.in_file(tmp_path / "calls.db")
    with KnowledgeBase.open(write_files(tmp_path / "kb", files)) as kb:
        for mode in ("guarded", "off"):
            options = LookupOptions(filter_mode=mode)
            graph = create_lookup_knowledge_graph(kb, record=recorder, options=options)
            graph.invoke({"query": "how many days does the refund take"})
    off, guarded = (row["retrieval_details"] for row in recorder.invocations(limit=2))
    assert guarded["filter"] == {
        "category": "billing",
        "reason": "single_domain",
        "relaxed": False,
    }
    assert guarded["hidden"]["entry_id"].startswith("it/")
    assert 0 < guarded["hidden"]["similarity"] < guarded["matches"][0]["similarity"]
    assert "hidden" not in off
    recorder.close()


def test_redacted_records_hold_no_word_of_the_query(kb, tmp_path):
    recorder = SQLInvocationRecorder.in_file(tmp_path / "calls.db", redact=hash_query)
    query = "does grimble accept a refund within days"
    create_lookup_knowledge_graph(kb, record=recorder).invoke({"query": query})
    (row,) = recorder.invocations(limit=1)
    assert "grimble" not in json.dumps(row)
    details = row["retrieval_details"]
    assert details["relevance"]["reason"].startswith("similarity 0.")
    fields = {matched["field"] for match in details["matches"] for matched in match["matched"]}
    assert fields == {"keywords"}
    recorder.close()


@pytest.mark.parametrize("matched", [None, "grimble", ["grimble", {"text": "grimble"}]])
def test_odd_words_are_redacted_too(matched):
    details = {"matches": [{"entry_id": "a.md", "matched": matched}, "x"]}
    kept = hash_query({"query": "grimble", "retrieval_details": details})
    assert kept["retrieval_details"] == {"matches": [{"entry_id": "a.md", "matched": []}, "x"]}


def test_what_a_reranker_gave_is_recorded_in_place_of_meaning_and_words(tmp_path):
    class Reversed(BaseDocumentCompressor):
        def compress_documents(self, documents, query, callbacks=None):
            return list(reversed(documents))

    files = {f"{name}.md": f"The {name} of a refund.\n" for name in ("rules", "time", "cost")}
    recorder = SQLInvocationRecorder.in_file(tmp_path / "calls.db")
    with KnowledgeBase.open(write_files(tmp_path / "kb", files), rerank=Reversed()) as kb:
        create_lookup_knowledge_graph(kb, record=recorder).invoke({"query": "refund rules"})
    (row,) = recorder.invocations(limit=1)
    recorder.close()
    assert row["retrieval_details"]["l1"]["reranked"] is True
    for match in row["retrieval_details"]["matches"]:
        assert list(match["shares"]) == ["reranker", "hints"]
        assert sum(match["shares"].values()) == pytest.approx(match["score"], abs=2e-4)
