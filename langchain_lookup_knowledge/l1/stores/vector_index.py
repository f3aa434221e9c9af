"""The interface of vector indexes, embedded or on a server, and the types that they write and
return.

A passage is one point with named vectors. `dense` is the embedding, and `passage` is BM25 of the
text. The first passage of each entry also has `entry`, BM25 of the whole entry, and `frontmatter`,
BM25 of the title, keywords and entities.
"""

import hashlib
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, NamedTuple, Protocol

from langchain_lookup_knowledge.errors import StoreError
from langchain_lookup_knowledge.l1.fusion import RARE, Hit, PointId, Ranked
from langchain_lookup_knowledge.l1.stores.sparse import (
    SparseVector,
    encode_query,
    query_terms,
    single_terms,
)
from langchain_lookup_knowledge.text.search_terms import inner_numbers

PAYLOAD_VERSION = 7
MAX_COSINE = 1.001
"""Maximum cosine, with a margin for rounding."""
SPARSE_VECTORS = ("passage", "entry", "frontmatter")
CATEGORY_FIELD = "metadata.categories_key"
ENTRY_FIELD = "metadata.entry_id"
DIGEST_FIELD = "metadata.digest"
SHOWN_FIELDS = (
    "page_content",
    *(
        f"metadata.{key}"
        for key in (
            "entry_id",
            "digest",
            "passage",
            "title",
            "source",
            "heading",
            "lines",
            "place",
            "sources",
            "categories",
            "fingerprint",
        )
    ),
)
"""Payload fields that are read to show a passage."""
FOUND_FIELDS = (ENTRY_FIELD, DIGEST_FIELD, "metadata.fingerprint")
"""Payload fields that a search on a server returns: the entry of a passage, and the values that
show whether its payload has changed since it was last read.
"""
ATTRIBUTE_FIELD = "metadata.attributes"
"""What scopes ask for: the attributes that the entry with the passage shares with all entries that
the passage is embedded from.
"""
FILTER_FIELD = "metadata.entry_attributes"
"""What callers' filters ask for: the attributes and folders of the entry that a passage is found
in.
"""
EMBEDDED_FIELD = "metadata.embedded"
"""False in a passage without a usable vector, `WORDS_ONLY` in one that is not embedded because the
model does not know its language; absent otherwise.
"""
WORDS_ONLY = "words"
INDEXED_FIELDS = (CATEGORY_FIELD, ENTRY_FIELD, DIGEST_FIELD, ATTRIBUTE_FIELD, FILTER_FIELD)
"""Fields with a keyword index. All fields that filters use have one, because a server in strict
mode refuses to filter by other fields.
"""
INDEX_COMMAND = "run `lookup-knowledge index` on the knowledge folder, or kb.sync()"
REBUILD_COMMAND = (
    "run `lookup-knowledge index --rebuild` on the knowledge folder, or kb.sync(rebuild=True)"
)

PayloadFilter = Sequence[tuple[str, Sequence[str]]]
"""Payload fields with their allowed values. A passage must match every field; an empty filter
matches every passage.
"""
Fingerprint = Mapping[str, str | int]


@dataclass(frozen=True, slots=True)
class Point:
    """One passage to store: `sparse` maps the names of BM25 vectors to the texts they encode;
    `dense` may be missing.
    """

    entry_id: str
    number: int
    dense: Sequence[float] | None
    sparse: Mapping[str, str]
    payload: Mapping[str, Any]

    @property
    def id(self) -> int:
        """The id of the passage, the same in every index: a 64-bit hash of its entry and number.

        Searches return hundreds of ids, and integers cost far less than UUIDs.
        """
        return point_id(self.entry_id, self.number)

    @property
    def is_unembedded(self) -> bool:
        """Whether the model gave no usable vector for the passage."""
        return not self.dense and self.payload.get("metadata", {}).get("embedded") != WORDS_ONLY


def point_id(entry_id: str, number: int) -> int:
    """Return the id of a passage, made from the id of its entry and its number in the entry."""
    name = f"{entry_id}\n{number}".encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.blake2b(name, digest_size=8).digest())


class Search(NamedTuple):
    """One search of a lookup: it compares `vector` with the passage vectors that are named `using`.

    `name` is the name of the ranked list; a search for a single term has a `term` instead.
    """

    name: str
    using: str
    vector: Sequence[float] | SparseVector
    limit: int
    term: str = ""


@dataclass(frozen=True, slots=True)
class SearchResponse:
    """The ranked lists for each filter, and a function that reads stored payloads.

    Payloads are read only for the passages to show, because reading all of them costs more than the
    search.
    """

    lists: list[Ranked]
    payloads: Callable[[Collection[PointId]], dict[PointId, Mapping[str, Any]]]
    """Returns `page_content` and `metadata` by point id, from the version of the index that was
    searched.
    """
    caveat: str | None = None
    """A caveat if the index is being built, so that only a part of it was searched."""


