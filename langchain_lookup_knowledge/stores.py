"""Where passages live: Qdrant Edge in a folder, or a Qdrant server, behind one Protocol. The only module that imports either.

A passage is one point with named vectors: `dense`, the embedding; `passage`, BM25 of its text; and, on the first passage of
each entry, `entry` and `frontmatter`, BM25 of the whole entry and of its title, keywords and entities.
"""

import json
import math
import os
import shutil
import threading
import uuid
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, cast

from pydantic import SecretStr

from langchain_lookup_knowledge.errors import (
    IndexMissing,
    LookupKnowledgeError,
    StoreError,
    StoreTimeout,
    StoreUnreachable,
)
from langchain_lookup_knowledge.merging import Hit, PointId

if TYPE_CHECKING:
    import qdrant_edge
    from qdrant_client import QdrantClient

PAYLOAD_VERSION = 3
SPARSE_VECTORS = ("passage", "entry", "frontmatter")
CATEGORY_FIELD = "metadata.categories_key"
ENTRY_FIELD = "metadata.entry_id"
DIGEST_FIELD = "metadata.digest"
INDEXED_FIELDS = (CATEGORY_FIELD, ENTRY_FIELD, DIGEST_FIELD)
"""Every field a filter names has a keyword index: a server in strict mode refuses the filter otherwise."""
INDEX_COMMAND = "run `lookup-knowledge index` on the knowledge folder, or kb.sync()"
REBUILD_COMMAND = "run `lookup-knowledge index --rebuild` on the knowledge folder, or kb.sync(rebuild=True)"

_POINT_NAMESPACE = uuid.UUID("5f4c2c9e-8d0f-5c57-9d6b-6f2f6f0a7a51")

Ranked = dict[str, list[Hit]]
Conditions = Sequence[tuple[str, Sequence[str]]]
"""A filter: each of these payload fields has one of these values. None at all lets every passage through."""
Fingerprint = Mapping[str, str | int]


@dataclass(frozen=True, slots=True)
class Point:
    """One passage to store: `sparse` maps the names of BM25 vectors to the texts they encode."""

    entry_id: str
    number: int
    dense: Sequence[float]
    sparse: Mapping[str, str]
    payload: Mapping[str, Any]

    @property
    def id(self) -> str:
        """The id of the passage, the same in every index."""
        return str(uuid.uuid5(_POINT_NAMESPACE, f"{self.entry_id}\n{self.number}"))


@dataclass(frozen=True, slots=True)
class Answer:
    """The ranked lists under each filter, and a way to read what is stored with some of their passages.

    Of most passages only the rank is needed, and reading all payloads costs more than the search.
    """

    lists: list[Ranked]
    payloads: Callable[[Collection[PointId]], dict[PointId, Mapping[str, Any]]]
    """Returns `page_content` and `metadata` by point id, of the state that was searched."""


@dataclass(frozen=True, slots=True)
class Contents:
    """What an index holds: the fingerprint it was built with, and a digest of each entry."""

    fingerprint: Fingerprint
    digests: Mapping[str, str]


class VectorIndex(Protocol):
    """A place for passages. Every method raises StoreError, with the fix in its message, when it cannot do its work."""

    @property
    def embedded(self) -> bool:
        """Whether opening a knowledge base may write this index."""

    def warm(self) -> None:
        """Load what the first search needs, without asking a server anything."""

    def fingerprint(self) -> Fingerprint | None:
        """Return what the index was built with, or None if it was never written."""

    def contents(self) -> Contents | None:
        """Return what the index holds, or None if it was never written."""

    def lock(self) -> AbstractContextManager[None]:
        """Keep other writers out from the look at what is there to the end of the write."""

    def write(
        self, contents: Contents, removed: Iterable[str], points: Iterable[Sequence[Point]], *, anew: bool = False
    ) -> None:
        """Make the index hold `contents`: drop what is old of the `removed` entries, add the points, given in batches.

        `anew` starts from nothing, whatever was there, in whatever state.
        """

    def search(self, dense: Sequence[float], text: str, filters: Sequence[Conditions], limit: int) -> Answer:
        """Return the ranked lists under each filter, all in one round trip; a list has at most `limit` passages."""

    def close(self) -> None:
        """Let go of files and connections."""


@cache
def _bm25() -> "qdrant_edge.Bm25":
    import qdrant_edge  # noqa: PLC0415

    return qdrant_edge.Bm25(qdrant_edge.Bm25Config(tokenizer=qdrant_edge.TokenizerType.Multilingual))


