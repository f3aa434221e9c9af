"""Records: what is written can be read back, once, and what cannot be stored is made storable."""

import json
import os
import sqlite3
import subprocess
import sys
import threading
import time
from contextlib import closing
from datetime import UTC, date, datetime

import pytest
import sqlalchemy as sa
from conftest import TESTS
from hypothesis import given
from hypothesis import strategies as st
from parts.invocations import INVOCATION, details_of

from langchain_lookup_knowledge import RecordError, SQLInvocationRecorder, hash_query
from langchain_lookup_knowledge.records import database, spool
from langchain_lookup_knowledge.records import recorder as records
from langchain_lookup_knowledge.records.invocations import (
    MAX_DETAILS_BYTES,
    capped,
    to_json,
)
from langchain_lookup_knowledge.records.table import metadata, tool_invocation
from langchain_lookup_knowledge.text.storable import storable


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
        recorder.record(
            {**INVOCATION, "id": f"i{second}", "created_at": f"2026-01-02T03:04:0{second}+00:00"}
        )
    assert [row["id"] for row in recorder.invocations(limit=2)] == ["i4", "i3"]


def test_what_no_database_takes_is_made_storable(recorder):
    details = {"l1": {"score": float("nan"), "reason": "a\0b\ud800"}, "list": [float("inf"), 1.5]}
    recorder.record({**INVOCATION, "query": "nul\0 byte", "retrieval_details": details})
    (row,) = recorder.invocations()
    assert row["query"] == "nul\ufffd byte"
    assert row["retrieval_details"] == {
        "l1": {"score": None, "reason": "a\ufffdb\ufffd"},
        "list": [None, 1.5],
    }
    with recorder._database.engine.connect() as connection:
        assert (
            connection.execute(
                sa.select(sa.func.json_valid(tool_invocation.c.retrieval_details))
            ).scalar()
            == 1
        )


def test_a_database_that_was_deleted_is_made_anew_and_no_row_is_lost_silently(tmp_path):
    recorder = SQLInvocationRecorder.in_file(tmp_path / "calls.db")
    recorder.record(INVOCATION)
    for path in tmp_path.iterdir():
        path.unlink()
    recorder.record({**INVOCATION, "id": "i2"})
    assert [
        row["id"] for row in SQLInvocationRecorder.in_file(tmp_path / "calls.db").invocations()
    ] == ["i2"]


def test_storable_leaves_plain_data_alone():
    assert storable(INVOCATION) == INVOCATION


@pytest.mark.parametrize(
    ("value", "stored"),
    [
        (date(2026, 1, 2), "2026-01-02"),
        (datetime(2026, 1, 2, tzinfo=UTC), "2026-01-02T00:00:00+00:00"),
        (2**70, 2.0**70),
        (10**400, None),
        (-(2**63), -(2**63)),
        ((1, True), [1, True]),
        ({1: "\udcff"}, {"1": "\ufffd"}),
        (b"\0", "b'\\x00'"),
    ],
)
def test_what_is_not_json_is_made_json(value, stored):
    assert storable(value) == stored
    assert storable({"a": [value, "plain"]}) == {"a": [stored, "plain"]}


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner) | st.tuples(inner),
    )
)
def test_a_part_is_stored_the_same_alone_and_within_a_record(value):
    (within,) = storable([value])
    assert within == storable(value)
    assert json.loads(to_json(within)) == within


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


OLD_TABLE = "CREATE TABLE tool_invocation (id TEXT PRIMARY KEY, name TEXT)"


def make_table(engine, *statements):
    with engine.begin() as connection:
        for statement in statements:
            connection.exec_driver_sql(statement)


def test_a_table_of_an_older_shape_is_named_and_left_alone_until_it_is_migrated(engine):
    make_table(engine, OLD_TABLE, "INSERT INTO tool_invocation VALUES ('old', 'a name')")
    recorder = SQLInvocationRecorder(engine)
    assert recorder.record(INVOCATION) == "spooled"
    with pytest.raises(
        RecordError,
        match=r"lacks the columns created_at, duration_ms.* run `lookup-knowledge invoc",
    ):
        recorder.invocations()
    assert [column["name"] for column in sa.inspect(engine).get_columns("tool_invocation")] == [
        "id",
        "name",
    ]

    assert "query" in recorder.migrate()
    assert recorder.migrate() == []
    stored, old = recorder.invocations()
    assert {key: stored[key] for key in INVOCATION} == INVOCATION
    assert (old["id"], old["query"], old["created_at"]) == ("old", None, None)
    with engine.connect() as connection:
        assert (
            connection.exec_driver_sql("SELECT name FROM tool_invocation WHERE id = 'old'").scalar()
            == "a name"
        )
    assert recorder.prune(datetime(2026, 1, 1, tzinfo=UTC)) == 0
    assert recorder.redact() == 1
    assert recorder.redact() == 0


