"""What many callers at once get of the whole tool, over its floor, in one run; memory over time;
and what a dead store costs.

`python benchmarks/load.py KB [--data-dir DIR] [--category-from-path N] [--callers N] [--minutes M]
[--awaited]`

floor: embed the query and send one dense search to the same index. floor in frame: the same in a
node of a five-node graph, the others empty, as a StructuredTool. whole: the real tool, with hints,
filter, guarded hybrid search, merge and an SQLite row. They take turns of a few seconds, so that a
change of the machine's speed meets all; one thread of the model an embedding. down: the tool on a
server that refuses connections, its circuit open; L0: the same tool with L1 switched off, in turns
again. Memory is the resident set of the process, at the end of each turn.
"""

import argparse
import asyncio
import statistics
import tempfile
import threading
import time
from itertools import count
from pathlib import Path

import psutil
import qdrant_edge as edge
from overhead import empty_frame

from langchain_lookup_knowledge import (
    FastEmbedModel,
    FrontmatterFields,
    KnowledgeBase,
    LookupOptions,
    QdrantIndex,
    SQLInvocationRecorder,
    create_lookup_knowledge_tool,
)
from langchain_lookup_knowledge.l1.models import embeddings

TURN = 5.0
"""Seconds of a turn."""


def percentile(times, share):
    return sorted(times)[min(len(times) - 1, int(share * len(times)))] * 1000


def turn_in_threads(call, queries, callers, seconds):
    """Let `callers` threads call in a row for some seconds; return how long each call took."""
    times, numbers, end = [], count(), time.perf_counter() + seconds

    def caller():
        while (started := time.perf_counter()) < end or not times:
            call(queries[next(numbers) % len(queries)])
            times.append(time.perf_counter() - started)

    threads = [threading.Thread(target=caller) for _ in range(callers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return times


def turn_awaited(acall, queries, callers, seconds):
    """Do as `turn_in_threads`, with tasks of one event loop."""
    times, numbers, end = [], count(), time.perf_counter() + seconds

    async def caller():
        while (started := time.perf_counter()) < end or not times:
            await acall(queries[next(numbers) % len(queries)])
            times.append(time.perf_counter() - started)

    async def all_callers():
        await asyncio.gather(*(caller() for _ in range(callers)))

    asyncio.run(all_callers())
    return times


def in_turns(parts, turns):
    """Run each part in turn, after a short warm-up; return the rates and times of each, and the
    memory after each turn.
    """
    rates = {name: [] for name in parts}
    times = {name: [] for name in parts}
    memory = []
    for part in parts.values():
        part(min(1.0, TURN))
    for _ in range(turns):
        for name, part in parts.items():
            started = time.perf_counter()
            taken = part(TURN)
            rates[name].append(len(taken) / (time.perf_counter() - started))
            times[name] += taken
        memory.append(psutil.Process().memory_info().rss / 2**20)
    return rates, times, memory


def show(rates, times):
    for name, rate in rates.items():
        p50, p99 = percentile(times[name], 0.5), percentile(times[name], 0.99)
        print(
            f"{name:<15}{statistics.median(rate):8.1f} lookups/s{p50:9.2f} ms "
            f"median{p99:9.2f} ms p99"
        )


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--category-from-path", type=int, default=0)
    parser.add_argument("--callers", type=int, default=16)
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument(
        "--awaited", action="store_true", help="tasks of one event loop instead of threads"
    )
    arguments = parser.parse_args()
    fields = FrontmatterFields(category_from_path=arguments.category_from_path)
    model = FastEmbedModel(threads=1)
    kb = KnowledgeBase.open(
        arguments.folder, fields=fields, data_dir=arguments.data_dir, embedding=model
    )
    if not kb.entries:
        parser.error(f"{arguments.folder} holds no Markdown files")
    queries = [
        f"how do I use {entry.title}" for entry in kb.entries[:: max(1, len(kb.entries) // 200)]
    ]
    recorder = SQLInvocationRecorder.in_file(Path(tempfile.mkdtemp()) / "calls.db")
    patient = LookupOptions(l1_timeout=60)

    def floor(query):
        nearest = edge.Query.Nearest(embeddings.embed_query(model, query), using="dense")
        kb.index._opened().shard.query(
            edge.QueryRequest(query=nearest, limit=10, with_payload=True)
        )

    frame = empty_frame(floor)

    def turn(tool):
        if arguments.awaited:
            return lambda seconds: turn_awaited(
                lambda q: tool.ainvoke({"query": q}), queries, arguments.callers, seconds
            )
        return lambda seconds: turn_in_threads(
            lambda q: tool.invoke({"query": q}), queries, arguments.callers, seconds
        )

    tool = create_lookup_knowledge_tool(kb, record=recorder, options=patient)
    turns = max(1, round(arguments.minutes * 60 / (3 * TURN)))
    parts = {
        "floor": lambda seconds: turn_in_threads(floor, queries, arguments.callers, seconds),
        "floor in frame": lambda seconds: turn_in_threads(
            frame.invoke, queries, arguments.callers, seconds
        ),
        "whole": turn(tool),
    }
    rates, times, memory = in_turns(parts, turns)
    print(
        f"{arguments.callers} callers, {len(kb.entries)} entries, {turns} turns of {TURN:g} s each"
    )
    show(rates, times)
    for name in ("floor in frame", "whole"):
        ratios = [rate / floor for rate, floor in zip(rates[name], rates["floor"], strict=True)]
        print(
            f"{name} / floor = {statistics.median(ratios):.2f} "
            f"({min(ratios):.2f} to {max(ratios):.2f})"
        )
    print(
        f"memory {memory[0]:.0f} MiB after the first turns, {memory[-1]:.0f} at the "
        f"end, {max(memory):.0f} at most"
    )

    alone = create_lookup_knowledge_tool(
        kb, record=recorder, options=LookupOptions(l1_enabled=False)
    )
    dead = KnowledgeBase.open(
        arguments.folder,
        fields=fields,
        data_dir=arguments.data_dir,
        embedding=model,
        index=QdrantIndex("http://127.0.0.1:9", "x"),
    )
    down = create_lookup_knowledge_tool(dead, record=recorder)
    while dead.health()["l1"] != "paused":
        down.invoke({"query": queries[0]})
    one = {
        "L0": lambda seconds: turn_in_threads(
            lambda q: alone.invoke({"query": q}), queries, 1, seconds
        ),
        "down": lambda seconds: turn_in_threads(
            lambda q: down.invoke({"query": q}), queries, 1, seconds
        ),
    }
    rates, times, _ = in_turns(one, 2)
    print("one caller, the store down and its circuit open, against L0 alone")
    show(rates, times)
    more = (statistics.median(times["down"]) - statistics.median(times["L0"])) * 1000
    mean = (statistics.mean(times["down"]) - statistics.mean(times["L0"])) * 1000
    print(
        f"down - L0 = {more:.2f} ms in the median, {mean:.2f} ms in the mean (the trials included)"
    )
    dead.close()
    kb.close()
    recorder.close()


if __name__ == "__main__":
    main()
