"""The MCP server, through a real client; over stdio and HTTP it is compared with the other ways in."""

import json
import socket
import subprocess
import sys

import pytest
from mcp import Client

import langchain_lookup_knowledge
from langchain_lookup_knowledge import KnowledgeBase, cli, mcp_server
from langchain_lookup_knowledge.mcp_server import create_mcp_server

MODULE = ["-m", "langchain_lookup_knowledge.cli", "mcp"]


async def tool_and_answer(transport, query="refund"):
    async with Client(transport) as client:
        (tool,) = (await client.list_tools()).tools
        return tool, await client.call_tool(tool.name, {"query": query})


def check(tool, answer):
    assert tool.name == "lookup_knowledge"
    assert list(tool.input_schema["properties"]) == tool.input_schema["required"] == ["query"]
    assert {"status", "matches", "relevance", "hints"} <= set(tool.output_schema["properties"])
    assert "(3 entries)" in tool.description
    assert not answer.is_error
    assert answer.structured_content["primary"]["entry_id"] == "billing/refunds.md"
    assert "Refunds take five days." in answer.content[0].text


async def test_in_the_process(kb):
    tool, answer = await tool_and_answer(create_mcp_server(kb))
    check(tool, answer)
    assert answer.structured_content["retrieval_layer"] == "L0+L1"
    assert answer.structured_content["recorded"] == "stored"


def test_standard_output_carries_the_protocol_alone(folder):
    """A process that prints what it likes would break the client: every line must be JSON-RPC."""
    hello = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": {
            "protocolVersion": "2025-06-18",
            "capabilities": {},
            "clientInfo": {"name": "test", "version": "1"},
        },
    }
    call = {
        "jsonrpc": "2.0",
        "id": 2,
        "method": "tools/call",
        "params": {"name": "lookup_knowledge", "arguments": {"query": "refund"}},
    }
    ready = {"jsonrpc": "2.0", "method": "notifications/initialized"}
    (folder / "broken.md").write_text("---\ntitle: [\n---\nText\n")
    with subprocess.Popen(
        [sys.executable, *MODULE, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        for message in (hello, ready, call):
            process.stdin.write(json.dumps(message).encode() + b"\n")
        process.stdin.flush()
        lines = [json.loads(process.stdout.readline()) for _ in range(2)]
        process.stdin.close()
        rest = process.stdout.read()
        assert process.wait(30) == 0
        assert b"Traceback" not in process.stderr.read()
    assert [line["id"] for line in lines] == [1, 2]
    assert rest == b""


async def test_a_wrong_argument_is_an_error_of_the_call(kb):
    async with Client(create_mcp_server(kb)) as client:
        answer = await client.call_tool("lookup_knowledge", {"question": "refund"})
    assert answer.is_error


async def test_without_an_index_nothing_is_called_semantic(folder, embedding):
    with KnowledgeBase.open(folder, embedding=embedding, index=None) as kb:
        tool, answer = await tool_and_answer(create_mcp_server(kb))
    for word in ("semantic", "vector"):
        assert word not in f"{tool.description}{answer.content[0].text}".lower()


@pytest.mark.parametrize("address", ["x", "0", "host:", "1:99999"])
def test_a_wrong_address_is_named(folder, capsys, address):
    with pytest.raises(SystemExit) as stop:
        cli.main(["mcp", str(folder), "--http", address])
    assert stop.value.code == 2
    assert "is not [HOST:]PORT" in capsys.readouterr().err


def test_an_address_in_use_is_told_in_a_line(folder, capsys):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert cli.main(["mcp", str(folder), "--no-l1", "--http", str(port)]) == 2
    told = capsys.readouterr().err
    assert "Address already in use" in told
    assert "serving" not in told


def test_an_address_of_ipv6_is_announced_when_it_can_be_used(kb):
    class Server:
        def run(self, transport, *, host, port, **_):
            started.append((transport, host, port))

    started = []
    with socket.create_server(("::1", 0), family=socket.AF_INET6) as free:
        port = free.getsockname()[1]
    mcp_server.serve_http(Server(), "::1", port, started=started.append)
    assert started == [f"http://[::1]:{port}/mcp", ("streamable-http", "::1", port)]


def test_a_missing_extra_is_named(folder, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "mcp.server.mcpserver", None)
    monkeypatch.delitem(sys.modules, "langchain_lookup_knowledge.mcp_server")
    monkeypatch.delattr(langchain_lookup_knowledge, "mcp_server")
    assert cli.main(["mcp", str(folder), "--no-l1"]) == 2
    assert "pip install 'langchain-lookup-knowledge[mcp]'" in capsys.readouterr().err
