"""Metadata search: entries ranked by the words that their frontmatter shares with a query (BM25).

It answers lookups in which L1 is not used.
"""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import NamedTuple, Self, TypeAlias

import numpy as np
import numpy.typing as npt

from langchain_lookup_knowledge.l0.hints import GLOSSARY_WEIGHT
from langchain_lookup_knowledge.reading.entry import Entry
from langchain_lookup_knowledge.text.tokens import cut
from langchain_lookup_knowledge.text.words import STOP_WORDS
from langchain_lookup_knowledge.types import GlossaryJoin, MetadataHit

SATURATION = 1.2
"""The parameter k1 of BM25, at its usual value."""
LENGTH_WEIGHT = 0.75
"""The parameter b of BM25, at its usual value."""
_BLOCK = 256
"""Number of scores in a block; at first, only the best score of each block is compared."""

Numbers: TypeAlias = npt.NDArray[np.int32]
Scores: TypeAlias = npt.NDArray[np.float64]


class _Word(NamedTuple):
    """A word of a query: its spelling there, and the entries with it, each with its score."""

    written: str
    numbers: Numbers
    scores: Scores


@dataclass(frozen=True, slots=True)
class WordCounts:
    """An inverted index of the words of entries, in arrays.

    `words` numbers the words, and entries are numbered in the order of their ids. The entries with
    the word `w` are `numbers[starts[w] : starts[w + 1]]`, and `counts` says how often each has it.
    `lengths`: the number of words of each entry.
    """

    words: Mapping[str, int]
    starts: npt.NDArray[np.int64]
    numbers: Numbers
    counts: Numbers
    lengths: Numbers

    @classmethod
    def of(cls, entries: Sequence[Entry], before: "WordCounts", places: Sequence[int]) -> Self:
        """Count the words of entries, which are in the order of their ids. For each entry, `places`
        has its number in the counts `before`, or -1 if these do not include it.
        """
        words = dict(before.words)
        found: list[int] = []
        counts: list[int] = []
        numbers: list[int] = []
        kept = np.array(places, np.int32)
        is_kept = kept >= 0
        lengths = np.zeros(len(entries), np.int32)
        lengths[is_kept] = before.lengths[kept[is_kept]]
        for number in np.flatnonzero(~is_kept).tolist():
            own = Counter(word for word, _ in content_words(_searched(entries[number])))
            found += [words.setdefault(word, len(words)) for word in own]
            counts += own.values()
            numbers += [number] * len(own)
            lengths[number] = own.total()
        moved = np.full(len(before.lengths), -1, np.int32)
        moved[kept[is_kept]] = np.flatnonzero(is_kept)
        stays = moved[before.numbers] >= 0
        known = np.repeat(np.arange(len(before.words)), np.diff(before.starts))[stays]
        of_words = np.concatenate([known, np.array(found, np.int64)])
        all_numbers = np.concatenate([moved[before.numbers[stays]], np.array(numbers, np.int32)])
        all_counts = np.concatenate([before.counts[stays], np.array(counts, np.int32)])
        order = np.argsort(of_words * max(1, len(entries)) + all_numbers, kind="stable")
        starts = np.zeros(len(words) + 1, np.int64)
        np.cumsum(np.bincount(of_words, minlength=len(words)), out=starts[1:])
        return cls(words, starts, all_numbers[order], all_counts[order], lengths)


_NO_COUNTS = WordCounts({}, np.zeros(1, np.int64), *[np.zeros(0, np.int32)] * 3)


