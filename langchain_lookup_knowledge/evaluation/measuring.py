"""Measure how well each layer of a knowledge base answers questions with known answers."""

import json
import math
import random
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast, get_args

from langchain_lookup_knowledge.errors import EvaluationError
from langchain_lookup_knowledge.first_sight.evaluation import Evaluation
from langchain_lookup_knowledge.knowledge_base import KnowledgeBase
from langchain_lookup_knowledge.l1.fusion import LIST_LENGTH
from langchain_lookup_knowledge.l1.requests import L1Request
from langchain_lookup_knowledge.lookup.answer.relevance import Feature, model_for
from langchain_lookup_knowledge.lookup.answer.rendering import render
from langchain_lookup_knowledge.lookup.graph import create_lookup_knowledge_graph
from langchain_lookup_knowledge.reading.entry import category_key
from langchain_lookup_knowledge.types import LookupOptions, LookupResult, RelevanceLevel

DEPTH = 10
METRICS = ("success@1", "success@5", "MRR@10", "nDCG@10", "recall@10")
RESAMPLES = 1000
L1_SECONDS = 60.0
L1_DEPTH = 4 * LIST_LENGTH
"""Number of candidates to rank by similarity alone: the maximum that the four ranked lists of a
search can contain.
"""
FIRST_MATCH_CHARS = 2400
"""Evidence counts as shown first if it is within this many leading characters of the first match's
snippet.
"""
LEVELS: tuple[RelevanceLevel, ...] = get_args(RelevanceLevel)
_SPACES_AND_MARKS = re.compile(r"[\s*_`~\\]+")


@dataclass(frozen=True, slots=True)
class Question:
    """A query and the ids of the entries that answer it; `relevant` is empty if no entry does.

    `evidence`: texts, at least one of which must be shown; empty if unknown.
    """

    id: str
    query: str
    relevant: frozenset[str]
    evidence: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Outcome:
    """The answer of the tool to a question, with default options.

    `right`: whether the first match answers the question; `shown` and `first`: whether the evidence
    is in the text for the model, and in the first match; None if the question has no evidence.
    `features`: the input of the relevance model; empty if L1 did not find the first match.
    """

    level: RelevanceLevel
    answerable: bool
    right: bool
    shown: bool | None
    first: bool | None
    features: Mapping[Feature, float]


def read_questions(path: Path) -> list[Question]:
    """Read questions, one JSON object per line, with `id`, `query` and `relevant` (entry ids).

    An object may also have `evidence`: texts, at least one of which must be shown.

    Raises:
        EvaluationError: the file cannot be read, or a line is not such a JSON object.
    """
    try:
        lines = path.read_text("utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise EvaluationError(
            f"{path} cannot be read: give a file with one question (a JSON object) per line"
        ) from error
    questions = [
        _question(path, number, line) for number, line in enumerate(lines, start=1) if line.strip()
    ]
    duplicates = [
        question_id for question_id, count in Counter(q.id for q in questions).items() if count > 1
    ]
    if duplicates:
        raise EvaluationError(
            f"{path}: the id {duplicates[0]!r} is used twice: give each question its own, or none"
        )
    return questions


