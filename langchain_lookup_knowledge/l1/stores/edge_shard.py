"""Calls to Qdrant Edge: creating, opening and writing a shard, and translating its errors."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from langchain_lookup_knowledge.errors import LookupKnowledgeError, StoreError
from langchain_lookup_knowledge.l1.models.native import native_calls
from langchain_lookup_knowledge.l1.stores.sparse import SparseVector, encode_document
from langchain_lookup_knowledge.l1.stores.vector_index import (
    ENTRY_FIELD,
    INDEXED_FIELDS,
    REBUILD_COMMAND,
    SPARSE_VECTORS,
    Point,
)

if TYPE_CHECKING:
    import qdrant_edge


def create(path: Path, dimensions: int) -> "qdrant_edge.EdgeShard":
    """Create an empty shard with its vectors and its indexed fields."""
    import qdrant_edge as edge  # noqa: PLC0415

    path.mkdir(parents=True)
    config = edge.EdgeConfig(
        vectors={"dense": edge.EdgeVectorParams(size=dimensions, distance=edge.Distance.Cosine)},
        sparse_vectors={
            name: edge.EdgeSparseVectorParams(modifier=edge.Modifier.Idf) for name in SPARSE_VECTORS
        },
        wal_enabled=False,
        # saved in the shard; more threads would cost more than they gain
        max_search_threads=1,
    )
    shard = edge.EdgeShard.create(str(path), config)
    for field in INDEXED_FIELDS:
        _update(
            shard, edge.UpdateOperation.create_field_index(field, edge.PayloadSchemaType.Keyword)
        )
    return shard


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

    for entry_id in removed:
        unembedded.discard(entry_id)
        _update(
            shard,
            edge.UpdateOperation.delete_points_by_filter(edge_filter((ENTRY_FIELD, [entry_id]))),
        )
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
