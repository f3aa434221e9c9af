"""Requests to L1 (vector search), and their outcomes."""

import time
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field

from langchain_lookup_knowledge.l1.indexing import attribute
from langchain_lookup_knowledge.l1.stores.vector_index import (
    ATTRIBUTE_FIELD,
    CATEGORY_FIELD,
    FILTER_FIELD,
    PayloadFilter,
    VectorIndex,
)
from langchain_lookup_knowledge.reading.entry import Entry, category_key
from langchain_lookup_knowledge.reading.metadata.filters import FOLDER, Condition, Conditions
from langchain_lookup_knowledge.scope import PUBLIC, Scope
from langchain_lookup_knowledge.types import Candidate, L1Report, L1Status

TIMEOUT = 2.0
"""Default time limit of a request, in seconds."""


@dataclass(frozen=True, slots=True)
class L1Request:
    """A search request to L1.

    `entries`: the entries that the caller may see and that pass the filters, by id. `visible`: the
    ids of all entries that the caller may see; None if there are no filters. `categories`: each is
    searched separately, all in one round trip; None means all categories. `limit`: maximum
    candidates per category. `min_similarity`: minimum dense cosine of a candidate, -1 to 1; None
    keeps all
    candidates. `scope`: the field values that decide which entries the caller may see.
    `conditions`: the filters of the caller. `timeout`: maximum seconds, including embedding and one
    retry. `glossary`: other forms of query words.
    """

    query: str
    entries: Mapping[str, Entry]
    categories: tuple[str | None, ...] = (None,)
    limit: int = 10
    min_similarity: float | None = None
    scope: Scope = ()
    conditions: Conditions = ()
    visible: Container[str] | None = None
    timeout: float = TIMEOUT
    glossary: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class L1Outcome:
    """The result of a request: a report on its first category, and the candidates per category;
    after a failure there are no candidates.

    `terms`: the query terms that were searched individually, each with the number of passages that
    contain it, at most `fusion.RARE + 1`, in the last category of the request. `caveat`: a
    limitation that applies to all candidates; it is also the reason of an "ok" report.
    """

    report: L1Report
    candidates: tuple[list[Candidate], ...] = ()
    terms: Mapping[str, int] = field(default_factory=dict)
    caveat: str | None = None


def l1_report(
    status: L1Status, reason: str | None = None, candidates: int = 0, started: float | None = None
) -> L1Report:
    """Return a report of L1; `started` is the start of the call, by `time.perf_counter`."""
    elapsed = 0.0 if started is None else round((time.perf_counter() - started) * 1000, 3)
    return {"status": status, "reason": reason, "candidates": candidates, "elapsed_ms": elapsed}


def payload_filter(index: VectorIndex, category: str | None, request: L1Request) -> PayloadFilter:
    named = [(CATEGORY_FIELD, _spellings(index, category, request))] if category else []
    allowed = [
        (ATTRIBUTE_FIELD, [attribute(field.casefold(), value), attribute(*PUBLIC)])
        for field, value in request.scope
    ]
    return [*named, *allowed, *map(_condition_filter, request.conditions)]


def _condition_filter(condition: Condition) -> tuple[str, Sequence[str]]:
    if condition.field == "category":
        return CATEGORY_FIELD, condition.values
    if condition.attributes:
        return FILTER_FIELD, [attribute(key, value) for key, value in condition.attributes]
    key = FOLDER if condition.field == "folder" else condition.field
    return FILTER_FIELD, [attribute(key, value) for value in condition.values]


def _spellings(index: VectorIndex, category: str, request: L1Request) -> list[str]:
    """Return the spellings of a category in an index: the folded one, or those in the files if the
    index was created elsewhere.
    """
    key = category_key(category)
    if not index.read_only:
        return [key]
    written = {name for entry in request.entries.values() for name in entry.categories}
    return sorted(name for name in written if category_key(name) == key)
