"""L0: which titles, keywords and entities stand in a query, and which of them can be trusted to name a domain.

A *term* is a title, keyword or entity as written in the frontmatter. Texts are cut into tokens: words, runs of
katakana, emoji, and single characters of scripts written without blanks. Terms stand in a dictionary under their token keys, so
a lookup costs a few dictionary look-ups per query token, however many terms there are. A key is loose (accents and
English plural endings are gone); each term found under it is then held against the query as written: symbols that belong to the
term, what stands between its words, and, where a name collides with a common word, its case.
"""

import copy
import math
from collections import defaultdict
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from rapidfuzz.distance import OSA

from langchain_lookup_knowledge.documents import Entry, category_key
from langchain_lookup_knowledge.tokens import (
    Token,
    Tokens,
    cut,
    is_soft,
    plain,
    singular,
    unaccented,
    variants,
)
from langchain_lookup_knowledge.types import Field, HintEntry, Hints, HintTerm, Problem
from langchain_lookup_knowledge.words import COMMON_WORDS, GENERIC_TITLES, STOP_WORDS

MAX_TOKENS = 32
"""Longest term that is matched, in tokens; of a longer one nobody types the whole."""
MAX_COMPARISONS = 500_000
"""Most comparisons of an entry's text with terms; what stands behind is not searched. Only a text made to be slow needs as
many."""
MAX_QUERY_COMPARISONS = 20_000
"""The same for a query."""
MAX_ENTRIES = 10
"""Most entries in the hints of one query."""
MAX_LISTED = 100
"""How many is too many to look through: a term that more entries declare is never specific and only ranks those that other
terms found, or, alone in a query, lists its first ones; and words that share a half with more others are not corrected."""

QUOTES = "\"'`“”‘’«»"
"""Marks around a term that do not belong to it."""
SPECIFIC_SHARE = 0.02
"""Share of the entries that may hold a specific term, but at least 3 and at most `MAX_LISTED` entries; `lookup-knowledge eval`
counts how often the right entry is among those that specific terms point at."""
MIN_TYPO_LETTERS = 6
MAX_CORRECTIONS = 3
CORRECTION_WINDOW = 4
TYPO_WEIGHT = 0.25

_KINDS = ("exact", "plural", "accents", "typo")


@dataclass(slots=True)
class _Term:
    """A title, keyword or entity as written.

    `entries` declare it, `categorised` of them in `categories`. `files` entries hold it somewhere in their text, `inside` of
    them in one of these categories. `variants` has a bit for each other way to cut it that no other term took first.
    """

    text: str
    field: Field
    cased: bool
    entries: list[str]
    categories: tuple[str, ...] = ()
    categorised: int = 0
    files: int = 0
    inside: int = 0
    variants: int = 0

    @property
    def found_as(self) -> tuple[Field, str, int]:
        """All that decides where the term is found."""
        return self.field, self.text, self.variants


class CommonKeyword(NamedTuple):
    """A keyword that stands in many files; `entry_id` is the first to declare it."""

    text: str
    entry_id: str
    files: int


class _Found(NamedTuple):
    term: _Term
    start: int
    end: int
    kind: str


class _Form(NamedTuple):
    """A way to write a term: its words, what stands between them, and the symbols around them that belong to it."""

    term: _Term
    exact: tuple[str, ...]
    gaps: tuple[str, ...]
    before: str
    after: str

    def find(self, tokens: Tokens, first: int) -> "_Found | None":
        """Return the form as it stands in the tokens from `first` on, whose keys are its own; None: it does not."""
        if len(self.exact) == 1 and not (
            self.before or self.after or self.term.cased
        ):  # the usual case, at half the price
            token = tokens[first]
            if token.spaceless and _inside_run(tokens, first):
                return None
            return _Found(self.term, token.start, token.end, self._likeness((token.exact,)))
        text, matched = tokens.text, tokens[first : first + len(self.exact)]
        start, end = matched[0].start, matched[-1].end
        if self.before and not text.endswith(self.before, 0, start):
            return None
        behind = end + len(self.after)
        if self.after and (not text.startswith(self.after, end) or text[behind : behind + 1].isalpha()):
            return None
        for gap, (left, right) in zip(self.gaps, pairwise(matched), strict=True):
            between = text[left.end : right.start]
            if between != gap and not (is_soft(gap) and is_soft(between)):
                return None
        if len(matched) == 1 and matched[0].spaceless and _inside_run(tokens, first):
            return None
        if self.term.cased and plain(text[start:end]) != plain(self.term.text):
            return None
        kind = self._likeness(tuple([token.exact for token in matched]))
        return _Found(self.term, start - len(self.before), behind, kind)

    def _likeness(self, exact: tuple[str, ...]) -> str:
        if exact == self.exact:
            return "exact"
        pairs = list(zip(exact, self.exact, strict=True))
        if all(singular(a) == singular(b) for a, b in pairs):
            return "plural"
        return "accents"