class MetadataSearch:
    """Ranks entries by words of their frontmatter.

    Args:
        entries: the entries by id.
        whole: a search over these entries and others: its counts of words are used again, but the
            other entries do not affect the results.
        counts: the words of these entries, if they are known.
        before: a search over an earlier state of the entries; unchanged ones are not counted again.
    """

    def __init__(
        self,
        entries: Mapping[str, Entry],
        whole: "MetadataSearch | None" = None,
        *,
        counts: WordCounts | None = None,
        before: "MetadataSearch | None" = None,
    ) -> None:
        self._entries = entries
        self._is_kept: npt.NDArray[np.bool_] | None = None
        if whole is None:
            self._ids = sorted(entries)
            self.counts = counts or self._counted(before)
            lengths = self.counts.lengths
        else:
            self._ids, self.counts = whole._ids, whole.counts
            self._is_kept = np.fromiter((i in entries for i in self._ids), bool, len(self._ids))
            lengths = self.counts.lengths[self._is_kept]
        relative = self.counts.lengths / (lengths.sum() / max(1, len(lengths)) or 1.0)
        self._slowness = SATURATION * (1 - LENGTH_WEIGHT + LENGTH_WEIGHT * relative)
        if whole is None:
            self._weights = self._weighted(self.counts.numbers, self.counts.counts)

    def _counted(self, before: "MetadataSearch | None") -> WordCounts:
        entries = [self._entries[entry_id] for entry_id in self._ids]
        if before is None or before._is_kept is not None:
            return WordCounts.of(entries, _NO_COUNTS, [-1] * len(entries))
        known = {entry_id: place for place, entry_id in enumerate(before._ids)}
        places = [
            known[entry.entry_id]
            if entry.entry_id in known and _parts(before._entries[entry.entry_id]) == _parts(entry)
            else -1
            for entry in entries
        ]
        is_same = places == list(range(len(before._ids)))
        return before.counts if is_same else WordCounts.of(entries, before.counts, places)

    def _weighted(self, numbers: Numbers, counts: Numbers) -> Scores:
        weights: Scores = counts * (SATURATION + 1) / (counts + self._slowness[numbers])
        return weights

    def search(
        self, query: str, limit: int, joins: Sequence[GlossaryJoin] = ()
    ) -> list[MetadataHit]:
        """Return at most `limit` entries, best first, with the words of the query that match.

        Words from other forms in the glossary (`joins`) count less than words of the query.
        """
        own = dict(content_words(query))
        forms = " ".join(form for join in joins for form in join["forms"])
        scores = np.zeros(-(-len(self._ids) // _BLOCK) * _BLOCK)
        found: list[_Word] = []
        for word, written in {**dict(content_words(forms)), **own}.items():
            weight = 1.0 if word in own else GLOSSARY_WEIGHT
            if one := self._holders(word, written, weight):
                scores[one.numbers] += one.scores
                found.append(one)
        return [
            self._hit(number, [word.written for word in found if _holds(word.numbers, number)])
            for number in (_best(scores, limit) if found else ())
        ]

    def _holders(self, word: str, written: str, weight: float) -> _Word | None:
        index, number = self.counts, self.counts.words.get(word)
        if number is None:
            return None
        place = slice(index.starts[number], index.starts[number + 1])
        numbers = index.numbers[place]
        if self._is_kept is None:
            weights = self._weights[place]
        else:
            is_kept = self._is_kept[numbers]
            numbers = numbers[is_kept]
            weights = self._weighted(numbers, index.counts[place][is_kept])
        entries = len(self._entries)
        rarity = math.log1p((entries - len(numbers) + 0.5) / (len(numbers) + 0.5))
        return _Word(written, numbers, weight * rarity * weights)

    def _hit(self, number: int, words: list[str]) -> MetadataHit:
        entry = self._entries[self._ids[number]]
        return {
            "entry_id": entry.entry_id,
            "title": entry.title,
            "categories": list(entry.categories),
            "words": words,
        }


def _best(scores: Scores, limit: int) -> list[int]:
    """Return the places of the best scores above 0, best first; among equal scores, the first one
    wins.

    The blocks with the highest scores give a bound that each of the best reaches.
    """
    blocks = scores.reshape(-1, _BLOCK).max(axis=1)
    bound = np.partition(blocks, len(blocks) - limit)[-limit] if 0 < limit < len(blocks) else 0.0
    places = np.flatnonzero(scores >= bound if bound > 0 else scores > 0)
    order = np.argsort(-scores[places], kind="stable")
    return [int(place) for place in places[order][:limit]]


def _holds(numbers: Numbers, number: int) -> bool:
    place = np.searchsorted(numbers, number)
    return bool(place < len(numbers) and numbers[place] == number)


def _parts(entry: Entry) -> tuple[object, ...]:
    """Return the values that the result of `_searched` depends on."""
    declared = entry.title, entry.keywords, entry.entities, entry.other_values
    return *declared, entry.lead, entry.text


def _searched(entry: Entry) -> str:
    return f"{entry.frontmatter_text}\n{entry.lead_text}"


def content_words(text: str) -> Iterator[tuple[str, str]]:
    """Yield the words of a text that are not stop words, each as (folded, as written).

    In scripts written without spaces, pairs of adjacent characters take the place of words.
    """
    tokens = list(cut(text))
    for token, following in zip_longest(tokens, tokens[1:]):
        if token.spaceless:
            if following and following.spaceless and following.start == token.end:
                yield token.key + following.key, text[token.start : following.end]
        elif STOP_WORDS.isdisjoint((token.key, token.exact)):
            yield token.key, text[token.start : token.end]
