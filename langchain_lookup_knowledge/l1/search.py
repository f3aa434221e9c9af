"""Searching L1 (vector search) within a time limit; failures are reported, not raised."""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from langchain_core.embeddings import Embeddings

from langchain_lookup_knowledge.errors import (
    EmbeddingError,
    IndexMissingError,
    LookupKnowledgeError,
    StoreError,
    StoreTimeoutError,
    StoreUnreachableError,
    unexpected,
)
from langchain_lookup_knowledge.l1.circuit_breaker import CircuitBreaker
from langchain_lookup_knowledge.l1.deadlines import ThreadPool
from langchain_lookup_knowledge.l1.index_state import DIFFERING, OTHER_STATE, IndexState
from langchain_lookup_knowledge.l1.models import embeddings
from langchain_lookup_knowledge.l1.models.reranking import Reranker
from langchain_lookup_knowledge.l1.requests import TIMEOUT, L1Outcome, L1Request, l1_report
from langchain_lookup_knowledge.l1.retrieval import Answer, Retrieval
from langchain_lookup_knowledge.l1.stores.vector_index import INDEX_COMMAND, VectorIndex
from langchain_lookup_knowledge.l1.verification import PassageVerifier
from langchain_lookup_knowledge.text.visible.cleaning import one_line
from langchain_lookup_knowledge.types import Candidate, L1Report, L1Status

logger = logging.getLogger("langchain_lookup_knowledge")

NO_WORDS = ", and no passage contains words of the query: ask in another language"
WORDS_SECONDS = 0.5
"""Maximum seconds for a search by words after the model failed."""


@dataclass(slots=True)
class _Phase:
    """Progress of a call, to be read after a failure or timeout."""

    started: bool = False
    in_model: bool = False