def _inside_run(tokens: Sequence[Token], position: int) -> bool:
    """Say whether a token is a character inside a longer run of a script written without blanks."""
    token = tokens[position]
    left = position > 0 and tokens[position - 1].spaceless and tokens[position - 1].end == token.start
    right = position + 1 < len(tokens) and tokens[position + 1].spaceless and tokens[position + 1].start == token.end
    return left or right


def _declared(entry: Entry) -> Iterator[tuple[Field, str]]:
    yield "title", entry.title
    for text in entry.keywords:
        yield "keywords", text
    for text in entry.entities:
        yield "entities", text


def is_generic(title: str) -> bool:
    """Say whether a title, such as README, says nothing of what stands below it."""
    return plain(title).casefold().strip() in GENERIC_TITLES


def _is_telling(tokens: Tokens) -> bool:
    """Say whether a term is worth matching: not a stop word, a single letter, nothing but punctuation, or a whole text."""
    if len(tokens) != 1:
        return 0 < len(tokens) <= MAX_TOKENS
    text, token = tokens.text, tokens[0]
    symbols = (text[: token.start] + text[token.end :]).strip()
    if symbols or token.spaceless or not token.exact.isalnum():
        return True
    is_name = text.strip().isupper()
    return len(token.exact) > 1 and (is_name or token.exact not in STOP_WORDS)


class _Matcher:
    """Forms under their token keys, so that a scan looks up a few keys a token, however many forms there are.

    Few tokens of a text begin a form, and those are found first: by `words`, the keys of all forms, true for those that are a
    form by themselves; and by the first two keys of longer forms, under which `_lengths` holds how many keys these have.
    """

    def __init__(self) -> None:
        self.forms: dict[tuple[str, ...], list[_Form]] = {}
        self.words: dict[str, bool] = {}
        self._lengths: dict[tuple[str, ...], tuple[int, ...]] = {}

    def terms(self) -> list[_Term]:
        """Return the terms, each once."""
        return list({id(form.term): form.term for bucket in self.forms.values() for form in bucket}.values())

    def add(self, keys: tuple[str, ...], form: _Form) -> None:
        bucket = self.forms.setdefault(keys, [])
        bucket.append(form)
        if len(bucket) > 1:
            return
        for key in keys:
            self.words.setdefault(key, False)
        if len(keys) == 1:
            self.words[keys[0]] = True
            return
        lengths = self._lengths.get(keys[:2], ())
        if len(keys) not in lengths:
            self._lengths[keys[:2]] = tuple(sorted((*lengths, len(keys)), reverse=True))

    def scan(self, tokens: Tokens, skip: Container[int] = (), *, most: int = MAX_QUERY_COMPARISONS) -> Iterator[_Found]:
        """Yield each term that stands in the tokens, by place and then longest first, but for those in `skip`."""
        keys = tokens.keys
        begins = {key for key in keys if self.words.get(key)}
        begins.update([key for key, _ in self._lengths.keys() & pairwise(keys)])
        if not begins:
            return
        left = most
        for first, key in enumerate(keys):
            if key not in begins:
                continue
            if left < 0:
                return
            lengths = self._lengths.get(keys[first : first + 2], ())
            for length in (*lengths, 1) if self.words[key] else lengths:
                if first + length > len(keys):
                    continue
                bucket = self.forms.get(keys[first : first + length], ())
                left -= 1 + len(bucket)
                for form in bucket:
                    found = None if id(form.term) in skip else form.find(tokens, first)
                    if found:
                        yield found


