"""Matching: which terms appear in a text, and where.

A *term* is a title, keyword or entity as written in the frontmatter; a *form* is one way to write
it. Forms are stored in a dictionary under their token keys, so that scanning a text costs a few
dictionary lookups per token, however many terms there are. A key is loose (accents and English
plural endings are removed), so each form found under it is then compared with the text as written:
the symbols that belong to the term, the gaps between its words, and, if the term is also a common
word, its case.
"""

from collections.abc import Collection, Container, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from langchain_lookup_knowledge.text.tokens import (
    Token,
    Tokens,
    is_soft,
    is_spaceless,
    plain,
    singular,
)
from langchain_lookup_knowledge.text.words import FUNCTION_CHARACTERS
from langchain_lookup_knowledge.types import Field

MAX_COMPARISONS = 500_000
"""Maximum comparisons of terms with one entry's text.

The rest of the text is not searched; only adversarial text gets that far.
"""
MAX_QUERY_COMPARISONS = 20_000
"""Maximum comparisons of terms with one query."""
QUOTES = "\"'`“”‘’«»"
"""Marks around a term that are not part of it."""


_OPENING = "([{（" + QUOTES
_CLOSING = ".,;:!?)]}）" + QUOTES


@dataclass(slots=True)
class Term:
    """A title, keyword or entity as written.

    `cased`: whether it matches only in its exact case. `entries`: the ids of the entries that
    declare it; `categorized`: how many of them have a category; `categories`: the categories they
    have. `document_frequency`: the number of entries that contain the term anywhere in their text;
    `inside`: how many of these are in one of `categories`. `variants`: one bit for each alternative
    tokenization of the term that no earlier term has as a form; `lost`: the keys of those that an
    earlier term has.
    """

    text: str
    field: Field
    cased: bool
    entries: list[str]
    categories: tuple[str, ...] = ()
    categorized: int = 0
    document_frequency: int = 0
    inside: int = 0
    variants: int = 0
    lost: tuple[tuple[str, ...], ...] = ()

    @property
    def found_as(self) -> tuple[Field, str, int]:
        """The values that decide where the term is found in a text."""
        return self.field, self.text, self.variants


class Occurrence(NamedTuple):
    """A term found in a text, at [start, end) in code points.

    `kind` is the kind of match: "exact", "plural", "accents", "typo" or "glossary".
    """

    term: Term
    start: int
    end: int
    kind: str


class Form(NamedTuple):
    """One way to write a term: its words, the gaps between them, and symbols at both ends."""

    term: Term
    exact: tuple[str, ...]
    gaps: tuple[str, ...]
    before: str
    after: str

    @classmethod
    def of(cls, term: Term, tokens: Tokens) -> "Form":
        """Return the form of a term that has these tokens."""
        keys, exact = tokens.keys, tuple(tokens.exact())
        before, *gaps, after = map(plain, tokens.gaps())
        before = before.strip().lstrip(QUOTES)
        after = after.strip().rstrip(QUOTES + ".,;:!")
        return cls(term, keys if keys == exact else exact, tuple(gaps), before, after)

    def find(self, tokens: Tokens, first: int) -> Occurrence | None:
        """Match the form at token `first`, where its keys were already found.

        Return None if the symbols, gaps or case of the text differ from those of the form.
        """
        if len(self.exact) == 1 and not (
            self.before or self.after or self.term.cased
        ):  # fast path for the most frequent case
            token = tokens[first]
            if token.spaceless and _is_lost(tokens, first):
                return None
            return Occurrence(self.term, token.start, token.end, self._likeness((token.exact,)))
        text, matched = tokens.text, tokens[first : first + len(self.exact)]
        start, end = matched[0].start, matched[-1].end
        if self.before and not text.endswith(self.before, 0, start):
            return None
        behind = end + len(self.after)
        if self.after and (
            not text.startswith(self.after, end) or text[behind : behind + 1].isalpha()
        ):
            return None
        for gap, (left, right) in zip(self.gaps, pairwise(matched), strict=True):
            between = text[left.end : right.start]
            if between != gap and not (is_soft(gap) and is_soft(between)):
                return None
        if len(matched) == 1 and matched[0].spaceless and _is_lost(tokens, first):
            return None
        if is_letter(self.term.text) and not _stands_alone(text, start, end):
            return None
        if self.term.cased and _words(text[start:end]) != _words(self.term.text):
            return None
        kind = self._likeness(tuple([token.exact for token in matched]))
        return Occurrence(self.term, start - len(self.before), behind, kind)

    def is_like(self, other: "Form") -> bool:
        """Return whether two forms match the same texts and belong to the same field."""
        one, two = self.term, other.term
        if self[1:] != other[1:] or (one.field, one.cased) != (two.field, two.cased):
            return False
        return not one.cased or plain(one.text) == plain(two.text)

    def _likeness(self, exact: tuple[str, ...]) -> str:
        if exact == self.exact:
            return "exact"
        pairs = list(zip(exact, self.exact, strict=True))
        if all(singular(a) == singular(b) for a, b in pairs):
            return "plural"
        return "accents"


