"""The limits that a collection in strict mode sets, and requests that keep them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

T = TypeVar("T")

SCROLL = 1000
"""Number of points that a page of a scroll holds, without a limit."""
DELETED = 64
"""Number of entries whose passages one request removes, without a limit."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of a collection, by the names of its strict mode; None means no limit."""

    max_query_limit: int | None = None
    max_timeout: int | None = None
    search_max_batchsize: int | None = None
    search_max_hnsw_ef: int | None = None
    upsert_max_batchsize: int | None = None
    condition_max_size: int | None = None
    read_rate_limit: int | None = None
    write_rate_limit: int | None = None

    @classmethod
    def of(cls, info: Any) -> "Limits":
        """Return the limits in the description of a collection."""
        config = info.config.strict_mode_config
        if config is None or not config.enabled:
            return cls()
        return cls(**{name: getattr(config, name) for name in cls.__dataclass_fields__})

    @property
    def scroll(self) -> int:
        """The number of points that a page of a scroll may hold."""
        return min(SCROLL, self.max_query_limit or SCROLL)

    @property
    def deleted(self) -> int:
        """The number of values that a filter for a removal may name."""
        return min(DELETED, self.condition_max_size or DELETED)

    def seconds(self, wanted: int) -> int:
        """Return the time limit of a request."""
        return min(wanted, self.max_timeout or wanted)

    def upserts(self, points: Sequence[T]) -> Iterator[list[T]]:
        """Return parts of a list of points that each fit a write.

        For the rate limit, a write counts once for each point.
        """
        size = min(self.upsert_max_batchsize or len(points), self.write_rate_limit or len(points))
        return parts_of(points, size)

    def batches(self, requests: Sequence[T]) -> Iterator[list[T]]:
        """Return parts of a list of queries that each fit a batch.

        For the rate limit, a batch counts once for each query.
        """
        most = len(requests)
        size = min(self.search_max_batchsize or most, self.read_rate_limit or most)
        return parts_of(requests, size)

    def pages(self, request: Any) -> list[Any]:
        """Return queries that together ask the same as one query: longer lists are split by offset,
        and conditions with many values into alternatives.
        """
        if not (self.max_query_limit or self.condition_max_size or self.search_max_hnsw_ef):
            return [request]
        changes: dict[str, Any] = {}
        if self.condition_max_size and request.filter is not None:
            changes["filter"] = self.fit(request.filter)
        params = request.params
        if self.search_max_hnsw_ef and params is not None and params.hnsw_ef:
            ef = min(params.hnsw_ef, self.search_max_hnsw_ef)
            changes["params"] = params.model_copy(update={"hnsw_ef": ef})
        size = self.max_query_limit or request.limit
        return [
            request.model_copy(
                update={
                    **changes,
                    "limit": min(size, request.limit - start),
                    "offset": start or None,
                }
            )
            for start in range(0, request.limit, size)
        ]

    def fit(self, conditions: Any) -> Any:
        """Return a filter in which each condition has no more values than the server allows."""
        from qdrant_client import models  # noqa: PLC0415

        size = self.condition_max_size
        if not size:
            return conditions
        must = []
        for condition in conditions.must or ():
            values = condition.match.any
            if len(values) <= size:
                must.append(condition)
                continue
            parts = [models.MatchAny(any=part) for part in parts_of(values, size)]
            alternatives: list[Any] = [
                models.FieldCondition(key=condition.key, match=part) for part in parts
            ]
            must.append(models.Filter(should=alternatives))
        return conditions.model_copy(update={"must": must})


def parts_of(items: Sequence[T], size: int) -> Iterator[list[T]]:
    """Return consecutive parts of a list that each hold at most `size` items."""
    return (list(items[start : start + size]) for start in range(0, len(items), max(1, size)))
