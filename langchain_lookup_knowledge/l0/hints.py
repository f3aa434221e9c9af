"""L0 (keyword hints): titles, keywords and entities in a query, and the entries that declare them.

The matching itself is in `matcher` and `occurrences`. This module ranks its results and decides
which terms are rare enough to be trusted: these are called *specific* and may name the domain that
a filter uses.
"""

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from functools import cache
from typing import NamedTuple

from langchain_lookup_knowledge.l0.matcher import Occurrence, Term
from langchain_lookup_knowledge.l0.occurrences import in_query, through_glossary
from langchain_lookup_knowledge.l0.term_index import TermIndex
from langchain_lookup_knowledge.l0.terms import is_worth_matching
from langchain_lookup_knowledge.reading.entry import Entry
from langchain_lookup_knowledge.text.tokens import cut
from langchain_lookup_knowledge.types import (
    Field,
    GlossaryJoin,
    HintEntry,
    Hints,
    HintTerm,
    Problem,
)

MAX_ENTRIES = 10
"""Maximum entries in the hints of one query."""
MAX_LISTED = 100
"""Maximum entries that a term can add to the hints.

A term that more entries declare is never specific. It only ranks entries found by other terms or,
if it is the only term in a query, adds the first entries that declare it.
"""
SPECIFIC_SHARE = 0.02
"""Maximum share of the entries that may contain a specific term.

The resulting number of entries is at least 3 and at most `MAX_LISTED`. `lookup-knowledge eval`
counts how often specific terms point at the right entry.
"""
TYPO_WEIGHT = 0.25
"""Weight of a term that was found by a correction; other terms have weight 1."""

GLOSSARY_WEIGHT = 0.5
"""Weight of a term that was found through the glossary."""
_KIND_WEIGHTS = {"typo": TYPO_WEIGHT, "glossary": GLOSSARY_WEIGHT}


class CommonKeyword(NamedTuple):
    """A keyword that appears in many entries; `entry_id` is the first entry that declares it."""

    text: str
    entry_id: str
    document_frequency: int


