"""Recorded lookups run again, to show how a changed folder, model or index changes the answers.

A replay is not recorded.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from langchain_lookup_knowledge.knowledge_base import KnowledgeBase
from langchain_lookup_knowledge.lookup.graph import create_lookup_knowledge_graph
from langchain_lookup_knowledge.lookup.invocation import REPLAYED_OPTIONS
from langchain_lookup_knowledge.records.rows import hints_of, readable_details
from langchain_lookup_knowledge.types import Invocation, LookupOptions

L1_SECONDS = 30.0
"""Longer than the default: a replay compares answers, not response times."""


def replay(
    kb: KnowledgeBase, invocations: Iterable[Invocation]
) -> Iterator[tuple[Invocation, dict[str, Any]]]:
    """Run lookups again with their recorded options, and yield each with its changes.

    A record of an older version does not say whether weak matches were left out of it. Then only
    as many matches as it has are compared.
    """
    graphs: dict[tuple[LookupOptions, bool], Any] = {}
    for invocation in invocations:
        details = readable_details(invocation["retrieval_details"])
        options = _options(invocation, details)
        drop_weak = details["options"].get("drop_weak")
        key = options, drop_weak is True
        if key not in graphs:
            graphs[key] = create_lookup_knowledge_graph(
                kb, record=None, options=options, drop_weak=drop_weak is True
            )
        result = graphs[key].invoke(
            {"query": invocation["query"], "filters": details["filters"]},
            {"configurable": details["scope"]},
        )
        if not isinstance(drop_weak, bool):
            result = {**result, "matches": result["matches"][: len(details["matches"])]}
        yield invocation, changes(invocation, result)


def _options(invocation: Invocation, details: Mapping[str, Any]) -> LookupOptions:
    """Return the options a lookup ran with; options that were not recorded are inferred from its
    answer.
    """
    given = {
        name: value
        for name, value in details["options"].items()
        if name in REPLAYED_OPTIONS and _is_option(name, value)
    }
    if not details["options"]:
        given["k"] = min(100, max(LookupOptions().k, invocation["result_count"] or 0))
        if details["filter"]["reason"] == "off":
            given["filter_mode"] = "off"
    if invocation["l1_status"] == "disabled":
        given["l1_enabled"] = False
    return LookupOptions(**given, l1_timeout=L1_SECONDS, scope_fields=tuple(details["scope"]))


def _is_option(name: str, value: object) -> bool:
    try:
        LookupOptions(**{name: value})  # type: ignore[arg-type]
    except (ValueError, TypeError):
        return False
    return True


def changes(before: Invocation, after: Mapping[str, Any]) -> dict[str, Any]:
    """Return how a result differs from the recorded one; empty if it does not differ.

    `lost` and `gained`: entries with their rank, from 1. `moved`: entries that are in both results,
    but in another order. The other keys hold the old and the new value: `status`, `layer`, `l1`,
    `relevance`, `filter`, and `categories` of the hinted entries.
    """
    details = readable_details(before["retrieval_details"])
    old = [match["entry_id"] for match in details["matches"]]
    new = [match["entry_id"] for match in after["matches"]]
    kept = [entry_id for entry_id in old if entry_id in new]
    in_both = [entry_id for entry_id in new if entry_id in old]
    moved = (now for now, then in zip(in_both, kept, strict=False) if now != then)
    found: dict[str, Any] = {
        "lost": _ranked(old, new),
        "gained": _ranked(new, old),
        "moved": [{"entry_id": i, "from": old.index(i) + 1, "to": new.index(i) + 1} for i in moved],
    }
    pairs = {
        "status": (before["status"], after["status"]),
        "layer": (before["retrieval_layer"], after["retrieval_layer"]),
        "l1": (before["l1_status"], after["l1"]["status"]),
        "relevance": (details["relevance"]["level"], after["relevance"]["level"]),
        "filter": (_filter(details["filter"]), _filter(after["filter"])),
        "categories": (_categories(details["l0_hints"]), _categories(hints_of(after["hints"]))),
    }
    found |= {name: {"was": old, "is": new} for name, (old, new) in pairs.items() if old != new}
    return {name: value for name, value in found.items() if value}


def _ranked(entry_ids: Sequence[str], others: Sequence[str]) -> list[dict[str, Any]]:
    """Return the entries that are not in `others`, with their ranks."""
    return [
        {"entry_id": entry_id, "rank": rank}
        for rank, entry_id in enumerate(entry_ids, start=1)
        if entry_id not in others
    ]


def _filter(choice: Mapping[str, Any]) -> str:
    if choice["category"] is None:
        return "none"
    return f"{choice['category']}, relaxed" if choice["relaxed"] else str(choice["category"])


def _categories(hints: Mapping[str, Any]) -> list[str]:
    return sorted({category for entry in hints["entries"] for category in entry["categories"]})


def format_changes(found: Mapping[str, Any]) -> Iterator[str]:
    """Yield one line per change."""
    for name, value in found.items():
        if name == "moved":
            yield from (
                f"moved {item['entry_id']} from {item['from']} to {item['to']}" for item in value
            )
        elif name in ("gained", "lost"):
            yield from (f"{name} {item['entry_id']} at {item['rank']}" for item in value)
        else:
            was, now = (
                ", ".join(side) or "none" if isinstance(side, list) else side
                for side in value.values()
            )
            yield f"{name} was {was}, is {now}"
