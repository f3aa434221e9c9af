"""The right server is talked to, limited rates are waited for, a client of others is bounded."""

import logging
import threading
import time

import httpx
import pytest
import qdrant_server
from conftest import FILES, WordEmbeddings, write_files
from parts.grpc_servers import Collections, Refusing, serving
from qdrant_client import QdrantClient
from qdrant_server import QdrantServer

from langchain_lookup_knowledge import (
    KnowledgeBase,
    LookupOptions,
    QdrantIndex,
    StoreError,
    create_lookup_knowledge_graph,
)
from langchain_lookup_knowledge.errors import (
    StoreForbiddenError,
    StoreRateLimitError,
    StoreTimeoutError,
    StoreUnreachableError,
)
from langchain_lookup_knowledge.l1.deadlines import ThreadPool
from langchain_lookup_knowledge.l1.stores.qdrant import bounded_http, connection, progress
from langchain_lookup_knowledge.l1.stores.qdrant.points import FINGERPRINT_KEY

KEY = FINGERPRINT_KEY


def served_over_rest(server, name, fingerprint, count):
    """Make a collection on a server whose fingerprint is a text."""
    from qdrant_client import models

    vectors = models.VectorParams(size=4, distance=models.Distance.COSINE)
    server._client.create_collection(name, vectors, metadata={KEY: fingerprint})
    server._indexed[name] = set()
    points = [models.PointStruct(id=number, vector=[1, 0, 0, 0]) for number in range(count)]
    server._client.upsert(name, points)


@pytest.mark.parametrize("over_grpc", [{"kb": ("theirs", 2)}, {"kb": ("ours", 3)}, {}])
def test_two_ports_that_show_different_collections_are_told(over_grpc):
    with QdrantServer() as server, serving(Collections(KEY, over_grpc)) as port:
        served_over_rest(server, "kb", "ours", 2)
        index = QdrantIndex(server.url, "kb", prefer_grpc=True, grpc_port=port)
        says = f'the gRPC port {port} show different collections "kb", so they belong to two'
        for ask in (index.fingerprint, lambda: index.search([1, 0, 0, 0], "x", [[]], 1)):
            with pytest.raises(StoreError, match=says):
                ask()
        index.close()


def test_two_ports_of_one_server_are_compared_once():
    with QdrantServer() as server, serving(Collections(KEY, {"kb": ("ours", 2)})) as port:
        served_over_rest(server, "kb", "ours", 2)
        index = QdrantIndex(server.url, "kb", prefer_grpc=True, grpc_port=port)
        for _ in range(3):
            assert index.connection.call(index.connection.info).config.metadata == {KEY: "ours"}
        assert server.requests == ["GET /collections/kb"] * 2  # before and after the gRPC port
        index.close()


def test_ports_that_are_written_meanwhile_are_compared_by_their_fingerprints():
    with QdrantServer() as server, serving(Collections(KEY, {"kb": ("ours", 5)})) as port:
        served_over_rest(server, "kb", "ours", 2)

        def write(handler):
            if len(server.requests) == 2:  # the second look at the REST port
                server._client.delete("kb", [0])
            return False

        server.misbehave(write)
        index = QdrantIndex(server.url, "kb", prefer_grpc=True, grpc_port=port)
        assert index.connection.call(index.connection.info).points_count == 5
        index.close()


def test_a_grpc_port_that_wants_another_key_is_told():
    with QdrantServer() as server, serving(Refusing("UNAUTHENTICATED")) as port:
        index = QdrantIndex(server.url, "kb", prefer_grpc=True, grpc_port=port)
        with pytest.raises(StoreForbiddenError):
            index.fingerprint()
        index.close()


@pytest.fixture
def waits(monkeypatch):
    """Return the list of the pauses of a connection, which take no time here."""
    waited = []
    monkeypatch.setattr(connection.time, "sleep", waited.append)
    return waited


RATE = "Rate limiting exceeded: Read rate limit exceeded"


