"""Traces on the wire: the real LangSmith client, and OpenTelemetry's, posting to a server of our
own.
"""

import email
import gzip
import json
import re
import shutil
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import zstandard
from conftest import FILES, WordEmbeddings, write_files
from langchain_core.callbacks import BaseCallbackHandler, CallbackManager
from langchain_core.tracers import LangChainTracer
from langsmith import Client

from langchain_lookup_knowledge import (
    KnowledgeBase,
    LookupKnowledgeRetriever,
    create_lookup_knowledge_graph,
    create_lookup_knowledge_tool,
)
from langchain_lookup_knowledge.knowledge import Knowledge
from langchain_lookup_knowledge.lookup.signals.tracing import brief, trace_policy, traced_by

SECRET = "lsv2_sk_SECRET"
ROOT = Path(__file__).parents[3]


class Collector(ThreadingHTTPServer):
    """An HTTP server that takes whatever is posted and keeps it."""

    daemon_threads = True

    def __init__(self):
        self.bodies = []
        super().__init__(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True).start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self._answer(
            b'{"batch_ingest_config": {}, "instance_flags": {"zstd_compression_enabled": true}}'
        )

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
    """Return a function that runs a call with the real LangSmith client and gives back the runs it
    posted.
    """

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
            [r["name"], r["run_type"], below(r["id"])]
            for r in sorted(children, key=lambda run: run["dotted_order"])
        ]

    return below(None)


def the(runs, name, run_type=None):
    (run,) = (
        run for run in runs.values() if run["name"] == name and run_type in (None, run["run_type"])
    )
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


@pytest.fixture(scope="module")
def kb(tmp_path_factory):
    with KnowledgeBase.open(
        write_files(tmp_path_factory.mktemp("kb"), FILES), embedding=WordEmbeddings()
    ) as opened:
        yield opened


