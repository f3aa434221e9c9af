"""From ranked lists to candidates, from hints and candidates to matches, and what the result may claim."""

import uuid
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from langchain_lookup_knowledge.filters import NO_SIMILARITY, best_similarity
from langchain_lookup_knowledge.types import (
    Candidate,
    DescribedEntry,
    HintEntry,
    Hints,
    L1Status,
    Match,
    Matched,
    Relevance,
    RelevanceLevel,
    RetrievalLayer,
)

LIST_WEIGHTS: Mapping[str, float] = {"dense": 2.0, "entry": 1.0, "passage": 0.5, "frontmatter": 0.3}
"""Weights of the ranked lists: the best of eight simple ratios on two English knowledge bases (benchmarks/quality.py)."""
FULL_LIST = 30
"""Hits of a full ranked list."""
HINT_WEIGHT = 0.2
"""Weight of the hinted entries as one more list; only entries with a specific term take part."""
SNIPPET_CHARS = 1000
"""Most characters of a snippet; a passage fits whole."""


PointId = uuid.UUID | str | int


@dataclass(frozen=True, slots=True)
class Thresholds:
    """Dense cosines from which a result may claim medium and high relevance; `calibrated` for the model in use or not."""

    medium: float
    high: float
    calibrated: bool = True


class Hit(NamedTuple):
    """A passage in a ranked list: the id of its point, its entry, and its score in that list."""

    point_id: PointId
    entry_id: str
    score: float


class RankedEntry(NamedTuple):
    """An entry after fusion: its score, 0 to 1, its dense cosine, if it has one, and the passage to show."""

    entry_id: str
    score: float
    similarity: float | None
    point_id: PointId


def fuse(lists: Mapping[str, Sequence[Hit]], medium: float) -> list[RankedEntry]:
    """Return the entries of ranked lists, best first, by a weighted sum of their scores, each relative to its list.

    `score = sum(weight * (score - floor) / (best - floor)) / sum(weights)`, 0 to 1, over the four lists, with 0 for a list that
    does not have the entry; of its passages in a list, the best counts. The floor of a BM25 list is 0, that of the dense one
    its lowest cosine, for models differ in the range their cosines lie in; a list that is not full, of a small knowledge base
    or under a filter, is taken to go on falling as it does. A dense list whose best cosine is under `medium`, from which
    on a model's cosines mean something, weighs less in proportion: next to each other, any cosines look like an order.
    A convex combination of scores ranks better than reciprocal ranks (Bruch, Gai and Ingber, ACM TOIS 2023;
    benchmarks/quality.py shows both). The passage shown is the entry's best in the first of "dense", "passage", "entry",
    "frontmatter" that has one. Ties are broken by entry id.
    """
    scores: dict[str, float] = defaultdict(float)
    best = {name: _best_by_entry(lists.get(name, ())) for name in LIST_WEIGHTS}
    for name, hits in best.items():
        top = max((hit.score for hit in hits.values()), default=0.0)
        floor, weight = 0.0, LIST_WEIGHTS[name]
        if name == "dense":
            floor, weight = _floor(lists.get(name, ())), weight * _support(top, medium)
        for entry_id, hit in hits.items():
            scores[entry_id] += weight * _relative(hit.score, floor, top)
    total = sum(LIST_WEIGHTS.values())
    shown = {**best["frontmatter"], **best["entry"], **best["passage"], **best["dense"]}
    dense = best["dense"]
    order = sorted(scores, key=lambda entry_id: (-scores[entry_id], entry_id))
    return [RankedEntry(i, scores[i] / total, dense[i].score if i in dense else None, shown[i].point_id) for i in order]


def _support(similarity: float, medium: float) -> float:
    """Return how far meaning supports what was found, 0 to 1, by the best cosine."""
    return min(1.0, max(0.0, similarity) / medium)


def _floor(hits: Sequence[Hit]) -> float:
    """Return the cosine that a full list would end with, but no less than 0."""
    if not hits:
        return 0.0
    scores = [hit.score for hit in hits]
    return max(0.0, max(scores) - (max(scores) - min(scores)) * max(1.0, FULL_LIST / len(hits)))


