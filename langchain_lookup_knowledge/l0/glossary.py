"""The vocabulary of a knowledge base: abbreviations and their long forms, from a glossary or from
the texts.

A query that contains one form is also searched with the other forms. An abbreviation is used only
if it has exactly one known meaning.
"""

import re
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice, pairwise
from typing import NamedTuple

from langchain_lookup_knowledge.reading.entry import Entry
from langchain_lookup_knowledge.reading.glossary_file import (
    NO_GLOSSARY,
    GlossaryFile,
    GlossaryTerm,
)
from langchain_lookup_knowledge.scope import Scope, is_visible
from langchain_lookup_knowledge.text.tokens import cut, is_soft
from langchain_lookup_knowledge.text.words import COMMON_WORDS
from langchain_lookup_knowledge.types import GlossaryJoin, Problem

MAX_ACRONYMS = 200
"""Maximum abbreviations that are taken from one entry."""
MAX_CANDIDATES = 2000
"""Maximum parentheses of an entry that are compared with the words around them."""
MAX_JOINS = 8
"""Maximum words of a query that are joined with their other forms."""
COMMON_SHARE, COMMON_ENTRIES = 0.1, 20
"""An abbreviation found in the texts is not joined with its long form if more than this share and
this number of entries contain it: it would not distinguish them.
"""
MAX_FORMS = 5
"""Maximum other forms of a word."""
MAX_WORDS = 10
"""Maximum words of a form."""

_SHORT = r"[A-Z][A-Za-z]{0,7}[A-Z]s?"
_USED = re.compile(rf"(?<!\w){_SHORT}(?!\w)")
_IN_PARENTHESES = re.compile(rf"\(({_SHORT})\)")
_BEFORE_PARENTHESES = re.compile(
    rf"(?<![\w/&.-])(?P<short>{_SHORT}) \((?P<long>[A-Za-z][^()\n|]{{3,100}})\)"
)
_ABBREVIATION = re.compile(
    r"^\*\[(?P<short>[^\[\]\n]{2,20})\]:[ \t]{1,9}(?P<long>[^\n]{3,100})$", re.MULTILINE
)
_WORD = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)?")
_MARKUP = re.compile(r"[*`\[\]\"“”‘]+|(?<!\w)_|_(?!\w)")
_END = re.compile(r"[.;:!?()|,]|\n[ \t]*\n")
_HUMP = re.compile(r"[A-Z]")
_SMALL_WORDS = frozenset("a an and at by de for in la le of on or the to und with".split())


def acronyms(text: str) -> list[GlossaryTerm]:
    """Return the abbreviations that a text explains, one per long form.

    Three patterns are recognized: "paid time off (PTO)" and "PTO (paid time off)", if the initials
    match, and Markdown abbreviations (`*[PTO]: paid time off`).
    """
    found: dict[tuple[str, str], None] = {}
    for match in islice(_IN_PARENTHESES.finditer(text), MAX_CANDIDATES):
        before = _MARKUP.sub(" ", text[max(0, match.start() - 200) : match.start()])
        if long := _spelled(match[1], _last_piece(before), at_end=True):
            found[_singular(match[1]), long] = None
    for match in islice(_BEFORE_PARENTHESES.finditer(text), MAX_CANDIDATES):
        inside = _MARKUP.sub(" ", _END.split(match["long"])[0])
        if long := _spelled(match["short"], inside, at_end=False):
            found[_singular(match["short"]), long] = None
    for match in islice(_ABBREVIATION.finditer(text), MAX_CANDIDATES) if "*[" in text else ():
        found[match["short"].strip(), match["long"].strip()] = None
    return [GlossaryTerm(short, (long,)) for short, long in list(found)[:MAX_ACRONYMS]]


def _singular(short: str) -> str:
    return short[:-1] if short.endswith("s") and short[:-1].isupper() else short


def _last_piece(text: str) -> str:
    return _END.split(text)[-1]


def _spelled(short: str, text: str, *, at_end: bool) -> str | None:
    """Return the words whose initials spell an abbreviation, or None: the last words of a text if
    `at_end`, otherwise all its words.
    """
    letters = _singular(short).casefold()
    words = (
        list(_WORD.finditer(text))[-2 * len(letters) - 2 :] if at_end else [*_WORD.finditer(text)]
    )
    if not at_end and len(words) > 2 * len(letters):
        return None
    if at_end and (not words or text[words[-1].end() :].strip()):
        return None
    first = _first_word(letters, [word[0] for word in words])
    if first is None or first == len(words) - 1 or (first and not at_end):
        return None
    pieces = [text[a.end() : b.start()] for a, b in pairwise(words[first:])]
    if any(piece.strip(" \t\n-/") for piece in pieces):
        return None
    start = words[first].start()
    if start and text[start - 1] in "-/_\\@.":
        return None
    long = " ".join(text[start : words[-1].end()].split())
    return long.removesuffix("'s").removesuffix("’s")


