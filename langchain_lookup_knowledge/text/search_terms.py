"""The BM25 terms of a text: its words, and *exact things* such as versions.

An *exact thing* is a run of words joined by one of `. _ - : / @ +`, without spaces: an identifier,
a version, an address, a date, a time, a section number, a file name or a setting. It is a term in
addition to its parts, so that `2.14.3` finds `2.14.3` and not `2.3.14`; a `v` before a number is
ignored. Queries and texts are split into terms by the same function.
"""

import re
from collections.abc import Collection, Iterator
from functools import lru_cache

from langchain_lookup_knowledge.text.tokens import Tokens, cut, is_spaceless
from langchain_lookup_knowledge.text.words import STOP_WORDS

MAX_REMEMBERED = 2000
"""Maximum characters of a text whose terms are cached for later lookups."""
MAX_TERM = 80
"""Maximum characters of an exact thing; if a run is longer, only its parts are terms."""

_JOINERS = frozenset((".", "_", "-", ":", "::", "/", "@", "+"))
_PARTS = re.compile(r"::|[/:@]")
_VERSION = re.compile(r"^v(?=\d)")


def search_terms(text: str) -> list[str]:
    """Return the terms of a text in order, each as often as it occurs.

    Accents and English plural endings are removed; stop words and single letters are left out. In
    scripts written without spaces, the terms are pairs of adjacent characters.
    """
    return [term for term, _, _ in _terms(cut(text))]


def held_terms(text: str, terms: Collection[str]) -> set[str]:
    """Return the given terms that a text contains."""
    all_held = _remembered_terms if len(text) <= MAX_REMEMBERED else _remembered_terms.__wrapped__
    return set(all_held(text).intersection(terms))


@lru_cache(maxsize=2048)
def _remembered_terms(text: str) -> frozenset[str]:
    return frozenset(search_terms(text))


def written_terms(text: str) -> dict[str, str]:
    """Map each term of a text to its first spelling in the text."""
    tokens = cut(text)
    written: dict[str, str] = {}
    for term, first, last in _terms(tokens):
        written.setdefault(term, text[tokens[first].start : tokens[last].end])
    return written


def term_spans(text: str, terms: Collection[str]) -> list[tuple[int, int]]:
    """Return the spans of the given terms in a text, in order and without overlaps.

    A span is [start, end) in code points.
    """
    tokens = cut(text)
    found = sorted(
        (tokens[first].start, tokens[last].end)
        for term, first, last in _terms(tokens)
        if term in terms
    )
    spans: list[tuple[int, int]] = []
    for start, end in found:
        if spans and start < spans[-1][1]:
            spans[-1] = (spans[-1][0], max(end, spans[-1][1]))
        else:
            spans.append((start, end))
    return spans


def is_part(term: str) -> bool:
    """Return whether a term is in a script written without spaces, so it may be part of a word."""
    return is_spaceless(term)


def _terms(tokens: Tokens) -> Iterator[tuple[str, int, int]]:
    """Yield the terms, each with its first and last token."""
    keys, words, gaps = tokens.keys, tokens.exact(), tokens.gaps()
    last = len(keys) - 1
    spaceless = tokens.spaceless()
    run = 0  # the first token of a run of joined words
    for place, (key, word) in enumerate(zip(keys, words, strict=True)):
        if spaceless[place]:
            if place < last and spaceless[place + 1] and not gaps[place + 1]:
                yield key + keys[place + 1], place, place + 1
            elif place == 0 or not spaceless[place - 1] or gaps[place]:
                yield key, place, place
            run = place + 1
            continue
        if (len(key) > 1 or key.isdigit()) and STOP_WORDS.isdisjoint((key, word)):
            is_first = place == run and place < last and gaps[place + 1] == "."
            yield _VERSION.sub("", key) if is_first else key, place, place
        if place < last and gaps[place + 1] in _JOINERS and not spaceless[place + 1]:
            continue
        if run < place:
            joined = (
                *words[run : run + 1],
                *(part for i in range(run + 1, place + 1) for part in (gaps[i], words[i])),
            )
            for thing in _exact_things("".join(joined)):
                yield thing, run, place
        run = place + 1


def parts_of(terms: Collection[str]) -> set[str]:
    """Return the parts of all exact things among the terms, such as `14` for `2.14.3`."""
    whole = [term for term in terms if is_exact(term) and not term.isdigit()]
    return {part for term in whole for part in search_terms(term) if part != term}


def inner_numbers(text: str) -> set[str]:
    """Return the numbers that a text has only within exact things, such as `14` for `2.14.3`, but
    not for `page 14 of 2.14.3`.
    """
    found = list(_terms(cut(text)))
    within = {place for _, first, last in found for place in range(first, last + 1) if first < last}
    apart = {term for term, first, last in found if first == last and first not in within}
    return {part for part in parts_of([term for term, _, _ in found]) - apart if part.isdigit()}


@lru_cache(maxsize=4096)
def is_exact(term: str) -> bool:
    """Return whether a term must match exactly: it is an exact thing or contains a digit."""
    return any(not character.isalpha() for character in term)


def is_respelled(code: str, other: str) -> bool:
    """Return whether two codes, which contain digits, differ only in their separators."""
    first, second = code.casefold(), other.casefold()
    bare = [character for character in first if character.isalnum()]
    is_alike = bare == [character for character in second if character.isalnum()]
    return is_alike and first != second and any(map(str.isdigit, bare))


def _exact_things(run: str) -> Iterator[str]:
    """Yield the exact things in a run of joined words.

    These are the run itself, and each part between `/`, `:` and `@` that is a run, too.
    """
    parts = _PARTS.split(run)
    for part in (run, *(parts if len(parts) > 1 else ())):
        thing = _VERSION.sub("", part)
        if len(thing) <= MAX_TERM and any(not character.isalnum() for character in thing):
            yield thing
