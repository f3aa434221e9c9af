"""What a lookup shows while it runs: one progress event a step, and its runs in a trace, kept small.

Costs nothing but the event when nobody traces.
"""

import inspect
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextvars import ContextVar
from typing import Any

from langchain_core.documents import Document
from langchain_core.runnables import Runnable, RunnableConfig
from langchain_core.runnables.config import get_callback_manager_for_config, run_in_executor
from langgraph.runtime import get_runtime
from langgraph.types import TracePolicy, omit_payload

from langchain_lookup_knowledge import embeddings
from langchain_lookup_knowledge.errors import LookupKnowledgeError
from langchain_lookup_knowledge.knowledge_base import KnowledgeBase
from langchain_lookup_knowledge.merging import shorten
from langchain_lookup_knowledge.types import L1_FAILED

TOOL_NAME = "lookup_knowledge"
DOCUMENTS = 3
"""Most documents of a retriever run."""
DOCUMENT_CHARS = 80
"""Most characters of a document in a retriever run, which shows what was found; the text itself is the tool's output."""

Update = Mapping[str, Any]
Finish = Callable[[Update | None], None]
"""Shows what a step found; None says that it was stopped."""
Show = Callable[[KnowledgeBase, Update, RunnableConfig], Finish]

progress: ContextVar[Callable[[Any], None] | None] = ContextVar("progress", default=None)
"""Where the tool has events sent, so that the agent's own stream shows them; unset, they go to the graph's stream."""


class Step(Runnable[Any, Any]):
    """A step as a node: it also writes a progress event, and shows in a trace what L0 and L1 found.

    Args:
        name: the name of the node.
        step: the step; it takes the state, and the config if it has a parameter of that name.
        kb: the knowledge base.
        astep: what an awaited graph awaits in its place; left out, the step runs in a thread.
    """

    def __init__(
        self,
        name: str,
        step: Callable[..., Any],
        kb: KnowledgeBase,
        astep: Callable[[Any], Awaitable[Any]] | None = None,
    ) -> None:
        self.name = name
        self._step = step
        self._astep = astep
        self._kb = kb
        self._takes_config = "config" in inspect.signature(step).parameters
        self._show = _SHOW.get(name)

    def invoke(self, input: Any, config: RunnableConfig | None = None, **_: Any) -> Any:
        """Run the step."""
        config, update = config or {}, None
        finish = self._begin(input, config)
        try:
            update = self._step(input, config) if self._takes_config else self._step(input)
        finally:
            finish(update)
        return self._told(input, config, update)

    async def ainvoke(self, input: Any, config: RunnableConfig | None = None, **_: Any) -> Any:
        """Run the step without holding up the event loop."""
        config, update = config or {}, None
        if self._astep is None:
            return await run_in_executor(config, self.invoke, input, config)
        finish = self._begin(input, config)
        try:
            update = await self._astep(input)
        finally:
            finish(update)
        return self._told(input, config, update)

    def _begin(self, state: Update, config: RunnableConfig) -> Finish:
        if self._show and getattr(config.get("callbacks"), "handlers", None):
            return self._show(self._kb, state, config)
        return _nothing

    def _told(self, state: Update, config: RunnableConfig, update: Any) -> Any:
        """Write the progress event."""
        event = {
            "tool": TOOL_NAME,
            "step": self.name,
            "invocation_id": update.get("invocation_id") or state["invocation_id"],
            "tool_call_id": (config.get("metadata") or {}).get("tool_call_id"),
        }
        (progress.get() or get_runtime().stream_writer)(event)
        return update


def trace_policy() -> TracePolicy:
    """Return how a step is traced: not its input, which is the whole state, and its update in brief."""
    return TracePolicy(process_inputs=omit_payload, process_outputs=brief)


def brief(update: Any) -> Any:
    """Return what a step found, in few words: the whole is in the result and in the record."""
    return {key: _BRIEF[key](value) for key, value in update.items() if key in _BRIEF} if update else {}


_BRIEF: dict[str, Callable[[Any], Any]] = {
    "hints": lambda hints: {name: hints[name] for name in ("keywords", "domains")},
    "filter": lambda choice: {name: choice[name] for name in ("category", "relaxed")},
    "l1": lambda report: {name: report[name] for name in ("status", "candidates")},
    "relevance": lambda relevance: relevance["level"],
    "matches": len,
    "recorded": str,
}


class Choice(Runnable[Any, str]):
    """Chooses the next step; it makes no run of its own, which would hold the whole state."""

    def __init__(self, choose: Callable[[Any], str]) -> None:
        self.name = choose.__name__
        self.choose = choose

    def invoke(self, input: Any, config: RunnableConfig | None = None, **_: Any) -> str:
        """Return the name of the next step."""
        return self.choose(input)

    async def ainvoke(self, input: Any, config: RunnableConfig | None = None, **_: Any) -> str:
        """Return the name of the next step."""
        return self.choose(input)


def _nothing(_: Update | None) -> None: ...


