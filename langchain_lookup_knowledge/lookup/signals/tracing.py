"""Progress events, one per node of the graph, and compact runs of a lookup in a trace.

Without a tracer or a reader, no event is written, and no text is prepared.
"""

import inspect
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from langchain_core.documents import Document
from langchain_core.runnables import Runnable, RunnableConfig
from langchain_core.runnables.config import get_callback_manager_for_config, run_in_executor
from langgraph.runtime import get_runtime
from langgraph.types import TracePolicy, omit_payload

from langchain_lookup_knowledge.errors import LookupKnowledgeError
from langchain_lookup_knowledge.knowledge_base import KnowledgeBase
from langchain_lookup_knowledge.l1.models import embeddings
from langchain_lookup_knowledge.lookup import cancelling
from langchain_lookup_knowledge.text.wording import shorten
from langchain_lookup_knowledge.types import L1_FAILED, STEPS, TOOL_NAME

DOCUMENTS = 3
"""Maximum number of documents in a retriever run."""
DOCUMENT_CHARS = 80
"""Maximum length of a document in a retriever run; the tool's output has the whole text."""

Update = Mapping[str, Any]
Finish = Callable[[Update | None], None]
"""Shows the update of a node in the trace; the update is None if the node was stopped."""
Show = Callable[["TracedNode", Update, RunnableConfig], Finish]

progress: ContextVar[Callable[[Any], None] | None] = ContextVar("progress", default=None)
"""The stream that events are written to: the agent's, if the tool set it, else the graph's own;
`unheard` if nobody reads either.
"""
_untraced: ContextVar[bool] = ContextVar("untraced", default=False)
"""Whether the running tool is known to have no callback handler."""


def unheard(event: object) -> None:
    """Write no event."""


@contextmanager
def traced_by(run_manager: Any) -> Iterator[None]:
    """Prepare no texts for traces if the run of the tool has no callback handler."""
    handlers = run_manager and (*run_manager.handlers, *run_manager.inheritable_handlers)
    token = _untraced.set(handlers == ())
    try:
        yield
    finally:
        _untraced.reset(token)


class TracedNode(Runnable[Any, Any]):
    """A node that also writes a progress event, and shows the findings of L0 and L1 in a trace.

    Args:
        name: the name of the node.
        step: the function of the node; it takes the state, and the config if it has a parameter
            of that name.
        kb: the knowledge base.
        astep: the asynchronous form of `step`; by default, `step` runs in a thread.
        tool_name: the name of the lookup in progress events.
        shown_by: the kind of run ("tool" or "retriever") that calls the graph and shows the
            matches; None if the run of the graph has to show them.
    """

    def __init__(
        self,
        name: str,
        step: Callable[..., Any],
        kb: KnowledgeBase,
        astep: Callable[[Any], Awaitable[Any]] | None = None,
        *,
        tool_name: str = TOOL_NAME,
        shown_by: str | None = None,
    ) -> None:
        self.name = name
        self.kb = kb
        self.shown_by = shown_by
        self._tool_name = tool_name
        self._step = step
        self._astep = astep
        self._takes_config = "config" in inspect.signature(step).parameters
        self._show = _SHOW.get(name)

    def invoke(self, input: Any, config: RunnableConfig | None = None, **_: Any) -> Any:
        """Run the node."""
        return self._run(input, config or {})

    def _run(self, input: Any, config: RunnableConfig) -> Any:
        update, finish = None, self._begin(input, config)
        try:
            update = self._step(input, config) if self._takes_config else self._step(input)
        finally:
            finish(update)
        return self._with_event(input, config, update)

    async def ainvoke(self, input: Any, config: RunnableConfig | None = None, **_: Any) -> Any:
        """Run the node without blocking the event loop."""
        config = config or {}
        if self._astep is None:
            return await run_in_executor(config, self._run, input, config)
        return await self._arun(self._astep, input, config)

    async def _arun(
        self, astep: Callable[[Any], Awaitable[Any]], input: Any, config: RunnableConfig
    ) -> Any:
        update, finish = None, self._begin(input, config)
        try:
            update = await astep(input)
        finally:
            finish(update)
        return self._with_event(input, config, update)

    def _begin(self, state: Update, config: RunnableConfig) -> Finish:
        cancelling.note(state, config)
        if self._show and getattr(config.get("callbacks"), "handlers", None):
            return self._show(self, state, config)
        return _nothing

    def _with_event(self, state: Update, config: RunnableConfig, update: Any) -> Any:
        """Write the progress event, if anybody may read it, note how far the run is, and return the
        update.
        """
        cancelling.note({**state, **update}, config, is_recorded=self.name == STEPS[-1])
        write = progress.get()
        if write is unheard:
            return update
        event = {
            "tool": self._tool_name,
            "step": self.name,
            "invocation_id": update.get("invocation_id") or state["invocation_id"],
            "tool_call_id": (config.get("metadata") or {}).get("tool_call_id"),
        }
        (write or get_runtime().stream_writer)(event)
        return update


def trace_policy() -> TracePolicy:
    """Return the trace policy of a node: its input (the whole state) is omitted, its update is
    shortened.
    """
    return TracePolicy(process_inputs=_omitted, process_outputs=_shortened)


def _omitted(state: Any) -> Any:
    return state if _untraced.get() else omit_payload(state)


def _shortened(update: Any) -> Any:
    return update if _untraced.get() else brief(update)


