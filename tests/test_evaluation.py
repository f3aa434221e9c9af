"""Evaluation: the metrics against figures worked out by hand, and the counts on a base where they are known."""

import json
import math
from collections import defaultdict
from pathlib import Path

import pytest
from conftest import WordEmbeddings, write_files

from langchain_lookup_knowledge import KnowledgeBase, LookupOptions, create_lookup_knowledge_graph
from langchain_lookup_knowledge.errors import DocumentError
from langchain_lookup_knowledge.evaluation import Question, evaluate, measure, plot, read_questions, summary, table


@pytest.mark.parametrize(
    ("ranked", "relevant", "expected"),
    [
        (["a", "b"], {"a"}, (1, 1, 1, 1, 1)),
        (["b", "a"], {"a"}, (0, 1, 1 / 2, 1 / math.log2(3), 1)),
        (["x"] * 5 + ["a"], {"a", "b"}, (0, 0, 1 / 6, (1 / math.log2(7)) / (1 + 1 / math.log2(3)), 1 / 2)),
        (["x"] * 10 + ["a"], {"a"}, (0, 0, 0, 0, 0)),
        ([], {"a"}, (0, 0, 0, 0, 0)),
    ],
)
def test_metrics(ranked, relevant, expected):
    assert measure(ranked, frozenset(relevant)) == pytest.approx(expected)


def test_summary_has_an_interval_around_the_mean():
    found = summary([(1.0,) * 5, (0.0,) * 5] * 20)["MRR@10"]
    assert found["mean"] == 0.5
    assert 0.3 < found["low"] < 0.5 < found["high"] < 0.7
    assert summary([(1.0,) * 5])["MRR@10"] == {"mean": 1, "low": 1, "high": 1}


QUESTIONS = [
    Question("1", "refund", frozenset({"billing/refunds.md"})),
    Question("2", "how do I install the client on my laptop", frozenset({"it/vpn.md"})),
    Question("3", "twelve weeks", frozenset({"hr/leave.md", "gone.md"})),
    Question("4", "zebra", frozenset()),
]


def test_an_evaluation_counts_what_happened(kb):
    figures = evaluate(kb, QUESTIONS)
    assert json.loads(json.dumps(figures)) == figures
    assert figures["questions"] == {"answerable": 3, "unanswerable": 1}
    assert figures["unknown_entries"] == ["gone.md"]
    assert list(figures["rankings"]) == ["L0 alone", "L1 dense", "L1 hybrid", "full"]
    assert figures["rankings"]["full"]["success@1"]["mean"] == 1
    assert figures["rankings"]["L0 alone"]["success@1"]["mean"] == pytest.approx(1 / 3, abs=1e-3)
    assert figures["hints"] == {"specific": 1, "right_entry_hinted": 1}
    assert figures["filter"] == {"fired": 1, "helped": 0, "hurt": 0, "excluded_every_right_entry": 0, "relaxed": 0}
    assert {name: len(values) for name, values in figures["similarities"].items()} == {
        "right entry shown": 3,
        "not shown": 0,
        "no answer": 1,
    }
    assert sum(figures["levels"]["answerable"].values()) == 3
    shown = "\n".join(table(figures))
    assert "3 answerable questions, 1 without an answer" in shown
    assert "not in the knowledge base: gone.md" in shown


def test_without_l1_only_l0_is_measured(kb, embedding):
    embedding.failure = RuntimeError()
    assert list(evaluate(kb, QUESTIONS)["rankings"]) == ["L0 alone", "full"]


def test_nothing_to_measure_is_told(kb):
    with pytest.raises(DocumentError, match="none of the questions has a relevant entry"):
        evaluate(kb, [QUESTIONS[3]])


@pytest.mark.parametrize("line", ["{", "[]", '{"query": "x"}', '{"query": "x", "relevant": "a.md"}', "7"])
def test_a_line_that_is_no_question_is_named(tmp_path, line):
    path = tmp_path / "q.jsonl"
    path.write_text('{"query": "x", "relevant": ["a.md"]}\n\n' + line)
    with pytest.raises(DocumentError, match=r"q\.jsonl:3: write"):
        read_questions(path)


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(DocumentError, match="cannot be read: give a file of questions"):
        read_questions(tmp_path / "nowhere.jsonl")


def test_a_plot_is_a_picture(kb, tmp_path):
    plot(evaluate(kb, QUESTIONS), tmp_path / "figures.png")
    assert (tmp_path / "figures.png").read_bytes().startswith(b"\x89PNG")


def test_a_filter_that_lifts_the_right_entry_has_helped(tmp_path):
    shared = "The machine in the hall takes cards.\n"
    files = {f"{i}.md": f"---\ncategory: Shop\n---\n{shared}" for i in range(3)}
    files["it.md"] = f"---\ntitle: A\nkeywords: [kiosk mode]\ncategory: IT\n---\n{shared}"
    files["faq.md"] = f"---\ntitle: B\ncategory: IT\n---\n{shared}Restart it.\n"
    with KnowledgeBase.open(write_files(tmp_path / "kb", files), embedding=WordEmbeddings()) as kb:
        question = Question("1", "kiosk mode: the machine in the hall takes cards", frozenset({"faq.md"}))
        assert evaluate(kb, [question])["filter"]["helped"] == 1
        outside = Question("2", question.query, frozenset({"0.md"}))
        counts = {"fired": 1, "helped": 0, "hurt": 1, "excluded_every_right_entry": 1, "relaxed": 0}
        assert evaluate(kb, [outside])["filter"] == counts


def test_a_term_that_one_entry_declares_leads_to_that_entry(tmp_path):
    """A keyword or a name alone, such as an error code, has hardly a meaning that a model could compare."""
    folder = Path(__file__).parents[1] / "notebooks/handbook"
    with KnowledgeBase.open(folder, data_dir=tmp_path) as kb:
        declared = defaultdict(set)
        for entry in kb.entries:
            for term in (*entry.keywords, *entry.entities):
                declared[term.casefold()].add(entry.entry_id)
        alone = {term: entry_ids.pop() for term, entry_ids in declared.items() if len(entry_ids) == 1}
        graph = create_lookup_knowledge_graph(kb, record=None, options=LookupOptions(l1_timeout=60))
        missed = [
            term for term, entry_id in alone.items() if graph.invoke({"query": term})["primary"]["entry_id"] != entry_id
        ]
    assert len(alone) > 150
    assert len(missed) <= 2, missed
