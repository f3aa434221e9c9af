"""A Qdrant Edge index in a folder: the Qdrant engine runs in this process; one process may write
and any number may read.
"""

import shutil
import threading
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

from langchain_lookup_knowledge import forks
from langchain_lookup_knowledge.durable import (
    check_plain,
    copy_folder,
    make_folder,
    write_durably,
)
from langchain_lookup_knowledge.errors import IndexMissingError, StoreError
from langchain_lookup_knowledge.l1.fusion import Hit, PointId, new_hit
from langchain_lookup_knowledge.l1.models.native import native_calls
from langchain_lookup_knowledge.l1.stores import generations
from langchain_lookup_knowledge.l1.stores.edge_shard import (
    apply,
    create,
    edge_filter,
    edge_vector,
    found_by_id,
    has_indexed_fields,
    has_vectors,
    index_fields,
    load,
    load_to_write,
    settle,
    translated,
)
from langchain_lookup_knowledge.l1.stores.payloads import KeptPayloads
from langchain_lookup_knowledge.l1.stores.vector_index import (
    ENTRY_FIELD,
    INDEX_COMMAND,
    SHOWN_FIELDS,
    Contents,
    Fingerprint,
    PayloadFilter,
    Point,
    SearchResponse,
    entry_id_of,
    group_by_filter,
    searches,
)

if TYPE_CHECKING:
    import qdrant_edge

MAX_PAYLOADS = 5_000
"""Maximum payloads of an open index that are kept in memory; they take about 10 MB."""
MAX_FILTERS = 100
"""Maximum filters of a small index whose passages are kept in memory."""
_Read = TypeVar("_Read")


class _OpenShard(NamedTuple):
    """An open generation (one version of the index), with the cached entries and payloads of the
    points that searches have returned.
    """

    generation: str
    shard: "qdrant_edge.EdgeShard"
    known: dict[PointId, str]
    payloads: KeptPayloads
    indexed: bool
    filters: "dict[tuple[tuple[str, tuple[str, ...]], ...], qdrant_edge.Filter]"
    """Filters converted to passage ids: at most `MAX_FILTERS`, and only without payload indexes."""

    @classmethod
    def of(cls, generation: Path, shard: "qdrant_edge.EdgeShard") -> "_OpenShard":
        """Return the open shard of a generation, with nothing cached."""
        payloads = KeptPayloads(MAX_PAYLOADS)
        return cls(generation.name, shard, {}, payloads, has_indexed_fields(shard), {})

    def condition(self, payload_filter: PayloadFilter) -> "qdrant_edge.Filter | None":
        """Return the filter for a search.

        Without payload indexes, each search would read the payloads of all passages. So they are
        read once for each filter, and searches ask for the ids that were found.
        """
        if not payload_filter:
            return None
        if self.indexed:
            return edge_filter(*payload_filter)
        key = tuple((field, tuple(values)) for field, values in payload_filter)
        found = self.filters.get(key)
        if found is None:
            found = found_by_id(self.shard, edge_filter(*payload_filter))
            if len(self.filters) >= MAX_FILTERS:
                self.filters.clear()
            self.filters[key] = found  # which another thread may clear at once
        return found

    def hits(self, answers: Sequence[Sequence[Any]]) -> list[list[Hit]]:
        """Return the answers of searches as hits.

        The entries of new points are read once and cached: reading payloads at each search would
        cost far more.
        """
        known = self.known
        try:
            return [_hits(found, known) for found in answers]
        except KeyError:
            self._learn({point.id for found in answers for point in found} - known.keys())
        return [_hits(found, known) for found in answers]

    def _learn(self, unknown: Collection[PointId]) -> None:
        records = self._retrieve(unknown, [ENTRY_FIELD])
        self.known.update(dict.fromkeys(unknown, ""))
        self.known.update((record.id, entry_id_of(record) or "") for record in records)

    def stored(self, point_ids: Collection[PointId]) -> dict[PointId, Mapping[str, Any]]:
        """Return the payloads of points by id."""
        return self.payloads.of(point_ids, self._read)

    def _read(self, point_ids: Collection[PointId]) -> dict[PointId, Mapping[str, Any]]:
        with translated("the index cannot be read"), native_calls.running():
            records = self._retrieve(point_ids, SHOWN_FIELDS)
            return {record.id: record.payload or {} for record in records}

    def _retrieve(self, point_ids: Collection[PointId], fields: Sequence[str]) -> Sequence[Any]:
        import qdrant_edge as edge  # noqa: PLC0415

        selected = edge.PayloadSelector.Include(list(fields))
        return self.shard.retrieve(
            cast(Any, list(point_ids)), with_payload=selected, with_vector=False
        )


def _hits(found: Sequence[Any], known: Mapping[PointId, str]) -> list[Hit]:
    ids = [point.id for point in found]
    scores = [point.score for point in found]
    return list(map(new_hit, zip(ids, map(known.__getitem__, ids), scores, strict=True)))


