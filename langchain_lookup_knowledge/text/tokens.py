"""Splitting text into tokens: words, runs of katakana, emoji and other symbols, and characters.

Single characters are tokens in scripts written without spaces. A token has two forms: `exact`
ignores only case and Unicode form; `key` also ignores accents and English plural endings. Terms are
looked up by key, then compared by exact form.
"""

import re
import unicodedata
from collections.abc import Sequence
from functools import cache, lru_cache
from itertools import accumulate, pairwise
from typing import NamedTuple, overload

from langchain_lookup_knowledge.text.visible.cleaning import bounded

_SPACELESS = (
    "\u2e80-\u2fdf\u3005-\u3007\u3021-\u3029\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"  # Han
    "\U00020000-\U0003ffff"  # rare Han
    "\u3041-\u309f\u1100-\u115f\u3130-\u318f\uac00-\ud7af"  # hiragana, Hangul
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff"  # Thai, Lao, Burmese, Khmer
)
_KATAKANA = "\u30a1-\u30fa\u30fc-\u30ff\u31f0-\u31ff\uff66-\uff9f"
_SEMITIC_MARKS = "\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7\u0640\u064b-\u065f\u0670"
_SKIN_TONES = "\U0001f3fb-\U0001f3ff"

_ASCII_WORD = re.compile(r"([a-z0-9]+(?:'[a-z]+)*)")
_IS_SPACELESS = re.compile(f"[{_SPACELESS}]")
_ACCENTED = re.compile(
    r"[\u00c0-\u052f\u0620-\u06ff\u1e00-\u1fff][\u0300-\u036f]*|[a-z][\u0300-\u036f]+"
)
_CAMEL_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_UNDECOMPOSED = str.maketrans({"ı": "i", "ø": "o", "ł": "l", "đ": "d", "æ": "ae", "œ": "oe"})
_NOT_PLURAL = frozenset(
    "news lens this his us is gas bus plus always series species ios aws dns https".split()
)


class Token(NamedTuple):
    """A token and its position, [start, end) in code points.

    `spaceless`: whether it is a character of a script written without spaces.
    """

    start: int
    end: int
    spaceless: bool
    key: str
    exact: str


class Tokens(Sequence[Token]):
    """The tokens of a text, created only when needed: for most texts, the keys are enough.

    Args:
        text: the text.
        keys: the keys of its tokens.
        parts: gaps and tokens in alternation, as `re.split` returns them.
    """

    __slots__ = ("_edges", "_made", "_parts", "keys", "text")

    def __init__(self, text: str, keys: tuple[str, ...], parts: Sequence[str]) -> None:
        self.text = text
        self.keys = keys
        self._parts = parts
        self._edges: Sequence[int] = ()
        self._made: Sequence[Token] | None = None

    @classmethod
    def of(cls, text: str, made: Sequence[Token]) -> "Tokens":
        """Return `Tokens` with the given tokens, such as a split or joined variant."""
        tokens = cls(text, tuple([token.key for token in made]), ())
        tokens._made = made
        return tokens

    def __len__(self) -> int:
        return len(self.keys)

    @overload
    def __getitem__(self, index: int) -> Token: ...
    @overload
    def __getitem__(self, index: slice) -> list[Token]: ...
    def __getitem__(self, index: int | slice) -> Token | list[Token]:
        if self._made is not None:
            return list(self._made[index]) if isinstance(index, slice) else self._made[index]
        if not self._edges:
            self._edges = list(accumulate(map(len, self._parts)))
        if isinstance(index, slice):
            return [self._token(i) for i in range(*index.indices(len(self.keys)))]
        return self._token(range(len(self.keys))[index])

    def exact(self) -> Sequence[str]:
        """Return the exact forms of the tokens."""
        if self._made is not None:
            return [token.exact for token in self._made]
        return [_fold(word)[1] for word in self._parts[1::2]]

    def spaceless(self) -> Sequence[bool]:
        """Return, for each token, whether it is a character of a script written without spaces."""
        if self._made is not None:
            return [token.spaceless for token in self._made]
        if self.text.isascii():
            return [False] * len(self.keys)
        return [_fold(word)[2] for word in self._parts[1::2]]

    def gaps(self) -> Sequence[str]:
        """Return the text before the first token, between tokens, and after the last."""
        if self._made is None:
            return self._parts[::2]
        edges = [0, *(edge for token in self._made for edge in token[:2]), len(self.text)]
        return [self.text[start:end] for start, end in zip(edges[::2], edges[1::2], strict=True)]

    def _token(self, index: int) -> Token:
        key, exact, spaceless = _fold(self._parts[2 * index + 1])
        return Token(self._edges[2 * index], self._edges[2 * index + 1], spaceless, key, exact)


def cut(text: str) -> Tokens:
    """Return the tokens of a text."""
    if text.isascii():
        parts = _ASCII_WORD.split(text.lower())
        return Tokens(text, tuple(map(singular, parts[1::2])), parts)
    parts = _classes().token.split(text)
    return Tokens(text, tuple([_fold(word)[0] for word in parts[1::2]]), parts)


def variants(tokens: Tokens) -> list[Tokens]:
    """Return alternative tokens of a text: `camelCase` split, and hyphenated words joined."""
    return [other for other in (split_humps(tokens), join_parts(tokens)) if other]


def split_humps(tokens: Tokens) -> Tokens | None:
    """Return the tokens with `camelCase` words split at inner capitals; None if there are no such
    words.
    """
    text = tokens.text
    if text.islower() or not _CAMEL_HUMP.search(text):
        return None
    made: list[Token] = []
    for token in tokens:
        word = text[token.start : token.end]
        edges = [0, *(match.start() for match in _CAMEL_HUMP.finditer(word)), len(word)]
        for start, end in pairwise(edges):
            key, exact, spaceless = _fold(word[start:end])
            made.append(Token(token.start + start, token.start + end, spaceless, key, exact))
    return Tokens.of(text, made)


