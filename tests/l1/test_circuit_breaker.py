"""The circuit breaker by itself, and as a knowledge base shows it."""

import json
import logging
import os
import signal
import threading
import time

import pytest

from langchain_lookup_knowledge import KnowledgeBase, LookupOptions, create_lookup_knowledge_graph
from langchain_lookup_knowledge.l1.circuit_breaker import MAX_ASKED_PAUSE, CircuitBreaker


def fail(breaker, times=1, reason="no answer"):
    for _ in range(times):
        breaker.record_failure("timeout", reason, counts=True)


def test_failures_in_a_row_open_the_circuit():
    breaker = CircuitBreaker(failures=3, pause=60)
    assert breaker.health()["l1"] == "untried"
    fail(breaker, 2)
    assert (breaker.allow_request(), breaker.health()["l1"]) == (True, "failing")
    fail(breaker)
    assert not breaker.allow_request()
    again = "not asked after 3 failures in a row, tried again in 60 s; the last failure: no answer"
    assert (breaker.refusal(), breaker.health()["l1"]) == (again, "paused")
    assert 59 < breaker.health()["retry_in"] <= 60


def test_a_server_that_asks_for_a_pause_is_not_asked_until_it_is_over():
    breaker = CircuitBreaker(failures=3, pause=60)
    breaker.record_failure("failed", "rate", counts=True, asked_pause=30)
    assert (breaker.allow_request(), breaker.health()["l1"]) == (False, "paused")
    assert 29 < breaker.health()["retry_in"] <= 30
    waits = "not asked because the server asks to wait, tried again in 30 s; the last failure: rate"
    assert breaker.refusal() == waits
    breaker._retry_at = 0.0  # as if the pause were over
    assert breaker.allow_request()
    breaker.record_failure("failed", "rate", counts=True, asked_pause=10**9)
    assert breaker.health()["retry_in"] <= MAX_ASKED_PAUSE
    breaker.record_success()
    assert (breaker.allow_request(), breaker.health()["l1"]) == (True, "ok")


def test_an_answer_between_failures_keeps_it_closed():
    breaker = CircuitBreaker(failures=3)
    for _ in range(4):
        fail(breaker, 2)
        breaker.record_success()
    assert (breaker.allow_request(), breaker.health()["l1"]) == (True, "ok")


def test_refusals_never_open_it_and_close_it():
    breaker = CircuitBreaker(failures=1, pause=60)
    fail(breaker)
    assert not breaker.allow_request()
    for _ in range(5):
        breaker.record_failure("unavailable", "there is no index", counts=False)
    assert breaker.allow_request()
    assert breaker.health()["last_failure"] == "there is no index"


