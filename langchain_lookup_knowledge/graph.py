"""The lookup as a LangGraph graph: five steps, from the query to a recorded result."""

import logging
import os
import threading
import time
import uuid
from collections.abc import Callable
from concurrent.futures import Future, wait
from dataclasses import dataclass, field
from datetime import UTC, datetime
from queue import SimpleQueue
from typing import Any, Literal, TypeVar

from langchain_core.runnables import RunnableConfig
from langgraph.errors import GraphBubbleUp
from langgraph.graph import END, START, StateGraph
from langgraph.graph.state import CompiledStateGraph
from langgraph.runtime import get_runtime
from typing_extensions import TypedDict

from langchain_lookup_knowledge import merging, tracing
from langchain_lookup_knowledge.errors import (
    IndexMissing,
    LookupKnowledgeError,
    RecordError,
    StoreError,
    StoreTimeout,
    StoreUnreachable,
)
from langchain_lookup_knowledge.filters import choose_filter, hides_better
from langchain_lookup_knowledge.knowledge_base import KnowledgeBase, Retrieved
from langchain_lookup_knowledge.records import InvocationRecorder, SQLInvocationRecorder, storable
from langchain_lookup_knowledge.tokens import cut
from langchain_lookup_knowledge.tracing import TOOL_NAME
from langchain_lookup_knowledge.types import (
    Candidate,
    FilterChoice,
    Hints,
    Invocation,
    L1Report,
    L1Status,
    LookupOptions,
    LookupResult,
    Match,
    Recorded,
    Relevance,
    RetrievalLayer,
    Status,
)

logger = logging.getLogger("langchain_lookup_knowledge")

MAX_QUERY_CHARS = 20_000
MAX_WORKERS = 32
"""Calls of L1 under way at once in a process, those that hang included."""
SPARE_CANDIDATES = 10
"""Candidates kept in the state beyond the `k` that can become matches, for the guard and the hints to choose from."""
WITHOUT_L1: frozenset[L1Status] = frozenset(("failed", "timeout", "unavailable", "disabled"))
"""States of L1 in which it had no say, so that L0 answers as well as it can alone."""

T = TypeVar("T")


class LookupInput(TypedDict):
    """What the graph takes."""

    query: str


class LookupState(TypedDict, total=False):
    """What the steps pass on; plain JSON types, so that any checkpointer takes it."""

    query: str
    invocation_id: str
    started_at: float
    status: Status
    retrieval_layer: RetrievalLayer
    primary: Match | None
    matches: list[Match]
    relevance: Relevance
    hints: Hints
    filter: FilterChoice
    l1: L1Report
    candidates: list[Candidate]
    unfiltered: list[Candidate]
    recorded: Recorded


def create_lookup_knowledge_graph(
    kb: KnowledgeBase,
    *,
    record: InvocationRecorder | Literal["default"] | None = "default",
    options: LookupOptions | None = None,
    checkpointer: bool | None = None,
) -> CompiledStateGraph[LookupState, None, LookupInput, LookupResult]:
    """Return the compiled lookup graph: `graph.invoke({"query": ...})` gives a `LookupResult`.

    Args:
        kb: the knowledge base.
        record: where calls are recorded; left out, `invocations.db` in the knowledge base's data folder; None, nowhere.
        options: how a lookup behaves.
        checkpointer: None inherits the checkpointer of a parent graph, False keeps none.
    """
    if record == "default":
        record = _default_recorder(kb)
    if record is not None and not callable(getattr(record, "record", None)):
        raise ValueError(f"record takes an InvocationRecorder such as SQLInvocationRecorder(url), not {record!r}")
    steps = _Steps(kb, record, options or LookupOptions())
    graph = StateGraph(LookupState, input_schema=LookupInput, output_schema=LookupResult)
    for step in (
        steps.l0_hints,
        steps.choose_filter,
        steps.l1_retrieve,
        steps.merge_with_fallback,
        steps.record_invocation,
    ):
        name = step.__name__
        graph.add_node(name, tracing.Step(name, step, kb), trace_policy=tracing.trace_policy())
    graph.add_edge(START, "l0_hints")
    graph.add_edge("l0_hints", "choose_filter")
    next_steps = ["l1_retrieve", "merge_with_fallback"]
    graph.add_conditional_edges("choose_filter", tracing.Choice(_after_choose_filter), next_steps)
    graph.add_conditional_edges("l1_retrieve", tracing.Choice(_after_l1_retrieve), next_steps)
    graph.add_edge("merge_with_fallback", "record_invocation")
    graph.add_edge("record_invocation", END)
    return graph.compile(name=TOOL_NAME, checkpointer=checkpointer)


