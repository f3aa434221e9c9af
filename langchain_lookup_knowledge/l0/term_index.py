"""The terms of a set of entries, with their counts; made again only where entries changed."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cache
from itertools import chain
from typing import NamedTuple

from langchain_lookup_knowledge.l0.matcher import MAX_COMPARISONS, Matcher, Term, is_letter
from langchain_lookup_knowledge.l0.spelling import Spelling
from langchain_lookup_knowledge.l0.terms import is_generic, is_worth_matching
from langchain_lookup_knowledge.reading.entry import Entry, category_key
from langchain_lookup_knowledge.text.tokens import Tokens, cut, folded, unaccented, variants
from langchain_lookup_knowledge.text.words import COMMON_WORDS
from langchain_lookup_knowledge.types import Field

_Keys = tuple[str, ...]
_Named = tuple[Field, str]


class _Change(NamedTuple):
    """An entry before and after a change; None where it does not exist."""

    old: Entry | None
    new: Entry | None

    def has_same_terms(self) -> bool:
        """Return whether the entry declares the same terms in the same categories."""
        old, new = self
        return (
            old is not None
            and new is not None
            and old.categories == new.categories
            and list(old.declared()) == list(new.declared())
        )


class TermIndex:
    """The terms of a set of entries. An index is never changed: an update returns another one,
    which shares the unchanged parts.

    Args:
        entries: the entries.
        case_sensitive: as for `HintIndex`.
        matcher: the terms of the entries with their counts, if they are known.
    """

    def __init__(
        self,
        entries: Iterable[Entry],
        case_sensitive: Iterable[str] = (),
        matcher: Matcher | None = None,
    ) -> None:
        self._case_sensitive = frozenset(case_sensitive)
        self.entries: Mapping[str, Entry] = {entry.entry_id: entry for entry in entries}
        self.matcher = matcher or Matcher()
        self._counts: dict[int, tuple[int, int]] = {}
        """The counts of terms, where they differ from those of an earlier index with the same
        terms.
        """
        self._names = _names(self.entries.values())
        if matcher is None:
            self._declare(self.entries.values())
        self._categorize(self.matcher.terms())
        self.spelling = Spelling(self.matcher.words)
        if matcher is None:
            for entry in self.entries.values():
                self._count(entry, 1, self.matcher)
            for term in self.matcher.terms():
                term.document_frequency, term.inside = self.counts(term)
            self._counts = {}

    def rebuilt(self, entries: Iterable[Entry]) -> "TermIndex":
        """Return an index of the given entries, made from scratch with the same settings."""
        return TermIndex(entries, self._case_sensitive)

    def counts(self, term: Term) -> tuple[int, int]:
        """Return the document frequency of a term, and how many of these entries are in one of its
        categories.
        """
        return self._counts.get(id(term)) or (term.document_frequency, term.inside)

    def frequency(self, term: Term) -> int:
        """Return the number of entries that contain a term."""
        return self.counts(term)[0]

    def categories(self, entry: Entry) -> list[str]:
        """Return an entry's categories, each as it was first spelled in the knowledge base."""
        return [self._names.get(category_key(category), category) for category in entry.categories]

    def updated(self, entries: Iterable[Entry]) -> "TermIndex":
        """Return an index of the given entries. Only changed entries are read again; new terms are
        searched for in the texts of all entries.
        """
        after = {entry.entry_id: entry for entry in entries}
        changes = _changes(self.entries, after)
        stay = [entry_id for entry_id in self.entries if entry_id in after]
        if stay != [entry_id for entry_id in after if entry_id in self.entries]:
            return self.rebuilt(after.values())
        if not changes:
            return self
        if len(changes) > len(after) // 4:
            return self.rebuilt(after.values())
        index = TermIndex.__new__(TermIndex)
        index._case_sensitive, index.entries = self._case_sensitive, after
        index.matcher, index.spelling = self.matcher, self.spelling
        index._counts, index._names = {**self._counts}, self._names
        others = [change for change in changes if not change.has_same_terms()]
        fresh = index._declare_again(self, others) if others else []
        for change in changes:
            for entry, number in ((change.old, -1), (change.new, 1)):
                if entry is not None:
                    index._count(entry, number, index.matcher)
        if fresh:
            index._recount(fresh)
        return index

    def _declare_again(self, before: "TermIndex", changes: Sequence[_Change]) -> list[Term]:
        """Declare the terms of changed entries, and all terms that have forms in common with them;
        return those that have to be counted.
        """
        self._names = _names(self.entries.values())
        declared = {
            named for change in changes for one in change if one for named in one.declared()
        }
        for entry in self.entries.values() if _respelled(before._names, self._names) else ():
            if before.categories(entry) != self.categories(entry):
                declared.update(entry.declared())
        keys = _connected(before, declared)
        old = {id(term): term for one in keys for term in _terms_at(before.matcher, one)}
        holders = {entry_id for term in old.values() for entry_id in term.entries}
        holders.update(change.new.entry_id for change in changes if change.new)
        self.matcher = before.matcher.without(keys)
        self._declare([entry for name, entry in self.entries.items() if name in holders], keys)
        forms = [form for one in keys for form in self.matcher.forms.get(one, ())]
        terms = list({id(form.term): form.term for form in forms}.values())
        self._categorize(terms)
        self._respell(before, keys)
        known = {term.found_as: term for term in old.values()}
        fresh = []
        for term in terms:
            same = known.get(term.found_as)
            if same is None or same.categories != term.categories:
                fresh.append(term)
            else:
                term.document_frequency, term.inside = before.counts(same)
        for number in old:
            self._counts.pop(number, None)
        return fresh

    def _respell(self, before: "TermIndex", keys: Iterable[_Keys]) -> None:
        known, forms = before.matcher, self.matcher.forms
        vanished = {word for one in keys if one in known.forms and one not in forms for word in one}
        gone = self.matcher.forget(vanished)
        come = {word for one in keys if one in forms for word in one} - known.words.keys()
        self.spelling = before.spelling.updated(come, gone)

    def _declare(self, entries: Iterable[Entry], keys: Collection[_Keys] | None = None) -> None:
        """Add the terms of entries; `keys` limits them to terms with these keys."""
        known: dict[_Named, Term | None] = {}
        for entry in entries:
            for named in entry.declared():
                if named not in known:
                    known[named] = self._declared(*named, keys)
                term = known[named]
                if term and entry.entry_id not in term.entries[-1:]:
                    term.entries.append(entry.entry_id)

    def _declared(self, field: Field, text: str, keys: Collection[_Keys] | None) -> Term | None:
        tokens = cut(text)
        if keys is not None and tokens.keys not in keys:
            return None
        if not is_worth_matching(tokens) or (field == "title" and is_generic(text)):
            return None
        term = Term(tokens.text, field, self._is_cased(tokens), [])
        known = self.matcher.declare(term, tokens)
        if known is term:
            for number, variant in enumerate(variants(tokens)):
                if self.matcher.declare(term, variant) is term:
                    term.variants |= 1 << number
                else:
                    term.lost = (*term.lost, variant.keys)
                    others = self.matcher.lost.get(variant.keys, [])
                    self.matcher.lost[variant.keys] = [*others, term]
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

    def _categorize(self, terms: Iterable[Term]) -> None:
        """Give terms the categories of the entries that declare them."""
        combinations: dict[tuple[str, ...], tuple[str, ...]] = {}
        named: dict[str, list[str]] = {}
        for term in terms:
            for entry_id in term.entries:
                if entry_id not in named:
                    named[entry_id] = self.categories(self.entries[entry_id])
            held = [names for entry_id in term.entries if (names := named[entry_id])]
            categories = tuple(dict.fromkeys(chain.from_iterable(held)))
            term.categorized = len(held)
            term.categories = combinations.setdefault(categories, categories)

    def _count(self, entry: Entry, change: int, matcher: Matcher) -> None:
        """Add `change` to the document frequency of each term that appears in the entry."""
        text = " .\n".join((*(text for _, text in entry.declared()), entry.text))
        here = set(self.categories(entry))
        seen: set[int] = set()
        for found in matcher.scan(cut(text), skip=seen, limit=MAX_COMPARISONS):
            term = found.term
            seen.add(id(term))
            frequency, inside = self.counts(term)
            is_inside = not here.isdisjoint(term.categories)
            self._counts[id(term)] = frequency + change, inside + change * is_inside

    def _recount(self, terms: Sequence[Term]) -> None:
        """Recount the entries that contain these terms.

        Only texts that may contain all words of one of them are cut into tokens.
        """
        wanted = {id(term) for term in terms}
        matcher = Matcher()
        for term in terms:
            for keys in _keys(term.text):
                own = [f for f in self.matcher.forms.get(keys, ()) if id(f.term) in wanted]
                if keys not in matcher.forms:
                    for form in own:
                        matcher.add(keys, form)
            self._counts[id(term)] = 0, 0
        # a word begins with its key, but for "flies", whose key is "fly"
        stems = {tuple([key.removesuffix("y") for key in keys]) for keys in matcher.forms}
        for entry in self.entries.values():
            written = unaccented(folded(f"{entry.text}\n{entry.declared_text}"))
            if any(all(stem in written for stem in several) for several in stems):
                self._count(entry, 1, matcher)