def test_after_the_pause_one_caller_of_many_tries_again():
    breaker, start, admitted = CircuitBreaker(failures=1, pause=0.05), threading.Barrier(16), []
    fail(breaker)
    time.sleep(0.06)

    def caller():
        start.wait()
        if breaker.allow_request():
            admitted.append(1)

    breaker._pause = 60
    threads = [threading.Thread(target=caller) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(admitted) == 1


def test_a_trial_that_never_reports_is_followed_by_another():
    breaker = CircuitBreaker(failures=1, pause=0.03)
    fail(breaker)
    for _ in range(3):
        assert not breaker.allow_request()
        time.sleep(0.04)
        assert breaker.allow_request()


def test_refusals_are_counted_among_the_failures_in_a_row_but_not_for_the_limit():
    breaker = CircuitBreaker(failures=2, pause=60)
    breaker.record_failure("failed", "status 401", counts=False)
    fail(breaker)
    assert (breaker.health()["l1"], breaker.health()["failures"]) == ("failing", 2)
    fail(breaker)
    assert (breaker.health()["l1"], breaker.health()["failures"]) == ("paused", 3)
    breaker.record_success()
    assert breaker.health()["failures"] == 0


def test_each_failure_is_logged_once_until_l1_has_come_back(caplog):
    caplog.set_level(logging.INFO)
    breaker = CircuitBreaker(failures=2, pause=0)
    for _ in range(3):
        fail(breaker, reason="2 s are over")
        fail(breaker, reason="3 s are over")
        fail(breaker, reason="refused")
    breaker.record_success()
    fail(breaker, reason="refused")
    logged = [(record.levelname, record.message) for record in caplog.records]
    assert logged == [
        ("WARNING", "L1 timeout: 2 s are over"),
        ("WARNING", "L1 timeout: refused"),
        ("INFO", "L1 answers again"),
        ("WARNING", "L1 timeout: refused"),
    ]


@pytest.mark.process
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_child_starts_anew_even_if_the_lock_was_held():
    breaker = CircuitBreaker(failures=1, pause=60)
    fail(breaker)
    with breaker._lock:
        child = os.fork()
        if child == 0:
            signal.alarm(20)
            os._exit(0 if breaker.allow_request() and breaker.health()["l1"] == "untried" else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert not breaker.allow_request()


@pytest.fixture
def failing(kb, embedding):
    kb.l1.breaker = CircuitBreaker(failures=2, pause=0.2)
    embedding.failure = RuntimeError("sk-SECRET")
    return kb


def test_an_open_circuit_is_shared_by_all_graphs_and_skips_l1(failing, embedding):
    first, second = create_lookup_knowledge_graph(failing), create_lookup_knowledge_graph(failing)
    statuses = [graph.invoke({"query": "refund"})["l1"]["status"] for graph in (first, second)]
    assert statuses == ["failed", "failed"]
    steps = [
        step
        for update in first.stream({"query": "refund"}, stream_mode="updates")
        for step in update
    ]
    assert "l1_retrieve" not in steps
    result = second.invoke({"query": "refund"})
    assert (result["status"], result["retrieval_layer"], result["l1"]["status"]) == (
        "degraded",
        "L0",
        "unavailable",
    )
    assert "not asked after 2 failures in a row, tried again in 1 s" in result["l1"]["reason"]
    assert "the embedding model failed with RuntimeError" in result["l1"]["reason"]


def test_l1_comes_back_when_what_failed_is_mended(failing, embedding):
    graph = create_lookup_knowledge_graph(failing)
    for _ in range(3):
        graph.invoke({"query": "refund"})
    embedding.failure = None
    assert graph.invoke({"query": "refund"})["l1"]["status"] == "unavailable"
    time.sleep(0.25)
    assert graph.invoke({"query": "refund"})["l1"]["status"] == "ok"
    assert failing.health()["l1"] == "ok"


def test_a_missing_index_is_told_each_time_and_used_as_soon_as_it_is_there(folder, embedding):
    with KnowledgeBase.open(folder, embedding=embedding, sync=False) as kb:
        graph = create_lookup_knowledge_graph(kb)
        for _ in range(5):
            l1 = graph.invoke({"query": "refund"})["l1"]
            assert (l1["status"], l1["reason"][:22]) == ("unavailable", "there is no index: run")
        kb.sync()
        assert graph.invoke({"query": "refund"})["l1"]["status"] == "ok"


def test_health_is_plain_and_names_state_failure_and_index(failing):
    graph = create_lookup_knowledge_graph(failing)
    for _ in range(2):
        graph.invoke({"query": "refund"})
    health = failing.health()
    assert json.loads(json.dumps(health)) == health
    assert set(health) == {
        "l1",
        "since",
        "failures",
        "last_failure",
        "retry_in",
        "entries",
        "index",
        "message",
        "kept_entries",
    }
    assert (health["l1"], health["failures"], health["entries"], health["index"]) == (
        "paused",
        2,
        3,
        "current",
    )
    assert health["last_failure"] == "the embedding model failed with RuntimeError"


def test_health_without_an_index(folder, embedding):
    with KnowledgeBase.open(folder, embedding=embedding, index=None) as kb:
        create_lookup_knowledge_graph(kb, options=LookupOptions(l1_timeout=1)).invoke(
            {"query": "refund"}
        )
        assert (kb.health()["l1"], kb.health()["index"]) == ("disabled", "off")


def test_each_time_limit_has_a_circuit_of_its_own():
    breaker = CircuitBreaker(failures=2, pause=60)
    fail(breaker.within(0.001), 2)
    assert not breaker.within(0.001).allow_request()
    assert breaker.health()["l1"] == "paused"
    breaker.within(2.0).record_success()
    assert breaker.within(2.0).allow_request()
    assert breaker.health()["l1"] == "ok"  # the state of the most patient calls
    assert not breaker.within(0.001).allow_request()


def test_circuits_of_many_time_limits_do_not_pile_up():
    breaker = CircuitBreaker()
    for milliseconds in range(1, 1000):
        breaker.within(milliseconds / 1000)
    assert len(breaker._by_seconds) == 100


def test_a_hasty_tool_does_not_degrade_another_on_the_same_base(kb, embedding):
    embed, hold = embedding.embed_query, threading.Event()
    embedding.embed_query = lambda text: hold.wait(60) and embed(text)
    hasty, patient = (
        create_lookup_knowledge_graph(kb, record=None, options=LookupOptions(l1_timeout=seconds))
        for seconds in (0.001, 60)
    )
    for _ in range(4):
        last = hasty.invoke({"query": "refund"})
    hold.set()
    assert last["l1"]["status"] == "unavailable"
    assert patient.invoke({"query": "refund"})["l1"]["status"] == "ok"
