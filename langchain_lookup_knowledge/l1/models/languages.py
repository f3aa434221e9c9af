"""The language of a text, to decide whether an embedding model knows it."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import lru_cache

from langchain_lookup_knowledge.text.tokens import cut
from langchain_lookup_knowledge.text.words import COMMON_WORDS

ENGLISH = "en"
UNKNOWN = "und"
"""The code of a language that could not be found (ISO 639-2)."""
MAX_CHARS = 600
"""Maximum characters of a text that are examined."""
MIN_WORDS, MIN_LETTERS = 4, 16
"""Minimum words and letters for identifying the language of a text in Latin letters; in a shorter
text, names of products look foreign.
"""
MIN_CHARS = 6
"""Minimum characters for identifying the language of a text in another script."""
CERTAIN, LIKELY = 0.97, 0.5
"""Minimum probability of a language in Latin letters, and of one in another script; below it, the
language counts as unknown.
"""
MAX_WORDS = 30
ENGLISH_SHARE = 0.25
"""A text of at most `MAX_WORDS` words, all in ASCII, is English if this share of them are common
English words: the detector errs on short questions about products.
"""

_LATIN = re.compile(r"[\x00-\u024f\u1e00-\u1eff]")
_KANA = re.compile("[\u3041-\u30ff]")
_NAME = re.compile(r"(?<=\S )[A-Z]\S*")
_NOT_TEXT = re.compile(
    r"(?:```|~~~).*?(?:```|~~~|\Z)|`[^`\n]*`|https?://\S+|[\ud800-\udfff\0]", re.S
)
_ENGLISH_WORDS = COMMON_WORDS - frozenset(
    """
    a all also am an and any are as at be but by can do few for has have he her here his i in is it
    just let me more most must my no not of on once only or other out over own same she so some such
    than then to under up us very was we who will with yes you
    comment den die hat main man pain pour sale son ton war
    """.split()
)
"""Common English words, without function words that other languages have, too."""


def is_latin(text: str) -> bool:
    """Return whether at most a third of the words of a text are in non-Latin letters."""
    if text.isascii():
        return True
    keys = cut(text).keys
    return 3 * sum(key[0].isalpha() and not _LATIN.match(key) for key in keys) <= len(keys)


@lru_cache(maxsize=1024)
def known_language(text: str) -> str | None:
    """Do what `language` does, and keep the result for the next lookups."""
    return language(text)


def language(text: str) -> str | None:
    """Return the code of the language of a text (ISO 639-1), or None if it is too short to tell."""
    import gcld3  # noqa: PLC0415

    text = _NOT_TEXT.sub(" ", text[: 4 * MAX_CHARS])[:MAX_CHARS].strip()
    latin = is_latin(text)
    if latin:
        if len(text) < MAX_CHARS:
            text = _NAME.sub(" ", text)
        words = [word for word in cut(text).keys if word.isalpha()]
        if len(words) < MIN_WORDS or sum(map(len, words)) < MIN_LETTERS:
            return None
        is_short = len(words) <= MAX_WORDS and text.isascii()
        if is_short and sum(w in _ENGLISH_WORDS for w in words) >= ENGLISH_SHARE * len(words):
            return ENGLISH
    found = gcld3.NNetLanguageIdentifier(0, MAX_CHARS).FindLanguage(text)
    code: str = found.language.partition("-")[0]  # it may be "ja-Latn"
    if latin:
        return code if found.probability >= CERTAIN else None
    if code == "ja" and not _KANA.search(text):
        code = "zh"
    is_likely = found.probability >= LIKELY and len(text) >= MIN_CHARS
    return code if is_likely and code != ENGLISH else UNKNOWN


def languages(texts: Iterable[str]) -> Mapping[str, int]:
    """Return the number of texts in each language, most first; texts too short to tell are left
    out.
    """
    return dict(Counter(filter(None, map(language, texts))).most_common())


def named(code: str) -> str:
    """Return the name of a language."""
    if code == UNKNOWN:
        return "another language"
    return NAMES.get(code, f"the language {code!r}")


NAMES = {
    name.partition("=")[0]: name.partition("=")[2]
    for name in (
        "ar=Arabic bg=Bulgarian bn=Bengali ca=Catalan cs=Czech da=Danish de=German el=Greek "
        "en=English es=Spanish et=Estonian fa=Persian fi=Finnish fr=French he=Hebrew iw=Hebrew "
        "hi=Hindi hr=Croatian hu=Hungarian id=Indonesian it=Italian ja=Japanese ko=Korean "
        "lt=Lithuanian lv=Latvian ms=Malay nl=Dutch no=Norwegian pl=Polish pt=Portuguese "
        "ro=Romanian ru=Russian sk=Slovak sl=Slovenian sr=Serbian sv=Swedish th=Thai tr=Turkish "
        "uk=Ukrainian ur=Urdu vi=Vietnamese zh=Chinese"
    ).split()
}