@dataclass(frozen=True, slots=True)
class Contents:
    """The contents of an index: the fingerprint it was built with, and a digest of each entry.

    `unembedded`: entries with a passage that has no usable vector. An index determines them by
    itself, so `write` ignores this field. `owner`: the id of the knowledge base that a collection
    on a server belongs to; an embedded index has none. `faults`: what the next sync has to mend in
    a collection on a server, such as a missing payload index.
    """

    fingerprint: Fingerprint
    digests: Mapping[str, str]
    unembedded: tuple[str, ...] = ()
    owner: str | None = None
    faults: tuple[str, ...] = ()


class VectorIndex(Protocol):
    """An index of passages. Methods that fail raise a StoreError, with the fix in its message."""

    @property
    def embedded(self) -> bool:
        """Whether opening a knowledge base may write this index."""

    @property
    def read_only(self) -> bool:
        """Whether the index was created elsewhere. Then it is never written, and its categories are
        spelled as in the files.
        """

    def version(self) -> str | None:
        """Return a version that changes on every write by any process; None if finding it would
        need a request.
        """

    def warm(self) -> None:
        """Open the index for the first search, without sending a request to a server."""

    def verify(self) -> None:
        """Check the files of an embedded index against their checksums; do nothing on a server."""

    def fingerprint(self) -> Fingerprint | None:
        """Return the properties that the index was built with, or None if it was never written."""

    def contents(self) -> Contents | None:
        """Return the contents of the index, or None if it was never written."""

    def lock(self) -> AbstractContextManager[None]:
        """Hold the write lock from reading the contents to the end of the write."""

    def write(
        self,
        contents: Contents,
        removed: Iterable[str],
        points: Iterable[Sequence[Point]],
        *,
        rebuild: bool = False,
    ) -> None:
        """Make the index hold `contents`: drop old points of the `removed` entries, add batches of
        points.

        `rebuild` starts from scratch, even if the index is damaged.
        """

    def search(
        self,
        dense: Sequence[float] | None,
        text: str,
        filters: Sequence[PayloadFilter],
        limit: int,
        glossary: Sequence[str] = (),
    ) -> SearchResponse:
        """Return the ranked lists for each filter, in one round trip; a list has at most `limit`
        passages.

        `dense` is the vector of the query; if it is None, only the words of the query are searched
        for. `glossary`: other forms of query words; passages with these forms are returned in a
        separate list.
        """

    def close(self) -> None:
        """Close files and connections."""


def searches(
    dense: Sequence[float] | None, text: str, limit: int, glossary: Sequence[str] = ()
) -> list[Search]:
    """Return the searches of a lookup: by meaning, by all words of the text, by the words that the
    glossary adds, and by each term of the text alone.
    """
    terms = query_terms(text)
    added = [term for term in query_terms("\n".join(glossary)) if term not in terms]
    numbers = inner_numbers(text)
    named = [term for term in terms if term not in numbers]  # page 14 is not about 2.14.3
    by_words, by_names = encode_query(terms), encode_query(named)
    names = SPARSE_VECTORS if terms else ()
    return [
        *([Search("dense", "dense", dense, limit)] if dense else ()),
        *(Search(n, n, by_words if n == "passage" else by_names, limit) for n in names),
        *([Search("glossary", "passage", encode_query(added), limit)] if added else ()),
        *(Search("", "passage", encode_query([t]), RARE + 1, t) for t in single_terms(terms)),
    ]


def entry_id_of(point: Any) -> str | None:
    """Return the entry id of a point, or None if this package did not write the point."""
    metadata = (point.payload or {}).get("metadata")
    entry_id = metadata.get("entry_id") if isinstance(metadata, dict) else None
    return entry_id if isinstance(entry_id, str) else None


def group_by_filter(
    filters: int,
    searches: Sequence[Search],
    answers: Sequence[Sequence[Hit]],
) -> list[Ranked]:
    """Return the ranked lists of each filter, without foreign points (which have no entry id) and
    without scores that are not finite.
    """
    if len(answers) != len(searches) * filters:
        raise StoreError("the index returned the wrong number of answers")
    if not searches:
        return [Ranked({}) for _ in range(filters)]
    ranked = []
    for start in range(0, len(answers), len(searches)):
        lists: dict[str, Sequence[Hit]] = {}
        terms: dict[str, Sequence[Hit]] = {}
        for search, found in zip(searches, answers[start:], strict=False):
            (terms if search.term else lists)[search.term or search.name] = _usable(found)
        if any(abs(hit.score) > MAX_COSINE for hit in lists.get("dense", ())):
            raise StoreError("the index returned cosines outside -1 to 1: do not trust it")
        ranked.append(Ranked(lists, terms))
    return ranked


def _usable(found: Sequence[Hit]) -> Sequence[Hit]:
    if all(map(_entry_id, found)) and math.isfinite(sum(map(_score, found))):  # the usual case
        return found
    return [hit for hit in found if hit.entry_id and math.isfinite(hit.score)]


_entry_id, _score = itemgetter(1), itemgetter(2)