def _default_recorder(kb: KnowledgeBase) -> SQLInvocationRecorder:
    """Return a recorder into `invocations.db` in the data folder, closed with the knowledge base."""
    recorder = SQLInvocationRecorder.in_file(kb.data_folder / "invocations.db")
    kb.on_close(recorder.close)
    return recorder


def _after_choose_filter(state: LookupState) -> Literal["l1_retrieve", "merge_with_fallback"]:
    """L1 unavailable: go on without it."""
    return "l1_retrieve" if state["l1"]["status"] == "ok" else "merge_with_fallback"


def _after_l1_retrieve(state: LookupState) -> Literal["l1_retrieve", "merge_with_fallback"]:
    """L1 empty, or clearly worse, under an L0-derived filter: relax the filter, once."""
    choice = state["filter"]
    if choice["category"] is None or choice["relaxed"]:
        return "merge_with_fallback"
    return (
        "l1_retrieve"
        if hides_better(state["candidates"], state["unfiltered"], state["hints"])
        else "merge_with_fallback"
    )


def no_hints() -> Hints:
    """Return hints in which nothing was found."""
    return {"titles": [], "keywords": [], "domains": [], "entities": [], "entries": [], "terms": []}


@dataclass(frozen=True, slots=True)
class _Steps:
    kb: KnowledgeBase
    recorder: InvocationRecorder | None
    options: LookupOptions
    logged: set[str] = field(default_factory=set)
    """Failures of L1 that were logged: each is, once."""

    def l0_hints(self, state: LookupState) -> LookupState:
        query = state.get("query")
        update: LookupState = {
            "query": storable(query) if isinstance(query, str) else "",
            "invocation_id": str(uuid.uuid4()),
            "started_at": time.time(),
            "candidates": [],
            "unfiltered": [],
            "l1": _l1_report("ok"),
        }
        problem = _query_problem(query)
        if problem:
            update["hints"] = no_hints()
            update["l1"] = _l1_report("skipped", problem)
        else:
            update["hints"] = self.kb.hints(update["query"])
        return update

    def choose_filter(self, state: LookupState) -> LookupState:
        update: LookupState = {"filter": choose_filter(state["hints"], self.options.filter_mode)}
        if state["l1"]["status"] == "ok":
            status, reason = self._l1_availability()
            if status != "ok":
                update["l1"] = _l1_report(status, reason)
        return update

    def _l1_availability(self) -> tuple[L1Status, str | None]:
        if self.kb.index is None:
            return "disabled", "this knowledge base has no vector index (index=None)"
        if not self.options.l1_enabled:
            return "disabled", "switched off by LookupOptions(l1_enabled=False)"
        return "ok", None

    def l1_retrieve(self, state: LookupState) -> LookupState:
        choice = state["filter"]
        if state["unfiltered"]:  # the second pass: the probe of the first one takes the place of the filtered answer
            candidates = state["unfiltered"]
            report = _l1_report("ok", self._caveat(state["query"]), len(candidates))
            report["elapsed_ms"] = state["l1"]["elapsed_ms"]
            relaxed: FilterChoice = {"category": choice["category"], "reason": choice["reason"], "relaxed": True}
            return {"candidates": candidates, "filter": relaxed, "l1": report}
        categories = [choice["category"]]
        if choice["category"] is not None and self.options.filter_mode == "guarded":
            categories.append(None)
        started = time.perf_counter()
        try:
            query = state["query"]
            found = call_with_deadline(lambda: self._retrieve(query, categories), self.options.l1_timeout)
        except LookupKnowledgeError as error:
            return {"l1": self._failure(_failure_status(error), str(error), started)}
        except Exception as error:  # noqa: BLE001  (whatever it is, L0 still answers; its text may hold a secret)
            return {"l1": self._failure("failed", f"unexpected {type(error).__name__}", started)}
        update: LookupState = {"candidates": found[0].candidates, "l1": self._report(query, found[0], started)}
        if len(found) > 1:
            update["unfiltered"] = found[1].candidates
        return update

    def _retrieve(self, query: str, categories: list[str | None]) -> list[Retrieved]:
        limit = self.options.k + SPARE_CANDIDATES
        return self.kb.retrieve(query, categories, limit=limit, min_similarity=self.options.min_similarity)

    def _report(self, query: str, found: Retrieved, started: float) -> L1Report:
        if found.candidates:
            return _l1_report("ok", self._caveat(query), found.entries, started)
        if found.best_similarity is not None:
            best = f"best similarity {found.best_similarity:.3f}"
            reason = f"{best} is under min_similarity {self.options.min_similarity}"
            return _l1_report("below_threshold", reason, started=started)
        return _l1_report("empty", "no passage was found", started=started)

    def _failure(self, status: L1Status, reason: str, started: float) -> L1Report:
        if reason not in self.logged:
            logger.warning("L1 %s: %s", status, reason)
            self.logged.add(reason)
        return _l1_report(status, reason, started=started)

    def _caveat(self, query: str) -> str | None:
        """Say what is to be known of an answer of L1 that did come."""
        behind = self.kb.building or self.kb.index_failure
        if behind:
            return f"the index is behind the folder: {behind}"
        if not self.kb.understands(query):
            return "the embedding model does not know this script, so passages were found by their words alone"
        return None

    def merge_with_fallback(self, state: LookupState) -> LookupState:
        hints, candidates, l1 = state["hints"], state["candidates"], state["l1"]["status"]
        matches = merging.merge(
            hints,
            candidates,
            limit=self.options.k,
            excerpt=self.kb.excerpt,
            described=self.kb.described(state["query"], self.options.k) if l1 in WITHOUT_L1 else (),
            weigh_hints=not state["filter"]["relaxed"],
        )
        return {
            "status": _status(matches, l1),
            "retrieval_layer": merging.layer(hints, candidates, matches),
            "primary": matches[0] if matches else None,
            "matches": matches,
            "relevance": merging.assess(hints, matches, l1, self.kb.thresholds),
        }

    def record_invocation(self, state: LookupState, config: RunnableConfig) -> LookupState:
        if self.recorder is None:
            return {"recorded": "off"}
        try:
            self.recorder.record(_invocation(state, config))
        except RecordError as error:
            return self._unrecorded(str(error))
        except GraphBubbleUp:  # a host's recorder may interrupt the graph
            raise
        except Exception as error:  # noqa: BLE001  (a recorder of the host's may raise anything; its text may hold a secret)
            return self._unrecorded(f"unexpected {type(error).__name__}")
        return {"recorded": "stored"}

    def _unrecorded(self, reason: str) -> LookupState:
        logger.error("the invocation was not recorded: %s", reason)
        if self.options.record_mode != "required":
            return {"recorded": "failed"}
        relevance: Relevance = {"level": "none", "semantic_support": False, "reason": "the call could not be recorded"}
        nothing: LookupState = {"matches": [], "primary": None, "hints": no_hints(), "relevance": relevance}
        return {"recorded": "failed", "status": "refused", "retrieval_layer": "none", **nothing}


