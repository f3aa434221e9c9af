"""Converting the indexes of L0 to plain values, to keep them on disk, and back."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from langchain_lookup_knowledge.l0.glossary import HouseWords
from langchain_lookup_knowledge.l0.hints import HintIndex
from langchain_lookup_knowledge.l0.matcher import Form, Matcher, Term
from langchain_lookup_knowledge.l0.metadata_search import WordCounts
from langchain_lookup_knowledge.l0.term_index import TermIndex
from langchain_lookup_knowledge.reading.entry import Entry
from langchain_lookup_knowledge.reading.glossary_file import GlossaryTerm

BLOCK = 5_000
"""Number of terms in a block."""


def packed_hints(index: HintIndex) -> Iterator[list[Any]]:
    """Yield the terms of an index, with the counts of each, in blocks."""
    places = {entry_id: place for place, entry_id in enumerate(index.entries)}
    numbers: dict[int, int] = {}
    block: list[Any] = []
    for keys, bucket in index.matcher.forms.items():
        forms: list[Any] = []
        for form in bucket:
            term: Term | int = form.term
            number = numbers.get(id(term))
            if number is None:
                numbers[id(term)] = len(numbers)
                packed: Any = _packed_term(form.term, index.terms.counts(form.term), places)
            else:
                packed = number
            exact = None if form.exact == keys else form.exact
            forms.append([packed, exact, form.gaps, form.before, form.after])
        block.append([keys, forms])
        if len(block) == BLOCK:
            yield block
            block = []
    yield block


def _packed_term(term: Term, counts: tuple[int, int], places: Mapping[str, int]) -> list[Any]:
    entries = [places[entry_id] for entry_id in term.entries]
    return [term.text, term.field, term.cased, entries, *counts, term.variants, term.lost]


def unpacked_hints(
    blocks: Iterable[Sequence[Any]], entries: Sequence[Entry], case_sensitive: Iterable[str]
) -> HintIndex:
    """Return the index of these entries from the plain values that `packed_hints` made."""
    matcher, terms = Matcher(), list[Term]()
    ids = [entry.entry_id for entry in entries]
    for block in blocks:
        for written, forms in block:
            keys = tuple(written)
            for packed, exact, gaps, before, after in forms:
                if isinstance(packed, int):
                    term = terms[packed]
                else:
                    text, field, cased, held, frequency, inside, variants, lost = packed
                    term = Term(text, field, cased, [ids[place] for place in held])
                    term.document_frequency, term.inside = frequency, inside
                    term.variants, term.lost = variants, tuple([tuple(one) for one in lost])
                    for one in term.lost:
                        matcher.lost.setdefault(one, []).append(term)
                    terms.append(term)
                same = keys if exact is None else tuple(exact)
                matcher.add(keys, Form(term, same, tuple(gaps), before, after))
    return HintIndex.of(TermIndex(entries, case_sensitive, matcher))


def packed_words(words: HouseWords) -> list[Any]:
    """Return the abbreviations that entries explain and contain, as plain values."""
    found = {name: [list(term) for term in terms] for name, terms in words.found.items() if terms}
    used = {name: sorted(shorts) for name, shorts in words.used.items() if shorts}
    return [found, used]


def unpacked_words(packed: Sequence[Any], entries: Iterable[Entry]) -> HouseWords:
    """Return the words of these entries, without those of a glossary."""
    found, used = packed
    texts = {entry.entry_id: entry.text for entry in entries}
    return HouseWords(
        found={
            name: [GlossaryTerm(word, tuple(forms)) for word, forms in found.get(name, ())]
            for name in texts
        },
        used={name: frozenset(used.get(name, ())) for name in texts},
        texts=texts,
    )


def packed_counts(counts: WordCounts) -> list[Any]:
    """Return the inverted index of the metadata as plain values."""
    arrays = (counts.starts, counts.numbers, counts.counts, counts.lengths)
    return [list(counts.words), *(array.tobytes() for array in arrays)]


def unpacked_counts(packed: Sequence[Any]) -> WordCounts:
    """Return the inverted index from the plain values that `packed_counts` made."""
    words, starts, *others = packed
    numbers, counts, lengths = (np.frombuffer(array, np.int32) for array in others)
    places = {word: place for place, word in enumerate(words)}
    return WordCounts(places, np.frombuffer(starts, np.int64), numbers, counts, lengths)
