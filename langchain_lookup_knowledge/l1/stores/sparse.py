"""BM25 as sparse vectors, encoded the same for every index; the index itself applies IDF."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple
from zlib import crc32

from langchain_lookup_knowledge.text.search_terms import is_exact, search_terms

K1, B = 1.2, 0.75
"""The usual BM25 parameters: saturation of repeated terms, and normalization by length.
"""
AVERAGE_TERMS: Mapping[str, int] = {"passage": 65, "entry": 700, "frontmatter": 8}
"""Typical number of terms per vector; it is constant, so that a growing index need not be
rewritten.
"""
MAX_QUERY_TERMS = 64
"""Maximum terms of a query; later ones are ignored."""
MAX_SINGLE_TERMS = 16
"""Maximum terms of a query that are searched individually: exact terms and long words first."""


class SparseVector(NamedTuple):
    """The nonzero values of a vector, by their positions."""

    indices: list[int]
    values: list[float]


def encode_document(text: str, vector: str) -> SparseVector:
    """Return the sparse vector of a text: its terms with their BM25 weights, without IDF. `vector`
    is the vector name; it selects the average length.
    """
    counts = Counter(map(_place, search_terms(text)))
    length = 1 - B + B * counts.total() / AVERAGE_TERMS[vector]
    places = sorted(counts)
    return SparseVector(places, [counts[p] * (K1 + 1) / (counts[p] + K1 * length) for p in places])


def query_terms(text: str) -> list[str]:
    """Return the distinct terms to search for, in the order of the query."""
    terms = list(dict.fromkeys(search_terms(text)))
    if len(terms) > MAX_QUERY_TERMS:  # keep exact terms, even late ones
        terms.sort(key=lambda term: not is_exact(term))
    return terms[:MAX_QUERY_TERMS]


def single_terms(terms: Iterable[str]) -> list[str]:
    """Return the terms to search individually, to find the passages that contain each of them."""
    return sorted(terms, key=lambda term: (not is_exact(term), -len(term), term))[:MAX_SINGLE_TERMS]


def encode_query(terms: Iterable[str]) -> SparseVector:
    """Return the vector that finds any of the terms."""
    places = sorted({_place(term) for term in terms})
    return SparseVector(places, [1.0] * len(places))


def _place(term: str) -> int:
    return crc32(term.encode("utf-8", "surrogatepass"))
