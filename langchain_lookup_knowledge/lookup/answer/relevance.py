"""The relevance of a result: how likely its first match is right. A model fitted to questions with
known answers estimates it.

`benchmarks/relevance.py` fits the bundled model; `lookup-knowledge eval --fit` fits one to your own
questions.
"""

import json
import logging
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Literal, cast, get_args

from langchain_core.embeddings import Embeddings

from langchain_lookup_knowledge.durable import read_json, write_durably
from langchain_lookup_knowledge.l1.fusion import RARE, rarity
from langchain_lookup_knowledge.l1.models.embeddings import DEFAULT_MODEL, identity
from langchain_lookup_knowledge.lookup.answer.merging import FoundEntry, names_all, specific_entries
from langchain_lookup_knowledge.text.search_terms import held_terms, is_exact, is_part, parts_of
from langchain_lookup_knowledge.text.wording import NO_PASSAGE_HOLDS, shorten
from langchain_lookup_knowledge.types import (
    Candidate,
    Hints,
    L1Status,
    Problem,
    Relevance,
    RelevanceLevel,
)

logger = logging.getLogger("langchain_lookup_knowledge")

Feature = Literal["agreement", "named", "absent", "hinted", "lead", "above_others", "no_similarity"]
FEATURES: tuple[Feature, ...] = get_args(Feature)
FITTED_FILE = "relevance.json"
"""File in the data folder with the model fitted to a knowledge base."""
HIGH, MEDIUM = 0.88, 0.63
"""Minimum probability of a right first match for high and for medium relevance."""
MAX_WEIGHT = 1000
"""Maximum absolute weight of a fitted model; the weights of real models are below 100."""
NAME_LEAD, NAME_ABSENT = 0.1, 0.5
"""Minimum lead, and maximum share of absent terms, of a match that is medium because it contains
the names in the query. All 13 such matches in the Chinese benchmark are right.
"""
MANY_ENTRIES = 1000
"""Minimum number of entries that a missing word counts for if words alone found the match."""
MAX_NAMED = 3
"""Maximum words that are named as missing from all passages."""
MAX_NAME = 40
"""Maximum characters of such a word."""


@dataclass(frozen=True, slots=True)
class RelevanceModel:
    """A logistic model of how likely the first match is right.

    `fitted`: whether it was fitted with this embedding model; if not, it never gives the level
    "high".
    """

    intercept: float
    weights: Mapping[Feature, float]
    fitted: bool = True

    def probability(self, measured: Mapping[Feature, float]) -> float:
        """Return the probability that the first match is right, 0 to 1."""
        total = self.intercept + sum(w * measured[name] for name, w in self.weights.items())
        return 1 / (1 + math.exp(-max(-50.0, min(50.0, total))))

    def level(self, measured: Mapping[Feature, float]) -> RelevanceLevel:
        """Return the level that a first match with these features may claim."""
        probability = self.probability(measured)
        if probability >= HIGH and self.fitted:
            return "high"
        return "medium" if probability >= MEDIUM else "low"


BUNDLED = RelevanceModel(
    -3.22,
    {
        "agreement": 4.13,
        "named": 0.62,
        "absent": -0.75,
        "hinted": 1.02,
        "lead": 1.95,
        "above_others": 8.13,
        "no_similarity": 2.59,
    },
)
"""Fitted to 408 questions about seven knowledge bases with the default embedding model
(benchmarks/relevance.py). docs/evaluation.md says how often each level is right.
"""
UNFITTED = RelevanceModel(
    -2.28,
    {"agreement": 3.4, "named": 1.34, "absent": -0.62, "hinted": 1.36, "lead": 3.3},
    fitted=False,
)
"""The relevance model for all other embedding models; it uses no cosines, because their range
differs between models.
"""


