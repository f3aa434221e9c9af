"""The failures of a Qdrant client, as errors that name the cause and the fix and contain no
secret.

REST, gRPC, local mode and URL parsing each raise their own exceptions. Their texts may quote the
request, so they are only matched; names, fields and sizes alone are quoted from them.
"""

import importlib.metadata
import json
import re
import socket
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, cast

from langchain_lookup_knowledge.errors import (
    IndexMissingError,
    StoreError,
    StoreForbiddenError,
    StoreLimitError,
    StoreRateLimitError,
    StoreTimeoutError,
    StoreUnreachableError,
)
from langchain_lookup_knowledge.l1.stores.qdrant.address import GRPC_PORT, LOOPBACK
from langchain_lookup_knowledge.l1.stores.vector_index import INDEX_COMMAND, REBUILD_COMMAND

NO_ANSWER = "the Qdrant server did not answer in time"
_REFUSED = "connection refused"
_SPEAKS_HTTP = "its gRPC port speaks HTTP"
_GIVE_PORT = f"give the gRPC port, usually {GRPC_PORT}, as grpc_port= or --grpc-port"
_PROBE = 0.5
"""Maximum seconds to find out what a port of this machine speaks."""

_GRPC_STATUS = {  # the equivalent HTTP status of each gRPC status
    "INVALID_ARGUMENT": 400,
    "UNAUTHENTICATED": 401,
    "PERMISSION_DENIED": 403,
    "NOT_FOUND": 404,
    "RESOURCE_EXHAUSTED": 429,
    "INTERNAL": 500,
}
_UNREACHABLE = [  # what the text of a failed connection shows, the cause, and the fix
    (
        r"gaierror|name or service not known|(dns|domain name).*(fail|not found)",
        "its name cannot be resolved",
        "check the host in its URL",
    ),
    (
        r"hostname mismatch|ip address mismatch|not valid for|hostname verification|peer name",
        "its certificate is for another host",
        "use the name that is in the certificate",
    ),
    (r"certificate has expired", "its certificate has expired", "renew it on the server"),
    (
        r"certificate[_ ]verify[_ ]failed|self-signed|issuer certificate",
        "its certificate is not trusted",
        "name the file of its CA: verify=, or --ca",
    ),
    (
        r"wrong[_ ]version[_ ]number|eof[_ ]while[_ ]reading|record[_ ]layer|eof occurred in viol"
        r"|packet[_ ]length|tls handshake.*reset|ssl.*(unexpected eof|http[_ ]request)",
        "its port does not speak TLS",
        "use http://, or the port for TLS",
    ),
    (r"speaks tls", "its port speaks TLS", "use https://"),
    (
        r"speaks http/2",
        "its port speaks gRPC",
        "give the REST port, usually 6333, in the URL, and the gRPC port as grpc_port=",
    ),
    (
        r"expected settings frame|trying to connect an http1",
        _SPEAKS_HTTP,
        _GIVE_PORT,
    ),
    (
        r"connectionrefused|connection refused",
        _REFUSED,
        "check that it runs, and the port of its URL",
    ),
    (
        r"disconnected without|socket closed",
        "it closed the connection without an answer",
        "check its log, the scheme of its URL (https:// for TLS) and the port (REST or gRPC)",
    ),
]
_LIMIT = re.compile(r'Limit exceeded ([\d.]+) > ([\d.]+) for \\?"([\w ]{1,40})')
_CONDITIONS = re.compile(r"(Filter condition|Condition size) limit reached \((\d+) > (\d+)\)")
_INDEXES = re.compile(r"maximum number of payload indices \((\d+)\)")
_BODY = re.compile(r"payload \((\d+) bytes\) is larger than allowed \(limit: (\d+) bytes\)")
_DISABLED = re.compile(r"Set ([a-z_]{1,40})=false")
_STORAGE = re.compile(r"Max (vector|payload) storage size limit of ([\d.]+)MB reached")
_POINTS = re.compile(r"Max points? count limit of (\d+) reached", re.IGNORECASE)
_UNINDEXED = re.compile(r'Index required but not found for \\?"([^"\\]+)')
_DIMENSIONS = re.compile(r"expected dim: (\d+), got (\d+)")
_VECTOR = re.compile(r"Not existing vector name error: ([\w.-]{1,64})")
_RATE = re.compile(r"\b(read|write) rate limit exceeded", re.IGNORECASE)
_TOO_LARGE = re.compile(r"(read|write) rate limit exceeded, request larger than", re.IGNORECASE)
_NO_REPLICA = re.compile(r"shard (\d+) .{0,60}has no active replica|(no|not enough) .{0,20}replica")
_NO_QUORUM = re.compile(r"consensus|leader is not established", re.IGNORECASE)
_LIMIT_NAMES = {  # the server's words for a limit, and its setting
    "limit": "max_query_limit",
    "timeout": "max_timeout",
    "search batch size": "search_max_batchsize",
    "upsert limit": "upsert_max_batchsize",
    "hnsw_ef": "search_max_hnsw_ef",
    "oversampling": "search_max_oversampling",
    "Filter condition": "filter_max_conditions",
    "Condition size": "condition_max_size",
}


