"""Many lookups at once while L1 hangs: nobody waits for another's time limit, and the event loop is
never held.
"""

import asyncio
import threading
import time

import pytest
from conftest import WordEmbeddings

from langchain_lookup_knowledge import KnowledgeBase, LookupOptions, create_lookup_knowledge_graph
from langchain_lookup_knowledge.l1.circuit_breaker import CircuitBreaker

BUDGET = 1.0
"""Seconds that L1 has. What hangs does so until the test is over, so every lookup uses them up."""


@pytest.fixture
def release():
    event = threading.Event()
    yield event
    event.set()


@pytest.fixture
def hanging_kb(folder, embedding, monkeypatch, release):
    """A knowledge base whose embedding model hangs until it is released; the circuit never
    opens.
    """
    embed = embedding.embed_query
    with KnowledgeBase.open(folder, embedding=embedding) as kb:
        kb.l1.breaker = CircuitBreaker(failures=10_000)
        monkeypatch.setattr(embedding, "embed_query", lambda text: release.wait() and embed(text))
        yield kb
        release.set()


@pytest.fixture
def hanging(hanging_kb):
    return create_lookup_knowledge_graph(
        hanging_kb, record=None, options=LookupOptions(l1_timeout=BUDGET)
    )


def seconds_of(results):
    """Return how long the lookups took together, as if one after another."""
    return sum(result["l1"]["elapsed_ms"] for result in results) / 1000


async def test_awaited_lookups_that_hang_do_not_wait_for_each_other(hanging):
    started = time.perf_counter()
    results = await asyncio.gather(*(hanging.ainvoke({"query": "refund"}) for _ in range(80)))
    took = time.perf_counter() - started
    assert {result["l1"]["status"] for result in results} == {"timeout"}
    assert {result["primary"]["entry_id"] for result in results} == {"billing/refunds.md"}
    # In the executor's few threads, six at most would be under way at once.
    assert seconds_of(results) > 10 * took


async def test_awaited_lookups_that_hang_do_not_hold_the_event_loop(hanging_kb, release):
    """The loop itself ends the hang: were it held, nobody would."""
    graph = create_lookup_knowledge_graph(
        hanging_kb, record=None, options=LookupOptions(l1_timeout=100)
    )
    lookups = [asyncio.create_task(graph.ainvoke({"query": "refund"})) for _ in range(20)]
    for _ in range(20):
        await asyncio.sleep(0.01)
    assert not any(lookup.done() for lookup in lookups)
    release.set()
    results = await asyncio.gather(*lookups)
    assert {result["l1"]["status"] for result in results} == {"ok"}


def test_lookups_in_threads_that_hang_do_not_wait_for_each_other(hanging):
    results = []
    threads = [
        threading.Thread(target=lambda: results.append(hanging.invoke({"query": "refund"})))
        for _ in range(60)
    ]
    started = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    took = time.perf_counter() - started
    assert [result["l1"]["status"] for result in results] == ["timeout"] * 60
    assert seconds_of(results) > 10 * took


@pytest.mark.slow
async def test_hundreds_of_awaited_lookups_of_a_healthy_l1_all_get_it(kb):
    graph = create_lookup_knowledge_graph(kb, record=None, options=LookupOptions(l1_timeout=60))
    results = await asyncio.gather(*(graph.ainvoke({"query": "refund"}) for _ in range(200)))
    assert {(result["l1"]["status"], result["retrieval_layer"]) for result in results} == {
        ("ok", "L0+L1")
    }


def test_several_event_loops_one_after_another_and_at_once_use_one_graph(kb):
    graph = create_lookup_knowledge_graph(kb, record=None, options=LookupOptions(l1_timeout=60))
    statuses = []

    def in_a_loop():
        statuses.append(asyncio.run(graph.ainvoke({"query": "refund"}))["l1"]["status"])

    for _ in range(3):
        in_a_loop()
    threads = [threading.Thread(target=in_a_loop) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert statuses == ["ok"] * 7


def test_a_knowledge_base_whose_model_hangs_takes_no_turn_from_another(hanging, tmp_path, folder):
    threads = [
        threading.Thread(target=hanging.invoke, args=({"query": "refund"},)) for _ in range(40)
    ]
    for thread in threads:
        thread.start()
    with KnowledgeBase.open(
        folder, embedding=WordEmbeddings(), data_dir=tmp_path / "other"
    ) as healthy:
        result = create_lookup_knowledge_graph(
            healthy, record=None, options=LookupOptions(l1_timeout=60)
        ).invoke({"query": "refund"})
    for thread in threads:
        thread.join()
    assert result["l1"]["status"] == "ok"
