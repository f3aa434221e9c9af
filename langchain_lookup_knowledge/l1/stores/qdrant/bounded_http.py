"""Limits for an HTTP client: no request outlasts its time limit, and no answer grows without bound.

httpx limits each read separately, so a server that sends a byte now and then could block a thread
forever. Here, each socket operation may take only the remaining time, and the socket is closed when
no time is left.
"""

import math
import ssl
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any
from weakref import WeakSet

import httpcore
import httpx

from langchain_lookup_knowledge.l1.deadlines import remaining

MAX_ANSWER_BYTES = 32_000_000
"""Maximum size of an answer, before and after decompression."""
_READ_BYTES = 1 << 16


class AnswerTooLargeError(httpx.DecodingError):
    """An answer is larger than `MAX_ANSWER_BYTES`."""


_bounded_clients: WeakSet[httpx.Client] = WeakSet()
_is_bounded: ContextVar[bool] = ContextVar("lookup_knowledge_bounded", default=False)


@contextmanager
def bounded() -> Iterator[None]:
    """Limit the requests of clients that were given to `bound`, as long as the context lasts."""
    token = _is_bounded.set(True)
    try:
        yield
    finally:
        _is_bounded.reset(token)


def bound(client: httpx.Client) -> None:
    """Have `bounded` limit each request of a client to the remaining time of its call, and each
    answer to `MAX_ANSWER_BYTES`. Other requests of the client, such as its owner's, are not
    limited.
    """
    if client in _bounded_clients:
        return
    _bounded_clients.add(client)
    hooks = client.event_hooks  # a copy of its lists
    client.event_hooks = {
        "request": [*hooks["request"], _bound_wait],
        "response": [*hooks["response"], _bound_answer],
    }
    for transport in (client._transport, *client._mounts.values()):
        if isinstance(transport, httpx.HTTPTransport):
            pool: Any = transport._pool
            pool._network_backend = _Backend(pool._network_backend)


def _bound_wait(request: httpx.Request) -> None:
    """Limit the wait for a free connection, too."""
    if not _is_bounded.get():
        return
    request.headers["accept-encoding"] = "gzip"  # the encoding that `_Bounded` can decode in parts
    limits = request.extensions["timeout"]
    limits["pool"] = min(limits.get("pool") or math.inf, max(remaining(), 0.001))


def _bound_answer(response: httpx.Response) -> None:
    if not _is_bounded.get():
        return
    encoding = response.headers.pop("content-encoding", "identity").strip().lower()
    if encoding not in ("identity", "gzip"):
        raise httpx.DecodingError(f"the answer is encoded as {encoding[:40]!r}, not as requested")
    response.stream = _Bounded(response.stream, compressed=encoding == "gzip")


class _Bounded(httpx.SyncByteStream):
    """The decompressed body of an answer, limited in size."""

    def __init__(self, stream: Any, *, compressed: bool) -> None:
        self._stream = stream
        self._compressed = compressed

    def __iter__(self) -> Iterator[bytes]:
        sent = _up_to_limit(self._stream)
        yield from _up_to_limit(_decompressed(sent)) if self._compressed else sent

    def close(self) -> None:
        self._stream.close()


def _up_to_limit(parts: Iterable[bytes]) -> Iterator[bytes]:
    size = 0
    for part in parts:
        size += len(part)
        if size > MAX_ANSWER_BYTES:
            raise AnswerTooLargeError(f"the answer is larger than {MAX_ANSWER_BYTES} bytes")
        yield part


def _decompressed(parts: Iterable[bytes]) -> Iterator[bytes]:
    """Decompress gzip in small parts: a few bytes may expand a thousandfold."""
    decoder = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
    try:
        for part in parts:
            while part:
                yield decoder.decompress(part, _READ_BYTES)
                part = decoder.unconsumed_tail  # noqa: PLW2901
        yield decoder.flush()
    except zlib.error as error:
        raise httpx.DecodingError("the answer is labeled as gzip, but is not gzip") from error


def _left(seconds: float | None, late: type[Exception]) -> float | None:
    """Return the seconds that an operation may take; raise `late` if no time is left."""
    left = remaining()
    if left <= 0:
        raise late("the time limit of the call has passed")
    return seconds if left == math.inf else min(left, seconds or left)


def _check_protocol(data: bytes) -> None:
    """Name the protocol of a server whose first bytes are not HTTP/1: TLS has alerts of type 0x15,
    HTTP/2 starts with a SETTINGS frame (type 4), or ends with a GOAWAY frame (type 7).
    """
    if data[:2] == b"\x15\x03":
        raise httpcore.RemoteProtocolError("the server speaks TLS")
    if data[:1] == b"\0" and data[3:4] in (b"\x04", b"\x07"):
        raise httpcore.RemoteProtocolError("the server speaks HTTP/2")


class _Stream(httpcore.NetworkStream):
    """A connection whose operations end with the time limit of the call."""

    def __init__(self, stream: httpcore.NetworkStream) -> None:
        self._stream = stream
        self._is_new = True

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        data = self._stream.read(max_bytes, _left(timeout, httpcore.ReadTimeout))
        if self._is_new and data:
            self._is_new = False
            _check_protocol(data)
        return data

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._stream.write(buffer, _left(timeout, httpcore.WriteTimeout))

    def close(self) -> None:
        self._stream.close()

    def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,
    ) -> httpcore.NetworkStream:
        left = _left(timeout, httpcore.ConnectTimeout)
        return _Stream(self._stream.start_tls(ssl_context, server_hostname, left))

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)


class _Backend(httpcore.NetworkBackend):
    """Opens connections whose operations end with the time limit of the call."""

    def __init__(self, backend: httpcore.NetworkBackend) -> None:
        self._backend = backend

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Any = None,
    ) -> httpcore.NetworkStream:
        left = _left(timeout, httpcore.ConnectTimeout)
        return _Stream(self._backend.connect_tcp(host, port, left, local_address, socket_options))

    def connect_unix_socket(
        self, path: str, timeout: float | None = None, socket_options: Any = None
    ) -> httpcore.NetworkStream:
        left = _left(timeout, httpcore.ConnectTimeout)
        return _Stream(self._backend.connect_unix_socket(path, left, socket_options))

    def sleep(self, seconds: float) -> None:
        self._backend.sleep(seconds)