_MANIFEST = {"fingerprint": dict, "digests": dict, "points": int}


class _OpenShard(NamedTuple):
    """A generation that is open in a process, with the entries of the points that searches have met so far."""

    key: tuple[int, str]
    shard: "qdrant_edge.EdgeShard"
    entry_ids: dict[PointId, str]


_INHERITED: list[Any] = []
"""Shards that a forked child has of its parent, never closed there, for the threads they belong to stayed with the parent."""


class EmbeddedIndex:
    """A Qdrant Edge index in a folder, one process writing and any number reading.

    A write builds a new generation beside the current one and then moves the pointer file `CURRENT` to it, so that a
    reader, and a writer killed at any moment, meets the old state or the new one, never a mix. Readers follow the pointer.
    """

    embedded = True

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._pointer = folder / "CURRENT"
        self._lock = threading.Lock()
        self._open: _OpenShard | None = None

    def _generation(self) -> Path | None:
        try:
            name = self._pointer.read_text("utf-8")
        except FileNotFoundError:
            return None
        except (OSError, UnicodeDecodeError) as error:
            raise StoreError(f"the index is damaged: {REBUILD_COMMAND}") from error
        return self._folder / name

    def warm(self) -> None:
        _bm25()
        self._opened()

    def fingerprint(self) -> Fingerprint | None:
        contents = self.contents()
        return contents.fingerprint if contents else None

    def contents(self) -> Contents | None:
        generation = self._generation()
        if generation is None:
            return None
        manifest = self._manifest(generation)
        return Contents(manifest["fingerprint"], manifest["digests"])

    def _manifest(self, generation: Path) -> dict[str, Any]:
        try:
            manifest = json.loads((generation / "manifest.json").read_bytes())
            if all(isinstance(manifest[key], kind) for key, kind in _MANIFEST.items()):
                return cast(dict[str, Any], manifest)
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
            raise StoreError(f"the index is damaged: {REBUILD_COMMAND}") from error
        raise StoreError(f"the index is damaged: {REBUILD_COMMAND}")

    def write(
        self, contents: Contents, removed: Iterable[str], points: Iterable[Sequence[Point]], *, anew: bool = False
    ) -> None:
        with _translated("the index cannot be written"):
            current = None if anew else self._generation()
            target = self._folder / f"generation-{uuid.uuid4().hex[:12]}"
            try:
                self._build(target, current, contents, removed, points)
                write_durably(self._pointer, target.name)
            except BaseException:
                shutil.rmtree(target, ignore_errors=True)
                raise
            self._remove_all_but(current, target)

    def _build(
        self,
        target: Path,
        current: Path | None,
        contents: Contents,
        removed: Iterable[str],
        points: Iterable[Sequence[Point]],
    ) -> None:
        if current is None:
            shard = _create(target / "shard", int(contents.fingerprint["dimensions"]))
        else:
            _copy_sparse(current / "shard", target / "shard")
            shard = _load(target / "shard")
        try:
            _apply(shard, removed, points)
            shard.flush()
        finally:
            shard.close()
        settled = _load(target / "shard")  # the first load after a write removes journals: better here than in a reader
        count = settled.info().points_count
        settled.close()
        manifest = {"fingerprint": dict(contents.fingerprint), "digests": dict(contents.digests), "points": count}
        write_durably(target / "manifest.json", json.dumps(manifest, ensure_ascii=False))

    @contextmanager
    def lock(self) -> Iterator[None]:
        from filelock import FileLock, Timeout  # noqa: PLC0415

        lock = FileLock(self._folder / "writer.lock", timeout=0)
        with _translated("the index cannot be written"):
            self._folder.mkdir(parents=True, exist_ok=True)
            try:
                lock.acquire()
            except Timeout as error:
                raise StoreError("another process is writing the index: wait until it is done") from error
        try:
            yield
        finally:
            lock.release()

    def _remove_all_but(self, *kept: Path | None) -> None:
        """Remove old generations. The one before stays, for readers that are about to follow the pointer."""
        for old in self._folder.glob("generation-*"):
            if old not in kept:
                shutil.rmtree(old, ignore_errors=True)

    def _opened(self) -> _OpenShard:
        generation = self._generation()
        if generation is None:
            raise IndexMissing(f"there is no index: {INDEX_COMMAND}")
        with self._lock:
            key = (os.getpid(), generation.name)  # the threads of a shard do not follow into a forked child
            if self._open is not None and self._open.key[0] != key[0]:
                _INHERITED.append(self._open)
            if self._open is None or self._open.key != key:
                with _translated("the index cannot be opened"):
                    shard = _load(generation / "shard")
                if shard.info().points_count != self._manifest(generation)["points"]:
                    raise StoreError(f"the index is damaged: {REBUILD_COMMAND}")
                self._open = _OpenShard(key, shard, {})
            return self._open

    def search(self, dense: Sequence[float], text: str, filters: Sequence[Conditions], limit: int) -> Answer:
        import qdrant_edge as edge  # noqa: PLC0415

        opened = self._opened()
        sparse = _bm25().embed_query(text)
        names = ("dense", *(SPARSE_VECTORS if sparse.indices else ()))
        requests = [
            edge.QueryRequest(
                query=edge.Query.Nearest(list(dense) if name == "dense" else sparse, using=name),
                filter=_edge_filter(*conditions) if conditions else None,
                limit=limit,
                with_payload=False,
            )
            for conditions in filters
            for name in names
        ]
        with _translated("the index cannot be searched"):
            answers = opened.shard.query_batch(edge.QueryBatchRequest(requests))
            self._learn(opened, {point.id for points in answers for point in points} - opened.entry_ids.keys())
        lists = [[(point.id, opened.entry_ids.get(point.id), point.score) for point in points] for points in answers]
        return Answer(_by_filter(len(filters), names, lists), partial(_stored, opened.shard))

    def _learn(self, opened: _OpenShard, unknown: Collection[PointId]) -> None:
        """Look up the entries of points met for the first time: reading their payloads at each search costs far more."""
        import qdrant_edge as edge  # noqa: PLC0415

        if unknown:
            selected = edge.PayloadSelector.Include([ENTRY_FIELD])
            records = opened.shard.retrieve(list(unknown), with_payload=selected, with_vector=False)
            opened.entry_ids.update((record.id, entry_id) for record in records if (entry_id := _entry_id(record)))

    def close(self) -> None:
        with self._lock:
            self._open = None


