"""What the pages of the inspector ask of a database with many lookups: seconds (of the processor,
too: on a busy machine they say more), and most memory of this process beyond before.

`python benchmarks/inspector.py KB QUERIES.jsonl [--rows 100000] [--db URL]`

The lookups are recorded ones of the questions, every fourth followed by a call of the read tool,
copied over a year; without --db, into a new SQLite file.
"""

import argparse
import json
import random
import tempfile
import time
import tracemalloc
import uuid
from datetime import UTC, datetime, timedelta
from pathlib import Path

import sqlalchemy as sa

from langchain_lookup_knowledge import (
    KnowledgeBase,
    SQLInvocationRecorder,
    create_lookup_knowledge_graph,
    create_read_knowledge_tool,
)
from langchain_lookup_knowledge.inspector.gaps import GAP_ROWS, gaps_in, proven
from langchain_lookup_knowledge.records.history import History
from langchain_lookup_knowledge.records.rows import is_read
from langchain_lookup_knowledge.records.selection import Selection
from langchain_lookup_knowledge.records.table import tool_invocation


def recorded(folder, questions):
    """Return the rows of real lookups of the questions, and of reads of some entries they found."""
    place = Path(tempfile.mkdtemp())
    recorder = SQLInvocationRecorder.in_file(place / "calls.db")
    with KnowledgeBase.open(folder, data_dir=place) as kb:
        graph = create_lookup_knowledge_graph(kb, record=recorder)
        reader = create_read_knowledge_tool(kb, record=recorder)
        for number, line in enumerate(questions.read_text("utf-8").splitlines()):
            primary = graph.invoke({"query": json.loads(line)["query"]})["primary"]
            if number % 4 == 0:
                reader.invoke({"source": primary["entry_id"] if primary else "nowhere.md"})
    rows = recorder.invocations(limit=1000)
    recorder.close()
    return rows


def fill(url, rows, number):
    """Write `number` copies of the rows, at random moments of a year, one in twenty of them without
    L1.
    """
    rng = random.Random(7)
    start = datetime(2026, 1, 1, tzinfo=UTC)
    engine = sa.create_engine(url)
    with engine.begin() as connection:
        for first in range(0, number, 1000):
            batch = []
            for place in range(first, min(first + 1000, number)):
                row = dict(rows[place % len(rows)])
                if rng.random() < 0.05 and not is_read(row):
                    row |= {"status": "degraded", "retrieval_layer": "L0", "l1_status": "timeout"}
                row |= {
                    "id": str(uuid.uuid4()),
                    "created_at": start + timedelta(seconds=rng.random() * 31_536_000),
                }
                row |= {
                    "duration_ms": rng.lognormvariate(2, 0.5),
                    "thread_id": f"thread-{place % 5000}",
                }
                batch.append(row)
            connection.execute(sa.insert(tool_invocation), batch)
    engine.dispose()


def measured(call):
    """Return the seconds of the first call, the median of five more, their median seconds of the
    processor, and the most MiB it held.
    """
    times, worked = [], []
    for _ in range(6):
        start, busy = time.perf_counter(), time.process_time()
        call()
        times.append(time.perf_counter() - start)
        worked.append(time.process_time() - busy)
    tracemalloc.start()
    call()
    peak = tracemalloc.get_traced_memory()[1] / 2**20
    tracemalloc.stop()
    return times[0], sorted(times[1:])[2], sorted(worked[1:])[2], peak


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("questions", type=Path)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--db", help="an SQLAlchemy URL")
    arguments = parser.parse_args()
    url = arguments.db or f"sqlite:///{tempfile.mkdtemp()}/calls.db"
    recorder = SQLInvocationRecorder(url)
    history, everything = History(recorder), Selection()
    fill(url, recorded(arguments.folder, arguments.questions), arguments.rows)
    middle = history.lookups(Selection(until=datetime(2026, 7, 1).date()), limit=1)[0]["id"]

    def gaps():
        found = gaps_in(history.asked(everything, limit=GAP_ROWS), {}, {})
        return proven(found, history.invocations)

    calls = {
        "overview": lambda: history.overview(everything),
        "overview, one month": lambda: history.overview(
            Selection(datetime(2026, 5, 1).date(), datetime(2026, 5, 31).date())
        ),
        "lookups, first page": lambda: history.lookups(everything),
        "lookups, page in the middle": lambda: history.lookups(everything, before=middle),
        "reads, first page": lambda: history.lookups(Selection(reads=True)),
        "lookups, no match in text": lambda: history.lookups(Selection(text="no such words")),
        "one lookup": lambda: history.invocation(middle),
        "lookups, all of low relevance": lambda: history.lookups(Selection(level="low")),
        "gaps: what is proven": gaps,
        "gaps: filters": lambda: history.filters(everything),
        "gaps: entries found": lambda: history.found_entries(everything),
        "gaps: common terms": lambda: history.common_terms(everything),
        "replay: newest of each query": lambda: history.newest_answers(1000),
    }
    print(f"{arguments.rows} lookups, {sa.make_url(url).get_backend_name()}")
    print(f"{'':<30}{'first':>10}{'median':>10}{'processor':>11}{'most memory':>16}")
    for name, call in calls.items():
        first, median, busy, peak = measured(call)
        print(f"{name:<30}{first:8.3f} s{median:8.3f} s{busy:9.3f} s{peak:12.1f} MiB")
    recorder.close()


if __name__ == "__main__":
    main()
