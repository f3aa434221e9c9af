"""L0 (keyword hints): titles, keywords and entities in a query, and the entries that declare them.

The matching itself is in `matcher` and `occurrences`. This module ranks its results and decides
which terms are rare enough to be trusted: these are called *specific* and may name the domain that
a filter uses.
"""

import copy
import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from functools import cache
from itertools import chain
from typing import NamedTuple

from langchain_lookup_knowledge.l0.matcher import (
    MAX_COMPARISONS,
    Matcher,
    Occurrence,
    Term,
    is_letter,
)
from langchain_lookup_knowledge.l0.occurrences import in_query, through_glossary
from langchain_lookup_knowledge.l0.spelling import Spelling
from langchain_lookup_knowledge.l0.terms import is_generic, is_worth_matching
from langchain_lookup_knowledge.reading.entry import Entry, category_key
from langchain_lookup_knowledge.text.tokens import Tokens, cut, plain, unaccented, variants
from langchain_lookup_knowledge.text.words import COMMON_WORDS
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
        self._case_sensitive = frozenset(case_sensitive)
        self._read(entries)
        for entry in self.entries.values():
            self._count(entry, 1)

    def _read(self, entries: Iterable[Entry]) -> None:
        self.entries = {entry.entry_id: entry for entry in entries}
        self.matcher = Matcher()
        known: dict[tuple[Field, str], Term | None] = {}
        for entry in self.entries.values():
            self._declare(entry, known)
        self._finish()

    def rebuilt(self, entries: Iterable[Entry]) -> "HintIndex":
        """Build an index of the given entries from scratch, with the same settings."""
        return HintIndex(entries, case_sensitive=self._case_sensitive)

    @classmethod
    def restored(
        cls, entries: Iterable[Entry], matcher: Matcher, case_sensitive: Iterable[str]
    ) -> "HintIndex":
        """Return the index of these entries; `matcher` has their terms, with their counts."""
        index = cls([], case_sensitive=case_sensitive)
        index.entries = {entry.entry_id: entry for entry in entries}
        index.matcher = matcher
        index._finish()
        return index

    def updated(self, entries: Iterable[Entry]) -> "HintIndex":
        """Return an index of the given entries; unchanged texts are scanned only for new terms.

        All terms are declared again, which is cheap; counts of unchanged terms are reused.
        """
        after = {entry.entry_id: entry for entry in entries}
        if list(after.values()) == list(self.entries.values()):
            return self
        gone = [entry for entry in self.entries.values() if after.get(entry.entry_id) != entry]
        come = [entry for entry in after.values() if self.entries.get(entry.entry_id) != entry]
        if len(gone) + len(come) > len(after) // 4:
            return self.rebuilt(after.values())
        index = copy.copy(self)
        index._read(after.values())
        known, fresh = {term.found_as: term for term in self.matcher.terms()}, []
        for term in index.matcher.terms():
            before = known.get(term.found_as)
            if before is None or before.categories != term.categories:
                fresh.append(term)
            else:
                term.document_frequency, term.inside = before.document_frequency, before.inside
        for changed, change in ((gone, -1), (come, 1)):
            for entry in changed:
                index._count(entry, change)
        if fresh:
            index._recount(fresh)
        return index

    def _finish(self) -> None:
        """Derive everything that depends on all declarations together."""
        combinations: dict[tuple[str, ...], tuple[str, ...]] = {}
        self._names: dict[str, str] = {}
        for entry in self.entries.values():
            for category in entry.categories:
                self._names.setdefault(category_key(category), category)
        named = {i: names for i, e in self.entries.items() if (names := self._categories(e))}
        for term in self.matcher.terms():
            held = [named[entry_id] for entry_id in term.entries if entry_id in named]
            categories = tuple(dict.fromkeys(chain.from_iterable(held)))
            term.categorized = len(held)
            term.categories = combinations.setdefault(categories, categories)
        self.max_document_frequency = min(
            MAX_LISTED, max(3, math.ceil(SPECIFIC_SHARE * len(self.entries)))
        )
        self._spelling = Spelling(self.matcher.words)

    def _categories(self, entry: Entry) -> list[str]:
        """Return an entry's categories, each as it was first spelled in the knowledge base."""
        return [self._names.get(category_key(category), category) for category in entry.categories]

    def _recount(self, terms: Sequence[Term]) -> None:
        """Recount the entries that contain these terms.

        Only texts that may contain one of their words are cut into tokens.
        """
        wanted = {id(term) for term in terms}
        matcher = Matcher()
        for keys, bucket in self.matcher.forms.items():
            for form in bucket:
                if id(form.term) in wanted:
                    matcher.add(keys, form)
        for term in terms:
            term.document_frequency = term.inside = 0
        stems = {keys[0][:-1] if len(keys[0]) > 3 else keys[0] for keys in matcher.forms}
        for entry in self.entries.values():
            written = unaccented(plain(f"{entry.text}\n{entry.declared_text}").casefold())
            if any(stem in written for stem in stems):
                self._count(entry, 1, matcher)

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
            CommonKeyword(term.text, term.entries[0], term.document_frequency)
            for term in self.matcher.terms()
            if term.field == "keywords" and term.document_frequency > limit
        ]
        return sorted(common, key=lambda keyword: (-keyword.document_frequency, keyword.text))

    def _declare(self, entry: Entry, known: dict[tuple[Field, str], Term | None]) -> None:
        """Add the terms of an entry; `known` has the terms of the texts that were declared before,
        None for those that are not worth matching.
        """
        for named in entry.declared():
            if named not in known:
                known[named] = self._declared(*named)
            term = known[named]
            if term and entry.entry_id not in term.entries[-1:]:
                term.entries.append(entry.entry_id)

    def _declared(self, field: Field, text: str) -> Term | None:
        tokens = cut(text)
        if not is_worth_matching(tokens) or (field == "title" and is_generic(text)):
            return None
        term = Term(tokens.text, field, self._is_cased(tokens), [])
        known = self.matcher.declare(term, tokens)
        if known is term:
            for number, variant in enumerate(variants(tokens)):
                if self.matcher.declare(term, variant) is term:
                    term.variants |= 1 << number
        return known

    def _is_cased(self, tokens: Tokens) -> bool:
        """Return whether a term matches only in its exact case.

        True for `case_sensitive` terms, single letters, and common words in capitalized or
        all-capital form.
        """
        word = tokens.text.strip()
        if word in self._case_sensitive or is_letter(word):
            return True
        return (
            len(tokens) == 1 and word.lower() in COMMON_WORDS and (word.isupper() or word.istitle())
        )

    def _count(self, entry: Entry, change: int, matcher: Matcher | None = None) -> None:
        """Add `change` to the document frequency of each term that appears in the entry."""
        text = " .\n".join((*(text for _, text in entry.declared()), entry.text))
        here = set(self._categories(entry))
        seen: set[int] = set()
        for found in (matcher or self.matcher).scan(cut(text), skip=seen, limit=MAX_COMPARISONS):
            seen.add(id(found.term))
            found.term.document_frequency += change
            found.term.inside += change * (not here.isdisjoint(found.term.categories))

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
        own = _found_in(in_query(query, self.matcher, self._spelling), only)
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
            domains = _unique(name for entry in declared for name in self._categories(entry))
        return {
            "text": term.text,
            "field": term.field,
            "span": [match.start, match.end],
            "kind": match.kind,
            "document_frequency": term.document_frequency,
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
        term = match.term
        frequency = f"appears in {term.document_frequency} of {len(self.entries)} entries"
        if match.kind == "typo":
            return False, "one letter differs"
        if term.cased and shouting:
            return False, "the query is all capitals, so this may be a name or a common word"
        if term.document_frequency > self.max_document_frequency:
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
        if 2 * (term.inside + term.categorized) < term.document_frequency + len(term.entries):
            return [], f"; only {term.inside} of them in the category it would name"
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
            rarity = math.log1p(len(self.entries) / max(1, term.document_frequency))
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
