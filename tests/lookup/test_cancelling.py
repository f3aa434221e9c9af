"""Cancelled lookups: each leaves a row, and never two of one outcome."""

import asyncio
import logging
import signal
import sys
import threading

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.errors import GraphInterrupt

from langchain_lookup_knowledge import (
    LookupOptions,
    SQLInvocationRecorder,
    create_lookup_knowledge_graph,
    create_lookup_knowledge_tool,
)

PATIENT = LookupOptions(l1_timeout=60)


@pytest.fixture
def recorder(tmp_path):
    opened = SQLInvocationRecorder.in_file(tmp_path / "calls.db")
    yield opened
    opened.close()


@pytest.fixture
def held(kb, embedding):
    """Hold the model: `held.entered` is set when a lookup has come to it, and `held.go` lets it
    go.
    """

    class Held:
        entered, go = threading.Event(), threading.Event()

    embed = embedding.embed_query

    def embed_query(text):
        Held.entered.set()
        Held.go.wait(60)
        return embed(text)

    embedding.embed_query = embed_query
    yield Held
    Held.go.set()


async def cancelled_in_l1(graph, held, **arguments):
    task = asyncio.create_task(graph.ainvoke({"query": "refund"}, **arguments))
    while not held.entered.is_set():
        await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_lookup_cancelled_in_l1_leaves_a_row_with_its_hints(kb, recorder, held):
    graph = create_lookup_knowledge_graph(kb, record=recorder, options=PATIENT)
    await cancelled_in_l1(graph, held)
    (row,) = recorder.invocations()
    assert (row["status"], row["l1_status"], row["query"], row["result_count"]) == (
        "cancelled",
        "skipped",
        "refund",
        0,
    )
    assert row["retrieval_details"]["l0_hints"]["keywords"] == ["refund"]
    assert recorder.invocations(status="cancelled") == [row]


async def test_a_lookup_that_its_caller_gave_up_leaves_a_row(kb, recorder, held):
    tool = create_lookup_knowledge_tool(kb, record=recorder, options=PATIENT)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(tool.ainvoke({"query": "refund"}), 0.3)
    assert [row["status"] for row in recorder.invocations()] == ["cancelled"]


async def test_every_lookup_in_flight_leaves_a_row(kb, recorder, held):
    graph = create_lookup_knowledge_graph(kb, record=recorder, options=PATIENT)
    tasks = [asyncio.create_task(graph.ainvoke({"query": f"refund {n}"})) for n in range(20)]
    while not held.entered.is_set():
        await asyncio.sleep(0.01)
    await asyncio.sleep(0.2)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    rows = recorder.invocations(limit=100)
    assert {row["query"] for row in rows} == {f"refund {n}" for n in range(20)}
    assert {row["status"] for row in rows} == {"cancelled"}


