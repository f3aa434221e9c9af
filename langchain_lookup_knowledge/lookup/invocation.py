"""The record of a lookup, made from its state."""

import hashlib
import time
import uuid
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from langchain_lookup_knowledge.l1.fusion import RARE
from langchain_lookup_knowledge.l1.requests import l1_report
from langchain_lookup_knowledge.lookup.filters import no_filter
from langchain_lookup_knowledge.lookup.recording import caller, milliseconds
from langchain_lookup_knowledge.lookup.state import LookupState, no_hints, refused
from langchain_lookup_knowledge.text.storable import storable
from langchain_lookup_knowledge.types import Candidate, Invocation, LookupOptions, Match

if TYPE_CHECKING:
    from langchain_core.runnables import RunnableConfig

REPLAYED_OPTIONS = ("k", "filter_mode", "min_similarity", "l1_enabled")
"""Options that affect an answer; they are recorded, with the graph's `drop_weak`, so that a lookup
can be replayed.
"""
_INVOCATIONS = uuid.UUID("0c3b1a5e-6f0c-5d0e-9a7d-3c1f5b9d2e84")


def invocation_id(config: "RunnableConfig", query: str) -> str:
    """Return a new id. In a node of another graph, a rerun of that node gets the same id, so that a
    resumed lookup is recorded once.
    """
    namespace: str = (config.get("configurable") or {}).get("checkpoint_ns") or ""
    node = namespace.rpartition("|")[0]  # LangGraph's name of this run of the node above
    return str(uuid.uuid5(_INVOCATIONS, f"{node}\n{query}") if node else uuid.uuid4())


def invocation(
    state: LookupState,
    config: "RunnableConfig",
    options: LookupOptions,
    name: str,
    *,
    drop_weak: bool,
) -> Invocation:
    """Return the record of a lookup; the last step is timed until the record is passed to the
    recorder.
    """
    started = time.perf_counter()
    durations = {**state["durations_ms"], "l1_retrieve": state["l1"]["elapsed_ms"]}
    details: dict[str, Any] = {
        "l0_hints": state["hints"],
        "filter": state["filter"],
        "l1": state["l1"],
        "candidates": _trimmed(state["candidates"], "entry_id", "score", "similarity"),
        "matches": _evidence(state),
        "relevance": state["relevance"],
        "options": {
            **{name: getattr(options, name) for name in REPLAYED_OPTIONS},
            "drop_weak": drop_weak,
        },
        "steps": {**durations, "record_invocation": milliseconds(started)},
    }
    for part in ("scope", "filters"):
        if state[part]:
            details[part] = state[part]
    if hidden := _hidden(state):
        details["hidden"] = hidden
    if rare := {term: n for term, n in state["terms"].items() if n <= RARE}:
        details["rare"] = rare
    return {
        "id": state["invocation_id"],
        "tool_name": name,
        "query": state["query"],
        "status": state["status"],
        "retrieval_layer": state["retrieval_layer"],
        "retrieval_details": details,
        "l1_status": state["l1"]["status"],
        "result_count": len(state["matches"]),
        "primary_entry_id": state["primary"]["entry_id"] if state["primary"] else None,
        "duration_ms": round(
            max(0.0, time.time() - state["started_at"]) * 1000, 3
        ),  # the clock may be set back
        **caller(config),
        "created_at": datetime.fromtimestamp(state["started_at"], UTC).isoformat(),
    }


def cancelled(
    state: LookupState,
    config: "RunnableConfig",
    options: LookupOptions,
    name: str,
    *,
    drop_weak: bool,
) -> Invocation:
    """Return the record of a cancelled lookup; it may have been cancelled in any node."""
    query: object = state.get("query")
    empty: LookupState = {
        "invocation_id": str(uuid.uuid4()),
        "started_at": time.time(),
        "durations_ms": {},
        "scope": None,
        "filters": None,
        "hints": no_hints(),
        "filter": no_filter(),
        "candidates": [],
        "terms": {},
        **refused("the lookup was cancelled"),
    }
    whole: LookupState = {
        **empty,
        **state,
        "query": storable(query) if isinstance(query, str) else "",
    }
    if whole.get("l1", l1_report("ok")) == l1_report("ok"):  # not called, or still running
        whole["l1"] = l1_report("skipped", "the lookup was cancelled")
    made = invocation(whole, config, options, name, drop_weak=drop_weak)
    return {**made, "status": "cancelled"}


def passage_digest(text: str) -> str:
    """Return the digest of the text of a passage, as recorded."""
    return hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=6).hexdigest()


def _evidence(state: LookupState) -> list[dict[str, Any]]:
    """Return the matches without their texts: where each is, which words matched, and what it owes
    to meaning, words and hints, or to the reranker.
    """
    candidates = {candidate["entry_id"]: candidate for candidate in state["candidates"]}
    names = ("entry_id", "title", "heading", "lines", "score", "similarity", "layers", "matched")
    evidence = _trimmed(state["matches"], *names)
    for kept, match in zip(evidence, state["matches"], strict=True):
        kept["passages"] = _places(match)
        if candidates:
            reranked = bool(state["l1"].get("reranked"))
            kept["shares"] = _shares(match, candidates.get(match["entry_id"]), reranked=reranked)
    return evidence


def _places(match: Match) -> list[dict[str, Any]]:
    """Return where the passages of a match are, and the length and digest of each, best first."""
    places = []
    for passage in match["passages"]:
        text = match["snippet"][slice(*passage["span"])]
        place: dict[str, Any] = {
            "lines": passage["lines"],
            "chars": len(text),
            "digest": passage_digest(text),
        }
        if passage["heading"] != match["heading"]:
            place["heading"] = passage["heading"]
        if "path" in passage:
            place["path"] = passage["path"]
        places.append(place)
    return places


def _shares(match: Match, candidate: Candidate | None, *, reranked: bool) -> dict[str, float]:
    """Return the parts of a score that meaning, words and hints gave; their sum is the score. What
    a reranker gave takes the place of meaning and words.

    A match without hints that took another place has the score of that place.
    """
    score = match["score"]
    found = min(score, candidate["score"]) if candidate else 0.0
    if candidate and "L0" not in match["layers"]:
        found = score
    if reranked:
        return {"reranker": round(found, 4), "hints": round(score - found, 4)}
    by_meaning = candidate.get("meaning", 0.0) / (candidate["score"] or 1.0) if candidate else 0.0
    parts = {
        "meaning": found * by_meaning,
        "words": found * (1 - by_meaning),
        "hints": score - found,
    }
    return {name: round(part, 4) for name, part in parts.items()}


def _hidden(state: LookupState) -> dict[str, Any] | None:
    """Return the best candidate outside a category filter that was kept, or None."""
    kept = {candidate["entry_id"] for candidate in state["candidates"]}
    if state["filter"]["category"] is None or state["filter"]["relaxed"]:
        return None
    outside = (c for c in state.get("unfiltered", ()) if c["entry_id"] not in kept)
    best = next(outside, None)
    return best and {name: best[name] for name in ("entry_id", "title", "similarity")}


def _trimmed(items: Sequence[Mapping[str, Any]], *names: str) -> list[dict[str, Any]]:
    return [{name: item[name] for name in names} for item in items]
