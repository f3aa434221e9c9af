"""Where passages live: one Protocol for the embedded index and for servers, and what both write and find.

A passage is one point with named vectors: `dense`, the embedding; `passage`, BM25 of its text; and, on the first passage of
each entry, `entry` and `frontmatter`, BM25 of the whole entry and of its title, keywords and entities.
"""

import math
import re
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Protocol

from langchain_lookup_knowledge.errors import StoreError
from langchain_lookup_knowledge.merging import Hit, PointId

if TYPE_CHECKING:
    import qdrant_edge

_NUMBER = re.compile(r"(?<![A-Za-z\d])(?=\d{3})")
"""Where a number of three digits or more begins: an id, a port, a code. Shorter ones are mostly those of lists."""
PAYLOAD_VERSION = 5
MAX_COSINE = 1.001
"""What a cosine may be with rounding."""
SPARSE_VECTORS = ("passage", "entry", "frontmatter")
CATEGORY_FIELD = "metadata.categories_key"
ENTRY_FIELD = "metadata.entry_id"
DIGEST_FIELD = "metadata.digest"
ATTRIBUTE_FIELD = "metadata.attributes"
INDEXED_FIELDS = (CATEGORY_FIELD, ENTRY_FIELD, DIGEST_FIELD, ATTRIBUTE_FIELD)
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
    """One passage to store: `sparse` maps the names of BM25 vectors to the texts they encode; `dense` may be missing."""

    entry_id: str
    number: int
    dense: Sequence[float] | None
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

    @property
    def adopted(self) -> bool:
        """Whether others made it, so that it bears no fingerprint of ours and holds categories as they are written."""

    def version(self) -> str | None:
        """Return a mark that changes with each write, whoever writes; None where that cannot be told at once."""

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
def bm25() -> "qdrant_edge.Bm25":
    import qdrant_edge  # noqa: PLC0415

    return qdrant_edge.Bm25(qdrant_edge.Bm25Config(tokenizer=qdrant_edge.TokenizerType.Multilingual))


def bm25_query(text: str) -> "qdrant_edge.SparseVector":
    """Return the words of a query as the sparse vector that finds them."""
    return bm25().embed_query(_with_numbers(text))


def bm25_document(text: str) -> "qdrant_edge.SparseVector":
    """Return the words of a text as the sparse vector by which they are found."""
    return bm25().embed_document(_with_numbers(text))


def _with_numbers(text: str) -> str:
    """Return a text with a letter before its numbers, since the tokenizer drops what is digits alone."""
    return _NUMBER.sub("n", text)


INHERITED: list[Any] = []
"""Shards and clients that a forked child has of its parent, never closed there: threads and connections are the parent's."""


def entry_id_of(point: Any) -> str | None:
    """Return the entry of a point; None of one that is not this package's."""
    metadata = (point.payload or {}).get("metadata")
    entry_id = metadata.get("entry_id") if isinstance(metadata, Mapping) else None
    return entry_id if isinstance(entry_id, str) else None


def by_filter(
    filters: int, names: Sequence[str], lists: Sequence[Sequence[tuple[PointId, str | None, float]]]
) -> list[Ranked]:
    """Return the named lists of each filter, the dense one first, without points of others and scores that are not numbers."""
    if len(lists) != len(names) * filters:
        raise StoreError("the index answered another number of searches than it was sent")
    hits = [
        [Hit(i, entry_id, score) for i, entry_id, score in found if entry_id and math.isfinite(score)]
        for found in lists
    ]
    if any(abs(hit.score) > MAX_COSINE for dense in hits[:: len(names)] for hit in dense):
        raise StoreError("the index gives cosines outside -1 to 1: it is not one to trust")
    return [dict(zip(names, hits[i * len(names) :][: len(names)], strict=True)) for i in range(filters)]
