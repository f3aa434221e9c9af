"""The lookup as a LangGraph graph: five steps, from the query to a recorded result."""

from typing import Any, Literal

from langgraph.graph import END, START, StateGraph
from langgraph.graph.state import CompiledStateGraph
from typing_extensions import TypedDict

from langchain_lookup_knowledge.knowledge_base import KnowledgeBase
from langchain_lookup_knowledge.lookup.nesting import (
    LookupGraph,
    schemas,
)
from langchain_lookup_knowledge.lookup.signals import tracing
from langchain_lookup_knowledge.lookup.state import LookupInput, LookupState
from langchain_lookup_knowledge.lookup.steps import after_choose_filter, after_l1_retrieve, steps_of
from langchain_lookup_knowledge.types import (
    STEPS,
    TOOL_NAME,
    InvocationRecorder,
    LookupOptions,
    LookupResult,
)


def create_lookup_knowledge_graph(
    kb: KnowledgeBase,
    *,
    record: InvocationRecorder | Literal["default"] | None = "default",
    options: LookupOptions | None = None,
    checkpointer: bool | None = None,
    drop_weak: bool = False,
    name: str = TOOL_NAME,
    result_key: str | None = None,
) -> CompiledStateGraph[LookupState, None, LookupInput, LookupResult]:
    """Return the compiled lookup graph: `graph.invoke({"query": ...})` gives a `LookupResult`.

    As a node of another graph it reads `query` from the state and does not write it.

    Args:
        kb: the knowledge base.
        record: where lookups are recorded; by default, in `invocations.db` in the data folder of
            the knowledge base; None records nothing.
        options: how a lookup behaves.
        checkpointer: None inherits the checkpointer of a parent graph, False uses no checkpointer.
        drop_weak: leave out matches that score far below the best; at low relevance, keep at most
            two. The tool does the same.
        name: the name of the graph in traces and progress events, and `tool_name` in the record.
        result_key: the key of the output that holds the whole result, such as "billing", so that a
            parent graph can keep several results; by default, the keys of the result are the keys
            of the output.
    """
    return build_graph(
        kb,
        record,
        options,
        checkpointer=checkpointer,
        drop_weak=drop_weak,
        name=name,
        result_key=result_key,
    )


def build_graph(
    kb: KnowledgeBase,
    record: InvocationRecorder | Literal["default"] | None,
    options: LookupOptions | None,
    *,
    checkpointer: bool | None = False,
    drop_weak: bool = False,
    name: str = TOOL_NAME,
    result_key: str | None = None,
    shown_by: Literal["tool", "retriever"] | None = None,
) -> CompiledStateGraph[LookupState, None, LookupInput, LookupResult]:
    """Return the graph for a tool or a retriever. `shown_by` is the kind of run that shows the
    matches in a trace. For the other arguments, see `create_lookup_knowledge_graph`.
    """
    steps = steps_of(
        kb,
        record,
        options,
        drop_weak=drop_weak,
        name=name,
        result_key=result_key,
        is_resumable=checkpointer is not False,
    )
    state, output = schemas(LookupState, result_key)
    graph = StateGraph(
        state,
        context_schema=_context_schema(steps.options),
        input_schema=LookupInput,
        output_schema=output,
    )
    for step_name in STEPS:
        step = getattr(steps, step_name)
        astep = steps.al1_retrieve if step_name == "l1_retrieve" else None
        node = tracing.TracedNode(
            step_name,
            step,
            kb,
            astep,
            tool_name=name,
            shown_by=shown_by,
        )
        graph.add_node(step_name, node, trace_policy=tracing.trace_policy())
    graph.add_edge(START, "l0_hints")
    graph.add_edge("l0_hints", "choose_filter")
    next_steps = ["l1_retrieve", "merge_with_fallback"]
    graph.add_conditional_edges("choose_filter", tracing.Choice(after_choose_filter), next_steps)
    graph.add_conditional_edges("l1_retrieve", tracing.Choice(after_l1_retrieve), next_steps)
    graph.add_edge("merge_with_fallback", "record_invocation")
    graph.add_edge("record_invocation", END)
    compiled = graph.compile(name=name, checkpointer=checkpointer)
    return LookupGraph(record_cancelled=steps.record_cancelled, **vars(compiled))


def _context_schema(options: LookupOptions) -> Any:
    """Return a schema of the runtime context with the scope fields; None if there are no scope
    fields, or if a function of the host returns their values.
    """
    if not options.scope_fields or options.scope is not None:
        return None
    return TypedDict("LookupScope", dict.fromkeys(options.scope_fields, str), total=False)  # type: ignore[operator]
