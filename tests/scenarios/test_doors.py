"""Every way in gives the same matches for the same query, and leaves one row.

Those that a model reads leave out the weak ones.
"""

import json
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from parts.scripted_chat_model import ScriptedChatModel
from typing_extensions import TypedDict

from langchain_lookup_knowledge import (
    KnowledgeBase,
    LookupKnowledgeRetriever,
    SQLInvocationRecorder,
    create_lookup_knowledge_graph,
    create_lookup_knowledge_tool,
)
from langchain_lookup_knowledge.integrations import cli

ROOT = Path(__file__).parents[2]
QUERY = "VPN with Okta"
CALL = {"type": "tool_call", "name": "lookup_knowledge", "args": {"query": QUERY}, "id": "call_1"}
MODULE = [sys.executable, "-m", "langchain_lookup_knowledge.integrations.cli"]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT), "LANGSMITH_TRACING": "false"}


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    """A copy of the repository's example and langgraph.json, and of a part of its handbook."""
    copied = tmp_path_factory.mktemp("tree")
    ignore = shutil.ignore_patterns(".lookup-knowledge", "__pycache__")
    for folder in ("examples", "notebooks/handbook/it", "notebooks/handbook/security"):
        shutil.copytree(ROOT / folder, copied / folder, ignore=ignore)
    for file in ("langgraph.json", "pyproject.toml", "README.md"):
        shutil.copy(ROOT / file, copied / file)
    return copied


@pytest.fixture(scope="module")
def handbook(tree):
    with KnowledgeBase.open(tree / "notebooks/handbook", progress=False) as kb:
        yield kb


@pytest.fixture(scope="module")
def expected(handbook):
    """What the tool gives a model."""
    return through_tool_call(handbook)


@pytest.fixture(scope="module")
def everything(handbook):
    """What the graph finds."""
    return create_lookup_knowledge_graph(handbook).invoke({"query": QUERY})["matches"]


def scripted():
    return ScriptedChatModel(
        messages=iter([AIMessage("", tool_calls=[CALL]), AIMessage("Try again.")])
    )


def artifact(state):
    (message,) = (message for message in state["messages"] if message.type == "tool")
    return message.artifact["matches"]


def through_tool_call(kb):
    return create_lookup_knowledge_tool(kb).invoke(CALL).artifact["matches"]


def through_tool_node(kb):
    graph = StateGraph(MessagesState)
    graph.add_node("tools", ToolNode([create_lookup_knowledge_tool(kb)]))
    graph.add_edge(START, "tools")
    return artifact(graph.compile().invoke({"messages": [AIMessage("", tool_calls=[CALL])]}))


def through_create_agent(kb):
    return artifact(
        create_agent(scripted(), [create_lookup_knowledge_tool(kb)]).invoke({"messages": ["?"]})
    )


def through_deepagents(kb):
    deepagents = pytest.importorskip("deepagents")
    agent = deepagents.create_deep_agent(model=scripted(), tools=[create_lookup_knowledge_tool(kb)])
    return artifact(agent.invoke({"messages": [HumanMessage("?")]}))


def through_subgraph(kb):
    class Parent(TypedDict, total=False):
        query: str
        matches: list

    graph = StateGraph(Parent)
    graph.add_node("lookup", create_lookup_knowledge_graph(kb))
    graph.add_edge(START, "lookup")
    return graph.compile().invoke({"query": QUERY})["matches"]


def rows_of(kb):
    recorder = SQLInvocationRecorder.in_file(kb.data_folder / "invocations.db")
    rows = recorder.invocations(limit=1000)
    recorder.close()
    return rows


@contextmanager
def one_row(kb, matches):
    """Check that the block leaves one row, with these matches."""
    before = len(rows_of(kb))
    yield
    rows = rows_of(kb)
    assert len(rows) == before + 1
    kept = [
        (match["entry_id"], match["score"], match["layers"])
        for match in rows[0]["retrieval_details"]["matches"]
    ]
    assert kept == [(match["entry_id"], match["score"], match["layers"]) for match in matches]


def test_the_tool_leaves_out_the_weak_matches_of_the_graph(expected, everything):
    kept = ("entry_id", "title", "categories", "score", "similarity", "layers")
    of_tool, of_graph = (
        [{key: match[key] for key in kept} for match in matches]
        for matches in (expected, everything)
    )
    assert 1 < len(of_tool) < len(of_graph)
    assert of_tool == of_graph[: len(of_tool)]


@pytest.mark.parametrize(
    "door", [through_tool_node, through_create_agent, through_deepagents, through_tool_call]
)
def test_in_the_process(handbook, expected, door):
    with one_row(handbook, expected):
        assert door(handbook) == expected


