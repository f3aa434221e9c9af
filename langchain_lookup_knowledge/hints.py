"""L0: which titles, keywords and entities stand in a query, and which of them can be trusted to name a domain.

A *term* is a title, keyword or entity as written in the frontmatter. Texts are cut into tokens: words, runs of
katakana, emoji, and single characters of scripts written without blanks. Terms stand in a dictionary under their token keys, so
a lookup costs a few dictionary look-ups per query token, however many terms there are. A key is loose (accents and
English plural endings are gone); each term found under it is then held against the query as written: symbols that belong to the
term, what stands between its words, and, where a name collides with a common word, its case.
"""

import math
import unicodedata
from collections import defaultdict
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

import regex

from langchain_lookup_knowledge.documents import Entry
from langchain_lookup_knowledge.types import Field, HintEntry, Hints, HintTerm, Problem
from langchain_lookup_knowledge.words import COMMON_WORDS, GENERIC_TITLES, STOP_WORDS

FIELDS: tuple[Field, ...] = ("title", "keywords", "entities")
MAX_TOKENS = 12
"""Longest term that is matched, in tokens; of a longer one, a title above all, nobody types the whole."""
MAX_SPACELESS_TOKENS = 32
MAX_ENTRIES = 10
"""Most entries in the hints of one query."""
MAX_LISTED = 100
"""A term that more entries than this declare ranks entries that other terms found, but lists none of its own."""

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
_ACCENTED = regex.compile(r"[\p{Latin}\p{Greek}\p{Cyrillic}\p{Arabic}]")
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
    if word.isascii() or not _ACCENTED.search(word):
        return word
    decomposed = unicodedata.normalize("NFD", word.translate(_UNDECOMPOSED))
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
    """A title, keyword or entity; `gaps`, `before` and `after` are the symbols that belong to it."""

    text: str
    field: Field
    exact: tuple[str, ...]
    gaps: tuple[str, ...]
    before: str
    after: str
    cased: bool
    spaceless: bool
    entries: list[int]
    files: int = 0

    def kind(self, query: str, tokens: Sequence[_Token], first: int, last: int) -> str | None:
        """Say how the term matches tokens `first` to `last` of the query, or None if it does not."""
        start, end = tokens[first].start, tokens[last].end
        if self.before and not query.endswith(self.before, 0, start):
            return None
        if self.after and (not query.startswith(self.after, end) or _LETTER.match(query, end + len(self.after))):
            return None
        for i, gap in enumerate(self.gaps):
            between = query[tokens[first + i].end : tokens[first + i + 1].start]
            if between != gap and not (not gap.strip("./-_ ") and _SOFT.fullmatch(between)):
                return None
        if self.spaceless and first == last and _beside_spaceless(tokens, first):
            return None
        if self.cased and _plain(query[start:end]) != _plain(self.text):
            return None
        exact = tuple(token.exact for token in tokens[first : last + 1])
        if exact == self.exact:
            return "exact"
        if all(_unaccented(a) == _unaccented(b) for a, b in zip(exact, self.exact, strict=True)):
            return "accents"
        same_accents = all(_singular(a) == _singular(b) for a, b in zip(exact, self.exact, strict=True))
        return "plural" if same_accents else "accents"


def _plain(text: str) -> str:
    return _IGNORED.sub("", unicodedata.normalize("NFKC", text))


def _beside_spaceless(tokens: Sequence[_Token], position: int) -> bool:
    """Say whether a character stands inside a longer run of a script written without blanks."""
    token = tokens[position]
    left = position > 0 and tokens[position - 1].spaceless and tokens[position - 1].end == token.start
    right = position + 1 < len(tokens) and tokens[position + 1].spaceless and tokens[position + 1].start == token.end
    return left or right


class _Found(NamedTuple):
    term: _Term
    start: int
    end: int
    kind: str


