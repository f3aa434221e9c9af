"""The graph: its shape, one test a path, and that all of it is plain JSON."""

import asyncio
import json
import shutil
import subprocess
import sys
import uuid

import pytest
from conftest import TESTS, WordEmbeddings, write_files
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph

from langchain_lookup_knowledge import (
    KnowledgeBase,
    LookupOptions,
    RecordError,
    SQLInvocationRecorder,
    create_lookup_knowledge_graph,
)
from langchain_lookup_knowledge.lookup.state import no_hints

STEPS = ["l0_hints", "choose_filter", "l1_retrieve", "merge_with_fallback", "record_invocation"]
RESULT_KEYS = {
    "invocation_id", "query", "status", "retrieval_layer", "primary", "matches", "relevance",
    "hints", "filter", "filters", "l1", "recorded",
}  # fmt: skip


def test_the_graph_has_the_five_steps_and_both_conditional_edges(kb):
    graph = create_lookup_knowledge_graph(kb)
    drawn = graph.get_graph()
    assert graph.name == "lookup_knowledge"
    assert [name for name in drawn.nodes if not name.startswith("__")] == STEPS
    conditional = {(edge.source, edge.target) for edge in drawn.edges if edge.conditional}
    assert conditional == {
        ("choose_filter", "l1_retrieve"),
        ("choose_filter", "merge_with_fallback"),
        ("l1_retrieve", "l1_retrieve"),
        ("l1_retrieve", "merge_with_fallback"),
    }


def test_result_has_the_keys_of_the_contract_and_is_json(ask):
    result = ask("refund")
    assert set(result) == RESULT_KEYS
    assert json.loads(json.dumps(result, allow_nan=False)) == result
    assert set(result["primary"]) == {
        "entry_id", "title", "categories", "source", "heading", "lines", "score",
        "similarity", "layers", "matched", "metadata", "passages",
    }  # fmt: skip
    best = dict(result["matches"][0])
    assert best.pop("snippet") == "Refunds take five days."
    assert result["primary"] == best
    assert result["recorded"] == "stored"


def test_the_graph_describes_its_output(kb):
    assert (
        set(create_lookup_knowledge_graph(kb).get_output_jsonschema()["properties"]) == RESULT_KEYS
    )


def test_state_is_json_at_every_step(kb):
    for update in create_lookup_knowledge_graph(kb).stream(
        {"query": "refund"}, stream_mode="updates"
    ):
        json.dumps(update, allow_nan=False)


async def test_async_gives_the_same_matches(kb, ask):
    result = await create_lookup_knowledge_graph(kb).ainvoke({"query": "refund"})
    assert result["matches"] == ask("refund")["matches"]


def trace(kb, query, **options):
    graph = create_lookup_knowledge_graph(kb, options=LookupOptions(**options))
    return [
        step for update in graph.stream({"query": query}, stream_mode="updates") for step in update
    ]


def test_l1_unavailable_goes_straight_to_the_merge(folder, embedding):
    with KnowledgeBase.open(folder, embedding=embedding, index=None) as kb:
        assert trace(kb, "refund") == [s for s in STEPS if s != "l1_retrieve"]


PRINTER = """---
title: Printer gives blank paper
keywords: [toner]
category: IT
---
The bill comes out blank on paper: update the driver.
"""
BILL = "---\ntitle: Bills\nkeywords: [bill]\ncategory: Billing\n---\nHow to read it.\n"


@pytest.fixture
def misleading(tmp_path):
    """A base in which the keyword names one category and the answer stands in another."""
    folder = write_files(tmp_path / "misleading", {"bills.md": BILL, "printer.md": PRINTER})
    with KnowledgeBase.open(folder, embedding=WordEmbeddings()) as kb:
        yield kb


def test_a_filter_that_hides_a_clearly_better_candidate_is_relaxed_once(misleading):
    query = "bill comes out blank on paper"
    assert trace(misleading, query) == ["l0_hints", "choose_filter", "l1_retrieve", *STEPS[2:]]
    result = create_lookup_knowledge_graph(misleading).invoke({"query": query})
    assert result["filter"] == {"category": "Billing", "reason": "single_domain", "relaxed": True}
    assert result["primary"]["entry_id"] == "printer.md"


def test_a_strict_filter_is_never_relaxed(misleading):
    result = create_lookup_knowledge_graph(
        misleading, options=LookupOptions(filter_mode="strict")
    ).invoke({"query": "bill comes out blank on paper"})
    assert result["filter"]["relaxed"] is False
    assert [match["entry_id"] for match in result["matches"]] == ["bills.md"]


def test_mode_off_never_filters(misleading):
    result = create_lookup_knowledge_graph(
        misleading, options=LookupOptions(filter_mode="off")
    ).invoke({"query": "bill"})
    assert result["filter"] == {"category": None, "reason": "off", "relaxed": False}


