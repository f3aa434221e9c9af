"""Versions and states of entries: versions of a page share one place, a replacement comes before
the replaced entry, and a match reports both. All functions are pure.
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any, TypeAlias, TypeVar

from langchain_lookup_knowledge.lookup.answer.merging import FoundEntry, entry_of, exact_things
from langchain_lookup_knowledge.reading.entry import Entry, category_key
from langchain_lookup_knowledge.reading.metadata.standing import refers_to, version_parts
from langchain_lookup_knowledge.text.search_terms import held_terms, search_terms
from langchain_lookup_knowledge.text.shingles import nearly_equal
from langchain_lookup_knowledge.types import (
    Candidate,
    CandidatePassage,
    HintEntry,
    Matched,
    MetadataHit,
)

MAX_OTHERS = 20
"""Maximum number of other versions that a match lists."""
DATES = ("date", "updated", "last_updated", "lastmod", "modified")
"""Frontmatter keys with an ISO 8601 date that shows which of two pages is newer."""

_VERSION = re.compile(r"(?<![\w.])(?:v(?:ersion|er)?\.? ?|release )?(\d+(?:\.\d+)*)(?![\w-])", re.I)

Pages: TypeAlias = Mapping[str, Sequence[str]]
Listed = TypeVar("Listed", HintEntry, MetadataHit)


def one_of_each_page(
    candidates: Sequence[Candidate], hinted: Sequence[str], entries: Mapping[str, Entry], query: str
) -> dict[str, list[str]]:
    """Map each entry that may be shown to the other entries that it represents, in ranked order.

    Pages with the same title and nearly the same text share the place of the first of them. The
    place goes to the version that the query names, else to the page with the most exact things from
    the query, else to the newest. A page without a version counts as the current one.
    """
    exact = {candidate["entry_id"]: exact_things(candidate["passages"]) for candidate in candidates}
    groups: list[list[str]] = []
    by_title: dict[str, list[list[str]]] = {}
    for entry_id in dict.fromkeys((*exact, *hinted)):
        entry = entries.get(entry_id)
        same = by_title.setdefault(category_key(entry.title), []) if entry else []
        text = entry.text if entry else ""
        group = next((g for g in same if nearly_equal(entries[g[0]].text, text)), None)
        if group is None:
            groups.append(group := [])
            same.append(group)
        group.append(entry_id)
    named = _named_versions(query)
    best = [g[0] if len(g) == 1 else _best(g, entries, named, exact) for g in groups]
    return {
        one: [other for other in group if other != one]
        for one, group in zip(best, groups, strict=True)
    }


def _best(
    group: Sequence[str],
    entries: Mapping[str, Entry],
    named: Sequence[tuple[int, ...]],
    exact: Mapping[str, Collection[str]],
) -> str:
    def rank(entry_id: str) -> tuple[Any, ...]:
        entry = entries[entry_id]
        version = version_parts(entry.standing.version)
        common = _named_part(entry, named)
        dates = [value for key, value in entry.attributes if key in DATES]
        return (
            common,
            len(exact.get(entry_id, ())),
            entry_id in exact,
            not entry.standing.state,
            not version,
            version,
            max(dates, default=""),
            -group.index(entry_id),
        )

    return max(group, key=rank)


def _named_versions(query: str) -> list[tuple[int, ...]]:
    return [version_parts(found) for found in _VERSION.findall(query)]


def _named_part(entry: Entry, named: Sequence[tuple[int, ...]]) -> int:
    """Return how many numbers of the entry's version are in a version that the query names."""
    version = version_parts(entry.standing.version)
    return max((_common(version, wanted) for wanted in named), default=0)


def _common(version: tuple[int, ...], wanted: tuple[int, ...]) -> int:
    """Return how many numbers two versions share; 0 unless one begins with the other."""
    length = min(len(version), len(wanted))
    return length if version[:length] == wanted[:length] else 0


def without_replaced_first(
    ids: Sequence[str],
    entries: Mapping[str, Entry],
    query: str = "",
    rare: Mapping[str, Collection[str]] = MappingProxyType({}),
) -> list[str]:
    """Return ids in their order, except that each entry comes after its replacements.

    An entry keeps its place before its replacement if the query asks for the older one. It does so
    if it names the version of the older entry, or if the older entry has a rare term of the query
    that the newer one lacks. `rare` maps ids to the rare terms of the query in their passages.
    """
    if not any(entries[one].standing.names_others for one in ids if one in entries):
        return list(ids)
    order: dict[str, None] = {}
    begun: set[str] = set()
    named = _named_versions(query)

    def is_asked_for(old: str, new: str) -> bool:
        versions = _named_part(entries[old], named), _named_part(entries[new], named)
        return versions[0] > versions[1] or bool({*rare.get(old, ())} - {*rare.get(new, ())})

    def add(entry_id: str) -> None:
        if entry_id not in begun:
            begun.add(entry_id)
            for other in ids:
                if _replaces(entries, other, entry_id) and not is_asked_for(entry_id, other):
                    add(other)
            order[entry_id] = None

    for entry_id in ids:
        add(entry_id)
    return list(order)