def _first_word(letters: str, words: Sequence[str]) -> int | None:
    """Find the words at the end whose initials spell the letters, and return the first position.

    A word with capitals inside may give several letters. Small words may be left out.
    """
    ways = {len(letters)}  # possible numbers of letters still to spell
    for place in range(len(words) - 1, -1, -1):
        word = words[place]
        humps = "".join(_HUMP.findall(word[1:])).casefold()
        spelled = [word[0].casefold(), *([word[0].casefold() + humps] if humps else [])]
        following = {
            left - len(part) for left in ways for part in spelled if letters[:left].endswith(part)
        }
        is_small = word.casefold() in _SMALL_WORDS
        if 0 in following and (not is_small or word.casefold() == "to"):
            return place
        if is_small and place < len(words) - 1:
            following |= ways
        ways = following - {0}
        if not ways:
            return None
    return None


@dataclass(frozen=True, slots=True)
class HouseWords:
    """The words that a knowledge base declares in its glossary, and those that its texts explain.

    The words of `declared` count only for callers who may see the glossary file. `found`: the
    abbreviations that each entry explains. `used`: the abbreviations that each entry contains.
    """

    declared: GlossaryFile = NO_GLOSSARY
    found: Mapping[str, Sequence[GlossaryTerm]] = field(default_factory=dict)
    used: Mapping[str, frozenset[str]] = field(default_factory=dict)
    texts: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        entries: Iterable[Entry],
        before: "HouseWords | None" = None,
        declared: GlossaryFile = NO_GLOSSARY,
    ) -> "HouseWords":
        """Return the words of these entries; unchanged texts are not read again."""
        known = before or cls()
        texts = {entry.entry_id: entry.text for entry in entries}
        found: dict[str, Sequence[GlossaryTerm]] = {}
        used: dict[str, frozenset[str]] = {}
        for name, text in texts.items():
            is_known = known.texts.get(name) == text
            found[name] = known.found[name] if is_known else acronyms(text)
            used[name] = known.used[name] if is_known else frozenset(_USED.findall(text))
        return cls(declared, found, used, texts)

    def glossary(self, visible: Iterable[str], scope: Scope = ()) -> "Glossary":
        """Return the glossary for a caller who may see these entries, which are all the entries of
        a scope.
        """
        names = list(visible)
        declared = self.declared.terms if is_visible(self.declared, scope) else ()
        found = {name: self.found[name] for name in names if self.found.get(name)}
        expanded = {acronym.word for words in found.values() for acronym in words}
        counts = Counter(
            short
            for name in names
            for short in {_singular(word) for word in self.used.get(name, ())} & expanded
        )
        limit = max(COMMON_ENTRIES, COMMON_SHARE * len(names))
        common = frozenset(short for short, count in counts.items() if count > limit)
        return Glossary(declared, found, common)


class _Meaning(NamedTuple):
    """A long form, and the entries that give it for an abbreviation."""

    short: str
    form: str
    entries: list[str]


