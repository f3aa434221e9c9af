"""Collections on a Qdrant server, cluster or cloud: those of this package, and those that others made."""

import importlib.metadata
import json
import math
import os
import re
import threading
import time
import unicodedata
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, cast

from pydantic import SecretStr

from langchain_lookup_knowledge.cleaning import clean, one_line, visible_text
from langchain_lookup_knowledge.deadlines import remaining
from langchain_lookup_knowledge.errors import (
    IndexMissing,
    LookupKnowledgeError,
    StoreError,
    StoreForbidden,
    StoreTimeout,
    StoreUnreachable,
)
from langchain_lookup_knowledge.merging import PointId
from langchain_lookup_knowledge.stores import (
    CATEGORY_FIELD,
    DIGEST_FIELD,
    ENTRY_FIELD,
    INDEX_COMMAND,
    INDEXED_FIELDS,
    INHERITED,
    REBUILD_COMMAND,
    SPARSE_VECTORS,
    Answer,
    Conditions,
    Contents,
    Fingerprint,
    Point,
    bm25,
    bm25_document,
    bm25_query,
    by_filter,
    entry_id_of,
)

if TYPE_CHECKING:
    from qdrant_client import QdrantClient

RETRY_PAUSE = 0.1
"""Seconds before a request that failed in passing is sent once more, if the time allows; a server may ask for more."""
MAX_RETRY_PAUSE = 10.0

T = TypeVar("T")

_UNINDEXED = re.compile(r'Index required but not found for \\?"([^"\\]+)')
_DIMENSIONS = re.compile(r"expected dim: (\d+), got (\d+)")
_GRPC_STATUS = {  # the HTTP status that says the same
    "INVALID_ARGUMENT": 400,
    "UNAUTHENTICATED": 401,
    "PERMISSION_DENIED": 403,
    "NOT_FOUND": 404,
    "RESOURCE_EXHAUSTED": 429,
    "INTERNAL": 500,
}


