"""Records under load: many processes and threads on one file, a lock that comes and goes, and processes killed at work."""

import random
import sqlite3
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import pytest
from conftest import WordEmbeddings

from langchain_lookup_knowledge import KnowledgeBase, SQLInvocationRecorder

WORKER = Path(__file__).with_name("record_worker.py")


def start_worker(*arguments):
    command = [sys.executable, str(WORKER), *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finish(workers):
    """Return the lines of all workers; none may have written to stderr but the notice of a spool, nor have failed."""
    lines = []
    for worker in workers:
        out, errors = worker.communicate(timeout=300)
        assert worker.returncode == 0, errors
        assert "Traceback" not in errors
        lines += [line.split() for line in out.splitlines()]
    return lines


def ids(url, spool=None):
    """Return the ids in the database, of which each is there once, after what was spooled has been delivered."""
    recorder = SQLInvocationRecorder(url, spool=spool)
    try:
        rows = recorder.invocations(limit=1_000_000)
        assert recorder.waiting() == 0
    finally:
        recorder.close()
    counted = Counter(row["id"] for row in rows)
    assert set(counted.values()) <= {1}
    return set(counted)


@pytest.fixture
def indexed(folder):
    KnowledgeBase.open(folder, embedding=WordEmbeddings()).close()
    return folder


@pytest.mark.slow
def test_1280_lookups_of_4_processes_and_32_threads_under_a_lock_leave_1280_rows(indexed, tmp_path):
    path = tmp_path / "calls.db"
    url = f"sqlite:///{path}"
    SQLInvocationRecorder(url).migrate()
    workers = [start_worker(indexed, url, 8, 40) for _ in range(4)]
    locks, lock_over = 0, threading.Event()
    with sqlite3.connect(path, isolation_level=None, timeout=10) as other:
        while any(worker.poll() is None for worker in workers):
            other.execute("BEGIN IMMEDIATE")
            locks += 1
            lock_over.wait(3)
            other.execute("ROLLBACK")
            lock_over.wait(0.5)
    other.close()
    lines = finish(workers)
    kept = Counter(recorded for _, recorded, _, _ in lines)
    print(f"{locks} locks of 3 s; {dict(kept)}")
    assert len(lines) == 1280
    assert set(kept) == {"stored", "spooled"}
    assert {(status, l1) for _, _, status, l1 in lines} == {("ok", "ok")}
    assert ids(url) == {line[0] for line in lines}


def kill_while_it_answers(folder, url, rng, spool=()):
    """Start a worker, kill it at any moment after its first answer, and return the ids whose answers were handed out."""
    worker = start_worker(folder, url, 4, 100_000, *spool)
    first = worker.stdout.readline()
    time.sleep(rng.uniform(0, 0.5))
    worker.kill()
    rest, errors = worker.communicate(timeout=60)
    assert first, errors
    return {line.split()[0] for line in (first + rest).splitlines() if line.endswith("ok")}


@pytest.mark.slow
@pytest.mark.parametrize("locked", [False, True], ids=["free", "locked"])
def test_every_answer_handed_out_before_a_kill_has_its_row(indexed, tmp_path, locked):
    rng = random.Random(7)
    path = tmp_path / "calls.db"
    url = f"sqlite:///{path}"
    SQLInvocationRecorder(url).migrate()
    answered = set()
    with sqlite3.connect(path, isolation_level=None) as other:
        if locked:
            other.execute("BEGIN IMMEDIATE")
        for _ in range(15):
            answered |= kill_while_it_answers(indexed, url, rng)
    other.close()
    print(f"15 kills, {len(answered)} answers")
    assert answered <= ids(url)
