"""Fusing ranked lists into ranked passages and entries. The functions are pure: nothing is read or
requested.
"""

import math
import uuid
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, repeat
from operator import itemgetter, mul
from typing import Any, NamedTuple

from langchain_lookup_knowledge.text.search_terms import is_exact, is_part, parts_of

PASSAGE_WEIGHTS: dict[str, float] = {"dense": 2.0, "passage": 1.5}
"""Weights of the lists that rank passages (benchmarks/evidence.py)."""
BEST_WEIGHTS: dict[str, float] = {"dense": 2.0, "passage": 1.0}
"""Weights of the same lists for ranking entries by their passages. Words weigh less here: they
locate an answer within an entry better than they identify the entry.
"""
GLOSSARY_WEIGHT = 0.5
"""Weight of the words that the glossary adds to a query, relative to the words of the query. Their
scores are only added, so they never lower another score.
"""
ENTRY_WEIGHTS: Mapping[str, float] = {
    "passages": 3.0,
    "entry": 0.9,
    "frontmatter": 0.3,
    "rare": 1.0,
}
"""Weights of the four scores of an entry: its best passages, BM25 of its whole text, BM25 of its
declared terms, and rare terms.
"""
LISTS = ("dense", "passage", "entry", "frontmatter", "glossary")
"""Names of the ranked lists of a search."""
BEST_PASSAGES = (1.0, 0.4, 0.15, 0.05)
"""Weights of an entry's best passages."""
LIST_LENGTH = 100
"""Number of passages requested for each ranked list."""
RARE = 16
"""A term is rare if at most this many passages contain it. One more passage is requested, to detect
terms that are not rare.
"""
RARE_WORD_SHARE = 0.03
"""A plain word is rare only if the number of its passages is at most this share of the number of
entries. In a small knowledge base, most words are in few passages without being rare.
"""
COVERING = 5
"""Number of top BM25 passages that `coverage` examines."""
_FULL_LIST = 30
"""Minimum length of a list whose lowest cosine is used as its floor."""

PointId = uuid.UUID | str | int


class Hit(NamedTuple):
    """A passage in a ranked list: the id of its point, its entry, and its score in that list."""

    point_id: PointId
    entry_id: str
    score: float


@dataclass(frozen=True, slots=True)
class Ranked:
    """The ranked lists that a search returned under one filter.

    `lists`: "dense", "passage", "entry" and "frontmatter", each best first, and "glossary" if the
    glossary added words to the query. `terms`: the query terms that were searched individually,
    each with the passages that contain it, at most `RARE + 1`.
    """

    lists: Mapping[str, Sequence[Hit]]
    terms: Mapping[str, Sequence[Hit]] = field(default_factory=dict)


class RankedPassage(NamedTuple):
    """A passage after fusion: its score, its dense cosine if it has one, and the rare terms of the
    query that it contains.
    """

    point_id: PointId
    score: float
    similarity: float | None
    rare: tuple[str, ...]


class RankedEntry(NamedTuple):
    """An entry after fusion: its score, 0 to 1, its best dense cosine if it has one, its passages,
    best first, and `meaning`, the part of its score that the dense list gave.
    """

    entry_id: str
    score: float
    similarity: float | None
    passages: list[RankedPassage]
    meaning: float = 0.0


# As `_make` of each class, at a third of the cost: a search finds and ranks hundreds of passages.
new_hit: Callable[[Any], Hit] = partial(tuple.__new__, Hit)
_new_passage: Callable[[Any], RankedPassage] = partial(tuple.__new__, RankedPassage)
_new_entry: Callable[[Any], RankedEntry] = partial(tuple.__new__, RankedEntry)
_placed, _scored = itemgetter(0, 1), itemgetter(0, 2)
"""The point id and the entry of a hit, and the point id and the score."""
_id, _score = itemgetter(0), itemgetter(1)
"""The id and the score of a ranked entry."""


