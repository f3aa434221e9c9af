"""Where the terms of a knowledge base occur in a query: as written, in another form, corrected, or
through the glossary.
"""

from collections.abc import Iterable, Iterator, Sequence

from langchain_lookup_knowledge.l0.glossary import written_out
from langchain_lookup_knowledge.l0.matcher import Matcher, Occurrence
from langchain_lookup_knowledge.l0.spelling import Spelling
from langchain_lookup_knowledge.text.tokens import Tokens, cut, variants
from langchain_lookup_knowledge.types import GlossaryJoin

CORRECTION_WINDOW = 4
"""Tokens on each side of a corrected word that are searched for terms that contain it."""

_KINDS = ("exact", "plural", "accents", "typo", "glossary")


def in_query(query: str, matcher: Matcher, spelling: Spelling) -> list[Occurrence]:
    """Return the terms found in a query, each once, by position."""
    return _best(_scan(query, matcher, spelling))


def through_glossary(
    query: str, joins: Sequence[GlossaryJoin], matcher: Matcher
) -> list[Occurrence]:
    """Return the terms found through other forms of query words, each once, by position."""
    return _best(_scan_joined(query, joins, matcher))


def _scan(query: str, matcher: Matcher, spelling: Spelling) -> Iterator[Occurrence]:
    tokens = cut(query)
    yield from matcher.scan(tokens)
    for variant in variants(tokens):
        yield from matcher.scan(variant)
    for position, key in enumerate(tokens.keys):
        if key not in matcher.words:
            for word in spelling.near(key):
                yield from _scan_corrected(tokens, position, word, matcher)


def _scan_corrected(
    tokens: Tokens, position: int, word: str, matcher: Matcher
) -> Iterator[Occurrence]:
    """Replace a token by the corrected word, and yield the terms that contain it."""
    token = tokens[position]
    near = tokens[max(0, position - CORRECTION_WINDOW) : position + CORRECTION_WINDOW + 1]
    near[near.index(token)] = token._replace(key=word, exact=word)
    for found in matcher.scan(Tokens.of(tokens.text, near)):
        if found.start <= token.start and token.end <= found.end:
            yield found._replace(kind="typo")


def _scan_joined(
    query: str, joins: Sequence[GlossaryJoin], matcher: Matcher
) -> Iterator[Occurrence]:
    """Replace words of the query by their other forms, and yield the terms that contain them."""
    for text, start, end, longer in written_out(query, joins):
        for found in matcher.scan(cut(text)):
            if found.start <= start and end <= found.end:
                yield found._replace(end=found.end - longer, kind="glossary")


def _best(found: Iterable[Occurrence]) -> list[Occurrence]:
    """Keep each term once, by position and then longest first.

    An exact form is preferred to a plural form or a form with other accents.
    """
    exact_spans = set()
    kept: dict[int, Occurrence] = {}
    for match in sorted(
        found, key=lambda match: (match.start, -match.end, _KINDS.index(match.kind))
    ):
        if match.kind == "exact":
            exact_spans.add((match.start, match.end, match.term.field))
        elif (match.start, match.end, match.term.field) in exact_spans:
            continue
        kept.setdefault(id(match.term), match)
    return list(kept.values())