def as_store_error(
    error: Exception,
    collection: str,
    version: Callable[[], str],
    *,
    has_key: bool = True,
    grpc_target: tuple[str, int] | None = None,
) -> StoreError:
    """Return the StoreError for a failure of the client.

    `version` returns the version of the server, with a space before it, or an empty text.
    `has_key`: whether an API key may have been sent. `grpc_target`: host and port for gRPC.
    """
    import grpc  # noqa: PLC0415  (a dependency of the client)
    from qdrant_client.common import client_exceptions  # noqa: PLC0415
    from qdrant_client.http import exceptions  # noqa: PLC0415

    if isinstance(error, exceptions.UnexpectedResponse):
        body = error.content.decode("utf-8", "replace")
        return _refusal(error.status_code or 0, body, collection, version, has_key)
    if isinstance(error, client_exceptions.QdrantException):
        # also if the client cannot read its Retry-After
        return _busy(429, str(error), asked_pause(error))
    if isinstance(error, exceptions.ResponseHandlingException):
        return _broken_exchange(error.source)
    if isinstance(error, json.JSONDecodeError | AssertionError):  # an answer that is not JSON
        return _broken_exchange(error)
    code = cast(Any, error).code().name if isinstance(error, grpc.RpcError) else ""
    if code == "DEADLINE_EXCEEDED":
        return StoreTimeoutError(NO_ANSWER)
    if code == "UNAVAILABLE":
        return _unreachable_over_grpc(str(cast(Any, error).details()), code, grpc_target)
    if code in _GRPC_STATUS:
        details = str(cast(Any, error).details())
        return _refusal(_GRPC_STATUS[code], details, collection, version, has_key)
    return StoreError(
        f"the Qdrant request failed ({type(error).__name__}): check the URL and collection"
    )


def _refusal(
    status: int, body: str, collection: str, version: Callable[[], str], has_key: bool
) -> StoreError:
    """Return the StoreError for an HTTP status; only names and sizes are quoted from the body."""
    if status in (401, 403) and not has_key:
        return StoreForbiddenError(
            f"the Qdrant server wants an API key, and none was sent (HTTP {status}): give api_key, "
            "or on the command line QDRANT_API_KEY, and QDRANT_URL for a server saved earlier"
        )
    if status == 401:
        return StoreForbiddenError(
            f"the Qdrant server refuses the API key (HTTP {status}): check api_key, or "
            "QDRANT_API_KEY on the command line"
        )
    if status == 403:
        return StoreForbiddenError(
            f"the Qdrant server refuses the API key (HTTP {status}): check api_key, its rights on "
            f'collection "{collection}", and when a token expires'
        )
    if status == 404 and "doesn't exist" in body:
        return IndexMissingError(f'collection "{collection}" does not exist: {INDEX_COMMAND}')
    if status == 404:
        ours = importlib.metadata.version("qdrant-client")
        what = f"the Qdrant server{version()} does not support a request of qdrant-client {ours}"
        return StoreError(f"{what} (HTTP 404): update the server, or check its URL")
    if status == 429 and (kind := _TOO_LARGE.search(body)):
        name = f"{kind[1].lower()}_rate_limit"
        return StoreLimitError(f"a request is larger than {name} of the collection: raise it")
    if status == 429 or status >= 500:
        return _busy(status, body, 0.0)
    return _exceeded(status, body, collection) or _wrong_request(status, body, collection)


def _busy(status: int, body: str, retry_after: float) -> StoreUnreachableError:
    if limited := _RATE.search(body):
        kind = limited[1].lower()
        asked = f", ask again in {retry_after:.0f} s" if retry_after > 0 else ""
        return StoreRateLimitError(
            f"the Qdrant server limits the rate of {kind}s (HTTP {status}{asked}): "
            f"raise {kind}_rate_limit of the collection, or ask less often",
            retry_after,
        )
    if shard := _NO_REPLICA.search(body):
        which = f"shard {shard[1]}" if shard[1] else "a shard"
        return StoreUnreachableError(
            f"no replica of {which} is alive (HTTP {status}): start the nodes that hold one"
        )
    if _NO_QUORUM.search(body):
        return StoreUnreachableError(
            f"the Qdrant cluster has no quorum (HTTP {status}): start more than half of its nodes"
        )
    return StoreUnreachableError(
        f"the Qdrant server is overloaded or failing (HTTP {status}): check its log"
    )


