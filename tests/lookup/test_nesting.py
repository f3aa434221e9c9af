"""The lookup as a node of other graphs: parallel lookups, keys, ids, and what a thread stores."""

from typing import Any

import pytest
from conftest import write_files
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, interrupt
from typing_extensions import TypedDict

from langchain_lookup_knowledge import (
    KnowledgeBase,
    SQLInvocationRecorder,
    create_lookup_knowledge_graph,
)
from langchain_lookup_knowledge.types import LookupResult

LONG = "---\ntitle: Long\nkeywords: [long]\n---\n" + "\n\n".join(
    f"## Part {i}\n\n" + f"Part {i} of the long text names word{i}. " * 12 for i in range(8)
)


class Question(TypedDict, total=False):
    query: str
    answered: list[str]


def parallel(kb, state, first: dict[str, Any], second: dict[str, Any]):
    builder = StateGraph(state)
    builder.add_node("first", create_lookup_knowledge_graph(kb, **first))
    builder.add_node("second", create_lookup_knowledge_graph(kb, **second))
    for node in ("first", "second"):
        builder.add_edge(START, node)
        builder.add_edge(node, END)
    return builder.compile()


def test_two_lookups_are_parallel_nodes_of_a_parent_without_their_keys(kb, tmp_path):
    recorder = SQLInvocationRecorder(f"sqlite:///{tmp_path / 'calls.db'}")
    graph = parallel(
        kb, Question, {"record": recorder, "name": "a"}, {"record": recorder, "name": "b"}
    )
    assert graph.invoke({"query": "refund"}) == {"query": "refund"}
    assert {row["tool_name"] for row in recorder.invocations()} == {"a", "b"}
    recorder.close()


@pytest.mark.parametrize("awaited", [False, True])
async def test_each_result_is_under_its_key(kb, awaited):
    class Both(TypedDict, total=False):
        query: str
        billing: LookupResult
        travel: LookupResult

    graph = parallel(kb, Both, {"result_key": "billing"}, {"result_key": "travel"})
    given = {"query": "refund"}
    state = await graph.ainvoke(given) if awaited else graph.invoke(given)
    assert set(state) == {"query", "billing", "travel"}
    for key in ("billing", "travel"):
        assert set(state[key]) == set(LookupResult.__annotations__)
        assert (state[key]["query"], state[key]["recorded"]) == ("refund", "stored")
    assert state["billing"]["invocation_id"] != state["travel"]["invocation_id"]


def test_a_graph_alone_returns_its_query_and_under_a_key_nothing_else(kb):
    whole = create_lookup_knowledge_graph(kb, result_key="billing").invoke({"query": "refund"})
    assert set(whole) == {"billing"}
    assert whole["billing"]["primary"]["title"] == "Refunds"
    assert create_lookup_knowledge_graph(kb).invoke({"query": "refund"})["query"] == "refund"


@pytest.mark.parametrize("key", ["query", "matches", "candidates", "", 3])
def test_a_key_that_the_lookup_needs_is_refused(kb, key):
    with pytest.raises(ValueError, match="result_key takes a name"):
        create_lookup_knowledge_graph(kb, result_key=key)


def stored_bytes(saver):
    blobs = sum(len(blob) for _, blob in saver.blobs.values())
    written = sum(len(w[2][1]) for writes in saver.writes.values() for w in writes.values())
    namespaces = (found for thread in saver.storage.values() for found in thread.values())
    checkpoints = (checkpoint for found in namespaces for checkpoint in found.values())
    return blobs + written + sum(len(c[0][1]) + len(c[1][1]) for c in checkpoints)


