"""Rerankers: a LangChain document compressor, or a FastEmbed cross-encoder by name."""

import logging
import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, cast

from langchain_core.documents import BaseDocumentCompressor, Document

from langchain_lookup_knowledge.errors import (
    EmbeddingError,
    LookupKnowledgeError,
    StoreTimeoutError,
)
from langchain_lookup_knowledge.l1.circuit_breaker import CircuitBreaker
from langchain_lookup_knowledge.l1.deadlines import ThreadPool, remaining
from langchain_lookup_knowledge.l1.models.embeddings import unknown_name
from langchain_lookup_knowledge.l1.models.local_model import LocalModel
from langchain_lookup_knowledge.l1.models.native import native_calls
from langchain_lookup_knowledge.types import Candidate, CandidatePassage, L1Status

if TYPE_CHECKING:
    from fastembed.rerank.cross_encoder import TextCrossEncoder

logger = logging.getLogger("langchain_lookup_knowledge")

RESERVE = 0.1
"""Share of the remaining time that is reserved for answering without the reranker if it is late.
"""
MAX_SECONDS = 3600.0
"""Maximum seconds of a call, even if the lookup has no time limit."""
BATCH_SIZE = 8
"""Number of passages that a cross-encoder reads at once."""
_PLACE = "lookup_knowledge_place"
"""Metadata key for the position of a document in the input of a compressor."""


class Scorer(Protocol):
    """An object that scores how well texts answer a query."""

    def load(self, *, download: bool = False) -> object:
        """Load the model before the first query; a model that is not on this machine is fetched
        only with `download`.
        """

    def scores(self, query: str, texts: Sequence[str]) -> list[float]:
        """Return a score for each text, higher is better; minus infinity for a dropped text."""


class CompressorScorer:
    """Scores texts with a LangChain `BaseDocumentCompressor`, by the order of the documents it
    returns; dropped texts are last.

    If all returned documents have a `relevance_score` in their metadata, these scores decide the
    order.
    """

    def __init__(self, compressor: BaseDocumentCompressor) -> None:
        self._compressor = compressor

    def load(self, *, download: bool = False) -> None:
        """Do nothing: a compressor is already loaded, or loads itself."""

    def scores(self, query: str, texts: Sequence[str]) -> list[float]:
        """Return a score for each text.

        Raises:
            EmbeddingError: the compressor returned a document that it was not given.
        """
        documents = [
            Document(page_content=text, metadata={_PLACE: place})
            for place, text in enumerate(texts)
        ]
        kept = list(self._compressor.compress_documents(documents, query))
        given = [document.metadata.get("relevance_score") for document in kept]
        if all(_is_number(score) for score in given):
            kept.sort(key=lambda document: -float(document.metadata["relevance_score"]))
        places = {text: place for place, text in enumerate(texts)}
        scores = [-math.inf] * len(texts)
        for rank, document in enumerate(kept):
            place = document.metadata.get(_PLACE, places.get(document.page_content))
            if type(place) is not int or not 0 <= place < len(texts):
                raise EmbeddingError("the reranker returned a document that it was not given")
            scores[place] = max(scores[place], float(-rank))
        return scores


def _is_number(value: object) -> bool:
    try:
        return value is not None and math.isfinite(cast(Any, value))
    except TypeError:
        return False


