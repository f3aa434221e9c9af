"""Compare the figures of an evaluation with required ones: a gate for continuous integration."""

import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from langchain_lookup_knowledge.errors import EvaluationError

FIGURES: dict[str, tuple[str, ...]] = {
    "evidence": ("evidence", "shown"),
    "first": ("evidence", "first"),
    "success@1": ("rankings", "full", "success@1", "mean"),
    "success@5": ("rankings", "full", "success@5", "mean"),
    "mrr": ("rankings", "full", "MRR@10", "mean"),
    "ndcg": ("rankings", "full", "nDCG@10", "mean"),
    "recall": ("rankings", "full", "recall@10", "mean"),
    "auc": ("auc",),
}
"""Names of the figures, with their keys in an evaluation; all are 0 to 1, higher is better."""
TOLERANCE = 0.01
"""How far a figure may fall below the saved figure."""


def figure(evaluation: Mapping[str, Any], name: str) -> float | None:
    """Return a figure of an evaluation, or None if it was not measured."""
    found: Any = evaluation
    for key in FIGURES[name]:
        found = found.get(key) if isinstance(found, Mapping) else None
    is_number = isinstance(found, int | float) and not isinstance(found, bool)
    return float(found) if is_number and math.isfinite(found) else None


def read_minima(text: str) -> dict[str, float]:
    """Return the minimum values of `NAME=SHARE,...`.

    Raises:
        ValueError: the text does not have this form, or names an unknown figure.
    """
    minima: dict[str, float] = {}
    for part in text.split(","):
        name, _, value = (piece.strip() for piece in part.partition("="))
        if name not in FIGURES:
            raise ValueError(f"{name!r} is not a figure: name {', '.join(FIGURES)}")
        if name in minima:
            raise ValueError(f"{name!r} is named twice")
        minima[name] = read_share(value)
    return minima


def read_share(text: str) -> float:
    """Return a number from 0 to 1.

    Raises:
        ValueError: the text is not a number from 0 to 1.
    """
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value <= 1:
        raise ValueError(f"{text!r} is not a number from 0 to 1")
    return value


def read_saved(path: Path) -> dict[str, float]:
    """Return the figures of an evaluation that was saved by `eval --json`.

    Raises:
        EvaluationError: the file cannot be read, or contains no figures.
    """
    try:
        saved = json.loads(path.read_text("utf-8-sig"))
    except (OSError, ValueError, RecursionError) as error:
        raise EvaluationError(
            f"{path} cannot be read: give figures saved by `lookup-knowledge eval --json`"
        ) from error
    found = {name: figure(saved, name) for name in FIGURES}
    known = {name: value for name, value in found.items() if value is not None}
    if not known:
        raise EvaluationError(
            f"{path} holds no figures: save them by `lookup-knowledge eval --json`"
        )
    return known


def shortfalls(
    evaluation: Mapping[str, Any], wanted: Mapping[str, float], tolerance: float = 0.0
) -> Iterator[str]:
    """Yield a line for each figure that was not measured, or is too low by more than the
    tolerance.
    """
    allowed = f", {tolerance:g} less allowed" if tolerance else ""
    for name, least in wanted.items():
        value = figure(evaluation, name)
        if value is None:
            yield f"{name}: not measured, wanted {least:.4g}{allowed}"
        elif value < round(least - tolerance, 6):
            yield f"{name}: {value:.4g}, wanted {least:.4g}{allowed}"
