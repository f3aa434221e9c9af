"""Merge hints and candidates into the entries of an answer, best first. All functions are pure. The
text to show is chosen later.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from langchain_lookup_knowledge.l1.fusion import ENTRY_WEIGHTS, PASSAGE_WEIGHTS, support
from langchain_lookup_knowledge.lookup.filters import best_similarity
from langchain_lookup_knowledge.text.search_terms import is_exact, search_terms
from langchain_lookup_knowledge.types import (
    Candidate,
    CandidatePassage,
    HintEntry,
    Hints,
    Layer,
    Matched,
    MetadataHit,
    RelevanceLevel,
    RetrievalLayer,
)

HINT_WEIGHT = 0.4
"""Weight of the additional ranked list, which has the entries that a specific term hints at."""

BEST_SHOWN = 3
"""Number of passages, the best of all, whose entries are matches even if they rank lower."""
MOST_NAMED = 3
"""Maximum entries that a query can name by their declared terms: if more have these terms, the
query names a topic and not an entry.
"""
WEAK = 0.35
"""Share of the best entry's score below which an entry is considered noise."""


@dataclass(frozen=True, slots=True)
class FoundEntry:
    """An entry of an answer: how it was found, and the passages that may be shown, best first.

    `score` orders the entries of one answer; `matched` lists the declared terms of the entry, or
    words of them, that are in the query; `metadata` is that of the match.
    """

    entry_id: str
    title: str
    categories: Sequence[str]
    score: float
    similarity: float | None
    layers: Sequence[Layer]
    matched: Sequence[Matched]
    passages: Sequence[CandidatePassage]
    metadata: Mapping[str, Any] = field(default_factory=dict)


def merge(
    hints: Hints,
    candidates: Sequence[Candidate],
    *,
    limit: int,
    medium: float,
    passages: Callable[[str], list[CandidatePassage]],
    weigh_hints: bool = True,
) -> list[FoundEntry]:
    """Return the best `limit` entries that L1 found, with the hints as an additional list.

    The entries of the best passages are among them. Only entries that a specific term hints at gain
    weight. If there are several results, one of them is such an entry. The rules about hints do not
    apply after a filter was relaxed (`weigh_hints=False`), because the hints have just proved
    misleading. Even then, hints get the weight that weak similarities give up (see `fusion.rank`).
    For an entry that only L0 found, `passages` returns the passages that may be shown.
    """
    hinted = {entry["entry_id"]: entry for entry in hints["entries"]}
    specific = specific_entries(hints)
    found = {candidate["entry_id"]: candidate for candidate in candidates}
    scores = {entry_id: candidate["score"] for entry_id, candidate in found.items()}
    best = best_similarity(candidates)
    lost = 0.0 if best is None else PASSAGE_WEIGHTS["dense"] * (1 - support(best, medium))
    weight = (HINT_WEIGHT * weigh_hints + lost) / sum(ENTRY_WEIGHTS.values())
    for entry_id in specific:
        relative = hinted[entry_id]["score"] / hinted[specific[0]]["score"]
        scores[entry_id] = scores.get(entry_id, 0.0) + weight * relative
    order = sorted(scores, key=lambda entry_id: (-scores[entry_id], entry_id))
    order = _with_best_passages(order, candidates, limit)
    if weigh_hints and limit > 1 and specific and not set(specific) & set(order):
        order[-1] = specific[0]
    kept = [found[entry_id] for entry_id in order if entry_id in found]
    if limit > 1 and (holder := holder_of_exact(candidates, kept)):
        order[-1] = holder
    return [
        entry_of(found[i], scores[i], hinted.get(i))
        if i in found
        else _hinted(hinted[i], None, scores[i], passages(i))
        for i in order
    ]


def _with_best_passages(
    order: Sequence[str], candidates: Sequence[Candidate], limit: int
) -> list[str]:
    """Return the first `limit` entries of an order. Missing entries of the best passages replace
    the last of them, but never the first.
    """
    passages = [(p["score"], one["entry_id"]) for one in candidates for p in one["passages"]]
    best = {entry_id for _, entry_id in sorted(passages, key=lambda one: -one[0])[:BEST_SHOWN]}
    others = [entry_id for entry_id in order[1:limit] if entry_id not in best]
    missing = [entry_id for entry_id in order[limit:] if entry_id in best][: len(others)]
    replaced = others[len(others) - len(missing) :]
    return [entry_id for entry_id in order[:limit] if entry_id not in replaced] + missing


def holder_of_exact(candidates: Sequence[Candidate], kept: Sequence[Candidate]) -> str | None:
    """Return the id of the best candidate with an exact thing from the query (such as a code or a
    number) that all kept candidates lack.
    """
    held = {term for one in kept for term in exact_things(one["passages"])}
    more = (one["entry_id"] for one in candidates if exact_things(one["passages"]) - held)
    return next(more, None)


def exact_things(passages: Sequence[CandidatePassage]) -> set[str]:
    """Return the rare exact things of the query that passages contain."""
    return {term for passage in passages for term in passage["rare"] if is_exact(term)}