def _relative(score: float, floor: float, top: float) -> float:
    if top <= floor:
        return float(top > 0)
    return max(0.0, (score - floor) / (top - floor))


def _best_by_entry(hits: Sequence[Hit]) -> dict[str, Hit]:
    best: dict[str, Hit] = {}
    for hit in hits:
        best.setdefault(hit.entry_id, hit)
    return best


def candidate(entry: RankedEntry, payload: Mapping[str, Any]) -> Candidate:
    """Return a ranked entry with what is stored of the passage to show."""
    metadata, similarity = payload["metadata"], entry.similarity
    return {
        "entry_id": entry.entry_id,
        "title": metadata["title"],
        "categories": list(metadata["categories"]),
        "source": metadata["source"],
        "heading": metadata["heading"],
        "text": payload["page_content"],
        "score": round(entry.score, 6),
        "similarity": None if similarity is None else round(similarity, 6),
    }


def above(ranked: Sequence[RankedEntry], min_similarity: float | None) -> list[RankedEntry]:
    """Return the entries whose dense cosine reaches `min_similarity`; with None, all."""
    if min_similarity is None:
        return list(ranked)
    return [entry for entry in ranked if entry.similarity is not None and entry.similarity >= min_similarity]


def merge(
    hints: Hints,
    candidates: Sequence[Candidate],
    *,
    limit: int,
    excerpt: Callable[[str], str],
    medium: float,
    described: Sequence[DescribedEntry] = (),
    weigh_hints: bool = True,
) -> list[Match]:
    """Return the best `limit` matches, one an entry; L0 evidence stands alone when there are no candidates.

    With candidates, the entries that a specific term hints at take part as one more list, and of several matches one is
    always theirs. Without, they come first, then the entries `described` in words of the query, then the other hints.
    `excerpt` gives the text of an entry that only L0 found. `weigh_hints` is off where a filter had to be relaxed: there
    the hints have just been shown to mislead. Even then, the weight that meaning loses where it says little (see `fuse`) is
    theirs.
    """
    hinted = {entry["entry_id"]: entry for entry in hints["entries"]}
    specific = [entry_id for entry_id, entry in hinted.items() if _is_specific(entry, hints)]
    if not candidates:
        by_words = {entry["entry_id"]: entry for entry in described}
        alone = list(dict.fromkeys((*specific, *by_words, *hinted)))[:limit]
        return [
            _l0_match(hinted.get(entry_id), by_words.get(entry_id), round(1 / place, 6), excerpt)
            for place, entry_id in enumerate(alone, start=1)
        ]
    found = {candidate["entry_id"]: candidate for candidate in candidates}
    scores = {entry_id: candidate["score"] for entry_id, candidate in found.items()}
    best = best_similarity(candidates)
    lost = 0.0 if best == NO_SIMILARITY else LIST_WEIGHTS["dense"] * (1 - _support(best, medium))
    weight = (HINT_WEIGHT * weigh_hints + lost) / sum(LIST_WEIGHTS.values())
    for entry_id in specific:
        relative = hinted[entry_id]["score"] / hinted[specific[0]]["score"]
        scores[entry_id] = scores.get(entry_id, 0.0) + weight * relative
    order = sorted(scores, key=lambda entry_id: (-scores[entry_id], entry_id))[:limit]
    if weigh_hints and limit > 1 and specific and not set(specific) & set(order):
        order[-1] = specific[0]
    return [
        _l1_match(hinted.get(i), found[i], round(scores[i], 6))
        if i in found
        else _l0_match(hinted[i], None, round(scores[i], 6), excerpt)
        for i in order
    ]


def _is_specific(entry: HintEntry, hints: Hints) -> bool:
    texts = {text.casefold() for text in (entry["title"], *entry["keywords"], *entry["entities"])}
    return any(term["specific"] and term["text"].casefold() in texts for term in hints["terms"])


