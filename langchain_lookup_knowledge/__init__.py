"""A knowledge lookup tool for LangChain agents: finds the passage, says how it was found, records every call."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from langchain_lookup_knowledge.embeddings import FastEmbedModel
    from langchain_lookup_knowledge.errors import (
        DocumentError,
        EmbeddingError,
        LookupKnowledgeError,
        RecordError,
        StoreError,
    )
    from langchain_lookup_knowledge.graph import create_lookup_knowledge_graph
    from langchain_lookup_knowledge.invocations import hash_query
    from langchain_lookup_knowledge.knowledge_base import KnowledgeBase
    from langchain_lookup_knowledge.qdrant_index import QdrantIndex
    from langchain_lookup_knowledge.records import InvocationRecorder, SQLInvocationRecorder
    from langchain_lookup_knowledge.retriever import LookupKnowledgeRetriever
    from langchain_lookup_knowledge.tool import create_lookup_knowledge_tool
    from langchain_lookup_knowledge.types import FrontmatterFields, LookupOptions, LookupResult, Problem

__version__ = "0.1.0"

_MODULES = {
    "embeddings": ["FastEmbedModel"],
    "errors": ["DocumentError", "EmbeddingError", "LookupKnowledgeError", "RecordError", "StoreError"],
    "graph": ["create_lookup_knowledge_graph"],
    "invocations": ["hash_query"],
    "knowledge_base": ["KnowledgeBase"],
    "records": ["InvocationRecorder", "SQLInvocationRecorder"],
    "retriever": ["LookupKnowledgeRetriever"],
    "qdrant_index": ["QdrantIndex"],
    "tool": ["create_lookup_knowledge_tool"],
    "types": ["FrontmatterFields", "LookupOptions", "LookupResult", "Problem"],
}
_HOMES = {name: module for module, names in _MODULES.items() for name in names}

__all__ = [
    "DocumentError",
    "EmbeddingError",
    "FastEmbedModel",
    "FrontmatterFields",
    "InvocationRecorder",
    "KnowledgeBase",
    "LookupKnowledgeError",
    "LookupKnowledgeRetriever",
    "LookupOptions",
    "LookupResult",
    "Problem",
    "QdrantIndex",
    "RecordError",
    "SQLInvocationRecorder",
    "StoreError",
    "create_lookup_knowledge_graph",
    "create_lookup_knowledge_tool",
    "hash_query",
]


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used: LangGraph and SQLAlchemy take over a second to import."""
    if name in _HOMES:
        return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
