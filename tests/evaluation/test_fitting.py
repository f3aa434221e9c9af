"""Relevance that is fitted to questions: against figures of another implementation, and kept for
later lookups.
"""

import json
import logging
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import WordEmbeddings, write_files

from langchain_lookup_knowledge import KnowledgeBase, create_lookup_knowledge_graph
from langchain_lookup_knowledge.errors import DocumentError
from langchain_lookup_knowledge.evaluation.fitting import (
    FOLDS,
    LEAST_QUESTIONS,
    cross_validated,
    fit,
    fit_table,
    fit_to,
    folds,
)
from langchain_lookup_knowledge.evaluation.measuring import Outcome, Question
from langchain_lookup_knowledge.l1.models.embeddings import FastEmbedModel
from langchain_lookup_knowledge.lookup.answer.relevance import (
    BUNDLED,
    FEATURES,
    FITTED_FILE,
    UNFITTED,
    RelevanceModel,
    keep_model,
    model_for,
)

NAMES = ("agreement", "lead")
ROWS = [
    (0.9, 0.1, 1), (0.8, 0.3, 1), (0.7, 0.9, 0), (0.4, 0.2, 1), (0.3, 0.5, 0),
    (0.2, 0.4, 0), (0.6, 0.6, 1), (0.1, 0.8, 0), (0.5, 0.5, 0), (0.95, 0.7, 1),
]  # fmt: skip


def outcome(agreement, lead, right):
    features = dict.fromkeys(FEATURES, 0.0) | {"agreement": agreement, "lead": lead}
    return Outcome("low", True, bool(right), None, None, features)


JUDGED = [outcome(*row) for row in ROWS]


def test_a_fit_has_the_weights_that_scikit_learn_finds():
    """`LogisticRegression(C=0.3, tol=1e-12)` of scikit-learn 1.7 on the standardized columns."""
    model = fit(JUDGED, NAMES)
    assert model.intercept == pytest.approx(-0.26903936, abs=1e-6)
    assert model.weights == pytest.approx({"agreement": 2.03124504, "lead": -1.67001739}, abs=1e-6)
    assert model.fitted


def test_a_feature_that_is_always_the_same_gets_no_weight():
    model = fit(JUDGED)
    assert list(model.weights) == list(FEATURES)
    assert {name for name, weight in model.weights.items() if weight} == set(NAMES)
    assert {name: model.weights[name] for name in NAMES} == pytest.approx(
        dict(fit(JUDGED, NAMES).weights)
    )


def test_a_fit_of_outcomes_that_are_told_apart_without_fail_is_finite():
    apart = [outcome(1.0, 0.0, 1)] * 50 + [outcome(0.0, 0.0, 0)] * 50
    model = fit(apart)
    assert 3 < model.weights["agreement"] < 20
    assert model.probability(apart[0].features) > 0.9
    assert model.probability(apart[-1].features) < 0.1


def test_folds_are_the_same_each_time_and_share_out_right_and_wrong():
    judged = [outcome(number / 40, 0.0, number % 4 == 0) for number in range(40)]
    chosen = folds(judged)
    assert chosen == folds(judged)
    for fold in range(FOLDS):
        members = [o for o, number in zip(judged, chosen, strict=True) if number == fold]
        assert (len(members), sum(o.right for o in members)) == (8, 2)


def test_cross_validation_tells_of_each_group_by_a_fit_to_the_others():
    groups = [number % 2 for number in range(len(JUDGED))]
    models = cross_validated(JUDGED, groups, NAMES)
    assert models[0] == models[2] == fit(JUDGED[1::2], NAMES)
    assert models[1] == fit(JUDGED[::2], NAMES)
    assert models[0] != models[1]


WORDS = [
    f"{first}{second}" for first in ("alder", "birch", "cedar", "maple") for second in "bcdfghk"
]


@pytest.fixture
def woods(tmp_path):
    files = {f"{word}.md": f"# {word}\n\nThe {word} grows in the north wood.\n" for word in WORDS}
    with KnowledgeBase.open(write_files(tmp_path / "kb", files), embedding=WordEmbeddings()) as kb:
        yield kb


def asked(right=20, wrong=4, without=4):
    """Return questions whose first matches are right, wrong, and right for none."""
    queries = [f"where does {word} grow" for word in WORDS]
    answers = [{f"{word}.md"} for word in WORDS[:right]] + [{"gone.md"}] * wrong + [()] * without
    return [
        Question(str(number), query, frozenset(answer))
        for number, (query, answer) in enumerate(zip(queries, answers, strict=False))
    ]


