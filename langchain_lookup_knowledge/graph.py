"""The lookup as a LangGraph graph: five steps, from the query to a recorded result."""

import logging
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial, wraps
from inspect import iscoroutine
from typing import Any, Literal, ParamSpec, cast
from weakref import WeakKeyDictionary

from langchain_core.runnables import RunnableConfig
from langgraph.errors import GraphBubbleUp
from langgraph.graph import END, START, StateGraph
from langgraph.graph.state import CompiledStateGraph
from langgraph.runtime import get_runtime
from typing_extensions import TypedDict

from langchain_lookup_knowledge import merging, tracing
from langchain_lookup_knowledge.cleaning import one_line
from langchain_lookup_knowledge.errors import (
    IndexMissing,
    LookupKnowledgeError,
    RecordError,
    ScopeError,
    StoreError,
    StoreTimeout,
    StoreUnreachable,
)
from langchain_lookup_knowledge.filters import choose_filter, hides_better
from langchain_lookup_knowledge.invocations import storable
from langchain_lookup_knowledge.knowledge_base import KnowledgeBase, Retrieved
from langchain_lookup_knowledge.records import InvocationRecorder, SQLInvocationRecorder
from langchain_lookup_knowledge.scope import Scope, read_scope
from langchain_lookup_knowledge.stores import INDEX_COMMAND
from langchain_lookup_knowledge.tokens import cut
from langchain_lookup_knowledge.tracing import TOOL_NAME
from langchain_lookup_knowledge.types import (
    L1_FAILED,
    STEPS,
    Candidate,
    DescribedEntry,
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
_UNKNOWN_SCRIPT = "the embedding model does not know the script of these words"
SPARE_CANDIDATES = 10
"""Candidates kept in the state beyond the `k` that can become matches, for the guard and the hints to choose from."""
REPLAYED_OPTIONS = ("k", "filter_mode", "min_similarity", "l1_enabled")
"""Options that shape an answer: kept in the record, so that the lookup can be run again as it was."""
WITHOUT_L1: frozenset[L1Status] = frozenset((*L1_FAILED, "disabled"))
"""States of L1 in which it had no say, so that L0 answers as well as it can alone."""

_default_recorders: WeakKeyDictionary[KnowledgeBase, SQLInvocationRecorder] = WeakKeyDictionary()

P = ParamSpec("P")


class LookupInput(TypedDict):
    """What the graph takes."""

    query: str


class LookupState(TypedDict, total=False):
    """What the steps pass on; plain JSON types, so that any checkpointer takes it."""

    query: str
    invocation_id: str
    started_at: float
    steps: dict[str, float]
    scope: dict[str, str] | None
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
    if not isinstance(kb, KnowledgeBase):
        raise ValueError(f"kb takes a KnowledgeBase such as KnowledgeBase.open(folder), not {kb!r}")
    if record == "default":
        record = default_recorder(kb)
    if record is not None and not callable(getattr(record, "record", None)):
        raise ValueError(f"record takes an InvocationRecorder such as SQLInvocationRecorder(url), not {record!r}")
    options = options or LookupOptions()
    if record is None and options.record_mode == "required":
        raise ValueError('record_mode="required" answers only what is recorded: leave record=None out')
    if options.scope_fields and kb.index is not None and kb.index.adopted:
        raise ValueError(
            "a collection that others made cannot be searched within a scope: leave scope_fields out, or index anew"
        )
    steps = _Steps(kb, record, options)
    graph = StateGraph(LookupState, input_schema=LookupInput, output_schema=LookupResult)
    for name in STEPS:
        step = getattr(steps, name)
        astep = steps.al1_retrieve if name == "l1_retrieve" else None
        graph.add_node(name, tracing.Step(name, step, kb, astep), trace_policy=tracing.trace_policy())
    graph.add_edge(START, "l0_hints")
    graph.add_edge("l0_hints", "choose_filter")
    next_steps = ["l1_retrieve", "merge_with_fallback"]
    graph.add_conditional_edges("choose_filter", tracing.Choice(_after_choose_filter), next_steps)
    graph.add_conditional_edges("l1_retrieve", tracing.Choice(_after_l1_retrieve), next_steps)
    graph.add_edge("merge_with_fallback", "record_invocation")
    graph.add_edge("record_invocation", END)
    return graph.compile(name=TOOL_NAME, checkpointer=checkpointer)


def _timed(step: Callable[P, LookupState]) -> Callable[P, LookupState]:
    """Return the step, a method that takes the state first, with its milliseconds in `steps`, which the first step begins."""

    @wraps(step)
    def run(*arguments: P.args, **named: P.kwargs) -> LookupState:
        started = time.perf_counter()
        update = step(*arguments, **named)
        steps = {} if "invocation_id" in update else cast(LookupState, arguments[1])["steps"]
        return {**update, "steps": {**steps, step.__name__: round(_milliseconds(started), 3)}}

    return run


def _milliseconds(started: float) -> float:
    return (time.perf_counter() - started) * 1000


def default_recorder(kb: KnowledgeBase) -> SQLInvocationRecorder:
    """Return the recorder into `invocations.db` in the data folder: one a knowledge base, closed with it."""
    recorder = _default_recorders.get(kb)
    if recorder is None:
        made = SQLInvocationRecorder.in_file(kb.data_folder / "invocations.db")
        recorder = _default_recorders.setdefault(kb, made)
        kb.on_close(recorder.close)
    return recorder


def _after_choose_filter(state: LookupState) -> Literal["l1_retrieve", "merge_with_fallback"]:
    """L1 unavailable: go on without it."""
    return "l1_retrieve" if state["l1"]["status"] == "ok" else "merge_with_fallback"


def _after_l1_retrieve(state: LookupState) -> Literal["l1_retrieve", "merge_with_fallback"]:
    """L1 empty, or clearly worse, under an L0-derived filter: relax the filter, once."""
    choice = state["filter"]
    kept = choice["category"] is None or choice["relaxed"]
    hides = not kept and hides_better(state["candidates"], state["unfiltered"], state["hints"])
    return "l1_retrieve" if hides else "merge_with_fallback"


def no_hints() -> Hints:
    """Return hints in which nothing was found."""
    return {"titles": [], "keywords": [], "domains": [], "entities": [], "entries": [], "terms": []}


@dataclass(frozen=True, slots=True)
class _Steps:
    kb: KnowledgeBase
    recorder: InvocationRecorder | None
    options: LookupOptions

    @_timed
    def l0_hints(self, state: LookupState, config: RunnableConfig) -> LookupState:
        query: object = state.get("query")
        update: LookupState = {
            "query": storable(query) if isinstance(query, str) else "",
            "invocation_id": str(uuid.uuid4()),
            "started_at": time.time(),
            "scope": {},
            "candidates": [],
            "unfiltered": [],
            "l1": _l1_report("ok"),
        }
        try:
            scope = read_scope(self.options.scope_fields, config.get("configurable") or {}, get_runtime().context)
        except ScopeError as error:
            return {**update, "scope": None, "hints": no_hints(), "l1": _l1_report("skipped", str(error))}
        update["scope"] = dict(scope)
        if problem := _query_problem(query):
            return {**update, "hints": no_hints(), "l1": _l1_report("skipped", problem)}
        return {**update, "hints": self.kb.hints(update["query"], scope=scope)}

    @_timed
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
        refusal = self.kb.breaker.refusal()
        return ("ok", None) if refusal is None else ("unavailable", refusal)

    def l1_retrieve(self, state: LookupState) -> LookupState:
        if state["unfiltered"]:
            return self._relaxed(state)
        started = time.perf_counter()
        try:
            found = self.kb.workers.call(self._request(state), self.options.l1_timeout)
        except Exception as error:  # noqa: BLE001  (whatever it is, L0 still answers)
            return {"l1": self._failure(error, started)}
        return self._answered(state, found, started)

    async def al1_retrieve(self, state: LookupState) -> LookupState:
        if state["unfiltered"]:
            return self._relaxed(state)
        started = time.perf_counter()
        try:
            found = await self.kb.workers.acall(self._request(state), self.options.l1_timeout)
        except Exception as error:  # noqa: BLE001  (as above)
            return {"l1": self._failure(error, started)}
        return self._answered(state, found, started)

    def _request(self, state: LookupState) -> Callable[[], list[Retrieved]]:
        """Return the call of L1: filtered, with an unfiltered probe beside it where the filter is guarded."""
        query, category = state["query"], state["filter"]["category"]
        guarded = category is not None and self.options.filter_mode == "guarded"
        limit = self.options.k + SPARE_CANDIDATES
        categories = [category, None] if guarded else [category]
        threshold, scope = self.options.min_similarity, _scope(state)
        return partial(self.kb.retrieve, query, categories, limit=limit, min_similarity=threshold, scope=scope)

    def _relaxed(self, state: LookupState) -> LookupState:
        """Put the probe of the first pass in the place of the filtered answer."""
        choice, candidates = state["filter"], state["unfiltered"]
        report = _l1_report("ok", self._caveat(state["query"]), len(candidates))
        report["elapsed_ms"] = state["l1"]["elapsed_ms"]
        relaxed: FilterChoice = {"category": choice["category"], "reason": choice["reason"], "relaxed": True}
        return {"candidates": candidates, "filter": relaxed, "l1": report}

    def _answered(self, state: LookupState, found: list[Retrieved], started: float) -> LookupState:
        self.kb.breaker.answered()
        update: LookupState = {"candidates": found[0].candidates, "l1": self._report(state, found, started)}
        if len(found) > 1:
            update["unfiltered"] = found[1].candidates
        return update

    def _report(self, state: LookupState, found: list[Retrieved], started: float) -> L1Report:
        first, category = found[0], state["filter"]["category"]
        if first.candidates:
            return _l1_report("ok", self._caveat(state["query"]), first.entries, started)
        alone = f", in the category {one_line(category)!r} alone" if category and len(found) == 1 else ""
        if first.best_similarity is not None and self.options.min_similarity is not None:
            best = f"best similarity {first.best_similarity:.3f}"
            reason = f"{best} is under min_similarity {self.options.min_similarity}{alone}"
            return _l1_report("below_threshold", reason, started=started)
        if not self.kb.understands(state["query"]):
            return _l1_report(
                "empty", f"{_UNKNOWN_SCRIPT}, and no passage has them: ask in another language", started=started
            )
        nothing_else = not alone and not state["scope"] and found[-1].best_similarity is None
        if nothing_else:
            fix = INDEX_COMMAND if self.kb.entries else "the folder holds no Markdown file that could be read"
            return _l1_report("empty", f"the index holds no passage: {fix}", started=started)
        return _l1_report("empty", f"no passage was found{alone}", started=started)

    def _failure(self, error: Exception, started: float) -> L1Report:
        """Name a failure of L1 and report it to the circuit breaker.

        What counts there is waiting in vain: no answer, or a model that fails. A refusal (no index, another key or size)
        comes at once and ends when somebody mends it, so that the next lookup should ask again.
        """
        status = _failure_status(error)
        expected = isinstance(error, LookupKnowledgeError)
        reason = str(error) if expected else f"unexpected {type(error).__name__}"  # its text may hold a secret
        counts = not isinstance(error, StoreError) or isinstance(error, StoreUnreachable)
        self.kb.breaker.failed(status, reason, counts=counts)
        return _l1_report(status, reason, started=started)

    def _caveat(self, query: str) -> str | None:
        """Say what is to be known of an answer of L1 that did come."""
        behind = self.kb.building or self.kb.index_failure
        if behind:
            return f"the index is behind the folder: {behind}"
        if not self.kb.understands(query):
            return f"{_UNKNOWN_SCRIPT}, so passages were found by them alone"
        return None

    @_timed
    def merge_with_fallback(self, state: LookupState) -> LookupState:
        if state["scope"] is None:
            return _refused(state["l1"]["reason"] or "")
        hints, candidates, l1 = state["hints"], state["candidates"], state["l1"]["status"]
        matches = merging.merge(
            hints,
            candidates,
            limit=self.options.k,
            excerpt=partial(self.kb.excerpt, scope=_scope(state)),
            medium=self.kb.thresholds.medium,
            described=self._described(state) if l1 in WITHOUT_L1 else (),
            weigh_hints=not state["filter"]["relaxed"],
        )
        return {
            "status": _status(matches, l1),
            "retrieval_layer": merging.layer(hints, candidates, matches),
            "primary": matches[0] if matches else None,
            "matches": matches,
            "relevance": merging.assess(hints, matches, l1, self.kb.thresholds),
        }

    def _described(self, state: LookupState) -> list[DescribedEntry]:
        return self.kb.described(state["query"], self.options.k, scope=_scope(state))

    def record_invocation(self, state: LookupState, config: RunnableConfig) -> LookupState:
        if self.recorder is None:
            return {"recorded": "off"}
        try:
            kept: Any = self.recorder.record(_invocation(state, config, self.options))
            if iscoroutine(kept):
                kept.close()
                raise RecordError(
                    "`record` of the recorder is a coroutine, which nobody awaits: make it a plain function"
                )
        except RecordError as error:
            return self._unrecorded(str(error))
        except GraphBubbleUp:  # a host's recorder may interrupt the graph
            raise
        except Exception as error:  # noqa: BLE001  (a recorder of the host's may raise anything; its text may hold a secret)
            return self._unrecorded(f"unexpected {type(error).__name__}")
        return {"recorded": "spooled" if kept == "spooled" else "stored"}

    def _unrecorded(self, reason: str) -> LookupState:
        logger.error("the invocation was not recorded: %s", reason)
        if self.options.record_mode != "required":
            return {"recorded": "failed"}
        refused = _refused("the call could not be recorded, and this knowledge base requires a record")
        return {**refused, "recorded": "failed", "hints": no_hints()}


def _scope(state: LookupState) -> Scope:
    return tuple((state["scope"] or {}).items())


def _refused(reason: str) -> LookupState:
    """Return the answer of a lookup that is not allowed one."""
    relevance: Relevance = {"level": "none", "semantic_support": False, "reason": reason}
    return {"status": "refused", "retrieval_layer": "none", "primary": None, "matches": [], "relevance": relevance}


def _failure_status(error: Exception) -> L1Status:
    if isinstance(error, StoreTimeout):
        return "timeout"
    return "unavailable" if isinstance(error, IndexMissing) else "failed"


def _query_problem(query: object) -> str | None:
    if not isinstance(query, str):
        return 'the input has no "query" that is a text'
    if len(query) > MAX_QUERY_CHARS:
        return f"the query has {len(query)} characters, more than {MAX_QUERY_CHARS}"
    if not cut(query):
        return "the query is empty or has no letter, digit or emoji"
    return None


def _l1_report(
    status: L1Status, reason: str | None = None, candidates: int = 0, started: float | None = None
) -> L1Report:
    elapsed = 0.0 if started is None else round(_milliseconds(started), 3)
    return {"status": status, "reason": reason, "candidates": candidates, "elapsed_ms": elapsed}


def _status(matches: list[Match], l1: L1Status) -> Status:
    if l1 == "skipped":
        return "invalid_query"
    if not matches:
        return "no_match"
    return "degraded" if l1 in L1_FAILED else "ok"


def _run_id(config: RunnableConfig) -> str | None:
    """Return the id of the graph's run in the trace, or of this step's where the caller gave the graph none."""
    execution = get_runtime().execution_info
    run_id = execution.run_id if execution else None
    run_id = run_id or getattr(config.get("callbacks"), "parent_run_id", None)
    return None if run_id is None else str(run_id)


def _trimmed(items: Sequence[Mapping[str, Any]], *names: str) -> list[dict[str, Any]]:
    return [{name: item[name] for name in names} for item in items]


def _invocation(state: LookupState, config: RunnableConfig, options: LookupOptions) -> Invocation:
    """Return the row of a lookup; the time of its last step is that until the row is handed to the recorder."""
    started = time.perf_counter()
    steps = {**state["steps"], "l1_retrieve": state["l1"]["elapsed_ms"]}
    metadata = config.get("metadata") or {}
    thread_id = (config.get("configurable") or {}).get("thread_id")
    details: dict[str, Any] = {
        "l0_hints": state["hints"],
        "filter": state["filter"],
        "l1": state["l1"],
        "candidates": _trimmed(state["candidates"], "entry_id", "score", "similarity"),
        "matches": _trimmed(state["matches"], "entry_id", "score", "similarity", "layers"),
        "relevance": state["relevance"],
        "options": {name: getattr(options, name) for name in REPLAYED_OPTIONS},
        "steps": {**steps, "record_invocation": round(_milliseconds(started), 3)},
    }
    if state["scope"]:
        details["scope"] = state["scope"]
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
        "duration_ms": round(max(0.0, time.time() - state["started_at"]) * 1000, 3),  # a clock may be set back
        "thread_id": None if thread_id is None else str(thread_id),
        "run_id": _run_id(config),
        "tool_call_id": metadata.get("tool_call_id"),
        "created_at": datetime.fromtimestamp(state["started_at"], UTC).isoformat(),
    }
