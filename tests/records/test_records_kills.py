"""Processes killed while they record, spool, redact, prune or migrate: no row is lost or double."""

import random
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from datetime import UTC, datetime

import pytest
from conftest import TESTS
from test_table import SQLITE_0_1

from langchain_lookup_knowledge import SQLInvocationRecorder

KILLS = 50
OLD = 200
NOW = "2026-01-02 03:04:05.678900"
WAYS = ["record", "spool", "redact", "prune", "migrate"]


def older_rows(path, created):
    """Make a database of version 0.1 with rows of this time, and return their ids."""
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(SQLITE_0_1)
        connection.execute("UPDATE tool_invocation SET created_at = ?", (created,))
        for number in range(OLD):
            connection.execute(
                "INSERT INTO tool_invocation SELECT ?, tool_name, query, status, retrieval_layer, "
                "retrieval_details, l1_status, result_count, primary_entry_id, duration_ms, "
                "thread_id, run_id, tool_call_id, created_at FROM tool_invocation WHERE id = 'old'",
                (f"old{number}",),
            )
        connection.commit()
    return {"old", *(f"old{number}" for number in range(OLD))}


def killed(way, path, spool, rng):
    """Start a worker, kill it at any moment, and return the ids of the rows it handed over."""
    command = [sys.executable, TESTS / "parts/killed_work.py", way, f"sqlite:///{path}", spool]
    with subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, text=True) as worker:
        assert worker.stdout.readline() == "ready\n"
        time.sleep(rng.uniform(0, 2 if way == "spool" else 0.3))  # a lock is waited for
        worker.kill()
        return set(worker.stdout.read().split("\n")[:-1])


def finished(way, recorder):
    """Finish what was cut off, and return the rows by their ids."""
    recorder.migrate()
    if way == "redact":
        recorder.redact()
    if way == "prune":
        recorder.prune(datetime(2026, 1, 1, tzinfo=UTC))
    rows = recorder.invocations(limit=1_000_000)
    assert recorder.waiting() == 0
    assert len({row["id"] for row in rows}) == len(rows)
    return {row["id"]: row for row in rows}


@pytest.mark.nightly
@pytest.mark.parametrize("way", WAYS)
def test_no_kill_loses_or_doubles_a_row(tmp_path, way):
    rng, handed = random.Random(7), 0
    for number in range(KILLS):
        path, spool = tmp_path / f"{number}.db", tmp_path / f"{number}.spool"
        created = "2025-01-02 03:04:05.678900" if way == "prune" else NOW
        old = older_rows(path, created)
        if way != "migrate":
            SQLInvocationRecorder(f"sqlite:///{path}").migrate()
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            if way == "spool":
                other.execute("BEGIN IMMEDIATE")
            given = killed(way, path, spool, rng)
        rows = finished(way, SQLInvocationRecorder(f"sqlite:///{path}", spool=spool))
        assert given <= set(rows), number
        assert set(rows) & old == (set() if way == "prune" else old), number
        if way == "redact":
            assert not any("query" in row["query"] for row in rows.values())
        elif way != "prune":
            assert all(rows[name]["query"] == "退款 🚀" for name in old)
        handed += len(given)
    print(f"{way}: {KILLS} kills, {handed} rows handed over")
