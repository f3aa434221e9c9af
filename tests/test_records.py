"""Records: what is written can be read back, once, and what cannot be stored is made storable."""

import pytest
import sqlalchemy as sa

from langchain_lookup_knowledge import RecordError, SQLInvocationRecorder
from langchain_lookup_knowledge.invocations import storable
from langchain_lookup_knowledge.records import tool_invocation

INVOCATION = {
    "id": "i1",
    "tool_name": "lookup_knowledge",
    "query": "退款 🚀 עזרה",
    "status": "ok",
    "retrieval_layer": "L0+L1",
    "retrieval_details": {"l0_hints": {"keywords": ["退款"]}, "matches": [{"entry_id": "a.md", "score": 0.5}]},
    "l1_status": "ok",
    "result_count": 1,
    "primary_entry_id": "a.md",
    "duration_ms": 3.5,
    "thread_id": None,
    "run_id": "r1",
    "tool_call_id": "c1",
    "created_at": "2026-01-02T03:04:05.678900+00:00",
}


@pytest.fixture
def recorder(tmp_path):
    recorder = SQLInvocationRecorder(f"sqlite:///{tmp_path / 'calls.db'}")
    yield recorder
    recorder.close()


def test_what_is_written_is_read_back(recorder):
    recorder.record(INVOCATION)
    assert recorder.invocations() == [INVOCATION]


def test_the_same_id_is_written_once(recorder):
    recorder.record(INVOCATION)
    recorder.record({**INVOCATION, "query": "other"})
    assert recorder.invocations() == [INVOCATION]


def test_newest_first_and_limited(recorder):
    for second in range(5):
        recorder.record({**INVOCATION, "id": f"i{second}", "created_at": f"2026-01-02T03:04:0{second}+00:00"})
    assert [row["id"] for row in recorder.invocations(limit=2)] == ["i4", "i3"]


def test_what_no_database_takes_is_made_storable(recorder):
    details = {"l1": {"score": float("nan"), "reason": "a\0b\ud800"}, "list": [float("inf"), 1.5]}
    recorder.record({**INVOCATION, "query": "nul\0 byte", "retrieval_details": details})
    (row,) = recorder.invocations()
    assert row["query"] == "nul\ufffd byte"
    assert row["retrieval_details"] == {"l1": {"score": None, "reason": "a\ufffdb\ufffd"}, "list": [None, 1.5]}
    with recorder._engine.connect() as connection:
        assert connection.execute(sa.select(sa.func.json_valid(tool_invocation.c.retrieval_details))).scalar() == 1


def test_a_database_that_was_deleted_is_made_anew_and_no_row_is_lost_silently(tmp_path):
    recorder = SQLInvocationRecorder.in_file(tmp_path / "calls.db")
    recorder.record(INVOCATION)
    for path in tmp_path.iterdir():
        path.unlink()
    recorder.record({**INVOCATION, "id": "i2"})
    assert [row["id"] for row in SQLInvocationRecorder.in_file(tmp_path / "calls.db").invocations()] == ["i2"]


def test_storable_leaves_plain_data_alone():
    assert storable(INVOCATION) == INVOCATION


@pytest.fixture
def engine(tmp_path):
    made = sa.create_engine(f"sqlite:///{tmp_path / 'calls.db'}")
    yield made
    made.dispose()


def test_an_engine_of_the_callers_stays_open(engine):
    recorder = SQLInvocationRecorder(engine)
    recorder.record(INVOCATION)
    recorder.close()
    with engine.connect() as connection:
        assert connection.execute(sa.select(tool_invocation.c.id)).scalar() == "i1"


def test_a_table_of_another_shape_is_named(engine):
    with engine.begin() as connection:
        connection.execute(sa.text("CREATE TABLE tool_invocation (id TEXT PRIMARY KEY, name TEXT)"))
    with pytest.raises(RecordError, match="lacks the columns created_at, duration_ms"):
        SQLInvocationRecorder(engine).record(INVOCATION)


@pytest.mark.parametrize("url", ["sqlite:////nowhere/at/all/calls.db", "sqlite:///."])
def test_a_database_out_of_reach_is_a_record_error(url):
    with pytest.raises(RecordError, match="cannot be written"):
        SQLInvocationRecorder(url).record(INVOCATION)


@pytest.mark.parametrize("url", ["not a url", "nosuch://user:s3cret@host/db"])
def test_a_url_that_cannot_be_used_is_told_without_its_secrets(url):
    with pytest.raises(RecordError, match="URL cannot be used") as raised:
        SQLInvocationRecorder(url)
    assert "s3cret" not in str(raised.value)
