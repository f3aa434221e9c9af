"""A Qdrant server on loopback: it answers the REST requests of `qdrant-client` as the real one
does, or misbehaves on demand.

The answers come from the client's own in-process store; what that lacks of a server (API keys,
payload indexes, strict mode and rate limits, checks of sizes, HTTP errors) is added here, in the
words and shapes of the real server.
"""

import json
import math
import re
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import parse_qs, unquote

from pydantic import TypeAdapter, ValidationError
from qdrant_client import models
from qdrant_client.local.qdrant_local import QdrantLocal

JSON: TypeAdapter[Any] = TypeAdapter(Any)


class Refusal(Exception):
    """What the server answers instead of a result."""

    def __init__(self, status: int, message: str, **headers: str) -> None:
        super().__init__(message)
        self.status = status
        self.headers = headers


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
            answer = self.qdrant.answer(self.command, self.path, self.headers, self.body)
            self.answer(answer[0], answer[1], **answer[2])

    do_GET = do_PUT = do_POST = do_DELETE = do_PATCH = _any

    def answer(
        self, status: int, body: bytes, *, length: int | None = None, **headers: str
    ) -> None:
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
    handler.qdrant.closing.wait()
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
    with suppress(OSError):  # until the client has had enough
        while not handler.qdrant.closing.wait(0.02):
            handler.wfile.write(b" ")
    return True


def late(seconds: float | None) -> Fault:
    """Give the proper answer after a while; None: when the server closes."""

    def fault(handler: Handler) -> bool:
        if handler.qdrant.closing.wait(seconds):
            handler.close_connection = True
            return True
        return False

    return fault


