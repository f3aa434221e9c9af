"""Asking L1: one object, entered once a lookup, that never raises and says what was wrong."""

import asyncio
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import FILES, write_files

from langchain_lookup_knowledge import FrontmatterFields, QdrantIndex, create_lookup_knowledge_tool
from langchain_lookup_knowledge.errors import IndexDamagedError, StoreError
from langchain_lookup_knowledge.l1 import search
from langchain_lookup_knowledge.l1.circuit_breaker import CircuitBreaker
from langchain_lookup_knowledge.l1.deadlines import MAX_WORKERS
from langchain_lookup_knowledge.l1.index_state import IndexState
from langchain_lookup_knowledge.l1.indexing import Indexer
from langchain_lookup_knowledge.l1.requests import L1Request
from langchain_lookup_knowledge.l1.search import L1Search
from langchain_lookup_knowledge.l1.stores.embedded_index import EmbeddedIndex
from langchain_lookup_knowledge.reading.documents import read_folder

SEARCH = Path(search.__file__)


@pytest.fixture
def entries(tmp_path):
    found, _ = read_folder(write_files(tmp_path / "kb", FILES), FrontmatterFields())
    return {entry.entry_id: entry for entry in found}


@pytest.fixture
def l1(tmp_path, entries, embedding):
    index = EmbeddedIndex(tmp_path / "index")
    Indexer(index, embedding).write(entries)
    made = L1Search(index, embedding, breaker=CircuitBreaker(failures=2, pause=60))
    yield made
    made.close()


def both_ways(l1, request):
    return [l1.search(request), asyncio.run(l1.asearch(request))]


def test_one_search_answers_for_each_category(l1, entries):
    request = L1Request("refund", entries, categories=("HR", None))
    for outcome in both_ways(l1, request):
        assert [found[0]["entry_id"] for found in outcome.candidates] == [
            "hr/leave.md",
            "billing/refunds.md",
        ]
        assert (outcome.report["status"], outcome.report["candidates"]) == ("ok", 1)


def test_a_failure_is_in_the_report_and_opens_the_circuit(l1, entries, embedding):
    assert l1.availability()["status"] == "ok"
    embedding.failure = RuntimeError("sk-SECRET")
    for outcome in both_ways(l1, L1Request("refund", entries)):
        assert outcome.candidates == ()
        assert outcome.report["status"] == "failed"
        assert outcome.report["reason"] == "the embedding model failed with RuntimeError"
    refused = l1.availability()
    assert (refused["status"], "not asked after 2 failures" in refused["reason"]) == (
        "unavailable",
        True,
    )


def test_a_traceback_is_logged_once_a_failure(l1, entries, embedding, caplog):
    caplog.set_level("DEBUG", "langchain_lookup_knowledge")
    embedding.failure = RuntimeError("down")
    l1.search(L1Request("refund", entries))
    logged = [record for record in caplog.records if record.exc_info]
    assert [(record.levelname, record.message) for record in logged] == [("DEBUG", "L1 failed")]
    assert "RuntimeError: down" in caplog.text


def test_the_deadline_is_kept(l1, entries, embedding):
    release = threading.Event()
    embedding.embed_query = lambda text: release.wait(20) and [0.0] * 64
    for outcome in both_ways(l1, L1Request("refund", entries, timeout=0.05)):
        assert outcome.report["status"] == "timeout"
    release.set()


def test_without_an_index_l1_is_disabled(embedding, entries):
    l1 = L1Search(None, embedding)
    assert l1.availability()["status"] == "disabled"
    assert l1.search(L1Request("refund", entries)).report["status"] == "failed"
    l1.close()


def test_an_entry_outside_the_scope_is_dropped_even_if_the_index_lets_it_through(
    l1, entries, monkeypatch
):
    real = l1.index.search
    monkeypatch.setattr(
        l1.index, "search", lambda dense, text, filters, limit: real(dense, text, [[]], limit)
    )
    visible = {"hr/leave.md": entries["hr/leave.md"]}
    request = L1Request("refund", visible, scope=(("tenant", "acme"),))
    (found,) = l1.search(request).candidates
    assert [candidate["entry_id"] for candidate in found] == ["hr/leave.md"]


def test_the_state_of_the_index_is_a_caveat_and_a_word_in_health(l1, entries, tmp_path):
    assert IndexState().health(None)["index"] == "off"
    assert IndexState().health(QdrantIndex(":memory:", "kb"))["index"] == "remote"
    missing = IndexState().health(EmbeddedIndex(tmp_path / "nowhere"))
    assert (missing["index"], "run `lookup-knowledge index`" in missing["message"]) == (
        "missing",
        True,
    )
    state = l1.state
    assert state.health(l1.index) == {"index": "current", "message": None}
    manifest = tmp_path / "index" / l1.index.version() / "manifest.json"
    written = manifest.read_text("utf-8")
    manifest.write_text("{")
    with pytest.raises(IndexDamagedError) as raised:
        l1.index.contents()
    state.failed(raised.value)
    assert state.health(l1.index) == {"index": "damaged", "message": str(raised.value)}
    manifest.write_text(written, "utf-8")
    state.failed(StoreError("no room"))
    assert state.health(l1.index) == {"index": "behind", "message": "no room"}
    reason = l1.search(L1Request("refund", entries)).report["reason"]
    assert reason == "the index is behind the folder: no room"
    state.progress = 0.5
    assert state.health(l1.index) == {
        "index": "building",
        "message": "the index is being built, 50 %",
    }
    state.progress = None
    state.succeeded()
    assert l1.search(L1Request("refund", entries)).report["reason"] is None