def test_a_table_that_demands_other_columns_is_named(engine):
    metadata.create_all(engine)
    make_table(
        engine,
        "ALTER TABLE tool_invocation RENAME TO other",
        OLD_TABLE.replace("name TEXT", "n INT NOT NULL"),
    )
    recorder = SQLInvocationRecorder(engine)
    recorder.migrate()
    with pytest.raises(RecordError, match="has required columns of its own, n: give them"):
        recorder.invocations()


def test_a_table_without_ids_is_not_migrated(engine):
    make_table(engine, "CREATE TABLE tool_invocation (name TEXT)")
    with pytest.raises(RecordError, match="has no column id, so this package did not"):
        SQLInvocationRecorder(engine).migrate()


@pytest.mark.parametrize(
    "url",
    ["sqlite:////nowhere/at/all/calls.db", "sqlite:///.", "postgresql://u:s3cret@127.0.0.1:9/d"],
)
def test_a_record_of_a_database_out_of_reach_is_spooled(url, tmp_path, monkeypatch, caplog):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    recorder = SQLInvocationRecorder(url)
    assert recorder.record(INVOCATION) == recorder.record({**INVOCATION, "id": "i2"}) == "spooled"
    assert recorder.waiting() == 2
    with pytest.raises(RecordError, match="cannot be read"):
        recorder.invocations()
    assert caplog.text.count("meanwhile, records are kept in") == 1  # told once, not for every call
    assert "s3cret" not in caplog.text


