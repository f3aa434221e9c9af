"""A Qdrant server on loopback: it answers the REST requests of `qdrant-client` as the real one does, or misbehaves on demand.

The answers come from the client's own in-process store; what that lacks of a server (API keys, payload indexes and strict mode,
checks of sizes, HTTP errors) is added here, in the words and shapes of the real server.
"""

import json
import math
import re
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

from pydantic import TypeAdapter, ValidationError
from qdrant_client import QdrantClient, models

JSON: TypeAdapter[Any] = TypeAdapter(Any)


class Refusal(Exception):
    """What the server answers instead of a result."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    qdrant: "QdrantServer"

    def handle_one_request(self) -> None:
        try:
            super().handle_one_request()
        except OSError:  # the client went away, as one does whose time is up
            self.close_connection = True

    def _any(self) -> None:
        self.body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.qdrant.requests.append(f"{self.command} {self.path}")
        self.qdrant.bodies.append(self.body)
        fault = self.qdrant.next_fault(self)
        if fault is None or not fault(self):
            self.answer(*self.qdrant.answer(self.command, self.path, self.headers, self.body))

    do_GET = do_PUT = do_POST = do_DELETE = do_PATCH = _any

    def answer(self, status: int, body: bytes, *, length: int | None = None, **headers: str) -> None:
        self.send_response(status)
        for name, value in {"content-type": "application/json", **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("content-length", str(len(body) if length is None else length))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass


Fault = Callable[[Handler], bool]
"""Misbehaves, and says whether that was the answer; if not, the proper one follows."""


def status(code: int, message: str = "out of order", **headers: str) -> Fault:
    """Answer with an HTTP status, in the real server's envelope of errors."""
    return raw(code, _error(message), **headers)


def raw(code: int, body: bytes, *, length: int | None = None, **headers: str) -> Fault:
    """Answer with just this; a `length` that is not the body's cuts the answer off."""

    def fault(handler: Handler) -> bool:
        handler.answer(code, body, length=length, **headers)
        handler.close_connection = True
        return True

    return fault


def hang(handler: Handler) -> bool:
    """Accept the request and never answer."""
    handler.qdrant.closing.wait(60)
    handler.close_connection = True
    return True


def reset(handler: Handler) -> bool:
    """Break the connection off, as a crashing server does."""
    handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    handler.connection.close()
    handler.rfile.close()
    handler.close_connection = True
    return True


def dribble(handler: Handler) -> bool:
    """Answer a byte at a time, so that no single read takes long, and never come to the end."""
    handler.answer(200, b"{", length=100_000)
    while not handler.qdrant.closing.wait(0.02):
        handler.wfile.write(b" ")
    return True


def late(seconds: float) -> Fault:
    """Give the proper answer after a while."""

    def fault(handler: Handler) -> bool:
        handler.qdrant.closing.wait(seconds)
        return False

    return fault


