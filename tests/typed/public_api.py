"""The public API as a type checker sees it: mypy reads this file, and nothing runs it."""

from pathlib import Path
from typing import Any, assert_type

from langchain_core.documents import BaseDocumentCompressor, Document
from langchain_core.embeddings import Embeddings
from langchain_core.tools import StructuredTool
from langgraph.graph.state import CompiledStateGraph

from langchain_lookup_knowledge import (
    EntryNotFoundError,
    FrontmatterFields,
    InvocationRecorder,
    KnowledgeBase,
    LookupKnowledgeError,
    LookupKnowledgeRetriever,
    LookupOptions,
    LookupResult,
    Problem,
    QdrantIndex,
    RecordError,
    ScopeError,
    SQLInvocationRecorder,
    create_lookup_knowledge_graph,
    create_lookup_knowledge_tool,
    create_read_knowledge_tool,
    hash_query,
    knowledge_tools,
)


def a_knowledge_base(
    folder: str | Path, embedding: Embeddings, compressor: BaseDocumentCompressor
) -> None:
    fields = FrontmatterFields(keywords=("topics",), category_from_path=1)
    index = QdrantIndex(url="http://localhost:6333", collection="handbook")
    with KnowledgeBase.open(folder, embedding=embedding, index=index, fields=fields) as kb:
        assert_type(kb, KnowledgeBase)
        assert_type(kb.problems, list[Problem])
        assert_type(kb.problems[0].line, int | None)
        assert_type(kb.load_report.seen, int)
        assert_type(kb.sync().embedded, int)
    assert_type(KnowledgeBase.open(folder, index=None), KnowledgeBase)
    assert_type(KnowledgeBase.open(folder, rerank=compressor), KnowledgeBase)
    assert_type(KnowledgeBase.open(folder, rerank="jinaai/jina-reranker-v1-tiny-en"), KnowledgeBase)
    assert_type(KnowledgeBase.from_documents([Document("text")], data_dir=folder), KnowledgeBase)


def a_lookup(kb: KnowledgeBase, recorder: InvocationRecorder) -> None:
    options = LookupOptions(k=3, filter_mode="strict", record_mode="required")
    tool = create_lookup_knowledge_tool(kb, record=recorder, options=options)
    assert_type(tool, StructuredTool)
    graph: CompiledStateGraph[Any, Any, Any, LookupResult] = create_lookup_knowledge_graph(
        kb, record=None
    )
    graph.invoke({"query": "refund"})
    retriever = LookupKnowledgeRetriever(knowledge_base=kb)
    assert_type(retriever.invoke("refund"), list[Document])
    assert_type(retriever.with_details(), LookupKnowledgeRetriever)
    graph.invoke({"query": "refund", "filters": {"category": ["billing"]}})


def several_tools(kb: KnowledgeBase, other: KnowledgeBase) -> None:
    assert_type(create_lookup_knowledge_tool(kb, name="a", description="A."), StructuredTool)
    assert_type(create_read_knowledge_tool(kb), StructuredTool)
    assert_type(knowledge_tools([kb, other]), list[StructuredTool])


def reading(kb: KnowledgeBase) -> str:
    try:
        assert_type(kb.section("a.md", "Install", lines=(1, 9)).lines, tuple[int, int])
        assert_type(kb.related("a.md")[0]["similarity"], float | None)
        return kb.entry("a.md", scope=(("tenant", "acme"),)).text
    except EntryNotFoundError as error:
        return str(error)


def a_result(result: LookupResult) -> None:
    assert_type(result["invocation_id"], str)
    assert_type(result["matches"][0]["snippet"], str)
    assert_type(result["matches"][0]["similarity"], float | None)
    assert_type(result["relevance"]["semantic_support"], bool)
    assert_type(result["filter"]["category"], str | None)
    assert_type(result["hints"]["keywords"], list[str])


def a_record(path: Path) -> InvocationRecorder:
    recorder = SQLInvocationRecorder(f"sqlite:///{path}", redact=hash_query)
    assert_type(recorder.waiting(), int)
    try:
        recorder.invocations(limit=10)
    except (RecordError, ScopeError) as error:
        assert_type(str(error), str)
        assert isinstance(error, LookupKnowledgeError)
    return recorder