def test_neither_database_nor_spool_is_an_error(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    with pytest.raises(
        RecordError,
        match=r"cannot be written .*; the spool cannot be written either \(Not a directory\)",
    ):
        SQLInvocationRecorder(f"sqlite:///{tmp_path}/file/calls.db").record(INVOCATION)


@pytest.mark.parametrize("url", ["not a url", "nosuch://user:s3cret@host/db"])
def test_a_url_that_cannot_be_used_is_told_without_its_secrets(url):
    with pytest.raises(RecordError, match="URL cannot be used") as raised:
        SQLInvocationRecorder(url)
    assert "s3cret" not in str(raised.value)


@pytest.mark.process
def test_a_missing_driver_is_one_clear_error():
    script = (
        "import sys; sys.modules['psycopg'] = None\n"
        "from langchain_lookup_knowledge import RecordError, SQLInvocationRecorder\n"
        "try: SQLInvocationRecorder('postgresql://u:s3cret@h/d')\n"
        "except RecordError as error: print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert (
        done.stdout == 'PostgreSQL needs psycopg: pip install ".[postgres]" in a checkout, '
        'or pip install "langchain-lookup-knowledge[postgres]" once published\n'
    ), done.stderr


@pytest.mark.parametrize("scheme", ["postgres", "postgresql", "postgresql+psycopg"])
def test_the_usual_addresses_of_postgresql_are_equal(scheme):
    pytest.importorskip("psycopg")
    engine = database.create_engine(f"{scheme}://user@host/db", 1.0)
    assert engine.url.render_as_string() == "postgresql+psycopg://user@host/db"


def test_a_database_of_another_kind_is_refused():
    with pytest.raises(RecordError, match="it is for SQLite or PostgreSQL, not for mysql"):
        SQLInvocationRecorder("mysql://h/d")


def test_a_database_in_memory_is_one_for_all_threads():
    recorder = SQLInvocationRecorder("sqlite://")
    worker = threading.Thread(target=recorder.record, args=[INVOCATION])
    worker.start()
    worker.join()
    assert recorder.invocations() == [INVOCATION]
    recorder.close()


# The spool


@pytest.fixture
def locked(tmp_path):
    """A database whose write lock another connection holds until it is rolled back."""
    SQLInvocationRecorder.in_file(tmp_path / "calls.db").migrate()
    connection = sqlite3.connect(
        tmp_path / "calls.db", isolation_level=None, check_same_thread=False
    )
    connection.execute("BEGIN IMMEDIATE")
    yield connection
    connection.close()


def ids(recorder):
    return sorted(row["id"] for row in recorder.invocations(limit=10_000))


def test_a_locked_database_leads_to_the_spool_and_reading_delivers_it_once(
    recorder, locked, tmp_path
):
    assert recorder.record(INVOCATION) == "spooled"
    (file,) = (tmp_path / "calls.db.spool").iterdir()
    assert json.loads(file.read_text()) == INVOCATION
    locked.rollback()
    assert recorder.record(INVOCATION) == "stored"
    assert recorder.invocations() == [INVOCATION]
    assert recorder.waiting() == 0


def test_a_record_that_was_stored_brings_the_spool_along(recorder, locked):
    recorder.record(INVOCATION)
    locked.rollback()
    assert recorder.record({**INVOCATION, "id": "i2"}) == "stored"
    for thread in threading.enumerate():
        if thread.name == "lookup-knowledge-spool":
            thread.join()
    with recorder._database.engine.connect() as connection:
        assert sorted(connection.execute(sa.select(tool_invocation.c.id)).scalars()) == ["i1", "i2"]


@pytest.mark.parametrize("deliver", ["close", "open"])
def test_closing_or_opening_delivers_the_spool(recorder, locked, tmp_path, deliver):
    recorder.record(INVOCATION)
    locked.rollback()
    if deliver == "close":
        recorder.close()
    else:
        SQLInvocationRecorder.in_file(tmp_path / "calls.db").close()
    assert locked.execute("SELECT id FROM tool_invocation").fetchall() == [("i1",)]
    assert recorder.waiting() == 0


def test_two_that_deliver_at_once_lose_and_repeat_nothing(recorder, locked, tmp_path):
    for number in range(250):
        recorder._spool.keep({**INVOCATION, "id": f"i{number}"})
    locked.rollback()
    recorders = [SQLInvocationRecorder.in_file(tmp_path / "calls.db") for _ in range(4)]
    threads = [threading.Thread(target=each._deliver) for each in recorders]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert ids(recorder) == sorted(f"i{number}" for number in range(250))
    assert recorder.waiting() == 0
    for each in recorders:
        each.close()


def test_a_kill_in_the_middle_of_a_file_leaves_nothing_that_is_delivered(recorder, tmp_path):
    (tmp_path / "calls.db.spool").mkdir()
    (tmp_path / "calls.db.spool" / ".00000000000000000001-half.json").write_text(
        '{"id": "i1", "tool_na'
    )
    recorder.record(INVOCATION)
    assert ids(recorder) == ["i1"]


DAMAGED = [
    '{"id": "i1", "tool_na',
    "[]",
    '{"id": "i9"}',
    json.dumps({**INVOCATION, "created_at": "x"}),
    "\udcff",
]


@pytest.mark.parametrize("text", DAMAGED)
def test_a_damaged_file_in_the_spool_is_put_aside_and_told(recorder, tmp_path, caplog, text):
    recorder._spool.keep(INVOCATION)
    (tmp_path / "calls.db.spool" / "0-damaged.json").write_bytes(
        text.encode("utf-8", "surrogateescape")
    )
    assert ids(recorder) == ["i1"]
    assert sorted(file.name for file in (tmp_path / "calls.db.spool").iterdir()) == [
        "0-damaged.json.damaged",
        "0-damaged.json.damaged.reason",
    ]
    assert "was set aside as 0-damaged.json.damaged: it " in caplog.text


def test_a_spool_folder_can_be_named_and_is_one_for_each_database(tmp_path):
    urls = ["postgresql://u:s3cret@127.0.0.1:9/one", "postgresql://127.0.0.1:9/two"]
    first, second = (SQLInvocationRecorder(url, spool=tmp_path / "kept") for url in urls)
    assert first.record(INVOCATION) == "spooled"
    assert (first.waiting(), second.waiting()) == (1, 0)
    assert len(list((tmp_path / "kept").iterdir())) == 1


@pytest.mark.process
def test_a_child_forked_while_a_connection_is_open_records_too(tmp_path):
    script = (
        "import os, sys\n"
        "sys.path.insert(0, sys.argv[2])\n"
        "from parts.invocations import INVOCATION\n"
        "from langchain_lookup_knowledge import SQLInvocationRecorder\n"
        "recorder = SQLInvocationRecorder(f'sqlite:///{sys.argv[1]}')\n"
        "recorder.record(INVOCATION)\n"
        "recorder._delivering.acquire()\n"
        "child = os.fork()\n"
        "kept = recorder.record({**INVOCATION, 'id': f'i{child and 2 or 3}'})\n"
        "if not child:\n"
        "    recorder.close()\n"
        "    os._exit(kept != 'stored')\n"
        "print(kept, os.waitpid(child, 0)[1])\n"
        "recorder.record({**INVOCATION, 'id': 'i4'})\n"
    )
    command = [
        sys.executable,
        "-W",
        "error",
        "-c",
        script,
        str(tmp_path / "calls.db"),
        str(TESTS),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert (done.stdout, done.stderr) == ("stored 0\n", "")
    recorder = SQLInvocationRecorder.in_file(tmp_path / "calls.db")
    assert ids(recorder) == ["i1", "i2", "i3", "i4"]
    recorder.close()


# Sizes


def test_details_that_fit_are_kept_whole():
    assert capped(details_of(8_000)) == details_of(8_000)


@pytest.mark.parametrize("size", [30_000, 100_000, pytest.param(1_000_000, marks=pytest.mark.slow)])
def test_details_too_large_lose_the_least_important_first(recorder, size):
    details = details_of(size)
    details["matches"][0]["snippet"] = details["candidates"][0]["text"] = (
        "A long paragraph. " * size
    )
    recorder.record({**INVOCATION, "retrieval_details": details})
    (row,) = recorder.invocations()
    kept = row["retrieval_details"]
    assert len(json.dumps(kept).encode()) <= MAX_DETAILS_BYTES
    assert kept["truncated"] is True
    assert kept["matches"] == details_of(size)["matches"]
    assert {key: kept[key] for key in ("filter", "l1", "relevance")} == {
        key: details[key] for key in ("filter", "l1", "relevance")
    }
    assert ("candidates" in kept, "terms" in kept["l0_hints"]) == (size == 30_000, size == 30_000)
    titles = kept["l0_hints"]["titles"]
    assert titles == details["l0_hints"]["titles"][: len(titles)]
    assert titles


def test_a_record_too_large_keeps_its_scope_and_options():
    kept = capped(details_of(100_000) | {"scope": {"tenant": "acme"}, "options": {"k": 3}})
    assert (kept["truncated"], kept["scope"], kept["options"]) == (
        True,
        {"tenant": "acme"},
        {"k": 3},
    )


def test_details_of_any_shape_are_capped():
    for details in (
        {"l1": "x" * 10**6},
        {"matches": [{"entry_id": "x" * 10**6}], "l0_hints": []},
        {"own": ["x"] * 10**6},
        {"own": "\x7f" * 20_000},  # each takes six bytes of ASCII JSON
        {"own": "é" * 20_000},
    ):
        assert len(json.dumps(capped(details))) <= MAX_DETAILS_BYTES


def test_a_huge_query_is_cut_and_numbers_fit(recorder):
    recorder.record(
        {**INVOCATION, "query": "q" * 10**6, "result_count": 2**40, "duration_ms": float("nan")}
    )
    (row,) = recorder.invocations()
    assert (len(row["query"]), row["result_count"], row["duration_ms"]) == (20_000, 2**31 - 1, 0.0)


# Reading, pruning, redacting


def test_invocations_are_filtered(recorder):
    for day, layer, status, thread in [
        (1, "L0", "degraded", "a"),
        (2, "L1", "ok", "a"),
        (3, "L0+L1", "ok", "b"),
    ]:
        recorder.record(
            {**INVOCATION, "id": f"i{day}", "created_at": f"2026-01-0{day}T01:00:00+02:00",
             "retrieval_layer": layer, "status": status, "thread_id": thread}
        )  # fmt: skip

    def found(**filters):
        return [row["id"] for row in recorder.invocations(**filters)]

    assert found(since=datetime(2026, 1, 1, 23, tzinfo=UTC)) == ["i3", "i2"]
    assert found(until=datetime(2026, 1, 1, 23)) == ["i1"]
    assert found(layer="L1") == ["i2"]
    assert found(status="ok", thread_id="a") == ["i2"]
    assert found(status="refused") == []
    assert recorder.prune(datetime(2026, 1, 2)) == 2
    assert found() == ["i3"]


def test_redacting_hashes_the_queries_and_leaves_no_trace_of_them_in_the_files(recorder, tmp_path):
    details = {"l0_hints": {"keywords": ["refund"], "terms": [{"text": "grimble", "span": [0, 7]}]}}
    for number in range(600):
        recorder.record(
            {**INVOCATION, "id": f"i{number}", "query": "grimble?", "retrieval_details": details}
        )
    assert recorder.redact() == 600
    assert recorder.redact() == 0
    (row,) = recorder.invocations(limit=1)
    assert row["query"] == hash_query({**INVOCATION, "query": "grimble?"})["query"]
    assert row["retrieval_details"] == {"l0_hints": {"keywords": ["refund"]}}
    assert not [file for file in tmp_path.glob("calls.db*") if b"grimble" in file.read_bytes()]


def test_a_redact_function_keeps_queries_out_of_database_and_spool(tmp_path, locked):
    given = {
        **INVOCATION,
        "query": "grimble",
        "retrieval_details": {"l0_hints": {"terms": ["grimble"]}},
    }
    recorder = SQLInvocationRecorder.in_file(tmp_path / "calls.db", redact=hash_query)
    assert recorder.record(given) == "spooled"
    assert "grimble" not in next((tmp_path / "calls.db.spool").iterdir()).read_text()
    locked.rollback()
    assert recorder.record({**given, "id": "i2"}) == "stored"
    recorder.close()
    assert not [
        file
        for file in tmp_path.glob("calls.db*")
        if file.is_file() and b"grimble" in file.read_bytes()
    ]
    assert given["retrieval_details"]["l0_hints"]["terms"] == [
        "grimble"
    ]  # what the result shows is left alone


@pytest.mark.slow
def test_nothing_is_called_redacted_while_queries_wait_in_the_spool(recorder, locked):
    recorder.record(INVOCATION)
    with pytest.raises(RecordError, match="the spool holds records, with their queries"):
        recorder.redact()
    locked.rollback()
    assert recorder.redact() == 1


@pytest.mark.parametrize("redact", [lambda invocation: {}["sk-SECRET"], lambda invocation: None])
def test_a_redact_function_that_fails_keeps_nothing(tmp_path, redact):
    recorder = SQLInvocationRecorder.in_file(tmp_path / "calls.db", redact=redact)
    with pytest.raises(RecordError, match="could not be redacted, so it is not kept") as raised:
        recorder.record(INVOCATION)
    assert "SECRET" not in str(raised.value)
    assert recorder.invocations() == []
    recorder.close()


def test_what_stays_in_the_spool_is_told_by_prune_and_redact(recorder, tmp_path):
    recorder._spool.keep(INVOCATION)
    (tmp_path / "calls.db.spool" / "0.json").write_text('{"query": "a secret')
    for erase in (recorder.redact, lambda: recorder.prune(datetime.now(UTC))):
        with pytest.raises(
            RecordError,
            match=r"1 files, delete them, then (redact|prune) again: .*0\.json\.damaged",
        ):
            erase()
    (tmp_path / "calls.db.spool" / "0.json.damaged").unlink()
    assert recorder.redact() == 1


@pytest.mark.slow
def test_prune_is_refused_while_calls_wait(recorder, locked):
    recorder.record(INVOCATION)
    recorder._deliver_from = float(
        "inf"
    )  # a failed delivery keeps reading away from the spool, and no more
    assert recorder.invocations() == []
    with pytest.raises(RecordError, match="prune again when the database accepts them"):
        recorder.prune(datetime.now(UTC))
    locked.rollback()
    assert recorder.prune(datetime.now(UTC)) == 1


def test_what_a_killed_process_left_unfinished_is_deleted_after_an_hour(recorder, tmp_path):
    old, new = (tmp_path / "calls.db.spool" / f".{name}.json" for name in ("old", "new"))
    recorder._spool.keep(INVOCATION)
    for path in (old, new):
        path.write_text("{")
    os.utime(old, (0, 0))
    recorder._deliver()
    assert list((tmp_path / "calls.db.spool").iterdir()) == [new]


def test_a_file_that_cannot_be_read_holds_no_other_up(recorder, tmp_path, caplog):
    (tmp_path / "calls.db.spool").mkdir()
    (tmp_path / "calls.db.spool" / "0.json").mkdir()  # unreadable for root too
    recorder._spool.keep(INVOCATION)
    assert recorder._deliver() is True
    assert ids(recorder) == ["i1"]
    reason = (tmp_path / "calls.db.spool" / "0.json.damaged.reason").read_text()
    assert reason.startswith("it cannot be read: ")
    assert "is a folder" in reason
    assert reason.strip() in caplog.text


def test_pipes_links_and_huge_or_deep_files_in_the_spool_hold_nothing_up(recorder, tmp_path):
    spool = tmp_path / "calls.db.spool"
    recorder._spool.keep(INVOCATION)
    (tmp_path / "outside.json").write_text(json.dumps({**INVOCATION, "id": "outside"}))
    (spool / "1.json").symlink_to(tmp_path / "outside.json")
    os.mkfifo(spool / "2.json")
    (spool / "3.json").write_text(" " * 4_000_001)
    (spool / "4.json").write_text("[" * 100_000)
    (spool / "5.json").write_text('{"id": "i5", "created_at": 7}')
    (spool / "6.json").hardlink_to(tmp_path / "outside.json")
    assert recorder._deliver() is True
    assert ids(recorder) == ["i1"]
    assert sorted(file.name for file in spool.glob("*.damaged")) == [
        f"{number}.json.damaged" for number in range(1, 7)
    ]
    assert len(list(spool.glob("*.damaged.reason"))) == 6
    assert (tmp_path / "outside.json").exists()


def test_a_file_replaced_in_the_middle_of_a_call_is_told(recorder, tmp_path):
    recorder.record(INVOCATION)
    with pytest.raises(RecordError, match="deleted or replaced meanwhile"):
        recorder.read(lambda _: (tmp_path / "calls.db").unlink())


def test_a_log_that_others_read_is_told_and_emptied_when_done_again(
    recorder, tmp_path, monkeypatch
):
    monkeypatch.setattr(database, "PATIENCE", 0.5)
    recorder.record({**INVOCATION, "query": "a very secret query"})
    log = tmp_path / "calls.db-wal"
    with closing(sqlite3.connect(tmp_path / "calls.db", isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT * FROM tool_invocation").fetchall()
        with pytest.raises(RecordError, match="try again"):
            recorder.redact()
    assert b"a very secret query" in log.read_bytes()
    assert recorder.redact() == 0
    assert log.read_bytes() == b""


REFUSED = {**INVOCATION, "id": "refused", "status": None}


@pytest.mark.parametrize("place", ["file", "memory"])
def test_a_row_that_the_database_refuses_harms_no_other(tmp_path, monkeypatch, place):
    monkeypatch.setattr(records, "LOOKUP_WAIT", 5.0)
    url = f"sqlite:///{tmp_path / 'calls.db'}" if place == "file" else "sqlite://"
    with closing(SQLInvocationRecorder(url)) as recorder:
        # another call is under way, so that these form a group
        recorder._database._slots.acquire()
        calls = [{**INVOCATION, "id": f"i{i}"} for i in range(4)] + [
            REFUSED,
            {**INVOCATION, "id": "i4"},
        ]
        outcome = {}

        def record(call):
            try:
                outcome[call["id"]] = recorder.record(call)
            except RecordError as error:
                outcome[call["id"]] = str(error)

        threads = [threading.Thread(target=record, args=(call,)) for call in calls]
        for thread in threads:
            thread.start()
        recorder._database._slots.release()
        for thread in threads:
            thread.join()
        refused = outcome.pop("refused")
        assert set(outcome.values()) == {"stored"}
        assert refused == "spooled" if place == "file" else "NOT NULL" in refused
        assert ids(recorder) == [f"i{i}" for i in range(5)]


def test_a_row_that_the_database_refuses_holds_no_other_up_in_the_spool(recorder, locked, caplog):
    for call in (REFUSED, *({**INVOCATION, "id": f"i{i}"} for i in range(3))):
        assert recorder.record(call) == "spooled"
    locked.rollback()
    assert ids(recorder) == ["i0", "i1", "i2"]
    assert recorder.waiting() == 0
    (reason,) = (path.read_text() for path in recorder._spool.folders[0].glob("*.reason"))
    assert reason.startswith("invocations cannot be written (NOT NULL")
    assert reason.strip() in caplog.text


def test_the_spool_has_a_limit_that_is_reported(recorder, locked, monkeypatch):
    monkeypatch.setattr(spool, "MAX_WAITING", 3)
    monkeypatch.setattr(spool, "COUNTED_EVERY", 1)
    for number in range(3):
        assert recorder.record({**INVOCATION, "id": f"i{number}"}) == "spooled"
    with pytest.raises(RecordError, match="3 records are waiting, which is the limit"):
        recorder.record({**INVOCATION, "id": "i3"})
    locked.rollback()
    assert ids(recorder) == ["i0", "i1", "i2"]


@pytest.mark.parametrize("way", ["redact", "prune"])
def test_half_written_files_are_erased_or_their_process_waited_for(recorder, tmp_path, way):
    erase = {"redact": recorder.redact, "prune": lambda: recorder.prune(datetime.now(UTC))}[way]
    recorder.record(INVOCATION)
    folder = tmp_path / "calls.db.spool"
    folder.mkdir()
    half = folder / ".0123.00000000000000000001-half.json"
    half.write_text('{"query": "a secret')
    with pytest.raises(RecordError, match="is being written to the spool"):
        erase()
    os.utime(half, (time.time() - 60, time.time() - 60))
    assert erase() == 1
    assert list(folder.iterdir()) == []


def test_database_and_spool_are_for_their_user_alone(recorder, locked, tmp_path):
    recorder.record(INVOCATION)
    locked.rollback()
    other = SQLInvocationRecorder.in_file(tmp_path / "other.db")
    other.record(INVOCATION)
    files = [*(tmp_path / "calls.db.spool").iterdir(), *tmp_path.glob("other.db*")]
    assert len(files) >= 3
    assert {file.stat().st_mode & 0o777 for file in files} == {0o600}
    other.close()


OUTCOMES = [("cancelled", 2), ("ok", 1)]


@pytest.mark.parametrize(("first", "rows"), OUTCOMES)
def test_another_outcome_of_an_invocation_is_a_second_row_and_the_same_is_none(
    recorder, first, rows
):
    recorder.record({**INVOCATION, "status": first})
    for _ in range(3):
        assert recorder.record(INVOCATION) == "stored"
    found = recorder.invocations()
    assert len(found) == rows
    assert {row["status"] for row in found} == {first, "ok"}
    assert len({row["id"] for row in found}) == rows


def test_a_time_that_is_none_in_utc_is_its_callers_slip_alone(recorder):
    with pytest.raises(RecordError, match="is not an invocation"):
        recorder.record({**INVOCATION, "created_at": "0001-01-01T00:00:00+14:00"})


def test_each_outage_is_told_once(recorder, locked, tmp_path, caplog):
    for outage in range(2):
        for number in range(2):
            assert recorder.record({**INVOCATION, "id": f"{outage} {number}"}) == "spooled"
        assert sum("meanwhile, records are kept in" in text for text in caplog.messages) == 1
        caplog.clear()
        locked.rollback()
        SQLInvocationRecorder.in_file(
            tmp_path / "calls.db"
        ).close()  # as another process, it delivers
        assert recorder.record({**INVOCATION, "id": f"after {outage}"}) == "stored"
        locked.execute("BEGIN IMMEDIATE")


def raising(error):
    def call(*_):
        raise error

    return call


def test_a_spool_that_cannot_be_delivered_is_left_alone_for_a_while(
    recorder, locked, caplog, monkeypatch
):
    recorder.record(INVOCATION)
    monkeypatch.setattr(recorder._spool, "deliver", raising(PermissionError(13, "read-only")))
    locked.rollback()
    for number in range(5):
        assert recorder.record({**INVOCATION, "id": f"i{number}"}) == "stored"
        for thread in threading.enumerate():
            if thread.name == "lookup-knowledge-spool":
                thread.join()
    assert sum("records waiting in the spool" in text for text in caplog.messages) == 1