class QdrantIndex:
    """A collection on a Qdrant server, cluster or cloud.

    Args:
        url: `http://host:6333` or `https://...`; `:memory:` is the client's own in-process store, for tests.
        collection: name of the collection; `kb.sync()` creates it, a lookup never does.
        api_key: a string or a `SecretStr`, sent with each request, never logged or stored.
        timeout: seconds a request may take.
        prefer_grpc: use gRPC where the server offers it.
        collection_options: passed to `create_collection`: shards, replicas, quantization, ...
        client: a client of the caller's to use instead of one made of the above, which `close()` leaves alone.
    """

    embedded = False
    adopted = False

    def __init__(
        self,
        url: str,
        collection: str,
        *,
        api_key: str | SecretStr | None = None,
        timeout: int = 5,
        prefer_grpc: bool = False,
        collection_options: Mapping[str, Any] | None = None,
        client: "QdrantClient | None" = None,
    ) -> None:
        self.url = url
        self.collection = collection
        self._api_key = SecretStr(api_key) if isinstance(api_key, str) else api_key
        self._timeout = timeout
        self._prefer_grpc = prefer_grpc
        self._collection_options = dict(collection_options or {})
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._lent = client
        self._client = client

    def __repr__(self) -> str:
        return f"QdrantIndex(collection={self.collection!r})"

    @property
    def client(self) -> "QdrantClient":
        """The client, connected at first use; a forked child makes connections of its own."""
        self._leave_parent()
        with self._lock:
            if self._client is None:
                self._client = self.call(self._connect)
            return self._client

    def _leave_parent(self) -> None:
        if self._process != os.getpid() and self.url != ":memory:":
            INHERITED.append(self._client)
            self._process, self._lock, self._client = os.getpid(), threading.Lock(), None

    def _connect(self) -> "QdrantClient":
        from qdrant_client import QdrantClient  # noqa: PLC0415  (1.9 s)

        if self.url == ":memory:":
            return QdrantClient(location=":memory:")
        return QdrantClient(
            url=self.url,
            api_key=self._api_key.get_secret_value() if self._api_key else None,
            timeout=self._timeout,
            prefer_grpc=self._prefer_grpc,
            check_compatibility=False,
            event_hooks={"request": [_keep_within_deadline]},
        )

    def seconds(self) -> int:
        """Return how long a request may take: the client and the server count whole seconds."""
        return max(1, math.ceil(min(self._timeout, remaining())))

    def call(self, call: Callable[[], T]) -> T:
        """Run a request, once more if it failed in passing and the time allows."""
        try:
            return self._call_once(call)
        except StoreUnreachable as failure:
            pause = max(RETRY_PAUSE, getattr(failure.__cause__, "retry_after_s", 0))
            if pause >= min(remaining(), MAX_RETRY_PAUSE):
                raise
        time.sleep(pause)
        return self._call_once(call)

    def _call_once(self, call: Callable[[], T]) -> T:
        """Run a request, or several, and turn each failure into a StoreError that names the fix and holds no secret."""
        try:
            return call()
        except LookupKnowledgeError:
            raise
        except Exception as error:  # noqa: BLE001  (REST, gRPC, local mode and URL parsing each raise their own)
            failure = self._failure(error)  # the text of the client's error is the answer, which may hold the request
            raise failure from (error if isinstance(failure, StoreUnreachable) else None)

    def _failure(self, error: Exception) -> StoreError:
        """Return what a failure of the client means: REST, gRPC, local mode and URL parsing each raise their own."""
        import grpc  # noqa: PLC0415  (the client's own, as are its exceptions)
        from qdrant_client.common.client_exceptions import ResourceExhaustedResponse  # noqa: PLC0415
        from qdrant_client.http.exceptions import ResponseHandlingException, UnexpectedResponse  # noqa: PLC0415

        if isinstance(error, UnexpectedResponse):
            return self._refusal(error.status_code or 0, error.content.decode("utf-8", "replace"))
        if isinstance(error, ResourceExhaustedResponse):
            return self._refusal(429, "")
        if isinstance(error, ResponseHandlingException):
            return _broken_exchange(error.source)
        if isinstance(error, json.JSONDecodeError | AssertionError):  # an answer that the client cannot read
            return _broken_exchange(error)
        code = cast(Any, error).code().name if isinstance(error, grpc.RpcError) else ""
        if code == "DEADLINE_EXCEEDED":
            return StoreTimeout("the Qdrant server did not answer in time")
        if code == "UNAVAILABLE":
            return StoreUnreachable(f"the Qdrant server cannot be reached ({code}): check its URL")
        if code in _GRPC_STATUS:
            return self._refusal(_GRPC_STATUS[code], str(error))
        return StoreError(f"the Qdrant request failed ({type(error).__name__}): check the URL and collection")

    def _refusal(self, status: int, body: str) -> StoreError:
        """Return what an HTTP status means; of the body only the names of fields and sizes are told."""
        if status in (401, 403):
            return StoreForbidden(f"the Qdrant server refuses the API key (HTTP {status}): check api_key")
        if status == 404 and "doesn't exist" in body:
            return IndexMissing(f'collection "{self.collection}" does not exist: {INDEX_COMMAND}')
        if status == 404:
            ours = importlib.metadata.version("qdrant-client")
            server = f"the Qdrant server{self._server_version()}"
            what = f"{server} does not know a request of qdrant-client {ours} (HTTP 404)"
            return StoreError(f"{what}: update the server, or check its URL")
        if status == 429 or status >= 500:
            return StoreUnreachable(f"the Qdrant server is overloaded or out of order (HTTP {status}): look at its log")
        if field := _UNINDEXED.search(body):
            where = f'"{field[1]}" of collection "{self.collection}"'
            what = f"the Qdrant server is in strict mode and needs a payload index on {where}"
            return StoreError(f"{what}: {REBUILD_COMMAND}, or create a keyword index")
        if sizes := _DIMENSIONS.search(body):
            return StoreError(f"embedding is {sizes[2]}-d, collection is {sizes[1]}-d: {REBUILD_COMMAND}")
        return StoreError(f'the Qdrant server refused the request on collection "{self.collection}" (HTTP {status})')

    def _server_version(self) -> str:
        with suppress(Exception):  # only to be told if known
            return f" {self.client.info().version}"
        return ""

    def version(self) -> str | None:
        return None

    def warm(self) -> None:
        bm25()
        _ = self.client

    def fingerprint(self) -> Fingerprint | None:
        return self.call(self._fingerprint)

    def _fingerprint(self) -> Fingerprint | None:
        if not self.client.collection_exists(self.collection):
            return None
        fingerprint = (self.client.get_collection(self.collection).config.metadata or {}).get("lookup_knowledge")
        if not isinstance(fingerprint, dict):
            raise StoreError(f'collection "{self.collection}" was not made by this package: choose another name')
        return fingerprint

    def contents(self) -> Contents | None:
        return self.call(self._contents)

    def _contents(self) -> Contents | None:
        fingerprint = self._fingerprint()
        if fingerprint is None:
            return None
        found: Counter[tuple[str, str, int]] = Counter()
        offset: Any = None
        while True:
            fields = [ENTRY_FIELD, DIGEST_FIELD, "metadata.passages"]
            records, offset = self.client.scroll(self.collection, limit=1000, offset=offset, with_payload=fields)
            for record in records:
                if entry_id := entry_id_of(record):  # others may have put points of their own beside ours
                    payload = cast(dict[str, Any], record.payload)["metadata"]
                    found[entry_id, payload.get("digest", ""), payload.get("passages", 0)] += 1
            if offset is None:
                break
        digests = {entry_id: "incomplete" for entry_id, _, _ in found}
        states = Counter(entry_id for entry_id, _, _ in found)
        for (entry_id, digest, passages), count in found.items():
            if count == passages and states[entry_id] == 1:
                digests[entry_id] = digest
        return Contents(fingerprint, digests)

    def lock(self) -> AbstractContextManager[None]:
        return nullcontext()

    def write(
        self, contents: Contents, removed: Iterable[str], points: Iterable[Sequence[Point]], *, anew: bool = False
    ) -> None:
        self._call_once(lambda: self._write(contents, removed, points, anew))

    def _write(self, contents: Contents, removed: Iterable[str], points: Iterable[Sequence[Point]], anew: bool) -> None:
        from qdrant_client import models  # noqa: PLC0415

        if anew and self._fingerprint() is not None:
            self.client.delete_collection(self.collection)
        if not self.client.collection_exists(self.collection):
            self._create(contents.fingerprint)
        for batch in points:
            records = [_server_point(point) for point in batch]
            self.call(partial(self.client.upsert, self.collection, records, wait=True))
        for entry_id in removed:  # last, so that an entry is never missing while it is renewed
            old = _server_filter((ENTRY_FIELD, [entry_id]))
            if entry_id in contents.digests:
                new = models.MatchValue(value=contents.digests[entry_id])
                old.must_not = [models.FieldCondition(key=DIGEST_FIELD, match=new)]
            self.call(partial(self.client.delete, self.collection, models.FilterSelector(filter=old), wait=True))

    def _create(self, fingerprint: Fingerprint) -> None:
        from qdrant_client import models  # noqa: PLC0415

        idf = models.SparseVectorParams(modifier=models.Modifier.IDF)
        size = int(fingerprint["dimensions"])
        self.client.create_collection(
            self.collection,
            vectors_config={"dense": models.VectorParams(size=size, distance=models.Distance.COSINE)},
            sparse_vectors_config=dict.fromkeys(SPARSE_VECTORS, idf),
            metadata={"lookup_knowledge": dict(fingerprint)},
            **self._collection_options,
        )
        made_with = self.client.init_options
        is_local = made_with.get("location") == ":memory:" or made_with.get("path")
        if not is_local:  # local mode has no indexes, and warns
            for field in INDEXED_FIELDS:
                self.client.create_payload_index(self.collection, field, models.PayloadSchemaType.KEYWORD)

    def search(self, dense: Sequence[float], text: str, filters: Sequence[Conditions], limit: int) -> Answer:
        from qdrant_client import models  # noqa: PLC0415

        encoded = bm25_query(text)
        sparse = models.SparseVector(indices=encoded.indices, values=encoded.values)
        names = ("dense", *(SPARSE_VECTORS if encoded.indices else ()))
        requests = [
            models.QueryRequest(
                query=list(dense) if name == "dense" else sparse,
                using=name,
                filter=_server_filter(*conditions) if conditions else None,
                limit=limit,
                with_payload=[ENTRY_FIELD],
            )
            for conditions in filters
            for name in names
        ]
        answers = self.query(requests)
        lists = [[(point.id, entry_id_of(point), point.score) for point in answer.points] for answer in answers]
        return Answer(by_filter(len(filters), names, lists), self.stored)

    def query(self, requests: Sequence[Any]) -> list[Any]:
        """Return the answers to a batch of requests."""
        send = self.client.query_batch_points
        return self.call(lambda: send(self.collection, requests, timeout=self.seconds()))

    def stored(self, point_ids: Collection[PointId]) -> dict[PointId, Mapping[str, Any]]:
        """Return the payloads of points."""
        records = self.call(
            lambda: self.client.retrieve(self.collection, list(point_ids), with_payload=True, timeout=self.seconds())
        )
        return {record.id: record.payload or {} for record in records}

    def close(self) -> None:
        self._leave_parent()
        with self._lock:
            client, self._client = self._client, self._lent
        if client is not None and client is not self._lent:
            client.close()

    @classmethod
    def adopt(
        cls,
        url: str,
        collection: str,
        *,
        vector_name: str = "",
        content_key: str = "page_content",
        metadata_key: str = "metadata",
        entry_key: str = "source",
        title_key: str = "title",
        category_key: str = "category",
        root: str = "",
        **connection: Any,
    ) -> "AdoptedIndex":
        """Return an index that reads a collection others made, such as `langchain_qdrant`, and never writes it.

        Its passages take part by their dense similarity, if they were embedded with the model of the knowledge base, which
        nobody can check but for its dimensions.

        Args:
            url: as for `QdrantIndex`; so are the arguments in `connection`: `api_key`, `timeout`, `prefer_grpc`, `client`.
            collection: its name.
            vector_name: the name of its dense vector, compared by cosine; "" is the unnamed one.
            content_key: where the payload has the text.
            metadata_key: where the payload has the following; "" if they stand beside the text.
            entry_key: the path of the file, by which passages and the entries of L0 are joined.
            title_key: the title; where there is none, the path stands for it.
            category_key: the category, or a list of them, written as in the frontmatter.
            root: what to take off the front of the paths, to make them relative to the knowledge folder.
        """
        keys = _Keys(content_key, metadata_key, entry_key, title_key, category_key, root)
        return AdoptedIndex(cls(url, collection, **connection), vector_name, keys)