def _words(text: str) -> list[str]:
    """Return the words of a text; its line breaks are ignored, even those in a block quote."""
    return plain(text).replace("\n>", "\n").split()


def is_letter(term: str) -> bool:
    """Return whether a term is a single capital letter, such as `C` or `R`."""
    letter = term.strip()
    return len(letter) == 1 and letter.isupper()


def _stands_alone(text: str, start: int, end: int) -> bool:
    """Return whether a letter is a word by itself, and not part of `C++`, `C#`, `R&D` or `C:`."""
    before, after = text[max(0, start - 3) : start], text[end : end + 3]
    neighbors = before[-1:].strip(_OPENING).strip(), after.lstrip(_CLOSING)[:1].strip()
    return not (
        before.rstrip().endswith("&")
        or after.lstrip().startswith("&")
        or any(neighbor and not is_spaceless(neighbor) for neighbor in neighbors)
    )


def _is_lost(tokens: Sequence[Token], position: int) -> bool:
    """Return whether a character of a script written without spaces has no meaning of its own here.

    Inside a longer run, it has one only if it is a Chinese character, but not a function word.
    """
    token = tokens[position]
    is_word = "\u3400" <= token.key[:1] <= "\u9fff" and token.key not in FUNCTION_CHARACTERS
    return not is_word and _inside_run(tokens, position)


def _inside_run(tokens: Sequence[Token], position: int) -> bool:
    """Return whether a token is part of a longer run in a script written without spaces."""
    token = tokens[position]
    left = (
        position > 0 and tokens[position - 1].spaceless and tokens[position - 1].end == token.start
    )
    right = (
        position + 1 < len(tokens)
        and tokens[position + 1].spaceless
        and tokens[position + 1].start == token.end
    )
    return left or right


class Matcher:
    """Forms under their token keys: a scan looks up a few keys per token, however many forms exist.

    A scan first finds the few tokens that can begin a form. `words` holds every key of every form;
    its value is true if the key alone is a form. `lost` maps the keys of a form to the terms that
    lack this form because an earlier term has it. `_lengths` maps the first two keys of longer
    forms to the numbers of keys that these forms have.
    """

    def __init__(self) -> None:
        self.forms: dict[tuple[str, ...], list[Form]] = {}
        self.words: dict[str, bool] = {}
        self.lost: dict[tuple[str, ...], list[Term]] = {}
        self._lengths: dict[tuple[str, ...], tuple[int, ...]] = {}

    def without(self, keys: Collection[tuple[str, ...]]) -> "Matcher":
        """Return a copy without the forms under these keys; its `words` is correct only once
        `forget` was called.
        """
        other = Matcher()
        other.forms = {**self.forms}
        other.lost = {**self.lost}
        for one in keys:
            other.forms.pop(one, None)
            other.lost.pop(one, None)
            if len(one) == 1 and one[0] in self.words:
                other.words[one[0]] = False
        other.words = {**self.words, **other.words}
        other._lengths = {**self._lengths}
        return other

    def forget(self, words: Collection[str]) -> set[str]:
        """Remove the given words that no form contains any more, and return them."""
        left = set(words)
        for keys in self.forms if left else ():
            left.difference_update(keys)
        for word in left:
            self.words.pop(word, None)
        return left

    def terms(self) -> list[Term]:
        """Return each term once."""
        return list(
            {id(form.term): form.term for bucket in self.forms.values() for form in bucket}.values()
        )

    def declare(self, term: Term, tokens: Tokens) -> Term:
        """Add a form of a term; return the term, or the earlier term that has the same form."""
        form = Form.of(term, tokens)
        for known in self.forms.get(tokens.keys, ()):
            if known.is_like(form):
                return known.term
        self.add(tokens.keys, form)
        return term

    def add(self, keys: tuple[str, ...], form: Form) -> None:
        """Add a form under its keys."""
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

    def scan(
        self, tokens: Tokens, skip: Container[int] = (), *, limit: int = MAX_QUERY_COMPARISONS
    ) -> Iterator[Occurrence]:
        """Yield each occurrence of a term, by position and then longest first.

        Terms whose `id()` is in `skip` are left out. The scan ends after `limit` comparisons.
        """
        keys = tokens.keys
        begins = {key for key in keys if self.words.get(key)}
        begins.update([key for key, _ in self._lengths.keys() & pairwise(keys)])
        if not begins:
            return
        left = limit
        for first, key in enumerate(keys):
            if key not in begins:
                continue
            if left < 0:
                return
            lengths = self._lengths.get(keys[first : first + 2], ())
            for length in (*lengths, 1) if self.words.get(key) else lengths:
                if first + length > len(keys):
                    continue
                bucket = self.forms.get(keys[first : first + length], ())
                left -= 1 + len(bucket)
                for form in bucket:
                    found = None if id(form.term) in skip else form.find(tokens, first)
                    if found:
                        yield found