def _stored(shard: "qdrant_edge.EdgeShard", point_ids: Collection[PointId]) -> dict[PointId, Mapping[str, Any]]:
    with _translated("the index cannot be read"):
        records = shard.retrieve(list(point_ids), with_payload=True, with_vector=False)
        return {record.id: record.payload or {} for record in records}


def _entry_id(point: Any) -> str | None:
    """Return the entry of a point; None of one that is not this package's."""
    metadata = (point.payload or {}).get("metadata")
    entry_id = metadata.get("entry_id") if isinstance(metadata, Mapping) else None
    return entry_id if isinstance(entry_id, str) else None


def _by_filter(
    filters: int, names: Sequence[str], lists: Sequence[Sequence[tuple[PointId, str | None, float]]]
) -> list[Ranked]:
    """Return the named lists of each filter, without points of others and scores that are not numbers."""
    if len(lists) != len(names) * filters:
        raise StoreError("the index answered another number of searches than it was sent")
    hits = [
        [Hit(i, entry_id, score) for i, entry_id, score in found if entry_id and math.isfinite(score)]
        for found in lists
    ]
    return [dict(zip(names, hits[i * len(names) :][: len(names)], strict=True)) for i in range(filters)]


def write_durably(path: Path, text: str) -> None:
    """Replace a file in one step that survives a power cut."""
    temporary = path.with_name(path.name + ".new")
    with temporary.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


def _copy_sparse(source: Path, target: Path) -> None:
    """Copy a shard. Its files are preallocated and mostly holes, which stay holes.

    A reader that opens the shard meanwhile replaces two files with themselves, by way of folders that come and go.
    """
    hole = bytes(1 << 16)
    for folder, folders, files in os.walk(source):
        folders[:] = [name for name in folders if not name.startswith(".atomicwrite")]
        copy = target / Path(folder).relative_to(source)
        copy.mkdir(parents=True, exist_ok=True)
        for name in files:
            with (Path(folder) / name).open("rb") as reader, (copy / name).open("wb") as writer:
                while data := reader.read(len(hole)):
                    if data == hole[: len(data)]:
                        writer.seek(len(data), os.SEEK_CUR)
                    else:
                        writer.write(data)
                writer.truncate()