def _failure_status(error: LookupKnowledgeError) -> L1Status:
    if isinstance(error, StoreTimeout):
        return "timeout"
    return "unavailable" if isinstance(error, IndexMissing) else "failed"


def _query_problem(query: object) -> str | None:
    if not isinstance(query, str):
        return 'the input has no "query" that is a text'
    if len(query) > MAX_QUERY_CHARS:
        return f"the query has {len(query)} characters, more than {MAX_QUERY_CHARS}"
    if not cut(query):
        return "the query is empty or has no letter or digit"
    return None


def _l1_report(
    status: L1Status, reason: str | None = None, candidates: int = 0, started: float | None = None
) -> L1Report:
    elapsed = 0.0 if started is None else round((time.perf_counter() - started) * 1000, 3)
    return {"status": status, "reason": reason, "candidates": candidates, "elapsed_ms": elapsed}


def _status(matches: list[Match], l1: L1Status) -> Status:
    if l1 == "skipped":
        return "invalid_query"
    if not matches:
        return "no_match"
    return "degraded" if l1 in ("failed", "timeout", "unavailable") else "ok"


class _Workers:
    """Daemon threads for calls that may hang. A thread is kept for the next call: a new one costs L1 5 ms in cold caches."""

    def __init__(self) -> None:
        self._process = os.getpid()
        self._calls: SimpleQueue[tuple[Future[Any], Callable[[], Any]]] = SimpleQueue()
        self._idle = threading.Semaphore(0)
        self._started = 0

    def submit(self, call: Callable[[], T]) -> Future[T]:
        """Run a call in a thread.

        Raises:
            StoreUnreachable: `MAX_WORKERS` calls are under way and none has come back.
        """
        if self._process != os.getpid():  # threads do not follow into a forked child
            self.__init__()  # type: ignore[misc]
        if not self._idle.acquire(blocking=False):
            if self._started >= MAX_WORKERS:
                raise StoreUnreachable(f"{MAX_WORKERS} earlier L1 calls have not come back yet")
            self._started += 1
            threading.Thread(target=self._work, name="lookup-knowledge-l1", daemon=True).start()
        future: Future[T] = Future()
        self._calls.put((future, call))
        return future

    def _work(self) -> None:
        while True:
            future, call = self._calls.get()
            try:
                future.set_result(call())
            except BaseException as error:  # noqa: BLE001  (raised in the caller's thread)
                future.set_exception(error)
            del future, call
            self._idle.release()


