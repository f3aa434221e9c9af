"""L0: which titles, keywords and entities stand in a query, and which of them can be trusted to name a domain.

A *term* is a title, keyword or entity as written in the frontmatter. Texts are cut into tokens: words, runs of
katakana, emoji, and single characters of scripts written without blanks. Terms stand in a dictionary under their token keys, so
a lookup costs a few dictionary look-ups per query token, however many terms there are. A key is loose (accents and
English plural endings are gone); each term found under it is then held against the query as written: symbols that belong to the
term, what stands between its words, and, where a name collides with a common word, its case.
"""

import copy
import math
import unicodedata
from collections import defaultdict
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

import regex
from rapidfuzz.distance import OSA

from langchain_lookup_knowledge.documents import Entry
from langchain_lookup_knowledge.types import Field, HintEntry, Hints, HintTerm, Problem
from langchain_lookup_knowledge.words import COMMON_WORDS, GENERIC_TITLES, STOP_WORDS

MAX_TOKENS = 32
"""Longest term that is matched, in tokens; of a longer one nobody types the whole."""
MAX_ENTRIES = 10
"""Most entries in the hints of one query."""
MAX_LISTED = 100
"""A term that more entries than this declare ranks entries that other terms found, but lists none of its own."""

MIN_TYPO_LETTERS = 6
MAX_CORRECTIONS = 3
CORRECTION_WINDOW = 4
TYPO_WEIGHT = 0.25

_KINDS = ("exact", "plural", "accents", "typo")
_SPACELESS = r"[\p{Han}\p{Hiragana}\p{Hangul}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}々〆]"
_KATAKANA = r"[\p{Katakana}ーｰﾞﾟ]"
_MARK = r"[\p{M}\p{Cf}]"
_TOKEN = regex.compile(
    rf"(?V1)(?P<char>{_SPACELESS}{_MARK}*)"
    rf"|(?P<kana>(?:{_KATAKANA}{_MARK}*)+)"
    rf"|(?P<word>(?:[[\p{{L}}\p{{N}}]--{_SPACELESS}--{_KATAKANA}]{_MARK}*)+(?:['’ʼ＇][\p{{L}}--{_SPACELESS}]+{_MARK}*)*)"
    r"|(?P<sign>[\p{So}\p{Emoji_Presentation}])"
)
_IGNORED = regex.compile(r"[\p{Cf}\uFE00-\uFE0F\U0001F3FB-\U0001F3FF\u0640\u064B-\u065F\u0670\u0591-\u05C7]")
_SOFT = regex.compile(r"[\s\p{Pd}_/−]*")
_ACCENTED = regex.compile(r"[[\p{Latin}\p{Greek}\p{Cyrillic}\p{Arabic}]--[\x00-\x7f]]\p{M}*|[a-z]\p{M}+", regex.V1)
_CAMEL = regex.compile(r"(?<=[\p{Ll}\d])(?=\p{Lu})|(?<=\p{Lu})(?=\p{Lu}\p{Ll})")
_LETTER = regex.compile(r"[\p{L}]")
_UNDECOMPOSED = str.maketrans({"ı": "i", "ø": "o", "ł": "l", "đ": "d", "æ": "ae", "œ": "oe"})
_NO_PLURAL = frozenset("news lens this his us is gas bus plus always series species ios aws dns https".split())


class _Token(NamedTuple):
    start: int
    end: int
    spaceless: bool
    key: str
    exact: str


@lru_cache(maxsize=200_000)
def _fold(token: str) -> tuple[str, str]:
    """Return (key, exact): equal `exact` is the same word in any Unicode form and case; equal `key` may differ in
    accents or in an English plural ending."""
    exact = _IGNORED.sub("", unicodedata.normalize("NFKC", token).casefold())
    exact = unicodedata.normalize("NFC", exact.replace("i̇", "i").replace("’", "'").replace("ʼ", "'"))
    return _singular(_unaccented(exact)), exact


def _unaccented(word: str) -> str:
    return word if word.isascii() else _ACCENTED.sub(_base_letters, word)