class _Spelling:
    """Words of the terms by their halves: with one letter wrong, one half of a word is still right."""

    def __init__(self, words: Iterable[str]) -> None:
        self._heads: dict[int, dict[str, list[str]]] = defaultdict(dict)
        self._tails: dict[int, dict[str, list[str]]] = defaultdict(dict)
        for word in words:
            if len(word) >= MIN_TYPO_LETTERS and word.isalpha():
                middle = len(word) // 2
                self._heads[len(word)].setdefault(word[:middle], []).append(word)
                self._tails[len(word)].setdefault(word[middle:], []).append(word)

    def near(self, word: str) -> list[str]:
        """Return the words that differ in one letter: wrong, missing, superfluous, or two of them swapped."""
        size = len(word)
        if size < MIN_TYPO_LETTERS - 1 or word in COMMON_WORDS or not word.isalpha():
            return []
        found: set[str] = set()
        for length in (size - 1, size, size + 1):
            middle = length // 2
            for halves, half in ((self._heads, word[:middle]), (self._tails, word[middle - length :])):
                listed = halves[length].get(half) if length in halves else None
                if listed and len(listed) <= MAX_LISTED:
                    found.update(other for other in listed if OSA.distance(word, other, score_cutoff=1) <= 1)
        return sorted(found - {word})[:MAX_CORRECTIONS] if found else []


