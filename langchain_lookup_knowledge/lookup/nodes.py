"""The steps of a lookup, each a node of the graph."""

import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, ParamSpec, cast

from langchain_lookup_knowledge.errors import ScopeError
from langchain_lookup_knowledge.knowledge import Knowledge
from langchain_lookup_knowledge.knowledge_base import KnowledgeBase
from langchain_lookup_knowledge.l1.models.embeddings import unknown_language
from langchain_lookup_knowledge.l1.requests import L1Outcome, L1Request, l1_report
from langchain_lookup_knowledge.lookup.answer import joined_words, merging, snippets, versions
from langchain_lookup_knowledge.lookup.answer.merging import FoundEntry
from langchain_lookup_knowledge.lookup.answer.relevance import (
    RelevanceModel,
    assess,
    features,
    judged_by_words,
    missing_words,
)
from langchain_lookup_knowledge.lookup.caller_scope import caller_scope
from langchain_lookup_knowledge.lookup.filters import choose_filter, no_filter
from langchain_lookup_knowledge.lookup.invocation import cancelled, invocation, invocation_id
from langchain_lookup_knowledge.lookup.recording import UNRECORDED, keep, milliseconds
from langchain_lookup_knowledge.lookup.signals.metrics import count, is_metered
from langchain_lookup_knowledge.lookup.state import (
    LookupState,
    joins_of,
    no_hints,
    refused,
    result_of,
    scope_of,
)
from langchain_lookup_knowledge.reading.metadata.filters import normalized
from langchain_lookup_knowledge.text.search_terms import written_terms
from langchain_lookup_knowledge.text.storable import storable
from langchain_lookup_knowledge.text.tokens import cut
from langchain_lookup_knowledge.types import (
    L1_FAILED,
    Candidate,
    FilterChoice,
    Hints,
    Invocation,
    InvocationRecorder,
    L1Report,
    L1Status,
    LookupOptions,
    Match,
    MetadataHit,
    PrimaryMatch,
    Status,
)

if TYPE_CHECKING:
    from langchain_core.runnables import RunnableConfig

MAX_QUERY_CHARS = 20_000
SPARE_CANDIDATES = 10
"""Number of candidates kept in the state in addition to the `k` of the result; the guard and the
hints choose from them.
"""
WITHOUT_L1: frozenset[L1Status] = frozenset((*L1_FAILED, "disabled"))
"""L1 statuses after which L0 has to answer alone."""

P = ParamSpec("P")


def _timed(step: Callable[P, LookupState]) -> Callable[P, LookupState]:
    """Wrap a step to add its duration to `durations_ms`; the first step starts that dict."""

    @wraps(step)
    def run(*arguments: P.args, **named: P.kwargs) -> LookupState:
        started = time.perf_counter()
        update = step(*arguments, **named)
        durations = (
            {} if "invocation_id" in update else cast(LookupState, arguments[1])["durations_ms"]
        )
        durations = {**durations, step.__name__: milliseconds(started)}
        return {**update, "durations_ms": durations}

    return run