def merge_without_l1(
    hints: Hints,
    *,
    limit: int,
    passages: Callable[[str], list[CandidatePassage]],
    described: Sequence[MetadataHit] = (),
    by_words: Sequence[Candidate] = (),
) -> list[FoundEntry]:
    """Return the best `limit` entries that L0 found; entries that a specific term hints at come
    first.

    After them come entries found `by_words` in their text (only if the model failed), then entries
    whose metadata matched (`described`), then the other hints. Scores are reciprocal ranks.
    """
    hinted = {entry["entry_id"]: entry for entry in hints["entries"]}
    words = {candidate["entry_id"]: candidate for candidate in by_words}
    metadata = {entry["entry_id"]: entry for entry in described}
    order = list(dict.fromkeys((*specific_entries(hints), *words, *metadata, *hinted)))[:limit]
    entries = []
    for place, entry_id in enumerate(order, start=1):
        shown = words[entry_id]["passages"] if entry_id in words else passages(entry_id)
        entry = hinted.get(entry_id)
        if entry is None and entry_id not in metadata:
            found = entry_of(words[entry_id], 1 / place)
            entries.append(replace(found, similarity=None, layers=("L0",)))
        else:
            entries.append(_hinted(entry, metadata.get(entry_id), 1 / place, shown))
    return entries


def specific_entries(hints: Hints) -> list[str]:
    """Return the entries that a specific term hints at, best first."""
    texts = {term["text"].casefold() for term in hints["terms"] if term["specific"]}
    return [
        entry["entry_id"] for entry in hints["entries"] if not texts.isdisjoint(_declared(entry))
    ]


def names_all(hints: Hints, entry_id: str, terms: Collection[str]) -> bool:
    """Return whether the specific terms that an entry declares cover all terms of a query, and this
    is true of at most `MOST_NAMED` entries.
    """
    specific = {
        term["text"].casefold(): term["text"] for term in hints["terms"] if term["specific"]
    }

    def is_named(entry: HintEntry) -> bool:
        names = (t for t in _declared_texts(entry) if t.casefold() in specific)
        return {term for name in names for term in search_terms(name)}.issuperset(terms)

    named = [entry["entry_id"] for entry in hints["entries"] if is_named(entry)]
    return bool(terms) and entry_id in named and len(named) <= MOST_NAMED


def _declared(entry: HintEntry) -> set[str]:
    return set(map(str.casefold, _declared_texts(entry)))


def _declared_texts(entry: HintEntry) -> tuple[str, ...]:
    return entry["title"], *entry["keywords"], *entry["entities"]


def entry_of(candidate: Candidate, score: float, hint: HintEntry | None = None) -> FoundEntry:
    """Return the entry of a candidate, combined with the hint at the same entry, if any."""
    return FoundEntry(
        entry_id=candidate["entry_id"],
        title=candidate["title"],
        categories=candidate["categories"],
        score=score,
        similarity=candidate["similarity"],
        layers=("L0", "L1") if hint else ("L1",),
        matched=_evidence(hint) if hint else (),
        passages=candidate["passages"],
    )


def _hinted(
    hint: HintEntry | None,
    described: MetadataHit | None,
    score: float,
    passages: Sequence[CandidatePassage],
) -> FoundEntry:
    entry: Mapping[str, object] = hint or described or {}
    matched = _evidence(hint) if hint else []
    if described:
        matched.append({"field": "metadata", "text": " ".join(described["words"])})
    return FoundEntry(
        entry_id=str(entry["entry_id"]),
        title=str(entry["title"]),
        categories=list(entry["categories"]),  # type: ignore[call-overload]
        score=score,
        similarity=None,
        layers=("L0",),
        matched=matched,
        passages=passages,
    )


def _evidence(hint: HintEntry) -> list[Matched]:
    """Return the terms that led to an entry, or its title if no other term did."""
    evidence: list[Matched] = [{"field": "keywords", "text": text} for text in hint["keywords"]]
    evidence += [{"field": "entities", "text": text} for text in hint["entities"]]
    return evidence or [{"field": "title", "text": hint["title"]}]


def layer(
    hints: Hints, candidates: Sequence[Candidate], found: Sequence[FoundEntry]
) -> RetrievalLayer:
    """Return which layers found the entries of an answer."""
    if candidates:
        return "L0+L1" if hints["entries"] else "L1"
    return "L0" if found else "none"


def without_weak(
    found: Sequence[FoundEntry], level: RelevanceLevel, specific: Sequence[str] = ()
) -> list[FoundEntry]:
    """Return the entries that are not far below the best.

    At level "low", at most one entry besides the best is kept: the one with the best passage. At
    any level, one entry that a specific term hints at is kept (`specific` has the ids of these
    entries). So is one entry with an exact thing from the query that all other kept entries lack.
    """
    kept = [entry for entry in found if entry.score >= WEAK * found[0].score]
    if level == "low" and len(kept) > 2:
        kept = [kept[0], max(kept[1:], key=_best_passage)]
    most = 2 if level == "low" else len(found)
    hinted = next((entry for entry in found if entry.entry_id in specific), None)
    if hinted and not any(entry.entry_id in specific for entry in kept):
        kept = [*kept[: most - 1], hinted]
    held = {term for entry in kept for term in exact_things(entry.passages)}
    more = (entry for entry in found if exact_things(entry.passages) - held)
    return [*kept[: most - 1], entry] if (entry := next(more, None)) else kept


def _best_passage(entry: FoundEntry) -> float:
    return entry.score + max((passage["score"] for passage in entry.passages), default=0.0)