def _create(path: Path, dimensions: int) -> "qdrant_edge.EdgeShard":
    import qdrant_edge as edge  # noqa: PLC0415

    path.mkdir(parents=True)
    config = edge.EdgeConfig(
        vectors={"dense": edge.EdgeVectorParams(size=dimensions, distance=edge.Distance.Cosine)},
        sparse_vectors={name: edge.EdgeSparseVectorParams(modifier=edge.Modifier.Idf) for name in SPARSE_VECTORS},
        wal_enabled=False,
    )
    shard = edge.EdgeShard.create(str(path), config)
    for field in INDEXED_FIELDS:
        shard.update(edge.UpdateOperation.create_field_index(field, edge.PayloadSchemaType.Keyword))
    return shard


def _load(path: Path) -> "qdrant_edge.EdgeShard":
    import qdrant_edge as edge  # noqa: PLC0415

    return edge.EdgeShard.load(str(path))


def _apply(shard: "qdrant_edge.EdgeShard", removed: Iterable[str], points: Iterable[Sequence[Point]]) -> None:
    import qdrant_edge as edge  # noqa: PLC0415

    for entry_id in removed:
        shard.update(edge.UpdateOperation.delete_points_by_filter(_edge_filter((ENTRY_FIELD, [entry_id]))))
    for batch in points:
        shard.update(
            edge.UpdateOperation.upsert_points(
                [
                    edge.Point(
                        id=point.id,
                        vector={
                            "dense": list(point.dense),
                            **{name: _bm25().embed_document(text) for name, text in point.sparse.items()},
                        },
                        payload=dict(point.payload),
                    )
                    for point in batch
                ]
            )
        )


def _edge_filter(*conditions: tuple[str, Sequence[str]]) -> "qdrant_edge.Filter":
    import qdrant_edge as edge  # noqa: PLC0415

    return edge.Filter(
        must=[edge.FieldCondition(key=field, match=edge.MatchAny(any=list(values))) for field, values in conditions]
    )


@contextmanager
def _translated(what: str) -> Iterator[None]:
    """Turn the errors of Qdrant Edge (PyO3 exceptions of several types) and of the file system into StoreError."""
    try:
        yield
    except (LookupKnowledgeError, GeneratorExit, KeyboardInterrupt, SystemExit):
        raise
    except OSError as error:
        raise StoreError(f"{what}: {error.strerror or error}") from error
    except BaseException as error:  # Edge raises exceptions of its own, and panics, which are no Exception
        raise StoreError(f"{what} ({type(error).__name__}): {REBUILD_COMMAND}") from error


