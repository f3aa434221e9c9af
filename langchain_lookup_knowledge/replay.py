"""Recorded lookups run again: what a changed folder, model or index does to the answers. Nothing of it is recorded."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from langchain_lookup_knowledge.graph import REPLAYED_OPTIONS, create_lookup_knowledge_graph
from langchain_lookup_knowledge.knowledge_base import KnowledgeBase
from langchain_lookup_knowledge.types import FilterChoice, Invocation, LookupOptions

L1_SECONDS = 30.0
"""Time L1 may take: what is asked is how the answers change, not whether they come in time."""


def replay(kb: KnowledgeBase, invocations: Iterable[Invocation]) -> Iterator[tuple[Invocation, dict[str, Any]]]:
    """Run lookups again with the options they had, and yield each with its changes."""
    graphs: dict[LookupOptions, Any] = {}
    for invocation in invocations:
        options = _options(invocation)
        if options not in graphs:
            graphs[options] = create_lookup_knowledge_graph(kb, record=None, options=options)
        scope = invocation["retrieval_details"].get("scope") or {}
        yield (
            invocation,
            changes(invocation, graphs[options].invoke({"query": invocation["query"]}, {"configurable": scope})),
        )


def _options(invocation: Invocation) -> LookupOptions:
    """Return the options a lookup ran with; for a row that does not have them, those that its answer shows."""
    details = invocation["retrieval_details"]
    seen: dict[str, Any] = {"k": max(LookupOptions().k, invocation["result_count"] or 0)}
    if details["filter"]["reason"] == "off":
        seen["filter_mode"] = "off"
    given = {name: value for name, value in details.get("options", seen).items() if name in REPLAYED_OPTIONS}
    if invocation["l1_status"] == "disabled":
        given["l1_enabled"] = False
    return LookupOptions(**given, l1_timeout=L1_SECONDS, scope_fields=tuple(details.get("scope") or ()))


def changes(before: Invocation, after: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is different in a result from what was recorded; nothing if all is as it was.

    `lost` and `gained`: entries with their rank, from 1; `moved`: entries in both that stand in another order. The other
    keys hold what was and what is: `status`, `layer`, `l1`, `relevance`, `filter`, and `categories` of the hinted entries.
    """
    details = before["retrieval_details"]
    was = [match["entry_id"] for match in details["matches"]]
    now = [match["entry_id"] for match in after["matches"]]
    kept = [entry_id for entry_id in was if entry_id in now]
    in_both = [entry_id for entry_id in now if entry_id in was]
    moved = [entry_id for entry_id, other in zip(in_both, kept, strict=True) if entry_id != other]
    found: dict[str, Any] = {
        "lost": [{"entry_id": entry_id, "rank": was.index(entry_id) + 1} for entry_id in was if entry_id not in now],
        "gained": [{"entry_id": entry_id, "rank": now.index(entry_id) + 1} for entry_id in now if entry_id not in was],
        "moved": [{"entry_id": i, "from": was.index(i) + 1, "to": now.index(i) + 1} for i in moved],
    }
    pairs = {
        "status": (before["status"], after["status"]),
        "layer": (before["retrieval_layer"], after["retrieval_layer"]),
        "l1": (before["l1_status"], after["l1"]["status"]),
        "relevance": (details["relevance"]["level"], after["relevance"]["level"]),
        "filter": (_filter(details["filter"]), _filter(after["filter"])),
        "categories": (_categories(details["l0_hints"]), _categories(after["hints"])),
    }
    found |= {name: {"was": old, "is": new} for name, (old, new) in pairs.items() if old != new}
    return {name: value for name, value in found.items() if value}


def _filter(choice: FilterChoice) -> str:
    if choice["category"] is None:
        return "none"
    return f"{choice['category']}, relaxed" if choice["relaxed"] else choice["category"]


def _categories(hints: Mapping[str, Any]) -> list[str]:
    return sorted({category for entry in hints["entries"] for category in entry["domains"]})


def told(found: Mapping[str, Any]) -> Iterator[str]:
    """Yield a line for each change."""
    for name, value in found.items():
        if name == "moved":
            yield from (f"moved {item['entry_id']} from {item['from']} to {item['to']}" for item in value)
        elif name in ("gained", "lost"):
            yield from (f"{name} {item['entry_id']} at {item['rank']}" for item in value)
        else:
            was, now = (", ".join(side) or "none" if isinstance(side, list) else side for side in value.values())
            yield f"{name} was {was}, is {now}"