def join_parts(tokens: Tokens) -> Tokens | None:
    """Return the tokens with words such as `e-mail` or `e.V` joined; None if there are no such
    words.
    """
    text = tokens.text
    if "-" not in text and "." not in text:
        return None
    made: list[Token] = []
    for token in tokens:
        before = made[-1] if made else None
        if (
            before
            and not before.spaceless
            and not token.spaceless
            and text[before.end : token.start] in ("-", ".")
        ):
            key, exact, _ = _fold(before.exact + token.exact)
            made[-1] = Token(before.start, token.end, False, key, exact)
        else:
            made.append(token)
    return Tokens.of(text, made) if len(made) < len(tokens) else None


def _fold(word: str) -> tuple[str, str, bool]:
    """Return (key, exact, spaceless) of a token."""
    if word.isascii():
        exact = word.lower()
        return singular(exact), exact, False
    return _remembered_fold(word) if len(word) <= 32 else _remembered_fold.__wrapped__(word)


@lru_cache(maxsize=100_000)
def _remembered_fold(word: str) -> tuple[str, str, bool]:
    exact = folded(word)
    return singular(unaccented(exact)), exact, _IS_SPACELESS.match(word) is not None


def folded(text: str) -> str:
    """Return a text in lower case and one Unicode form, in which words are compared if accents and
    plural endings matter.
    """
    if text.isascii():
        return text.lower()
    lower = plain(text).casefold().replace("i̇", "i").replace("’", "'").replace("ʼ", "'")
    return unicodedata.normalize("NFC", lower)


def is_spaceless(text: str) -> bool:
    """Return whether a text begins with a character of a script written without spaces."""
    return not text.isascii() and _IS_SPACELESS.match(text) is not None


def plain(text: str) -> str:
    """Return text in compatibility form (NFKC), without invisible characters.

    These are format characters, vowel points, variation selectors and skin tones.
    """
    return (
        text
        if text.isascii()
        else _classes().ignored.sub("", unicodedata.normalize("NFKC", bounded(text)))
    )


def unaccented(text: str) -> str:
    """Replace accented Latin, Greek, Cyrillic and Arabic letters with their base letters."""
    return text if text.isascii() else _ACCENTED.sub(_base_letters, text)


def _base_letters(accented: re.Match[str]) -> str:
    decomposed = unicodedata.normalize("NFD", accented[0].translate(_UNDECOMPOSED))
    return "".join(c for c in decomposed if not unicodedata.combining(c))


def singular(word: str) -> str:
    """Return an English word without a plural ending or possessive.

    Both sides of a comparison are treated in this way, so the result need not be a word.
    """
    if word[-1:] != "s":  # the usual case
        return word
    word = word.removesuffix("'s")
    if (
        len(word) < 4
        or word[-1] != "s"
        or word in _NOT_PLURAL
        or not (word.isascii() and word.isalpha())
    ):
        return word
    if word.endswith("ies") and len(word) > 4:
        return word[:-3] + "y"
    if word.endswith(("xes", "sses", "zes", "ches", "shes")):
        return word[:-2]
    return word if word.endswith(("ss", "us", "is")) else word[:-1]


class _Classes(NamedTuple):
    token: re.Pattern[str]
    ignored: re.Pattern[str]
    soft: re.Pattern[str]


@lru_cache(maxsize=10_000)
def is_soft(gap: str) -> bool:
    """Return whether a gap is only whitespace, line ends, hyphens, underscores and slashes.

    All such gaps between two words are equivalent.
    """
    return _classes().soft.fullmatch(gap) is not None


@cache
def _classes() -> _Classes:
    """Return patterns built from Unicode categories, which `re` does not support."""
    places = [
        *range(0xA0, 0xD800),
        *range(0xF900, 0x10000),
        *range(0x1F000, 0x1FC00),
        *range(0xE0000, 0xE01F0),
    ]
    categories: dict[str, list[int]] = {}
    for place in places:
        categories.setdefault(unicodedata.category(chr(place)), []).append(place)

    def members(*names: str) -> str:
        return "".join(
            _ranges(sorted(place for name in names for place in categories.get(name, ())))
        )

    mark = f"[{members('Mn', 'Mc', 'Me', 'Cf')}\u1160-\u11ff]"  # 1160-11ff: decomposed Hangul
    letter = rf"[^\W_{_SPACELESS}{_KATAKANA}]"
    run = f"{letter}+(?:{mark}+{letter}*)*"
    word = f"{run}(?:['’ʼ＇]{run})*"
    plain_word = r"[A-Za-z0-9]++(?=[\x00-\x26\x28-\x7f]|\Z)"  # fast path
    token = f"{plain_word}|[{_SPACELESS}]{mark}*|(?:[{_KATAKANA}]{mark}*)+|{word}|[{members('So')}]"
    ignored = f"[{members('Cf')}\ufe00-\ufe0f{_SKIN_TONES}{_SEMITIC_MARKS}]+"
    soft = rf"(?:[\s\-_/\u2212{members('Pd', 'Cf')}]|(?<=\n)>)*"  # `\n>`: a wrapped quote
    return _Classes(re.compile(f"({token})"), re.compile(ignored), re.compile(soft))


def _ranges(places: Sequence[int]) -> list[str]:
    """Return sorted code points as ranges of a character class."""
    ranges: list[list[int]] = []
    for place in places:
        if ranges and ranges[-1][1] == place - 1:
            ranges[-1][1] = place
        else:
            ranges.append([place, place])
    return [f"\\U{first:08x}-\\U{last:08x}" for first, last in ranges]
