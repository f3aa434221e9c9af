"""Limits of a Qdrant server's answers: in time, so that each thread comes back, and in size."""

import gzip
import threading
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
import qdrant_server
from conftest import FILES, write_files
from qdrant_server import QdrantServer, raw, status

from langchain_lookup_knowledge import (
    KnowledgeBase,
    LookupOptions,
    QdrantIndex,
    StoreError,
    create_lookup_knowledge_graph,
)
from langchain_lookup_knowledge.errors import StoreTimeoutError, StoreUnreachableError
from langchain_lookup_knowledge.l1 import deadlines
from langchain_lookup_knowledge.l1.deadlines import ThreadPool
from langchain_lookup_knowledge.l1.stores.qdrant import bounded_http, connection


def dribble_headers(handler):
    """Send a byte of an endless header now and then."""
    handler.wfile.write(b"HTTP/1.1 200 OK\r\nx-endless: ")
    with suppress(OSError):
        while not handler.qdrant.closing.wait(0.02):
            handler.wfile.write(b"a")
    handler.close_connection = True
    return True


def dribble_gzip(handler):
    """Send a compressed answer a byte at a time."""
    handler.answer(200, b"", length=100_000, content_encoding="gzip")
    with suppress(OSError):
        for byte in gzip.compress(b" " * 1000, 0) * 90:
            if handler.qdrant.closing.wait(0.02):
                break
            handler.wfile.write(bytes((byte,)))
    return True


@pytest.fixture
def server():
    with QdrantServer() as running:
        yield running


@pytest.fixture
def index(server):
    opened = QdrantIndex(server.url, "kb")
    yield opened
    opened.close()


@pytest.mark.parametrize("fault", [qdrant_server.dribble, dribble_headers, dribble_gzip])
def test_threads_of_calls_to_a_server_that_dribbles_come_back(server, index, fault):
    workers, given = ThreadPool(), {"kb": "here"}
    server.misbehave(fault)
    hung = [workers.submit(index.fingerprint, 0.3) for _ in range(deadlines.MAX_WORKERS)]
    assert {type(future.exception(60)) for future in hung} == {StoreTimeoutError}
    assert workers.run(lambda: given, 60) is given  # a thread is free again


@pytest.mark.parametrize("fault", [qdrant_server.dribble, dribble_headers])
def test_l1_recovers_from_a_server_that_dribbled(fault, server, tmp_path, embedding):
    folder = write_files(tmp_path / "kb", FILES)
    with KnowledgeBase.open(folder, embedding=embedding, index=QdrantIndex(server.url, "kb")) as kb:
        kb.sync()
        hasty, patient = (
            create_lookup_knowledge_graph(
                kb, record=None, options=LookupOptions(l1_timeout=seconds)
            )
            for seconds in (0.3, 60)
        )
        server.misbehave(fault)
        threads = [
            threading.Thread(target=hasty.invoke, args=({"query": "refund"},))
            for _ in range(deadlines.MAX_WORKERS)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        server.misbehave(None)
        assert patient.invoke({"query": "refund"})["l1"]["status"] == "ok"


BOMB = gzip.compress(b" " * 50_000_000)


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        (raw(200, b" " * 3_000_000), "larger than 2000000 bytes"),
        (raw(500, b" " * 3_000_000), "larger than 2000000 bytes"),
        (raw(200, BOMB, content_encoding="gzip"), "larger than 2000000 bytes"),
        (raw(200, b"{}", content_encoding="br"), "DecodingError"),
        (raw(200, b"{}", content_encoding="gzip, gzip"), "DecodingError"),
        (raw(200, b"no gzip", content_encoding="gzip"), "DecodingError"),
    ],
)
def test_an_answer_that_is_too_large_or_oddly_encoded_is_refused(
    server, index, fault, says, monkeypatch
):
    monkeypatch.setattr(bounded_http, "MAX_ANSWER_BYTES", 2_000_000)
    server.misbehave(fault)
    with pytest.raises(StoreError, match=says):
        index.fingerprint()


def test_a_compressed_answer_is_read(server, index):
    body = gzip.compress(b'{"result": {"exists": false}, "status": "ok", "time": 0.0}')
    server.misbehave(raw(200, body, content_encoding="gzip"))
    assert index.connection.call(lambda: index.client.collection_exists("kb")) is False


def in_seconds(seconds):
    return format_datetime(datetime.now(UTC) + timedelta(seconds=seconds), usegmt=True)


PAST, FAR = "Tue, 06 Jan 2026 10:00:00 GMT", "Fri, 09 Aug 2058 07:25:17 GMT"


@pytest.mark.parametrize("asked", ["1", PAST, "soon", "1.5", "-3", FAR])
def test_a_server_that_asks_for_a_pause_in_any_form_is_busy(server, index, asked, monkeypatch):
    monkeypatch.setattr(connection, "MAX_RETRY_PAUSE", 0.5)
    server.misbehave(status(429, retry_after=asked))
    with pytest.raises(StoreUnreachableError, match="overloaded or failing"):
        index.fingerprint()


def test_a_pause_that_is_a_date_is_kept(server, index):
    server.misbehave(status(429, retry_after=in_seconds(-60)), times=1)
    assert index.fingerprint() is None
    assert len(server.requests) == 2
