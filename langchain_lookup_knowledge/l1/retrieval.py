"""Searching an index, and verifying what it finds."""

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from langchain_core.embeddings import Embeddings

from langchain_lookup_knowledge.errors import (
    IndexMissingError,
    StoreError,
    StoreForbiddenError,
    StoreUnreachableError,
)
from langchain_lookup_knowledge.l1 import fusion
from langchain_lookup_knowledge.l1.candidates import (
    brand_of,
    candidates,
    choose,
    is_seen_among,
    point_ids,
)
from langchain_lookup_knowledge.l1.fusion import PointId
from langchain_lookup_knowledge.l1.index_state import DIFFERING, NO_INDEX_YET, IndexState
from langchain_lookup_knowledge.l1.models import embeddings
from langchain_lookup_knowledge.l1.requests import L1Request, payload_filter
from langchain_lookup_knowledge.l1.stores.fingerprints import (
    brand,
    check_fingerprint,
    fingerprint,
    is_older,
)
from langchain_lookup_knowledge.l1.stores.qdrant.existing_collection import ExistingCollection
from langchain_lookup_knowledge.l1.stores.vector_index import SearchResponse, VectorIndex
from langchain_lookup_knowledge.l1.verification import PassageVerifier
from langchain_lookup_knowledge.types import Candidate

logger = logging.getLogger("langchain_lookup_knowledge")

MAX_INDEXES = 3
"""Maximum searches of a lookup: another search follows if the index turns out to be older, or
newer, than the last search assumed.
"""


@dataclass(frozen=True, slots=True)
class _Ranking:
    """The ranking in one category: the lists, the entries to show, the number of entries above the
    minimum similarity, and the best cosine.
    """

    found: fusion.Ranked
    chosen: list[fusion.RankedEntry]
    entries: int
    best_similarity: float | None


