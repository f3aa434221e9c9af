"""Calls to Qdrant Edge: creating, opening and writing a shard, and translating its errors."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from langchain_lookup_knowledge.errors import LookupKnowledgeError, StoreError
from langchain_lookup_knowledge.l1.models.native import native_calls
from langchain_lookup_knowledge.l1.stores.sparse import SparseVector, encode_document
from langchain_lookup_knowledge.l1.stores.vector_index import (
    ATTRIBUTE_FIELD,
    CATEGORY_FIELD,
    ENTRY_FIELD,
    FILTER_FIELD,
    REBUILD_COMMAND,
    SPARSE_VECTORS,
    Point,
    point_id,
)

if TYPE_CHECKING:
    import qdrant_edge

SMALL_SHARD = 1_000
"""Maximum passages of a shard without payload indexes; each index takes 7 MB and 15 ms."""
LARGE_SHARD = 20_000
"""Passages from which on the index of words is kept on disk. Until then it is made at each load, in
about 15 µs a passage.
"""
MOST_DELETED = 0.05
"""Share of deleted passages from which on a large shard is written anew: they still count when the
rarity of a word is judged.
"""
_FILTERED_FIELDS = (CATEGORY_FIELD, ATTRIBUTE_FIELD, FILTER_FIELD)
_PASSAGES = "metadata.passages"


def _config(dimensions: int) -> "qdrant_edge.EdgeConfig":
    """Return the configuration of a shard, which is saved in it."""
    import qdrant_edge as edge  # noqa: PLC0415

    kilobytes = max(1, LARGE_SHARD * dimensions * 4 // 1024)  # 0 would turn it off
    return edge.EdgeConfig(
        # cold: by default, each opening fills 32 MB of memory, however few vectors there are;
        # what is searched was read before, to be verified
        vectors={
            "dense": edge.EdgeVectorParams(
                size=dimensions, distance=edge.Distance.Cosine, memory=edge.Memory.Cold
            )
        },
        sparse_vectors={
            name: edge.EdgeSparseVectorParams(modifier=edge.Modifier.Idf) for name in SPARSE_VECTORS
        },
        wal_enabled=False,
        max_search_threads=1,  # more threads would cost more than they gain
        # no graph (m=0): vectors are compared exactly
        hnsw_config=edge.HnswIndexConfig(m=0, ef_construct=4, full_scan_threshold=10_000),
        optimizers=edge.EdgeOptimizersConfig(
            indexing_threshold=kilobytes, deleted_threshold=MOST_DELETED
        ),
    )


def create(path: Path, dimensions: int) -> "qdrant_edge.EdgeShard":
    """Create an empty shard with its vectors; `index_fields` makes its payload indexes."""
    import qdrant_edge as edge  # noqa: PLC0415

    path.mkdir(parents=True)
    return edge.EdgeShard.create(str(path), _config(dimensions))


def load_to_write(path: Path, dimensions: int) -> "qdrant_edge.EdgeShard":
    """Open a shard to change it; a shard of an older version gets the present configuration."""
    import qdrant_edge as edge  # noqa: PLC0415

    with native_calls.running():
        return edge.EdgeShard.load(str(path), _config(dimensions))


def settle(shard: "qdrant_edge.EdgeShard") -> None:
    """Write the index of words of a large shard to disk, so that it is not made at each load.

    Later changes go to a segment of their own, until they are as many again.
    """
    with native_calls.running():
        if shard.info().points_count > LARGE_SHARD:
            shard.optimize()
        shard.flush()


def index_fields(shard: "qdrant_edge.EdgeShard") -> None:
    """Make the payload indexes that a shard of more than `SMALL_SHARD` passages lacks."""
    import qdrant_edge as edge  # noqa: PLC0415

    info = shard.info()
    if info.points_count <= SMALL_SHARD:
        return
    for field in _FILTERED_FIELDS:
        if field not in info.payload_schema:
            _update(
                shard,
                edge.UpdateOperation.create_field_index(field, edge.PayloadSchemaType.Keyword),
            )


def has_indexed_fields(shard: "qdrant_edge.EdgeShard") -> bool:
    """Return whether a shard has the payload indexes for filters."""
    return all(field in shard.info().payload_schema for field in _FILTERED_FIELDS)


def has_vectors(shard: "qdrant_edge.EdgeShard", dimensions: int) -> bool:
    """Return whether any passage of a shard has a dense vector."""
    import qdrant_edge as edge  # noqa: PLC0415

    query = edge.Query.Nearest([1.0] * dimensions, using="dense")
    request = edge.QueryRequest(query=query, limit=1, with_payload=False)
    with native_calls.running():
        return any(shard.query_batch(edge.QueryBatchRequest([request])))


def load(path: Path) -> "qdrant_edge.EdgeShard":
    """Open a shard; damaged files may crash the process, so call `generations.verify` first."""
    import qdrant_edge as edge  # noqa: PLC0415

    with native_calls.running():
        return edge.EdgeShard.load(str(path))


def apply(
    shard: "qdrant_edge.EdgeShard",
    unembedded: set[str],
    removed: Iterable[str],
    points: Iterable[Sequence[Point]],
    check_room: Callable[[], None],
) -> None:
    """Remove the old points of entries and add the new ones; `unembedded` is updated
    accordingly. `check_room` is called before each batch.
    """
    import qdrant_edge as edge  # noqa: PLC0415

    gone = list(removed)
    unembedded.difference_update(gone)
    if gone:
        _remove(shard, gone)
    for batch in points:
        check_room()
        unembedded.update(point.entry_id for point in batch if point.is_unembedded)
        _update(
            shard,
            edge.UpdateOperation.upsert_points(
                [
                    edge.Point(
                        id=point.id,
                        vector={
                            **({"dense": list(point.dense)} if point.dense else {}),
                            **{
                                name: edge_vector(encode_document(text, name))
                                for name, text in point.sparse.items()
                            },
                        },
                        payload=dict(point.payload),
                    )
                    for point in batch
                ]
            ),
        )


def _remove(shard: "qdrant_edge.EdgeShard", entry_ids: Sequence[str]) -> None:
    """Remove the points of entries by id; the first passage of an entry says how many it has.

    A search for them would read all payloads, because entries have no payload index.
    """
    import qdrant_edge as edge  # noqa: PLC0415

    first = {point_id(entry_id, 0): entry_id for entry_id in entry_ids}
    with native_calls.running():
        records = shard.retrieve(
            list(first), with_payload=edge.PayloadSelector.Include([_PASSAGES]), with_vector=False
        )
        most = shard.info().points_count
    ids: list[int] = []
    for record in records:
        passages = (record.payload or {}).get("metadata", {}).get("passages")
        if isinstance(passages, int) and passages > 0:
            entry_id = first.pop(cast(int, record.id))
            ids += [point_id(entry_id, number) for number in range(min(passages, most))]
    if ids:
        _update(shard, edge.UpdateOperation.delete_points(cast(Any, ids)))
    if first:
        others = edge_filter((ENTRY_FIELD, list(first.values())))
        _update(shard, edge.UpdateOperation.delete_points_by_filter(others))


def _update(shard: "qdrant_edge.EdgeShard", operation: "qdrant_edge.UpdateOperation") -> None:
    with native_calls.running():
        shard.update(operation)


def edge_vector(
    vector: Sequence[float] | SparseVector,
) -> "list[float] | qdrant_edge.SparseVector":
    """Return the Qdrant Edge object for a vector."""
    import qdrant_edge as edge  # noqa: PLC0415

    if isinstance(vector, SparseVector):
        return edge.SparseVector(indices=vector.indices, values=vector.values)
    return list(vector)


def edge_filter(*conditions: tuple[str, Sequence[str]]) -> "qdrant_edge.Filter":
    """Return the Qdrant Edge object for a filter; a passage must match all conditions."""
    import qdrant_edge as edge  # noqa: PLC0415

    return edge.Filter(
        must=[
            edge.FieldCondition(key=field, match=edge.MatchAny(any=list(values)))
            for field, values in conditions
        ]
    )


def found_by_id(
    shard: "qdrant_edge.EdgeShard", condition: "qdrant_edge.Filter"
) -> "qdrant_edge.Filter":
    """Return a filter for the ids of the points that match `condition` now."""
    import qdrant_edge as edge  # noqa: PLC0415

    most = max(1, shard.info().points_count)
    request = edge.ScrollRequest(
        limit=most, filter=condition, with_payload=False, with_vector=False
    )
    points, _ = shard.scroll(request)
    return edge.Filter(must=[edge.HasIdCondition({point.id for point in points})])


@contextmanager
def translated(what: str) -> Iterator[None]:
    """Turn the errors of Qdrant Edge (PyO3 exceptions of several types) and of the file system into
    StoreError.
    """
    try:
        yield
    except (LookupKnowledgeError, GeneratorExit, KeyboardInterrupt, SystemExit):
        raise
    except OSError as error:
        raise StoreError(f"{what}: {error.strerror or error}") from error
    except BaseException as error:  # Edge also raises panics, which are not subclasses of Exception
        raise StoreError(f"{what} ({type(error).__name__}): {REBUILD_COMMAND}") from error