def _base_letters(accented: "regex.Match[str]") -> str:
    decomposed = unicodedata.normalize("NFD", accented[0].translate(_UNDECOMPOSED))
    return "".join(c for c in decomposed if not unicodedata.combining(c))


def _singular(word: str) -> str:
    """Undo -s, -es, -ies and a possessive; both sides of a comparison go through it, so it need not give a word."""
    word = word.removesuffix("'s")
    if len(word) < 4 or not word.endswith("s") or not word.isascii() or word in _NO_PLURAL or not word.isalpha():
        return word
    if word.endswith("ies") and len(word) > 4:
        return word[:-3] + "y"
    if word.endswith(("xes", "sses", "zes", "ches", "shes")):
        return word[:-2]
    return word if word.endswith(("ss", "us", "is")) else word[:-1]


def _tokens(text: str) -> list[_Token]:
    found = []
    for match in _TOKEN.finditer(text):
        key, exact = _fold(match[0])
        if exact:
            found.append(_Token(match.start(), match.end(), match.lastgroup == "char", key, exact))
    return found


def _split_tokens(text: str, tokens: Sequence[_Token]) -> list[_Token]:
    """Return the tokens with `camelCase` words cut at their humps."""
    cut: list[_Token] = []
    for token in tokens:
        word = text[token.start : token.end]
        edges = [0, *(match.start() for match in _CAMEL.finditer(word)), len(word)]
        for start, end in pairwise(edges):
            cut.append(_Token(token.start + start, token.start + end, token.spaceless, *_fold(word[start:end])))
    return cut


def _joined_tokens(text: str, tokens: Sequence[_Token]) -> list[_Token]:
    """Return the tokens with hyphenated and dotted words made one: `e-mail` as `email`, `node.js` as `nodejs`."""
    joined: list[_Token] = []
    for token in tokens:
        before = joined[-1] if joined else None
        if before and not before.spaceless and not token.spaceless and text[before.end : token.start] in ("-", "."):
            joined[-1] = _Token(before.start, token.end, False, *_fold(before.exact + token.exact))
        else:
            joined.append(token)
    return joined


@dataclass(slots=True)
class _Term:
    """A title, keyword or entity as written.

    `entries` declare it, and `categories` are theirs. `files` entries hold it somewhere in their text, `inside` of them in
    one of these categories.
    """

    text: str
    field: Field
    cased: bool
    entries: list[str]
    categories: tuple[str, ...] = ()
    files: int = 0
    inside: int = 0


class _Form(NamedTuple):
    """A way to write a term: its words, what stands between them, and the symbols around them that belong to it."""

    term: _Term
    exact: tuple[str, ...]
    gaps: tuple[str, ...]
    before: str
    after: str

    def kind(self, text: str, tokens: Sequence[_Token], first: int) -> str | None:
        """Say how the form matches the tokens from `first` on, whose keys are its own; None: it does not."""
        last = first + len(self.exact) - 1
        start, end = tokens[first].start, tokens[last].end
        if self.before and not text.endswith(self.before, 0, start):
            return None
        if self.after and (not text.startswith(self.after, end) or _LETTER.match(text, end + len(self.after))):
            return None
        for gap, (left, right) in zip(self.gaps, pairwise(tokens[first : last + 1]), strict=True):
            between = text[left.end : right.start]
            if between != gap and not (_is_soft(gap) and _is_soft(between)):
                return None
        if first == last and tokens[first].spaceless and _beside_spaceless(tokens, first):
            return None
        if self.term.cased and _plain(text[start:end]) != _plain(self.term.text):
            return None
        return self._likeness(tuple(token.exact for token in tokens[first : last + 1]))

    def _likeness(self, exact: tuple[str, ...]) -> str:
        if exact == self.exact:
            return "exact"
        pairs = list(zip(exact, self.exact, strict=True))
        if all(_singular(a) == _singular(b) for a, b in pairs):
            return "plural"
        return "accents"


@lru_cache(maxsize=10_000)
def _is_soft(gap: str) -> bool:
    """Say whether words are as good as neighbours: blanks, hyphens, underscores and slashes stand for one another."""
    return _SOFT.fullmatch(_IGNORED.sub("", gap)) is not None


