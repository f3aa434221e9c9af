"""The input and the state of the lookup graph."""

from collections.abc import Mapping
from typing import Any, NotRequired

from typing_extensions import TypedDict

from langchain_lookup_knowledge.scope import Scope
from langchain_lookup_knowledge.text.search_terms import is_respelled
from langchain_lookup_knowledge.types import (
    Candidate,
    FilterChoice,
    GlossaryJoin,
    Hints,
    L1Report,
    LookupResult,
    Match,
    PrimaryMatch,
    Recorded,
    Relevance,
    RetrievalLayer,
    Status,
)


class LookupInput(TypedDict):
    """The input of the graph.

    `filters` maps fields to values; an entry must match a value of each field. The fields are
    `category`, `folder`, and those in `FrontmatterFields.filterable`. A value is a text, a list of
    texts, or a range of days, `{"from": "2026-01-01", "to": "2026-12-31"}`, with either end
    optional. These filters are never relaxed.
    """

    query: str
    filters: NotRequired[dict[str, Any] | None]


class LookupState(TypedDict, total=False):
    """The state that the steps pass on, in plain JSON types that any checkpointer can store."""

    query: str
    invocation_id: str
    started_at: float
    durations_ms: dict[str, float]
    scope: dict[str, str] | None
    filters: dict[str, Any] | None
    status: Status
    retrieval_layer: RetrievalLayer
    primary: PrimaryMatch | None
    matches: list[Match]
    relevance: Relevance
    hints: Hints
    filter: FilterChoice
    l1: L1Report
    candidates: list[Candidate]
    unfiltered: list[Candidate]
    terms: dict[str, int]
    caveat: str | None
    features: dict[str, float]
    recorded: Recorded


def no_hints() -> Hints:
    """Return empty hints, for when nothing was found."""
    return {"titles": [], "keywords": [], "domains": [], "entities": [], "entries": [], "terms": []}


def scope_of(state: LookupState) -> Scope:
    """Return the scope of the caller; empty if there is none, or if the lookup is refused."""
    return tuple((state["scope"] or {}).items())


def joins_of(state: LookupState) -> list[GlossaryJoin]:
    """Return the words of the query that have other forms: in the glossary, or as a code that a
    keyword spells with other separators: the keyword `E-4711` for `E4711` in the query.
    """
    joins = state["hints"].get("glossary", [])
    for term in state["hints"]["terms"]:
        start, end = term["span"]
        written, form = state["query"][start:end], term["text"]
        if term["kind"] == "exact" and is_respelled(written, form):
            joins = [*joins, {"text": written, "span": [start, end], "forms": [form]}]
    return joins


def refused(reason: str) -> LookupState:
    """Return the result of a refused lookup."""
    relevance: Relevance = {"level": "none", "semantic_support": False, "reason": reason}
    return {
        "status": "refused",
        "retrieval_layer": "none",
        "primary": None,
        "matches": [],
        "relevance": relevance,
    }


def result_of(state: Mapping[str, Any]) -> LookupResult:
    """Return the result of a lookup whose steps have all run."""
    return {key: state[key] for key in LookupResult.__annotations__}  # type: ignore[return-value]