def test_a_sync_waits_as_long_as_the_server_asks_and_tells(waits, caplog):
    caplog.set_level(logging.WARNING)
    with QdrantServer() as server:
        index = QdrantIndex(server.url, "kb")
        server.misbehave(qdrant_server.status(429, RATE, retry_after="30"), times=3)
        assert index.fingerprint() is None
        index.close()
    assert waits == [30, 30, 30]
    assert "limits the rate of requests: waiting 30 s, as it asks" in caplog.text


@pytest.mark.parametrize(("asked", "times"), [("30", connection.MAX_RATE_PAUSES), ("86400", 0)])
def test_a_sync_does_not_wait_for_ever(waits, asked, times):
    with QdrantServer() as server:
        index = QdrantIndex(server.url, "kb")
        server.misbehave(qdrant_server.status(429, RATE, retry_after=asked))
        with pytest.raises(StoreRateLimitError):
            index.fingerprint()
        index.close()
    assert waits == [30] * times


def test_a_build_that_waits_for_the_server_notes_that_it_still_runs(tmp_path, monkeypatch):
    monkeypatch.setattr(progress, "NOTE_SECONDS", 0.01)
    noted, sleep = threading.Event(), time.sleep
    monkeypatch.setattr(connection.time, "sleep", lambda seconds: noted.wait() and sleep(0))
    folder = write_files(tmp_path / "kb", FILES)
    with QdrantServer() as server:
        index = QdrantIndex(server.url, "kb")
        limited = qdrant_server.status(429, RATE, retry_after="100")

        def limit_and_look_for_a_note(handler):
            server.misbehave(lambda handler: noted.set(), where="PATCH")
            return limited(handler)

        with KnowledgeBase.open(folder, embedding=WordEmbeddings(), index=index) as kb:
            server.misbehave(limit_and_look_for_a_note, where="/points?")
            assert kb.sync().renewed == len(FILES)


def test_a_lookup_does_not_wait_for_a_limited_rate(waits):
    with QdrantServer() as server:
        index = QdrantIndex(server.url, "kb")
        server.misbehave(qdrant_server.status(429, RATE, retry_after="1"))
        with pytest.raises(StoreRateLimitError, match="limits the rate of reads"):
            ThreadPool().run(index.fingerprint, 60)
        assert len(server.requests) == 1
        index.close()
    assert waits == []


def test_lookups_fall_back_at_once_and_do_not_ask_again_until_the_server_allows(tmp_path, waits):
    folder = write_files(tmp_path / "kb", FILES)
    with QdrantServer() as server:
        index = QdrantIndex(server.url, "kb")
        with KnowledgeBase.open(folder, embedding=WordEmbeddings(), index=index) as kb:
            kb.sync()
            options = LookupOptions(l1_timeout=60)
            graph = create_lookup_knowledge_graph(kb, record=None, options=options)
            server.misbehave(qdrant_server.status(429, RATE, retry_after="30"))
            first = graph.invoke({"query": "refund"})
            server.requests.clear()
            second = graph.invoke({"query": "refund"})
            assert (first["l1"]["status"], first["retrieval_layer"]) == ("failed", "L0")
            assert "limits the rate of reads (HTTP 429, ask again in 30 s)" in first["l1"]["reason"]
            assert (second["l1"]["status"], second["retrieval_layer"]) == ("unavailable", "L0")
            assert "not asked because the server asks to wait" in second["l1"]["reason"]
            assert server.requests == waits == []
            assert 0 < kb.health()["retry_in"] <= 30