def _plain(text: str) -> str:
    return _IGNORED.sub("", unicodedata.normalize("NFKC", text))


def _beside_spaceless(tokens: Sequence[_Token], position: int) -> bool:
    """Say whether a character stands inside a longer run of a script written without blanks."""
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


def _is_generic(title: str) -> bool:
    return _plain(title).casefold().strip() in GENERIC_TITLES


def _is_telling(text: str) -> bool:
    """Say whether a term is worth matching: not a stop word, a single letter or digit, or nothing but punctuation."""
    tokens = _tokens(text)
    if len(tokens) != 1:
        return bool(tokens)
    token = tokens[0]
    symbols = (text[: token.start] + text[token.end :]).strip()
    if symbols or token.spaceless or not token.exact.isalnum():
        return True
    is_name = text.strip().isupper()
    return len(token.exact) > 1 and (is_name or token.exact not in STOP_WORDS)


class _Found(NamedTuple):
    term: _Term
    start: int
    end: int
    kind: str


class _Matcher:
    """Forms under their token keys, so that a scan looks up a few keys a token, however many forms there are."""

    def __init__(self) -> None:
        self.forms: dict[tuple[str, ...], list[_Form]] = {}
        self._lengths: dict[str, tuple[int, ...]] = {}

    def copy(self) -> "_Matcher":
        """Return a matcher whose terms may be changed without changing these."""
        terms: dict[int, _Term] = {}
        other = _Matcher()
        other._lengths = dict(self._lengths)
        for keys, bucket in self.forms.items():
            other.forms[keys] = [
                form._replace(term=terms.setdefault(id(form.term), replace(form.term, entries=list(form.term.entries))))
                for form in bucket
            ]
        return other

    def add(self, keys: tuple[str, ...], form: _Form) -> None:
        bucket = self.forms.get(keys)
        if bucket is not None:
            bucket.append(form)
            return
        self.forms[keys] = [form]
        lengths = self._lengths.get(keys[0], ())
        if len(keys) not in lengths:
            self._lengths[keys[0]] = tuple(sorted((*lengths, len(keys)), reverse=True))

    def scan(self, text: str, tokens: Sequence[_Token], skip: Container[int] = ()) -> Iterator[_Found]:
        """Yield each term that stands in the tokens, by place and then longest first, but for those in `skip`."""
        keys = tuple(token.key for token in tokens)
        for first, key in enumerate(keys):
            if key not in self._lengths:
                continue
            for length in self._lengths[key]:
                if first + length > len(keys):
                    continue
                for form in self.forms.get(keys[first : first + length], ()):
                    kind = None if id(form.term) in skip else form.kind(text, tokens, first)
                    if kind:
                        start, end = tokens[first].start, tokens[first + length - 1].end
                        yield _Found(form.term, start - len(form.before), end + len(form.after), kind)


class _Spelling:
    """Words of the terms by their halves: with one letter wrong, one half of a word is still right."""

    def __init__(self, words: Iterable[str]) -> None:
        self._halves: dict[tuple[int, str, bool], list[str]] = {}
        for word in words:
            if len(word) >= MIN_TYPO_LETTERS and word.isalpha():
                middle = len(word) // 2
                self._halves.setdefault((len(word), word[:middle], True), []).append(word)
                self._halves.setdefault((len(word), word[middle:], False), []).append(word)

    def near(self, word: str) -> list[str]:
        """Return the words that differ in one letter: wrong, missing, superfluous, or two of them swapped."""
        if len(word) < MIN_TYPO_LETTERS - 1 or not word.isalpha() or word in COMMON_WORDS:
            return []
        found: set[str] = set()
        for length in range(max(MIN_TYPO_LETTERS, len(word) - 1), len(word) + 2):
            middle = length // 2
            for half in ((length, word[:middle], True), (length, word[middle - length :], False)):
                listed = self._halves.get(half, ())
                if len(listed) <= MAX_LISTED:
                    found.update(other for other in listed if OSA.distance(word, other, score_cutoff=1) <= 1)
        return sorted(found - {word})[:MAX_CORRECTIONS]