def brief(update: Any) -> Any:
    """Return a short form of an update; the result and the record have all of it."""
    return (
        {key: _BRIEF[key](value) for key, value in update.items() if key in _BRIEF}
        if update
        else {}
    )


_BRIEF: dict[str, Callable[[Any], Any]] = {
    "hints": lambda hints: {name: hints[name] for name in ("keywords", "domains")},
    "filter": lambda choice: {name: choice[name] for name in ("category", "relaxed")},
    "l1": lambda report: {name: report[name] for name in ("status", "candidates")},
    "relevance": lambda relevance: relevance["level"],
    "matches": len,
    "recorded": str,
}


class Choice(Runnable[Any, str]):
    """Chooses the next node without a run of its own, which would contain the whole state."""

    def __init__(self, choose: Callable[[Any], str]) -> None:
        self.name = choose.__name__
        self.choose = choose

    def invoke(self, input: Any, config: RunnableConfig | None = None, **_: Any) -> str:
        """Return the name of the next node."""
        return self.choose(input)

    async def ainvoke(self, input: Any, config: RunnableConfig | None = None, **_: Any) -> str:
        """Return the name of the next node."""
        return self.choose(input)


def _nothing(_: Update | None) -> None: ...


def _show_l0(node: TracedNode, state: Update, config: RunnableConfig) -> Finish:
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
        _end(run, documents if update else "the node was stopped")

    return finish


def _show_l1(node: TracedNode, state: Update, config: RunnableConfig) -> Finish:
    if state["unfiltered"]:  # the filter is relaxed: nothing is searched
        return _nothing
    metadata = {
        "ls_retriever_name": "l1",
        "ls_vector_store_provider": "Qdrant",
        "ls_embedding_provider": type(node.kb.embedding).__name__,
        "ls_embedding_model": embeddings.identity(node.kb.embedding),
        "lookup_filter": state["filter"]["category"],
    }
    run = _start("L1", state["query"], config, metadata)

    def finish(update: Update | None) -> None:
        if update is None:
            _end(run, "the node was stopped")
        elif update["l1"]["status"] in L1_FAILED:
            _end(run, update["l1"]["reason"])
        else:
            _end(run, [_document(candidate) for candidate in update["candidates"][:DOCUMENTS]])

    return finish


def _document(candidate: Mapping[str, Any]) -> Document:
    metadata = {key: candidate[key] for key in ("source", "score", "similarity")}
    return Document(shorten(candidate["passages"][0]["text"], DOCUMENT_CHARS), metadata=metadata)


_STREAMS = "tap_output_aiter"
"""An attribute that only `astream_events` handlers have. Their readers would mistake the shortened
documents of a layer for results.
"""


def _start(name: str, query: str, config: RunnableConfig, metadata: dict[str, Any]) -> Any:
    manager = get_callback_manager_for_config(config)
    for handler in [*manager.handlers, *manager.inheritable_handlers]:
        if hasattr(handler, _STREAMS):
            manager.remove_handler(handler)
    manager.add_metadata(metadata)
    manager.add_tags([f"layer:{name}"])
    return manager.on_retriever_start(None, query, name=name)


def _end(run: Any, outcome: list[Document] | str) -> None:
    """End a retriever run with documents, or with a failure reason instead of the original
    exception, which could contain a secret.
    """
    if isinstance(outcome, str):
        run.on_retriever_error(LookupKnowledgeError(outcome))
    else:
        run.on_retriever_end(outcome)


def _label_runs(node: TracedNode, state: Update, config: RunnableConfig) -> Finish:
    """Add the outcome to the runs of the graph and its caller, as metadata and tags."""

    def finish(update: Update | None) -> None:
        outcome = {**state, **(update or {})}
        for graph_run, caller in _runs_above(config) if update else ():
            _label(graph_run, outcome)
            if caller and caller.run_type in ("tool", "retriever"):
                _label(caller, outcome)
            if caller and caller.run_type == node.shown_by:
                primary = outcome["primary"]
                graph_run.set(
                    outputs={
                        "status": outcome["status"],
                        "primary": primary and primary["entry_id"],
                    }
                )

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
            "lookup_relevance": outcome["relevance"]["level"],
        }
    )
    filtered = "relaxed" if choice["relaxed"] else choice["reason"]
    tags = (
        f"layer:{outcome['retrieval_layer']}",
        f"status:{outcome['status']}",
        f"filter:{filtered}",
    )
    run.tags = [*(run.tags or []), *tags]


_SHOW: dict[str, Show] = {
    "l0_hints": _show_l0,
    "l1_retrieve": _show_l1,
    "record_invocation": _label_runs,
}


def _runs_above(config: RunnableConfig) -> Iterator[tuple[Any, Any]]:
    """Yield the graph's run and its caller's (None if untraced) for each LangSmith tracer."""
    from langchain_core.tracers.langchain import LangChainTracer  # noqa: PLC0415

    callbacks: Any = config["callbacks"]
    for handler in callbacks.handlers:
        if isinstance(handler, LangChainTracer):
            step = handler.run_map.get(str(callbacks.parent_run_id))
            graph_run = step and handler.run_map.get(str(step.parent_run_id))
            if graph_run:
                yield graph_run, handler.run_map.get(str(graph_run.parent_run_id))


def show_text(text: str, tool_name: str) -> None:
    """Keep only the text in the trace of the tool of this name; the artifact would repeat it."""
    from langsmith import get_current_run_tree  # noqa: PLC0415

    run = get_current_run_tree()
    if run is not None and (run.run_type, run.name) == ("tool", tool_name):
        run.set(outputs={"output": text})
