"""Inside larger graphs: schemas, checkpointers, interrupts, streams, and many calls at once."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import pytest
from langchain_core.messages import AIMessage, AnyMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.prebuilt import ToolNode
from langgraph.types import Command, interrupt
from typing_extensions import TypedDict

from langchain_lookup_knowledge import (
    SQLInvocationRecorder,
    create_lookup_knowledge_graph,
    create_lookup_knowledge_tool,
)

STEPS = ["l0_hints", "choose_filter", "l1_retrieve", "merge_with_fallback", "record_invocation"]


class Ticket(TypedDict, total=False):
    """A parent state with names of its own for what the lookup calls alike."""

    query: str
    status: str
    matches: int
    candidates: list[str]
    primary: dict
    approved: bool


def support(kb, **arguments):
    """A parent graph: looks up, then asks a person."""
    builder = StateGraph(Ticket)
    builder.add_node("lookup", create_lookup_knowledge_graph(kb, **arguments))
    builder.add_node("approve", lambda state: {"approved": interrupt(state["primary"]["title"])})
    builder.add_edge(START, "lookup")
    builder.add_edge("lookup", "approve")
    builder.add_edge("approve", END)
    return builder


def test_what_the_lookup_keeps_for_itself_does_not_reach_the_parent(kb):
    builder = StateGraph(Ticket)
    builder.add_node("lookup", create_lookup_knowledge_graph(kb))
    builder.add_edge(START, "lookup")
    state = builder.compile().invoke({"query": "refund", "candidates": ["Ann", "Bob"]})
    assert state["candidates"] == ["Ann", "Bob"]
    assert set(state) == {"query", "candidates", "status", "matches", "primary"}


def test_under_a_key_of_its_own_the_result_touches_no_other(kb):
    class Sales(TypedDict, total=False):
        query: str
        status: str
        matches: int
        candidates: list[str]
        question: str
        knowledge: dict

    lookup = create_lookup_knowledge_graph(kb)
    builder = StateGraph(Sales)
    builder.add_node(
        "lookup", lambda state: {"knowledge": lookup.invoke({"query": state["question"]})}
    )
    builder.add_edge(START, "lookup")
    own = {
        "query": "SELECT 1",
        "status": "open",
        "matches": 7,
        "candidates": ["Ann"],
        "question": "refund",
    }
    graph = builder.compile(checkpointer=InMemorySaver())
    state = graph.invoke(own, {"configurable": {"thread_id": "t1"}})
    assert state.pop("knowledge")["primary"]["title"] == "Refunds"
    assert state == own
    assert "l1_retrieve" in graph.get_graph(xray=True).draw_mermaid()


def test_the_lookup_never_sees_the_rest_of_the_parent(kb):
    builder = StateGraph(Ticket)
    builder.add_node("lookup", create_lookup_knowledge_graph(kb))
    builder.add_edge(START, "lookup")
    given = {
        "query": "refund",
        "status": "refused",
        "candidates": ["Ann"],
        "primary": {"title": "Bob"},
    }
    assert builder.compile().invoke(given)["primary"]["title"] == "Refunds"


@contextmanager
def postgres():
    """Start a PostgreSQL of our own, on a socket in a temporary folder, and yield its URL."""
    if not (shutil.which("initdb") and shutil.which("postgres")):
        pytest.skip("PostgreSQL's initdb and postgres are not installed")
    pytest.importorskip("langgraph.checkpoint.postgres")
    folder = Path(tempfile.mkdtemp(prefix="pg"))
    user = {"user": "nobody"} if os.geteuid() == 0 else {}  # PostgreSQL refuses to run as root
    if user:
        shutil.chown(folder, "nobody")
    run = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "cwd": folder, **user}
    subprocess.run(
        ["initdb", "-D", folder / "data", "-U", "tester", "-A", "trust", "--no-sync"],
        check=True,
        **run,
    )
    arguments = ["-D", folder / "data", "-k", folder, "-c", "listen_addresses=", "-c", "fsync=off"]
    server = subprocess.Popen(["postgres", *arguments], **run)
    try:
        yield f"postgresql://tester@/postgres?host={folder}"
    finally:
        server.terminate()
        server.wait(60)
        shutil.rmtree(folder, ignore_errors=True)


def connected(url):
    """Return a checkpointer once the server answers."""
    import time

    import psycopg
    from langgraph.checkpoint.postgres import PostgresSaver

    for _ in range(200):
        try:
            connection = psycopg.connect(
                url, autocommit=True, prepare_threshold=0, row_factory=psycopg.rows.dict_row
            )
            return PostgresSaver(connection)
        except psycopg.OperationalError:
            time.sleep(0.05)
    raise AssertionError("PostgreSQL does not answer")


@pytest.fixture(params=["memory", "sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def checkpointer(request, tmp_path):
    if request.param == "memory":
        yield InMemorySaver()
    elif request.param == "sqlite":
        with SqliteSaver.from_conn_string(str(tmp_path / "checkpoints.db")) as saver:
            yield saver
    else:
        with postgres() as url:
            saver = connected(url)
            saver.setup()
            yield saver
            saver.conn.close()


def test_interrupt_and_resume_in_the_parent_look_up_once(kb, tmp_path, checkpointer):
    recorder = SQLInvocationRecorder(f"sqlite:///{tmp_path / 'calls.db'}")
    graph = support(kb, record=recorder).compile(checkpointer=checkpointer)
    for durability in ("sync", "async", "exit"):
        config = {"configurable": {"thread_id": durability}}
        state = graph.invoke({"query": "refund"}, config, durability=durability)
        assert state["__interrupt__"][0].value == "Refunds"
        resumed = graph.invoke(Command(resume=True), config, durability=durability)
        assert (resumed["approved"], resumed["primary"]["entry_id"]) == (True, "billing/refunds.md")
    assert sorted(row["thread_id"] for row in recorder.invocations()) == ["async", "exit", "sync"]
    recorder.close()


def test_every_stream_mode_of_the_parent(kb):
    graph = support(kb).compile(checkpointer=InMemorySaver())

    def stream(mode, subgraphs=True):
        config = {"configurable": {"thread_id": f"{mode}{subgraphs}"}}
        return list(
            graph.stream({"query": "refund"}, config, stream_mode=mode, subgraphs=subgraphs)
        )

    updates = [next(iter(update)) for namespace, update in stream("updates") if namespace]
    assert updates == STEPS
    events = [event for namespace, event in stream("custom") if namespace[0].startswith("lookup:")]
    assert [event["step"] for event in events] == STEPS
    assert len({event["invocation_id"] for event in events}) == 1
    assert stream("messages") == []
    assert [next(iter(update)) for update in stream("updates", subgraphs=False)] == [
        "lookup",
        "__interrupt__",
    ]
    both = [mode for _, mode, _ in stream(["updates", "custom"])]
    assert both.count("custom") == 5


def test_progress_of_the_graph_alone(kb):
    events = list(
        create_lookup_knowledge_graph(kb).stream({"query": "refund"}, stream_mode="custom")
    )
    assert [event["step"] for event in events] == STEPS
    assert set(events[0]) == {"tool", "step", "invocation_id", "tool_call_id"}


QUERIES = {"refund": "Refunds", "parental leave": "Parental leave", "vpn": "VPN"}
REPEATS = 200


class State(TypedDict):
    messages: Annotated[list[AnyMessage], add_messages]


RELOAD = """
import json, sys
from langgraph.checkpoint.sqlite import SqliteSaver
with SqliteSaver.from_conn_string(sys.argv[1]) as saver:
    found = {}
    for thread in json.loads(sys.argv[2]):
        saved = saver.get_tuple({"configurable": {"thread_id": thread}})
        messages = saved.checkpoint["channel_values"]["messages"]
        found[thread] = [[m.tool_call_id, m.content, m.artifact] for m in messages[1:]]