def _rare_terms(passages: Iterable[CandidatePassage]) -> set[str]:
    return {term for passage in passages for term in passage["rare"]}


def _replaces(entries: Mapping[str, Entry], new: str, old: str) -> bool:
    """Return whether the file of either entry says that `new` replaces `old`."""
    if new == old or new not in entries or old not in entries:
        return False
    one, other = entries[new], entries[old]
    return any(
        refers_to(reference, old, new, one.title) for reference in other.standing.replaced_by
    ) or any(refers_to(reference, new, old, other.title) for reference in one.standing.replaces)


def shown(items: Sequence[Listed], pages: Pages) -> list[Listed]:
    """Return the hints, without those whose entry is represented by another page."""
    return [item for item in items if item["entry_id"] in pages]


def settled(
    candidates: Sequence[Candidate],
    pages: Pages,
    entries: Mapping[str, Entry],
    query: str = "",
) -> list[Candidate]:
    """Return one candidate per page, each after its replacements, unless the query asks for the
    older one; `pages` comes from `one_of_each_page`.

    A candidate that moves to another place gets the score of that place.
    """
    by_id = {candidate["entry_id"]: candidate for candidate in candidates}
    places = {one: (one, *others) for one, others in pages.items() if one in by_id}
    rare = {one: _rare_terms(candidate["passages"]) for one, candidate in by_id.items()}
    order = without_replaced_first(list(places), entries, query, rare)
    if order == list(by_id):
        return list(candidates)
    scores = [max(by_id[i]["score"] for i in own if i in by_id) for own in places.values()]
    scores.sort(reverse=True)
    return [{**by_id[one], "score": score} for one, score in zip(order, scores, strict=True)]


def in_order(
    found: Sequence[FoundEntry],
    entries: Mapping[str, Entry],
    candidates: Sequence[Candidate] = (),
    limit: int = 100,
    query: str = "",
) -> list[FoundEntry]:
    """Return at most `limit` found entries, each with the score of its place. An entry comes after
    its replacements, unless the query asks for the older one. A candidate that replaces one of the
    entries is added.
    """
    by_id = {entry.entry_id: entry for entry in found}
    ids = {*by_id, *(candidate["entry_id"] for candidate in candidates)}
    names_others = any(entries[one].standing.names_others for one in ids if one in entries)
    for candidate in candidates if names_others else ():
        new = candidate["entry_id"]
        old = next((one for one in found if _replaces(entries, new, one.entry_id)), None)
        if old and new not in by_id:
            by_id[new] = entry_of(candidate, old.score)
    rare = {one: _rare_terms(entry.passages) for one, entry in by_id.items()}
    order = without_replaced_first(list(by_id), entries, query, rare)
    if order == [entry.entry_id for entry in found]:
        return list(found)
    scores = sorted((entry.score for entry in by_id.values()), reverse=True)
    placed = [replace(by_id[one], score=score) for one, score in zip(order, scores, strict=True)]
    return placed[:limit]


def described(
    found: FoundEntry,
    entries: Mapping[str, Entry],
    pages: Mapping[str, Sequence[str]],
    query: Mapping[str, str],
) -> FoundEntry:
    """Return a found entry with its state, its versions, and the frontmatter values that the query
    names.

    Args:
        found: the entry.
        entries: the entries that the caller may see.
        pages: the result of `one_of_each_page`.
        query: the terms of the query, each with its spelling in the query.
    """
    entry = entries.get(found.entry_id)
    if entry is None:
        return found
    standing = entry.standing
    versions = [
        {"entry_id": other, "version": entries[other].standing.version}
        for other in pages.get(found.entry_id, ())[:MAX_OTHERS]
    ]
    metadata = {
        "state": standing.state,
        "superseded_by": list(standing.replaced_by),
        "version": standing.version,
        "other_versions": versions,
    }
    matched: list[Matched] = [
        {"field": "metadata", "text": value}
        for value in entry.other_values
        if (terms := set(search_terms(value))) and held_terms(value, query) >= terms
    ]
    return replace(
        found,
        metadata={**found.metadata, **{key: value for key, value in metadata.items() if value}},
        matched=[*found.matched, *matched],
    )