class CrossEncoderScorer:
    """A FastEmbed cross-encoder, loaded at first use.

    Args:
        name: one from `TextCrossEncoder.list_supported_models()`.

    Raises:
        EmbeddingError: on first use, if the model cannot be loaded.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._model: LocalModel[TextCrossEncoder] = LocalModel(
            self._load, name=f"the reranker {name!r}", fix="call kb.sync() with network once"
        )

    def load(self, *, download: bool = False) -> "TextCrossEncoder":
        """Load and return the model; a model that is not on this machine is fetched only with
        `download`.
        """
        return self._model.get(download=download)

    def _load(self, download: bool) -> "TextCrossEncoder":
        from fastembed.rerank.cross_encoder import TextCrossEncoder  # noqa: PLC0415  (0.4 s)

        if unknown := _unknown(self._name):
            raise EmbeddingError(unknown)
        return TextCrossEncoder(self._name, local_files_only=not download)

    def scores(self, query: str, texts: Sequence[str]) -> list[float]:
        """Return the score that the model gives each text."""
        return [float(score) for score in self.load().rerank(query, texts, batch_size=BATCH_SIZE)]


class Reranker:
    """Orders passages within the remaining time of a lookup; after repeated failures, it is skipped
    for a while.

    Args:
        scorer: scores the passages.
        breaker: stops calls after repeated failures.
    """

    def __init__(self, scorer: Scorer, *, breaker: CircuitBreaker | None = None) -> None:
        self._scorer = scorer
        self._breaker = breaker or CircuitBreaker(name="the reranker")
        self._workers = ThreadPool()

    def load(self, *, download: bool = False) -> None:
        """Load the model.

        Raises:
            EmbeddingError: the model cannot be loaded.
        """
        self._scorer.load(download=download)

    def rerank(self, query: str, lists: Sequence[list[Candidate]]) -> str | None:
        """Order the candidates of each list, and their passages, by the reranker.

        The existing scores are reassigned in the new order, so that they are still comparable with
        the scores of hints. The rank of an entry is that of its best passage.

        Returns:
            The reason why the reranker did not decide the order, or None if it did.
        """
        texts = list(
            dict.fromkeys(_text(c, p) for found in lists for c in found for p in c["passages"])
        )
        if not texts:
            return None
        if not self._breaker.allow_request():
            return f"the passages were not reranked: {self._breaker.refusal()}"
        try:
            seconds = min(MAX_SECONDS, remaining() * (1 - RESERVE))
            scores = self._workers.run(partial(self._scores, query, texts), max(0.0, seconds))
        except Exception as error:  # noqa: BLE001  (any failure keeps the existing order)
            return self._failed(error)
        self._breaker.record_success()
        for found in lists:
            found[:] = _ordered(found, scores)
        return None

    def _scores(self, query: str, texts: Sequence[str]) -> dict[str, float]:
        with native_calls.running():
            scores = self._scorer.scores(query, texts)
        if len(scores) != len(texts) or any(math.isnan(score) for score in scores):
            raise EmbeddingError("the reranker did not return a usable score for each passage")
        return dict(zip(texts, scores, strict=True))

    def _failed(self, error: Exception) -> str:
        logger.debug("the reranker failed", exc_info=error)
        if isinstance(error, StoreTimeoutError):
            reason = "the reranker did not finish in time"
        elif isinstance(error, LookupKnowledgeError):
            reason = str(error)
        else:
            reason = f"the reranker failed with {type(error).__name__}"
        status: L1Status = "timeout" if isinstance(error, StoreTimeoutError) else "failed"
        self._breaker.record_failure(status, reason, counts=True)
        return f"the passages were not reranked: {reason}"

    def close(self) -> None:
        """End the idle threads; the next call starts a new one."""
        self._workers.shutdown()


def as_reranker(rerank: BaseDocumentCompressor | str | None) -> Reranker | None:
    """Return the reranker for an argument: a string is the name of a FastEmbed cross-encoder.

    Raises:
        ValueError: FastEmbed knows no cross-encoder of this name, or `rerank` is neither a string
            nor a `BaseDocumentCompressor`.
    """
    if rerank is None:
        return None
    if isinstance(rerank, BaseDocumentCompressor):
        return Reranker(CompressorScorer(rerank))
    if isinstance(rerank, str):
        if unknown := _unknown(rerank):
            raise ValueError(unknown)
        return Reranker(CrossEncoderScorer(rerank))
    raise ValueError(
        "rerank takes a LangChain BaseDocumentCompressor or the name of a FastEmbed "
        f"cross-encoder, not {type(rerank).__name__}"
    )


def _unknown(name: str) -> str | None:
    """Return the message for a cross-encoder that FastEmbed does not know, or None."""
    from fastembed.rerank.cross_encoder import TextCrossEncoder  # noqa: PLC0415

    known = [model["model"] for model in TextCrossEncoder.list_supported_models()]
    return None if name.lower() in map(str.lower, known) else unknown_name("reranker", name, known)


def _text(candidate: Candidate, passage: CandidatePassage) -> str:
    """Return a passage with its title and heading in front, as it was embedded."""
    above = " > ".join(dict.fromkeys(filter(None, (candidate["title"], passage["heading"]))))
    return f"{above}\n{passage['text']}"


def _ordered(found: Sequence[Candidate], scores: Mapping[str, float]) -> list[Candidate]:
    """Return candidates in the order of the scores of their texts; ties keep the existing order."""
    pairs = [(candidate, passage) for candidate in found for passage in candidate["passages"]]
    pairs.sort(key=lambda pair: (-scores[_text(*pair)], -pair[1]["score"]))
    values = _distinct([passage["score"] for _, passage in pairs])
    passages: dict[str, list[CandidatePassage]] = {}
    for (candidate, passage), value in zip(pairs, values, strict=True):
        passages.setdefault(candidate["entry_id"], []).append({**passage, "score": value})
    entries = {candidate["entry_id"]: candidate for candidate in found}
    values = _distinct([candidate["score"] for candidate in found])
    return [
        {**entries[entry_id], "score": value, "passages": own}
        for (entry_id, own), value in zip(passages.items(), values, strict=True)
    ]


def _distinct(scores: Sequence[float]) -> list[float]:
    """Return scores in descending order, made distinct, so that ties cannot change the order."""
    rising: list[float] = []
    for score in sorted(scores):
        rising.append(round(max(score, rising[-1] + 1e-6 if rising else score), 6))
    return rising[::-1]