class HintIndex:
    """The terms of a set of entries, ready to be found in queries.

    Args:
        entries: the entries of the knowledge base.
        case_sensitive: keywords and entities that match only in the case they are written in, beside the built-in rule
            (capitals or a capitalised name whose small form is a common English word, such as `IT`, `AIMS`, `Red`).
    """

    def __init__(self, entries: Iterable[Entry], *, case_sensitive: Iterable[str] = ()) -> None:
        self._case_sensitive = frozenset(case_sensitive)
        self._read(entries)
        for entry in self._entries.values():
            self._count(entry, 1)

    def _read(self, entries: Iterable[Entry]) -> None:
        self._entries = {entry.entry_id: entry for entry in entries}
        self._matcher = _Matcher()
        for entry in self._entries.values():
            self._declare(entry)
        self._finish()

    def anew(self, entries: Iterable[Entry]) -> "HintIndex":
        """Return the index of other entries, as if it had never known any of these."""
        return HintIndex(entries, case_sensitive=self._case_sensitive)

    def updated(self, entries: Iterable[Entry]) -> "HintIndex":
        """Return the index of other entries; texts that did not change are only read again for terms that are new.

        All terms are declared anew, which is the cheap part; the counts of those found as before are kept.
        """
        after = {entry.entry_id: entry for entry in entries}
        gone = [entry for entry in self._entries.values() if after.get(entry.entry_id) != entry]
        come = [entry for entry in after.values() if self._entries.get(entry.entry_id) != entry]
        if len(gone) + len(come) > len(after) // 4:
            return self.anew(after.values())
        index = copy.copy(self)
        index._read(after.values())
        known, fresh = {term.found_as: term for term in self._matcher.terms()}, []
        for term in index._matcher.terms():
            before = known.get(term.found_as)
            if before is None or before.categories != term.categories:
                fresh.append(term)
            else:
                term.files, term.inside = before.files, before.inside
        for changed, change in ((gone, -1), (come, 1)):
            for entry in changed:
                index._count(entry, change)
        if fresh:
            index._recount(fresh)
        return index

    def _finish(self) -> None:
        """Make what is derived from the declarations."""
        combinations: dict[tuple[str, ...], tuple[str, ...]] = {}
        self._names: dict[str, str] = {}
        for entry in self._entries.values():
            for category in entry.categories:
                self._names.setdefault(category_key(category), category)
        for term in self._matcher.terms():
            declared = (name for entry_id in term.entries for name in self._categories(self._entries[entry_id]))
            categories = tuple(dict.fromkeys(declared))
            term.categorised = sum(bool(self._entries[entry_id].categories) for entry_id in term.entries)
            term.categories = combinations.setdefault(categories, categories)
        self.file_limit = min(MAX_LISTED, max(3, math.ceil(SPECIFIC_SHARE * len(self._entries))))
        self._spelling = _Spelling(self._matcher.words)

    def _categories(self, entry: Entry) -> list[str]:
        """Return the categories of an entry, each as it is first written in the knowledge base."""
        return [self._names.get(category_key(category), category) for category in entry.categories]

    def _recount(self, terms: Sequence[_Term]) -> None:
        """Count the files of these terms anew, without cutting up texts in which none of their words can stand."""
        wanted = {id(term) for term in terms}
        matcher = _Matcher()
        for keys, bucket in self._matcher.forms.items():
            for form in bucket:
                if id(form.term) in wanted:
                    matcher.add(keys, form)
        for term in terms:
            term.files = term.inside = 0
        stems = {keys[0][:-1] if len(keys[0]) > 3 else keys[0] for keys in matcher.forms}
        for entry in self._entries.values():
            written = unaccented(plain(" ".join((entry.text, *(text for _, text in _declared(entry))))).casefold())
            if any(stem in written for stem in stems):
                self._count(entry, 1, matcher)

    @property
    def problems(self) -> list[Problem]:
        """The keywords and entities that are not used, an entry at a time."""
        problems = []
        for entry in self._entries.values():
            unused = [text for field, text in _declared(entry) if field != "title" and not _is_telling(cut(text))]
            if unused:
                listed = ", ".join(map(repr, unused))
                message = f"keywords that would match everything, or nothing, are not used as hints: {listed}"
                problems.append(Problem(entry.entry_id, None, message))
        return problems

    def common_keywords(self, share: float) -> list[CommonKeyword]:
        """Return the keywords that stand in more than this share of the entries and are not specific, most common first."""
        limit = max(self.file_limit, share * len(self._entries))
        common = [
            CommonKeyword(term.text, term.entries[0], term.files)
            for term in self._matcher.terms()
            if term.field == "keywords" and term.files > limit
        ]
        return sorted(common, key=lambda keyword: (-keyword.files, keyword.text))

    def _declare(self, entry: Entry) -> None:
        for field, text in _declared(entry):
            tokens = cut(text)
            if _is_telling(tokens) and not (field == "title" and is_generic(text)):
                self._add(entry, field, tokens)

    def _add(self, entry: Entry, field: Field, tokens: Tokens) -> None:
        term = _Term(tokens.text, field, self._is_cased(tokens), [entry.entry_id])
        known = self._add_form(term, tokens)
        if known is not term:
            if entry.entry_id not in known.entries[-1:]:
                known.entries.append(entry.entry_id)
            return
        for number, variant in enumerate(variants(tokens)):
            if self._add_form(term, variant) is term:
                term.variants |= 1 << number

    def _add_form(self, term: _Term, tokens: Tokens) -> _Term:
        """Add a form of the term and return the term, or the one that is written so already."""
        keys, exact = tokens.keys, tuple(tokens.exact())
        before, *gaps, after = map(plain, tokens.gaps())
        before = before.strip().lstrip(QUOTES)
        after = after.strip().rstrip(QUOTES + ".,;:!")
        form = _Form(term, keys if keys == exact else exact, tuple(gaps), before, after)
        for other in self._matcher.forms.get(keys, ()):
            same = other[1:] == form[1:] and (other.term.field, other.term.cased) == (term.field, term.cased)
            if same and (not term.cased or plain(other.term.text) == plain(term.text)):
                return other.term
        self._matcher.add(keys, form)
        return term

    def _is_cased(self, tokens: Tokens) -> bool:
        """Say whether a term matches only as written: a name in capitals, or capitalised, that is also a common word."""
        word = tokens.text.strip()
        if word in self._case_sensitive:
            return True
        return len(tokens) == 1 and word.lower() in COMMON_WORDS and (word.isupper() or word.istitle())

    def _count(self, entry: Entry, change: int, matcher: "_Matcher | None" = None) -> None:
        """Add `change` to the number of files of each term that stands in the entry."""
        text = " .\n".join((*(text for _, text in _declared(entry)), entry.text))
        here = set(self._categories(entry))
        seen: set[int] = set()
        for found in (matcher or self._matcher).scan(cut(text), skip=seen, most=MAX_COMPARISONS):
            seen.add(id(found.term))
            found.term.files += change
            found.term.inside += change * (not here.isdisjoint(found.term.categories))

    def _scan(self, query: str) -> Iterator[_Found]:
        tokens = cut(query)
        yield from self._matcher.scan(tokens)
        for variant in variants(tokens):
            yield from self._matcher.scan(variant)
        for position, key in enumerate(tokens.keys):
            if key not in self._matcher.words:
                for word in self._spelling.near(key):
                    yield from self._scan_corrected(tokens, position, word)

    def _scan_corrected(self, tokens: Tokens, position: int, word: str) -> Iterator[_Found]:
        """Yield the terms that stand around a token if it is read as another word."""
        token = tokens[position]
        near = tokens[max(0, position - CORRECTION_WINDOW) : position + CORRECTION_WINDOW + 1]
        near[near.index(token)] = token._replace(key=word, exact=word)
        for found in self._matcher.scan(Tokens.of(tokens.text, near)):
            if found.start <= token.start and token.end <= found.end:
                yield found._replace(kind="typo")

    def hints(self, query: str) -> Hints:
        """Return what of the entries' titles, keywords and entities stands in the query, and the domains they name."""
        found = self._best(self._scan(query))
        terms = [self._hint_term(match, shouting=query.isupper()) for match in found]
        sure = [term for term in terms if term["kind"] != "typo"]
        entries = self._hinted_entries(found)
        return {
            "titles": _unique(entry["title"] for entry in entries),
            "keywords": _unique(term["text"] for term in sure if term["field"] == "keywords"),
            "domains": _unique(domain for term in sure for domain in term["domains"]),
            "entities": _unique(term["text"] for term in sure if term["field"] == "entities"),
            "entries": entries,
            "terms": terms,
        }

    def _best(self, found: Iterable[_Found]) -> list[_Found]:
        """Keep each term once, by place and then longest first; an accent or plural form yields to the exact one."""
        exact_spans = set()
        kept: dict[int, _Found] = {}
        for match in sorted(found, key=lambda match: (match.start, -match.end, _KINDS.index(match.kind))):
            if match.kind == "exact":
                exact_spans.add((match.start, match.end, match.term.field))
            elif (match.start, match.end, match.term.field) in exact_spans:
                continue
            kept.setdefault(id(match.term), match)
        return list(kept.values())

    def _hint_term(self, match: _Found, *, shouting: bool) -> HintTerm:
        term = match.term
        specific, reason = self._specificity(match, shouting=shouting)
        domains, why = self._domains(term) if specific else ([], "")
        return {
            "text": term.text,
            "field": term.field,
            "span": [match.start, match.end],
            "kind": match.kind,
            "files": term.files,
            "specific": specific,
            "domains": domains,
            "reason": reason + why,
        }

    def _specificity(self, match: _Found, *, shouting: bool) -> tuple[bool, str]:
        """Say whether a term is rare enough to point at the entries that declare it, and why."""
        term, total = match.term, len(self._entries)
        if match.kind == "typo":
            return False, "one letter differs"
        if term.cased and shouting:
            return False, "the query is all capitals, so a name cannot be told from a common word"
        if term.files > self.file_limit:
            return False, f"common: stands in {term.files} of {total} entries, more than {self.file_limit}"
        return True, f"stands in {term.files} of {total} entries"

    def _domains(self, term: _Term) -> tuple[list[str], str]:
        """Return the domains a specific term names: the categories that declare it, if most of its files are in them.

        An entry that declares the term counts twice: it is the likelier answer, and in a small knowledge base a few
        passing mentions elsewhere must not drown it.
        """
        if not term.categories:
            return [], "; its entries have no category"
        if 2 * (term.inside + term.categorised) < term.files + len(term.entries):
            return [], f"; only {term.inside} of them in the category it would name"
        return list(term.categories), ""

    def _hinted_entries(self, found: Sequence[_Found]) -> list[HintEntry]:
        """Rank the entries that declare the terms by how rare the terms are that they share with the query."""
        scores: dict[str, float] = defaultdict(float)
        declared: dict[str, list[_Term]] = defaultdict(list)
        for match in sorted(found, key=lambda match: len(match.term.entries)):
            term = match.term
            listed = term.entries[:MAX_LISTED]
            if len(term.entries) > MAX_LISTED and scores:
                listed = [entry_id for entry_id in scores if self._declares(entry_id, term)]
            weight = math.log1p(len(self._entries) / max(1, term.files)) * (TYPO_WEIGHT if match.kind == "typo" else 1)
            for entry_id in listed:
                scores[entry_id] += weight
                declared[entry_id].append(term)
        best = sorted(scores, key=lambda entry_id: (-scores[entry_id], entry_id))[:MAX_ENTRIES]
        return [self._hint_entry(entry_id, declared[entry_id], scores[entry_id]) for entry_id in best]

    def _declares(self, entry_id: str, term: _Term) -> bool:
        text = term.text.casefold()
        return any(
            field == term.field and text == other.casefold() for field, other in _declared(self._entries[entry_id])
        )

    def _hint_entry(self, entry_id: str, terms: Sequence[_Term], score: float) -> HintEntry:
        entry = self._entries[entry_id]
        return {
            "entry_id": entry.entry_id,
            "title": entry.title,
            "domains": list(entry.categories),
            "keywords": _unique(term.text for term in terms if term.field == "keywords"),
            "entities": _unique(term.text for term in terms if term.field == "entities"),
            "score": round(score, 4),
        }


def _unique(texts: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(texts))
