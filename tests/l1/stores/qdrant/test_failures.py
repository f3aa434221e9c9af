"""Each failure of a server is told with its cause and the fix, over REST and gRPC alike."""

import re

import pytest
import qdrant_server
from parts.certificates import Authority
from parts.grpc_servers import Refusing, serving
from qdrant_server import QdrantServer

from langchain_lookup_knowledge import QdrantIndex
from langchain_lookup_knowledge.errors import (
    IndexMissingError,
    StoreError,
    StoreForbiddenError,
    StoreLimitError,
    StoreRateLimitError,
    StoreUnreachableError,
)

MISSING = "Not found: Collection `kb` doesn't exist!"


def asked(url, **arguments):
    """Ask a server for a collection that it does not have, and return the failure."""
    index = QdrantIndex(url, "kb", **arguments)
    try:
        with pytest.raises(StoreError) as raised:
            index.connection._attempt(lambda: index.client.get_collection("kb"))
    finally:
        index.close()
    return raised.value


def asked_over_grpc(port, url="http://127.0.0.1:9", **arguments):
    return asked(url, prefer_grpc=True, grpc_port=port, **arguments)


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("ca"))


@pytest.fixture(scope="module")
def other_authority(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("other"))


def test_a_server_with_a_certificate_of_a_named_ca_is_reached(authority):
    with QdrantServer(tls=authority.issue()) as server:
        assert isinstance(asked(server.url, verify=authority.path), IndexMissingError)
        assert isinstance(asked(server.url, verify=False), IndexMissingError)
    with serving(Refusing("NOT_FOUND", MISSING), authority.issue()) as port:
        failure = asked_over_grpc(port, "https://127.0.0.1:9", verify=authority.path)
        assert isinstance(failure, IndexMissingError)


UNTRUSTED = "(its certificate is not trusted): name the file of its CA: verify=, or --ca"
CERTIFICATES = {
    "unknown": ({}, {}, UNTRUSTED),
    "of another CA": ({}, {"verify": "other"}, UNTRUSTED),
    "of another host": (
        {"address": "127.0.0.2"},
        {"verify": "own"},
        "(its certificate is for another host): use the name that is in the certificate",
    ),
    "expired": ({"days": -1}, {"verify": "own"}, "(its certificate has expired): renew it"),
}


@pytest.mark.parametrize("over", ["REST", "gRPC"])
@pytest.mark.parametrize(("issued", "given", "says"), CERTIFICATES.values(), ids=CERTIFICATES)
def test_what_is_wrong_with_a_certificate_is_told(
    issued, given, says, over, authority, other_authority
):
    paths = {"own": authority.path, "other": other_authority.path}
    arguments = {name: paths[which] for name, which in given.items()}
    certificate = authority.issue(**issued)
    if over == "REST":
        with QdrantServer(tls=certificate) as server:
            failure = asked(server.url, **arguments)
    else:
        with serving(Refusing("NOT_FOUND", MISSING), certificate) as port:
            failure = asked_over_grpc(port, "https://127.0.0.1:9", **arguments)
    assert isinstance(failure, StoreUnreachableError)
    assert f"the Qdrant server cannot be reached {says}" in str(failure)


NO_TLS = "(its port does not speak TLS): use http://"
CLOSED = "(it closed the connection without an answer): check its log, the scheme"


def test_a_port_of_another_protocol_is_told(authority):
    certificate = authority.issue()
    with QdrantServer() as server:
        assert NO_TLS in str(asked(server.url.replace("http:", "https:")))
        assert "(its gRPC port speaks HTTP)" in str(asked_over_grpc(server.port))
    with serving(Refusing("NOT_FOUND", MISSING)) as port:
        assert "(its port speaks gRPC): give the REST port" in str(
            asked(f"http://127.0.0.1:{port}")
        )
        assert NO_TLS in str(asked_over_grpc(port, "https://127.0.0.1:9", verify=authority.path))
    with QdrantServer(tls=certificate) as server:
        assert CLOSED in str(asked(server.url.replace("https:", "http:")))
    with serving(Refusing("NOT_FOUND", MISSING), certificate) as port:
        assert CLOSED in str(asked(f"https://127.0.0.1:{port}", verify=authority.path))
        assert CLOSED in str(asked_over_grpc(port))


def test_a_server_that_answers_in_tls_or_grpc_is_recognized_by_its_first_bytes():
    alert, goaway = (
        b"\x15\x03\x03\x00\x02\x02\x32",
        b"\x00\x00\x08\x07\x00\x00\x00\x00\x00" + b"\0" * 8,
    )
    for sent, says in ((alert, "(its port speaks TLS): use https://"), (goaway, "speaks gRPC")):

        def answer(handler, sent=sent):
            handler.wfile.write(sent)
            handler.close_connection = True
            return True

        with QdrantServer() as server:
            server.misbehave(answer)
            assert says in str(asked(server.url))


