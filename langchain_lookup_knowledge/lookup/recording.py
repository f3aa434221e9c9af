"""The recorder of a tool or graph, safe recording of invocations, and the ids of the caller."""

import logging
import sys
import time
from inspect import iscoroutine
from typing import TYPE_CHECKING, Any, Literal
from weakref import WeakKeyDictionary

from typing_extensions import TypedDict

from langchain_lookup_knowledge.errors import RecordError, unexpected
from langchain_lookup_knowledge.knowledge_base import KnowledgeBase
from langchain_lookup_knowledge.records.recorder import SQLInvocationRecorder
from langchain_lookup_knowledge.types import (
    Invocation,
    InvocationRecorder,
    LookupOptions,
    Recorded,
)

if TYPE_CHECKING:
    from langchain_core.runnables import RunnableConfig

logger = logging.getLogger("langchain_lookup_knowledge")

UNRECORDED = "the call could not be recorded, and this knowledge base requires a record"
"""The reason for refusing a lookup whose required record could not be stored."""

_default_recorders: WeakKeyDictionary[KnowledgeBase, SQLInvocationRecorder] = WeakKeyDictionary()


def checked_kb(kb: object, name: str = "kb") -> None:
    """Raise ValueError unless the argument `name` is a knowledge base."""
    if not isinstance(kb, KnowledgeBase):
        raise ValueError(
            f"{name} takes a KnowledgeBase such as KnowledgeBase.open(folder), not {kb!r}"
        )


def checked_recorder(
    kb: KnowledgeBase,
    record: InvocationRecorder | Literal["default"] | None,
    options: LookupOptions,
) -> InvocationRecorder | None:
    """Return the recorder of a tool or graph; None records nothing.

    Raises:
        ValueError: an argument is of the wrong kind, or a record is required and there is none.
    """
    checked_kb(kb)
    if record == "default":
        return default_recorder(kb)
    if record is not None and not callable(getattr(record, "record", None)):
        raise ValueError(
            f"record takes an InvocationRecorder such as SQLInvocationRecorder(url), not {record!r}"
        )
    if record is None and options.record_mode == "required":
        raise ValueError(
            'record_mode="required" answers only what is recorded: leave record=None out'
        )
    return record


def default_recorder(kb: KnowledgeBase) -> SQLInvocationRecorder:
    """Return the default recorder, which writes to `invocations.db` in the data folder; there is
    one per knowledge base, closed with it.
    """
    recorder = _default_recorders.get(kb)
    if recorder is None:
        made = SQLInvocationRecorder.in_file(kb.data_folder / "invocations.db")
        recorder = _default_recorders.setdefault(kb, made)
        kb.on_close(recorder.close)
    return recorder


def keep(recorder: InvocationRecorder | None, invocation: Invocation) -> Recorded:
    """Record an invocation; log a failure, but pass on an interrupt by a host's recorder."""
    if recorder is None:
        return "off"
    try:
        kept: Any = recorder.record(invocation)
        if iscoroutine(kept):
            kept.close()
            raise RecordError("`record` must be a plain function, not a coroutine function")
    except RecordError as error:
        return _unrecorded(str(error))
    except Exception as error:
        if is_interrupt(error):
            raise
        logger.debug("the recorder failed", exc_info=True)
        return _unrecorded(unexpected(error))
    return "spooled" if kept == "spooled" else "stored"


def is_interrupt(error: Exception) -> bool:
    """Return whether an exception of a host's recorder interrupts the graph."""
    from langgraph.errors import GraphBubbleUp  # noqa: PLC0415

    return isinstance(error, GraphBubbleUp)


def _unrecorded(reason: str) -> Recorded:
    logger.error("the invocation was not recorded: %s", reason)
    return "failed"


class CallerIds(TypedDict):
    """The ids of a caller, as the record has them."""

    thread_id: str | None
    run_id: str | None
    tool_call_id: str | None


def caller(config: "RunnableConfig") -> CallerIds:
    """Return the ids of a caller for the record: thread, run and tool call."""
    thread_id = (config.get("configurable") or {}).get("thread_id")
    return {
        "thread_id": None if thread_id is None else str(thread_id),
        "run_id": _run_id(config),
        "tool_call_id": (config.get("metadata") or {}).get("tool_call_id"),
    }


def _run_id(config: "RunnableConfig") -> str | None:
    """Return the run id of the graph in the trace, or of this step if the graph has none."""
    runtime: Any = current_runtime()
    execution = getattr(runtime, "execution_info", None)
    run_id = execution.run_id if execution else None
    run_id = run_id or getattr(config.get("callbacks"), "parent_run_id", None)
    return None if run_id is None else str(run_id)


def current_runtime() -> object:
    """Return LangGraph's runtime of the running graph, or None outside a graph."""
    if "langgraph" not in sys.modules:  # no graph runs; the import would take a second
        return None
    from langgraph.runtime import get_runtime  # noqa: PLC0415

    try:
        return get_runtime()
    except RuntimeError:
        return None


def milliseconds(started: float) -> float:
    """Return the milliseconds since `started`, by `time.perf_counter`."""
    return round((time.perf_counter() - started) * 1000, 3)
