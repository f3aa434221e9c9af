"""Processes that look up and record, as the tests of records start and kill them."""

import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

from langchain_lookup_knowledge import SQLInvocationRecorder

WORKER = Path(__file__).with_name("record_worker.py")


def start_worker(*arguments):
    command = [sys.executable, str(WORKER), *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finish(workers):
    """Return the lines of all workers; none may have written to stderr but the notice of a spool,
    nor have failed.
    """
    lines = []
    for worker in workers:
        out, errors = worker.communicate(timeout=300)
        assert worker.returncode == 0, errors
        assert "Traceback" not in errors
        lines += [line.split() for line in out.splitlines()]
    return lines


def ids(url, spool=None):
    """Return the ids in the database, of which each is there once, after what was spooled has been
    delivered.
    """
    recorder = SQLInvocationRecorder(url, spool=spool)
    try:
        rows = recorder.invocations(limit=1_000_000)
        assert recorder.waiting() == 0
    finally:
        recorder.close()
    counted = Counter(row["id"] for row in rows)
    assert set(counted.values()) <= {1}
    return set(counted)


def kill_while_it_answers(folder, url, rng, spool=()):
    """Start a worker, kill it at any moment after its first answer, and return the ids whose
    answers were handed out.
    """
    worker = start_worker(folder, url, 4, 100_000, *spool)
    first = worker.stdout.readline()
    time.sleep(rng.uniform(0, 0.5))
    worker.kill()
    rest, errors = worker.communicate(timeout=60)
    assert first, errors
    return {line.split()[0] for line in (first + rest).splitlines() if line.endswith("ok")}