class QdrantIndex:
    """A collection on a Qdrant server, cluster or cloud.

    Args:
        url: `http://host:6333` or `https://...`; `:memory:` is the client's own in-process store, for tests.
        collection: name of the collection; `kb.sync()` creates it, a lookup never does.
        api_key: a string or a `SecretStr`, sent with each request, never logged or stored.
        timeout: seconds a request may take.
        prefer_grpc: use gRPC where the server offers it.
        collection_options: passed to `create_collection`: shards, replicas, quantization, ...
    """

    embedded = False

    def __init__(
        self,
        url: str,
        collection: str,
        *,
        api_key: str | SecretStr | None = None,
        timeout: int = 5,
        prefer_grpc: bool = False,
        collection_options: Mapping[str, Any] | None = None,
    ) -> None:
        self.url = url
        self.collection = collection
        self._api_key = SecretStr(api_key) if isinstance(api_key, str) else api_key
        self._timeout = timeout
        self._prefer_grpc = prefer_grpc
        self._collection_options = dict(collection_options or {})
        self._lock = threading.Lock()
        self._client: QdrantClient | None = None

    def __repr__(self) -> str:
        return f"QdrantIndex(collection={self.collection!r})"

    @property
    def client(self) -> "QdrantClient":
        """The client, connected at first use."""
        with self._lock:
            if self._client is None:
                self._client = self._call(self._connect)
            return self._client

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
        )

    def _call(self, call: Callable[[], Any]) -> Any:
        """Run a request and turn each failure into a StoreError that names the fix and holds no secret."""
        from qdrant_client.http.exceptions import ResponseHandlingException, UnexpectedResponse  # noqa: PLC0415

        try:
            return call()
        except LookupKnowledgeError:
            raise
        except UnexpectedResponse as error:
            kind = IndexMissing if error.status_code == 404 else StoreError
            raise kind(self._refusal(error.status_code)) from None  # its text is the answer, which may hold the request
        except ResponseHandlingException as error:
            if "timeout" in type(error.source).__name__.lower():
                raise StoreTimeout("the Qdrant server did not answer in time") from error
            raise StoreUnreachable(
                f"the Qdrant server cannot be reached ({type(error.source).__name__}): check its URL"
            ) from error
        except Exception as error:  # gRPC, local mode and URL parsing each raise their own
            if "DEADLINE_EXCEEDED" in str(error):
                raise StoreTimeout("the Qdrant server did not answer in time") from error
            raise StoreError(
                f"the Qdrant request failed ({type(error).__name__}): check the URL and collection"
            ) from error

    def _refusal(self, status: int | None) -> str:
        if status in (401, 403):
            return f"the Qdrant server refuses the API key (HTTP {status}): check api_key"
        if status == 404:
            return f'collection "{self.collection}" does not exist: {INDEX_COMMAND}'
        return f'the Qdrant server refused the request on collection "{self.collection}" (HTTP {status})'

    def warm(self) -> None:
        _bm25()
        _ = self.client

    def fingerprint(self) -> Fingerprint | None:
        fingerprint: Fingerprint | None = self._call(self._fingerprint)
        return fingerprint

    def _fingerprint(self) -> Fingerprint | None:
        if not self.client.collection_exists(self.collection):
            return None
        fingerprint = (self.client.get_collection(self.collection).config.metadata or {}).get("lookup_knowledge")
        if not isinstance(fingerprint, dict):
            raise StoreError(f'collection "{self.collection}" was not made by this package: choose another name')
        return fingerprint

    def contents(self) -> Contents | None:
        contents: Contents | None = self._call(self._contents)
        return contents

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
                payload = (record.payload or {})["metadata"]
                found[payload["entry_id"], payload["digest"], payload["passages"]] += 1
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
        self._call(lambda: self._write(contents, removed, points, anew))

    def _write(self, contents: Contents, removed: Iterable[str], points: Iterable[Sequence[Point]], anew: bool) -> None:
        from qdrant_client import models  # noqa: PLC0415

        if anew and self._fingerprint() is not None:
            self.client.delete_collection(self.collection)
        if not self.client.collection_exists(self.collection):
            self._create(contents.fingerprint)
        for batch in points:
            self.client.upsert(self.collection, [_server_point(point) for point in batch], wait=True)
        for entry_id in removed:  # last, so that an entry is never missing while it is renewed
            old = _server_filter((ENTRY_FIELD, [entry_id]))
            if entry_id in contents.digests:
                new = models.MatchValue(value=contents.digests[entry_id])
                old.must_not = [models.FieldCondition(key=DIGEST_FIELD, match=new)]
            self.client.delete(self.collection, models.FilterSelector(filter=old), wait=True)

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
        if self.url != ":memory:":
            for field in INDEXED_FIELDS:
                self.client.create_payload_index(self.collection, field, models.PayloadSchemaType.KEYWORD)

    def search(self, dense: Sequence[float], text: str, filters: Sequence[Conditions], limit: int) -> Answer:
        from qdrant_client import models  # noqa: PLC0415

        encoded = _bm25().embed_query(text)
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
        answers = self._call(lambda: self.client.query_batch_points(self.collection, requests))
        lists = [[(point.id, _entry_id(point), point.score) for point in answer.points] for answer in answers]
        return Answer(_by_filter(len(filters), names, lists), self._stored)

    def _stored(self, point_ids: Collection[PointId]) -> dict[PointId, Mapping[str, Any]]:
        records = self._call(lambda: self.client.retrieve(self.collection, list(point_ids), with_payload=True))
        return {record.id: record.payload for record in records}

    def close(self) -> None:
        with self._lock:
            client, self._client = self._client, None
        if client is not None:
            client.close()


def _server_filter(*conditions: tuple[str, Sequence[str]]) -> Any:
    from qdrant_client import models  # noqa: PLC0415

    return models.Filter(
        must=[models.FieldCondition(key=field, match=models.MatchAny(any=list(values))) for field, values in conditions]
    )


def _server_point(point: Point) -> Any:
    from qdrant_client import models  # noqa: PLC0415

    vectors: dict[str, Any] = {"dense": list(point.dense)}
    for name, text in point.sparse.items():
        encoded = _bm25().embed_document(text)
        vectors[name] = models.SparseVector(indices=encoded.indices, values=encoded.values)
    return models.PointStruct(id=point.id, vector=vectors, payload=dict(point.payload))
