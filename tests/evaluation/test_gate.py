"""The gate: figures against those that are wanted."""

import json

import pytest

from langchain_lookup_knowledge.errors import DocumentError
from langchain_lookup_knowledge.evaluation.gate import (
    FIGURES,
    figure,
    read_minima,
    read_saved,
    read_share,
    shortfalls,
)
from langchain_lookup_knowledge.evaluation.measuring import Question, evaluate

EVALUATION = {
    "evidence": {"questions": 10, "shown": 0.8, "first": 0.5},
    "rankings": {"full": {"nDCG@10": {"mean": 0.79}}},
    "auc": None,
}


def test_every_figure_is_in_an_evaluation(kb):
    answers = {"refund": "billing/refunds.md", "VPN client": "it/vpn.md", "twelve weeks": "x.md"}
    questions = [
        Question(query, query, frozenset({entry_id}), ("five days",))
        for query, entry_id in answers.items()
    ]
    figures = evaluate(kb, questions)
    assert [name for name in FIGURES if figure(figures, name) is None] == []


@pytest.mark.parametrize(
    ("wanted", "tolerance", "lines"),
    [
        ({"evidence": 0.8, "ndcg": 0.79}, 0.0, []),
        ({"evidence": 0.81, "ndcg": 0.75}, 0.0, ["evidence: 0.8, wanted 0.81"]),
        ({"evidence": 0.81, "ndcg": 0.8}, 0.01, []),
        ({"evidence": 0.811}, 0.01, ["evidence: 0.8, wanted 0.811, 0.01 less allowed"]),
        (
            {"first": 0.6, "ndcg": 0.9},
            0.0,
            ["first: 0.5, wanted 0.6", "ndcg: 0.79, wanted 0.9"],
        ),
        ({"auc": 0.0}, 0.0, ["auc: not measured, wanted 0"]),
        ({"mrr": 0.5}, 0.01, ["mrr: not measured, wanted 0.5, 0.01 less allowed"]),
    ],
)
def test_a_figure_that_fell_short_has_a_line(wanted, tolerance, lines):
    assert list(shortfalls(EVALUATION, wanted, tolerance)) == lines


def test_minima_are_read():
    assert read_minima("evidence=0.8, success@1 = 1") == {"evidence": 0.8, "success@1": 1.0}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "'' is not a figure: name evidence, first, success@1"),
        ("nDCG=0.8", "'nDCG' is not a figure: name .*mrr, ndcg, recall, auc"),
        ("ndcg=0.8,", "'' is not a figure"),
        ("ndcg=0.8,ndcg=0.9", "'ndcg' is named twice"),
        ("ndcg", "'' is not a number from 0 to 1"),
        ("ndcg=80", "'80' is not a number from 0 to 1"),
        ("ndcg=nan", "'nan' is not a number from 0 to 1"),
    ],
)
def test_minima_that_are_none_are_named(text, message):
    with pytest.raises(ValueError, match=message):
        read_minima(text)


@pytest.mark.parametrize("text", ["-0.1", "1.01", "inf", "x", ""])
def test_a_share_is_from_0_to_1(text):
    with pytest.raises(ValueError, match="is not a number from 0 to 1"):
        read_share(text)


def test_saved_figures_are_those_that_were_measured(tmp_path):
    path = tmp_path / "saved.json"
    path.write_text(json.dumps(EVALUATION))
    assert read_saved(path) == {"evidence": 0.8, "first": 0.5, "ndcg": 0.79}


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"evidence": 0.8}', '{"auc": "high"}'])
def test_a_file_without_figures_is_named(tmp_path, text):
    path = tmp_path / "saved.json"
    path.write_text(text)
    with pytest.raises(DocumentError, match=r"saved\.json .* `lookup-knowledge eval --json`"):
        read_saved(path)
    with pytest.raises(DocumentError, match="cannot be read"):
        read_saved(tmp_path / "nowhere.json")
