"""What a whole tool call costs over its floor, in one run.

`python benchmarks/overhead.py KB [--data-dir DIR] [--category-from-path N] [--rounds N]`

floor: embed the query and send one filtered dense search to the same index. frame: the same five-node graph with empty nodes,
as a StructuredTool. whole: the real tool, with hints, filter, guarded hybrid search, merge and an SQLite row. Medians.
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


def empty_frame():
    names = ["l0_hints", "choose_filter", "l1_retrieve", "merge_with_fallback", "record_invocation"]
    builder = StateGraph(State)
    for name in names:
        builder.add_node(name, lambda state: {"query": state["query"]})
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


def median_ms(call, queries, rounds):
    for query in queries[:5]:
        call(query)
    times = []
    for _ in range(rounds):
        for query in queries:
            start = time.perf_counter()
            call(query)
            times.append(time.perf_counter() - start)
    return statistics.median(times) * 1000


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
        "whole": lambda query: tool.invoke({"query": query}),
        "  hints": kb.hints,
        "  embedding": lambda query: embeddings.embed_query(kb.embedding, query),
        "  search, unfiltered": lambda query: kb.index.search(vector, query, [[]], SEARCH_LIMIT),
        "  search, guarded": lambda query: kb.index.search(vector, query, [guarded, []], SEARCH_LIMIT),
        "  retrieve": lambda query: kb.retrieve(query, [None], limit=15),
    }
    times = {name: median_ms(call, queries, arguments.rounds) for name, call in parts.items()}
    for name, milliseconds in times.items():
        print(f"{name:<24}{milliseconds:8.2f} ms")
    print(f"whole / (floor + frame) = {times['whole'] / (times['floor'] + times['frame']):.2f}")
    recorder.close()


if __name__ == "__main__":
    main()