class QdrantServer:
    """The server, up from the start until `close`. `requests` and `bodies` list what it was asked."""

    def __init__(self, *, api_key: str | None = None, strict: bool = False) -> None:
        self.api_key = api_key
        self.strict = strict
        self.closing = threading.Event()
        self.requests: list[str] = []
        self.bodies: list[bytes] = []
        self._fault: tuple[Fault, float, str] | None = None
        self._client = QdrantClient(":memory:")
        self._indexed: dict[str, set[str]] = {}
        self._strict: set[str] = set()
        self._lock = threading.Lock()
        handler = type("BoundHandler", (Handler,), {"qdrant": self})
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._http.daemon_threads = True
        self._http.block_on_close = False
        self.url = f"http://127.0.0.1:{self._http.server_port}"
        threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop listening: from now on connections are refused."""
        if not self.closing.is_set():
            self.closing.set()
            self._http.shutdown()
            self._http.server_close()
            self._client.close()

    def misbehave(self, fault: Fault | None, *, times: float = math.inf, where: str = "") -> None:
        """Have the next `times` requests whose line or body holds `where` go wrong; None mends the server."""
        self._fault = None if fault is None else (fault, times, where)

    def next_fault(self, handler: Handler) -> Fault | None:
        with self._lock:
            if self._fault is None or self._fault[2] not in f"{handler.command} {handler.path} {handler.body!r}":
                return None
            fault, times, where = self._fault
            self._fault = (fault, times - 1, where) if times > 1 else None
            return fault

    def answer(self, method: str, path: str, headers: Any, body: bytes) -> tuple[int, bytes]:
        started = time.perf_counter()
        if self.api_key and headers.get("api-key") != self.api_key:
            given = "Invalid API key or JWT" if headers.get("api-key") else "Must provide an API key"
            return 401, given.encode()
        try:
            with self._lock:
                result = self._result(method, path.partition("?")[0], body)
        except Refusal as refusal:
            return refusal.status, _error(str(refusal))
        except ValidationError as error:
            return 400, _error(f"Format error in JSON body: {error.error_count()} errors")
        envelope = {"result": result, "status": "ok", "time": time.perf_counter() - started}
        if isinstance(result, models.VersionInfo):  # the one answer that comes without an envelope
            envelope = result
        return 200, JSON.dump_json(envelope, exclude_none=True)

    def _result(self, method: str, path: str, body: bytes) -> Any:
        if (method, path) == ("GET", "/"):
            return models.VersionInfo(title="qdrant - vector search engine", version="1.9.0")
        found = re.fullmatch(r"/collections/([^/]+)(/.*)?", path)
        if not found:
            raise Refusal(404, "")
        name, rest = found[1], found[2] or ""
        if (method, rest) == ("GET", "/exists"):
            return {"exists": self._client.collection_exists(name)}
        if (method, rest) == ("PUT", ""):
            return self._create(name, models.CreateCollection.model_validate_json(body))
        if (method, rest) == ("DELETE", ""):
            self._indexed.pop(name, None)
            return self._client.delete_collection(name)
        if not self._client.collection_exists(name):
            raise Refusal(404, f"Not found: Collection `{name}` doesn't exist!")
        if (method, rest) not in ROUTES:
            raise Refusal(404, "")
        kind, answer = ROUTES[method, rest]
        parsed = kind.validate_json(body) if kind else None
        self._check_filters(name, json.loads(body or b"{}"))
        return answer(self, name, parsed)

    def _create(self, name: str, body: models.CreateCollection) -> bool:
        if self._client.collection_exists(name):
            raise Refusal(409, f"Wrong input: Collection `{name}` already exists!")
        strict = body.strict_mode_config
        if self.strict or (strict and strict.enabled and strict.unindexed_filtering_retrieve is False):
            self._strict.add(name)
        self._indexed[name] = set()
        return self._client.create_collection(
            name, vectors_config=body.vectors, sparse_vectors_config=body.sparse_vectors, metadata=body.metadata
        )

    def _check_filters(self, name: str, body: Any) -> None:
        for key in _filter_keys(body) if name in self._strict else ():
            if key not in self._indexed[name]:
                kinds = "of one of the following types: [keyword]"
                help_ = "Help: Create an index for this key or use a different filter."
                raise Refusal(400, f'Bad request: Index required but not found for "{key}" {kinds}. {help_}')

    def _info(self, name: str, _: None) -> Any:
        info = self._client.get_collection(name).model_dump(mode="json")
        info["payload_schema"] = {field: {"data_type": "keyword", "points": 0} for field in self._indexed[name]}
        return info

    def _index(self, name: str, body: models.CreateFieldIndex) -> Any:
        self._indexed[name].add(body.field_name)
        return _done()

    def _upsert(self, name: str, body: models.PointsList) -> Any:
        for point in body.points:
            vectors = point.vector if isinstance(point.vector, dict) else {"": point.vector}
            for vector_name, vector in vectors.items():
                self._check_vector(name, vector_name, vector)
        self._client.upsert(name, body.points)
        return _done()

    def _delete(self, name: str, body: Any) -> Any:
        self._client.delete(name, body)
        return _done()

    def _scroll(self, name: str, body: models.ScrollRequest) -> Any:
        given = {key: getattr(body, key) for key in ("limit", "offset", "with_payload", "with_vector")}
        given = {key.replace("with_vector", "with_vectors"): value for key, value in given.items() if value is not None}
        records, offset = self._client.scroll(name, scroll_filter=body.filter, **given)
        return {"points": records, "next_page_offset": offset}

    def _retrieve(self, name: str, body: models.PointRequest) -> Any:
        return self._client.retrieve(
            name, body.ids, with_payload=body.with_payload, with_vectors=bool(body.with_vector)
        )

    def _count(self, name: str, body: models.CountRequest) -> Any:
        return self._client.count(name, body.filter)

    def _query(self, name: str, body: models.QueryRequest) -> Any:
        return self._query_batch(name, models.QueryRequestBatch(searches=[body]))[0]

    def _query_batch(self, name: str, body: models.QueryRequestBatch) -> Any:
        for search in body.searches:
            query = getattr(search.query, "nearest", search.query)
            self._check_vector(name, search.using or "", query)
        return self._client.query_batch_points(name, body.searches)

    def _check_vector(self, name: str, vector_name: str, vector: Any) -> None:
        config = self._client.get_collection(name).config.params
        dense = config.vectors if isinstance(config.vectors, dict) else {"": config.vectors}
        if vector_name not in dense and vector_name not in (config.sparse_vectors or {}):
            raise Refusal(400, f"Wrong input: Not existing vector name error: {vector_name}")
        if isinstance(vector, list) and len(vector) != dense[vector_name].size:
            sizes = f"expected dim: {dense[vector_name].size}, got {len(vector)}"
            raise Refusal(400, f"Wrong input: Vector dimension error: {sizes}")


ROUTES: dict[tuple[str, str], tuple[TypeAdapter[Any] | None, Callable[[QdrantServer, str, Any], Any]]] = {
    ("GET", ""): (None, QdrantServer._info),
    ("PUT", "/index"): (TypeAdapter(models.CreateFieldIndex), QdrantServer._index),
    ("PUT", "/points"): (TypeAdapter(models.PointsList), QdrantServer._upsert),
    ("POST", "/points"): (TypeAdapter(models.PointRequest), QdrantServer._retrieve),
    ("POST", "/points/delete"): (TypeAdapter(models.PointsSelector), QdrantServer._delete),
    ("POST", "/points/scroll"): (TypeAdapter(models.ScrollRequest), QdrantServer._scroll),
    ("POST", "/points/count"): (TypeAdapter(models.CountRequest), QdrantServer._count),
    ("POST", "/points/query"): (TypeAdapter(models.QueryRequest), QdrantServer._query),
    ("POST", "/points/query/batch"): (TypeAdapter(models.QueryRequestBatch), QdrantServer._query_batch),
}


def _done() -> dict[str, Any]:
    return {"operation_id": 1, "status": "completed"}


def _error(message: str) -> bytes:
    """Return the real server's envelope of errors; an unknown route has no body at all."""
    return json.dumps({"status": {"error": message}, "time": 0.0}).encode() if message else b""


def _filter_keys(node: Any) -> Iterator[str]:
    """Yield the payload fields that the filters of a request name, at any depth."""
    if isinstance(node, list):
        for item in node:
            yield from _filter_keys(item)
    elif isinstance(node, dict):
        for name in ("must", "should", "must_not"):
            conditions = node.get(name) or []
            for condition in conditions if isinstance(conditions, list) else [conditions]:
                if "key" in condition:
                    yield condition["key"]
        for child in node.values():
            yield from _filter_keys(child)