@pytest.mark.parametrize("query", ["", "   ", "\u200b", "?!", "？！ …", None, 7, "x" * 20_001])
def test_a_query_that_cannot_be_searched_is_told_and_recorded(kb, ask, query, embedding):
    embedding.failure = AssertionError("L1 must not be asked")
    result = ask(query)
    assert (result["status"], result["l1"]["status"]) == ("invalid_query", "skipped")
    assert result["recorded"] == "stored"


def test_what_no_encoding_takes_is_replaced_in_the_query(ask):
    result = ask("refund \ud83d\0")
    assert (result["query"], result["l1"]["status"]) == ("refund \ufffd\ufffd", "ok")


def test_a_missing_query_is_told(kb):
    assert create_lookup_knowledge_graph(kb).invoke({})["status"] == "invalid_query"


def test_where_the_model_fails_the_words_of_the_texts_answer(kb, ask, embedding):
    assert ask("five days or a laptop")["status"] == "ok"
    embedding.failure = RuntimeError("down")
    result = ask("five days or a laptop")
    assert (result["status"], result["retrieval_layer"]) == ("degraded", "L0")
    assert (result["l1"]["status"], result["l1"]["candidates"]) == ("failed", 0)
    assert result["relevance"]["semantic_support"] is False
    assert [match["entry_id"] for match in result["matches"]] == ["billing/refunds.md", "it/vpn.md"]
    assert {tuple(match["layers"]) for match in result["matches"]} == {("L0",)}
    assert {match["similarity"] for match in result["matches"]} == {None}
    assert result["matches"][1]["matched"] == [{"field": "text", "text": "laptop"}]


def test_where_the_model_fails_entries_that_hints_name_come_first(kb, ask, embedding):
    embedding.failure = RuntimeError("down")
    result = ask("vpn, or how many days for twelve weeks of five")
    assert result["primary"]["entry_id"] == "it/vpn.md"
    assert len(result["matches"]) == 3


def test_where_the_index_fails_titles_and_keywords_answer(kb, ask):
    shutil.rmtree(kb.data_folder / "index")
    result = ask("parental or five")
    assert [match["entry_id"] for match in result["matches"]] == ["hr/leave.md"]


def test_a_deleted_index_does_not_answer_by_words(kb, ask, embedding):
    embedding.failure = RuntimeError("down")
    shutil.rmtree(kb.data_folder / "index")
    assert ask("five days or a laptop")["status"] == "no_match"


def test_what_no_passage_holds_is_said(ask):
    reason = ask("refund of E-4711")["relevance"]["reason"]
    assert "no passage holds 'E-4711'" in reason


@pytest.mark.parametrize(
    ("query", "code"),
    [("E4711", "E-4711"), ("E-4711", "E4711"), ("bank e_4711?", "E-4711"), ("E.47.11", "E-47-11")],
)
def test_a_code_may_be_asked_for_with_other_separators(tmp_path, embedding, query, code):
    text = f"---\nkeywords: ['{code}']\n---\nThe bank says {code}.\n"
    files = write_files(tmp_path / "a", {"a.md": text, "b.md": "E-4712 is a timeout.\n"})
    with KnowledgeBase.open(files, embedding=embedding, data_dir=tmp_path / "data") as kb:
        result = create_lookup_knowledge_graph(kb).invoke({"query": query})
    assert result["primary"]["entry_id"] == "a.md"
    assert result["relevance"]["level"] != "low"
    assert "no passage" not in result["relevance"]["reason"]
    (text,) = (hit["text"] for hit in result["primary"]["matched"] if hit["field"] == "text")
    assert code in text.split()
    assert "glossary" not in result["hints"]


def test_an_answer_without_its_weak_matches_has_fewer(kb):
    query = {"query": "parental leave"}
    open_to_all = {"record": None, "options": LookupOptions(filter_mode="off")}
    all_of_them = create_lookup_knowledge_graph(kb, **open_to_all).invoke(query)
    best = create_lookup_knowledge_graph(kb, drop_weak=True, **open_to_all).invoke(query)
    assert len(all_of_them["matches"]) == 3
    assert [match["entry_id"] for match in best["matches"]] == ["hr/leave.md"]
    assert best["relevance"] == all_of_them["relevance"]


def test_nothing_found_is_no_match(folder, embedding):
    with KnowledgeBase.open(folder, embedding=embedding, index=None) as kb:
        result = create_lookup_knowledge_graph(kb).invoke({"query": "zebra"})
    assert (result["status"], result["retrieval_layer"], result["primary"]) == (
        "no_match",
        "none",
        None,
    )
    assert result["relevance"] == {
        "level": "none",
        "semantic_support": False,
        "reason": "nothing matched",
    }