@dataclass(frozen=True, slots=True)
class Nodes:
    """The five steps of a lookup; each returns what it adds to the state."""

    kb: KnowledgeBase
    recorder: InvocationRecorder | None
    options: LookupOptions
    medium_similarity: float
    relevance_model: RelevanceModel
    drop_weak: bool
    name: str
    result_key: str | None
    is_resumable: bool

    @_timed
    def l0_hints(self, state: LookupState, config: "RunnableConfig") -> LookupState:
        query: object = state.get("query")
        text = storable(query) if isinstance(query, str) else ""
        update: LookupState = {
            "query": text,
            "invocation_id": (
                invocation_id(config, text) if self.is_resumable else str(uuid.uuid4())
            ),
            "started_at": time.time(),
            "scope": {},
            "filters": None,
            "candidates": [],
            "unfiltered": [],
            "terms": {},
            "caveat": None,
            "l1": l1_report("ok"),
        }
        try:
            scope = caller_scope(self.options, config)
        except ScopeError as error:
            return {
                **update,
                "scope": None,
                "hints": no_hints(),
                "l1": l1_report("skipped", str(error)),
            }
        update["scope"] = dict(scope)
        problem = _query_problem(query)
        try:
            filters = normalized(state.get("filters"), self.kb.fields.filterable)
        except ValueError as error:
            filters, problem = None, str(error)
        update["filters"] = filters
        if filters and self.kb.index is not None and self.kb.index.read_only:
            problem = "a collection created elsewhere cannot be filtered: leave filters out"
        if problem:
            return {**update, "hints": no_hints(), "l1": l1_report("skipped", problem)}
        knowledge = self.kb.l0.seen_by(scope).limited_to(filters)
        if filters and not knowledge.entries:
            update["l1"] = l1_report("empty", "no entry is within the filters")
        return {**update, "hints": knowledge.hints(update["query"])}

    def _knowledge(self, state: LookupState) -> Knowledge:
        """Return the entries that the caller may see, within the caller's filters."""
        return self.kb.l0.seen_by(scope_of(state)).limited_to(state["filters"])

    @_timed
    def choose_filter(self, state: LookupState) -> LookupState:
        if state["l1"]["status"] == "skipped":  # refused, or the query cannot be used
            return {"filter": no_filter()}
        update: LookupState = {"filter": choose_filter(state["hints"], self.options.filter_mode)}
        if state["l1"]["status"] == "ok":
            available = self._l1_availability()
            if available["status"] != "ok":
                update["l1"] = available
        return update

    def _l1_availability(self) -> L1Report:
        if self.kb.index is not None and not self.options.l1_enabled:
            return l1_report("disabled", "switched off by LookupOptions(l1_enabled=False)")
        return self.kb.l1.availability(self.options.l1_timeout)

    def l1_retrieve(self, state: LookupState) -> LookupState:
        if state["unfiltered"]:
            return self._relaxed(state)
        return _found(self.kb.l1.search(self._request(state)))

    async def al1_retrieve(self, state: LookupState) -> LookupState:
        if state["unfiltered"]:
            return self._relaxed(state)
        return _found(await self.kb.l1.asearch(self._request(state)))

    def _request(self, state: LookupState) -> L1Request:
        """Return the request for L1: the filtered search, plus an unfiltered probe in the filter
        mode "guarded".
        """
        category, knowledge = state["filter"]["category"], self._knowledge(state)
        guarded = category is not None and self.options.filter_mode == "guarded"
        return L1Request(
            query=state["query"],
            entries=knowledge.entries,
            categories=(category, None) if guarded else (category,),
            limit=self.options.k + SPARE_CANDIDATES,
            min_similarity=self.options.min_similarity,
            scope=scope_of(state),
            conditions=knowledge.conditions,
            visible=knowledge.visible,
            timeout=self.options.l1_timeout,
            glossary=tuple(form for join in joins_of(state) for form in join["forms"]),
        )

    def _relaxed(self, state: LookupState) -> LookupState:
        """Replace the filtered candidates with those of the unfiltered probe."""
        choice, candidates = state["filter"], state["unfiltered"]
        report: L1Report = {
            **state["l1"],
            "status": "ok",
            "reason": state["caveat"],
            "candidates": len(candidates),
        }
        relaxed: FilterChoice = {
            "category": choice["category"],
            "reason": choice["reason"],
            "relaxed": True,
        }
        return {"candidates": candidates, "filter": relaxed, "l1": report}

    @_timed
    def merge_with_fallback(self, state: LookupState) -> LookupState:
        if state["scope"] is None:
            return refused(state["l1"]["reason"] or "")
        hints, l1 = state["hints"], state["l1"]["status"]
        query = written_terms(state["query"])
        frequencies = state["terms"]
        joins = joins_of(state)
        knowledge = self._knowledge(state)
        found = self._found_entries(state, knowledge, query, joined_words.added_terms(joins))
        asked = joined_words.in_held_forms(list(query), joins, found)
        counted = {term: n for term, n in frequencies.items() if term in asked}
        size = len(knowledge.entries)
        measured = features(found, state["candidates"], asked, counted, size) if found else {}
        relevance = assess(
            hints,
            found,
            l1,
            measured,
            missing_words(query, counted),
            asked,
            counted,
            self.relevance_model,
            self.medium_similarity,
        )
        unknown = self._unknown_language(state, found)
        relevance = judged_by_words(relevance, unknown, found, measured, counted)
        if l1 == "skipped":
            relevance = {**relevance, "reason": state["l1"]["reason"] or relevance["reason"]}
        if self.drop_weak:
            relaxed = state["filter"]["relaxed"]
            specific = [] if relaxed else merging.specific_entries(hints)
            found = merging.without_weak(found, relevance["level"], specific)
        matches = snippets.show(found, query, frequencies, self.options.max_chars, joins)
        for match in matches:
            shown = knowledge.shown(match["entry_id"], self.kb.fields.shown)
            match["metadata"] = {**shown, **match["metadata"]}
        return {
            "status": _status(matches, l1),
            "retrieval_layer": merging.layer(hints, state["candidates"], found),
            "primary": _primary(matches),
            "matches": matches,
            "relevance": relevance,
            "features": cast(dict[str, float], measured),
        }

    def _unknown_language(self, state: LookupState, found: Sequence[FoundEntry]) -> str | None:
        """Return a caveat if L1 found the first match, and the model does not know the language of
        the query, or that of a match without a vector.
        """
        if not found or "L1" not in found[0].layers:
            return None
        unknown = partial(unknown_language, self.kb.embedding, usual=self.kb.l1.state.language)
        if caveat := unknown(state["query"]):
            return caveat
        if found[0].similarity is not None:
            return None
        text = "\n".join(passage["text"] for passage in found[0].passages)
        return unknown(text)

    def _found_entries(
        self,
        state: LookupState,
        knowledge: Knowledge,
        query: dict[str, str],
        added: Sequence[str],
    ) -> list[FoundEntry]:
        """Return the entries of the answer, best first: one version of each page, with its
        metadata.
        """
        hints, candidates = state["hints"], state["candidates"]
        entries = knowledge.entries
        described, by_words = ([], []) if candidates else self._without_l1(state, knowledge)
        ids = [entry["entry_id"] for entry in (*hints["entries"], *described)]
        pages = versions.one_of_each_page(candidates or by_words, ids, entries, state["query"])
        shown_hints: Hints = {**hints, "entries": versions.shown(hints["entries"], pages)}
        passages = partial(knowledge.excerpt, terms=[*query, *added])
        one_each = versions.settled(candidates or by_words, pages, entries, state["query"])
        if candidates:
            found = merging.merge(
                shown_hints,
                one_each,
                limit=self.options.k,
                medium=self.medium_similarity,
                passages=passages,
                weigh_hints=not state["filter"]["relaxed"],
            )
        else:
            found = merging.merge_without_l1(
                shown_hints,
                limit=self.options.k,
                passages=passages,
                described=versions.shown(described, pages),
                by_words=one_each,
            )
        found = versions.in_order(
            found, entries, one_each if candidates else (), self.options.k, state["query"]
        )
        return [versions.described(one, entries, pages, query) for one in found]

    def _without_l1(
        self, state: LookupState, knowledge: Knowledge
    ) -> tuple[list[MetadataHit], list[Candidate]]:
        """Return the metadata hits, and the candidates found by words, if L1 does not take part."""
        status = state["l1"]["status"]
        if status not in WITHOUT_L1:
            return [], []
        words = self.kb.l1.search_words(self._request(state)) if status in L1_FAILED else []
        return knowledge.search_metadata(state["query"], self.options.k), list(words)

    def record_invocation(self, state: LookupState, config: "RunnableConfig") -> LookupState:
        update = self._recorded(state, config)
        if self.result_key is None:
            return update
        whole: Any = {self.result_key: result_of({**state, **update})}
        return {**update, **whole}

    def record_cancelled(self, state: LookupState, config: "RunnableConfig") -> None:
        """Record a lookup that was cancelled, with what it had found until then."""
        made = self._record(cancelled, state, config)
        count(made, keep(self.recorder, made))

    def _record(
        self, made_by: Callable[..., Invocation], state: LookupState, config: "RunnableConfig"
    ) -> Invocation:
        return made_by(state, config, self.options, self.name, drop_weak=self.drop_weak)

    def _recorded(self, state: LookupState, config: "RunnableConfig") -> LookupState:
        if self.recorder is None and not is_metered():
            return {"recorded": "off"}
        made = self._record(invocation, state, config)
        kept = keep(self.recorder, made)
        count(made, kept)
        if kept != "failed" or self.options.record_mode != "required":
            return {"recorded": kept}
        return {**refused(UNRECORDED), "recorded": "failed", "hints": no_hints()}