def rank(found: Ranked, medium: float, entries: int) -> list[RankedEntry]:
    """Return entries, best first, each with its ranked passages.

    `medium` is the minimum cosine for semantic support, and `entries` is the number of entries.

    The score of a passage depends on its scores in the passage lists, and on the rare terms of the
    query that it contains:

        score = sum(weight * relative) / sum(weights) + rare

    - `rare` is the share of the query's terms that are rare and in the passage, weighted by rarity.
    - `relative` is (score - floor) / (best - floor) in that list. The floor of a BM25 list is 0;
      that of the dense list is its lowest cosine, because the range of cosines differs between
      models. For a short list (a small knowledge base, or a filter) the floor is extrapolated.
    - A dense list whose best cosine is below `medium` gets proportionally less weight, because even
      meaningless cosines have an order.

    To rank entries, the dense list gets up to twice its weight if no passage contains most words of
    the query (see `coverage`), because BM25 then ranks by only a few words.

    The score of an entry depends on its best passages, on its scores in the entry lists, and
    on its passage with the largest share of rare terms. A convex combination of scores ranks better
    than reciprocal ranks (Bruch, Gai and Ingber, ACM TOIS 2023). Ties are broken by entry id.
    """
    lists = {name: found.lists.get(name, ()) for name in LISTS}
    cosines = dict(map(_scored, lists["dense"]))
    rare_hits = (hits for hits in found.terms.values() if len(hits) <= RARE)
    entry_of = dict(map(_placed, chain(*lists.values(), *rare_hits)))
    similarities = {hit.entry_id: hit.score for hit in reversed(lists["dense"])}
    meaning = support(next(iter(cosines.values()), 0.0), medium)
    relative = {name: _relative(hits, name == "dense") for name, hits in lists.items()}
    scores = _weighted(PASSAGE_WEIGHTS, relative, meaning)
    boost = 2 - coverage(found)
    best = _weighted(BEST_WEIGHTS, relative, meaning * boost)
    dense = BEST_WEIGHTS["dense"] / sum(BEST_WEIGHTS.values()) * meaning * boost
    by_lists, by_meaning = _entry_scores(best, relative, entry_of, dense)
    shares, held = _rare_shares(found.terms, min(RARE, int(RARE_WORD_SHARE * entries)))
    best_share: dict[str, float] = {}
    for point_id, share in shares.items():
        scores[point_id] = scores.get(point_id, 0.0) + share
        entry_id = entry_of[point_id]
        if share > best_share.get(entry_id, 0.0):
            best_share[entry_id] = share
    for name in ("entry", "frontmatter"):
        for point_id in relative[name].keys() - scores.keys():
            scores[point_id] = 0.0
    passages: dict[str, list[RankedPassage]] = defaultdict(list)
    rare_terms = map(held.get, scores, repeat(()))
    columns = zip(scores, scores.values(), map(cosines.get, scores), rare_terms, strict=True)
    for passage in map(_new_passage, columns):
        passages[entry_of[passage[0]]].append(passage)
    gained = BEST_WEIGHTS["dense"] * (boost - 1) / sum(BEST_WEIGHTS.values())
    total = sum(ENTRY_WEIGHTS.values()) + ENTRY_WEIGHTS["passages"] * gained
    rare = ENTRY_WEIGHTS["rare"]
    ranked = []
    for entry_id, own in passages.items():
        if len(own) > 1:
            own.sort(key=_best_first)
        score = (by_lists[entry_id] + rare * best_share.get(entry_id, 0.0)) / total
        meaning = by_meaning[entry_id] / total
        ranked.append(_new_entry((entry_id, score, similarities.get(entry_id), own, meaning)))
    if len(set(map(_score, ranked))) < len(ranked):
        ranked.sort(key=_id)
    ranked.sort(key=_score, reverse=True)  # keeps the order of equals
    return ranked


def _best_first(passage: RankedPassage) -> tuple[float, str]:
    return -passage.score, str(passage.point_id)


def support(similarity: float, medium: float) -> float:
    """Return how far the best cosine supports the passages found by meaning, 0 to 1."""
    return min(1.0, max(0.0, similarity) / medium)


def coverage(found: Ranked) -> float:
    """Return the largest share of the query's terms, weighted by rarity, that one of the best BM25
    passages contains, 0 to 1. A common term counts as contained.
    """
    best = [hit.point_id for hit in found.lists.get("passage", ())[:COVERING]]
    total = 0.0
    covered = dict.fromkeys(best, 0.0)
    for hits in found.terms.values():
        weight = rarity(len(hits))
        total += weight
        held = best if len(hits) > RARE else {hit.point_id for hit in hits}.intersection(best)
        for point_id in held:
            covered[point_id] += weight
    return max(covered.values(), default=0.0) / total if total else 1.0


