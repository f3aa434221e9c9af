"""Records under load: many processes and threads on one file, a lock that comes and goes, and
processes killed at work.
"""

import random
import sqlite3
import threading
from collections import Counter

import pytest
from parts.record_workers import finish, ids, kill_while_it_answers, start_worker

from langchain_lookup_knowledge import SQLInvocationRecorder


@pytest.mark.nightly
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


@pytest.mark.nightly
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