def test_a_deleted_index_is_told(kb, ask):
    shutil.rmtree(kb.data_folder / "index")
    result = ask("refund")
    assert (result["status"], result["l1"]["status"], result["retrieval_layer"]) == (
        "degraded",
        "unavailable",
        "L0",
    )
    assert "lookup-knowledge index" in result["l1"]["reason"]


class BrokenRecorder:
    def __init__(self, error):
        self.error = error

    def record(self, invocation):
        raise self.error


BROKEN = [
    BrokenRecorder(RecordError("the disk is full")),
    BrokenRecorder(RuntimeError("sk-SECRET")),
]


@pytest.mark.parametrize("recorder", BROKEN)
def test_a_call_that_could_not_be_recorded_says_so(ask, recorder, caplog):
    result = ask("refund", record=recorder)
    assert "was not recorded" in caplog.text
    assert "SECRET" not in caplog.text
    assert (result["status"], result["recorded"]) == ("ok", "failed")


@pytest.mark.parametrize("recorder", BROKEN)
def test_a_required_record_that_fails_gives_no_knowledge(ask, recorder):
    result = ask("refund", record=recorder, options=LookupOptions(record_mode="required"))
    assert (result["status"], result["recorded"]) == ("refused", "failed")
    assert (result["matches"], result["primary"], result["hints"]) == ([], None, no_hints())


def test_what_is_no_recorder_is_refused_at_once(kb):
    with pytest.raises(ValueError, match="record takes an InvocationRecorder"):
        create_lookup_knowledge_graph(kb, record="sqlite:///calls.db")


def test_a_failure_of_l1_is_logged_once(kb, embedding, caplog):
    graph = create_lookup_knowledge_graph(kb)
    embedding.failure = RuntimeError()
    for _ in range(3):
        graph.invoke({"query": "refund"})
    assert [record.message for record in caplog.records] == [
        "L1 failed: the embedding model failed with RuntimeError"
    ]


FORK = """
import os, signal, sys
sys.path.insert(0, sys.argv[2])
from conftest import WordEmbeddings
from langchain_lookup_knowledge import KnowledgeBase, create_lookup_knowledge_graph
graph = create_lookup_knowledge_graph(KnowledgeBase.open(sys.argv[1], embedding=WordEmbeddings()))
statuses = [graph.invoke({"query": "refund"})["l1"]["status"]]
child = os.fork()
if child == 0:
    signal.alarm(20)
    result = graph.invoke({"query": "refund"})
    os._exit(0 if (result["l1"]["status"], result["recorded"]) == ("ok", "stored") else 1)
print(statuses[0], os.waitpid(child, 0)[1])
"""