def _l0_match(
    hint: HintEntry | None, described: DescribedEntry | None, score: float, excerpt: Callable[[str], str]
) -> Match:
    entry = hint or described
    assert entry is not None  # noqa: S101  (for the type checker: one of them is given)
    matched = _hint_evidence(hint) if hint else []
    if described:
        matched.append({"field": "description", "text": " ".join(described["words"])})
    return {
        "entry_id": entry["entry_id"],
        "title": entry["title"],
        "categories": list(entry["domains"]),
        "source": entry["entry_id"],
        "heading": "",
        "snippet": shorten(excerpt(entry["entry_id"]), SNIPPET_CHARS),
        "score": score,
        "similarity": None,
        "layers": ["L0"],
        "matched": matched,
    }


def _l1_match(hint: HintEntry | None, candidate: Candidate, score: float) -> Match:
    text: Matched = {"field": "text", "text": candidate["heading"] or candidate["title"]}
    return {
        "entry_id": candidate["entry_id"],
        "title": candidate["title"],
        "categories": list(candidate["categories"]),
        "source": candidate["source"],
        "heading": candidate["heading"],
        "snippet": shorten(candidate["text"], SNIPPET_CHARS),
        "score": score,
        "similarity": candidate["similarity"],
        "layers": ["L0", "L1"] if hint else ["L1"],
        "matched": [*_hint_evidence(hint), text] if hint else [text],
    }


def _hint_evidence(hint: HintEntry) -> list[Matched]:
    """Return the terms that led to an entry; its title, if that alone did."""
    evidence: list[Matched] = [{"field": "keywords", "text": text} for text in hint["keywords"]]
    evidence += [{"field": "entities", "text": text} for text in hint["entities"]]
    return evidence or [{"field": "title", "text": hint["title"]}]


def shorten(text: str, limit: int) -> str:
    """Return at most `limit` characters of `text`, cut at a blank where there is one, the cut marked with `…`."""
    if len(text) <= limit:
        return text
    head = text[: limit - 1]
    at_blank = head.rsplit(maxsplit=1)[0] if any(c.isspace() for c in head[limit // 2 :]) else head
    return at_blank.rstrip() + "…"


def layer(hints: Hints, candidates: Sequence[Candidate], matches: Sequence[Match]) -> RetrievalLayer:
    """Return which layers took part: those that found an entry."""
    if candidates:
        return "L0+L1" if hints["entries"] else "L1"
    return "L0" if matches else "none"


def assess(hints: Hints, matches: Sequence[Match], l1: L1Status, thresholds: Thresholds) -> Relevance:
    """Return what the matches shown may claim.

    Only their dense similarity supports a semantic claim. A specific term of the query that one of them declares is worth
    a medium level, whatever its similarity. A model whose thresholds were not fitted never gives a high level.
    """
    if not matches:
        return {"level": "none", "semantic_support": False, "reason": "nothing matched"}
    specific = {entry["entry_id"] for entry in hints["entries"] if _is_specific(entry, hints)}
    declared = any(match["entry_id"] in specific for match in matches)
    keywords = "a specific term of the query is declared" if declared else "no specific term of the query is declared"
    level: RelevanceLevel = "medium" if declared else "low"
    best = best_similarity(matches)
    if not any("L1" in match["layers"] for match in matches):
        return {"level": level, "semantic_support": False, "reason": f"keyword match alone: {keywords}; L1 {l1}"}
    if best == NO_SIMILARITY:
        return {"level": level, "semantic_support": False, "reason": f"found by words alone: {keywords}"}
    shown = f"{best:.3f}" if f"{best:.2f}" == f"{thresholds.medium:.2f}" else f"{best:.2f}"
    note = "" if thresholds.calibrated else "; the thresholds are not calibrated for this model"
    if best < thresholds.medium:
        but = f", but {keywords}" if declared else ""
        reason = f"best similarity {shown} is under {thresholds.medium:.2f}{but}{note}"
        return {"level": level, "semantic_support": False, "reason": reason}
    if best >= thresholds.high and thresholds.calibrated:
        return {
            "level": "high",
            "semantic_support": True,
            "reason": f"best similarity {best:.2f} reaches {thresholds.high:.2f}",
        }
    reason = f"best similarity {best:.2f} reaches {thresholds.medium:.2f}{note}"
    return {"level": "medium", "semantic_support": True, "reason": reason}