class HintIndex:
    """The terms of a set of entries, ready to be found in queries.

    Args:
        entries: the entries of the knowledge base.
        case_sensitive: keywords and entities that match only in their exact case. A built-in rule
            adds capitalized and all-capital names that are also common English words, such as
            `Red`, `IT` or `AIMS`.
    """

    def __init__(self, entries: Iterable[Entry], *, case_sensitive: Iterable[str] = ()) -> None:
        self._set(TermIndex(entries, case_sensitive))

    def _set(self, terms: TermIndex) -> None:
        self.terms, self.entries, self.matcher = terms, terms.entries, terms.matcher
        self.max_document_frequency = min(
            MAX_LISTED, max(3, math.ceil(SPECIFIC_SHARE * len(self.entries)))
        )

    @classmethod
    def of(cls, terms: TermIndex) -> "HintIndex":
        """Return the index of these terms."""
        index = cls.__new__(cls)
        index._set(terms)
        return index

    def rebuilt(self, entries: Iterable[Entry]) -> "HintIndex":
        """Build an index of the given entries from scratch, with the same settings."""
        return HintIndex.of(self.terms.rebuilt(entries))

    def updated(self, entries: Iterable[Entry]) -> "HintIndex":
        """Return an index of the given entries; only changed entries are read again."""
        terms = self.terms.updated(entries)
        return self if terms is self.terms else HintIndex.of(terms)

    @property
    def problems(self) -> list[Problem]:
        """The keywords and entities that are not used, one problem per entry."""
        problems = []
        for entry in self.entries.values():
            unused = [
                text
                for field, text in entry.declared()
                if field != "title" and not is_worth_matching(cut(text))
            ]
            if unused:
                listed = ", ".join(map(repr, unused))
                message = (
                    "keywords that would match everything, or nothing, "
                    f"are not used as hints: {listed}"
                )
                problems.append(Problem(entry.entry_id, None, message))
        return problems

    def common_keywords(self, share: float) -> list[CommonKeyword]:
        """Return the keywords that more than `share` of the entries contain, most common first.

        Specific keywords are never included.
        """
        limit = max(self.max_document_frequency, share * len(self.entries))
        common = [
            CommonKeyword(term.text, term.entries[0], frequency)
            for term in self.matcher.terms()
            if term.field == "keywords" and (frequency := self.terms.frequency(term)) > limit
        ]
        return sorted(common, key=lambda keyword: (-keyword.document_frequency, keyword.text))

    def hints(
        self,
        query: str,
        joins: Sequence[GlossaryJoin] = (),
        only: Collection[str] | None = None,
    ) -> Hints:
        """Return the titles, keywords and entities in the query, and the domains they name.

        `joins`: query words that the glossary joins with other forms. Terms found through these
        forms come last and name no domain. `only`: entries to which the terms, domains and entries
        in the result are limited; frequencies still count all entries.
        """
        own = _found_in(in_query(query, self.matcher, self.terms.spelling), only)
        known = {id(match.term) for match in own}
        joined = _found_in(through_glossary(query, joins, self.matcher), only)
        joined = [match for match in joined if id(match.term) not in known]
        shouting = query.isupper() and sum(map(str.isupper, query)) > 1
        terms = [self._hint_term(match, only, shouting=shouting) for match in own]
        alone = not any(term["specific"] for term in terms)
        terms += [self._joined_term(match, only, query, alone=alone) for match in joined]
        found = [*own, *joined]
        sure = [term for term in terms if term["kind"] != "typo"]
        entries = self._hinted_entries(found, only)
        hints: Hints = {
            "titles": _unique(entry["title"] for entry in entries),
            "keywords": _unique(term["text"] for term in sure if term["field"] == "keywords"),
            "domains": _unique(domain for term in sure for domain in term["domains"]),
            "entities": _unique(term["text"] for term in sure if term["field"] == "entities"),
            "entries": entries,
            "terms": terms,
        }
        if joins:
            hints["glossary"] = list(joins)
        return hints

    def _hint_term(
        self, match: Occurrence, only: Collection[str] | None, *, shouting: bool
    ) -> HintTerm:
        term = match.term
        specific, reason = self._specificity(match, shouting=shouting)
        domains, why = self._domains(term) if specific else ([], "")
        if only is not None and domains:
            declared = (self.entries[entry_id] for entry_id in term.entries if entry_id in only)
            domains = _unique(name for entry in declared for name in self.terms.categories(entry))
        return {
            "text": term.text,
            "field": term.field,
            "span": [match.start, match.end],
            "kind": match.kind,
            "document_frequency": self.terms.frequency(term),
            "specific": specific,
            "domains": domains,
            "reason": reason + why,
        }

    def _joined_term(
        self, match: Occurrence, only: Collection[str] | None, query: str, *, alone: bool
    ) -> HintTerm:
        """Return a term that was found through the glossary; it is specific only if `alone`
        (the query's own words contain no specific term).
        """
        term = self._hint_term(match, only, shouting=False)
        word = query[match.start : match.end]
        reason = f"{term['reason']}; found through {word!r} in the glossary"
        specific = alone and term["specific"]
        return {**term, "specific": specific, "domains": [], "reason": reason}

    def _specificity(self, match: Occurrence, *, shouting: bool) -> tuple[bool, str]:
        """Return whether a term is specific (rare enough to be trusted), and the reason."""
        term, count = match.term, self.terms.frequency(match.term)
        frequency = f"appears in {count} of {len(self.entries)} entries"
        if match.kind == "typo":
            return False, "one letter differs"
        if term.cased and shouting:
            return False, "the query is all capitals, so this may be a name or a common word"
        if count > self.max_document_frequency:
            return False, f"common: {frequency}, more than {self.max_document_frequency}"
        return True, frequency

    def _domains(self, term: Term) -> tuple[list[str], str]:
        """Return the domains that a specific term names and, if there are none, the reason.

        The domains are the categories of the entries that declare the term, if most entries that
        contain it are in these categories. An entry that declares the term counts twice: it is the
        likelier answer, and in a small knowledge base it must outweigh a few passing mentions.
        """
        if not term.categories:
            return [], "; its entries have no category"
        frequency, inside = self.terms.counts(term)
        if 2 * (inside + term.categorized) < frequency + len(term.entries):
            return [], f"; only {inside} of them in the category it would name"
        return list(term.categories), ""

    def _hinted_entries(
        self, found: Sequence[Occurrence], only: Collection[str] | None
    ) -> list[HintEntry]:
        """Rank the entries that declare the terms; the rarer a term, the more it counts."""

        @cache
        def folded(entry_id: str) -> set[tuple[Field, str]]:
            return {(field, text.casefold()) for field, text in self.entries[entry_id].declared()}

        scores: dict[str, float] = defaultdict(float)
        own = set()
        declared: dict[str, list[Term]] = defaultdict(list)
        for match in sorted(found, key=lambda match: len(match.term.entries)):
            term = match.term
            declaring = term.entries if only is None else [i for i in term.entries if i in only]
            listed = declaring[:MAX_LISTED]
            if len(declaring) > MAX_LISTED and scores:
                wanted = term.field, term.text.casefold()
                listed = [entry_id for entry_id in scores if wanted in folded(entry_id)]
            rarity = math.log1p(len(self.entries) / max(1, self.terms.frequency(term)))
            weight = rarity * _KIND_WEIGHTS.get(match.kind, 1)
            for entry_id in listed:
                scores[entry_id] += weight
                if match.kind != "glossary":
                    own.add(entry_id)
                declared[entry_id].append(term)
        order = sorted(scores, key=lambda name: (name not in own, -scores[name], name))
        best = order[:MAX_ENTRIES]
        return [
            self._hint_entry(entry_id, declared[entry_id], scores[entry_id]) for entry_id in best
        ]

    def _hint_entry(self, entry_id: str, terms: Sequence[Term], score: float) -> HintEntry:
        entry = self.entries[entry_id]
        return {
            "entry_id": entry.entry_id,
            "title": entry.title,
            "categories": list(entry.categories),
            "keywords": _unique(term.text for term in terms if term.field == "keywords"),
            "entities": _unique(term.text for term in terms if term.field == "entities"),
            "score": round(score, 4),
        }


def _unique(texts: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(texts))


def _found_in(found: Iterable[Occurrence], only: Collection[str] | None) -> list[Occurrence]:
    """Return the occurrences of terms that one of these entries declares; None means all."""
    return [
        match
        for match in found
        if only is None or any(entry_id in only for entry_id in match.term.entries)
    ]
