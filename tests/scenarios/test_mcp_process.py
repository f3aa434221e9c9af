"""The MCP server as clients start it: a process that speaks over its standard input and output."""

import json
import random
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest
from conftest import write_files

from langchain_lookup_knowledge.l1.indexing import EMBED_WINDOW

pytestmark = pytest.mark.process
COMMAND = [sys.executable, "-m", "langchain_lookup_knowledge.integrations.cli", "mcp"]
HELLO = {
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    },
}
READY = {"jsonrpc": "2.0", "method": "notifications/initialized"}


class Server:
    """A server process, and the requests sent to it."""

    def __init__(self, folder, *options):
        self.process = subprocess.Popen(
            [*COMMAND, str(folder), *options],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self.requests = 0

    def send(self, message):
        self.process.stdin.write(json.dumps(message).encode() + b"\n")
        self.process.stdin.flush()

    def ask(self, method, params):
        """Send a request and return the answer; every line until then must be JSON-RPC."""
        self.requests += 1
        self.send({"jsonrpc": "2.0", "id": self.requests, "method": method, "params": params})
        while True:
            line = json.loads(self.process.stdout.readline())
            assert line["jsonrpc"] == "2.0"
            if line.get("id") == self.requests:
                return line

    def initialize(self):
        answer = self.ask(**HELLO)["result"]
        self.send(READY)
        return answer

    def lookup(self, query):
        call = {"name": "lookup_knowledge", "arguments": {"query": query}}
        (content,) = self.ask("tools/call", call)["result"]["content"]
        return content["text"]

    def end(self):
        """Close the standard input; return the exit status and what was left on both outputs."""
        out, errors = self.process.communicate(timeout=60)
        return self.process.returncode, out, errors


@contextmanager
def serving(folder, *options):
    server = Server(folder, *options)
    try:
        yield server
    finally:
        server.process.kill()
        server.process.communicate()


def test_standard_output_carries_the_protocol_alone(folder):
    (folder / "broken.md").write_text("---\ntitle: [\n---\nText\n")
    with serving(folder, "--max-chars", "600") as server:
        hello = server.initialize()
        text = server.lookup("refund")
        status, out, errors = server.end()
    assert hello["serverInfo"]["name"] == "lookup-knowledge"
    assert "the knowledge base 'kb'" in hello["instructions"]
    assert set(hello["capabilities"]) >= {"tools", "resources"}
    assert "Refunds take five days." in text
    assert len(text) <= 600
    assert (status, out) == (0, b"")
    assert b"Traceback" not in errors


def test_a_folder_that_cannot_be_opened_is_named_in_the_answers_and_at_the_end(folder):
    write_files(folder, {".lookup-knowledge/settings.json": "{"})
    with serving(folder) as server:
        server.initialize()
        answer = server.ask("tools/list", {})
        status, _, errors = server.end()
    assert "settings.json cannot be read: delete it" in answer["error"]["message"]
    assert status == 2
    assert b"settings.json cannot be read: delete it" in errors
    assert b"Traceback" not in errors


def base(folder, files, words=180):
    rng = random.Random(files)
    vocabulary = Path(__file__).read_text("utf-8").split()
    for number in range(files):
        text = " ".join(rng.choices(vocabulary, k=words))
        write_files(folder, {f"{number}.md": f"# Entry {number}\n\n{text}\n"})
    return folder


@pytest.mark.slow
def test_a_base_of_800_files_without_an_index_is_initialized_before_it_is_indexed(tmp_path):
    """Compared with the same process on a folder with one file; the best of three each."""

    def seconds(folder):
        began = time.monotonic()
        with serving(folder) as server:
            server.initialize()
            took = time.monotonic() - began
            assert not (folder / ".lookup-knowledge/index/CURRENT").exists()
        return took

    small, large = base(tmp_path / "small", 1), base(tmp_path / "large", 800)
    assert min(seconds(large) for _ in range(3)) < 2 * min(seconds(small) for _ in range(3))


@pytest.mark.slow
def test_four_interrupted_starts_end_with_an_index(tmp_path):
    """Each start is killed as soon as it has embedded more than the one before."""
    folder = base(tmp_path / "kb", 7 * EMBED_WINDOW, words=3)
    data = folder / ".lookup-knowledge"
    unfinished, current = data / "unfinished-vectors", data / "index/CURRENT"
    kept = [0]
    for _ in range(4):
        with serving(folder) as server:
            server.initialize()
            while size(unfinished) <= max(kept[-1], 1000):
                assert server.process.poll() is None and not current.exists()
                time.sleep(0.005)
        kept.append(size(unfinished))  # it was killed
        assert not current.exists()
    assert kept == sorted(set(kept))
    with serving(folder) as server:
        server.initialize()
        while not current.exists():
            assert server.process.poll() is None
            assert size(unfinished) == 0 or size(unfinished) >= kept[-1]
            time.sleep(0.005)
        assert "(L0+L1)" in server.lookup("Entry 7") or "(L1)" in server.lookup("Entry 7")
        assert server.end()[0] == 0
    assert not unfinished.exists()


def size(path):
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0