_workers = _Workers()


def call_with_deadline(call: Callable[[], T], seconds: float) -> T:
    """Return what `call` returns, run in another thread.

    Raises:
        StoreTimeout: it was not done in time; the thread goes on and its answer is dropped.
    """
    future = _workers.submit(call)
    wait([future], seconds)
    if not future.done():
        raise StoreTimeout(f"L1 did not answer within {seconds:g} s")
    error = future.exception()
    if error is not None and not isinstance(error, Exception):  # SystemExit of a model's, say, is not the caller's
        raise StoreError(f"unexpected {type(error).__name__}") from error
    return future.result()


def _run_id(config: RunnableConfig) -> str | None:
    """Return the id of the graph's run in the trace, or of this step's where the caller gave the graph none."""
    execution = get_runtime().execution_info
    run_id = execution.run_id if execution else None
    run_id = run_id or getattr(config.get("callbacks"), "parent_run_id", None)
    return None if run_id is None else str(run_id)


def _invocation(state: LookupState, config: RunnableConfig) -> Invocation:
    metadata = config.get("metadata") or {}
    thread_id = (config.get("configurable") or {}).get("thread_id")
    details = {
        "l0_hints": state["hints"],
        "filter": state["filter"],
        "l1": state["l1"],
        "matches": [{key: match[key] for key in ("entry_id", "score", "layers")} for match in state["matches"]],
        "relevance": state["relevance"],
    }
    return {
        "id": state["invocation_id"],
        "tool_name": TOOL_NAME,
        "query": state["query"],
        "status": state["status"],
        "retrieval_layer": state["retrieval_layer"],
        "retrieval_details": details,
        "l1_status": state["l1"]["status"],
        "result_count": len(state["matches"]),
        "primary_entry_id": state["primary"]["entry_id"] if state["primary"] else None,
        "duration_ms": round((time.time() - state["started_at"]) * 1000, 3),
        "thread_id": None if thread_id is None else str(thread_id),
        "run_id": _run_id(config),
        "tool_call_id": metadata.get("tool_call_id"),
        "created_at": datetime.fromtimestamp(state["started_at"], UTC).isoformat(),
    }
