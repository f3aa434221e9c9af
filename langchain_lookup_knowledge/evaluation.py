"""How well a knowledge base answers questions whose right entries are known, layer by layer."""

import json
import math
import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from langchain_lookup_knowledge.documents import category_key
from langchain_lookup_knowledge.errors import DocumentError
from langchain_lookup_knowledge.filters import best_similarity
from langchain_lookup_knowledge.graph import create_lookup_knowledge_graph
from langchain_lookup_knowledge.knowledge_base import SEARCH_LIMIT, KnowledgeBase
from langchain_lookup_knowledge.types import LookupOptions, LookupResult

DEPTH = 10
METRICS = ("success@1", "success@5", "MRR@10", "nDCG@10", "recall@10")
RESAMPLES = 1000
HATCHES = ("", "//", "..", "xx")
L1_SECONDS = 60.0
L1_DEPTH = 4 * SEARCH_LIMIT
"""Candidates read to rank them by similarity alone: all that the four lists of a search can find."""


@dataclass(frozen=True, slots=True)
class Question:
    """A query and the ids of the entries that answer it; none where the knowledge base has no answer."""

    id: str
    query: str
    relevant: frozenset[str]


def read_questions(path: Path) -> list[Question]:
    """Read questions, one JSON object a line: `id`, `query`, `relevant` (entry ids).

    Raises:
        DocumentError: the file cannot be read, or a line is not such an object.
    """
    try:
        lines = path.read_text("utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DocumentError(f"{path} cannot be read: give a file of questions, one JSON object a line") from error
    questions = [_question(path, number, line) for number, line in enumerate(lines, start=1) if line.strip()]
    doubled = [question_id for question_id, count in Counter(q.id for q in questions).items() if count > 1]
    if doubled:
        raise DocumentError(f"{path}: the id {doubled[0]!r} is given twice: give each question its own, or none")
    return questions


def _question(path: Path, number: int, line: str) -> Question:
    try:
        written = json.loads(line)
        relevant = written["relevant"]
        if not isinstance(relevant, list):
            raise TypeError
        return Question(str(written.get("id", number)), str(written["query"]), frozenset(map(str, relevant)))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise DocumentError(f'{path}:{number}: write {{"id": ..., "query": ..., "relevant": [entry ids]}}') from error


def measure(ranked: Sequence[str], relevant: frozenset[str]) -> tuple[float, ...]:
    """Return success@1, success@5, reciprocal rank, nDCG (binary) and recall of a ranking, the last three at 10."""
    hits = [entry_id in relevant for entry_id in ranked[:DEPTH]]
    gain = sum(hit / math.log2(place + 2) for place, hit in enumerate(hits))
    ideal = sum(1 / math.log2(place + 2) for place in range(min(DEPTH, len(relevant))))
    first = next((1 / place for place, hit in enumerate(hits, start=1) if hit), 0.0)
    return float(any(hits[:1])), float(any(hits[:5])), first, gain / ideal, sum(hits) / len(relevant)


def summary(rows: Sequence[tuple[float, ...]]) -> dict[str, dict[str, float]]:
    """Return mean and 95 % interval (percentile bootstrap, 1000 resamples, fixed seed) of each metric."""
    rng = random.Random(7)  # noqa: S311  (resampling is no cryptography)
    samples = [[rng.randrange(len(rows)) for _ in rows] for _ in range(RESAMPLES)]
    found = {}
    for name, values in zip(METRICS, zip(*rows, strict=True), strict=True):
        means = sorted(sum(values[i] for i in sample) / len(sample) for sample in samples)
        low, high = means[int(0.025 * RESAMPLES)], means[int(0.975 * RESAMPLES)]
        found[name] = {"mean": _rounded(sum(values) / len(values)), "low": _rounded(low), "high": _rounded(high)}
    return found


def _rounded(value: float) -> float:
    return round(value, 4)


def evaluate(kb: KnowledgeBase, questions: Sequence[Question]) -> dict[str, Any]:
    """Return what each layer finds, what the hints and the filter are worth, and what is claimed without an answer.

    `rankings` maps "L0 alone", "L1 dense", "L1 hybrid" and "full" to the metrics over the answerable questions; the L1
    ones are left out where L1 does not answer. `hints`, `filter` and `levels` count questions.
    """
    answerable = [question for question in questions if question.relevant]
    if not answerable:
        raise DocumentError("none of the questions has a relevant entry: there is nothing to measure")
    known = {entry.entry_id for entry in kb.entries}
    alone = _graph(kb, l1_enabled=False)
    full = _graph(kb)
    results: dict[str, Any] = {question.id: full.invoke({"query": question.query}) for question in questions}
    rankings = {
        "L0 alone": {q.id: _entry_ids(alone.invoke({"query": q.query})) for q in answerable},
        **_l1_rankings(kb, answerable, results),
        "full": {q.id: _entry_ids(results[q.id]) for q in answerable},
    }
    return {
        "questions": {"answerable": len(answerable), "unanswerable": len(questions) - len(answerable)},
        "unknown_entries": sorted(set().union(*(q.relevant for q in answerable)) - known),
        "rankings": {
            name: summary([measure(found[q.id], q.relevant) for q in answerable]) for name, found in rankings.items()
        },
        **_counts(kb, questions, results),
        "similarities": _similarities(questions, results),
        "thresholds": {"medium": kb.thresholds.medium, "high": kb.thresholds.high},
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
    found = {q.id: kb.retrieve(q.query, [None], limit=L1_DEPTH)[0].candidates for q in questions}
    hybrid = {i: [candidate["entry_id"] for candidate in candidates] for i, candidates in found.items()}
    dense = {
        i: [
            c["entry_id"]
            for c in sorted(candidates, key=lambda c: -(c["similarity"] or 0.0))
            if c["similarity"] is not None
        ]
        for i, candidates in found.items()
    }
    return {"L1 dense": dense, "L1 hybrid": hybrid}


def _counts(kb: KnowledgeBase, questions: Sequence[Question], results: Mapping[str, LookupResult]) -> dict[str, Any]:
    categories = {entry.entry_id: set(map(category_key, entry.categories)) for entry in kb.entries}
    hints: Counter[str] = Counter(specific=0, right_entry_hinted=0)
    choice: Counter[str] = Counter(fired=0, helped=0, hurt=0, excluded_every_right_entry=0, relaxed=0)
    unfiltered = _graph(kb, filter_mode="off")
    levels: dict[str, Counter[str]] = {"answerable": Counter(), "unanswerable": Counter()}
    for question in questions:
        result = results[question.id]
        levels["answerable" if question.relevant else "unanswerable"][result["relevance"]["level"]] += 1
        if not question.relevant:
            continue
        if any(term["specific"] for term in result["hints"]["terms"]):
            hints["specific"] += 1
            hinted = {entry["entry_id"] for entry in result["hints"]["entries"]}
            hints["right_entry_hinted"] += not question.relevant.isdisjoint(hinted)
        category = result["filter"]["category"]
        if category is not None:
            choice["fired"] += 1
            gain = _first(result, question) - _first(unfiltered.invoke({"query": question.query}), question)
            choice["helped"] += gain > 0
            choice["hurt"] += gain < 0
            choice["relaxed"] += result["filter"]["relaxed"]
            inside = (category_key(category) in categories.get(entry_id, ()) for entry_id in question.relevant)
            choice["excluded_every_right_entry"] += not any(inside)
    return {
        "hints": dict(hints),
        "filter": dict(choice),
        "levels": {name: dict(found) for name, found in levels.items()},
    }


def _first(result: Mapping[str, Any], question: Question) -> float:
    """Return the reciprocal rank of the first right entry."""
    return measure(_entry_ids(result), question.relevant)[METRICS.index("MRR@10")]


def _similarities(questions: Sequence[Question], results: Mapping[str, LookupResult]) -> dict[str, list[float]]:
    """Return the best similarity shown for each question: where a right entry is shown, where none is, where there is none."""
    found: dict[str, list[float]] = {"right entry shown": [], "not shown": [], "no answer": []}
    for question in questions:
        matches = results[question.id]["matches"]
        right = not question.relevant.isdisjoint(match["entry_id"] for match in matches)
        if any(match["similarity"] is not None for match in matches):
            group = "right entry shown" if right else "not shown" if question.relevant else "no answer"
            found[group].append(best_similarity(matches))
    return {name: sorted(values) for name, values in found.items()}


def plot(evaluation: Mapping[str, Any], path: Path) -> None:
    """Draw the rankings, with their intervals, and the best similarities of the questions into a picture (PNG, SVG, PDF).

    Raises:
        ValueError: matplotlib is not installed, or knows no such kind of picture.
    """
    try:
        from matplotlib.figure import Figure  # noqa: PLC0415
    except ImportError as error:
        raise ValueError('a plot needs matplotlib: pip install "langchain-lookup-knowledge[plot]"') from error
    figure = Figure(figsize=(11, 4.5), layout="constrained")
    ranking, similarity = figure.subplots(1, 2, width_ratios=[2, 1])
    width = 0.8 / len(evaluation["rankings"])
    for row, (name, metrics) in enumerate(evaluation["rankings"].items()):
        places = [column + row * width for column in range(len(METRICS))]
        means = [metric["mean"] for metric in metrics.values()]
        spread = [[m["mean"] - m["low"] for m in metrics.values()], [m["high"] - m["mean"] for m in metrics.values()]]
        ranking.bar(
            places,
            means,
            width,
            yerr=spread,
            capsize=2,
            label=name,
            hatch=HATCHES[row % len(HATCHES)],
            edgecolor="white",
        )
    ranking.set_xticks([column + 0.4 - width / 2 for column in range(len(METRICS))], METRICS)
    ranking.set_ylim(0, 1)
    ranking.set_title(f"{evaluation['questions']['answerable']} answerable questions, 95 % intervals", loc="left")
    ranking.legend(ncols=4, loc="upper center", bbox_to_anchor=(0.5, -0.08), fontsize="small", frameon=False)
    for row, (name, values) in enumerate(evaluation["similarities"].items()):
        similarity.plot(values, [row] * len(values), "o^s"[row], alpha=0.6, label=name)
    for level, least in evaluation["thresholds"].items():
        similarity.axvline(least, linestyle="--", color="0.4", linewidth=1)
        similarity.text(least, 2.45, f" {level}", fontsize="small", color="0.3")
    similarity.set_yticks(range(3), evaluation["similarities"])
    similarity.set_ylim(-0.5, 2.7)
    similarity.set_title("best similarity shown", loc="left")
    for axes in (ranking, similarity):
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=150)


def table(evaluation: Mapping[str, Any]) -> Iterable[str]:
    """Yield the lines that show an evaluation on a terminal."""
    questions = evaluation["questions"]
    yield f"{questions['answerable']} answerable questions, {questions['unanswerable']} without an answer"
    yield f"{'':<12}" + "".join(f"{name:>22}" for name in METRICS)
    for name, metrics in evaluation["rankings"].items():
        cells = (f"{m['mean']:.3f} [{m['low']:.2f}, {m['high']:.2f}]" for m in metrics.values())
        yield f"{name:<12}" + "".join(f"{cell:>22}" for cell in cells)
    for part in ("hints", "filter"):
        yield f"{part}: " + ", ".join(f"{name.replace('_', ' ')} {count}" for name, count in evaluation[part].items())
    for part, found in evaluation["levels"].items():
        yield f"relevance claimed, {part}: " + ", ".join(f"{level} {count}" for level, count in sorted(found.items()))
    if evaluation["unknown_entries"]:
        yield "not in the knowledge base: " + ", ".join(evaluation["unknown_entries"])