def _primary(matches: Sequence[Match]) -> PrimaryMatch | None:
    """Return the best match without its snippet, so that a result holds each text once."""
    if not matches:
        return None
    primary: Any = {key: value for key, value in matches[0].items() if key != "snippet"}
    return cast(PrimaryMatch, primary)


def _query_problem(query: object) -> str | None:
    if not isinstance(query, str):
        return 'the input has no text under "query"'
    if len(query) > MAX_QUERY_CHARS:
        return f"the query has {len(query)} characters, more than {MAX_QUERY_CHARS}"
    if not cut(query):
        return "the query is empty or has no letter, digit or emoji"
    return None


def _found(outcome: L1Outcome) -> LookupState:
    """Return the update with what L1 found: the filtered candidates, and those of the unfiltered
    probe, if any.
    """
    update: LookupState = {"l1": outcome.report}
    if outcome.candidates:
        update["candidates"] = outcome.candidates[0]
    if len(outcome.candidates) > 1:
        update["unfiltered"] = outcome.candidates[1]
    update["terms"], update["caveat"] = dict(outcome.terms), outcome.caveat
    return update


def _status(matches: list[Match], l1: L1Status) -> Status:
    if l1 == "skipped":
        return "invalid_query"
    if not matches:
        return "no_match"
    return "degraded" if l1 in L1_FAILED else "ok"
