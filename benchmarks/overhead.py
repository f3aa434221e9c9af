"""What a whole tool call costs over its floor, in one run.

`python benchmarks/overhead.py KB [--data-dir DIR] [--category-from-path N] [--rounds N]
[--processor-time]`

floor: embed the query and send one filtered dense search to the same index. frame: the same
five-node graph with empty nodes, as a StructuredTool. floor in frame: the floor in one of those
nodes, so what a tool of this shape costs that does nothing else. whole: the real tool, with hints,
filter, guarded hybrid search, merge and an SQLite row. All take turns; medians. On a machine that
others use too, `--processor-time` counts the processor time of this process, with one thread of the
model.
"""

import argparse
import statistics
import tempfile
import time
from pathlib import Path

import qdrant_edge as edge
from langchain_core.tools import StructuredTool
from langgraph.graph import END, START, StateGraph
from typing_extensions import TypedDict

from langchain_lookup_knowledge import (
    FastEmbedModel,
    FrontmatterFields,
    KnowledgeBase,
    SQLInvocationRecorder,
    create_lookup_knowledge_tool,
)
from langchain_lookup_knowledge.l1.fusion import LIST_LENGTH
from langchain_lookup_knowledge.l1.models import embeddings
from langchain_lookup_knowledge.l1.requests import L1Request
from langchain_lookup_knowledge.l1.stores.vector_index import CATEGORY_FIELD
from langchain_lookup_knowledge.reading.entry import category_key


class State(TypedDict, total=False):
    query: str


def empty_frame(l1_retrieve=lambda query: None):
    def step(state):
        return {"query": state["query"]}

    def l1_step(state):
        l1_retrieve(state["query"])
        return {"query": state["query"]}

    names = ["l0_hints", "choose_filter", "l1_retrieve", "merge_with_fallback", "record_invocation"]
    builder = StateGraph(State)
    for name in names:
        builder.add_node(name, l1_step if name == "l1_retrieve" else step)
    builder.add_edge(START, names[0])
    builder.add_edge(names[0], names[1])
    builder.add_conditional_edges(names[1], lambda state: names[2], [names[2], names[3]])
    builder.add_conditional_edges(names[2], lambda state: names[3], [names[2], names[3]])
    builder.add_edge(names[3], names[4])
    builder.add_edge(names[4], END)
    graph = builder.compile(checkpointer=False)
    return StructuredTool.from_function(
        lambda query: str(graph.invoke({"query": query})), name="frame", description="frame"
    )


def median_ms(parts, queries, rounds, clock):
    """Return the median of each part in milliseconds; each round runs every part over all queries,
    the first unmeasured.
    """
    times = {name: [] for name in parts}
    for number in range(rounds + 1):
        for name, call in parts.items():
            for query in queries:
                start = clock()
                call(query)
                if number:
                    times[name].append(clock() - start)
    return {name: statistics.median(taken) * 1000 for name, taken in times.items()}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--category-from-path", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--processor-time", action="store_true")
    arguments = parser.parse_args()
    fields = FrontmatterFields(category_from_path=arguments.category_from_path)
    busy = arguments.processor_time
    kb = KnowledgeBase.open(
        arguments.folder,
        fields=fields,
        data_dir=arguments.data_dir,
        embedding=FastEmbedModel(threads=1 if busy else None),
    )
    queries = [
        f"how do I use {entry.title}" for entry in kb.entries[:: max(1, len(kb.entries) // 40)]
    ]
    category = next(category for entry in kb.entries for category in entry.categories)
    condition = edge.FieldCondition(
        key=CATEGORY_FIELD, match=edge.MatchValue(value=category_key(category))
    )

    def floor(query):
        vector = embeddings.embed_query(kb.embedding, query)
        nearest = edge.Query.Nearest(vector, using="dense")
        request = edge.QueryRequest(
            query=nearest, filter=edge.Filter(must=[condition]), limit=10, with_payload=True
        )
        kb.index._opened().shard.query(request)

    guarded = [(CATEGORY_FIELD, [category_key(category)])]
    recorder = SQLInvocationRecorder.in_file(Path(tempfile.mkdtemp()) / "calls.db")
    tool = create_lookup_knowledge_tool(kb, record=recorder)
    vector = embeddings.embed_query(kb.embedding, queries[0])
    parts = {
        "floor": floor,
        "frame": empty_frame().invoke,
        "floor in frame": empty_frame(floor).invoke,
        "whole": lambda query: tool.invoke({"query": query}),
        "  hints": kb.hints,
        "  embedding": lambda query: embeddings.embed_query(kb.embedding, query),
        "  search, unfiltered": lambda query: kb.index.search(vector, query, [[]], LIST_LENGTH),
        "  search, guarded": lambda query: kb.index.search(
            vector, query, [guarded, []], LIST_LENGTH
        ),
        "  retrieve": lambda query: kb.l1.search(L1Request(query, kb.l0.entries, limit=15)),
    }
    clock = time.process_time if busy else time.perf_counter
    times = median_ms(parts, queries, arguments.rounds, clock)
    for name, milliseconds in times.items():
        print(f"{name:<24}{milliseconds:8.2f} ms")
    least = times["floor"] + times["frame"]
    print(f"floor in frame / (floor + frame) = {times['floor in frame'] / least:.2f}")
    print(f"whole / (floor + frame) = {times['whole'] / least:.2f}")
    print(f"whole / floor in frame = {times['whole'] / times['floor in frame']:.2f}")
    recorder.close()


if __name__ == "__main__":
    main()
