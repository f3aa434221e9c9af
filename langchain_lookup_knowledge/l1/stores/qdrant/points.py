"""Filters, vectors and points as objects of the Qdrant client, and what is sent with each
request.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from langchain_lookup_knowledge.l1.fusion import Hit, new_hit
from langchain_lookup_knowledge.l1.stores.sparse import SparseVector, encode_document
from langchain_lookup_knowledge.l1.stores.vector_index import PayloadFilter, Point, Search

FINGERPRINT_KEY = "lookup_knowledge"
"""Metadata key of a collection for the fingerprint that this package writes."""
OWNER_KEY = "lookup_knowledge_id"
"""Metadata key of a collection for the id of its knowledge base."""
PROGRESS_KEY = "lookup_knowledge_progress"
"""Metadata key of a collection for the progress of a build; an empty value when it is done."""
PARTS_KEY = "lookup_knowledge_parts"
"""Metadata key of a collection for the number of parts in which several machines build it."""

READ_CONSISTENCIES = ("majority", "quorum", "all")
WRITE_ORDERINGS = ("weak", "medium", "strong")
SEARCH_PARAMS = ("hnsw_ef", "exact", "quantization", "indexed_only", "acorn", "idf")


@dataclass(frozen=True, slots=True)
class RequestOptions:
    """What is sent with each request, as `QdrantIndex` takes it."""

    read_consistency: int | str | None = None
    write_ordering: str | None = None
    search_params: Mapping[str, Any] | None = None
    shard_key: str | int | Sequence[str | int] | None = None

    def __post_init__(self) -> None:
        if not (self.read_consistency is None or isinstance(self.read_consistency, int)):
            _check_one_of("read_consistency", self.read_consistency, READ_CONSISTENCIES)
        if self.write_ordering is not None:
            _check_one_of("write_ordering", self.write_ordering, WRITE_ORDERINGS)
        for name in self.search_params or ():
            _check_one_of("search_params", name, SEARCH_PARAMS)

    @property
    def _consistency(self) -> Any:
        from qdrant_client import models  # noqa: PLC0415

        asked = self.read_consistency
        return models.ReadConsistencyType(asked) if isinstance(asked, str) else asked

    def read(self) -> dict[str, Any]:
        """Return the arguments of a scroll, or of reading points by their ids."""
        return _given(consistency=self._consistency, shard_key_selector=self._shard_key())

    def batch(self) -> dict[str, Any]:
        """Return the arguments of a batch of queries."""
        return _given(consistency=self._consistency)

    def query(self) -> dict[str, Any]:
        """Return the arguments of one query of a batch."""
        from qdrant_client import models  # noqa: PLC0415

        params = models.SearchParams(**self.search_params) if self.search_params else None
        return _given(params=params, shard_key=self._shard_key())

    def write(self) -> dict[str, Any]:
        """Return the arguments of a write."""
        from qdrant_client import models  # noqa: PLC0415

        ordering = models.WriteOrdering(self.write_ordering) if self.write_ordering else None
        return _given(ordering=ordering, shard_key_selector=self._shard_key())

    def shard_keys(self) -> list[str | int]:
        """Return the shard keys that a new collection must have."""
        key = self._shard_key()
        return [] if key is None else key if isinstance(key, list) else [key]

    def _shard_key(self) -> Any:
        key = self.shard_key
        return list(key) if isinstance(key, Sequence) and not isinstance(key, str) else key


def _check_one_of(name: str, given: Any, allowed: Sequence[str]) -> None:
    if given not in allowed:
        raise ValueError(f"{name} takes {', '.join(allowed)}, not {given!r}")


def _given(**arguments: Any) -> dict[str, Any]:
    return {name: value for name, value in arguments.items() if value is not None}


def query_requests(
    planned: Sequence[Search],
    filters: Sequence[PayloadFilter],
    fields: Sequence[str],
    options: RequestOptions,
) -> list[Any]:
    """Return the queries of a batch: each search under the first filter, then under the next."""
    from qdrant_client import models  # noqa: PLC0415

    given = options.query()
    return [
        models.QueryRequest(
            query=server_vector(search.vector),
            using=search.using or None,
            filter=server_filter(conditions),
            limit=search.limit,
            with_payload=list(fields),
            **given,
        )
        for conditions in filters
        for search in planned
    ]


def hits_of(
    answers: Sequence[Sequence[Any]], entry_id_of: Callable[[Any], str | None]
) -> list[list[Hit]]:
    """Return the points that queries found, as hits; a hit whose entry is unknown has the entry id
    "".
    """
    return [
        [new_hit((point.id, entry_id_of(point) or "", point.score)) for point in points]
        for points in answers
    ]


def server_filter(conditions: PayloadFilter) -> Any:
    """Return the qdrant-client object for a filter; None matches every passage."""
    from qdrant_client import models  # noqa: PLC0415

    if not conditions:
        return None
    return models.Filter(must=[any_of(field, values) for field, values in conditions])


def any_of(field: str, values: Sequence[str]) -> Any:
    """Return the condition that a payload field has at least one of these values."""
    from qdrant_client import models  # noqa: PLC0415

    return models.FieldCondition(key=field, match=models.MatchAny(any=list(values)))


def server_vector(vector: Sequence[float] | SparseVector) -> Any:
    """Return the qdrant-client object for a vector."""
    from qdrant_client import models  # noqa: PLC0415

    if isinstance(vector, SparseVector):
        return models.SparseVector(indices=vector.indices, values=vector.values)
    return list(vector)


def server_point(point: Point) -> Any:
    """Return the qdrant-client object for a passage."""
    from qdrant_client import models  # noqa: PLC0415

    vectors: dict[str, Any] = {"dense": list(point.dense)} if point.dense else {}
    vectors |= {
        name: server_vector(encode_document(text, name)) for name, text in point.sparse.items()
    }
    return models.PointStruct(id=point.id, vector=vectors, payload=dict(point.payload))
