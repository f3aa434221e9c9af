"""A knowledge lookup tool for LangChain agents.

It finds a passage, explains how it was found, and records every lookup.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from langchain_lookup_knowledge.errors import (
        DocumentError,
        EmbeddingError,
        EntryNotFoundError,
        LookupKnowledgeError,
        RecordError,
        ScopeError,
        StoreError,
    )
    from langchain_lookup_knowledge.integrations.read_tool import create_read_knowledge_tool
    from langchain_lookup_knowledge.integrations.retriever import LookupKnowledgeRetriever
    from langchain_lookup_knowledge.integrations.tool import create_lookup_knowledge_tool
    from langchain_lookup_knowledge.integrations.toolset import knowledge_tools
    from langchain_lookup_knowledge.knowledge_base import KnowledgeBase
    from langchain_lookup_knowledge.l1.models.embeddings import FastEmbedModel
    from langchain_lookup_knowledge.l1.stores.qdrant.index import QdrantIndex
    from langchain_lookup_knowledge.lookup.graph import create_lookup_knowledge_graph
    from langchain_lookup_knowledge.lookup.reading import ReadResult
    from langchain_lookup_knowledge.records.invocations import hash_query
    from langchain_lookup_knowledge.records.recorder import SQLInvocationRecorder
    from langchain_lookup_knowledge.types import (
        FrontmatterFields,
        InvocationRecorder,
        LookupOptions,
        LookupResult,
        Problem,
    )

__version__ = "0.2.0.dev0"

_MODULES = {
    "l1.models.embeddings": ["FastEmbedModel"],
    "errors": [
        "DocumentError",
        "EmbeddingError",
        "EntryNotFoundError",
        "LookupKnowledgeError",
        "RecordError",
        "ScopeError",
        "StoreError",
    ],
    "lookup.graph": ["create_lookup_knowledge_graph"],
    "lookup.reading": ["ReadResult"],
    "records.invocations": ["hash_query"],
    "knowledge_base": ["KnowledgeBase"],
    "records.recorder": ["SQLInvocationRecorder"],
    "integrations.retriever": ["LookupKnowledgeRetriever"],
    "l1.stores.qdrant.index": ["QdrantIndex"],
    "integrations.read_tool": ["create_read_knowledge_tool"],
    "integrations.tool": ["create_lookup_knowledge_tool"],
    "integrations.toolset": ["knowledge_tools"],
    "types": [
        "FrontmatterFields",
        "InvocationRecorder",
        "LookupOptions",
        "LookupResult",
        "Problem",
    ],
}
_HOMES = {name: module for module, names in _MODULES.items() for name in names}

__all__ = [
    "DocumentError",
    "EmbeddingError",
    "EntryNotFoundError",
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
    "ReadResult",
    "RecordError",
    "SQLInvocationRecorder",
    "ScopeError",
    "StoreError",
    "create_lookup_knowledge_graph",
    "create_lookup_knowledge_tool",
    "create_read_knowledge_tool",
    "hash_query",
    "knowledge_tools",
]


def __getattr__(name: str) -> Any:
    """Import a public name at its first use, because importing LangGraph and SQLAlchemy takes over
    a second.
    """
    if name in _HOMES:
        return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