def test_a_client_that_is_passed_in_is_bounded_in_our_requests_and_in_no_other(monkeypatch):
    with QdrantServer() as server:
        client = QdrantClient(server.url, check_compatibility=False, timeout=60)
        index = QdrantIndex("", "kb", client=client)
        second = QdrantIndex("", "kb", client=client)
        assert index.fingerprint() is second.fingerprint() is None
        hooks = client.http.client._client.event_hooks
        assert [len(found) for found in hooks.values()] == [1, 1]
        server.misbehave(qdrant_server.dribble)
        with pytest.raises(StoreTimeoutError):
            ThreadPool().run(index.fingerprint, 0.2)
        server.misbehave(qdrant_server.raw(200, b" " * 3_000_000))
        monkeypatch.setattr(bounded_http, "MAX_ANSWER_BYTES", 2_000_000)
        with pytest.raises(StoreError, match="larger than 2000000 bytes"):
            index.fingerprint()
        server.misbehave(qdrant_server.raw(200, b'{"result": {"exists": true}}' + b" " * 3_000_000))
        assert client.collection_exists("kb")  # the owner's own request
        client.close()


@pytest.mark.parametrize(
    ("padding", "says"), [(b"", "server 1.9.0 does not"), (b" " * 3_000_000, "server does not")]
)
def test_the_version_in_a_message_is_asked_for_within_the_limits(monkeypatch, padding, says):
    version = b'{"title": "qdrant", "version": "1.9.0"}'

    def too_old(handler):
        answer = (200, version + padding) if handler.path == "/" else (404, b"")
        return qdrant_server.raw(*answer)(handler)

    monkeypatch.setattr(bounded_http, "MAX_ANSWER_BYTES", 2_000_000)
    with QdrantServer() as server:
        index = QdrantIndex(server.url, "kb")
        server.misbehave(too_old)
        with pytest.raises(StoreError, match=f"{says} support a request"):
            index.connection.stored([1])
        index.close()


def test_a_connection_that_another_thread_was_closing_is_opened_again(monkeypatch):
    with QdrantServer() as server:
        index = QdrantIndex(server.url, "kb")
        index.warm()
        http = index.client.http.client._client
        send, failed = http.send, []

        def closing(request, **arguments):
            if not failed:
                failed.append(request)
                raise OSError(9, "Bad file descriptor")
            return send(request, **arguments)

        monkeypatch.setattr(http, "send", closing)
        assert index.fingerprint() is None
        assert failed
        index.close()


def test_a_client_of_others_may_have_hooks_of_its_own():
    seen = []
    with QdrantServer() as server:
        client = QdrantClient(server.url, check_compatibility=False)
        client.http.client._client.event_hooks = {"request": [lambda request: seen.append(1)]}
        assert QdrantIndex("", "kb", client=client).fingerprint() is None
        assert seen
        assert isinstance(client.http.client._client, httpx.Client)
        client.close()
    with pytest.raises(StoreUnreachableError):
        QdrantIndex(server.url, "kb").fingerprint()


@pytest.mark.parametrize(
    ("url", "is_told"),
    [
        ("http://qdrant.example:6333", True),
        ("https://qdrant.example", False),
        ("http://localhost", 0),
    ],
)
def test_a_key_that_is_sent_without_encryption_is_told(caplog, url, is_told):
    index = QdrantIndex(url, "kb", api_key="sk-SECRET")
    index.warm()
    assert ("the API key is sent to the Qdrant server without encryption" in caplog.text) == is_told
    assert "SECRET" not in caplog.text
    index.close()


def test_a_lookup_in_an_unknown_language_asks_for_no_more_than_the_search(tmp_path):
    folder = write_files(tmp_path / "kb", FILES)
    with QdrantServer() as server:
        index = QdrantIndex(server.url, "kb")
        with KnowledgeBase.open(folder, index=index) as kb:
            kb.sync()
            options = LookupOptions(l1_timeout=60)
            graph = create_lookup_knowledge_graph(kb, record=None, options=options)
            graph.invoke({"query": "refund"})
            server.requests.clear()
            found = graph.invoke({"query": "\u5458\u5de5\u5982\u4f55\u7533\u8bf7 refund"})
            assert "by words alone" in found["l1"]["reason"]
            assert [line.split("?")[0] for line in server.requests] == [
                "POST /collections/kb/points/query/batch"
            ]
