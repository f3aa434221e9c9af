"""The five steps of a lookup: made for a knowledge base, ordered, and run without LangGraph."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Literal

from langchain_lookup_knowledge.knowledge_base import KnowledgeBase
from langchain_lookup_knowledge.lookup.answer.relevance import model_for
from langchain_lookup_knowledge.lookup.caller_scope import with_scope_fields
from langchain_lookup_knowledge.lookup.cancelling import CANCELS, LookupRun
from langchain_lookup_knowledge.lookup.filters import hides_better
from langchain_lookup_knowledge.lookup.nodes import Nodes
from langchain_lookup_knowledge.lookup.recording import checked_recorder
from langchain_lookup_knowledge.lookup.signals.metrics import watch
from langchain_lookup_knowledge.lookup.state import LookupState, result_of
from langchain_lookup_knowledge.types import (
    TOOL_NAME,
    InvocationRecorder,
    LookupOptions,
    LookupResult,
)

if TYPE_CHECKING:
    from langchain_core.runnables import RunnableConfig


def steps_of(
    kb: KnowledgeBase,
    record: InvocationRecorder | Literal["default"] | None,
    options: LookupOptions | None,
    *,
    drop_weak: bool,
    name: str = TOOL_NAME,
    result_key: str | None = None,
    is_resumable: bool = False,
) -> Nodes:
    """Return the steps of a lookup. `is_resumable`: a checkpointer may run them again; for the
    other arguments, see `create_lookup_knowledge_graph`.

    Raises:
        ValueError: an argument cannot be used.
    """
    options = options or LookupOptions()
    recorder = checked_recorder(kb, record, options)
    if not isinstance(name, str) or not name.strip():
        raise ValueError(f"name takes a text, such as {TOOL_NAME!r}, not {name!r}")
    options = with_scope_fields(options, kb.scope_fields)
    if options.scope_fields and kb.index is not None and kb.index.read_only:
        raise ValueError(
            "a collection created elsewhere cannot be searched within a scope: "
            "leave scope_fields out, or build an index"
        )
    kb.note_scope_fields(options.scope_fields)
    watch(kb, recorder)
    return Nodes(
        kb,
        recorder,
        options,
        kb.l1.medium_similarity,
        model_for(kb.embedding, kb.data_folder, kb.add_problem),
        drop_weak,
        name,
        result_key,
        is_resumable,
    )


def after_choose_filter(state: LookupState) -> Literal["l1_retrieve", "merge_with_fallback"]:
    """Choose the next step: L1, or if it cannot be used, the merge."""
    return "l1_retrieve" if state["l1"]["status"] == "ok" else "merge_with_fallback"


def after_l1_retrieve(state: LookupState) -> Literal["l1_retrieve", "merge_with_fallback"]:
    """Choose the next step: relax the category filter, once, if it hides better candidates, else
    merge.
    """
    choice = state["filter"]
    kept = choice["category"] is None or choice["relaxed"]
    hides = not kept and hides_better(state["candidates"], state["unfiltered"], state["hints"])
    return "l1_retrieve" if hides else "merge_with_fallback"


def look_up(
    kb: KnowledgeBase,
    query: str,
    *,
    options: LookupOptions,
    filters: Mapping[str, Any] | None = None,
    scope: Mapping[str, str] | None = None,
) -> LookupResult:
    """Return what the tool would find for a query, and record it.

    The steps run one after another, as in the graph, but LangGraph is not imported: that takes
    longer than the whole lookup. There are no traces and no progress events.

    Args:
        kb: the knowledge base.
        query: the question or terms.
        options: how the lookup behaves.
        filters: as in the input of the graph.
        scope: the values of the scope fields.
    """
    steps = steps_of(kb, "default", options, drop_weak=True)
    state: Any = {"query": query, "filters": filters}
    run = LookupRun(state, {"configurable": dict(scope or {})}, steps.record_cancelled)
    try:
        for step, *needs in _in_order(steps, state, run.config):
            state.update(step(state, *needs))
            run.note(state, run.config, is_recorded="recorded" in state)
    except CANCELS as reason:
        if recording := run.cancelled(reason):
            recording.join()
        raise
    return result_of(state)


def _in_order(
    steps: Nodes, state: LookupState, config: "RunnableConfig"
) -> Iterator[tuple[Any, ...]]:
    """Yield each step of a lookup, and the config if it takes one; `state` is updated meanwhile."""
    yield steps.l0_hints, config
    yield (steps.choose_filter,)
    following = after_choose_filter(state)
    while following == "l1_retrieve":
        yield (steps.l1_retrieve,)
        following = after_l1_retrieve(state)
    yield (steps.merge_with_fallback,)
    yield steps.record_invocation, config
