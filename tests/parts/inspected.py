"""A knowledge base with recorded lookups, and the inspector over it as its users start it."""

import html
import http.client
import re
import signal
import subprocess
import threading
from contextlib import contextmanager
from queue import Queue
from unittest.mock import patch
from urllib.parse import urlsplit

import pytest
import uvicorn
from conftest import FILES, WordEmbeddings, write_files

from langchain_lookup_knowledge import (
    KnowledgeBase,
    LookupOptions,
    SQLInvocationRecorder,
    create_lookup_knowledge_graph,
)
from langchain_lookup_knowledge.inspector.app import Inspector
from langchain_lookup_knowledge.integrations.cli import main
from parts.command_line import COMMAND
from parts.invocations import invocation, read_call

HOSTILE = (
    "<script>alert(1)</script><img src=x onerror=alert(2)>\"'{{ 7*7 }} \u202egpj.exe "
    "\x1b[31m\u0007 </title></style>"
)
SHOWN = "[U+202E]gpj.exe [U+001B][31m[U+0007]"


@contextmanager
def served(*arguments):
    """Run `lookup-knowledge inspect` in a thread and give its address; stop it in the end."""
    serve, make_server = Inspector.serve, uvicorn.Server
    addresses, servers, ends = Queue(), Queue(), Queue()

    def serve_here(inspector, *given, started):
        serve(inspector, *given, started=addresses.put)

    def server_to_stop(config):  # signals reach the main thread alone
        server = make_server(config)
        servers.put(server)
        return server

    def inspect():
        ends.put(main(["inspect", *map(str, arguments), "--port", "0"]))

    with (
        patch.object(Inspector, "serve", serve_here),
        patch.object(uvicorn, "Server", server_to_stop),
    ):
        threading.Thread(target=inspect, daemon=True).start()
        address, server = addresses.get(timeout=60), servers.get(timeout=60)
    try:
        yield address
    finally:
        server.should_exit = True
        assert ends.get(timeout=60) == 0


@contextmanager
def served_by_a_process(*arguments):
    """Start `lookup-knowledge inspect` and give the address it prints; stop it as a person
    would.
    """
    command = [*COMMAND, "inspect", *map(str, arguments), "--port", "0"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process.stdout.readline().removeprefix("serving ").strip()
        finally:
            process.send_signal(signal.SIGINT)
            _, errors = process.communicate(timeout=60)
        assert errors == "lookup-knowledge: stopped\n"
        assert process.returncode == 130


class Browser:
    """What a browser does, without one: keeps headers, follows nothing."""

    def __init__(self, address, **headers):
        self.place = urlsplit(address)
        self.headers = headers

    def get(self, path, **headers):
        connection = http.client.HTTPConnection(self.place.hostname, self.place.port, timeout=30)
        connection.request(
            "GET", path, headers=self.headers | {k.replace("_", "-"): v for k, v in headers.items()}
        )
        response = connection.getresponse()
        body = response.read().decode()
        connection.close()
        return response.status, body, response.headers

    def text(self, path):
        """Return a page as its reader sees it."""
        status, body, _ = self.get(path)
        assert status == 200, body
        return visible(body)


def visible(page):
    return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", page.partition("<main")[2])).split())


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    """A knowledge folder with recorded lookups: of all outcomes, hostile ones, and one in a
    scope.
    """
    never = {
        f"never/{number}.md": "---\ntitle: roses < gardens\n---\nRoses.\n" for number in range(5)
    }
    folder = write_files(tmp_path_factory.mktemp("base") / "kb", {**FILES, **never})
    for thread, arguments in {
        "fine": {},
        "failing": {"embedding": WordEmbeddings(), "sync": False},
    }.items():
        with KnowledgeBase.open(folder, **arguments) as kb:
            graph = create_lookup_knowledge_graph(kb, options=LookupOptions(k=2))
            for query in ("install the vpn", "refund and parental leave", "zebra", "", HOSTILE):
                graph.invoke({"query": query}, {"configurable": {"thread_id": thread}})
    recorder = SQLInvocationRecorder.in_file(folder / ".lookup-knowledge/invocations.db")
    title = HOSTILE + "x" * 200_000
    term = {
        "text": title,
        "field": "keywords",
        "span": [0, 8],
        "kind": "exact",
        "document_frequency": 9,
        "specific": False,
    }
    hint = {
        "entry_id": HOSTILE,
        "title": title,
        "categories": [HOSTILE],
        "keywords": [],
        "entities": [],
        "score": 1.0,
    }
    hints = {
        "terms": [term | {"domains": [HOSTILE], "reason": "common: " + HOSTILE}],
        "entries": [hint],
    }
    match = {"entry_id": HOSTILE, "score": 1.0, "similarity": None, "layers": ["L0"]}
    hostile = {
        "l0_hints": hints,
        "matches": [match],
        "candidates": [match],
        "filter": {"category": HOSTILE},
    }
    recorder._store(
        [invocation(1, query=HOSTILE, thread_id=HOSTILE, primary_entry_id=HOSTILE, **hostile)], 5
    )  # uncapped
    recorder.record(invocation(2, query="of the north", scope={"tenant": "north"}))
    recorder.record(
        invocation(3, query="without details") | {"retrieval_details": {"truncated": True}}
    )
    recorder.record(invocation(4, id="../<b>", query="an odd id"))
    recorder.record(read_call(5, id="read", query=HOSTILE))
    recorder.close()
    return folder


@pytest.fixture(scope="module")
def browser(base):
    with served(base) as address:
        yield Browser(address)