@dataclass(frozen=True, slots=True)
class _Keys:
    """Where the payload of an adopted collection has what a candidate shows."""

    content: str
    metadata: str
    entry: str
    title: str
    category: str
    root: str

    def path(self, key: str) -> str:
        return f"{self.metadata}.{key}" if self.metadata else key

    def entry_id(self, payload: Mapping[str, Any] | None) -> str | None:
        found = self._metadata(payload).get(self.entry)
        if not isinstance(found, str):
            return None
        return unicodedata.normalize("NFC", found.replace("\\", "/").removeprefix(self.root).lstrip("/"))

    def read(self, payload: Mapping[str, Any] | None) -> dict[str, Any] | None:
        """Return a payload as this package writes it; None if it has no text or no path."""
        text, entry_id = (payload or {}).get(self.content), self.entry_id(payload)
        if not isinstance(text, str) or not text.strip() or entry_id is None:
            return None
        metadata = self._metadata(payload)
        categories = metadata.get(self.category) or []
        shown = {
            "entry_id": entry_id,
            "title": one_line(str(metadata.get(self.title) or entry_id)),
            "categories": [
                one_line(str(name)) for name in (categories if isinstance(categories, list) else [categories])
            ],
            "source": entry_id,
            "heading": "",
        }
        return {"page_content": visible_text(clean(text)).strip(), "metadata": shown}

    def _metadata(self, payload: Mapping[str, Any] | None) -> Mapping[str, Any]:
        found = (payload or {}).get(self.metadata) if self.metadata else payload
        return found if isinstance(found, Mapping) else {}


