"""The lookup as a LangChain retriever."""

import copy
from dataclasses import replace
from functools import cached_property
from typing import Any

from langchain_core.callbacks import AsyncCallbackManagerForRetrieverRun, CallbackManagerForRetrieverRun
from langchain_core.documents import Document
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.config import ensure_config, run_in_executor
from pydantic import ConfigDict, Field, PrivateAttr

from langchain_lookup_knowledge.graph import create_lookup_knowledge_graph, default_recorder
from langchain_lookup_knowledge.knowledge_base import KnowledgeBase
from langchain_lookup_knowledge.types import LookupOptions, LookupResult


class LookupKnowledgeRetriever(BaseRetriever):
    """Retrieves the matches of a lookup as documents; each call is recorded like a tool call.

    A document's `page_content` is the match's snippet, its `id` the entry id; its metadata hold `title`, `source`,
    `heading`, `categories`, `score`, `similarity`, `layers`, `matched`, and of the whole call `status`, `retrieval_layer`,
    `relevance` (the level) and `invocation_id`.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True, extra="forbid")

    knowledge_base: KnowledgeBase
    k: int | None = Field(default=None, ge=1, le=100)
    """Most documents returned; left out, that of `options`; `invoke(query, k=...)` overrides both."""
    options: LookupOptions = LookupOptions()
    """How a lookup behaves."""
    record: Any = "default"
    """An `InvocationRecorder`; left out, the knowledge base's default; None records nothing."""

    _graphs: dict[LookupOptions, Any] = PrivateAttr(default_factory=dict)

    @cached_property
    def _recorder(self) -> Any:
        """The recorder of all graphs, whatever their `k`."""
        return default_recorder(self.knowledge_base) if self.record == "default" else self.record

    def _graph(self, k: int | None) -> Any:
        k = next(value for value in (k, self.k, self.options.k) if value is not None)
        options = replace(self.options, k=k)
        if options not in self._graphs:
            self._graphs[options] = create_lookup_knowledge_graph(
                self.knowledge_base, record=self._recorder, options=options, checkpointer=False
            )
        return self._graphs[options]

    def invoke(self, input: str, config: RunnableConfig | None = None, **kwargs: Any) -> list[Document]:
        """Retrieve documents; `config["configurable"]` holds the scope, where `options` has scope fields."""
        return super().invoke(input, config, configurable=ensure_config(config).get("configurable"), **kwargs)

    async def ainvoke(self, input: str, config: RunnableConfig | None = None, **kwargs: Any) -> list[Document]:
        """Do what `invoke` does."""
        return await super().ainvoke(input, config, configurable=ensure_config(config).get("configurable"), **kwargs)

    def _get_relevant_documents(
        self,
        query: str,
        *,
        run_manager: CallbackManagerForRetrieverRun,
        k: int | None = None,
        configurable: dict[str, Any] | None = None,
    ) -> list[Document]:
        config: RunnableConfig = {"callbacks": run_manager.get_child(), "configurable": configurable or {}}
        return _documents(self._graph(k).invoke({"query": query}, config))

    async def _aget_relevant_documents(
        self,
        query: str,
        *,
        run_manager: AsyncCallbackManagerForRetrieverRun,
        k: int | None = None,
        configurable: dict[str, Any] | None = None,
    ) -> list[Document]:
        graph = await run_in_executor(None, self._graph, k)  # the default recorder looks at its spool on disk
        config: RunnableConfig = {"callbacks": run_manager.get_child(), "configurable": configurable or {}}
        return _documents(await graph.ainvoke({"query": query}, config))


def _documents(result: LookupResult) -> list[Document]:
    kept = ("title", "source", "heading", "categories", "score", "similarity", "layers", "matched")
    call = {
        "status": result["status"],
        "retrieval_layer": result["retrieval_layer"],
        "relevance": result["relevance"]["level"],
        "invocation_id": result["invocation_id"],
    }
    return [
        Document(
            id=match["entry_id"],
            page_content=match["snippet"],
            metadata=copy.deepcopy({**{key: match[key] for key in kept}, **call}),  # type: ignore[literal-required]
        )
        for match in result["matches"]
    ]