class EmbeddedIndex:
    """A Qdrant Edge index in a folder, which one process may write and any number may read.

    A write builds a new generation (a folder with the whole index) and then writes its name to the
    file `CURRENT`. A reader opens the generation named there, so it sees the old state or the new
    one, never a mix, even if a writer is killed.
    """

    embedded = True
    read_only = False

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._pointer = folder / "CURRENT"
        self._lock = threading.Lock()
        self._open: _OpenShard | None = None
        forks.register(self)

    def _generation(self) -> Path | None:
        return generations.current(self._folder)

    def _at_current(self, read: Callable[[Path], _Read]) -> _Read | None:
        """Read the current generation; if a writer replaces it meanwhile, read the new one."""
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
        self._opened()

    def fingerprint(self) -> Fingerprint | None:
        contents = self.contents()
        return contents.fingerprint if contents else None

    def contents(self) -> Contents | None:
        manifest = self._at_current(generations.read_manifest)
        if manifest is None:
            return None
        unembedded = tuple(manifest["unembedded"])
        return Contents(manifest["fingerprint"], manifest["digests"], unembedded)

    def verify(self) -> None:
        with translated("the index cannot be read"):
            self._at_current(_verified)

    def write(
        self,
        contents: Contents,
        removed: Iterable[str],
        points: Iterable[Sequence[Point]],
        *,
        rebuild: bool = False,
    ) -> None:
        with translated("the index cannot be written"):
            current = None if rebuild else self._generation()
            target = self._folder / f"generation-{uuid.uuid4().hex[:12]}"
            make_folder(self._folder)
            before = _verified(current) if current else {}
            generations.check_room(self._folder, current)
            try:
                built = self._build(target, current, before, contents, removed, points)
                write_durably(self._pointer, target.name)
            except BaseException:
                if self.version() != target.name:  # otherwise `CURRENT` names it already
                    shutil.rmtree(target, ignore_errors=True)
                raise
            with self._lock:
                self._open = _OpenShard.of(target, built)
            generations.remove_all_but(self._folder, current, target)

    def _build(
        self,
        target: Path,
        current: Path | None,
        before: Mapping[str, Any],
        contents: Contents,
        removed: Iterable[str],
        points: Iterable[Sequence[Point]],
    ) -> "qdrant_edge.EdgeShard":
        """Write a generation, and return its shard, open for reading."""
        dimensions = int(contents.fingerprint["dimensions"])
        if current is None:
            shard = create(target / "shard", dimensions)
        else:
            copy_folder(current / "shard", target / "shard")
            shard = load_to_write(target / "shard", dimensions)
        unembedded: set[str] = set(before.get("unembedded", ()))
        room = partial(generations.check_free, self._folder)
        try:
            apply(shard, unembedded, removed, points, room)
            index_fields(shard)
            settle(shard)
        finally:
            shard.close()
        # the first load after a write removes journals: do it here, before files are hashed
        settled = load(target / "shard")
        count = settled.info().points_count
        vectors = has_vectors(settled, dimensions)
        generations.write_manifest(target, contents, count, unembedded, vectors=vectors)
        return settled

    @contextmanager
    def lock(self) -> Iterator[None]:
        from filelock import FileLock, Timeout  # noqa: PLC0415

        path = self._folder / "writer.lock"
        lock = FileLock(path, timeout=0)
        with translated("the index cannot be written"):
            make_folder(self._folder)
            check_plain(path)
            try:
                lock.acquire()
            except Timeout as error:
                raise StoreError(
                    "another process is writing the index: wait until it is done"
                ) from error
        try:
            yield
        finally:
            lock.release()

    def after_fork(self) -> None:
        """Open the shard again at the next search: the lock's holder and the shard's threads exist
        only in the parent.
        """
        forks.keep_inherited(self._open)
        self._lock, self._open = threading.Lock(), None

    def _opened(self) -> _OpenShard:
        opened = self._at_current(self._opened_at)
        if opened is None:
            raise IndexMissingError(f"there is no index: {INDEX_COMMAND}")
        return opened

    def _opened_at(self, generation: Path) -> _OpenShard:
        with self._lock:
            if self._open is None or self._open.generation != generation.name:
                with translated("the index cannot be opened"):
                    shard = _checked(generation)
                    self._open = _OpenShard.of(generation, shard)
            return self._open

    def search(
        self,
        dense: Sequence[float] | None,
        text: str,
        filters: Sequence[PayloadFilter],
        limit: int,
        glossary: Sequence[str] = (),
    ) -> SearchResponse:
        import qdrant_edge as edge  # noqa: PLC0415

        opened = self._opened()
        planned = searches(dense, text, limit, glossary)
        queries = [
            (edge.Query.Nearest(edge_vector(search.vector), using=search.using), search.limit)
            for search in planned
        ]
        with translated("the index cannot be searched"), native_calls.running():
            requests = [
                edge.QueryRequest(query=query, filter=condition, limit=most, with_payload=False)
                for condition in map(opened.condition, filters)
                for query, most in queries
            ]
            hits = opened.hits(opened.shard.query_batch(edge.QueryBatchRequest(requests)))
        return SearchResponse(group_by_filter(len(filters), planned, hits), opened.stored)

    def close(self) -> None:
        with self._lock:
            self._open = None


def _verified(generation: Path) -> dict[str, Any]:
    """Verify the files of a generation and return its manifest.

    Raises:
        IndexDamagedError: a file has changed since it was written.
    """
    manifest = generations.read_manifest(generation)
    generations.verify(generation, manifest)
    return manifest


def _checked(generation: Path) -> "qdrant_edge.EdgeShard":
    """Open the shard of a generation, and check that no passages are missing and that it has
    vectors if any were written.

    Raises:
        IndexDamagedError: it is damaged.
    """
    manifest = _verified(generation)
    shard = load(generation / "shard")
    points = shard.info().points_count
    if points != manifest["points"]:
        raise generations.damaged(f"it holds {points} of {manifest['points']} passages")
    embedded = bool(manifest["digests"].keys() - manifest["unembedded"])
    dimensions = int(manifest["fingerprint"]["dimensions"])
    if points and manifest.get("vectors", embedded) and not has_vectors(shard, dimensions):
        raise generations.damaged("it holds no vectors")
    return shard
