"""What goes wrong with L1, each fault made for real: every lookup answers from L0, says why, and
leaves one record.

What hangs does so until the test is over, so a lookup that is answered has not waited for it.
A fault is a function that breaks a `World`, the status it leads to, and what the reason says. To
add one, add it to `FAULTS`.
"""

import asyncio
import logging
import shutil
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import qdrant_server
from conftest import FILES, WordEmbeddings, write_files
from qdrant_server import QdrantServer, late, raw, status

from langchain_lookup_knowledge import (
    KnowledgeBase,
    LookupOptions,
    QdrantIndex,
    SQLInvocationRecorder,
    create_lookup_knowledge_graph,
)
from langchain_lookup_knowledge.l1.circuit_breaker import CircuitBreaker
from langchain_lookup_knowledge.l1.stores.embedded_index import EmbeddedIndex

HASTY, PATIENT = LookupOptions(l1_timeout=0.1), LookupOptions(l1_timeout=60)
"""Time limits: one that L1 exceeds when it hangs, and one that it keeps on the busiest machine."""
SECRET = "sk-SECRET-123"


class FaultyEmbeddings(WordEmbeddings):
    """Word embeddings whose query vectors go through `change`."""

    def __init__(self) -> None:
        super().__init__()
        self.change: Callable[[list[float]], Any] = lambda vector: vector

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        return [super(FaultyEmbeddings, self).embed_query(text) for text in texts]

    def embed_query(self, text: str) -> list[float]:
        return self.change(super().embed_query(text))


class World:
    """A knowledge base on a server, and one beside it in a folder; `mend` puts everything right
    again.
    """

    def __init__(self, folder) -> None:
        self.folder = folder
        self.server = QdrantServer()
        self.embedding = FaultyEmbeddings()
        self.index = QdrantIndex(self.server.url, "kb")
        self.recorder = SQLInvocationRecorder.in_file(folder / "calls.db")
        self.kb = KnowledgeBase.open(
            write_files(folder / "kb", FILES),
            embedding=self.embedding,
            index=self.index,
            data_dir=folder / "data",
        )
        self.kb.sync()
        embedded = KnowledgeBase.open(
            folder / "kb", embedding=self.embedding, index=EmbeddedIndex(folder / "embedded")
        )
        embedded.close()
        self.release = threading.Event()

    def mend(self) -> None:
        self.release.set()
        self.release = threading.Event()
        self.server.misbehave(None)
        self.embedding.failure = None
        self.embedding.change = lambda vector: vector
        if self.kb.index is not self.index:
            self.kb.index.close()
        self.kb.l1.index = self.index
        self.kb.l1.breaker = CircuitBreaker(failures=1000)

    def look_up(self, query: str, way: str, options: LookupOptions = PATIENT) -> dict[str, Any]:
        graph = create_lookup_knowledge_graph(self.kb, record=self.recorder, options=options)
        if way == "sync":
            return graph.invoke({"query": query})
        return asyncio.run(graph.ainvoke({"query": query}))

    def close(self) -> None:
        self.mend()
        self.server.close()
        self.kb.close()
        self.recorder.close()


@pytest.fixture(scope="module")
def shared_world(tmp_path_factory):
    made = World(tmp_path_factory.mktemp("world"))
    yield made
    made.close()


@pytest.fixture
def world(shared_world):
    shared_world.mend()
    yield shared_world
    shared_world.mend()


@dataclass(frozen=True)
class Fault:
    break_: Callable[[World], Any]
    status: str
    says: str


def served(fault, status_, says):
    return Fault(lambda world: world.server.misbehave(fault), status_, says)


def embedded(change, status_, says):
    return Fault(lambda world: setattr(world.embedding, "change", change), status_, says)


def indexed(make, status_, says):
    return Fault(lambda world: setattr(world.kb.l1, "index", make(world)), status_, says)


def raises(error):
    def change(vector):
        raise error

    return change


def damaged(world):
    folder = world.folder / "damaged"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(world.folder / "embedded", folder)
    for path in folder.glob("generation-*/**/*"):
        if path.is_file():
            path.write_bytes(b"junk")
    return EmbeddedIndex(folder)


def hanging_embedder(world):
    world.embedding.change = lambda vector: world.release.wait()