@dataclass(frozen=True, slots=True)
class Found:
    """The answer in one category: the best candidates, the number of entries above the minimum
    similarity, and the best cosine.
    """

    candidates: list[Candidate]
    entries: int
    best_similarity: float | None
    terms: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer of a search, by category.

    `by_meaning`: whether words were not searched, because an older version of this package built
    the index. `differing`: whether passages were left out because they are not in the text of their
    entry. `of_other_state`: whether passages are from another state of their entry than that in
    memory, whose text does not hold them. `not_reranked`: why the reranker did not order the
    passages; None if it did, or if no reranker is used. `caveat`: a caveat of the index, or None.
    """

    found: list[Found]
    by_meaning: bool
    differing: bool = False
    of_other_state: bool = False
    reranked: bool = False
    not_reranked: str | None = None
    caveat: str | None = None


@dataclass(frozen=True, slots=True)
class Retrieval:
    """Finds passages in an index, and leaves out those that are not in the text of their entry.

    `embedding`: the model the index was built with. `state`: whether the index matches the folder.
    """

    index: VectorIndex
    embedding: Embeddings
    state: IndexState
    verifier: PassageVerifier

    def search(self, request: L1Request, vector: Sequence[float] | None) -> Answer:
        """Return the candidates of each category; without a vector, they are found by words alone.

        An index built by an older version of this package encodes terms differently, so it is
        searched by meaning alone. It is recognized by the brand (fingerprint hash) of the passages
        it returns. Another process may replace the index between two searches.
        """
        dimensions = self._dimensions(vector)
        ours = None if self.index.read_only else brand(fingerprint(self.embedding, dimensions))
        for _ in range(MAX_INDEXES):
            older = self.state.older
            rankings, stored, caveat = self._read(request, vector, by_meaning=older is not None)
            brands = {brand_of(payload) for payload in stored.values()}
            if not brands or (older or ours) in brands:
                break
            self.state.older = None if ours in brands else self._older(brands, dimensions)
            if self.state.older == older:
                break
            if self.state.older and self.state.progress is None:
                logger.warning("%s", self.state.outdated)
        compared = None if older or self.index.read_only else request.entries
        sound, foreign, differing, others = self.verifier.verify(stored, older or ours, compared)
        if foreign:
            if not vector and self._has_other_dimensions(dimensions):
                return self.search(request, vector)
            self._diagnose(dimensions)
        if not differing <= self.state.differing:
            self.state.differing |= differing
            logger.warning("%s", DIFFERING)
        if request.scope:
            seen = request.entries if request.visible is None else request.visible
            sound = {i: payload for i, payload in sound.items() if is_seen_among(payload, seen)}
        found = [
            Found(
                candidates(ranking.chosen, sound),
                ranking.entries,
                ranking.best_similarity,
                {term: len(hits) for term, hits in ranking.found.terms.items()},
            )
            for ranking in rankings
        ]
        return Answer(
            found,
            by_meaning=older is not None,
            differing=bool(differing),
            of_other_state=not others.isdisjoint(sound),
            caveat=caveat,
        )

    def _older(self, brands: Collection[str | None], dimensions: int) -> str | None:
        """Return the brand (fingerprint hash) of an index built by an older version of this
        package, or None for any other index.
        """
        found = self.index.fingerprint()
        if found is None or not is_older(found, self.embedding, dimensions):
            return None
        older = brand(found)
        return older if older in brands else None

    def _read(
        self,
        request: L1Request,
        vector: Sequence[float] | None,
        *,
        by_meaning: bool,
    ) -> tuple[list[_Ranking], dict[PointId, Mapping[str, Any]], str | None]:
        """Return the ranking of each category, the stored payloads of the passages to show, and a
        caveat of the index.
        """
        if isinstance(self.index, ExistingCollection):
            self.index.learn_entries(request.entries)
        understood = self._understands(request.query)
        words = "" if by_meaning else request.query
        response = self._response(request, vector if understood else None, words)
        min_similarity = request.min_similarity if understood else None
        rankings = []
        for found in response.lists:
            ranked = fusion.rank(
                found, embeddings.medium_similarity(self.embedding), len(request.entries)
            )
            if request.scope or request.conditions:
                ranked = [entry for entry in ranked if entry.entry_id in request.entries]
            kept = fusion.above(ranked, min_similarity)
            best = max((e.similarity for e in ranked if e.similarity is not None), default=None)
            rankings.append(_Ranking(found, choose(kept, found, request.limit), len(kept), best))
        shown = {i for ranking in rankings for i in point_ids(ranking.chosen)}
        return rankings, response.payloads(shown), response.caveat

    def _dimensions(self, vector: Sequence[float] | None) -> int:
        """Return the vector size of the model: the size of `vector`, else the last size seen. The
        index is asked only if no size has been seen yet.
        """
        if vector:
            self.state.dimensions = len(vector)
        elif not self.state.dimensions and (found := self.index.fingerprint()):
            self.state.dimensions = int(found["dimensions"])
        return self.state.dimensions

    def _has_other_dimensions(self, known: int) -> bool:
        """Ask the index for its vector size again; another process may have replaced it."""
        self.state.dimensions = 0
        return self._dimensions(None) != known

    def _response(
        self, request: L1Request, vector: Sequence[float] | None, words: str
    ) -> SearchResponse:
        """Return the ranked lists of each category, without dense lists if there is no vector."""
        filters = [payload_filter(self.index, category, request) for category in request.categories]
        try:
            if words and request.glossary:
                return self.index.search(
                    vector, words, filters, fusion.LIST_LENGTH, glossary=request.glossary
                )
            return self.index.search(vector, words, filters, fusion.LIST_LENGTH)
        except (StoreUnreachableError, StoreForbiddenError):
            raise
        except IndexMissingError as error:
            raise IndexMissingError(self.state.failure or str(error)) from error
        except StoreError:
            self._diagnose(self._dimensions(vector))
            raise

    def _diagnose(self, dimensions: int) -> None:
        """Raise a more helpful error than that of the search, if the index is missing or
        incompatible.
        """
        found = self.index.fingerprint()
        if found is None:
            raise IndexMissingError(self.state.failure or NO_INDEX_YET)
        check_fingerprint(self.index, self.embedding, found, dimensions)

    def _understands(self, text: str) -> bool:
        return embeddings.understands(self.embedding, text, self.state.language)