def rarity(passages: int) -> float:
    """Return the weight of a term by the number of passages that contain it; a common term weighs
    about a quarter of a unique one.
    """
    return math.log1p((RARE + 1) / min(max(passages, 1), RARE + 1))


def above(ranked: Sequence[RankedEntry], min_similarity: float | None) -> list[RankedEntry]:
    """Return the entries whose dense cosine is at least `min_similarity`, or all entries if it is
    None.
    """
    if min_similarity is None:
        return list(ranked)
    return [e for e in ranked if e.similarity is not None and e.similarity >= min_similarity]


def _relative(hits: Sequence[Hit], dense: bool) -> dict[PointId, float]:
    top = hits[0].score if hits else 0.0
    floor = _floor(hits) if dense else 0.0
    if top <= floor:
        return {hit.point_id: float(top > 0) for hit in hits}
    width = top - floor
    return {
        point_id: value if (value := (score - floor) / width) > 0.0 else 0.0
        for point_id, _, score in hits
    }


def _floor(hits: Sequence[Hit]) -> float:
    """Return the estimated lowest cosine of a full list, at least 0."""
    if not hits:
        return 0.0
    top, last = hits[0].score, hits[-1].score
    return max(0.0, top - (top - last) * max(1.0, _FULL_LIST / len(hits)))


def _weighted(
    weights: dict[str, float],
    relative: Mapping[str, Mapping[PointId, float]],
    meaning: float,
) -> dict[PointId, float]:
    """Return the score of each passage; `meaning` scales the weight of the dense list."""
    total = sum(weights.values())
    share = weights["dense"] / total * meaning
    scores = {point_id: share * value for point_id, value in relative["dense"].items()}
    words = weights["passage"] / total
    for name, share in (("passage", words), ("glossary", words * GLOSSARY_WEIGHT)):
        for point_id, value in relative[name].items():
            scores[point_id] = scores.get(point_id, 0.0) + share * value
    return scores


def _entry_scores(
    scores: Mapping[PointId, float],
    relative: Mapping[str, Mapping[PointId, float]],
    entry_of: Mapping[PointId, str],
    dense: float,
) -> tuple[dict[str, float], dict[str, float]]:
    """Return the score of each entry, not counting rare terms, and the part of it that the dense
    list gave; `dense` is the weight of that list in `scores`.
    """
    own: dict[str, list[tuple[float, float]]] = defaultdict(list)
    by_dense = relative["dense"]
    for point_id, score in scores.items():
        own[entry_of[point_id]].append((score, dense * by_dense.get(point_id, 0.0)))
    weight, total = ENTRY_WEIGHTS["passages"], sum(BEST_PASSAGES)
    found: dict[str, float] = defaultdict(float)
    meaning: dict[str, float] = defaultdict(float)
    for entry_id, values in own.items():
        if len(values) > 1:
            values.sort(reverse=True)
        own_scores, own_parts = zip(*values, strict=True)
        found[entry_id] = weight * sum(map(mul, BEST_PASSAGES, own_scores)) / total
        meaning[entry_id] = weight * sum(map(mul, BEST_PASSAGES, own_parts)) / total
    for name in ("entry", "frontmatter"):
        weight = ENTRY_WEIGHTS[name]
        for point_id, value in relative[name].items():
            found[entry_of[point_id]] += weight * value
    return found, meaning


def _rare_shares(
    terms: Mapping[str, Sequence[Hit]], most: int
) -> tuple[dict[PointId, float], dict[PointId, tuple[str, ...]]]:
    """Return two mappings by passage: the share of its rare terms among all query terms, weighted
    by rarity, and its rare terms. A plain word adds to the share only if at most `most` passages
    contain it. The parts of an exact thing that was found, such as `14` of `2.14.3`, add nothing.
    """
    parts = parts_of([term for term, hits in terms.items() if hits])
    total = sum(rarity(len(hits)) for term, hits in terms.items() if term not in parts)
    shares: dict[PointId, float] = defaultdict(float)
    held: dict[PointId, tuple[str, ...]] = defaultdict(tuple)
    for term, hits in terms.items():
        if len(hits) <= RARE and not is_part(term):
            counts = (is_exact(term) or len(hits) <= most) and term not in parts
            weight = rarity(len(hits)) / total if counts else 0.0
            for point_id, _, _ in hits:
                shares[point_id] += weight
                held[point_id] += (term,)
    return shares, held