class QdrantServer:
    """The server, up from the start until `close`. `requests` and `bodies` list what it was
    asked.

    `read_only_key` may read and no more. `limits` are the strict mode of new collections, on top of
    `strict`, which forbids filters on fields without an index. `max_body` is the most bytes of a
    request, `prefix` the path before which a proxy answers 404, `tls` a certificate and its key.
    """

    def __init__(
        self,
        *,
        api_key: str | None = None,
        read_only_key: str | None = None,
        strict: bool = False,
        limits: dict[str, Any] | None = None,
        max_body: int = 32 << 20,
        prefix: str = "",
        tls: tuple[str, str] | None = None,
    ) -> None:
        self.api_key = api_key
        self.read_only_key = read_only_key
        self.closing = threading.Event()
        self.requests: list[str] = []
        self.bodies: list[bytes] = []
        unindexed = {"unindexed_filtering_retrieve": False, "unindexed_filtering_update": False}
        self.limits = {**(unindexed if strict else {}), **(limits or {})}
        self._max_body = max_body
        self._prefix = prefix
        self._fault: tuple[Fault, float, str] | None = None
        self._client = QdrantLocal(":memory:")
        self._indexed: dict[str, set[str]] = {}
        self._strict: dict[str, dict[str, Any]] = {}
        self._spent: list[tuple[float, str, int]] = []
        self._lock = threading.Lock()
        handler = type("BoundHandler", (Handler,), {"qdrant": self})
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._http.daemon_threads = True
        self._http.block_on_close = False
        self.port = self._http.server_port
        if tls:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*tls)
            self._http.socket = context.wrap_socket(
                self._http.socket, server_side=True, do_handshake_on_connect=False
            )
        self.url = f"{'https' if tls else 'http'}://127.0.0.1:{self.port}{prefix}"
        threading.Thread(
            target=self._http.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True
        ).start()

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
        """Have the next `times` requests whose line or body holds `where` go wrong; None mends the
        server.
        """
        self._fault = None if fault is None else (fault, times, where)

    def next_fault(self, handler: Handler) -> Fault | None:
        with self._lock:
            if (
                self._fault is None
                or self._fault[2] not in f"{handler.command} {handler.path} {handler.body!r}"
            ):
                return None
            fault, times, where = self._fault
            self._fault = (fault, times - 1, where) if times > 1 else None
            return fault

    def answer(
        self, method: str, path: str, headers: Any, body: bytes
    ) -> tuple[int, bytes, dict[str, str]]:
        started = time.perf_counter()
        try:
            self._check_key(method, path, headers.get("api-key"))
            if len(body) > self._max_body:
                sizes = (
                    f"({len(body)} bytes) is larger than allowed (limit: {self._max_body} bytes)"
                )
                raise Refusal(400, f"Payload error: JSON payload {sizes}.")
            with self._lock:
                result = self._result(method, path, body)
        except Refusal as refusal:
            plain = refusal.status in (401, 403)
            text = str(refusal).encode() if plain else _error(str(refusal))
            return refusal.status, text, refusal.headers
        except ValidationError as error:
            return 400, _error(f"Format error in JSON body: {error.error_count()} errors"), {}
        envelope = {"result": result, "status": "ok", "time": time.perf_counter() - started}
        if isinstance(result, models.VersionInfo):  # the one answer that comes without an envelope
            envelope = result
        return 200, JSON.dump_json(envelope, exclude_none=True), {}

    def _check_key(self, method: str, path: str, given: str | None) -> None:
        if not self.api_key or given == self.api_key:
            return
        if given is None or given != self.read_only_key:
            raise Refusal(
                401, "Invalid API key or JWT" if given else "Must provide an API key or a JWT"
            )
        reads = ("scroll", "count", "query", "query/batch", "points")
        is_read = method == "GET" or (method == "POST" and path.partition("?")[0].endswith(reads))
        if not is_read:
            raise Refusal(403, "Forbidden: Global manage access is required")

    def _result(self, method: str, path: str, body: bytes) -> Any:
        path, _, arguments = path.partition("?")
        if not path.startswith(self._prefix):
            raise Refusal(404, "")
        path = path.removeprefix(self._prefix)
        if (method, path) == ("GET", "/"):
            return models.VersionInfo(title="qdrant - vector search engine", version="1.9.0")
        if (method, path) == ("GET", "/collections"):
            return {"collections": [{"name": name} for name in self.collections()]}
        if (method, path) == ("GET", "/aliases"):
            return self._client.get_aliases()
        if (method, path) == ("POST", "/collections/aliases"):
            return self._change_aliases(models.ChangeAliasesOperation.model_validate_json(body))
        found = re.fullmatch(r"/collections/([^/]+)(/.*)?", path)
        if not found:
            raise Refusal(404, "")
        name, rest = unquote(found[1]), found[2] or ""
        if bad := set('<>:"/\\|?*\0\x1f') & set(name):
            said = f"value {name} invalid: collection name cannot contain {bad.pop()!r} char"
            raise Refusal(422, f"Validation error in path parameters: [name: {said}]")
        if (method, rest) == ("GET", "/exists"):
            return {"exists": self._client.collection_exists(name)}
        if (method, rest) == ("PUT", ""):
            return self._create(name, models.CreateCollection.model_validate_json(body))
        if (method, rest) == ("DELETE", ""):  # of an alias nothing is deleted
            self._indexed.pop(name, None)
            return self._client.delete_collection(name) or True
        if not self._client.collection_exists(name):
            raise Refusal(404, f"Not found: Collection `{name}` doesn't exist!")
        kind, answer = ROUTES.get((method, rest)) or _dropping(method, rest)
        parsed = kind.validate_json(body) if kind else None
        real = self.target(name)
        self._check_limits(real, rest, parse_qs(arguments), json.loads(body or b"{}"))
        return answer(self, real, parsed)

    def collections(self) -> list[str]:
        return [one.name for one in self._client.get_collections().collections]

    def target(self, name: str) -> str:
        """Return the collection behind an alias."""
        aliases = self._client.get_aliases().aliases
        return {one.alias_name: one.collection_name for one in aliases}.get(name, name)

    def restrict(self, name: str, **limits: Any) -> None:
        """Set the strict mode of a collection."""
        self._strict[self.target(name)] = limits

    def indexed(self, name: str) -> set[str]:
        """Return the payload fields of a collection that have an index."""
        return self._indexed[name]

    def drop_indexes(self, name: str, *fields: str) -> None:
        """Delete the payload indexes of some fields."""
        self._indexed[self.target(name)] -= set(fields)

    def make(self, name: str, metadata: dict[str, Any]) -> None:
        """Make a collection with metadata, as something else than a sync would."""
        dense = models.VectorParams(size=64, distance=models.Distance.COSINE)
        self._client.create_collection(name, {"dense": dense}, metadata=metadata)
        self._indexed[name] = set()

    def note(self, name: str, metadata: dict[str, Any]) -> None:
        """Change the metadata of a collection."""
        self._client.update_collection(name, metadata=metadata)

    def _change_aliases(self, body: models.ChangeAliasesOperation) -> bool:
        try:
            return self._client.update_collection_aliases(body.actions)
        except ValueError as error:
            raise Refusal(404, f"Not found: {error}") from error

    def _create(self, name: str, body: models.CreateCollection) -> bool:
        if self._client.collection_exists(name):
            raise Refusal(409, f"Wrong input: Collection `{name}` already exists!")
        given = body.strict_mode_config
        own = given.model_dump(exclude_none=True) if given and given.enabled else {}
        self._strict[name] = {**self.limits, **own}
        self._indexed[name] = set()
        return self._client.create_collection(
            name,
            vectors_config=body.vectors,
            sparse_vectors_config=body.sparse_vectors,
            metadata=body.metadata,
        )

    def _check_limits(self, name: str, rest: str, arguments: dict[str, Any], body: Any) -> None:
        """Refuse what exceeds the strict mode of a collection."""
        limits = self._strict.get(name, {})
        searches = body.get("searches", [body])
        asked = {
            "timeout": (int(arguments.get("timeout", ["0"])[0]), "max_timeout"),
            "search batch size": (len(searches), "search_max_batchsize"),
            "limit": (max(one.get("limit", 0) for one in searches), "max_query_limit"),
            "hnsw_ef": (
                max((one.get("params") or {}).get("hnsw_ef") or 0 for one in searches),
                "search_max_hnsw_ef",
            ),
            "upsert limit": (len(body.get("points", [])), "upsert_max_batchsize"),
        }
        if rest == "/points" and "ids" in body:
            del asked["upsert limit"]
        for words, (value, setting) in asked.items():
            if value > limits.get(setting, math.inf):
                _refuse(
                    f'Limit exceeded {value} > {limits[setting]} for "{words}"',
                    f'Reduce the "{words}" parameter to or below {limits[setting]}.',
                )
        conditions = list(_conditions(body))
        size = max((len(one["match"].get("any", [0])) for one in conditions), default=0)
        if size > limits.get("condition_max_size", math.inf):
            _refuse(
                f"Condition size limit reached ({size} > {limits['condition_max_size']})",
                "Reduce the size of your condition.",
            )
        most = max(len(list(_conditions(one))) for one in searches)
        if most > limits.get("filter_max_conditions", math.inf):
            _refuse(
                f"Filter condition limit reached ({most} > {limits['filter_max_conditions']})",
                "Reduce the amount of conditions of your filter.",
            )
        kind = "update" if rest == "/points/delete" else "retrieve"
        for key in (one["key"] for one in conditions):
            if (
                limits.get(f"unindexed_filtering_{kind}") is False
                and key not in self._indexed[name]
            ):
                _refuse(
                    f'Index required but not found for "{key}" of one of the following types: '
                    "[keyword]",
                    "Create an index for this key or use a different filter.",
                )
        self._spend(limits, rest, body, len(searches))

    def _spend(self, limits: dict[str, Any], rest: str, body: Any, searches: int) -> None:
        """Keep the rates: requests a minute, of which a write costs as many as it has points."""
        kind = "write" if (rest == "/points" and "points" in body) or "delete" in rest else "read"
        rate = limits.get(f"{kind}_rate_limit")
        if not rate or not rest.startswith("/points"):
            return
        cost = len(body.get("points", [])) if kind == "write" and "points" in body else searches
        now = time.monotonic()
        self._spent = [one for one in self._spent if one[0] > now - 60]
        spent = sum(one[2] for one in self._spent if one[1] == kind)
        said = f"Rate limiting exceeded: {kind.title()} rate limit exceeded"
        if cost > rate:
            more = (
                "request larger than than rate limiter capacity, please try to split your request"
            )
            raise Refusal(429, f"{said}, {more}")
        if spent + cost > rate:
            tokens = f"Operation requires {cost} tokens but only {rate - spent} were available"
            raise Refusal(429, f"{said}: {tokens}. Retry after 30s", retry_after="30")
        self._spent.append((now, kind, cost))

    def _info(self, name: str, _: None) -> Any:
        info = self._client.get_collection(name).model_dump(mode="json")
        info["payload_schema"] = {
            field: {"data_type": "keyword", "points": 0} for field in self._indexed[name]
        }
        if self._strict.get(name):
            info["config"]["strict_mode_config"] = {"enabled": True, **self._strict[name]}
        return info

    def _update(self, name: str, body: models.UpdateCollection) -> bool:
        if body.strict_mode_config:
            self._strict[name] = body.strict_mode_config.model_dump(exclude_none=True)
        return self._client.update_collection(name, metadata=body.metadata)

    def _index(self, name: str, body: models.CreateFieldIndex) -> Any:
        most = self._strict.get(name, {}).get("max_payload_index_count", math.inf)
        if len(self._indexed[name]) >= most:
            _refuse(
                f"Collection already has the maximum number of payload indices ({most})",
                "Please delete an existing index before creating a new one.",
            )
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
        given = {
            key: getattr(body, key) for key in ("limit", "offset", "with_payload", "with_vector")
        }
        given = {
            key.replace("with_vector", "with_vectors"): value
            for key, value in given.items()
            if value is not None
        }
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