def test_a_host_without_an_address_and_a_port_without_a_server_are_told():
    nowhere = "http://nowhere.invalid:6333"
    unknown, refused = (
        "(its name cannot be resolved): check the host",
        "(connection refused): check",
    )
    assert unknown in str(asked(nowhere))
    assert unknown in str(asked_over_grpc(6334, nowhere))
    assert refused in str(asked("http://127.0.0.1:9"))
    assert "(connection refused at its gRPC port 9): check that it runs, and give the gRPC" in str(
        asked_over_grpc(9)
    )


def test_a_grpc_port_that_speaks_http_is_told_for_a_host_of_two_addresses_too():
    with QdrantServer() as server:  # at 127.0.0.1; gRPC also asks ::1, which refuses
        for _ in range(4):  # gRPC names the failure of either address
            failure = asked_over_grpc(server.port, "http://localhost:9")
            assert "(its gRPC port speaks HTTP): give the gRPC port, usually" in str(failure)
    assert "(connection refused at its gRPC port" in str(
        asked_over_grpc(server.port, "http://localhost:9")
    )


@pytest.mark.parametrize("status", [401, 403])
def test_a_key_that_was_not_sent_is_not_called_wrong(status):
    with QdrantServer() as server:
        server.misbehave(qdrant_server.status(status))
        none = rf"wants an API key, and none was sent \(HTTP {status}\): give api_key, or on the"
        for key in (None, "", " \n"):
            assert re.search(none, str(asked(server.url, api_key=key)))
        assert f"refuses the API key (HTTP {status})" in str(asked(server.url, api_key="SECRET"))
    code = {401: "UNAUTHENTICATED", 403: "PERMISSION_DENIED"}[status]
    with serving(Refusing(code)) as port:
        assert re.search(none, str(asked_over_grpc(port)))


REPLICA = "Service internal error: The replica set for shard 2 on peer 7 has no active replica"
CONSENSUS = "Service internal error: Waiting for consensus operation commit failed. Timeout: 10 s"
LEADER = "Service internal error: Failed to propose operation: leader is not established within 10s"
RATE = (
    "Rate limiting exceeded: Read rate limit exceeded: Operation requires 1 tokens but only 0 were "
    "available. Retry after 30s"
)
CAPACITY = (
    "Rate limiting exceeded: Write rate limit exceeded, request larger than than rate limiter "
    "capacity, please try to split your request"
)


def limit(asked, allowed, name):
    return f'Bad request: Limit exceeded {asked} > {allowed} for "{name}". Help: SECRET.'