LATE = "did not answer"
BROKEN = "overloaded or failing"
UNREACHABLE = "cannot be reached"
FOREIGN = "the answer does not come from a Qdrant server"
MODEL = "the embedding model"
FAULTS = {
    "server refuses connections": indexed(
        lambda world: QdrantIndex("http://127.0.0.1:9", "kb"), "failed", UNREACHABLE
    ),
    "server speaks no TLS": indexed(
        lambda world: QdrantIndex(world.server.url.replace("http:", "https:"), "kb"),
        "failed",
        UNREACHABLE,
    ),
    "server accepts and never answers": served(qdrant_server.hang, "timeout", LATE),
    "server answers a byte at a time": served(qdrant_server.dribble, "timeout", LATE),
    "server answers too late": served(late(None), "timeout", LATE),
    "server resets the connection": served(qdrant_server.reset, "failed", UNREACHABLE),
    "server answers 400": served(status(400), "failed", "(HTTP 400)"),
    "server answers 401": served(
        status(401), "failed", "an API key, and none was sent (HTTP 401): give api_key"
    ),
    "server answers 403": served(
        status(403), "failed", "an API key, and none was sent (HTTP 403): give api_key"
    ),
    "server answers 404": served(
        raw(404, b""), "failed", "does not support a request of qdrant-client"
    ),
    "server answers 429": served(status(429), "failed", BROKEN),
    "server answers 429 and asks to wait": served(status(429, retry_after="60"), "failed", BROKEN),
    "server answers 500": served(status(500), "failed", BROKEN),
    "server answers 502 in HTML": served(raw(502, b"<h1>Bad Gateway</h1>"), "failed", BROKEN),
    "server answers 503": served(status(503), "failed", BROKEN),
    "malformed JSON": served(raw(200, b'{"result": ['), "failed", FOREIGN),
    "truncated JSON": served(
        raw(200, b'{"result": [{"points": [', length=5000), "failed", UNREACHABLE
    ),
    "a login page": served(raw(200, b"<html>"), "failed", FOREIGN),
    "JSON of another shape": served(
        raw(200, b'{"result": [], "status": "ok", "time": 0}'), "failed", FOREIGN
    ),
    "JSON without a result": served(
        raw(200, b'{"result": null, "status": "ok", "time": 0}'), "failed", FOREIGN
    ),
    "no collection": indexed(
        lambda world: QdrantIndex(world.server.url, "handbook"),
        "unavailable",
        'collection "handbook" does not exist: run `lookup-knowledge index`',
    ),
    "no embedded index": indexed(
        lambda world: EmbeddedIndex(world.folder / "nowhere"),
        "unavailable",
        "run `lookup-knowledge index`",
    ),
    "damaged embedded index": indexed(damaged, "failed", "run `lookup-knowledge index --rebuild`"),
    "embedding of another size": embedded(
        lambda vector: vector[:32],
        "failed",
        "embedding is 32-d, collection is 64-d: run `lookup-knowledge index --rebuild`",
    ),
    "embedding of no size": embedded(lambda vector: [], "failed", MODEL),
    "embedding of NaN": embedded(lambda vector: [float("nan")] * len(vector), "failed", MODEL),
    "embedding of text": embedded(lambda vector: "vector", "failed", MODEL),
    "embedder raises": embedded(
        raises(RuntimeError(SECRET)), "failed", "the embedding model failed with RuntimeError"
    ),
    "embedder exits": embedded(raises(SystemExit(SECRET)), "failed", "unexpected SystemExit"),
    "embedder hangs": Fault(hanging_embedder, "timeout", LATE),
}


@pytest.mark.parametrize("way", ["sync", "async"])
@pytest.mark.parametrize("query", ["refund", "zebra"], ids=["hints", "no hints"])
@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_of_l1_leaves_l0_with_a_reason_and_one_record(world, name, query, way, caplog):
    caplog.set_level(logging.INFO)
    fault = FAULTS[name]
    fault.break_(world)
    known = {row["id"] for row in world.recorder.invocations()}
    result = world.look_up(query, way, HASTY if fault.status == "timeout" else PATIENT)
    (row,) = (row for row in world.recorder.invocations() if row["id"] not in known)
    assert (result["l1"]["status"], row["l1_status"]) == (fault.status, fault.status)
    assert fault.says in result["l1"]["reason"]
    assert (result["status"], result["retrieval_layer"]) == (
        ("degraded", "L0") if query == "refund" else ("no_match", "none")
    )
    assert row["id"] == result["invocation_id"]
    assert row["retrieval_details"]["l0_hints"] == result["hints"]
    assert result["relevance"]["semantic_support"] is False
    if query == "refund":
        assert result["primary"]["entry_id"] == "billing/refunds.md"
    warned = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert warned == [f"L1 {fault.status}: {result['l1']['reason']}"]
    assert SECRET not in f"{result} {row} {caplog.text}"


@pytest.mark.parametrize("way", ["sync", "async"])
def test_the_mended_world_answers_from_both_layers(world, way):
    result = world.look_up("refund", way)
    assert (result["l1"]["status"], result["retrieval_layer"]) == ("ok", "L0+L1")


def test_a_slow_filter_costs_the_lookups_that_send_it_and_no_other(world):
    world.server.misbehave(late(None), where='"filter"')
    slow = world.look_up("refund", "sync", HASTY)
    assert (slow["l1"]["status"], slow["filter"]["category"]) == ("timeout", "Billing")
    assert world.look_up("zebra", "sync")["l1"]["status"] == "ok"


def test_a_server_that_comes_back_is_used_again(world):
    world.kb.l1.breaker = CircuitBreaker(failures=2, pause=600)
    world.server.misbehave(status(503))
    states = [world.look_up("refund", "sync")["l1"]["status"] for _ in range(3)]
    assert states == ["failed", "failed", "unavailable"]
    assert world.kb.health()["l1"] == "paused"
    world.server.misbehave(None)
    world.kb.l1.breaker.within(PATIENT.l1_timeout)._retry_at = 0.0  # as if the pause were over
    assert world.look_up("refund", "async")["l1"]["status"] == "ok"
    assert world.kb.health()["l1"] == "ok"


def test_a_lookup_over_grpc_out_of_reach_is_told(world):
    world.kb.l1.index = QdrantIndex("http://127.0.0.1:9", "kb", prefer_grpc=True, grpc_port=9)
    world.kb.index.warm()
    l1 = world.look_up("refund", "sync")["l1"]
    assert (l1["status"], l1["reason"]) == (
        "failed",
        "the Qdrant server cannot be reached (connection refused): check that it runs, and the "
        "port of its URL",
    )
