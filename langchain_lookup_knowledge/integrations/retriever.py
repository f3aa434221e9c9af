"""The lookup as a LangChain retriever."""

import copy
import uuid
from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property
from typing import Any, SupportsIndex

from langchain_core.callbacks import (
    AsyncCallbackManagerForRetrieverRun,
    CallbackManagerForRetrieverRun,
)
from langchain_core.documents import Document
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.config import ensure_config, run_in_executor
from pydantic import ConfigDict, Field, PrivateAttr, field_validator

from langchain_lookup_knowledge.errors import RecordError, ScopeError
from langchain_lookup_knowledge.knowledge_base import KnowledgeBase
from langchain_lookup_knowledge.lookup.answer.snippets import from_first
from langchain_lookup_knowledge.lookup.graph import build_graph
from langchain_lookup_knowledge.lookup.recording import checked_kb, default_recorder
from langchain_lookup_knowledge.types import LookupOptions, LookupResult, Match

DOCUMENT_CHARS = 1100
"""Characters per document; `options.max_chars` is raised to `k` times this if it is smaller."""
DETAILS = ("score", "similarity", "layers", "matched")
"""Keys of a match that differ from call to call."""
_PASSAGES = uuid.UUID("8d2f6c1e-3b60-5a44-b1a5-6a0f0c9d7e13")