print(json.dumps(found))
"""


@pytest.mark.slow
def test_three_calls_at_once_200_times_under_a_sqlite_checkpointer(kb, tmp_path):
    """No cross-talk; and what was stored comes back equal in another process, which takes
    registered types alone.
    """
    recorder = SQLInvocationRecorder(f"sqlite:///{tmp_path / 'calls.db'}")
    builder = StateGraph(State)
    builder.add_node("tools", ToolNode([create_lookup_knowledge_tool(kb, record=recorder)]))
    builder.add_edge(START, "tools")
    stored = {}
    with SqliteSaver.from_conn_string(str(tmp_path / "checkpoints.db")) as saver:
        graph = builder.compile(checkpointer=saver)
        for i in range(REPEATS):
            calls = [
                {"name": "lookup_knowledge", "args": {"query": query}, "id": f"{i}-{query}"}
                for query in QUERIES
            ]
            state = graph.invoke(
                {"messages": [AIMessage("", tool_calls=calls)]},
                {"configurable": {"thread_id": str(i)}},
            )
            stored[str(i)] = [
                [m.tool_call_id, m.content, m.artifact] for m in state["messages"][1:]
            ]
    for i, messages in stored.items():
        assert [call for call, _, _ in messages] == [f"{i}-{query}" for query in QUERIES]
        assert [artifact["query"] for _, _, artifact in messages] == list(QUERIES)
        assert [artifact["primary"]["title"] for _, _, artifact in messages] == list(
            QUERIES.values()
        )
        assert all(artifact["primary"]["title"] in content for _, content, artifact in messages)
    rows = {row["tool_call_id"]: row for row in recorder.invocations(limit=1000)}
    assert len(rows) == 3 * REPEATS
    assert all(row["query"] == call.split("-", 1)[1] for call, row in rows.items())
    recorder.close()
    command = [
        sys.executable,
        "-W",
        "error",
        "-c",
        RELOAD,
        str(tmp_path / "checkpoints.db"),
        json.dumps(list(stored)),
    ]
    environment = {**os.environ, "LANGGRAPH_STRICT_MSGPACK": "true"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.stderr == ""
    assert json.loads(done.stdout) == stored


def test_state_of_the_graph_comes_back_equal(kb, tmp_path, caplog):
    with SqliteSaver.from_conn_string(str(tmp_path / "checkpoints.db")) as saver:
        graph = support(kb).compile(checkpointer=saver)
        config = {"configurable": {"thread_id": "t1"}}
        graph.invoke({"query": "refund"}, config)
        before = graph.get_state(config, subgraphs=True).values
    with SqliteSaver.from_conn_string(str(tmp_path / "checkpoints.db")) as saver:
        assert support(kb).compile(checkpointer=saver).get_state(config).values == before
    assert "unregistered type" not in caplog.text
