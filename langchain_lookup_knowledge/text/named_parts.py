"""The named parts of a text: sections below headings, and blocks with an id (`^id`)."""

import re
from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

from langchain_lookup_knowledge.text.markdown import outline

HEADING_LINE = re.compile(r" {0,3}#{1,6}[ \t]")
"""Pattern of the start of a line with a heading."""
BLOCK_ID = re.compile(r"(?:^|(?<![ \t])[ \t]+)\^([A-Za-z0-9-]+)[ \t]*$", re.MULTILINE)
"""Pattern of the id that names a block, at the end of its last line or below it."""

_ITEM = re.compile(r"([ \t]*)(?:[-*+]|\d{1,9}[.)])[ \t]")


class Part(NamedTuple):
    """A part of an entry's text, [start, end) in code points.

    `first` is the number of lines above it.
    """

    first: int
    start: int
    end: int


class NamedParts:
    """The sections and blocks of a text that a link can name."""

    def __init__(self, text: str) -> None:
        self._lines = text.split("\n")
        self._starts = [0, *accumulate(len(line) + 1 for line in self._lines)]
        found = [(s.level, s.heading, s.line) for s in outline(text).sections() if s.level]
        self._headings = [line for _, _, line in found]
        self._ends = [len(self._lines)] * len(found)
        self._named: dict[str, list[int]] = {}
        above: list[int] = []
        for place, (level, heading, line) in enumerate(found):
            while above and found[above[-1]][0] >= level:
                self._ends[above.pop()] = line
            above.append(place)
            self._named.setdefault(_heading_key(heading), []).append(place)
        self._blocks: dict[str, int] = {}
        for number, text_line in enumerate(self._lines):
            if "^" in text_line and (block_id := BLOCK_ID.search(text_line)):
                self._blocks.setdefault(block_id[1].casefold(), number)

    def _of(self, first: int, last: int) -> Part:
        return Part(first, self._starts[first], max(self._starts[first], self._starts[last] - 1))

    def section(self, path: Sequence[str]) -> Part | None:
        """Return the section below a path of headings, with its heading; None if there is none."""
        first, last = 0, len(self._lines)
        wanted = [key for step in path if (key := _heading_key(step))]
        for key in wanted:
            places = self._named.get(key, [])
            following = bisect_left([self._headings[place] for place in places], first)
            if following == len(places) or self._headings[places[following]] >= last:
                return None
            first, last = self._headings[places[following]], self._ends[places[following]]
        return self._of(first, last) if wanted else None

    def block(self, block_id: str) -> Part | None:
        """Return the block that ends with `^block_id`; None if there is none.

        A block is a paragraph, a table, or a list item with the lines indented below it.
        """
        lines, at = self._lines, self._blocks.get(block_id.casefold())
        if at is None:
            return None
        if not BLOCK_ID.sub("", lines[at]).strip():  # the id is on its own line, below the block
            at -= 1
            while at >= 0 and not lines[at].strip():
                at -= 1
            if at < 0:
                return None
        end = at + 1
        if item := _ITEM.match(lines[at]):
            while (
                end < len(lines) and lines[end].strip() and _indent(lines[end]) > _indent(item[1])
            ):
                end += 1
            return self._of(at, end)
        while at > 0 and lines[at - 1].strip() and not HEADING_LINE.match(lines[at - 1]):
            at -= 1
        return self._of(at, end)


def _heading_key(heading: str) -> str:
    """Return the form in which headings are compared: only letters and digits."""
    return re.sub(r"[\W_]+", " ", heading).strip().casefold()


def _indent(line: str) -> int:
    expanded = f"{line}.".expandtabs(4)
    return len(expanded) - len(expanded.lstrip())