@pytest.mark.parametrize(
    ("state", "arguments"),
    [
        (LookupResult, {}),
        (TypedDict("Under", {"query": str, "found": dict}), {"result_key": "found"}),
    ],
)
def test_a_lookup_adds_little_more_than_its_text_to_a_thread(folder, embedding, state, arguments):
    """At most three times its text and 4 KB; LangGraph stores all that a node returns twice."""
    write_files(folder, {"long.md": LONG})

    def thread(node):
        saver = InMemorySaver()
        builder = StateGraph(state)
        builder.add_node("lookup", node)
        builder.add_edge(START, "lookup")
        found = builder.compile(checkpointer=saver).invoke(
            {"query": "the long text, word3"}, {"configurable": {"thread_id": "t"}}
        )
        return stored_bytes(saver), found.get("found", found)

    with KnowledgeBase.open(folder, embedding=embedding) as kb:
        lookup = create_lookup_knowledge_graph(kb, **arguments)
        called = create_lookup_knowledge_graph(kb)
        used, result = thread(lookup)

        def call(state):
            found = called.invoke({"query": state["query"]})
            return {"found": found} if arguments else found

        by_a_node, _ = thread(call)
    without, _ = thread(lambda state: {"query": state["query"]})
    text = sum(len(match["snippet"]) for match in result["matches"])
    assert text > 2000
    assert used - without <= 3 * text + 4096
    assert by_a_node - without <= 3 * text + 4096


def test_no_text_is_twice_in_a_result(ask):
    result = ask("refund")
    assert str(result).count("Refunds take five days.") == 1
    (passage,) = result["matches"][0]["passages"]
    assert result["matches"][0]["snippet"][slice(*passage["span"])] == "Refunds take five days."


class Stopping:
    """A recorder that interrupts its graph before it records."""

    def __init__(self, recorder):
        self.recorder = recorder
        self.seen = []

    def record(self, invocation):
        self.seen.append(invocation["id"])
        interrupt("record?")
        return self.recorder.record(invocation)


def test_an_interrupted_lookup_goes_on_where_it_was(kb, embedding, tmp_path):
    recorder = SQLInvocationRecorder(f"sqlite:///{tmp_path / 'calls.db'}")
    stopping = Stopping(recorder)
    builder = StateGraph(LookupResult)
    builder.add_node("lookup", create_lookup_knowledge_graph(kb, record=stopping))
    builder.add_edge(START, "lookup")
    graph = builder.compile(checkpointer=InMemorySaver())
    config = {"configurable": {"thread_id": "t"}}
    graph.invoke({"query": "refund"}, config)
    (task,) = graph.get_state(config, subgraphs=True).tasks
    assert task.state.values["candidates"]
    embedding.failure = RuntimeError("nothing is searched again")
    result = graph.invoke(Command(resume=True), config)
    assert (result["status"], result["l1"]["status"]) == ("ok", "ok")
    assert len(stopping.seen) == 2
    assert {row["id"] for row in recorder.invocations()} == set(stopping.seen)
    recorder.close()


def test_a_node_that_runs_again_writes_no_second_row(kb, tmp_path):
    """The lookup was recorded, and the process ended before the parent stored its state."""
    recorder = SQLInvocationRecorder(f"sqlite:///{tmp_path / 'calls.db'}")
    lookup = create_lookup_knowledge_graph(kb, record=recorder)
    runs = []

    def node(state, config):
        runs.append(lookup.invoke({"query": state["query"]}, config)["invocation_id"])
        if len(runs) == 1:
            raise ConnectionError
        return {}

    builder = StateGraph(Question)
    builder.add_node("lookup", node)
    builder.add_edge(START, "lookup")
    graph = builder.compile(checkpointer=InMemorySaver())
    config = {"configurable": {"thread_id": "t"}}
    with pytest.raises(ConnectionError):
        graph.invoke({"query": "refund"}, config)
    graph.invoke(None, config)
    assert len(runs) == 2
    assert {row["id"] for row in recorder.invocations()} == set(runs) == {runs[0]}
    graph.invoke({"query": "refund"}, config)
    assert len(recorder.invocations()) == 2
    recorder.close()