def _names(entries: Iterable[Entry]) -> dict[str, str]:
    """Return the first spelling of each category, by its key."""
    keys: dict[str, str] = {}
    names: dict[str, str] = {}
    for entry in entries:
        for category in entry.categories:
            if category not in keys:
                keys[category] = category_key(category)
                names.setdefault(keys[category], category)
    return names


def _respelled(before: Mapping[str, str], after: Mapping[str, str]) -> bool:
    return any(after.get(key, name) != name for key, name in before.items())


def _changes(before: Mapping[str, Entry], after: Mapping[str, Entry]) -> list[_Change]:
    """Return the entries that differ."""
    gone = [_Change(entry, None) for name, entry in before.items() if name not in after]
    others = [
        _Change(old, new)
        for name, new in after.items()
        if (old := before.get(name)) is not new and old != new
    ]
    return [*gone, *others]


def _keys(text: str) -> list[_Keys]:
    """Return the keys of all forms of a term."""
    tokens = cut(text)
    return [tokens.keys, *(variant.keys for variant in variants(tokens))]


def _connected(before: TermIndex, declared: Iterable[_Named]) -> set[_Keys]:
    """Return the keys of these terms, and of all terms that share a key with them, directly or
    through other terms.
    """
    keys_of = cache(_keys)
    found: set[_Keys] = set()
    left = [keys for _, text in declared for keys in keys_of(text)]
    while left:
        keys = left.pop()
        if keys in found:
            continue
        found.add(keys)
        terms = _terms_at(before.matcher, keys)
        left += [one for term in terms for one in keys_of(term.text)]
        for entry_id in {entry_id for term in terms for entry_id in term.entries}:
            for _, text in before.entries[entry_id].declared():
                if keys in (own := keys_of(text)):
                    left += own
    return found


def _terms_at(matcher: Matcher, keys: _Keys) -> list[Term]:
    """Return the terms with a form under these keys, and those that lack it because of an earlier
    term.
    """
    return [*(form.term for form in matcher.forms.get(keys, ())), *matcher.lost.get(keys, ())]
