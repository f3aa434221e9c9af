"""URLs, ports and names are checked before anything is sent."""

import pytest
from pydantic import SecretStr
from qdrant_client import QdrantClient
from qdrant_server import QdrantServer

from langchain_lookup_knowledge import QdrantIndex
from langchain_lookup_knowledge.l1.stores.qdrant.address import same_server


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"url": "http://u:SECRET@h:6333"}, "no user, password or query: give the key as api_key="),
        ({"url": "http://h:6333?api-key=SECRET"}, "no user, password or query"),
        ({"url": "ftp://h"}, "begins with http:// or https://"),
        ({"url": "h:6333"}, "begins with http:// or https://"),
        ({"url": "http://h:port"}, "is not a number from 0 to 65535"),
        ({"url": "http://:6333"}, "names no host: write http://host:6333"),
        ({"collection": ""}, "has 1 to 255 characters"),
        ({"collection": "c" * 256}, "has 1 to 255 characters"),
        ({"collection": "a/b"}, "must not contain '/': 'a/b'"),
        ({"collection": "a:b"}, "must not contain ':'"),
        ({"prefer_grpc": True, "url": "http://h:6343"}, "REST port is not 6333 is not known: give"),
        ({"prefer_grpc": True, "verify": False}, "gRPC always checks certificates"),
        ({"verify": "/no/such/ca.pem"}, "which is not a file: give a CA file"),
        ({"read_consistency": "most"}, "read_consistency takes majority, quorum, all, not 'most'"),
        ({"write_ordering": "any"}, "write_ordering takes weak, medium, strong, not 'any'"),
        ({"search_params": {"ef": 5}}, "search_params takes hnsw_ef, .* not 'ef'"),
    ],
)
def test_what_no_server_takes_is_refused_at_construction(arguments, says):
    with pytest.raises(ValueError, match=says) as raised:
        QdrantIndex(**{"url": "http://h:6333", "collection": "c", **arguments})
    assert "SECRET" not in str(raised.value)


@pytest.mark.parametrize("name", ["Handbuch für alle", "kb.v2", "手册", "c" * 255])
def test_a_name_that_a_server_takes_is_taken(name):
    assert QdrantIndex("http://h:6333", name).collection == name


@pytest.mark.parametrize(
    ("arguments", "rest", "grpc_port"),
    [
        ({"url": "http://h"}, "http://h:6333", None),
        ({"url": "https://h:7000"}, "https://h:7000", None),
        ({"url": "localhost:6333"}, "http://localhost:6333", None),
        ({"url": "https://h/qdrant"}, "https://h/qdrant", None),
        ({"url": "https://h:8443/qdrant"}, "https://h:8443/qdrant", None),
        ({"url": "http://h", "prefer_grpc": True}, "http://h:6333", 6334),
        ({"url": "http://h:6333", "prefer_grpc": True, "grpc_port": 7}, "http://h:6333", 7),
        ({"url": "http://h:6343", "prefer_grpc": True, "grpc_port": 6344}, "http://h:6343", 6344),
    ],
)
def test_the_ports_that_a_client_uses(arguments, rest, grpc_port):
    index = QdrantIndex(collection="c", **arguments)
    remote = index.client._client
    assert remote.rest_uri == rest
    assert grpc_port is None or remote._grpc_port == grpc_port
    index.close()


def test_a_path_before_that_of_the_server_is_used():
    with QdrantServer(prefix="/vectors/qdrant") as server:
        index = QdrantIndex(server.url, "kb")
        assert index.fingerprint() is None
        assert server.requests == ["GET /vectors/qdrant/collections/kb"]
        index.close()


def test_an_empty_address_is_refused_and_not_taken_for_this_machine():
    with pytest.raises(ValueError, match="the URL of the Qdrant server is empty"):
        QdrantIndex("", "kb")
    assert (
        repr(QdrantIndex("http://h", "kb", api_key="sk-SECRET")) == "QdrantIndex('http://h', 'kb')"
    )


@pytest.mark.parametrize("url", ["localhost.example.com:6333", "localhosts", "ftp://localhost"])
def test_only_this_machine_needs_no_scheme(url):
    with pytest.raises(ValueError, match="begins with http:// or https://"):
        QdrantIndex(url, "kb")


def test_a_client_that_is_passed_in_needs_no_address():
    client = QdrantClient(":memory:")
    assert QdrantIndex("", "kb", client=client).fingerprint() is None
    client.close()


@pytest.mark.parametrize(
    "key", ["SECRET\u00e9", "SEC\nRET", "\ufeffSECRET", "SEC\tRET", "SECRET\x7f"]
)
@pytest.mark.parametrize("wrap", [str, SecretStr])
def test_a_key_that_no_header_can_carry_is_refused_at_construction(key, wrap):
    says = "the API key has a character that no HTTP header can carry"
    with pytest.raises(ValueError, match=says) as raised:
        QdrantIndex("http://h:6333", "c", api_key=wrap(key))
    assert "SEC" not in str(raised.value)


@pytest.mark.parametrize("key", ["sk RIGHT\n", " \tsk RIGHT\r\n", SecretStr("sk RIGHT\n")])
def test_white_space_around_a_key_is_not_sent(key):
    with QdrantServer(api_key="sk RIGHT") as server:
        index = QdrantIndex(server.url, "kb", api_key=key)
        assert index.connection.info() is None  # no collection, and no refusal
        index.close()


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("http://localhost:6343/", "http://localhost:6343", True),
        ("http://localhost:6343//", "http://localhost:6343", True),
        ("HTTP://LocalHost", "http://localhost:6333/", True),
        ("localhost", "http://localhost:6333", True),
        ("https://h/qdrant/", "https://h/qdrant", True),
        ("http://h", "https://h", False),
        ("http://h:6333", "http://h:6334", False),
        ("https://h/qdrant", "https://h:6333/qdrant", False),
        ("https://h/qdrant", "https://h/Qdrant", False),
        ("http://h", "http://h.example", False),
        ("http://u:p@h", "http://h", False),
        ("http://h?x", "http://h", False),
        ("http://h\n", "http://h", False),
        ("http://h:port", "http://h", False),
        ("http://h:port", "http://h:port", True),
        ("", "http://h", False),
    ],
)
def test_urls_of_one_server_are_the_same(one, other, same):
    assert same_server(one, other) is same_server(other, one) is same
