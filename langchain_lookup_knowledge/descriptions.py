"""L0 without L1: entries ranked by the words of their titles, keywords and entities that stand in the query (BM25)."""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from itertools import zip_longest

from langchain_lookup_knowledge.documents import Entry
from langchain_lookup_knowledge.tokens import cut
from langchain_lookup_knowledge.types import DescribedEntry
from langchain_lookup_knowledge.words import STOP_WORDS

SATURATION = 1.2
LENGTH_WEIGHT = 0.75
"""The two parameters of BM25, k1 and b, at their usual values."""


class DescriptionRanking:
    """The words of the entries' descriptions, ready to rank the entries for a query."""

    def __init__(self, entries: Iterable[Entry]) -> None:
        self._entries: list[Entry] = []
        self._lengths: list[int] = []
        self._holders: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
        for number, entry in enumerate(entries):
            counts = Counter(word for word, _ in _words(entry.description))
            self._entries.append(entry)
            self._lengths.append(counts.total())
            for word, count in counts.items():
                self._holders[word].append((number, count))
        self._mean_length = sum(self._lengths) / max(1, len(self._lengths))

    def rank(self, query: str, limit: int) -> list[DescribedEntry]:
        """Return the best entries, best first, with the words of the query that each is found by."""
        scores: defaultdict[int, float] = defaultdict(float)
        found: defaultdict[int, list[str]] = defaultdict(list)
        for word, written in dict(_words(query)).items():
            holders = self._holders.get(word, ())
            rarity = math.log1p((len(self._entries) - len(holders) + 0.5) / (len(holders) + 0.5))
            for number, count in holders:
                scores[number] += rarity * self._weight(number, count)
                found[number].append(written)
        best = sorted(scores, key=lambda number: (-scores[number], self._entries[number].entry_id))[:limit]
        return [_described(self._entries[number], found[number]) for number in best]

    def _weight(self, number: int, count: int) -> float:
        relative = self._lengths[number] / self._mean_length
        return count * (SATURATION + 1) / (count + SATURATION * (1 - LENGTH_WEIGHT + LENGTH_WEIGHT * relative))


def _described(entry: Entry, words: list[str]) -> DescribedEntry:
    return {"entry_id": entry.entry_id, "title": entry.title, "domains": list(entry.categories), "words": words}


def _words(text: str) -> Iterator[tuple[str, str]]:
    """Yield the words of a text that say something, folded and as written; of a script without blanks, pairs of characters."""
    tokens = list(cut(text))
    for token, following in zip_longest(tokens, tokens[1:]):
        if token.spaceless:
            if following and following.spaceless and following.start == token.end:
                yield token.key + following.key, text[token.start : following.end]
        elif token.key not in STOP_WORDS:
            yield token.key, text[token.start : token.end]
