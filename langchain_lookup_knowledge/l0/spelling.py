"""Spelling: finding words of terms that a misspelled word of a query may mean."""

from collections import defaultdict
from collections.abc import Iterable

from rapidfuzz.distance import OSA

from langchain_lookup_knowledge.text.words import COMMON_WORDS

MIN_TYPO_LETTERS = 6
"""Minimum letters of a word that is suggested as a correction."""
MAX_CORRECTIONS = 3
"""Maximum corrections of one word."""
MAX_SHARED_HALF = 100
"""Maximum words with the same half; if more words share a half, it is not used for corrections."""


class Spelling:
    """Words indexed by their halves: if one letter is wrong, the other half is still right."""

    def __init__(self, words: Iterable[str]) -> None:
        self._heads: dict[int, dict[str, list[str]]] = defaultdict(dict)
        self._tails: dict[int, dict[str, list[str]]] = defaultdict(dict)
        for word in filter(_is_correctable, words):
            middle = len(word) // 2
            self._heads[len(word)].setdefault(word[:middle], []).append(word)
            self._tails[len(word)].setdefault(word[middle:], []).append(word)

    def updated(self, come: Iterable[str], gone: Iterable[str]) -> "Spelling":
        """Return a copy with some more words, and without others."""
        come, gone = list(filter(_is_correctable, come)), list(filter(_is_correctable, gone))
        if not come and not gone:
            return self
        other = Spelling(())
        other._heads.update(self._heads)
        other._tails.update(self._tails)
        for length in {len(word) for word in (*come, *gone)}:
            other._heads[length] = {**other._heads[length]}
            other._tails[length] = {**other._tails[length]}
        for change, words in ((1, come), (-1, gone)):
            for word in words:
                middle = len(word) // 2
                for halves, half in (
                    (other._heads[len(word)], word[:middle]),
                    (other._tails[len(word)], word[middle:]),
                ):
                    others = [one for one in halves.get(half, ()) if one != word]
                    halves[half] = [*others, word] if change > 0 else others
        return other

    def near(self, word: str) -> list[str]:
        """Return words one edit away: one letter replaced, missing or added, or two swapped."""
        size = len(word)
        if size < MIN_TYPO_LETTERS - 1 or word in COMMON_WORDS or not word.isalpha():
            return []
        found: set[str] = set()
        for length in (size - 1, size, size + 1):
            middle = length // 2
            for halves, half in (
                (self._heads, word[:middle]),
                (self._tails, word[middle - length :]),
            ):
                listed = halves[length].get(half) if length in halves else None
                if listed and len(listed) <= MAX_SHARED_HALF:
                    found.update(
                        other for other in listed if OSA.distance(word, other, score_cutoff=1) <= 1
                    )
        return sorted(found - {word})[:MAX_CORRECTIONS] if found else []


def _is_correctable(word: str) -> bool:
    return len(word) >= MIN_TYPO_LETTERS and word.isalpha()