@pytest.mark.parametrize(
    "node", ["l0_hints", "choose_filter", "l1_retrieve", "merge_with_fallback"]
)
def test_a_lookup_interrupted_in_any_node_leaves_a_row(kb, recorder, node, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    from langchain_lookup_knowledge.lookup.nodes import Nodes

    monkeypatch.setattr(Nodes, node, interrupted)
    graph = create_lookup_knowledge_graph(kb, record=recorder)
    with pytest.raises(KeyboardInterrupt):
        graph.invoke({"query": "refund"})
    (row,) = recorder.invocations()
    assert (row["status"], row["query"]) == ("cancelled", "refund")


async def test_a_lookup_that_is_resumed_after_it_was_cancelled_has_two_rows(kb, recorder, held):
    graph = create_lookup_knowledge_graph(kb, record=recorder, options=PATIENT)
    graph.checkpointer = InMemorySaver()
    config = {"configurable": {"thread_id": "t"}}
    await cancelled_in_l1(graph, held, config=config)
    held.go.set()
    for _ in range(2):
        result = await graph.ainvoke(None, config)
    rows = recorder.invocations()
    assert sorted(row["status"] for row in rows) == ["cancelled", "ok"]
    assert result["invocation_id"] in {row["id"] for row in rows}


async def test_without_a_recorder_a_cancelled_lookup_is_just_cancelled(kb, held):
    graph = create_lookup_knowledge_graph(kb, record=None, options=PATIENT)
    await cancelled_in_l1(graph, held)


class Held(InMemorySaver):
    """A saver that is held at its checkpoint number `at`, so that no node runs meanwhile."""

    def __init__(self, at):
        super().__init__()
        self.left, self.entered = at, asyncio.Event()

    async def aput(self, *arguments):
        self.left -= 1
        if not self.left:
            self.entered.set()
            await asyncio.Event().wait()
        return super().put(*arguments)

    def put(self, *arguments):
        self.left -= 1
        if not self.left:
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
            threading.Event().wait(0.2)
        return super().put(*arguments)


THREAD = {"configurable": {"thread_id": "t"}}
BETWEEN = range(1, 8)  # of the input, before the first node, and after each of the five


def rows_of(recorder, at):
    (row,) = recorder.invocations()
    assert row["query"] == "refund"
    assert row["status"] == ("ok" if at == 7 else "cancelled")  # the last node records it
    if at > 3:
        assert row["thread_id"] == "t"
        assert row["retrieval_details"]["l0_hints"]["keywords"] == ["refund"]
    return row


@pytest.mark.parametrize("at", BETWEEN)
async def test_a_lookup_cancelled_between_two_nodes_leaves_a_row(kb, recorder, at):
    graph = create_lookup_knowledge_graph(kb, record=recorder, options=PATIENT)
    graph.checkpointer = Held(at)
    running = graph.ainvoke({"query": "refund"}, THREAD, durability="sync")
    task = asyncio.create_task(running)
    await graph.checkpointer.entered.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    rows_of(recorder, at)


@pytest.mark.skipif(sys.platform == "win32", reason="no signals to threads")
@pytest.mark.parametrize("at", BETWEEN)
def test_a_lookup_interrupted_between_two_nodes_leaves_a_row(kb, recorder, at):
    graph = create_lookup_knowledge_graph(kb, record=recorder, options=PATIENT)
    graph.checkpointer = Held(at)
    with pytest.raises(KeyboardInterrupt):
        graph.invoke({"query": "refund"}, THREAD, durability="sync")
    rows_of(recorder, at)


def settled(recorder):
    """Return the rows, as soon as there is one: of a closed stream, it is written by a thread."""
    for _ in range(500):
        if rows := recorder.invocations():
            return rows
        threading.Event().wait(0.01)
    return []


async def test_a_stream_that_nobody_reads_to_its_end_leaves_a_row(kb, recorder):
    graph = create_lookup_knowledge_graph(kb, record=recorder, options=PATIENT)
    stream = graph.astream({"query": "refund"}, stream_mode="updates")
    assert "l0_hints" in await anext(stream)
    await stream.aclose()
    (row,) = settled(recorder)
    assert (row["status"], row["query"]) == ("cancelled", "refund")


def test_a_synchronous_stream_that_nobody_reads_to_its_end_leaves_a_row(kb, recorder):
    graph = create_lookup_knowledge_graph(kb, record=recorder, options=PATIENT)
    stream = graph.stream({"query": "refund"}, stream_mode="updates")
    assert "l0_hints" in next(stream)
    stream.close()
    (row,) = settled(recorder)
    assert (row["status"], row["query"]) == ("cancelled", "refund")


def interrupted_before_its_first_node(kb, recorder, **given):
    graph = create_lookup_knowledge_graph(kb, record=recorder)
    graph.checkpointer = Held(1)
    with pytest.raises(KeyboardInterrupt):
        graph.invoke({"query": "refund", **given}, THREAD, durability="sync")


@pytest.mark.parametrize("error", [GraphInterrupt(), SystemExit()])
def test_a_recorder_may_interrupt_the_recording_of_a_cancelled_lookup(kb, error, caplog):
    class Interrupting:
        def record(self, _):
            raise error

    interrupted_before_its_first_node(kb, Interrupting())
    assert not caplog.records


def test_a_cancelled_lookup_that_cannot_be_recorded_is_logged(kb, recorder, caplog):
    interrupted_before_its_first_node(kb, recorder, matches=5)
    (logged,) = caplog.records
    assert logged.levelno == logging.ERROR
    assert logged.message.startswith("the cancelled lookup was not recorded: unexpected TypeError")


def test_a_lookup_cancelled_while_no_thread_can_start_is_just_cancelled(kb, recorder, monkeypatch):
    class NoThread(threading.Thread):
        def start(self):
            raise RuntimeError("can't create new thread at interpreter shutdown")

    from langchain_lookup_knowledge.lookup import cancelling

    monkeypatch.setattr(cancelling, "Thread", NoThread)
    interrupted_before_its_first_node(kb, recorder)
    assert recorder.invocations() == []
