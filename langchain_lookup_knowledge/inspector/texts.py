"""Prepare recorded text for pages: escape control characters, mark terms, group queries."""

import re
import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from markupsafe import Markup

from langchain_lookup_knowledge.l0.metadata_search import content_words
from langchain_lookup_knowledge.text.wording import shorten
from langchain_lookup_knowledge.text.words import COMMON_WORDS

_JOINERS = "\u200c\u200d"
"""Format characters that scripts and emoji need.

Other format characters may reverse text, so pages show their code points instead.
"""

_CODES = re.compile(r"((?<![\w-])(?=[\w-]{3,24}(?![\w-]))(?=[\w-]*\d)\w+(?:-\w+)+)")
"""Short words joined by hyphens, of which one has a digit."""


def shown(text: object, limit: int = 200) -> str:
    """Cut a text to `limit` characters and write control and bidi characters as `[U+202E]`."""
    return "".join(map(_visible, shorten(str(text), limit)))


def shown_lines(text: str) -> Markup:
    """Return an escaped text in which line breaks are kept."""
    return Markup("\n").join(
        Markup("{}").format("".join(map(_visible, line))) for line in text.split("\n")
    )


def whole(text: str) -> Markup:
    """Return an escaped text whose codes, such as E-4711, are never broken over two lines."""
    kinds = (Markup("{}"), Markup('<span class="quoted">{}</span>'))
    parts = _CODES.split(text)
    return Markup("").join(kinds[place % 2].format(part) for place, part in enumerate(parts))


def _visible(character: str) -> str:
    if character in "\t\n\r":
        return " "
    hidden = (
        unicodedata.category(character) in ("Cc", "Cf", "Cs", "Zl", "Zp")
        and character not in _JOINERS
    )
    return f"[U+{ord(character):04X}]" if hidden else character


def marked(query: str, terms: Sequence[Mapping[str, Any]], limit: int = 2000) -> Markup:
    """Return a query with its terms marked."""
    query = shorten(query, limit)
    places = sorted(
        {0, len(query), *(min(place, len(query)) for term in terms for place in term["span"])}
    )
    parts = []
    for start, end in pairwise(places):
        text = shown(query[start:end], limit)
        here = [term for term in terms if term["span"][0] <= start and end <= term["span"][1]]
        if not here:
            parts.append(Markup("{}").format(text))
            continue
        kind = "specific" if any(term["specific"] for term in here) else "common"
        parts.append(Markup('<mark class="{}">{}</mark>').format(kind, text))
    return Markup("").join(parts)


def by_shared_terms(queries: Sequence[tuple[str, int]]) -> list[dict[str, Any]]:
    """Group queries that share a word; queries that share no word with others come last.

    Groups of frequently asked words come first; stop words count less. Each group has `terms`, the
    words that all its queries share; `queries`, each with how often it was asked; and `times`, the
    sum of these counts.
    """
    left = {query: (times, dict(content_words(query))) for query, times in queries}
    groups = []
    while left:
        weights: Counter[str] = Counter()
        spread = Counter(word for _, words in left.values() for word in words)
        for times, words in left.values():
            weights.update(
                {
                    word: times if word in COMMON_WORDS else 3 * times
                    for word in words
                    if spread[word] > 1
                }
            )
        word = min(weights, key=lambda word: (-weights[word], word), default=None)
        chosen = {query: found for query, found in left.items() if word is None or word in found[1]}
        first, *others = (words for _, words in chosen.values())
        terms = [
            written
            for key, written in first.items()
            if word and all(key in other for other in others)
        ]
        asked = [(query, times) for query, (times, _) in chosen.items()]
        groups.append({"terms": terms, "queries": asked, "times": sum(times for _, times in asked)})
        left = {query: found for query, found in left.items() if query not in chosen}
    return groups