class AdoptedIndex:
    """A collection that others made, read and never written; made by `QdrantIndex.adopt`."""

    embedded = False
    adopted = True

    def __init__(self, server: QdrantIndex, vector_name: str, keys: _Keys) -> None:
        self._server = server
        self._vector_name = vector_name
        self._keys = keys
        self._fingerprint: Fingerprint | None = None

    def __repr__(self) -> str:
        return f"AdoptedIndex(collection={self._server.collection!r})"

    def version(self) -> str | None:
        return None

    def warm(self) -> None:
        self._server.warm()

    def fingerprint(self) -> Fingerprint | None:
        if self._fingerprint is None:
            self._fingerprint = self._server.call(self._look)
        return self._fingerprint

    def _look(self) -> Fingerprint:
        vectors = self._server.client.get_collection(self._server.collection).config.params.vectors
        named = vectors if isinstance(vectors, Mapping) else {"": vectors}
        found = named.get(self._vector_name)
        if found is None:
            raise StoreError(
                f'the collection has no dense vector "{self._vector_name}": vector_name is one of {sorted(named)}'
            )
        if found.distance.value != "Cosine":
            raise StoreError(
                f"the collection compares vectors by {found.distance.value}, not by cosine: it cannot be adopted"
            )
        return {"dimensions": found.size}

    def contents(self) -> Contents | None:
        return None

    def lock(self) -> AbstractContextManager[None]:
        raise StoreError(self._refusal())

    def write(
        self, contents: Contents, removed: Iterable[str], points: Iterable[Sequence[Point]], *, anew: bool = False
    ) -> None:
        raise StoreError(self._refusal())

    def _refusal(self) -> str:
        return f'the collection "{self._server.collection}" is adopted, so it is read and never written'

    def search(self, dense: Sequence[float], text: str, filters: Sequence[Conditions], limit: int) -> Answer:
        from qdrant_client import models  # noqa: PLC0415

        self.fingerprint()
        fields = {CATEGORY_FIELD: self._keys.path(self._keys.category)}
        requests = [
            models.QueryRequest(
                query=list(dense),
                using=self._vector_name or None,
                filter=_server_filter(*((fields.get(field, field), values) for field, values in conditions))
                if conditions
                else None,
                limit=limit,
                with_payload=[self._keys.path(self._keys.entry)],
            )
            for conditions in filters
        ]
        answers = self._server.query(requests)
        points = [answer.points for answer in answers]
        lists = [[(point.id, self._keys.entry_id(point.payload), point.score) for point in found] for found in points]
        if any(lists) and not any(entry_id for found in lists for _, entry_id, _ in found):
            raise StoreError(f'no passage of the collection has "{self._keys.path(self._keys.entry)}": set entry_key')
        return Answer(by_filter(len(filters), ["dense"], lists), self._stored)

    def _stored(self, point_ids: Collection[PointId]) -> dict[PointId, Mapping[str, Any]]:
        stored = self._server.stored(point_ids)
        read: dict[PointId, Mapping[str, Any]] = {
            point_id: shown for point_id, payload in stored.items() if (shown := self._keys.read(payload))
        }
        if stored and not read:
            raise StoreError(f'no passage of the collection has a text under "{self._keys.content}": set content_key')
        return read

    def close(self) -> None:
        self._server.close()


