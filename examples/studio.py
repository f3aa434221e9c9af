"""The lookup graph of the sample handbook, for LangGraph Studio: run `langgraph dev` in the top
folder.
"""

from pathlib import Path

from langchain_lookup_knowledge import KnowledgeBase, create_lookup_knowledge_graph

kb = KnowledgeBase.open(Path(__file__).parents[1] / "notebooks" / "handbook", progress=False)
graph = create_lookup_knowledge_graph(kb)
