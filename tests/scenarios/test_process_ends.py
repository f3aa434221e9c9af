"""The end of a process: with lookups in flight, by a signal, in forked children, in web servers.
It never aborts, and never hangs.
"""

import contextlib
import json
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from importlib.util import find_spec
from pathlib import Path

import pytest
from conftest import FILES, write_files

from langchain_lookup_knowledge import KnowledgeBase

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(sys.platform == "win32", reason="no signals and no forks"),
]
PARTS = Path(__file__).parents[1] / "parts"
SECONDS = 300


@pytest.fixture(scope="module")
def real(tmp_path_factory):
    """A folder that is indexed with the bundled model."""
    folder = write_files(tmp_path_factory.mktemp("real") / "kb", FILES)
    KnowledgeBase.open(folder).close()
    return folder


def start(*arguments, **streams):
    return subprocess.Popen(
        [sys.executable, *map(str, arguments)], stderr=subprocess.PIPE, text=True, **streams
    )


def ended(process):
    """Return the exit code and the errors of a process that ends by itself."""
    try:
        _, errors = process.communicate(timeout=SECONDS)
    finally:
        process.kill()
    return process.returncode, errors


def end_of(way, folder):
    if way == "mcp":
        return end_of_mcp(folder)
    process = start(PARTS / "ending_process.py", way, folder, stdout=subprocess.PIPE)
    if way == "sigterm":
        assert process.stdout.readline() == "ready\n"
        process.terminate()
    return ended(process)


def end_of_mcp(folder):
    """Close the input of an MCP server with 20 calls under way."""
    process = start(
        "-m", "langchain_lookup_knowledge.integrations.cli", "mcp", folder,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    start_up = {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    }
    messages = [
        {"id": 0, "method": "initialize", "params": start_up},
        {"method": "notifications/initialized"},
        *(
            {
                "id": number,
                "method": "tools/call",
                "params": {"name": "lookup_knowledge", "arguments": {"query": "refund " * 300}},
            }
            for number in range(1, 21)
        ),
    ]
    for message in messages:
        process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        process.stdin.flush()
        if message.get("id") == 0:
            process.stdout.readline()
    time.sleep(0.05)
    process.stdin.close()
    process.stdin = None
    return ended(process)


CODES = {"sigterm": -signal.SIGTERM}
WAYS = ["asyncio", "threads", "mcp", "sigterm", "fork"]


@pytest.mark.parametrize("way", WAYS)
def test_a_process_with_lookups_in_flight_ends_and_does_not_abort(real, way):
    code, errors = end_of(way, real)
    assert code == CODES.get(way, 0), errors
    assert "terminate called" not in errors


@pytest.mark.nightly
def test_fifty_ends_of_processes_with_lookups_in_flight(real):
    codes = [(way, *end_of(way, real)) for _ in range(10) for way in WAYS]
    wrong = [(way, code, errors[-300:]) for way, code, errors in codes if code != CODES.get(way, 0)]
    print(f"{len(codes)} ends of processes with 20 lookups in flight: {len(wrong)} wrong")
    assert wrong == []


# Web servers

APPLICATION = """
import json
from langchain_lookup_knowledge import KnowledgeBase, LookupOptions, create_lookup_knowledge_graph

graph = create_lookup_knowledge_graph(
    KnowledgeBase.open({folder!r}), options=LookupOptions(l1_timeout=60)
)
graph.invoke({{"query": "refund"}})  # the model is loaded before any fork


def found(result):
    return json.dumps([result["l1"]["status"], result["recorded"]]).encode()


def wsgi(environ, start_response):
    body = found(graph.invoke({{"query": "money back"}}))
    start_response("200 OK", [("Content-Length", str(len(body)))])
    return [body]


async def asgi(scope, receive, send):
    body = found(await graph.ainvoke({{"query": "money back"}}))
    headers = [(b"content-length", str(len(body)).encode())]
    await send({{"type": "http.response.start", "status": 200, "headers": headers}})
    await send({{"type": "http.response.body", "body": body}})
"""
WORKERS = {
    "sync": ["wsgi", "--worker-class", "sync"],
    "gthread": ["wsgi", "--worker-class", "gthread", "--threads", "4"],
    "uvicorn": ["asgi", "--worker-class", "uvicorn_worker.UvicornWorker"],
}


@pytest.mark.nightly
@pytest.mark.timeout(1200)
@pytest.mark.skipif(
    not (find_spec("gunicorn") and find_spec("uvicorn_worker")),
    reason="needs `pip install gunicorn uvicorn-worker`",
)
@pytest.mark.parametrize("preload", [["--preload"], []], ids=["preload", "no preload"])
@pytest.mark.parametrize("worker", WORKERS)
def test_ten_servers_shut_down_cleanly(real, tmp_path, worker, preload):
    (tmp_path / "application.py").write_text(APPLICATION.format(folder=str(real)))
    application, *options = WORKERS[worker]
    for _ in range(10):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        server = subprocess.Popen(
            [
                sys.executable, "-m", "gunicorn", f"application:{application}", *options, *preload,
                "--workers", "2", "--bind", f"127.0.0.1:{port}", "--timeout", "90",
                "--graceful-timeout", "30",
            ],
            cwd=tmp_path, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        try:
            for _ in range(6):
                assert json.loads(answer_of(port, server)) == ["ok", "stored"]
            server.terminate()
            code, errors = ended(server)
        finally:
            server.kill()
        assert code == 0, errors
        for trouble in ("terminate called", "SIGSEGV", "SIGABRT", "SIGKILL", "TIMEOUT", "code 13"):
            assert trouble not in errors, errors


def answer_of(port, server):
    """Return the answer of a server, as soon as it listens."""
    end = time.monotonic() + SECONDS
    while time.monotonic() < end and server.poll() is None:
        with (
            contextlib.suppress(OSError),
            urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=SECONDS) as response,
        ):
            return response.read()
        time.sleep(0.1)
    server.kill()  # so that its errors end
    raise AssertionError(f"the server does not answer: {server.stderr.read()}")