def features(
    found: Sequence[FoundEntry],
    candidates: Sequence[Candidate],
    query: Sequence[str],
    frequencies: Mapping[str, int],
    entries: int,
) -> dict[Feature, float]:
    """Return the evidence for and against the first match.

    - `agreement`: the fused score of the match, 0 to 1: how far the ranked lists agree on it;
    - `named`: the share of the query's terms, weighted by rarity, that the title of the match and
    the heading of its best passage contain;
    - `absent`: the share of the query's terms that are in no passage, times the logarithm of the
    number of entries, because a word is missing from a small knowledge base by chance; if words
    alone found the match, as if there were at least `MANY_ENTRIES`;
    - `hinted`: 1 if the hints point at the match, else 0;
    - `lead`: the score of the match minus that of the third match, divided by its own, 0 to 1;
    - `above_others`: the best cosine of the match minus the mean of the other candidates' best
    cosines, -1 to 1;
    - `no_similarity`: 1 if the match has no cosine, else 0.

    `candidates` are all entries that L1 returned; `entries` is the number of entries searched.
    """
    first = found[0]
    names = (first.title, *(passage["heading"] for passage in first.passages[:1]))
    held = {term for name in names for term in held_terms(name, query)}
    weights = {term: rarity(frequencies.get(term, RARE + 1)) for term in query}
    third = found[2].score if len(found) > 2 else 0.0
    others = [
        one["similarity"]
        for one in candidates
        if one["entry_id"] != first.entry_id and one["similarity"] is not None
    ]
    if first.similarity is None:
        entries = max(entries, MANY_ENTRIES)
    is_compared = first.similarity is not None and others
    return {
        "agreement": min(1.0, first.score),
        "named": sum(weights[term] for term in held) / (sum(weights.values()) or 1),
        "absent": _absent_share(frequencies) * math.log(max(1, entries)),
        "hinted": float("L0" in first.layers),
        "lead": (first.score - third) / first.score if first.score else 0.0,
        "above_others": (first.similarity or 0.0) - fmean(others) if is_compared else 0.0,
        "no_similarity": float(first.similarity is None),
    }


def _absent_share(frequencies: Mapping[str, int]) -> float:
    return sum(not count for count in frequencies.values()) / max(1, len(frequencies))


def assess(
    hints: Hints,
    found: Sequence[FoundEntry],
    l1: L1Status,
    measured: Mapping[Feature, float],
    missing: Sequence[str],
    query: Sequence[str],
    frequencies: Mapping[str, int],
    model: RelevanceModel,
    medium_similarity: float,
) -> Relevance:
    """Return the relevance of the matches, judged by the first match.

    Only the dense similarity of the first match counts as semantic support. A first match that L1
    did not find has the level "medium" if it declares a specific term of the query, else "low". One
    that L1 found is at least "medium" if its specific terms cover the whole query, and this is true
    of few other entries. A first match that neither the hints nor its similarity speak for is at
    most "medium" if a word of the query is in no passage.

    Args:
        hints: the hints that L0 found.
        found: the entries, best first.
        l1: how L1 took part.
        measured: the features of the first match.
        missing: words of the query that are in no passage.
        query: the terms of the query.
        frequencies: the number of passages with each term that was searched for separately.
        model: the relevance model that gives the level.
        medium_similarity: the minimum cosine for semantic support.
    """
    if not found:
        return {"level": "none", "semantic_support": False, "reason": "nothing matched"}
    absent = f"; {NO_PASSAGE_HOLDS} {_named(missing)}" if missing else ""
    first = found[0]
    if "L1" not in first.layers:
        declared = first.entry_id in specific_entries(hints)
        keywords = f"{'a' if declared else 'no'} specific term of the query is declared"
        return {
            "level": "medium" if declared else "low",
            "semantic_support": False,
            "reason": f"keyword match alone: {keywords}; L1 {l1}{absent}",
        }
    level = bounded_by_exact_things(model.level(measured), first, frequencies)
    if level == "low" and frequencies and names_all(hints, first.entry_id, query):
        level = "medium"
    similarity = first.similarity or 0.0
    by_words_alone = "L0" not in first.layers and similarity < medium_similarity / 2
    if level == "high" and by_words_alone and missing:
        level = "medium"
    meaning = "found by words alone"
    if first.similarity is not None:
        meaning = f"similarity {first.similarity:.2f}"
    note = "" if model.fitted else "; not fitted to this embedding model"
    return {
        "level": level,
        "semantic_support": level != "low" and similarity >= medium_similarity,
        "reason": f"{meaning}{absent}{note}",
    }


def bounded_by_exact_things(
    level: RelevanceLevel, first: FoundEntry, frequencies: Mapping[str, int]
) -> RelevanceLevel:
    """Return the level, bounded by the codes, versions, addresses and the like in the query.

    The level is low if one of these things is in no passage, because the query asks for that very
    thing. The level is at most medium if one of them is only in other matches. It is at least
    medium if the first match contains all of them.

    A query of nothing but numbers does not say what they count: its level is at most medium unless
    the hints point at the first match, and low if no passage contains any of them.
    """
    if frequencies and all(map(is_exact, frequencies)):
        if not any(frequencies.values()):
            return "low"
        if level == "high" and "L0" not in first.layers and all(map(str.isdigit, frequencies)):
            return "medium"
    things = [term for term in frequencies if not term.isalnum() and any(map(str.isdigit, term))]
    whole = [term for term in things if not any(map(frequencies.get, parts_of([term]) & {*things}))]
    if not whole:
        return level
    texts = (first.title, *(passage["text"] for passage in first.passages))
    held = {term for text in texts for term in held_terms(text, whole)}
    if not all(frequencies[term] for term in whole):
        return "low"
    if any(frequencies[term] <= RARE and term not in held for term in whole):
        return "low" if level == "low" else "medium"
    return "medium" if level == "low" and held.issuperset(whole) else level