REFUSALS = {  # HTTP status, gRPC status, text, error, message
    "wrong key": (401, "UNAUTHENTICATED", "SECRET", StoreForbiddenError, "refuses the API key"),
    "read-only key": (
        403,
        "PERMISSION_DENIED",
        "Forbidden: SECRET",
        StoreForbiddenError,
        r'check api_key, its rights on collection "kb", and when a token expires',
    ),
    "no collection": (404, "NOT_FOUND", MISSING, IndexMissingError, '"kb" does not exist: run'),
    "dimensions": (
        400,
        "INVALID_ARGUMENT",
        "Wrong input: Vector dimension error: expected dim: 4, got 3",
        StoreError,
        "embedding is 3-d, collection is 4-d",
    ),
    "vector name": (
        400,
        "INVALID_ARGUMENT",
        "Wrong input: Not existing vector name error: passage",
        StoreError,
        'collection "kb" has no vector "passage"',
    ),
    "points": (
        400,
        "INVALID_ARGUMENT",
        limit(100, 20, "limit"),
        StoreLimitError,
        'strict mode of collection "kb" refuses 100 where max_query_limit is 20: raise max_query',
    ),
    "timeout": (
        400,
        "INVALID_ARGUMENT",
        limit(5, 1, "timeout"),
        StoreLimitError,
        "refuses 5 where max_timeout is 1",
    ),
    "batch": (
        400,
        "INVALID_ARGUMENT",
        limit(8, 2, "search batch size"),
        StoreLimitError,
        "refuses 8 where search_max_batchsize is 2",
    ),
    "upsert": (
        400,
        "INVALID_ARGUMENT",
        limit(64, 16, "upsert limit"),
        StoreLimitError,
        "refuses 64 where upsert_max_batchsize is 16",
    ),
    "condition": (
        400,
        "INVALID_ARGUMENT",
        "Bad request: Condition size limit reached (9 > 2). Help: Reduce the size.",
        StoreLimitError,
        "refuses 9 where condition_max_size is 2",
    ),
    "conditions": (
        400,
        "INVALID_ARGUMENT",
        "Bad request: Filter condition limit reached (3 > 1). Help: Reduce the amount.",
        StoreLimitError,
        "refuses 3 where filter_max_conditions is 1",
    ),
    "exact": (
        400,
        "INVALID_ARGUMENT",
        "Bad request: Exact search disabled!. Help: Set exact=false.",
        StoreError,
        'strict mode of collection "kb" forbids exact: leave it out',
    ),
    "payload indexes": (
        400,
        "INVALID_ARGUMENT",
        "Bad request: Collection already has the maximum number of payload indices (2). Help: x",
        StoreError,
        "allows 2 payload indexes: raise max_payload_index_count",
    ),
    "no payload index": (
        400,
        "INVALID_ARGUMENT",
        'Bad request: Index required but not found for "metadata.digest" of one of the following',
        StoreError,
        r'needs a payload index on "metadata\.digest" of collection "kb": run',
    ),
    "full of vectors": (
        400,
        "INVALID_ARGUMENT",
        "Bad request: Max vector storage size limit of 10MB reached!",
        StoreError,
        'collection "kb" is full: its vectors take 10 MB, its limit',
    ),
    "full of points": (
        400,
        "INVALID_ARGUMENT",
        "Bad request: Max points count limit of 10 reached!",
        StoreError,
        'collection "kb" is full: it holds 10 points, its limit',
    ),
    "body": (
        400,
        "INVALID_ARGUMENT",
        "Payload error: JSON payload (62922836 bytes) is larger than allowed "
        "(limit: 33554432 bytes).",
        StoreLimitError,
        r"62922836 bytes is larger than the Qdrant server allows \(33554432 bytes\)",
    ),
    "rate": (429, "RESOURCE_EXHAUSTED", RATE, StoreRateLimitError, "limits the rate of reads"),
    "rate of one request": (
        429,
        "RESOURCE_EXHAUSTED",
        CAPACITY,
        StoreLimitError,
        "a request is larger than write_rate_limit",
    ),
    "replica": (500, "INTERNAL", REPLICA, StoreUnreachableError, "no replica of shard 2 is alive"),
    "quorum": (500, "INTERNAL", CONSENSUS, StoreUnreachableError, "has no quorum"),
    "leader": (500, "INTERNAL", LEADER, StoreUnreachableError, "has no quorum"),
    "other": (500, "INTERNAL", "SECRET", StoreUnreachableError, "overloaded or failing"),
    "unknown": (400, "INVALID_ARGUMENT", "SECRET", StoreError, r'on collection "kb" \(HTTP 400\)'),
}


@pytest.mark.parametrize("over", ["REST", "gRPC"])
@pytest.mark.parametrize("name", REFUSALS)
def test_a_refusal_names_what_it_is_about_and_quotes_nothing_else(name, over):
    status, code, text, kind, says = REFUSALS[name]
    if over == "REST":
        with QdrantServer() as server:
            server.misbehave(qdrant_server.status(status, text))
            failure = asked(server.url, api_key="sk-KEY")
    else:
        with serving(Refusing(code, text)) as port:
            failure = asked_over_grpc(port, api_key="sk-KEY")
    assert type(failure) is kind
    with pytest.raises(kind, match=says):
        raise failure
    assert "SECRET" not in str(failure)


def test_a_proxy_that_takes_only_small_requests_is_told():
    with QdrantServer() as server:
        server.misbehave(qdrant_server.raw(413, b"<html>"))
        failure = asked(server.url)
    assert isinstance(failure, StoreLimitError)
    assert "larger than the server or a proxy before it allows (HTTP 413)" in str(failure)


@pytest.mark.parametrize("over", ["REST", "gRPC"])
def test_the_pause_that_a_rate_limit_asks_for_is_known(over):
    if over == "REST":
        with QdrantServer() as server:
            server.misbehave(qdrant_server.status(429, RATE, retry_after="30"))
            failure = asked(server.url)
    else:
        with serving(Refusing("RESOURCE_EXHAUSTED", RATE, retry_after="30")) as port:
            failure = asked_over_grpc(port)
    assert isinstance(failure, StoreRateLimitError)
    assert failure.retry_after == 30
    assert "limits the rate of reads (HTTP 429, ask again in 30 s): raise read_rate_limit" in str(
        failure
    )