def test_a_tool_call_enters_l1_to_see_whether_it_is_there_and_once_to_search(kb):
    tool = create_lookup_knowledge_tool(kb, record=None)
    entered, left = [], []

    def is_search(frame):
        return frame is not None and Path(frame.f_code.co_filename) == SEARCH

    def profile(frame, event, _):
        if event in ("call", "return") and is_search(frame) and not is_search(frame.f_back):
            (entered if event == "call" else left).append(frame.f_code.co_name)

    tool.invoke({"query": "refund"})
    sys.setprofile(profile)
    try:
        tool.invoke({"query": "refund"})
    finally:
        sys.setprofile(None)
    assert entered == left == ["availability", "search"]


def test_the_terms_of_a_query_are_counted_in_the_passages(l1, entries):
    outcome = l1.search(L1Request("five laptops of E-4711", entries, categories=("HR", None)))
    assert outcome.terms == {"five": 1, "laptop": 1, "4711": 0, "e-4711": 0}
    (candidate,) = (one for one in outcome.candidates[1] if one["entry_id"] == "it/vpn.md")
    assert candidate["passages"][0]["rare"] == ["laptop"]
    assert l1.search(L1Request("laptop", entries, categories=("HR",))).terms == {"laptop": 0}


def test_an_entry_beyond_the_limit_that_alone_holds_a_rare_term_is_a_candidate_too(l1, entries):
    request = L1Request("parental leave in weeks, twelve weeks, laptop", entries, limit=1)
    (found,) = l1.search(request).candidates
    assert [candidate["entry_id"] for candidate in found] == ["hr/leave.md", "it/vpn.md"]


def test_words_are_searched_for_only_after_the_model_has_failed(l1, entries, embedding):
    request = L1Request("laptop", entries)
    assert l1.search_words(request) == []
    embedding.failure = RuntimeError("down")
    assert l1.search(request).report["status"] == "failed"
    (found,) = l1.search_words(request)
    assert (found["entry_id"], found["similarity"]) == ("it/vpn.md", None)
    assert [p["text"] for p in found["passages"]] == ["Install the VPN client on your laptop."]
    embedding.failure = None
    assert l1.search(request).report["status"] == "ok"
    assert l1.search_words(request) == []


def test_words_are_searched_for_after_the_model_has_hung(l1, entries, embedding):
    release = threading.Event()
    embedding.embed_query = lambda text: release.wait(60) and [0.0] * 64
    request = L1Request("laptop", entries, timeout=0.05)
    assert l1.search(request).report["status"] == "timeout"
    (found,) = l1.search_words(replace(request, timeout=60))
    assert found["entry_id"] == "it/vpn.md"
    release.set()


def test_words_are_searched_for_while_hung_calls_of_the_model_take_every_thread(
    l1, entries, embedding
):
    release = threading.Event()
    embedding.embed_query = lambda text: release.wait(60) and [0.0] * 64
    request = L1Request("laptop", entries, timeout=0.01)
    reasons = (l1.search(request).report["reason"] for _ in range(4 * MAX_WORKERS))
    assert any("could not start within" in reason for reason in reasons)
    (found,) = l1.search_words(replace(request, timeout=60))
    assert found["entry_id"] == "it/vpn.md"
    release.set()


def test_a_model_that_ends_its_thread_has_failed_too(l1, entries, embedding):
    def ended(text):
        raise SystemExit

    embedding.embed_query = ended
    request = L1Request("laptop", entries)
    assert l1.search(request).report["status"] == "failed"
    assert [found["entry_id"] for found in l1.search_words(request)] == ["it/vpn.md"]


def test_a_search_by_words_that_fails_gives_nothing(l1, entries, embedding, monkeypatch):
    embedding.failure = RuntimeError("down")
    l1.search(L1Request("laptop", entries))

    def refused(*_):
        raise StoreError("no")

    monkeypatch.setattr(l1.index, "search", refused)
    assert l1.search_words(L1Request("laptop", entries)) == []


def test_a_search_by_words_keeps_to_the_scope(l1, entries, embedding, monkeypatch):
    embedding.failure = RuntimeError("down")
    real = l1.index.search
    monkeypatch.setattr(
        l1.index, "search", lambda dense, text, filters, limit: real(dense, text, [[]], limit)
    )
    request = L1Request("weeks and laptop", {}, scope=(("tenant", "acme"),))
    l1.search(request)
    assert l1.search_words(request) == []
