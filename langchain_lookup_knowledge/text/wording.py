"""Wording helpers: numbers with their nouns, and texts cut to a length."""

from collections.abc import Sequence

NO_PASSAGE_HOLDS = "no passage holds"
"""Begins the part of a relevance reason that names words of the query."""


def counted(number: int, one: str, many: str) -> str:
    """Return a number with its noun, such as "1 entry" or "0 entries"."""
    return f"{number} {one if number == 1 else many}"


def shorten(text: str, limit: int) -> str:
    """Cut `text` to at most `limit` characters, at a space if possible; mark the cut with `…`."""
    if len(text) <= limit:
        return text
    head = text[: limit - 1]
    at_blank = head.rsplit(maxsplit=1)[0] if any(c.isspace() for c in head[limit // 2 :]) else head
    return at_blank.rstrip() + "…"


def named_lines(lines: Sequence[int]) -> str:
    """Return the first and last of `lines` in words: "line 3" or "lines 3 to 5"."""
    first, last = lines
    return f"line {first}" if first == last else f"lines {first} to {last}"


def line_range(lines: Sequence[int] | None) -> str:
    """Return a line range as a path suffix such as `:12-20`; empty if it is unknown."""
    return f":{'-'.join(map(str, dict.fromkeys(lines)))}" if lines else ""