def test_as_a_subgraph(handbook, everything):
    with one_row(handbook, everything):
        assert through_subgraph(handbook) == everything


def test_the_tool_with_plain_arguments(handbook, expected):
    with one_row(handbook, expected):
        text = create_lookup_knowledge_tool(handbook).invoke({"query": QUERY})
    titles = [match["title"] for match in expected]
    shown = [title for title in titles if f"] {title} (" in text]
    assert shown == titles[: len(shown)]
    places = [text.index(f"] {title} (") for title in shown]
    assert places == sorted(places)
    hidden = len(titles) - len(shown)
    assert text.endswith(f"({hidden} more not shown.)" if hidden else ">")


def test_the_retriever(handbook, everything):
    with one_row(handbook, everything):
        retriever = LookupKnowledgeRetriever(knowledge_base=handbook).with_details()
        documents = retriever.invoke(QUERY)
    kept = ("title", "source", "categories", "score", "similarity", "layers")
    assert [{key: document.metadata[key] for key in kept} for document in documents] == [
        {key: match[key] for key in kept} for match in everything
    ]
    for document, match in zip(documents, everything, strict=True):
        assert len(document.page_content) >= len(match["snippet"])
        declared = [one for one in match["matched"] if one["field"] != "text"]
        assert [m for m in document.metadata["matched"] if m["field"] != "text"] == declared


def test_the_command_line(handbook, expected, capsys):
    with one_row(handbook, expected):
        assert cli.main(["ask", str(handbook.folder), QUERY, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["matches"] == expected


SHOWN = ("source", "lines", "similarity", "layers")


def mcp_2():
    """Return version 2 of the MCP SDK."""
    mcp = pytest.importorskip("mcp")
    if not hasattr(mcp, "Client"):
        pytest.skip("needs the client of version 2 of the MCP SDK")
    return mcp


async def through_mcp(transport):
    """Return the matches of the structured content, with what they share with those of the tool."""
    async with mcp_2().Client(transport) as client:
        answer = await client.call_tool("lookup_knowledge", {"query": QUERY})
    matches = answer.structured_content["matches"]
    assert answer.structured_content["hidden"] == 0
    return [{key: match[key] for key in SHOWN} for match in matches]


def as_mcp_shows(matches):
    return [{key: match[key] for key in SHOWN} for match in matches]


@pytest.mark.process
async def test_mcp_over_stdio(handbook, expected):
    mcp = mcp_2()
    arguments = [*MODULE[1:], "mcp", str(handbook.folder), "--structured", "--max-chars", "9000"]
    server = mcp.StdioServerParameters(command=sys.executable, args=arguments, env=ENVIRONMENT)
    with one_row(handbook, expected):
        assert await through_mcp(mcp.stdio_client(server)) == as_mcp_shows(expected)


@contextmanager
def serving(command, port, seconds, **where):
    """Run a server until its port answers, for the time of the block."""
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=ENVIRONMENT, **where
    ) as process:
        printed = []
        reader = threading.Thread(target=lambda: printed.extend(process.stdout), daemon=True)
        reader.start()
        try:
            deadline = time.monotonic() + seconds
            while not answers(port):
                assert process.poll() is None and time.monotonic() < deadline, b"".join(
                    printed
                ).decode()
                time.sleep(0.1)
            yield printed
        finally:
            process.terminate()
            reader.join(30)


def answers(port):
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True


@pytest.fixture
def port():
    with socket.create_server(("127.0.0.1", 0)) as free:
        return free.getsockname()[1]


@pytest.mark.process
async def test_mcp_over_http(handbook, expected, port):
    served = ["mcp", str(handbook.folder), "--structured", "--max-chars", "9000"]
    with (
        one_row(handbook, expected),
        serving([*MODULE, *served, "--http", str(port)], port, 60),
    ):
        assert await through_mcp(f"http://127.0.0.1:{port}/mcp") == as_mcp_shows(expected)


@pytest.mark.slow
def test_the_langgraph_dev_server(tree, handbook, everything, port):
    """Which stops a run that blocks its event loop."""
    pytest.importorskip("langgraph_api")
    from langgraph_sdk import get_sync_client

    command = [
        sys.executable,
        "-m",
        "langgraph_cli",
        "dev",
        "--no-browser",
        "--no-reload",
        "--port",
        str(port),
    ]
    url = f"http://127.0.0.1:{port}"
    with (
        one_row(handbook, everything),
        serving(command, port, 120, cwd=tree) as printed,
        get_sync_client(url=url, api_key=None) as client,
    ):
        result = client.runs.wait(None, "lookup_knowledge", input={"query": QUERY})
    assert result["matches"] == everything
    assert b"blocking" not in b"".join(printed).lower()
