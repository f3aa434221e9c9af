"""Similarity of two texts by shingles: runs of five words."""

from functools import lru_cache
from itertools import islice

from langchain_lookup_knowledge.text.tokens import cut

WORDS = 5
"""Words per run; a shorter text is one run."""
MAX_CHARS = 20_000
"""Maximum characters of a text whose runs are compared; full lengths are always compared."""
SAME = 0.9
"""Minimum share of common runs, relative to the text with more runs, for nearly equal texts."""


def nearly_equal(one: str, other: str) -> bool:
    """Return whether two texts share nine tenths of their runs of five words."""
    if min(len(one), len(other)) < SAME * SAME * max(len(one), len(other)):
        return False
    first, second = _runs(one[:MAX_CHARS]), _runs(other[:MAX_CHARS])
    most = max(len(first), len(second))
    return bool(most) and len(first & second) >= SAME * most


@lru_cache(maxsize=256)
def _runs(text: str) -> frozenset[int]:
    keys = cut(text).keys
    shifted = (islice(keys, start, None) for start in range(WORDS))
    runs = frozenset(map(hash, zip(*shifted, strict=False)))
    return runs or frozenset((hash(keys),) if keys else ())
