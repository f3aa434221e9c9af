"""A lookup without LangGraph: as the graph's, in result, record and cancellation."""

import json
import subprocess
import sys

import pytest
from conftest import WordEmbeddings, write_files

from langchain_lookup_knowledge import (
    KnowledgeBase,
    LookupOptions,
    create_lookup_knowledge_graph,
)
from langchain_lookup_knowledge.lookup.recording import default_recorder
from langchain_lookup_knowledge.lookup.steps import look_up

OF_EACH_CALL = ("id", "invocation_id", "created_at", "duration_ms", "elapsed_ms", "steps", "run_id")


def without_times(value):
    """Return a result or record without what differs from call to call."""
    if isinstance(value, dict):
        return {key: without_times(kept) for key, kept in value.items() if key not in OF_EACH_CALL}
    return [without_times(kept) for kept in value] if isinstance(value, list) else value


@pytest.mark.parametrize(
    ("query", "filters", "scope"),
    [
        ("refund", None, {}),
        ("refund", {"folder": "none"}, {}),
        ("", None, {}),
        ("refund", {"colour": "red"}, {}),
        ("nothing of this kind", None, {}),
        ("refund", None, {"tenant": "north"}),
        ("refund", None, {"tenant": ""}),
    ],
)
def test_it_gives_and_records_what_the_graph_does(kb, query, filters, scope):
    options = LookupOptions(scope_fields=tuple(scope))
    graph = create_lookup_knowledge_graph(kb, options=options, drop_weak=True)
    of_graph = graph.invoke({"query": query, "filters": filters}, {"configurable": scope})
    alone = look_up(kb, query, options=options, filters=filters, scope=scope)
    assert list(alone) == list(of_graph)
    assert without_times(alone) == without_times(of_graph)
    recorded = default_recorder(kb).invocations(limit=2)
    assert [one["id"] for one in recorded] == [alone["invocation_id"], of_graph["invocation_id"]]
    assert without_times(recorded[0]) == without_times(recorded[1])
    assert set(recorded[0]["retrieval_details"]["steps"]) == set(
        recorded[1]["retrieval_details"]["steps"]
    )
    json.dumps(alone, allow_nan=False)


def test_a_filter_that_hides_better_matches_is_taken_back(tmp_path):
    pages = {
        "billing.md": "---\ntitle: Invoices\ncategory: billing\n---\nInvoices are sent monthly.\n",
        "trips.md": "---\ntitle: Trips\ncategory: travel\n---\nThe hotel bed and breakfast rule.\n",
    }
    query = "hotel bed and breakfast rule for Invoices"
    with KnowledgeBase.open(write_files(tmp_path / "kb", pages), embedding=WordEmbeddings()) as kb:
        graph = create_lookup_knowledge_graph(kb, drop_weak=True)
        of_graph = graph.invoke({"query": query})
        alone = look_up(kb, query, options=LookupOptions())
    assert of_graph["filter"]["relaxed"]
    assert without_times(alone) == without_times(of_graph)


def test_an_interrupted_lookup_leaves_one_row(kb):
    def interrupt(_):
        raise KeyboardInterrupt

    kb.l1.search = interrupt
    with pytest.raises(KeyboardInterrupt):
        look_up(kb, "refund", options=LookupOptions())
    recorded = default_recorder(kb).invocations()
    assert [one["status"] for one in recorded] == ["cancelled"]
    assert recorded[0]["retrieval_details"]["l0_hints"]["keywords"]


@pytest.mark.process
def test_the_command_ask_does_not_import_langgraph(indexed):
    script = (
        "import sys\n"
        "from langchain_lookup_knowledge.integrations import cli\n"
        f"assert cli.main(['ask', '--no-l1', {str(indexed)!r}, 'refund']) == 0\n"
        "heavy = {'qdrant_client', 'langgraph', 'langsmith', 'fastembed'}\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, capture_output=True)