class HintIndex:
    """The terms of a set of entries, ready to be found in queries.

    Args:
        entries: the entries of the knowledge base.
        case_sensitive: keywords and entities that match only in the case they are written in, beside the built-in rule
            (capitals or a capitalised name whose small form is a common English word, such as `IT`, `AIMS`, `Red`).
    """

    def __init__(self, entries: Iterable[Entry], *, case_sensitive: Iterable[str] = ()) -> None:
        self._case_sensitive = frozenset(case_sensitive)
        self._entries = {entry.entry_id: entry for entry in entries}
        self._matcher = _Matcher()
        for entry in self._entries.values():
            self._declare(entry)
        self._finish()
        for entry in self._entries.values():
            self._count(entry, 1)

    def updated(self, entries: Iterable[Entry]) -> "HintIndex":
        """Return the index of other entries; texts that did not change are only read again for terms that are new."""
        after = {entry.entry_id: entry for entry in entries}
        gone = [entry for entry in self._entries.values() if after.get(entry.entry_id) != entry]
        come = [entry for entry in after.values() if self._entries.get(entry.entry_id) != entry]
        if len(gone) + len(come) > len(after) // 4:
            return HintIndex(after.values(), case_sensitive=self._case_sensitive)
        index = copy.copy(self)
        index._entries = after
        index._matcher = self._matcher.copy()
        for entry in gone:
            index._count(entry, -1)
        index._withdraw({entry.entry_id for entry in gone})
        for entry in come:
            index._declare(entry)
        fresh = index._finish()
        for entry in come:
            index._count(entry, 1)
        index._recount(fresh)
        return index

    def _withdraw(self, entry_ids: set[str]) -> None:
        """Take the entries' declarations back, and the terms that nobody declares any more."""
        for keys, bucket in list(self._matcher.forms.items()):
            for form in bucket:
                if not entry_ids.isdisjoint(form.term.entries):
                    form.term.entries = [entry_id for entry_id in form.term.entries if entry_id not in entry_ids]
            kept = [form for form in bucket if form.term.entries]
            if kept:
                self._matcher.forms[keys] = kept
            else:
                del self._matcher.forms[keys]

    def _finish(self) -> list[_Term]:
        """Bring what is derived from the declarations up to date; return the terms whose counts are to be made anew."""
        terms = {id(form.term): form.term for bucket in self._matcher.forms.values() for form in bucket}
        combinations: dict[tuple[str, ...], tuple[str, ...]] = {}
        changed = []
        for term in terms.values():
            declared = (c for entry_id in term.entries for c in self._entries[entry_id].categories)
            categories = tuple(dict.fromkeys(declared))
            if categories != term.categories or term.files == 0:
                term.categories = combinations.setdefault(categories, categories)
                changed.append(term)
        self._spelling = _Spelling(dict.fromkeys(key for keys in self._matcher.forms for key in keys))
        self._words = frozenset(key for keys in self._matcher.forms for key in keys)
        return changed

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
            written = _unaccented(_plain(" ".join((entry.text, *(text for _, text in _declared(entry))))).casefold())
            if any(stem in written for stem in stems):
                self._count(entry, 1, matcher)

    @property
    def problems(self) -> list[Problem]:
        """The keywords and entities that are not used, an entry at a time."""
        problems = []
        for entry in self._entries.values():
            unused = [text for field, text in _declared(entry) if field != "title" and not _is_telling(text)]
            if unused:
                listed = ", ".join(map(repr, unused))
                message = f"keywords that would match everything, or nothing, are not used as hints: {listed}"
                problems.append(Problem(entry.entry_id, None, message))
        return problems

    def _declare(self, entry: Entry) -> None:
        for field, text in _declared(entry):
            tokens = _tokens(text)
            if _is_telling(text) and len(tokens) <= MAX_TOKENS and not (field == "title" and _is_generic(text)):
                self._add(entry, field, text, tokens)

    def _add(self, entry: Entry, field: Field, text: str, tokens: Sequence[_Token]) -> None:
        term = _Term(text, field, self._is_cased(text, tokens), [entry.entry_id])
        known = self._add_form(term, text, tokens)
        if known is not term:
            if entry.entry_id not in known.entries[-1:]:
                known.entries.append(entry.entry_id)
            return
        for variant in (_split_tokens(text, tokens), _joined_tokens(text, tokens)):
            if len(variant) != len(tokens):
                self._add_form(term, text, variant)

    def _add_form(self, term: _Term, text: str, tokens: Sequence[_Token]) -> _Term:
        """Add a form of the term and return the term, or the one that is written so already."""
        keys = tuple(token.key for token in tokens)
        exact = tuple(token.exact for token in tokens)
        gaps = tuple(_IGNORED.sub("", text[a.end : b.start]) for a, b in pairwise(tokens))
        before, after = text[: tokens[0].start].strip(), _IGNORED.sub("", text[tokens[-1].end :]).strip()
        form = _Form(term, keys if keys == exact else exact, gaps, before, after)
        for other in self._matcher.forms.get(keys, ()):
            if other[1:] == form[1:] and (other.term.field, other.term.cased) == (term.field, term.cased):
                return other.term
        self._matcher.add(keys, form)
        return term

    def _is_cased(self, text: str, tokens: Sequence[_Token]) -> bool:
        if text in self._case_sensitive:
            return True
        if len(tokens) != 1 or tokens[0].exact not in COMMON_WORDS:
            return False
        word = text[tokens[0].start : tokens[0].end]
        return word == text.strip() and (word.isupper() or word.istitle())

    def _count(self, entry: Entry, change: int, matcher: "_Matcher | None" = None) -> None:
        """Add `change` to the number of files of each term that stands in the entry."""
        text = " .\n".join((*(text for _, text in _declared(entry)), entry.text))
        here = set(entry.categories)
        seen: set[int] = set()
        for found in (matcher or self._matcher).scan(text, _tokens(text), skip=seen):
            seen.add(id(found.term))
            found.term.files += change
            found.term.inside += change * (not here.isdisjoint(found.term.categories))

    def _scan(self, query: str) -> Iterator[_Found]:
        tokens = _tokens(query)
        yield from self._matcher.scan(query, tokens)
        if _CAMEL.search(query):
            yield from self._matcher.scan(query, _split_tokens(query, tokens))
        if "-" in query or "." in query:
            yield from self._matcher.scan(query, _joined_tokens(query, tokens))
        for position, token in enumerate(tokens):
            if token.key not in self._words:
                for word in self._spelling.near(token.key):
                    yield from self._scan_corrected(query, tokens, position, word)

    def _scan_corrected(self, query: str, tokens: Sequence[_Token], position: int, word: str) -> Iterator[_Found]:
        """Yield the terms that stand around a token if it is read as another word."""
        token = tokens[position]
        near = list(tokens[max(0, position - CORRECTION_WINDOW) : position + CORRECTION_WINDOW + 1])
        near[near.index(token)] = token._replace(key=word, exact=word)
        for found in self._matcher.scan(query, near):
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

    def _best(self, matches: Iterable[_Found]) -> list[_Found]:
        """Keep each term once, by place and then longest first; an accent or plural form yields to the exact one."""
        exact_spans = set()
        kept: dict[int, _Found] = {}
        for match in sorted(matches, key=lambda match: (match.start, -match.end, _KINDS.index(match.kind))):
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
        declared = sum(bool(self._entries[entry_id].categories) for entry_id in term.entries)
        if not term.categories:
            return [], "; its entries have no category"
        if 2 * (term.inside + declared) < term.files + len(term.entries):
            return [], f"; only {term.inside} of them in the category it would name"
        return list(term.categories), ""

    @property
    def file_limit(self) -> int:
        """How many entries may hold a specific term: 2 % of them, but at least 3 and at most 100.

        Under 2 %, a matched keyword is right in 84 to 100 % of cases; over it, in 1 to 11 % (benchmarks/quality.py).
        """
        return min(MAX_LISTED, max(3, math.ceil(0.02 * len(self._entries))))

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
        return (term.field, term.text) in _declared(self._entries[entry_id])

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
