"""Query words that a text contains only in another form: one from the glossary, or another spelling
of a code.

All functions are pure.
"""

from collections.abc import Iterable, Sequence

from langchain_lookup_knowledge.lookup.answer.merging import FoundEntry
from langchain_lookup_knowledge.text.search_terms import held_terms, is_respelled, search_terms
from langchain_lookup_knowledge.types import GlossaryJoin, Matched


def added_terms(joins: Iterable[GlossaryJoin]) -> list[str]:
    """Return the terms of the other glossary forms, without duplicates."""
    forms = (form for join in joins for form in join["forms"])
    return list(dict.fromkeys(term for form in forms for term in search_terms(form)))


def held_forms(
    joins: Iterable[GlossaryJoin], texts: Sequence[str]
) -> list[tuple[GlossaryJoin, str]]:
    """Return the query words that the texts contain only in another form, each with that form."""
    found = []
    for join in joins:
        if not _is_held(join["text"], texts):
            form = next((form for form in join["forms"] if _is_held(form, texts)), None)
            if form is not None:
                found.append((join, form))
    return found


def matched_forms(
    joins: Iterable[GlossaryJoin], texts: Sequence[str]
) -> tuple[list[str], list[Matched]]:
    """Return the other spellings of codes that the texts contain, and the other glossary forms that
    they contain, as reasons for a match.
    """
    held = held_forms(joins, texts)
    codes = [form for join, form in held if is_respelled(join["text"], form)]
    glossary: list[Matched] = [
        {"field": "glossary", "text": f"{join['text']} = {form}"}
        for join, form in held
        if form not in codes
    ]
    return codes, glossary


def in_held_forms(
    query: Sequence[str], joins: Sequence[GlossaryJoin], found: Sequence[FoundEntry]
) -> list[str]:
    """Return the query terms, each in the form that the first match contains."""
    if not joins or not found:
        return list(query)
    texts = (found[0].title, *(t for p in found[0].passages for t in (p["heading"], p["text"])))
    held = held_forms(joins, texts)
    replaced = {term for join, _ in held for term in search_terms(join["text"])}
    added = (term for _, form in held for term in search_terms(form))
    return list(dict.fromkeys([*(term for term in query if term not in replaced), *added]))


def _is_held(form: str, texts: Iterable[str]) -> bool:
    """Return whether the texts together hold all terms of a form."""
    terms = set(search_terms(form))
    return bool(terms) and not terms.difference(*(held_terms(text, terms) for text in texts))