def _question(path: Path, number: int, line: str) -> Question:
    try:
        written = json.loads(line)
        relevant, evidence = written["relevant"], written.get("evidence", [])
        if not isinstance(relevant, list) or not isinstance(evidence, list):
            raise TypeError
        if not all(isinstance(text, str) and plain(text).strip() for text in evidence):
            raise TypeError
        return Question(
            str(written.get("id", number)),
            str(written["query"]),
            frozenset(map(str, relevant)),
            tuple(evidence),
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise EvaluationError(
            f'{path}:{number}: write {{"id": ..., "query": ..., "relevant": [entry ids]}}, '
            'and optionally "evidence": [texts, one of which must be shown]'
        ) from error


def measure(ranked: Sequence[str], relevant: frozenset[str]) -> tuple[float, ...]:
    """Return success@1, success@5, MRR@10, nDCG@10 (binary) and recall@10 of a ranking."""
    hits = [entry_id in relevant for entry_id in ranked[:DEPTH]]
    gain = sum(hit / math.log2(place + 2) for place, hit in enumerate(hits))
    ideal = sum(1 / math.log2(place + 2) for place in range(min(DEPTH, len(relevant))))
    first = next((1 / place for place, hit in enumerate(hits, start=1) if hit), 0.0)
    return (
        float(any(hits[:1])),
        float(any(hits[:5])),
        first,
        gain / ideal,
        sum(hits) / len(relevant),
    )


def summary(rows: Sequence[tuple[float, ...]]) -> dict[str, dict[str, float]]:
    """Return the mean and 95 % interval of each metric (percentile bootstrap, fixed seed)."""
    rng = random.Random(7)  # noqa: S311  (resampling is not cryptography)
    samples = [[rng.randrange(len(rows)) for _ in rows] for _ in range(RESAMPLES)]
    found = {}
    for name, values in zip(METRICS, zip(*rows, strict=True), strict=True):
        means = sorted(sum(values[i] for i in sample) / len(sample) for sample in samples)
        low, high = means[int(0.025 * RESAMPLES)], means[int(0.975 * RESAMPLES)]
        found[name] = {
            "mean": _rounded(sum(values) / len(values)),
            "low": _rounded(low),
            "high": _rounded(high),
        }
    return found


def _rounded(value: float) -> float:
    return round(value, 4)


def plain(text: str) -> str:
    """Return a text in lower case, with each run of whitespace and Markdown marks as one space."""
    return _SPACES_AND_MARKS.sub(" ", text.lower())


def shows(text: str, evidence: Iterable[str]) -> bool:
    """Return whether one of the evidence texts is in `text`, regardless of Markdown marks."""
    shown = plain(text)
    return any(plain(literal).strip() in shown for literal in evidence)


def outcomes(kb: KnowledgeBase, questions: Iterable[Question]) -> Iterator[Outcome]:
    """Yield the answer of the tool to each question, with default options but more time for L1."""
    options = LookupOptions(l1_timeout=L1_SECONDS)
    graph = create_lookup_knowledge_graph(kb, record=None, options=options, drop_weak=True)
    for question in questions:
        state: dict[str, Any] = {}
        for update in graph.stream({"query": question.query}, stream_mode="updates"):
            for changed in update.values():
                state |= changed or {}
        matches, known = state["matches"], bool(question.evidence)
        text = render(cast(LookupResult, state), options.max_chars)
        first = matches[0]["snippet"][:FIRST_MATCH_CHARS] if matches else ""
        judged = bool(matches) and "L1" in matches[0]["layers"]
        yield Outcome(
            level=state["relevance"]["level"],
            answerable=bool(question.relevant),
            right=bool(matches) and matches[0]["entry_id"] in question.relevant,
            shown=shows(text, question.evidence) if known else None,
            first=shows(first, question.evidence) if known else None,
            features=state["features"] if judged else {},
        )


def reliability(claims: Iterable[tuple[RelevanceLevel, Outcome]]) -> dict[str, dict[str, Any]]:
    """Return how reliable the first matches of each relevance level were.

    For each level: the number of `questions`; the share whose first match is `right`; among
    questions with evidence, the share whose first match contains it (`evidence`); and the number of
    questions `without_answer`. A share is None if there are no questions.
    """
    groups: dict[str, list[Outcome]] = {level: [] for level in LEVELS}
    for level, outcome in claims:
        groups[level].append(outcome)
    return {
        level: {
            "questions": len(group),
            "right": _share(outcome.right for outcome in group),
            "evidence": _share(o.first for o in group if o.first is not None),
            "without_answer": sum(not outcome.answerable for outcome in group),
        }
        for level, group in groups.items()
    }


def _share(found: Iterable[bool]) -> float | None:
    values = list(found)
    return _rounded(sum(values) / len(values)) if values else None


def area_under_curve(claims: Sequence[tuple[float, bool]]) -> float | None:
    """Return the area under the ROC curve of probabilities and outcomes.

    It is the share of pairs of a right and a wrong outcome in which the right one has the higher
    probability; ties count half. The area is None if there are no such pairs.
    """
    right = [probability for probability, is_right in claims if is_right]
    wrong = [probability for probability, is_right in claims if not is_right]
    if not right or not wrong:
        return None
    wins = sum((one > other) + (one == other) / 2 for one in right for other in wrong)
    return _rounded(wins / (len(right) * len(wrong)))


def evaluate(kb: KnowledgeBase, questions: Sequence[Question]) -> Evaluation:
    """Return metrics per layer, effects of hints and filter, evidence shown, and reliability of the
    relevance.

    `rankings` maps "L0 alone", "L1 dense", "L1 hybrid" and "full" to the metrics over the
    answerable questions; the L1 rankings are left out if L1 does not answer. `hints` and `filter`
    count questions. `evidence`: the number of `questions` with evidence, and the share of them
    whose evidence is in the text of the tool (`shown`) and in its first match (`first`).
    `reliability`: see the function `reliability`. `auc`: the area under the ROC curve of the
    probabilities behind the levels.

    Raises:
        EvaluationError: no question has a relevant entry.
    """
    answerable = [question for question in questions if question.relevant]
    if not answerable:
        raise EvaluationError(
            "none of the questions has a relevant entry: add the ids of entries that answer them"
        )
    known = {entry.entry_id for entry in kb.entries}
    alone = _graph(kb, l1_enabled=False)
    full = _graph(kb)
    results: dict[str, Any] = {
        question.id: full.invoke({"query": question.query}) for question in questions
    }
    rankings = {
        "L0 alone": {q.id: _entry_ids(alone.invoke({"query": q.query})) for q in answerable},
        **_l1_rankings(kb, answerable, results),
        "full": {q.id: _entry_ids(results[q.id]) for q in answerable},
    }
    return Evaluation(
        questions={
            "answerable": len(answerable),
            "unanswerable": len(questions) - len(answerable),
        },
        unknown_entries=sorted(set().union(*(q.relevant for q in answerable)) - known),
        rankings={
            name: summary([measure(found[q.id], q.relevant) for q in answerable])
            for name, found in rankings.items()
        },
        **_counts(kb, questions, results),
        **_claims(kb, list(outcomes(kb, questions))),
    )


def _claims(kb: KnowledgeBase, given: Sequence[Outcome]) -> dict[str, Any]:
    model = model_for(kb.embedding, kb.data_folder)
    known = [outcome for outcome in given if outcome.shown is not None]
    return {
        "evidence": {
            "questions": len(known),
            "shown": _share(bool(outcome.shown) for outcome in known),
            "first": _share(bool(outcome.first) for outcome in known),
        },
        "reliability": reliability([(outcome.level, outcome) for outcome in given]),
        "auc": area_under_curve(
            [(model.probability(o.features), o.right) for o in given if o.features]
        ),
    }


def _graph(kb: KnowledgeBase, **options: Any) -> Any:
    chosen = LookupOptions(k=DEPTH, l1_timeout=L1_SECONDS, **options)
    return create_lookup_knowledge_graph(kb, record=None, options=chosen)


def _entry_ids(result: Mapping[str, Any]) -> list[str]:
    return [match["entry_id"] for match in result["matches"]]


def _l1_rankings(
    kb: KnowledgeBase, questions: Sequence[Question], results: Mapping[str, LookupResult]
) -> dict[str, dict[str, list[str]]]:
    if any(results[question.id]["l1"]["status"] not in ("ok", "empty") for question in questions):
        return {}
    found = {}
    for q in questions:
        request = L1Request(q.query, kb.l0.entries, limit=L1_DEPTH, timeout=L1_SECONDS)
        outcome = kb.l1.search(request)
        if not outcome.candidates:
            return {}
        found[q.id] = outcome.candidates[0]
    hybrid = {
        i: [candidate["entry_id"] for candidate in candidates] for i, candidates in found.items()
    }
    dense = {
        i: [
            c["entry_id"]
            for c in sorted(candidates, key=lambda c: -(c["similarity"] or 0.0))
            if c["similarity"] is not None
        ]
        for i, candidates in found.items()
    }
    return {"L1 dense": dense, "L1 hybrid": hybrid}


def _counts(
    kb: KnowledgeBase, questions: Sequence[Question], results: Mapping[str, LookupResult]
) -> dict[str, Any]:
    categories = {entry.entry_id: set(map(category_key, entry.categories)) for entry in kb.entries}
    hints: Counter[str] = Counter(specific=0, right_entry_hinted=0)
    choice: Counter[str] = Counter(
        fired=0, helped=0, hurt=0, excluded_every_right_entry=0, relaxed=0
    )
    unfiltered = _graph(kb, filter_mode="off")
    for question in questions:
        result = results[question.id]
        if not question.relevant:
            continue
        if any(term["specific"] for term in result["hints"]["terms"]):
            hints["specific"] += 1
            hinted = {entry["entry_id"] for entry in result["hints"]["entries"]}
            hints["right_entry_hinted"] += not question.relevant.isdisjoint(hinted)
        category = result["filter"]["category"]
        if category is not None:
            choice["fired"] += 1
            gain = _first(result, question) - _first(
                unfiltered.invoke({"query": question.query}), question
            )
            choice["helped"] += gain > 0
            choice["hurt"] += gain < 0
            choice["relaxed"] += result["filter"]["relaxed"]
            inside = (
                category_key(category) in categories.get(entry_id, ())
                for entry_id in question.relevant
            )
            choice["excluded_every_right_entry"] += not any(inside)
    return {"hints": dict(hints), "filter": dict(choice)}


def _first(result: Mapping[str, Any], question: Question) -> float:
    """Return the reciprocal rank of the first relevant entry."""
    return measure(_entry_ids(result), question.relevant)[METRICS.index("MRR@10")]