@pytest.fixture(scope="module")
def handbook(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tree") / "handbook"
    shutil.copytree(
        ROOT / "notebooks/handbook", folder, ignore=shutil.ignore_patterns(".lookup-knowledge")
    )
    with KnowledgeBase.open(folder, embedding=WordEmbeddings(), progress=False) as opened:
        yield opened


def test_the_run_tree_reads_tool_graph_steps_and_layers(kb, traced):
    runs = traced(
        lambda config: create_lookup_knowledge_tool(kb).invoke({"query": "refund"}, config)
    )
    assert tree(runs) == [["lookup_knowledge", "tool", [GRAPH]]]


async def test_the_run_tree_of_an_async_call_is_the_same(kb, collector):
    client = Client(api_url=collector.url, api_key=SECRET)
    tracer = LangChainTracer(client=client, project_name="p")
    await create_lookup_knowledge_tool(kb).ainvoke({"query": "refund"}, {"callbacks": [tracer]})
    client.cleanup()
    assert tree(runs_of(collector)) == [["lookup_knowledge", "tool", [GRAPH]]]


def test_the_layers_show_documents_provider_and_model(kb, traced):
    runs = traced(
        lambda config: create_lookup_knowledge_tool(kb).invoke({"query": "refund"}, config)
    )
    l0, l1 = the(runs, "L0"), the(runs, "L1")
    (hinted,) = l0["outputs"]["documents"]
    assert (hinted["page_content"], hinted["metadata"]["source"]) == (
        "refund",
        "billing/refunds.md",
    )
    found = l1["outputs"]["documents"][0]
    assert found["page_content"] == "Refunds take five days."
    assert found["metadata"]["source"] == "billing/refunds.md"
    assert 0 < found["metadata"]["score"] <= 1
    shown = l1["extra"]["metadata"]
    assert (shown["ls_retriever_name"], shown["ls_vector_store_provider"]) == ("l1", "Qdrant")
    assert (shown["ls_embedding_provider"], shown["lookup_filter"]) == ("WordEmbeddings", "Billing")
    assert shown["ls_embedding_model"].endswith("words-64")


def test_tool_and_graph_carry_the_outcome(kb, traced):
    call = {
        "type": "tool_call",
        "name": "lookup_knowledge",
        "args": {"query": "refund"},
        "id": "call_7",
    }
    runs = traced(lambda config: create_lookup_knowledge_tool(kb).invoke(call, config))
    for kind in ("tool", "chain"):
        run = the(runs, "lookup_knowledge", kind)
        assert {"layer:L0+L1", "status:ok", "filter:single_domain"} <= set(run["tags"])
        shown = run["extra"]["metadata"]
        assert (shown["lookup_status"], shown["lookup_layer"], shown["lookup_filter"]) == (
            "ok",
            "L0+L1",
            "Billing",
        )
        assert (shown["lookup_l1_status"], shown["lookup_filter_relaxed"]) == ("ok", False)
        assert shown["invocation_id"]
    assert the(runs, "lookup_knowledge", "chain")["extra"]["metadata"]["tool_call_id"] == "call_7"


def test_the_graph_alone_shows_its_result(kb, traced):
    runs = traced(
        lambda config: create_lookup_knowledge_graph(kb).invoke({"query": "refund"}, config)
    )
    assert tree(runs) == [GRAPH]
    run = the(runs, "lookup_knowledge")
    assert run["outputs"]["primary"]["entry_id"] == "billing/refunds.md"
    assert "status:ok" in run["tags"]


def test_the_retriever_is_a_retriever_run_around_the_graph(kb, traced):
    runs = traced(
        lambda config: LookupKnowledgeRetriever(knowledge_base=kb).invoke("refund", config)
    )
    assert tree(runs) == [["LookupKnowledgeRetriever", "retriever", [GRAPH]]]
    assert "layer:L0+L1" in the(runs, "LookupKnowledgeRetriever")["tags"]
    assert the(runs, "lookup_knowledge")["outputs"] == {
        "status": "ok",
        "primary": "billing/refunds.md",
    }


@pytest.mark.parametrize(
    "query", ["my card was declined with E-4711", "refund of a damaged parcel", "VPN with Okta"]
)
def test_a_trace_holds_little_more_than_the_text(handbook, collector, traced, query):
    tool = create_lookup_knowledge_tool(handbook)
    texts = []
    runs = traced(lambda config: texts.append(tool.invoke({"query": query}, config)))
    payloads = [
        json.dumps(run.get(part) or {}, ensure_ascii=False)
        for run in runs.values()
        for part in ("inputs", "outputs")
    ]
    assert the(runs, "lookup_knowledge", "tool")["outputs"] == {"output": texts[0]}
    assert sum(map(len, payloads)) - len(json.dumps(texts[0], ensure_ascii=False)) <= 1800


def test_a_trace_is_as_small_under_any_name(handbook, traced):
    tool = create_lookup_knowledge_tool(handbook, name="handbook")
    texts = []
    query = {"query": "refund of a damaged parcel"}
    runs = traced(lambda config: texts.append(tool.invoke(query, config)))
    assert the(runs, "handbook", "tool")["outputs"] == {"output": texts[0]}
    assert set(the(runs, "handbook", "chain")["outputs"]) == {"status", "primary"}


def test_a_retriever_may_have_a_name_of_its_own(kb, traced):
    retriever = LookupKnowledgeRetriever(knowledge_base=kb, name="manual")
    runs = traced(lambda config: retriever.invoke("refund", config))
    assert set(the(runs, "lookup_knowledge")["outputs"]) == {"status", "primary"}
    assert the(runs, "manual")["extra"]["metadata"]["lookup_relevance"] in ("high", "medium", "low")


async def test_streamed_events_have_no_stubs_as_documents(kb, collector):
    """The layers are retriever runs in a trace; to a reader of events they would be results."""
    client = Client(api_url=collector.url, api_key=SECRET)
    config = {"callbacks": [LangChainTracer(client=client, project_name="p")]}
    graph, retriever = (
        create_lookup_knowledge_graph(kb),
        LookupKnowledgeRetriever(knowledge_base=kb),
    )
    streams = (
        graph.astream_events({"query": "refund"}, config, version="v2"),
        (retriever.astream_events("refund", config, version="v2")),
    )
    found = [[event async for event in stream] for stream in streams]
    names = [[e["name"] for e in events if "_retriever_" in e["event"]] for events in found]
    assert names == [[], ["LookupKnowledgeRetriever"] * 2]
    assert any(event["name"] == "l1_retrieve" for event in found[0])
    client.cleanup()
    layers = [run["name"] for run in runs_of(collector).values() if run["name"] in ("L0", "L1")]
    assert sorted(layers) == ["L0", "L0", "L1", "L1"]


def test_no_secret_is_on_the_wire(folder, embedding, collector, traced):
    with KnowledgeBase.open(folder, embedding=embedding) as kb:
        embedding.failure = RuntimeError("401 https://api.example/v1?api_key=sk-SECRET")
        runs = traced(
            lambda config: create_lookup_knowledge_tool(kb).invoke({"query": "refund"}, config)
        )
    l1 = the(runs, "L1")
    assert "the embedding model failed with RuntimeError" in l1["error"]
    assert the(runs, "lookup_knowledge", "tool")["outputs"]["output"].startswith(
        "Keyword matching alone answered (L0)"
    )
    assert not any(b"SECRET" in plain(headers, body) for _, headers, body in collector.bodies)


def test_a_step_that_is_stopped_ends_its_run(folder, embedding, traced, monkeypatch):
    with KnowledgeBase.open(folder, embedding=embedding) as kb:
        monkeypatch.setattr(Knowledge, "hints", lambda *_: {}["sk-SECRET"])

        def lookup(config):
            with pytest.raises(KeyError):
                create_lookup_knowledge_graph(kb).invoke({"query": "refund"}, config)

        run = the(traced(lookup), "L0")
    assert "the node was stopped" in run["error"]
    assert run["end_time"]


def test_l1_switched_off_has_no_l1_run(folder, embedding, traced):
    with KnowledgeBase.open(folder, embedding=embedding, index=None) as kb:
        runs = traced(
            lambda config: create_lookup_knowledge_tool(kb).invoke({"query": "refund"}, config)
        )
    assert [run["name"] for run in runs.values() if run["run_type"] == "retriever"] == ["L0"]


def test_a_query_that_cannot_be_searched_is_traced(kb, traced):
    runs = traced(lambda config: create_lookup_knowledge_graph(kb).invoke({}, config))
    assert "status:invalid_query" in the(runs, "lookup_knowledge")["tags"]


def test_open_telemetry_gets_the_same_tree(kb, collector):
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    provider = TracerProvider()
    provider.add_span_processor(
        BatchSpanProcessor(OTLPSpanExporter(endpoint=f"{collector.url}/v1/traces"))
    )
    client = Client(
        api_url=collector.url, api_key=SECRET, tracing_mode="otel", otel_tracer_provider=provider
    )
    tracer = LangChainTracer(client=client, project_name="p")
    create_lookup_knowledge_tool(kb).invoke({"query": "refund"}, {"callbacks": [tracer]})
    client.flush()
    provider.force_flush()
    provider.shutdown()
    client.cleanup()
    spans = {}
    for path, headers, body in collector.bodies:
        assert path == "/v1/traces"
        data = gzip.decompress(body) if headers.get("Content-Encoding") == "gzip" else body
        assert SECRET.encode() not in data
        for resource in ExportTraceServiceRequest.FromString(data).resource_spans:
            for scope in resource.scope_spans:
                spans |= {span.span_id: span for span in scope.spans}

    def below(parent):
        children = sorted(
            (s for s in spans.values() if s.parent_span_id == parent),
            key=lambda s: s.start_time_unix_nano,
        )
        return [[span.name, below(span.span_id)] for span in children]

    def names(runs):
        return [[name, names(children)] for name, _, children in runs]

    assert below(b"") == names([["lookup_knowledge", "tool", [GRAPH]]])
    attributes = {
        a.key: a.value.string_value for s in spans.values() if s.name == "L1" for a in s.attributes
    }
    assert attributes["langsmith.span.kind"] == "retriever"
    assert "Refunds take five days." in str(attributes)


class Listener(BaseCallbackHandler):
    """Hears everything and does nothing."""


@pytest.mark.parametrize("handlers", [[], [Listener()]])
def test_texts_for_traces_are_only_prepared_for_a_handler(handlers):
    policy = trace_policy()
    state = {"query": "refunds", "matches": [{"snippet": "Long."}]}
    with traced_by(CallbackManager(handlers)):
        seen = policy.process_inputs(state), policy.process_outputs(state)
    assert [one is state for one in seen] == [not handlers] * 2
    assert policy.process_outputs(state) == brief(state)
