"""Fit the relevance model to questions with known answers, and measure how reliable its levels
are.
"""

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from langchain_lookup_knowledge.errors import EvaluationError
from langchain_lookup_knowledge.evaluation.measuring import (
    Outcome,
    Question,
    area_under_curve,
    outcomes,
    reliability,
)
from langchain_lookup_knowledge.evaluation.report import reliability_table
from langchain_lookup_knowledge.knowledge_base import KnowledgeBase
from langchain_lookup_knowledge.lookup.answer.relevance import (
    FEATURES,
    Feature,
    RelevanceModel,
    model_for,
)

STRENGTH = 1 / 0.3
"""Strength of the L2 penalty on standardized weights, against overfitting to a few questions.
"""
LEAST_QUESTIONS = 20
"""Minimum number of questions with an answer for a fit."""
LEAST_OF_EACH = 2
"""Minimum number of right and of wrong first matches for a fit, so that cross-validation has
both.
"""
FOLDS = 5
STEPS, CLOSE_ENOUGH = 100, 1e-10


@dataclass(frozen=True, slots=True)
class Fit:
    """A fitted model, with figures for it and for the model in use.

    `cross_validated` (the fitted model) and `current` (the model in use) have the keys `questions`,
    `auc` and `reliability`, over the same questions. `cross_validated` is measured on questions
    that were held out of the fit.
    """

    model: RelevanceModel
    cross_validated: dict[str, Any]
    current: dict[str, Any]


def fit_to(kb: KnowledgeBase, questions: Sequence[Question]) -> Fit:
    """Return a relevance model fitted to questions about a knowledge base; nothing is saved.

    Only lookups whose first match L1 (vector search) found are used, because the model judges no
    others.

    Raises:
        EvaluationError: too few questions have an answer, or their first matches are all right or
            all wrong.
    """
    judged = [outcome for outcome in outcomes(kb, questions) if outcome.features]
    answerable = sum(outcome.answerable for outcome in judged)
    if answerable < LEAST_QUESTIONS:
        raise EvaluationError(
            f"--fit needs {LEAST_QUESTIONS} questions with an answer, for which vector search "
            f"finds the first match; there are {answerable}: add questions"
        )
    right = sum(outcome.right for outcome in judged)
    if min(right, len(judged) - right) < LEAST_OF_EACH:
        raise EvaluationError(
            f"--fit needs {LEAST_OF_EACH} right and {LEAST_OF_EACH} wrong first matches to tell "
            f"them apart; {right} of {len(judged)} are right: add other questions"
        )
    current = model_for(kb.embedding, kb.data_folder)
    return Fit(
        fit(judged),
        _claims(judged, cross_validated(judged, folds(judged))),
        _claims(judged, [current] * len(judged)),
    )


def fit(judged: Sequence[Outcome], names: Sequence[Feature] = FEATURES) -> RelevanceModel:
    """Return the logistic model that separates right from wrong first matches by these features.

    The features are standardized. The weights are penalized (`STRENGTH`), the intercept is not.
    Newton's method minimizes the loss. The returned weights apply to the original features.
    """
    values = np.array([[outcome.features[name] for name in names] for outcome in judged])
    right = np.array([float(outcome.right) for outcome in judged])
    mean, spread = values.mean(axis=0), values.std(axis=0)
    spread[spread < CLOSE_ENOUGH] = 1.0  # a constant feature gets no weight
    columns = np.column_stack([np.ones(len(judged)), (values - mean) / spread])
    penalty = np.array([0.0] + [STRENGTH] * len(names))
    weights = np.zeros(len(names) + 1)

    def loss(tried: Any) -> float:
        totals = columns @ tried
        return float((np.logaddexp(0, totals) - right * totals).sum() + tried**2 @ penalty / 2)

    for _ in range(STEPS):
        probabilities = 1 / (1 + np.exp(-(columns @ weights)))
        gradient = columns.T @ (probabilities - right) + penalty * weights
        curvature = (columns.T * (probabilities * (1 - probabilities))) @ columns
        step = np.linalg.solve(curvature + np.diag(penalty), gradient)
        while loss(weights - step) > loss(weights) and np.abs(step).max() > CLOSE_ENOUGH:
            step /= 2
        weights -= step
        if np.abs(step).max() <= CLOSE_ENOUGH:
            break
    raw = weights[1:] / spread
    return RelevanceModel(
        float(weights[0] - raw @ mean),
        {name: float(weight) for name, weight in zip(names, raw, strict=True)},
    )


def folds(judged: Sequence[Outcome]) -> list[int]:
    """Return the fold of each outcome, drawn with a fixed seed; each fold has about the same share
    of right outcomes.
    """
    rng = random.Random(7)  # noqa: S311  (folds are not cryptography)
    places = list(range(len(judged)))
    rng.shuffle(places)
    places.sort(key=lambda place: judged[place].right)
    chosen = [0] * len(judged)
    for number, place in enumerate(places):
        chosen[place] = number % FOLDS
    return chosen


def cross_validated(
    judged: Sequence[Outcome], groups: Sequence[object], names: Sequence[Feature] = FEATURES
) -> list[RelevanceModel]:
    """Return, for each outcome, a model that was fitted to the outcomes of the other groups."""
    models = {
        group: fit([o for o, other in zip(judged, groups, strict=True) if other != group], names)
        for group in dict.fromkeys(groups)
    }
    return [models[group] for group in groups]


def _claims(judged: Sequence[Outcome], models: Sequence[RelevanceModel]) -> dict[str, Any]:
    pairs = list(zip(judged, models, strict=True))
    return {
        "questions": len(judged),
        "auc": area_under_curve(
            [(model.probability(outcome.features), outcome.right) for outcome, model in pairs]
        ),
        "reliability": reliability(
            [(model.level(outcome.features), outcome) for outcome, model in pairs]
        ),
    }


def fit_table(fitted: Fit) -> Iterator[str]:
    """Yield the lines of a fit for a terminal."""
    sides: Mapping[str, dict[str, Any]] = {
        "relevance until now": fitted.current,
        f"relevance fitted, {FOLDS}-fold cross-validation": fitted.cross_validated,
    }
    for name, side in sides.items():
        yield f"{name}: {side['questions']} questions, area under the ROC curve {side['auc']:.3f}"
        yield from reliability_table(side["reliability"])