class LookupKnowledgeRetriever(BaseRetriever):
    """Retrieves the matches of a lookup as documents; each lookup is recorded.

    A document's `page_content` is the text of the match's passages, in the order of the file. The
    heading of the first passage is only in the metadata. The metadata has `title`, `source`,
    `categories`, the first `heading`, `lines` (the first and last line shown), and the frontmatter
    values named in `FrontmatterFields.shown`. `lines` are those of the source itself; they are None
    if only embedded text is shown. `embedded` lists the `source` and `lines` of each embedded
    passage. The `id` of a document is made from the source and the lines. The same passages
    therefore give equal documents for every query, and LangChain removes duplicates.

    Values that differ from call to call are in the record, in the run's metadata, and in the
    documents of `with_details()`.

    Raises:
        ScopeError: the caller's scope is not known; raised by `invoke`, like RecordError.
        RecordError: the lookup could not be recorded, and the options require a record.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True, extra="forbid")

    knowledge_base: KnowledgeBase
    k: int | None = Field(default=None, ge=1, le=100)
    """Maximum number of documents; overrides `options`, and `invoke(query, k=...)` overrides both.
    """
    options: LookupOptions = LookupOptions()
    """Options of each lookup."""
    filters: dict[str, Any] | None = None
    """A caller's filters, such as `{"category": ["billing"]}`: see the input of the graph.
    `invoke(query, filters=...)` replaces them.
    """
    record: Any = "default"
    """An `InvocationRecorder`, by default the knowledge base's own; None records nothing."""
    details: bool = False
    """Whether the metadata also has values that differ from call to call; see `with_details`."""

    @field_validator("knowledge_base", mode="before")
    @classmethod
    def _is_one(cls, value: Any) -> Any:
        checked_kb(value, "knowledge_base")
        return value

    _graphs: dict[LookupOptions, Any] = PrivateAttr(default_factory=dict)

    def with_details(self) -> "LookupKnowledgeRetriever":
        """Return a copy whose documents also have, in their metadata, the match's `score`,
        `similarity`, `layers` and `matched`, and the lookup's `status`, `retrieval_layer`,
        `relevance` (the level) and `invocation_id`.
        """
        return self.model_copy(update={"details": True})

    def __repr_args__(self) -> Iterator[tuple[str, Any]]:
        """Yield the base, and the arguments that differ from the default."""
        for name, field in type(self).model_fields.items():
            value = getattr(self, name)
            if field.is_required() or value != field.get_default(call_default_factory=True):
                yield name, value

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> "LookupKnowledgeRetriever":
        """Return a copy that shares the knowledge base."""
        return self.model_copy()

    def __reduce_ex__(self, protocol: SupportsIndex) -> Any:
        """Raise TypeError: a retriever with an open knowledge base cannot be pickled."""
        raise TypeError(
            "a LookupKnowledgeRetriever cannot be pickled, because its knowledge base is open: "
            "open the folder and create the retriever in the other process"
        )

    @cached_property
    def _recorder(self) -> Any:
        """The recorder that all graphs share."""
        return default_recorder(self.knowledge_base) if self.record == "default" else self.record

    def _graph(self, k: int | None) -> Any:
        k = next(value for value in (k, self.k, self.options.k) if value is not None)
        room = max(self.options.max_chars, k * DOCUMENT_CHARS)
        options = replace(self.options, k=k, max_chars=room)
        if options not in self._graphs:
            self._graphs[options] = build_graph(
                self.knowledge_base, self._recorder, options, shown_by="retriever"
            )
        return self._graphs[options]

    def invoke(
        self, input: str, config: RunnableConfig | None = None, **kwargs: Any
    ) -> list[Document]:
        """Retrieve documents; `config["configurable"]` must hold the values of any scope fields."""
        return super().invoke(
            input, config, configurable=ensure_config(config).get("configurable"), **kwargs
        )

    async def ainvoke(
        self, input: str, config: RunnableConfig | None = None, **kwargs: Any
    ) -> list[Document]:
        """Retrieve documents; see `invoke`."""
        return await super().ainvoke(
            input, config, configurable=ensure_config(config).get("configurable"), **kwargs
        )

    def _get_relevant_documents(
        self,
        query: str,
        *,
        run_manager: CallbackManagerForRetrieverRun,
        k: int | None = None,
        filters: dict[str, Any] | None = None,
        configurable: dict[str, Any] | None = None,
    ) -> list[Document]:
        config: RunnableConfig = {
            "callbacks": run_manager.get_child(),
            "configurable": configurable or {},
        }
        return self._documents(self._graph(k).invoke(self._asked(query, filters), config))

    async def _aget_relevant_documents(
        self,
        query: str,
        *,
        run_manager: AsyncCallbackManagerForRetrieverRun,
        k: int | None = None,
        filters: dict[str, Any] | None = None,
        configurable: dict[str, Any] | None = None,
    ) -> list[Document]:
        # in a thread, because the default recorder reads its spool on disk
        graph = await run_in_executor(None, self._graph, k)
        config: RunnableConfig = {
            "callbacks": run_manager.get_child(),
            "configurable": configurable or {},
        }
        return self._documents(await graph.ainvoke(self._asked(query, filters), config))

    def _asked(self, query: str, filters: dict[str, Any] | None) -> dict[str, Any]:
        return {"query": query, "filters": self.filters if filters is None else filters}

    def _documents(self, result: LookupResult) -> list[Document]:
        if result["status"] == "refused":  # an empty list would read as "nothing is known"
            reason = result["relevance"]["reason"]
            raise ScopeError(reason) if result["l1"]["status"] == "skipped" else RecordError(reason)
        documents = [_document(match) for match in result["matches"]]
        if self.details:
            lookup = {
                "status": result["status"],
                "retrieval_layer": result["retrieval_layer"],
                "relevance": result["relevance"]["level"],
                "invocation_id": result["invocation_id"],
            }
            for match, document in zip(result["matches"], documents, strict=True):
                own = {key: dict(match)[key] for key in DETAILS}
                document.metadata |= copy.deepcopy(own) | lookup
        return documents


def _document(match: Match) -> Document:
    """Return a match as a document; only the choice of passages depends on the query."""
    shown = sorted(match["passages"], key=lambda passage: passage["span"])
    known = [one["lines"] for one in shown if one["lines"] and "path" not in one]
    lines = [min(first for first, _ in known), max(last for _, last in known)] if known else None
    embedded = [{"source": p["path"], "lines": p["lines"]} for p in shown if "path" in p]
    places = [
        match["entry_id"],
        *(f"{p.get('path', '')}{p['heading']} {p['lines']}" for p in shown),
    ]
    return Document(
        id=str(uuid.uuid5(_PASSAGES, "\n".join(places))),
        page_content=from_first(match),
        metadata={
            **copy.deepcopy(match["metadata"]),
            "title": match["title"],
            "source": match["source"],
            "heading": shown[0]["heading"] if shown else "",
            "lines": lines,
            "categories": list(match["categories"]),
            **({"embedded": copy.deepcopy(embedded)} if embedded else {}),
        },
    )