class L1Search:
    """L1 of a knowledge base: its index, its model, its circuit breaker and its threads.

    Args:
        index: the index that holds the passages; None switches L1 off.
        embedding: the model the index was built with.
        breaker: stops calls after repeated failures.
        workers: the threads that run the calls.
        state: whether the index matches the folder.
        after_search: called in the worker thread after each successful search of the index.
        reranker: orders the passages that were found.
    """

    def __init__(
        self,
        index: VectorIndex | None,
        embedding: Embeddings,
        *,
        breaker: CircuitBreaker | None = None,
        workers: ThreadPool | None = None,
        state: IndexState | None = None,
        after_search: Callable[[], None] = lambda: None,
        reranker: Reranker | None = None,
    ) -> None:
        self.index = index
        self.reranker = reranker
        self.embedding = embedding
        self.breaker = breaker or CircuitBreaker()
        self.workers = workers or ThreadPool()
        self.state = state or IndexState()
        self._verifier = PassageVerifier(embedding)
        self._after_search = after_search
        self._model_failed = False
        self._word_workers = ThreadPool()  # a hanging model may occupy all threads of `workers`

    def availability(self, timeout: float = TIMEOUT) -> L1Report:
        """Return a report on whether L1 can be called now with this time limit. Its status is "ok",
        "disabled" or "unavailable".
        """
        if self.index is None:
            return l1_report("disabled", "there is no vector index by choice: index=None, --no-l1")
        breaker = self.breaker.within(timeout)
        if not breaker.allow_request():
            return self._noted(l1_report("unavailable", breaker.refusal()))
        return l1_report("ok")

    def search(self, request: L1Request) -> L1Outcome:
        """Return the candidates that L1 finds within the time limit. It never raises: a failure
        goes into the report and to the circuit breaker.
        """
        started, phase = time.perf_counter(), _Phase()
        try:
            answer = self.workers.run(partial(self._retrieve, request, phase), request.timeout)
        except Exception as error:  # noqa: BLE001  (L0 answers after any failure)
            return self._failed(request, error, started, phase)
        return self._answered(request, answer, started)

    async def asearch(self, request: L1Request) -> L1Outcome:
        """Do the same as `search`, without blocking a thread or the event loop while waiting."""
        started, phase = time.perf_counter(), _Phase()
        try:
            answer = await self.workers.arun(
                partial(self._retrieve, request, phase), request.timeout
            )
        except Exception as error:  # noqa: BLE001  (as above)
            return self._failed(request, error, started, phase)
        return self._answered(request, answer, started)

    def search_words(self, request: L1Request) -> list[Candidate]:
        """Return the candidates that contain words of the query, if the embedding model failed in
        the last search; otherwise return an empty list.

        It never raises, and takes at most `WORDS_SECONDS`.
        """
        if self.index is None or not self._model_failed:
            return []
        request = replace(request, categories=(None,), min_similarity=None)
        call = partial(self._retrieval(self.index).search, request, None)
        try:
            answer = self._word_workers.run(call, min(WORDS_SECONDS, request.timeout))
        except Exception:
            logger.debug("the index could not be searched by words", exc_info=True)
            return []
        return answer.found[0].candidates

    @property
    def medium_similarity(self) -> float:
        """The minimum dense cosine for semantic support."""
        return embeddings.medium_similarity(self.embedding)

    def understands(self, text: str) -> bool:
        """Return whether the model knows the language of a text; if not, similarities are
        ignored.
        """
        return embeddings.understands(self.embedding, text, self.state.language)

    def _unknown_language(self, text: str) -> str | None:
        return embeddings.unknown_language(self.embedding, text, self.state.language)

    def _caveat(self, query: str, answer: Answer) -> str | None:
        """Return a caveat for a successful answer of L1, or None."""
        caveat = self.state.outdated if answer.by_meaning else self.state.behind
        if not caveat and (unknown := self._unknown_language(query)):
            caveat = f"{unknown}, so passages were found by words alone"
        caveats = [answer.caveat, caveat, answer.not_reranked]
        if answer.differing and not self.state.behind:
            caveats.append(DIFFERING)
        if answer.of_other_state and not self.state.behind:
            caveats.append(OTHER_STATE)
        return "; ".join(filter(None, caveats)) or None

    def warm(self) -> None:
        """Load the model and the index, which the first search would otherwise load within its time
        limit.

        Raises:
            EmbeddingError: the model cannot be loaded.
            StoreError: the index cannot be opened.
        """
        if self.index is None:
            return
        embeddings.load(self.embedding)
        self.index.warm()

    def load_reranker(self, *, download: bool) -> None:
        """Load the reranker, if one is used; a failure is logged, because lookups can answer
        without it.

        A model that is not on this machine is fetched only with `download`.
        """
        if self.reranker is None or self.index is None:
            return
        try:
            self.reranker.load(download=download)
        except EmbeddingError as error:
            logger.warning("passages are not reranked: %s", error)

    def close(self) -> None:
        """Close threads, files and connections; a later search opens them again."""
        self.workers.shutdown()
        self._word_workers.shutdown()
        if self.reranker is not None:
            self.reranker.close()
        if self.index is not None:
            self.index.close()

    def _answered(self, request: L1Request, answer: Answer, started: float) -> L1Outcome:
        self.breaker.within(request.timeout).record_success()
        self._model_failed = False
        caveat = self._caveat(request.query, answer)
        return L1Outcome(
            self._noted(self._success(request, answer, caveat, started), answer.reranked),
            tuple(one.candidates for one in answer.found),
            answer.found[-1].terms,
            caveat,
        )

    def _success(
        self, request: L1Request, answer: Answer, caveat: str | None, started: float
    ) -> L1Report:
        found, category = answer.found, request.categories[0]
        first = found[0]
        if first.candidates:
            return l1_report("ok", caveat, first.entries, started)
        if answer.caveat:
            return l1_report("empty", answer.caveat, started=started)
        alone = (
            f", in the category {one_line(category)!r} only" if category and len(found) == 1 else ""
        )
        if first.best_similarity is not None and request.min_similarity is not None:
            best = f"best similarity {first.best_similarity:.3f}"
            reason = f"{best} is under min_similarity {request.min_similarity}{alone}"
            return l1_report("below_threshold", reason, started=started)
        if unknown := self._unknown_language(request.query):
            reason = unknown
            reason += f", and {self.state.outdated}" if answer.by_meaning else NO_WORDS
            return l1_report("empty", reason, started=started)
        limited = alone or request.scope or request.conditions
        unknown = self._unknown_language("")  # the language of most entries
        nothing_else = not limited and not unknown and found[-1].best_similarity is None
        if nothing_else:
            fix = (
                INDEX_COMMAND if request.entries else "the folder holds no file that could be read"
            )
            return l1_report("empty", f"the index holds no passage: {fix}", started=started)
        reason = "; ".join(filter(None, (f"no passage was found{alone}", unknown)))
        return l1_report("empty", reason, started=started)

    def _failed(
        self, request: L1Request, error: Exception, started: float, phase: _Phase
    ) -> L1Outcome:
        """Return the outcome for a failure, and report the failure to the circuit breaker.

        Only failures that cost waiting time count for the breaker: no answer, or a failing model. A
        refusal (no index, a wrong key or size) costs no waiting time, so the next lookup tries
        again and sees whether it is fixed.
        """
        logger.debug("L1 failed", exc_info=error)
        if phase.started:  # otherwise the call never got a thread
            self._model_failed = phase.in_model
        reason = str(error) if isinstance(error, LookupKnowledgeError) else unexpected(error)
        counts = not isinstance(error, StoreError) or isinstance(error, StoreUnreachableError)
        status = _failure_status(error)
        self.breaker.within(request.timeout).record_failure(
            status, reason, counts=counts, asked_pause=getattr(error, "retry_after", 0.0)
        )
        return L1Outcome(self._noted(l1_report(status, reason, started=started)))

    def _noted(self, report: L1Report, reranked: bool = False) -> L1Report:
        """Return a report; if a reranker is used, add whether it ordered the passages."""
        return report if self.reranker is None else {**report, "reranked": reranked}

    def _retrieve(self, request: L1Request, phase: _Phase) -> Answer:
        """Embed the query, search the index, and return the answer in each category.

        If the model does not know the language of the query, only its words are searched for. The
        index leaves out entries outside the scope; `Retrieval` checks this again, in case the index
        is behind the folder.

        Raises:
            EmbeddingError: the query cannot be embedded.
            StoreError: the index cannot be reached or used.
        """
        index = self.index
        if index is None:
            raise StoreError("this knowledge base has no index")
        if self.state.building and index.fingerprint() is None:
            raise IndexMissingError(self.state.building)
        if (request.scope or request.conditions) and index.read_only:
            raise StoreError(
                "a collection created elsewhere cannot be searched with a scope or filters: "
                "build an index with this package"
            )
        phase.started, vector = True, None
        if self.understands(request.query):
            phase.in_model = True
            vector = embeddings.embed_query(self.embedding, request.query)
            phase.in_model = False
        answer = self._retrieval(index).search(request, vector)
        self._after_search()
        if self.reranker is not None:
            found = [one.candidates for one in answer.found if one.candidates]
            problem = self.reranker.rerank(request.query, found)
            reranked = bool(found) and problem is None
            answer = replace(answer, reranked=reranked, not_reranked=problem)
        return answer

    def _retrieval(self, index: VectorIndex) -> Retrieval:
        return Retrieval(index, self.embedding, self.state, self._verifier)


def _failure_status(error: Exception) -> L1Status:
    if isinstance(error, StoreTimeoutError):
        return "timeout"
    return "unavailable" if isinstance(error, IndexMissingError) else "failed"