class Glossary:
    """Words and their other forms, ready to be found in queries.

    Args:
        declared: the words of the glossary.
        found: the abbreviations that each entry explains.
        common: abbreviations in the texts that are too common to be joined with their long forms.
    """

    def __init__(
        self,
        declared: Iterable[GlossaryTerm],
        found: Mapping[str, Sequence[GlossaryTerm]],
        common: Container[str] = (),
    ) -> None:
        self._forms: dict[tuple[str, ...], list[str]] = {}
        self._cased: set[str] = set()
        self._lengths: dict[str, set[int]] = {}
        self.ambiguous: list[Problem] = []
        meanings: dict[tuple[str, ...], list[list[_Meaning]]] = {}
        for name, words in found.items():
            for short, (form, *_) in words:
                _note(meanings.setdefault(_key(short), []), _Meaning(short, form, [name]))
        by_key: dict[tuple[str, ...], list[GlossaryTerm]] = {}
        for acronym in declared:
            by_key.setdefault(_key(acronym.word), []).append(acronym)
        for key, acronyms_ in by_key.items():
            distinct = {tuple(cut(form).keys for form in one.forms): one for one in acronyms_}
            if len(distinct) > 1:
                self._report(acronyms_[0].word, [(one.forms[0], None) for one in acronyms_])
            else:
                self._join((acronyms_[0].word, *acronyms_[0].forms))
            meanings.pop(key, None)
        for several in meanings.values():
            if several[0][0].short in common:
                continue
            if len(several) > 1:
                listed = [(_usual(group).form, _usual(group).entries[0]) for group in several]
                self._report(several[0][0].short, listed)
            else:
                usual = _usual(several[0])
                self._join((usual.short, usual.form))

    def _report(self, short: str, forms: Sequence[tuple[str, str | None]]) -> None:
        listed = " and ".join(
            f"{form!r}" + (f" ({entry_id})" if entry_id else "") for form, entry_id in forms[:3]
        )
        self.ambiguous.append(
            Problem(
                forms[0][1] or ".",
                None,
                f"the abbreviation {short!r} stands for {listed}, so it is joined with none of "
                "them: declare one meaning in the glossary",
            )
        )

    def _join(self, words: Sequence[str]) -> None:
        """Join synonyms: a query that contains one of them is also searched with the others."""
        for word in words[: MAX_FORMS + 1]:
            tokens = cut(word)
            if not 0 < len(tokens) <= MAX_WORDS:
                continue
            others = [other for other in words if other != word][:MAX_FORMS]
            key = _key(word)
            known = self._forms.setdefault(key, [])
            known += [other for other in others if other not in known]
            self._lengths.setdefault(key[0], set()).add(len(tokens))
            if len(tokens) == 1 and tokens[0].exact in COMMON_WORDS:
                self._cased.add(word)

    def joins(self, query: str) -> list[GlossaryJoin]:
        """Return the words of a query that have other forms, the longest ones at each position.

        An abbreviation that is also a common word must be written as in the glossary, and is
        ignored in an all-capital query.
        """
        if not self._forms:
            return []
        tokens = cut(query)
        keys, gaps = tokens.keys, tokens.gaps()
        found: list[GlossaryJoin] = []
        place = 0
        while place < len(keys) and len(found) < MAX_JOINS:
            lengths = sorted(self._lengths.get(keys[place], ()), reverse=True)
            longer = (n for n in lengths if n > 1 and self._is_form(keys, gaps, place, n))
            length = next(longer, 1)
            start, end = tokens[place].start, tokens[place + length - 1].end
            forms = self._forms.get(keys[place : place + length], []) if length > 1 else []
            if length == 1 and self._may_be_a_form(query[start:end], tokens[place].exact, query):
                exact, key = (tokens[place].exact,), keys[place : place + 1]
                forms = self._forms.get(exact) or self._forms.get(key, [])
            if forms:
                found.append(
                    {"text": query[start:end], "span": [start, end], "forms": forms[:MAX_FORMS]}
                )
            place += length
        return found

    def _is_form(self, keys: tuple[str, ...], gaps: Sequence[str], place: int, length: int) -> bool:
        fits = place + length <= len(keys) and keys[place : place + length] in self._forms
        return fits and all(is_soft(gap) for gap in gaps[place + 1 : place + length])

    def _may_be_a_form(self, written: str, exact: str, query: str) -> bool:
        return exact not in COMMON_WORDS or (written in self._cased and not query.isupper())


def _key(word: str) -> tuple[str, ...]:
    """Return the key of a word: the keys of its tokens. The key of a single token is its exact
    form, because an abbreviation such as `IaaS` has no plural ending.
    """
    tokens = cut(word)
    return (tokens[0].exact,) if len(tokens) == 1 else tokens.keys


def _note(groups: list[list[_Meaning]], meaning: _Meaning) -> None:
    """Add a meaning to the group whose long forms differ from it only in endings, or to a new
    group.
    """
    for group in groups:
        if _are_alike(group[0].form, meaning.form):
            for known in group:
                if known.form.casefold() == meaning.form.casefold():
                    known.entries.extend(meaning.entries)
                    return
            group.append(meaning)
            return
    groups.append([meaning])


def _are_alike(one: str, other: str) -> bool:
    """Return whether two long forms differ only in small words and endings, as in "engineer" and
    "engineering".
    """
    first, second = (
        [key for key in cut(form).keys if key not in _SMALL_WORDS] for form in (one, other)
    )
    return len(first) == len(second) and all(
        a.rstrip("s") == b.rstrip("s") or (len(a) > 4 and len(b) > 4 and a[:5] == b[:5])
        for a, b in zip(first, second, strict=True)
    )


def _usual(group: Sequence[_Meaning]) -> _Meaning:
    return max(group, key=lambda meaning: len(meaning.entries))


def written_out(query: str, joins: Iterable[GlossaryJoin]) -> Iterator[tuple[str, int, int, int]]:
    """Yield the query with one word replaced by another form, the start and end of this form, and
    the number of code points by which the query became longer.
    """
    for join in joins:
        start, end = join["span"]
        for form in join["forms"]:
            text = query[:start] + form + query[end:]
            yield text, start, start + len(form), len(form) - (end - start)