def _keep_within_deadline(request: Any) -> None:
    """Keep each phase of a request of httpx (connect, write, read) within what is left of the time."""
    limits = request.extensions["timeout"]
    for phase, seconds in limits.items():
        limits[phase] = min(math.inf if seconds is None else seconds, max(remaining(), 0.001))


def _broken_exchange(source: Exception) -> StoreError:
    """Return what stopped an exchange of request and answer, which the client hands on as it came."""
    import httpx  # noqa: PLC0415  (the client's own)

    kind = type(source).__name__
    if isinstance(source, httpx.TimeoutException):
        return StoreTimeout("the Qdrant server did not answer in time")
    if isinstance(source, httpx.TransportError):
        return StoreUnreachable(f"the Qdrant server cannot be reached ({kind}): check its URL")
    return StoreError(f"the answer is not that of a Qdrant server ({kind}): check its URL")


def _server_filter(*conditions: tuple[str, Sequence[str]]) -> Any:
    from qdrant_client import models  # noqa: PLC0415

    return models.Filter(
        must=[models.FieldCondition(key=field, match=models.MatchAny(any=list(values))) for field, values in conditions]
    )


def _server_point(point: Point) -> Any:
    from qdrant_client import models  # noqa: PLC0415

    vectors: dict[str, Any] = {"dense": list(point.dense)} if point.dense else {}
    for name, text in point.sparse.items():
        encoded = bm25_document(text)
        vectors[name] = models.SparseVector(indices=encoded.indices, values=encoded.values)
    return models.PointStruct(id=point.id, vector=vectors, payload=dict(point.payload))