class HintIndex:
    """The terms of a set of entries, ready to be found in queries.

    Args:
        entries: the entries of the knowledge base.
        case_sensitive: keywords and entities that match only in the case they are written in, beside the built-in rule
            (capitals or a capitalised name whose small form is a common English word, such as `IT`, `AIMS`, `Red`).
    """

    def __init__(self, entries: Sequence[Entry], *, case_sensitive: Iterable[str] = ()) -> None:
        self._entries = entries
        self._case_sensitive = frozenset(case_sensitive)
        self._terms: dict[tuple[str, ...], list[_Term]] = {}
        self._lengths: dict[str, tuple[int, ...]] = {}
        self.problems: list[Problem] = []
        for position, entry in enumerate(entries):
            self._add_entry(position, entry)
        self._index_lengths()
        self._count_files()

    def _add_entry(self, position: int, entry: Entry) -> None:
        ignored = []
        texts: dict[Field, Sequence[str]] = {
            "title": [entry.title],
            "keywords": entry.keywords,
            "entities": entry.entities,
        }
        for name in FIELDS:
            for text in texts[name]:
                if self._is_too_common(text):
                    if name != "title":
                        ignored.append(text)
                elif not (name == "title" and _plain(text).casefold() in GENERIC_TITLES):
                    self._add_term(position, text, name)
        if ignored:
            listed = ", ".join(repr(text) for text in ignored)
            message = f"keywords that would match everything, or nothing, are not used as hints: {listed}"
            self.problems.append(Problem(entry.entry_id, None, message))

    def _is_too_common(self, text: str) -> bool:
        """Say whether a term is a stop word, a single letter or digit, or has nothing to match but punctuation."""
        tokens = _tokens(text)
        if len(tokens) != 1:
            return not tokens
        token = tokens[0]
        symbols = (text[: token.start] + text[token.end :]).strip()
        if symbols or not token.exact.isalnum() or token.spaceless:
            return False
        written_as_name = text.strip().isupper() and len(token.exact) > 1
        return len(token.exact) == 1 or (token.exact in STOP_WORDS and not written_as_name)

    def _add_term(self, position: int, text: str, field: Field) -> None:
        tokens = _tokens(text)
        spaceless = any(token.spaceless for token in tokens)
        if len(tokens) > (MAX_SPACELESS_TOKENS if spaceless else MAX_TOKENS):
            return
        cased = self._is_cased(text, tokens)
        self._register(position, text, field, tokens, cased=cased)
        variants = [_split_tokens(text, tokens), _joined_tokens(text, tokens)]
        for variant in variants:
            if len(variant) != len(tokens):
                self._register(position, text, field, variant, cased=False)

    def _register(self, position: int, text: str, field: Field, tokens: Sequence[_Token], *, cased: bool) -> None:
        keys = tuple(token.key for token in tokens)
        exact = tuple(token.exact for token in tokens)
        gaps = tuple(_IGNORED.sub("", text[a.end : b.start]) for a, b in pairwise(tokens))
        before, after = text[: tokens[0].start].strip(), _IGNORED.sub("", text[tokens[-1].end :]).strip()
        bucket = self._terms.setdefault(keys, [])
        for term in bucket:
            same = term.field == field and term.exact == exact and term.cased == cased
            if same and (term.before, term.after, term.gaps) == (before, after, gaps):
                if term.entries[-1] != position:
                    term.entries.append(position)
                return
        spaceless = all(token.spaceless for token in tokens)
        bucket.append(_Term(text, field, exact, gaps, before, after, cased, spaceless, [position]))

    def _is_cased(self, text: str, tokens: Sequence[_Token]) -> bool:
        if text in self._case_sensitive:
            return True
        if len(tokens) != 1 or tokens[0].exact not in COMMON_WORDS:
            return False
        word = text[tokens[0].start : tokens[0].end]
        return word == text.strip() and (word.isupper() or word.istitle())

    def _index_lengths(self) -> None:
        lengths: dict[str, set[int]] = defaultdict(set)
        for keys in self._terms:
            lengths[keys[0]].add(len(keys))
        self._lengths = {key: tuple(sorted(found, reverse=True)) for key, found in lengths.items()}

    def _count_files(self) -> None:
        for entry in self._entries:
            fields = " .\n".join((entry.title, *entry.keywords, *entry.entities))
            text = f"{fields} .\n{entry.text}"
            seen: set[int] = set()
            for found in self._scan_tokens(text, _tokens(text), skip=seen):
                seen.add(id(found.term))
                found.term.files += 1

    def _scan(self, text: str) -> Iterator[_Found]:
        """Yield each term that stands in the text, in order of place, longest first."""
        tokens = _tokens(text)
        yield from self._scan_tokens(text, tokens)
        if _CAMEL.search(text):
            yield from self._scan_tokens(text, _split_tokens(text, tokens))
        if "-" in text or "." in text:
            yield from self._scan_tokens(text, _joined_tokens(text, tokens))

    def _scan_tokens(self, text: str, tokens: Sequence[_Token], skip: Container[int] = ()) -> Iterator[_Found]:
        keys = tuple(token.key for token in tokens)
        lengths, terms = self._lengths, self._terms
        for first, key in enumerate(keys):
            if key not in lengths:
                continue
            for length in lengths[key]:
                last = first + length - 1
                if last >= len(keys):
                    continue
                for term in terms.get(keys[first : last + 1], ()):
                    kind = None if id(term) in skip else term.kind(text, tokens, first, last)
                    if kind:
                        start, end = tokens[first].start - len(term.before), tokens[last].end + len(term.after)
                        yield _Found(term, start, end, kind)

    def hints(self, query: str) -> Hints:
        """Return what of the entries' titles, keywords and entities stands in the query, and the domains they name."""
        found = self._best(self._scan(query))
        shouting = query.isupper()
        terms = [self._term(match, shouting) for match in found]
        trusted = [match.term for match, term in zip(found, terms, strict=True) if term["specific"]]
        entries = self._hinted_entries([match.term for match in found])
        return {
            "titles": _unique(entry["title"] for entry in entries),
            "keywords": _unique(term["text"] for term in terms if term["field"] == "keywords"),
            "domains": _unique(c for term in trusted for i in term.entries for c in self._entries[i].categories),
            "entities": _unique(term["text"] for term in terms if term["field"] == "entities"),
            "entries": entries,
            "terms": terms,
        }

    def _best(self, matches: Iterable[_Found]) -> list[_Found]:
        """Keep each term once, by place and then longest first; an accent or plural form yields to the exact one."""
        exact_spans = set()
        kept: dict[int, _Found] = {}
        for match in sorted(matches, key=lambda match: (match.start, -match.end, match.kind != "exact")):
            if match.kind == "exact":
                exact_spans.add((match.start, match.end, match.term.field))
            elif (match.start, match.end, match.term.field) in exact_spans:
                continue
            kept.setdefault(id(match.term), match)
        return list(kept.values())

    def _term(self, match: _Found, shouting: bool) -> HintTerm:
        term = match.term
        specific, reason = self._specificity(term, shouting)
        return {
            "text": term.text,
            "field": term.field,
            "span": [match.start, match.end],
            "kind": match.kind,
            "files": term.files,
            "specific": specific,
            "reason": reason,
        }

    def _specificity(self, term: _Term, shouting: bool) -> tuple[bool, str]:
        limit = self.file_limit
        if term.cased and shouting:
            return False, "the query is all capitals, so a name cannot be told from a common word"
        if term.files > limit:
            return False, f"stands in {term.files} of {len(self._entries)} entries, more than {limit}"
        return True, f"stands in {term.files} of {len(self._entries)} entries"

    @property
    def file_limit(self) -> int:
        """How many entries may hold a term in their text for it to name a domain."""
        return max(3, math.ceil(0.02 * len(self._entries)))

    def _hinted_entries(self, terms: Sequence[_Term]) -> list[HintEntry]:
        """Rank the entries that declare the terms by how rare the terms are that they share with the query."""
        scores: dict[int, float] = defaultdict(float)
        declared: dict[int, list[_Term]] = defaultdict(list)
        for term in sorted(terms, key=lambda term: len(term.entries)):
            if len(term.entries) > MAX_LISTED and scores:
                positions = [position for position in term.entries if position in scores]
            else:
                positions = term.entries[:MAX_LISTED]
            weight = math.log1p(len(self._entries) / max(1, term.files))
            for position in positions:
                scores[position] += weight
                declared[position].append(term)
        best = sorted(scores, key=lambda position: (-scores[position], self._entries[position].entry_id))[:MAX_ENTRIES]
        return [self._hint_entry(position, declared[position], scores[position]) for position in best]

    def _hint_entry(self, position: int, terms: Sequence[_Term], score: float) -> HintEntry:
        entry = self._entries[position]
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