def _exceeded(status: int, body: str, collection: str) -> StoreError | None:
    """Return the error for a limit of the server that a request exceeds."""
    where = f'of collection "{collection}"'
    if found := _LIMIT.search(body):
        name = _LIMIT_NAMES.get(found[3], found[3])
        return StoreLimitError(
            f"strict mode {where} refuses {found[1]} where {name} is {found[2]}: raise {name}"
        )
    if found := _CONDITIONS.search(body):
        name = _LIMIT_NAMES[found[1]]
        return StoreLimitError(
            f"strict mode {where} refuses {found[2]} where {name} is {found[3]}: raise {name}"
        )
    if found := _INDEXES.search(body):
        return StoreError(
            f"strict mode {where} allows {found[1]} payload indexes: raise max_payload_index_count"
        )
    if found := _BODY.search(body):
        return StoreLimitError(
            f"a request of {found[1]} bytes is larger than the Qdrant server allows "
            f"({found[2]} bytes): raise its max_request_size_mb"
        )
    if status == 413:
        return StoreLimitError(
            "a request is larger than the server or a proxy before it allows (HTTP 413): "
            "raise the limit of the proxy"
        )
    if found := _STORAGE.search(body):
        return StoreError(f"{where[3:]} is full: its {found[1]}s take {found[2]} MB, its limit")
    if found := _POINTS.search(body):
        return StoreError(f"{where[3:]} is full: it holds {found[1]} points, its limit")
    if found := _DISABLED.search(body):
        return StoreError(f"strict mode {where} forbids {found[1]}: leave it out, or allow it")
    return None


def _wrong_request(status: int, body: str, collection: str) -> StoreError:
    if field := _UNINDEXED.search(body):
        where = f'"{field[1]}" of collection "{collection}"'
        what = f"the Qdrant server is in strict mode and needs a payload index on {where}"
        return StoreError(f"{what}: {INDEX_COMMAND}, or create a keyword index")
    if sizes := _DIMENSIONS.search(body):
        return StoreError(
            f"embedding is {sizes[2]}-d, collection is {sizes[1]}-d: {REBUILD_COMMAND}"
        )
    if name := _VECTOR.search(body):
        return StoreError(
            f'collection "{collection}" has no vector "{name[1]}": {REBUILD_COMMAND}, '
            "or choose another collection"
        )
    return StoreError(
        f'the Qdrant server refused the request on collection "{collection}" (HTTP {status})'
    )


def asked_pause(error: BaseException | None) -> float:
    """Return the seconds that a busy server asks to wait, 0 if it does not say.

    If Retry-After is a date, the client raises its own error, whose text quotes the date.
    """
    if (seconds := getattr(error, "retry_after_s", None)) is not None:
        return float(seconds)
    try:
        asked = parsedate_to_datetime(str(error).partition(": ")[2])
    except ValueError:  # not a date
        return 0.0
    asked = asked.replace(tzinfo=UTC) if asked.tzinfo is None else asked
    return (asked - datetime.now(UTC)).total_seconds()


def unreachable(text: str, kind: str) -> StoreUnreachableError:
    """Return the error for a connection that failed; `text` is searched for the cause."""
    for pattern, cause, fix in _UNREACHABLE:
        if re.search(pattern, text, re.IGNORECASE | re.DOTALL):
            return _unreachable(cause, fix)
    return _unreachable(kind, "check its URL")


def _unreachable(cause: str, fix: str) -> StoreUnreachableError:
    return StoreUnreachableError(f"the Qdrant server cannot be reached ({cause}): {fix}")


def _unreachable_over_grpc(
    text: str, code: str, target: tuple[str, int] | None
) -> StoreUnreachableError:
    """Return the error for a gRPC connection that failed.

    gRPC tells why the last address of a host failed. `localhost` has two, and a server may listen
    at one of them, so a port of this machine is asked what it speaks.
    """
    if target is None or not re.search(_REFUSED, text, re.IGNORECASE):
        return unreachable(text, code)
    if target[0] in LOOPBACK and _speaks_http(*target):
        return _unreachable(_SPEAKS_HTTP, _GIVE_PORT)
    return _unreachable(
        f"{_REFUSED} at its gRPC port {target[1]}", f"check that it runs, and {_GIVE_PORT}"
    )


def _speaks_http(host: str, port: int) -> bool:
    try:
        with socket.create_connection((host, port), _PROBE) as probe:
            probe.settimeout(_PROBE)
            probe.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            return probe.recv(5) == b"HTTP/"
    except OSError:
        return False


def _broken_exchange(source: Exception) -> StoreError:
    """Return the StoreError for an exception that the client passes on unchanged, such as one of
    httpx.
    """
    import httpx  # noqa: PLC0415  (a dependency of the client)

    from langchain_lookup_knowledge.l1.stores.qdrant.bounded_http import (  # noqa: PLC0415
        AnswerTooLargeError,
    )

    kind = type(source).__name__
    if isinstance(source, httpx.TimeoutException):
        return StoreTimeoutError(NO_ANSWER)
    if isinstance(source, AnswerTooLargeError):
        return StoreError(f"the answer of the Qdrant server was rejected: {source}")
    if isinstance(source, httpx.TransportError | OSError):
        # an OSError comes from a connection that another thread was just closing
        texts = (f"{type(error).__name__} {error}" for error in _causes(source))
        return unreachable("; ".join(texts), kind)
    return StoreError(f"the answer does not come from a Qdrant server ({kind}): check its URL")


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__
