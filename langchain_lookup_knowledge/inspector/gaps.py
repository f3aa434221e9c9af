"""What the folder lacks: recorded queries that its entries do not answer, judging by the records
alone; grouped by what was asked.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import IntEnum
from typing import Any

from langchain_lookup_knowledge.errors import LookupKnowledgeError
from langchain_lookup_knowledge.inspector.texts import by_shared_terms
from langchain_lookup_knowledge.inspector.why import matched_words
from langchain_lookup_knowledge.l1.models import embeddings
from langchain_lookup_knowledge.records.feedback import gap_key
from langchain_lookup_knowledge.records.invocations import is_hashed
from langchain_lookup_knowledge.records.rows import ANSWERED, moment_of, readable_details
from langchain_lookup_knowledge.scope import HasAttributes, is_public
from langchain_lookup_knowledge.text.search_terms import (
    is_exact,
    is_part,
    parts_of,
    search_terms,
    written_terms,
)
from langchain_lookup_knowledge.types import L1_FAILED, Invocation

logger = logging.getLogger("langchain_lookup_knowledge")

L1_ANSWERED = ("ok", "empty", "below_threshold")
"""Statuses of an L1 that took part; without it, a lookup says nothing about the folder."""
GAP_ROWS = 5_000
"""Number of newest lookups in which gaps are looked for."""
MAX_QUERIES = 200
"""Maximum number of queries whose records are read, the most frequent first."""
WEAK_SCORE, WEAK_SCORE_BY_WORDS = 0.4, 0.25
"""A first match with a lower score is weak; the second limit is for one that was found by words
alone. The best score is 1 (benchmarks/gaps.py).
"""
MAX_SUGGESTED = 3
"""Maximum number of words that are suggested as keywords."""

Pairs = tuple[tuple[str, str], ...]
Vectors = Callable[[Sequence[str]], list[Sequence[float]] | None]


class Proof(IntEnum):
    """What shows that a query has no answer, the most certain first."""

    WRONG = 0
    """A person called the answer wrong."""
    NOTHING = 1
    """Nothing matched."""
    EXACT = 2
    """The query has a code, version or other exact thing that no passage contains."""
    WEAK = 3
    """A rare word of the query is missing from what was shown, and the best match is a weak one."""
    NONE = 4
    """Nothing: the answer claims low relevance, but may be right."""


@dataclass(slots=True)
class Gap:
    """A query that may have no answer in its scope: how often it was asked, and its newest lookup.

    `closed` says why it is no longer a gap: "done" (marked by hand), or "found" (a later lookup in
    the same scope has a good match); empty if it is still one. `wrong`: whether a person called its
    answer wrong. Once the record of its newest lookup has been read, `details` holds the details of
    that record, `unshown` lists the rare words of the query that occur only in passages that were
    not shown, and `proof` is what these prove.
    """

    query: str
    times: int = 0
    newest: Mapping[str, Any] = field(default_factory=dict)
    closed: str = ""
    wrong: bool = False
    scope: Mapping[str, str] = field(default_factory=dict)
    proof: Proof = Proof.NONE
    unshown: Sequence[str] = ()
    details: Mapping[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """The key under which the gap is marked as done, for its own scope alone."""
        return gap_key(self.query, self.scope)

    @property
    def best(self) -> Mapping[str, Any] | None:
        """The first match of its newest lookup, if there was any."""
        return next(iter(self.details["matches"]), None)


def gaps_in(
    rows: Sequence[Mapping[str, Any]],
    done: Mapping[str, datetime],
    judged: Mapping[str, bool],
) -> list[Gap]:
    """Return the queries of lookups that may be gaps, the most frequent first, open and closed.

    The same query in another scope is another one: its lookups see other entries.

    A query may be a gap if L1 took part in its lookup and the relevance was low or none, or if a
    person called its answer wrong. That nothing was found while L1 failed says nothing.

    Args:
        rows: lookups, newest first, as `History.asked` returns them.
        done: when queries were marked as done, by the keys of their gaps.
        judged: whether people called answers right, by the ids of their lookups.
    """
    gaps: dict[tuple[str, Pairs], Gap] = {}
    found: set[tuple[str, Pairs]] = set()  # those that a lookup newer than their gap answered
    for row in rows:
        query, scope = row["short_query"] or "", row["scope"]
        asked = query, _pairs(scope)
        right = judged.get(row["id"])
        took_part = row["status"] in ANSWERED and row["l1_status"] in L1_ANSWERED
        weak = took_part and row["level"] in ("low", "none")
        missed = row["status"] == "no_match" and row["l1_status"] in L1_FAILED
        if (right is False and not missed) or (weak and right is None):
            gap = gaps.setdefault(asked, Gap(query, newest=row, scope=scope))
            gap.times += 1
            gap.wrong = gap.wrong or right is False
        elif asked not in gaps and took_part:
            found.add(asked)
    for asked, gap in gaps.items():
        marked, moment = done.get(gap.key), moment_of(gap.newest["moment"])
        if asked in found:
            gap.closed = "found"
        elif marked and moment and moment <= marked:
            gap.closed = "done"
    return sorted(gaps.values(), key=lambda gap: (-gap.times, gap.query))


def _pairs(scope: Mapping[str, str]) -> Pairs:
    return tuple(sorted(scope.items()))


def may_get_keywords(entry: HasAttributes | None, scope: Mapping[str, str]) -> bool:
    """Return whether words of a query in a scope may be added to an entry: only if no other scope
    sees the entry. That of an unknown entry (None) cannot be told. Without a scope, any entry may.
    """
    if not scope:
        return True
    if entry is None or is_public(entry):
        return False
    return all(
        {held for key, held in entry.attributes if key == field.casefold()} == {value}
        for field, value in scope.items()
    )


def proven(
    gaps: Sequence[Gap], records: Callable[[Sequence[str]], Sequence[Invocation]]
) -> list[Gap]:
    """Return the most frequent gaps with what their newest records prove, the most certain first;
    of those without a proof, the ones with the weakest best matches first.

    `records` returns the invocations with these ids; a gap without an invocation is left out.
    """
    gaps = gaps[:MAX_QUERIES]
    found = {record["id"]: record for record in records([gap.newest["id"] for gap in gaps])}
    read = [gap for gap in gaps if gap.newest["id"] in found]
    for gap in read:
        record = found[gap.newest["id"]]
        gap.details = readable_details(record["retrieval_details"])
        gap.unshown = unshown_words(record["query"] or "", gap.details)
        gap.proof = Proof.WRONG if gap.wrong else proof_in(gap.details, gap.unshown)
    return sorted(read, key=_certainty)


def _certainty(gap: Gap) -> tuple[float, float, int]:
    score = (gap.best or {}).get("score") or 0.0
    return gap.proof, score if gap.proof is Proof.NONE else 0.0, -gap.times


def proof_in(details: Mapping[str, Any], unshown: Sequence[str]) -> Proof:
    """Return what the details of a lookup of low relevance, or without a match, prove.

    A word that was not shown (one of `unshown`, or one that is in no passage) may merely be worded
    differently in the entries. It proves something only if the best match is weak, too, and no
    declared term points at that match. An exact thing, such as a code, has only one wording.
    """
    if not details["matches"]:
        return Proof.NOTHING
    first, absent = details["matches"][0], absent_terms(details)
    if any(not term.isalnum() and any(map(str.isdigit, term)) for term in absent):
        return Proof.EXACT
    weak = WEAK_SCORE_BY_WORDS if first["similarity"] is None else WEAK_SCORE
    is_weak = first["score"] is not None and first["score"] < weak
    if (absent or unshown) and is_weak and "L0" not in first["layers"]:
        return Proof.WEAK
    return Proof.NONE


def absent_terms(details: Mapping[str, Any]) -> list[str]:
    """Return the terms of a query that are in no passage, without the parts of exact things."""
    absent = [term for term, number in details["rare"].items() if not number]
    parts = parts_of(absent)
    return [term for term in absent if term not in parts]


def unshown_words(query: str, details: Mapping[str, Any]) -> list[str]:
    """Return the rare words of a query, as written, that occur only in passages not shown."""
    held = {word for match in details["matches"] for word in matched_words(match)}
    shown = set(search_terms(" ".join(held)))
    written = written_terms(query)
    rare = (term for term, number in details["rare"].items() if number and not is_part(term))
    return list(dict.fromkeys(written[term] for term in rare if term in written.keys() - shown))


def grouped(gaps: Sequence[Gap], vectors: Vectors, near: float) -> list[list[Gap]]:
    """Group gaps of one scope that ask for nearly the same thing; the most certain groups come
    first; among equally certain ones, the most frequent.

    A gap joins the group whose first gap is most similar, if the cosine is at least `near`. Without
    vectors, gaps that share a word are grouped. A query that is stored as a hash is never grouped.
    """
    readable = [gap for gap in gaps if not is_hashed(gap.query)]
    found = vectors([gap.query for gap in readable])
    vector_of = dict(zip([gap.query for gap in readable], found or (), strict=found is not None))
    scopes: dict[Pairs, list[Gap]] = {}
    for gap in readable:
        scopes.setdefault(_pairs(gap.scope), []).append(gap)
    groups: list[list[Gap]] = []
    for members in scopes.values():
        groups += _by_words(members) if found is None else _by_vectors(members, vector_of, near)
    groups += [[gap] for gap in gaps if is_hashed(gap.query)]
    return sorted(groups, key=lambda group: (min(gap.proof for gap in group), -_times(group)))


def _by_vectors(
    gaps: Sequence[Gap], vector_of: Mapping[str, Sequence[float]], near: float
) -> list[list[Gap]]:
    groups: list[tuple[Sequence[float], list[Gap]]] = []
    for gap in gaps:
        vector = vector_of[gap.query]
        nearest = max(groups, key=lambda group: _cosine(group[0], vector), default=None)
        if nearest and _cosine(nearest[0], vector) >= near:
            nearest[1].append(gap)
        else:
            groups.append((vector, [gap]))
    return [group for _, group in groups]


def _times(group: Sequence[Gap]) -> int:
    return sum(gap.times for gap in group)


def _cosine(one: Sequence[float], other: Sequence[float]) -> float:
    """Return the cosine of two vectors of length 1; 0 if one is empty."""
    return sum(a * b for a, b in zip(one, other, strict=False))


def _by_words(gaps: Sequence[Gap]) -> list[list[Gap]]:
    by_query = {gap.query: gap for gap in gaps}
    groups = []
    for found in by_shared_terms([(gap.query, gap.times) for gap in gaps]):
        members = [by_query[query] for query, _ in found["queries"]]
        groups += [members] if found["terms"] else [[gap] for gap in members]
    return groups


def missing_words(gap: Gap) -> list[str]:
    """Return the words of a query that no passage contains, as written; codes, versions and other
    exact things come first.

    They are good keywords if the best match answers the query.
    """
    written = written_terms(gap.query)
    absent = [term for term in absent_terms(gap.details) if not is_part(term)]
    absent = sorted(
        (t for t in absent if len(written.get(t, "")) > 1), key=lambda t: not is_exact(t)
    )
    return list(dict.fromkeys(written[term] for term in absent))[:MAX_SUGGESTED]


class QueryVectors:
    """The vectors of queries, each embedded once, with the model of a knowledge base."""

    def __init__(self) -> None:
        self._known: dict[str, Sequence[float]] = {}

    def of(self, embedding: Any, queries: Sequence[str]) -> list[Sequence[float]] | None:
        """Return the vectors of queries; None if the model fails. A query in a script that the
        model does not know has an empty vector.
        """
        vectors = self._known  # another thread may replace it meanwhile
        try:
            for query in queries:
                if query not in vectors:
                    known = query.strip() and embeddings.understands(embedding, query)
                    vector = embeddings.embed_query(embedding, query) if known else []
                    vectors[query] = _of_length_one(vector)
        except LookupKnowledgeError:
            logger.debug("queries could not be embedded", exc_info=True)
            return None
        found = [vectors[query] for query in queries]
        self._known = dict(zip(queries, found, strict=True))
        return found


def _of_length_one(vector: Sequence[float]) -> Sequence[float]:
    length = sum(value * value for value in vector) ** 0.5
    return [value / length for value in vector] if length else []