def judged_by_words(
    relevance: Relevance,
    unknown: str | None,
    found: Sequence[FoundEntry],
    measured: Mapping[Feature, float],
    frequencies: Mapping[str, int],
) -> Relevance:
    """Return the relevance of matches that were found by words alone, because the model does not
    know a language: at most medium, and at least medium if the first match contains the names in
    the query. `unknown` is a caveat about the language; None if the model knows it.
    """
    if not unknown:
        return relevance
    level = relevance["level"]
    if level == "high" or (level == "low" and _holds_names(found[0], measured, frequencies)):
        level = "medium"
    return {**relevance, "level": level, "reason": f"{relevance['reason']}; {unknown}"}


def _holds_names(
    first: FoundEntry, measured: Mapping[Feature, float], frequencies: Mapping[str, int]
) -> bool:
    """Return whether the first match is clearly better than the third and contains at least half of
    the names in the query. Names, such as those of products, are words in another script in a query
    that is otherwise in a script written without spaces.
    """
    names = [term for term in frequencies if not is_part(term)]
    if not names or len(names) == len(frequencies):
        return False
    is_clear = measured["lead"] >= NAME_LEAD and _absent_share(frequencies) <= NAME_ABSENT
    return is_clear and 2 * len(_held(first, names)) >= len(names)


def _held(first: FoundEntry, terms: Collection[str]) -> set[str]:
    """Return the given terms that the title and the passages of a match contain."""
    texts = (first.title, *(text for p in first.passages for text in (p["heading"], p["text"])))
    return {term for text in texts for term in held_terms(text, terms)}


def missing_words(query: Mapping[str, str], frequencies: Mapping[str, int]) -> list[str]:
    """Return the words of the query that are in no passage, exact things first."""
    absent = [t for t, count in frequencies.items() if not count and not is_part(t) and t in query]
    parts = parts_of(absent)
    absent = [term for term in absent if term not in parts]
    absent.sort(key=lambda term: not is_exact(term))
    return list(dict.fromkeys(shorten(query[term], MAX_NAME) for term in absent))


def _named(words: Sequence[str]) -> str:
    """Return the first `MAX_NAMED` words, quoted, and the number of the others."""
    more = f" and {len(words) - MAX_NAMED} more" if len(words) > MAX_NAMED else ""
    return ", ".join(map(repr, words[:MAX_NAMED])) + more


def model_for(
    embedding: Embeddings,
    data_folder: Path,
    note: Callable[[Problem], None] = lambda problem: None,
) -> RelevanceModel:
    """Return the relevance model fitted to a knowledge base, else the default one for its embedding
    model.

    A fitted model is used only with the embedding model it was fitted with. An unusable file is
    logged, passed to `note` and ignored.
    """
    bundled = BUNDLED if identity(embedding) == DEFAULT_MODEL else UNFITTED
    path = data_folder / FITTED_FILE
    try:
        kept = read_json(path)
        if kept["embedding"] != identity(embedding):
            return bundled
        return RelevanceModel(_weight(kept["intercept"]), _weights(kept["weights"]))
    except FileNotFoundError:
        return bundled
    except (OSError, ValueError, KeyError, TypeError, OverflowError) as error:
        what = (
            f"it cannot be used ({type(error).__name__}: {error}), so relevance is judged without "
            "it: run `lookup-knowledge eval --fit` again, or delete it"
        )
        logger.warning("%s: %s", path, what)
        note(Problem(FITTED_FILE, None, what))
        return bundled


def _weights(kept: object) -> dict[Feature, float]:
    if not isinstance(kept, dict):
        raise ValueError("the weights have no names")
    unknown = sorted(set(kept) - set(FEATURES))
    if unknown:
        raise ValueError(f"unknown feature {unknown[0]!r}")
    return {cast(Feature, name): _weight(weight) for name, weight in kept.items()}


def _weight(kept: object) -> float:
    if isinstance(kept, bool) or not isinstance(kept, int | float) or not abs(kept) <= MAX_WEIGHT:
        raise ValueError(f"{str(kept)[:20]} is not a weight of {-MAX_WEIGHT} to {MAX_WEIGHT}")
    return float(kept)


def keep_model(model: RelevanceModel, embedding: Embeddings, data_folder: Path) -> Path:
    """Save a model that was fitted with an embedding model in the data folder; return its path."""
    path = data_folder / FITTED_FILE
    kept = {
        "embedding": identity(embedding),
        "intercept": model.intercept,
        "weights": dict(model.weights),
    }
    write_durably(path, json.dumps(kept, indent=2) + "\n")
    return path
