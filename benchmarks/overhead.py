"""What a whole tool call costs over its floor, in one run.

`python benchmarks/overhead.py KB [--data-dir DIR] [--category-from-path N] [--rounds N]`

floor: embed the query and send one filtered dense search to the same index. frame: the same five-node graph with empty nodes,
as a StructuredTool. floor in frame: the floor in one of those nodes, so what a tool of this shape costs that does nothing else.
whole: the real tool, with hints, filter, guarded hybrid search, merge and an SQLite row. All take turns; medians.
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
    FrontmatterFields,
    KnowledgeBase,
    SQLInvocationRecorder,
    create_lookup_knowledge_tool,
    embeddings,
)
from langchain_lookup_knowledge.documents import category_key
from langchain_lookup_knowledge.knowledge_base import SEARCH_LIMIT
from langchain_lookup_knowledge.stores import CATEGORY_FIELD


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


def median_ms(parts, queries, rounds):
    """Return the median of each part in milliseconds; each round runs every part over all queries, the first unmeasured."""
    times = {name: [] for name in parts}
    for number in range(rounds + 1):
        for name, call in parts.items():
            for query in queries:
                start = time.perf_counter()
                call(query)
                if number:
                    times[name].append(time.perf_counter() - start)
    return {name: statistics.median(taken) * 1000 for name, taken in times.items()}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--category-from-path", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    fields = FrontmatterFields(category_from_path=arguments.category_from_path)
    kb = KnowledgeBase.open(arguments.folder, fields=fields, data_dir=arguments.data_dir)
    queries = [f"how do I use {entry.title}" for entry in kb.entries[:: max(1, len(kb.entries) // 40)]]
    category = next(category for entry in kb.entries for category in entry.categories)
    condition = edge.FieldCondition(key=CATEGORY_FIELD, match=edge.MatchValue(value=category_key(category)))

    def floor(query):
        vector = embeddings.embed_query(kb.embedding, query)
        nearest = edge.Query.Nearest(vector, using="dense")
        request = edge.QueryRequest(query=nearest, filter=edge.Filter(must=[condition]), limit=10, with_payload=True)
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
        "  search, unfiltered": lambda query: kb.index.search(vector, query, [[]], SEARCH_LIMIT),
        "  search, guarded": lambda query: kb.index.search(vector, query, [guarded, []], SEARCH_LIMIT),
        "  retrieve": lambda query: kb.retrieve(query, [None], limit=15),
    }
    times = median_ms(parts, queries, arguments.rounds)
    for name, milliseconds in times.items():
        print(f"{name:<24}{milliseconds:8.2f} ms")
    least = times["floor"] + times["frame"]
    print(f"floor in frame / (floor + frame) = {times['floor in frame'] / least:.2f}")
    print(f"whole / (floor + frame) = {times['whole'] / least:.2f}")
    recorder.close()


if __name__ == "__main__":
    main()