def _show_l0(kb: KnowledgeBase, state: Update, config: RunnableConfig) -> Finish:
    query = state.get("query")
    run = _start("L0", query if isinstance(query, str) else "", config, {"ls_retriever_name": "l0"})

    def finish(update: Update | None) -> None:
        documents = [
            Document(
                ", ".join((*entry["keywords"], *entry["entities"])) or entry["title"],
                metadata={"source": entry["entry_id"], "score": entry["score"]},
            )
            for entry in (update["hints"]["entries"][:DOCUMENTS] if update else ())
        ]
        _end(run, documents if update else "the step was stopped")

    return finish


def _show_l1(kb: KnowledgeBase, state: Update, config: RunnableConfig) -> Finish:
    if state["unfiltered"]:  # the filter is taken back; nothing is searched
        return _nothing
    metadata = {
        "ls_retriever_name": "l1",
        "ls_vector_store_provider": "Qdrant",
        "ls_embedding_provider": type(kb.embedding).__name__,
        "ls_embedding_model": embeddings.identity(kb.embedding),
        "lookup_filter": state["filter"]["category"],
    }
    run = _start("L1", state["query"], config, metadata)

    def finish(update: Update | None) -> None:
        if update is None:
            _end(run, "the step was stopped")
        elif update["l1"]["status"] in L1_FAILED:
            _end(run, update["l1"]["reason"])
        else:
            _end(run, [_document(candidate) for candidate in update["candidates"][:DOCUMENTS]])

    return finish


def _document(candidate: Mapping[str, Any]) -> Document:
    metadata = {key: candidate[key] for key in ("source", "score", "similarity")}
    return Document(shorten(candidate["text"], DOCUMENT_CHARS), metadata=metadata)


def _start(name: str, query: str, config: RunnableConfig, metadata: dict[str, Any]) -> Any:
    manager = get_callback_manager_for_config(config)
    manager.add_metadata(metadata)
    manager.add_tags([f"layer:{name}"])
    return manager.on_retriever_start(None, query, name=name)


def _end(run: Any, outcome: list[Document] | str) -> None:
    """End a retriever run with the documents, or with what went wrong; an exception's own text could hold a secret."""
    if isinstance(outcome, str):
        run.on_retriever_error(LookupKnowledgeError(outcome))
    else:
        run.on_retriever_end(outcome)


_SHOWS_TEXT = {("tool", TOOL_NAME), ("retriever", "LookupKnowledgeRetriever")}
"""Callers of the graph whose own run shows what was found, so that the graph's need not."""


def _label_runs(kb: KnowledgeBase, state: Update, config: RunnableConfig) -> Finish:
    """Give the runs of the graph, and of the tool or retriever around it, the outcome as metadata and tags."""

    def finish(update: Update | None) -> None:
        outcome = {**state, **(update or {})}
        for graph_run, caller in _runs_above(config) if update else ():
            _label(graph_run, outcome)
            if caller and caller.run_type in ("tool", "retriever"):
                _label(caller, outcome)
            if caller and (caller.run_type, caller.name) in _SHOWS_TEXT:
                primary = outcome["primary"]
                graph_run.set(outputs={"status": outcome["status"], "primary": primary and primary["entry_id"]})

    return finish


def _label(run: Any, outcome: Update) -> None:
    choice = outcome["filter"]
    run.add_metadata(
        {
            "invocation_id": outcome["invocation_id"],
            "lookup_status": outcome["status"],
            "lookup_layer": outcome["retrieval_layer"],
            "lookup_l1_status": outcome["l1"]["status"],
            "lookup_filter": choice["category"],
            "lookup_filter_relaxed": choice["relaxed"],
        }
    )
    filtered = "relaxed" if choice["relaxed"] else choice["reason"]
    tags = (f"layer:{outcome['retrieval_layer']}", f"status:{outcome['status']}", f"filter:{filtered}")
    run.tags = [*(run.tags or []), *tags]


_SHOW: dict[str, Show] = {"l0_hints": _show_l0, "l1_retrieve": _show_l1, "record_invocation": _label_runs}


def _runs_above(config: RunnableConfig) -> Iterator[tuple[Any, Any]]:
    """Yield, for each LangSmith tracer, the run of the graph and that of its caller, if that is traced."""
    from langchain_core.tracers.langchain import LangChainTracer  # noqa: PLC0415

    callbacks: Any = config["callbacks"]
    for handler in callbacks.handlers:
        if isinstance(handler, LangChainTracer):
            step = handler.run_map.get(str(callbacks.parent_run_id))
            graph_run = step and handler.run_map.get(str(step.parent_run_id))
            if graph_run:
                yield graph_run, handler.run_map.get(str(graph_run.parent_run_id))


def show_text(text: str) -> None:
    """Have the trace of the tool hold the text for the model alone: the artifact would double it, and is in the record."""
    from langsmith import get_current_run_tree  # noqa: PLC0415

    run = get_current_run_tree()
    if run is not None and (run.run_type, run.name) in _SHOWS_TEXT:
        run.set(outputs={"output": text})