@pytest.mark.process
def test_a_child_forked_after_a_lookup_looks_up(folder):
    """As a server does that loads everything before it forks its workers: in a process of its
    own.
    """
    command = [sys.executable, "-W", "ignore", "-c", FORK, str(folder), str(TESTS)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert (done.stdout, done.stderr) == ("ok 0\n", "")


def test_an_unexpected_failure_of_l1_leaves_l0(kb, ask, monkeypatch, caplog):
    monkeypatch.setattr(kb.index, "search", lambda *_: {}["sk-SECRET"])
    result = ask("refund")
    assert (result["l1"]["status"], result["l1"]["reason"]) == (
        "failed",
        "unexpected KeyError: see the log at DEBUG",
    )
    assert "SECRET" not in caplog.text
    assert result["primary"]["entry_id"] == "billing/refunds.md"
    caplog.set_level("DEBUG")
    ask("refund")
    (record,) = [r for r in caplog.records if r.exc_info and r.levelname == "DEBUG"]
    assert record.exc_info[0] is KeyError
    assert result["primary"]["entry_id"] == "billing/refunds.md"


def test_a_filter_that_hides_an_entry_the_hints_found_is_relaxed(tmp_path):
    files = {
        "discount.md": "---\ntitle: A\nkeywords: [staff discount]\ncategory: HR\n---\n"
        "The staff discount is ten percent.\n",
        "cards.md": "---\ntitle: B\nkeywords: [gift card]\ncategory: Billing\n---\n"
        "A gift card lasts two years.\n",
    }
    files |= {f"{i}.md": "---\ncategory: Shop\n---\nPay with a gift card.\n" for i in range(3)}
    with KnowledgeBase.open(write_files(tmp_path / "kb", files), embedding=WordEmbeddings()) as kb:
        result = create_lookup_knowledge_graph(kb).invoke(
            {"query": "staff discount on a gift card"}
        )
    assert result["hints"]["domains"] == ["HR"]
    assert result["filter"]["relaxed"] is True
    assert {"discount.md", "cards.md"} <= {match["entry_id"] for match in result["matches"]}


def test_recording_can_be_off(ask):
    assert ask("refund", record=None)["recorded"] == "off"


def test_the_record_names_thread_and_run(kb, tmp_path):
    recorder = SQLInvocationRecorder(f"sqlite:///{tmp_path / 'calls.db'}")
    run = uuid.uuid4()
    config = {"run_id": run, "configurable": {"thread_id": "t1"}}
    create_lookup_knowledge_graph(kb, record=recorder).invoke({"query": "refund"}, config)
    (row,) = recorder.invocations()
    assert (row["thread_id"], row["run_id"]) == ("t1", str(run))


def test_as_a_node_of_a_graph_with_a_checkpointer_each_turn_starts_fresh(kb):
    from typing_extensions import TypedDict

    class Parent(TypedDict, total=False):
        query: str
        matches: list

    parent = StateGraph(Parent)
    parent.add_node("lookup", create_lookup_knowledge_graph(kb))
    parent.add_edge(START, "lookup")
    parent.add_edge("lookup", END)
    compiled = parent.compile(checkpointer=InMemorySaver())
    config = {"configurable": {"thread_id": "t1"}}
    first = compiled.invoke({"query": "refund"}, config)
    second = compiled.invoke({"query": "vpn"}, config)
    assert first["matches"][0]["entry_id"] == "billing/refunds.md"
    assert second["matches"][0]["entry_id"] == "it/vpn.md"


async def test_parallel_lookups_do_not_mix(kb):
    graph = create_lookup_knowledge_graph(kb)
    queries = ["refund", "parental leave", "vpn"] * 10
    results = await asyncio.gather(*(graph.ainvoke({"query": query}) for query in queries))
    assert [result["query"] for result in results] == queries
    assert [result["primary"]["title"] for result in results] == [
        "Refunds",
        "Parental leave",
        "VPN",
    ] * 10
    assert len({result["invocation_id"] for result in results}) == 30


@pytest.mark.parametrize(
    "wrong",
    [
        {"k": 0},
        {"k": "3"},
        {"k": 2.5},
        {"min_similarity": "0.3"},
        {"filter_mode": "on"},
        {"min_similarity": 2},
        {"l1_timeout": 0},
        {"l1_timeout": float("inf")},
        {"max_chars": 10},
        {"record_mode": "no"},
    ],
)
def test_wrong_options_are_named(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        LookupOptions(**wrong)


@pytest.mark.parametrize("options", [LookupOptions(), LookupOptions(l1_enabled=False)])
def test_without_l1_words_of_titles_and_keywords_answer_where_no_whole_term_stands(
    ask, embedding, options
):
    embedding.failure = RuntimeError("down")
    result = ask("what about the money", options=options)
    assert result["hints"]["entries"] == []
    assert (result["retrieval_layer"], result["primary"]["entry_id"]) == (
        "L0",
        "billing/refunds.md",
    )
    assert result["primary"]["matched"] == [{"field": "metadata", "text": "money"}]
    assert (result["relevance"]["level"], result["relevance"]["semantic_support"]) == ("low", False)


def test_the_record_keeps_the_ranking_the_options_and_the_time_of_each_step(kb, tmp_path):
    recorder = SQLInvocationRecorder(f"sqlite:///{tmp_path / 'calls.db'}")
    graph = create_lookup_knowledge_graph(kb, record=recorder, options=LookupOptions(k=2))
    result = graph.invoke({"query": "refund"})
    graph.invoke({"query": ""})
    skipped, row = recorder.invocations(limit=2)
    recorder.close()
    details = row["retrieval_details"]
    assert len(details["candidates"]) == result["l1"]["candidates"]
    assert all(
        candidate.keys() == {"entry_id", "score", "similarity"}
        for candidate in details["candidates"]
    )
    assert [match["similarity"] for match in details["matches"]] == [
        m["similarity"] for m in result["matches"]
    ]
    assert details["options"] == {
        "k": 2,
        "filter_mode": "guarded",
        "min_similarity": None,
        "l1_enabled": True,
        "drop_weak": False,
    }
    assert details["steps"].keys() == set(graph.get_graph().nodes) - {"__start__", "__end__"}
    assert 0 < sum(details["steps"].values()) < row["duration_ms"] + 1
    assert details["steps"]["l1_retrieve"] == result["l1"]["elapsed_ms"] > 0
    assert skipped["retrieval_details"]["steps"]["l1_retrieve"] == 0


def test_a_recorder_that_nobody_awaits_has_not_stored(ask):
    class Waiting:
        async def record(self, invocation):
            raise AssertionError

    assert ask("refund", record=Waiting())["recorded"] == "failed"


def test_a_record_that_is_required_cannot_be_left_out(folder):
    with (
        KnowledgeBase.open(folder, index=None) as kb,
        pytest.raises(ValueError, match="leave record=None out"),
    ):
        create_lookup_knowledge_graph(
            kb, record=None, options=LookupOptions(record_mode="required")
        )
