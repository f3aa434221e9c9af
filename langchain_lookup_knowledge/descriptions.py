"""L0 without L1: entries ranked by the words of their titles, keywords and entities that stand in the query (BM25)."""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from functools import cached_property
from itertools import zip_longest
from typing import NamedTuple

from langchain_lookup_knowledge.documents import Entry
from langchain_lookup_knowledge.tokens import cut
from langchain_lookup_knowledge.types import DescribedEntry
from langchain_lookup_knowledge.words import STOP_WORDS

SATURATION = 1.2
LENGTH_WEIGHT = 0.75
"""The two parameters of BM25, k1 and b, at their usual values."""


class _Counts(NamedTuple):
    """The words of descriptions: how many each has, and which of them hold a word, by number, and how often."""

    lengths: list[int]
    mean_length: float
    holders: dict[str, list[tuple[int, int]]]


class DescriptionRanking:
    """Ranks entries for a query by the words of their descriptions, which are read when the first query comes."""

    def __init__(self, entries: Iterable[Entry]) -> None:
        self._entries = list(entries)

    @cached_property
    def _counts(self) -> _Counts:
        lengths: list[int] = []
        holders: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
        for number, entry in enumerate(self._entries):
            counts = Counter(word for word, _ in telling_words(entry.description))
            lengths.append(counts.total())
            for word, count in counts.items():
                holders[word].append((number, count))
        return _Counts(lengths, sum(lengths) / max(1, len(lengths)), dict(holders))

    def rank(self, query: str, limit: int) -> list[DescribedEntry]:
        """Return the best entries, best first, with the words of the query that each is found by."""
        scores: defaultdict[int, float] = defaultdict(float)
        found: defaultdict[int, list[str]] = defaultdict(list)
        for word, written in dict(telling_words(query)).items():
            holders = self._counts.holders.get(word, ())
            rarity = math.log1p((len(self._entries) - len(holders) + 0.5) / (len(holders) + 0.5))
            for number, count in holders:
                scores[number] += rarity * self._weight(number, count)
                found[number].append(written)
        best = sorted(scores, key=lambda number: (-scores[number], self._entries[number].entry_id))[:limit]
        return [_described(self._entries[number], found[number]) for number in best]

    def _weight(self, number: int, count: int) -> float:
        relative = self._counts.lengths[number] / self._counts.mean_length
        return count * (SATURATION + 1) / (count + SATURATION * (1 - LENGTH_WEIGHT + LENGTH_WEIGHT * relative))


def _described(entry: Entry, words: list[str]) -> DescribedEntry:
    return {"entry_id": entry.entry_id, "title": entry.title, "domains": list(entry.categories), "words": words}


def telling_words(text: str) -> Iterator[tuple[str, str]]:
    """Yield the words of a text that say something, folded and as written; of a script without blanks, pairs of characters."""
    tokens = list(cut(text))
    for token, following in zip_longest(tokens, tokens[1:]):
        if token.spaceless:
            if following and following.spaceless and following.start == token.end:
                yield token.key + following.key, text[token.start : following.end]
        elif STOP_WORDS.isdisjoint((token.key, token.exact)):
            yield token.key, text[token.start : token.end]