def test_a_fit_to_questions_is_the_same_each_time_and_is_held_against_the_model_in_use(woods):
    found = fit_to(woods, asked())
    assert found == fit_to(woods, asked())
    assert list(found.model.weights) == list(FEATURES)
    for side in (found.current, found.cross_validated):
        assert side["questions"] == 28
        assert sum(row["questions"] for row in side["reliability"].values()) == 28
        assert sum(row["without_answer"] for row in side["reliability"].values()) == 4
    assert found.current["reliability"]["high"]["questions"] == 0  # it was not fitted to this model
    assert [line for line in fit_table(found) if line.startswith("relevance")] == [
        f"relevance until now: 28 questions, area under the ROC curve {found.current['auc']:.3f}",
        "relevance fitted, 5-fold cross-validation: 28 questions, area under the ROC curve "
        f"{found.cross_validated['auc']:.3f}",
    ]
    assert not (woods.data_folder / FITTED_FILE).exists()


@pytest.mark.parametrize(
    ("questions", "message"),
    [
        (asked(right=15, wrong=4), f"needs {LEAST_QUESTIONS} questions .* there are 19: add"),
        (asked(right=28, wrong=0, without=0), "28 of 28 are right: add other questions"),
        (asked(right=1, wrong=23), "1 of 28 are right: add other questions"),
        (asked(right=0, wrong=28, without=0), "0 of 28 are right: add other questions"),
    ],
)
def test_too_few_questions_or_outcomes_of_one_kind_are_refused(woods, questions, message):
    with pytest.raises(DocumentError, match=message):
        fit_to(woods, questions)


def test_nothing_is_fitted_to_lookups_that_l1_did_not_answer(woods):
    woods.embedding.failure = RuntimeError()
    with pytest.raises(DocumentError, match="there are 0: add questions"):
        fit_to(woods, asked())


def test_a_kept_model_is_that_of_later_graphs_with_its_embedding_model_alone(kb):
    def level():
        graph = create_lookup_knowledge_graph(kb, record=None)
        return graph.invoke({"query": "twelve weeks of parental leave"})["relevance"]["level"]

    assert level() == "medium"
    model = RelevanceModel(9.0, {"lead": 0.25})
    path = keep_model(model, kb.embedding, kb.data_folder)
    assert path == kb.data_folder / "relevance.json"
    assert model_for(kb.embedding, kb.data_folder) == model
    assert level() == "high"
    keep_model(replace(model, intercept=-9.0), kb.embedding, kb.data_folder)
    assert level() == "low"
    assert model_for(FastEmbedModel(), kb.data_folder) is BUNDLED


KEPT = {"embedding": "conftest.WordEmbeddings:words-64", "intercept": 1.0, "weights": {"lead": 1}}
DAMAGED = {
    "not JSON": "{",
    "not UTF-8": b"\xff",
    "a list": "[]",
    "a number": "7",
    "nothing": json.dumps({}),
    "deep": "[" * 100_000,
    "no intercept": json.dumps({"embedding": KEPT["embedding"], "weights": {}}),
    "text for a weight": json.dumps({**KEPT, "weights": {"lead": "1"}}),
    "true for a weight": json.dumps({**KEPT, "weights": {"lead": True}}),
    "a list of weights": json.dumps({**KEPT, "weights": ["lead"]}),
    "weights that are none": json.dumps({**KEPT, "weights": None}),
    "not a number": json.dumps({**KEPT, "intercept": float("nan")}),
    "absurd": json.dumps({**KEPT, "weights": {"lead": 1e308}}),
    "too large": json.dumps({**KEPT, "intercept": 10**400}),
    "a feature of another version": json.dumps({**KEPT, "weights": {"tide": 1}}),
}


def test_what_the_damage_is_made_from_is_whole(tmp_path):
    (tmp_path / FITTED_FILE).write_text(json.dumps(KEPT))
    assert model_for(WordEmbeddings(), tmp_path) == RelevanceModel(1.0, {"lead": 1.0})


@pytest.mark.parametrize("content", DAMAGED.values(), ids=DAMAGED)
def test_a_damaged_file_is_named_in_the_log_and_does_not_stop_a_lookup(kb, content, caplog):
    path = kb.data_folder / FITTED_FILE
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with caplog.at_level(logging.WARNING, "langchain_lookup_knowledge"):
        graph = create_lookup_knowledge_graph(kb, record=None)
    assert graph.invoke({"query": "refund"})["primary"]["entry_id"] == "billing/refunds.md"
    (message,) = [record.getMessage() for record in caplog.records]
    assert message.startswith(f"{path}: it cannot be used (")
    assert [p.message in message for p in kb.problems if p.path == FITTED_FILE] == [True]
    assert message.endswith("run `lookup-knowledge eval --fit` again, or delete it")
    assert model_for(kb.embedding, kb.data_folder) is UNFITTED


def test_a_folder_in_place_of_the_file_is_named_too(tmp_path, caplog):
    (tmp_path / FITTED_FILE).mkdir()
    assert model_for(FastEmbedModel(), tmp_path) is BUNDLED
    assert f"{Path(tmp_path / FITTED_FILE)} is a folder, which is not used" in caplog.text
