"""The cases of records, each run as it is written: files, query, fault, and what must come of
it.
"""

import json
import logging
from contextlib import closing

import pytest
from conftest import WordEmbeddings
from parts.cases import parameters, write_case

from langchain_lookup_knowledge import (
    KnowledgeBase,
    LookupOptions,
    SQLInvocationRecorder,
    create_lookup_knowledge_tool,
)
from langchain_lookup_knowledge.integrations.tool import render
from langchain_lookup_knowledge.records.invocations import MAX_DETAILS_BYTES

WITHOUT_L1 = {"A-12"}  # six megabytes take long to embed
CASES = [
    pytest.param(*case.values, id=case.id, marks=[pytest.mark.slow] * (case.id in WITHOUT_L1))
    for case in parameters("records")
    if case.id != "A-01"  # in test_records_load.py
]


def database_down(folder, monkeypatch):
    """Return a recorder whose database is down and that has no place for a spool."""
    (folder / "file").touch()
    monkeypatch.setenv("XDG_STATE_HOME", str(folder / "file"))
    return SQLInvocationRecorder(f"sqlite:///{folder}/file/calls.db")


def call(tool, query, call_id="call_1"):
    return tool.invoke(
        {"name": tool.name, "args": {"query": query}, "id": call_id, "type": "tool_call"}
    ).artifact


@pytest.mark.parametrize("case", CASES)
def test_a_case_of_records(case, tmp_path, monkeypatch, caplog):
    given = case["input"]
    folder = write_case(tmp_path / "kb", case)
    index = None if case["id"] in WITHOUT_L1 else "from_settings"
    with KnowledgeBase.open(folder, embedding=WordEmbeddings(), index=index) as kb:
        CHECKS[case["id"]](kb, given, tmp_path, monkeypatch, caplog)


def stored_rows(kb):
    with closing(SQLInvocationRecorder.in_file(kb.data_folder / "invocations.db")) as recorder:
        rows = recorder.invocations(limit=100)
        with recorder._database.engine.connect() as connection:
            raw = connection.exec_driver_sql(
                "SELECT retrieval_details, json_valid(retrieval_details) FROM tool_invocation"
            ).all()
    for details, valid in raw:
        assert valid == 1
        json.loads(details, parse_constant=pytest.fail)
    return rows


def numbers_that_are_none(kb, given, tmp_path, monkeypatch, caplog):
    search = kb.l1.search

    def bad_scores(request):
        outcome = search(request)
        for candidates in outcome.candidates:
            for candidate, score in zip(
                candidates, [float("nan"), float("inf"), float("-inf")], strict=False
            ):
                candidate["score"] = score
        return outcome

    monkeypatch.setattr(kb.l1, "search", bad_scores)
    result = call(create_lookup_knowledge_tool(kb), given["query"])
    (row,) = stored_rows(kb)
    assert row["id"] == result["invocation_id"]


def nul(kb, given, tmp_path, monkeypatch, caplog):
    result = call(create_lookup_knowledge_tool(kb), given["query"])
    (row,) = stored_rows(kb)
    assert (result["status"], row["query"]) == ("ok", given["query"].replace("\0", "\ufffd"))
    assert "\\u0000" not in json.dumps([result, row])


def a_failure_leaves_the_answer(kb, given, tmp_path, monkeypatch, caplog):
    down = database_down(tmp_path, monkeypatch)
    tool = create_lookup_knowledge_tool(kb, record=down)
    good = call(tool, given["query"])
    kb.embedding.failure = RuntimeError("x")
    degraded = call(tool, given["query"])
    assert (good["status"], good["l1"]["status"], good["recorded"]) == ("ok", "ok", "failed")
    assert (degraded["status"], degraded["l1"]["status"], degraded["retrieval_layer"]) == (
        "degraded",
        "failed",
        "L0",
    )
    errors = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert len(errors) == 2  # one for each record that is lost


def required_or_not(kb, given, tmp_path, monkeypatch, caplog):
    down = database_down(tmp_path, monkeypatch)
    lenient = call(create_lookup_knowledge_tool(kb, record=down), given["query"])
    strict = LookupOptions(record_mode="required")
    refused = call(create_lookup_knowledge_tool(kb, record=down, options=strict), given["query"])
    assert (lenient["status"], lenient["recorded"]) == ("ok", "failed")
    assert (refused["status"], refused["recorded"], refused["matches"]) == ("refused", "failed", [])
    assert render(refused, 1000).startswith("Not answered: the call could not be recorded")


def large_details(kb, given, tmp_path, monkeypatch, caplog):
    result = call(create_lookup_knowledge_tool(kb), given["query"])
    (row,) = stored_rows(kb)
    assert (
        len(json.dumps(row["retrieval_details"]).encode())
        <= given["config"]["max_details_bytes"]
        == MAX_DETAILS_BYTES
    )
    assert (
        row["retrieval_details"]["matches"][0]["entry_id"]
        == result["primary"]["entry_id"]
        == "big.md"
    )


def same_call_twice(kb, given, tmp_path, monkeypatch, caplog):
    tool = create_lookup_knowledge_tool(kb)
    results = [call(tool, made["query"], made["id"]) for made in given["tool_calls"]]
    rows = stored_rows(kb)
    assert {row["id"] for row in rows} == {result["invocation_id"] for result in results}
    assert [row["tool_call_id"] for row in rows] == ["call_1", "call_1"]


def older_table(kb, given, tmp_path, monkeypatch, caplog):
    with closing(SQLInvocationRecorder.in_file(kb.data_folder / "invocations.db")) as recorder:
        with recorder._database.engine.begin() as connection:
            connection.exec_driver_sql(
                "CREATE TABLE tool_invocation (id TEXT PRIMARY KEY, name TEXT)"
            )
        result = call(create_lookup_knowledge_tool(kb), "refund")
        assert (result["status"], result["recorded"]) == ("ok", "spooled")
        assert "lacks the columns created_at, duration_ms" in caplog.text
        assert "invocations --migrate" in caplog.text
        recorder.migrate()
    assert [row["id"] for row in stored_rows(kb)] == [result["invocation_id"]]


def every_script(kb, given, tmp_path, monkeypatch, caplog):
    call(create_lookup_knowledge_tool(kb), given["query"])
    (row,) = stored_rows(kb)
    assert row["query"] == given["query"]
    assert row["retrieval_details"]["l0_hints"]["keywords"] == ["退款"]
    assert row["retrieval_details"]["l0_hints"]["titles"] == ["退款 🚀"]


CHECKS = {
    "A-03": numbers_that_are_none,
    "A-04": nul,
    "A-07": a_failure_leaves_the_answer,
    "A-08": required_or_not,
    "A-12": large_details,
    "A-17": same_call_twice,
    "A-18": older_table,
    "A-19": every_script,
}
