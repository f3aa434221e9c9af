"""In an event loop that must not be blocked, as in `langgraph dev`."""

import importlib.util
import json
from pathlib import Path

import pytest

from langchain_lookup_knowledge import (
    LookupKnowledgeRetriever,
    create_lookup_knowledge_graph,
    create_lookup_knowledge_tool,
)

ROOT = Path(__file__).parents[2]


async def test_nothing_awaited_blocks_the_event_loop(kb):
    """The first calls too: they make the database and load what is needed."""
    blockbuster = pytest.importorskip("blockbuster")
    graph, tool = create_lookup_knowledge_graph(kb), create_lookup_knowledge_tool(kb)
    retriever = LookupKnowledgeRetriever(knowledge_base=kb).with_details()
    with blockbuster.blockbuster_ctx():
        await look_up_every_way(graph, tool, retriever)
        assert (
            retriever.invoke("refund")[0].metadata["status"] == "degraded"
        )  # not awaited, it does block


async def look_up_every_way(graph, tool, retriever):
    assert (await graph.ainvoke({"query": "refund"}))["recorded"] == "stored"
    assert (await graph.ainvoke({"query": "how do I connect from home"}))["l1"]["status"] == "ok"
    assert "Refunds" in await tool.ainvoke({"query": "refund"})
    documents = await retriever.ainvoke("refund")
    assert (documents[0].metadata["title"], documents[0].metadata["status"]) == ("Refunds", "ok")
    assert [update async for update in graph.astream({"query": "vpn"}, stream_mode="custom")]


def test_langgraph_json_names_a_graph_that_is_there():
    ((name, place),) = json.loads((ROOT / "langgraph.json").read_text("utf-8"))["graphs"].items()
    path, variable = place.split(":")
    assert importlib.util.spec_from_file_location("studio", ROOT / path)
    assert f"\n{variable} = " in (ROOT / path).read_text("utf-8")
    assert name == "lookup_knowledge"