ROUTES: dict[
    tuple[str, str], tuple[TypeAdapter[Any] | None, Callable[[QdrantServer, str, Any], Any]]
] = {
    ("GET", ""): (None, QdrantServer._info),
    ("PATCH", ""): (TypeAdapter(models.UpdateCollection), QdrantServer._update),
    ("PUT", "/index"): (TypeAdapter(models.CreateFieldIndex), QdrantServer._index),
    ("PUT", "/points"): (TypeAdapter(models.PointsList), QdrantServer._upsert),
    ("POST", "/points"): (TypeAdapter(models.PointRequest), QdrantServer._retrieve),
    ("POST", "/points/delete"): (TypeAdapter(models.PointsSelector), QdrantServer._delete),
    ("POST", "/points/scroll"): (TypeAdapter(models.ScrollRequest), QdrantServer._scroll),
    ("POST", "/points/count"): (TypeAdapter(models.CountRequest), QdrantServer._count),
    ("POST", "/points/query"): (TypeAdapter(models.QueryRequest), QdrantServer._query),
    ("POST", "/points/query/batch"): (
        TypeAdapter(models.QueryRequestBatch),
        QdrantServer._query_batch,
    ),
}


def _dropping(method: str, rest: str) -> tuple[None, Callable[[QdrantServer, str, Any], Any]]:
    """Return what deletes the payload index that a path names."""
    if method != "DELETE" or not rest.startswith("/index/"):
        raise Refusal(404, "")
    field = unquote(rest.removeprefix("/index/"))
    return None, lambda server, name, _: server.drop_indexes(name, field) or _done()


def _done() -> dict[str, Any]:
    return {"operation_id": 1, "status": "completed"}


def _error(message: str) -> bytes:
    """Return the real server's envelope of errors; an unknown route has no body at all."""
    return json.dumps({"status": {"error": message}, "time": 0.0}).encode() if message else b""


def _refuse(what: str, help_: str) -> None:
    """Refuse a request as strict mode does."""
    raise Refusal(400, f"Bad request: {what}. Help: {help_}")


def _conditions(node: Any) -> Iterator[Any]:
    """Yield the conditions on fields that the filters of a request hold, at any depth."""
    if isinstance(node, list):
        for item in node:
            yield from _conditions(item)
    elif isinstance(node, dict):
        for name in ("must", "should", "must_not"):
            conditions = node.get(name) or []
            for condition in conditions if isinstance(conditions, list) else [conditions]:
                if "key" in condition:
                    yield condition
        for child in node.values():
            yield from _conditions(child)
