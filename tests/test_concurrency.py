"""Many lookups at once while L1 hangs: nobody waits for another's time limit, and the event loop is never held."""

import asyncio
import threading
import time

import pytest
from conftest import WordEmbeddings

from langchain_lookup_knowledge import KnowledgeBase, LookupOptions, create_lookup_knowledge_graph
from langchain_lookup_knowledge.breaker import CircuitBreaker

BUDGET = 1.0


@pytest.fixture
def hanging(folder, embedding, monkeypatch):
    """A graph whose embedding model hangs until the test is over; the circuit never opens."""
    release = threading.Event()
    with KnowledgeBase.open(folder, embedding=embedding) as kb:
        kb.breaker = CircuitBreaker(failures=10_000)
        monkeypatch.setattr(embedding, "embed_query", lambda text: release.wait(60))
        yield create_lookup_knowledge_graph(kb, record=None, options=LookupOptions(l1_timeout=BUDGET))
        release.set()


async def test_awaited_lookups_that_hang_do_not_wait_for_each_other_nor_hold_the_loop(hanging):
    ticks = []

    async def tick():
        while True:
            ticks.append(time.perf_counter())
            await asyncio.sleep(0.01)

    async def alone():
        started = time.perf_counter()
        await hanging.ainvoke({"query": "refund"})
        return time.perf_counter() - started

    ticking = asyncio.create_task(tick())
    started = time.perf_counter()
    results = await asyncio.gather(*(hanging.ainvoke({"query": "refund"}) for _ in range(200)))
    took = time.perf_counter() - started
    ticking.cancel()
    assert {result["l1"]["status"] for result in results} == {"timeout"}
    assert {result["primary"]["entry_id"] for result in results} == {"billing/refunds.md"}
    assert max(result["l1"]["elapsed_ms"] for result in results) < (BUDGET + 0.5) * 1000
    # One after another in the executor's few threads they would take 200 / 6 time limits.
    assert took < 5 * BUDGET
    assert len(ticks) > 20
    assert await alone() < BUDGET + 0.5


def test_lookups_in_threads_that_hang_do_not_wait_for_each_other(hanging):
    results = []
    threads = [threading.Thread(target=lambda: results.append(hanging.invoke({"query": "refund"}))) for _ in range(60)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert [result["l1"]["status"] for result in results] == ["timeout"] * 60
    assert max(result["l1"]["elapsed_ms"] for result in results) < (BUDGET + 0.5) * 1000


async def test_hundreds_of_awaited_lookups_of_a_healthy_l1_all_get_it(kb):
    graph = create_lookup_knowledge_graph(kb, record=None, options=LookupOptions(l1_timeout=60))
    results = await asyncio.gather(*(graph.ainvoke({"query": "refund"}) for _ in range(200)))
    assert {(result["l1"]["status"], result["retrieval_layer"]) for result in results} == {("ok", "L0+L1")}


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
        thread.join(60)
    assert statuses == ["ok"] * 7


def test_a_knowledge_base_whose_model_hangs_takes_no_turn_from_another(hanging, tmp_path, folder):
    threads = [threading.Thread(target=hanging.invoke, args=({"query": "refund"},)) for _ in range(40)]
    for thread in threads:
        thread.start()
    with KnowledgeBase.open(folder, embedding=WordEmbeddings(), data_dir=tmp_path / "other") as healthy:
        result = create_lookup_knowledge_graph(healthy, record=None, options=LookupOptions(l1_timeout=20)).invoke(
            {"query": "refund"}
        )
    for thread in threads:
        thread.join()
    assert result["l1"]["status"] == "ok"
