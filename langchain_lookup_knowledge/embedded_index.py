"""Qdrant Edge in a folder: the Qdrant engine in this process, one process writing and any number reading."""

import json
import os
import shutil
import threading
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

from langchain_lookup_knowledge.durable import write_durably
from langchain_lookup_knowledge.errors import IndexMissing, LookupKnowledgeError, StoreError
from langchain_lookup_knowledge.merging import PointId
from langchain_lookup_knowledge.stores import (
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
    import qdrant_edge

LEAST_ROOM = 100_000_000
"""Bytes that must be free beside the size of the index itself: a new one takes up to 75 MB where files cannot have holes."""
_Read = TypeVar("_Read")
_MANIFEST = {"fingerprint": dict, "digests": dict, "points": int}


class _OpenShard(NamedTuple):
    """A generation that is open in a process, with the entries of the points that searches have met so far."""

    generation: str
    shard: "qdrant_edge.EdgeShard"
    entry_ids: dict[PointId, str]

    def with_entries(self, points: Sequence[tuple[PointId, float]]) -> list[tuple[PointId, str | None, float]]:
        """Return points and scores with the entries of the points, None where it is not known yet."""
        return [(point_id, self.entry_ids.get(point_id), score) for point_id, score in points]

    def learn(self, unknown: Collection[PointId]) -> None:
        """Look up the entries of points met for the first time: reading their payloads at each search costs far more."""
        import qdrant_edge as edge  # noqa: PLC0415

        selected = edge.PayloadSelector.Include([ENTRY_FIELD])
        records = self.shard.retrieve(cast(Any, list(unknown)), with_payload=selected, with_vector=False)
        self.entry_ids.update((record.id, entry_id_of(record) or "") for record in records)


class EmbeddedIndex:
    """A Qdrant Edge index in a folder, one process writing and any number reading.

    A write builds a new generation beside the current one and then moves the pointer file `CURRENT` to it, so that a
    reader, and a writer killed at any moment, meets the old state or the new one, never a mix. Readers follow the pointer.
    """

    embedded = True
    adopted = False

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._pointer = folder / "CURRENT"
        self._process = os.getpid()
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

    def _at_current(self, read: Callable[[Path], _Read]) -> _Read | None:
        """Read the current generation, and the next one where writers have moved on and removed it meanwhile."""
        while generation := self._generation():
            try:
                return read(generation)
            except StoreError:
                if self._generation() == generation:
                    raise
        return None

    def version(self) -> str | None:
        with suppress(StoreError):
            generation = self._generation()
            return generation.name if generation else None
        return None

    def warm(self) -> None:
        bm25()
        self._opened()

    def fingerprint(self) -> Fingerprint | None:
        contents = self.contents()
        return contents.fingerprint if contents else None

    def contents(self) -> Contents | None:
        manifest = self._at_current(self._manifest)
        return Contents(manifest["fingerprint"], manifest["digests"]) if manifest else None

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
            self._check_room(current)
            try:
                self._build(target, current, contents, removed, points)
                write_durably(self._pointer, target.name)
            except BaseException:
                if self.version() != target.name:  # else it is the current one: stopped after the pointer moved
                    shutil.rmtree(target, ignore_errors=True)
                raise
            self._remove_all_but(current, target)

    def _check_room(self, current: Path | None) -> None:
        """Refuse to write where there is no room: Qdrant maps its files into memory, and a full disk would end the process."""
        files = (path for _, paths in _walk(current) for path in paths) if current else ()
        used = sum(path.stat().st_blocks * 512 for path in files)
        self._folder.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(self._folder).free
        if free < LEAST_ROOM + used:
            needed = (LEAST_ROOM + used) // 1_000_000
            raise StoreError(
                f"the index needs {needed} MB of room, and {free // 1_000_000} MB are free: make room, or move it"
            )

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

    def _leave_parent(self) -> None:
        if self._process != os.getpid():  # the lock's holder and the shard's threads stayed with the parent
            INHERITED.append(self._open)
            self._process, self._lock, self._open = os.getpid(), threading.Lock(), None

    def _opened(self) -> _OpenShard:
        self._leave_parent()
        opened = self._at_current(self._opened_at)
        if opened is None:
            raise IndexMissing(f"there is no index: {INDEX_COMMAND}")
        return opened

    def _opened_at(self, generation: Path) -> _OpenShard:
        with self._lock:
            if self._open is None or self._open.generation != generation.name:
                with _translated("the index cannot be opened"):
                    shard = _load(generation / "shard")
                if shard.info().points_count != self._manifest(generation)["points"]:
                    raise StoreError(f"the index is damaged: {REBUILD_COMMAND}")
                self._open = _OpenShard(generation.name, shard, {})
            return self._open

    def search(self, dense: Sequence[float], text: str, filters: Sequence[Conditions], limit: int) -> Answer:
        import qdrant_edge as edge  # noqa: PLC0415

        opened = self._opened()
        sparse = bm25_query(text)
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
            scored = [[(point.id, point.score) for point in points] for points in answers]
            lists = [opened.with_entries(points) for points in scored]
            if unknown := {point_id for found in lists for point_id, entry_id, _ in found if entry_id is None}:
                opened.learn(unknown)
                lists = [opened.with_entries(points) for points in scored]
        return Answer(by_filter(len(filters), names, lists), partial(_stored, opened.shard))

    def close(self) -> None:
        self._leave_parent()
        with self._lock:
            self._open = None


def _stored(shard: "qdrant_edge.EdgeShard", point_ids: Collection[PointId]) -> dict[PointId, Mapping[str, Any]]:
    with _translated("the index cannot be read"):
        records = shard.retrieve(list(point_ids), with_payload=True, with_vector=False)
        return {record.id: record.payload or {} for record in records}


def _walk(generation: Path) -> Iterator[tuple[Path, list[Path]]]:
    """Walk the folders of a generation and their files.

    Left out are folders that come and go: a reader that opens a shard replaces two of its files by way of them.
    """
    for folder, folders, files in os.walk(generation, onerror=_raise):
        folders[:] = [name for name in folders if not name.startswith(".atomicwrite")]
        yield Path(folder), [Path(folder, name) for name in files]


def _raise(error: OSError) -> None:
    raise error


def _copy_sparse(source: Path, target: Path) -> None:
    """Copy a shard. Its files are preallocated and mostly holes, which stay holes."""
    hole = bytes(1 << 16)
    for folder, paths in _walk(source):
        copy = target / folder.relative_to(source)
        copy.mkdir(parents=True, exist_ok=True)
        for path in paths:
            with path.open("rb") as reader, (copy / path.name).open("wb") as writer:
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
        max_search_threads=1,  # kept in the shard: a search's lists run in turn, so that threads cost more than they gain
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
                            **({"dense": list(point.dense)} if point.dense else {}),
                            **{name: bm25_document(text) for name, text in point.sparse.items()},
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
