"""Traces on the wire: the real LangSmith client, and OpenTelemetry's, posting to a server of our own."""

import email
import json
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
import zstandard
from conftest import WordEmbeddings, write_files
from langchain_core.tracers import LangChainTracer
from langsmith import Client

from langchain_lookup_knowledge import (
    KnowledgeBase,
    LookupKnowledgeRetriever,
    create_lookup_knowledge_graph,
    create_lookup_knowledge_tool,
)

STEPS = ["l0_hints", "choose_filter", "l1_retrieve", "merge_with_fallback", "record_invocation"]
SECRET = "lsv2_sk_SECRET"
PARAGRAPH = " ".join(f"The courier checks the parcel at stop {i} and writes the time down." for i in range(12))
PARCELS = {
    f"shipping/parcel-{i}.md": (
        f"---\ntitle: Parcel rule {i}\nkeywords: [parcel rule {i}, courier]\ncategory: Shipping\n---\n# Rule {i}\n\n{PARAGRAPH}\n"
    )
    for i in range(8)
}
QUERY = "parcel rule 3 courier stop"


class Collector(ThreadingHTTPServer):
    """An HTTP server that takes whatever is posted and keeps it."""

    daemon_threads = True

    def __init__(self):
        self.bodies = []
        super().__init__(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self._answer(b'{"batch_ingest_config": {}, "instance_flags": {"zstd_compression_enabled": true}}')

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.bodies.append((self.path, dict(self.headers), body))
        self._answer(b"{}")

    def _answer(self, body):
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


@pytest.fixture
def collector():
    server = Collector()
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture
def traced(collector):
    """Return a function that runs a call with the real LangSmith client and gives back the runs it posted."""

    def run(call):
        client = Client(api_url=collector.url, api_key=SECRET)
        call({"callbacks": [LangChainTracer(client=client, project_name="p")]})
        client.flush()
        client.cleanup()
        return runs_of(collector)

    return run


def plain(headers, body):
    if headers.get("Content-Encoding") == "zstd":
        return zstandard.ZstdDecompressor().stream_reader(body).read()
    return body


def runs_of(collector):
    """Put the parts of all multipart bodies together: {run id: run}."""
    runs = {}
    for path, headers, body in collector.bodies:
        assert path == "/runs/multipart"
        head = f"Content-Type: {headers['Content-Type']}\r\n\r\n".encode()
        for part in email.message_from_bytes(head + plain(headers, body)).get_payload():
            name = re.search(r'name="([^"]+)"', part["Content-Disposition"])[1]
            _, run_id, *field = name.split(".")
            value = json.loads(part.get_payload(decode=True))
            run = runs.setdefault(run_id, {})
            if field:
                run[field[0]] = value
            else:
                run.update({key: item for key, item in value.items() if item is not None})
    return runs


def tree(runs):
    """Return the runs as nested [name, type, children], children in the order of their start."""

    def below(parent):
        children = [run for run in runs.values() if run.get("parent_run_id") == parent]
        return [
            [r["name"], r["run_type"], below(r["id"])] for r in sorted(children, key=lambda run: run["dotted_order"])
        ]

    return below(None)


def the(runs, name, run_type=None):
    (run,) = (run for run in runs.values() if run["name"] == name and run_type in (None, run["run_type"]))
    return run


GRAPH = [
    "lookup_knowledge",
    "chain",
    [
        ["l0_hints", "chain", [["L0", "retriever", []]]],
        ["choose_filter", "chain", []],
        ["l1_retrieve", "chain", [["L1", "retriever", []]]],
        ["merge_with_fallback", "chain", []],
        ["record_invocation", "chain", []],
    ],
]


@pytest.fixture
def parcels(tmp_path):
    with KnowledgeBase.open(write_files(tmp_path / "parcels", PARCELS), embedding=WordEmbeddings()) as kb:
        yield kb


def test_the_run_tree_reads_tool_graph_steps_and_layers(parcels, traced):
    tool = create_lookup_knowledge_tool(parcels)
    runs = traced(lambda config: tool.invoke({"query": QUERY}, config))
    def conditional(t):
        return [[n, k, [c for c in conditional(ch) if not c[0].startswith("_after")]] for n, k, ch in t]
    print(json.dumps(tree(runs), indent=1))
    print(json.dumps(the(runs, "lookup_knowledge", "tool"), indent=1)[:3000])
    print(json.dumps(the(runs, "L1"), indent=1)[:3000])
    for r in runs.values():
        print(r['name'], r['run_type'], len(json.dumps(r.get('inputs'))), len(json.dumps(r.get('outputs'))), len(json.dumps(r.get('extra'))), len(json.dumps(r.get('serialized'))), len(json.dumps(r.get('events'))))
    text = the(runs, "lookup_knowledge", "tool")["outputs"]["output"]
    payload = sum(len(json.dumps(r.get(f) or {})) for r in runs.values() for f in ("inputs","outputs"))
    print(len(text), payload, payload/len(text))
    assert 0
