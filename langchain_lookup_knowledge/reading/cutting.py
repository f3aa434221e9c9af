"""Cutting Markdown blocks that are too long for a passage.

Lengths are counted in units, such as model tokens. A *place* is a position in the text; a *joint*
is a place where prose may be cut.
"""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import NamedTuple

from langchain_lookup_knowledge.text.markdown import Block, Outline

Units = Callable[[str], Sequence[int]]
"""A function that returns the start positions of the units of a text, in order."""

MAX_STEPS = 200
"""Maximum joints that are tried before giving up on leaving enough text after a cut."""

_JOINTS = tuple(
    re.compile(joint)
    for joint in (r"\n\n", r"\n", r"(?<=[.!?])\s", r"[。！？]", r"[,;:，；、]\s?", r"\s")
)
"""Where prose is cut, best first: paragraphs, lines, sentences, clauses, words."""
_HTML_ROW = re.compile(r"<tr\b", re.IGNORECASE)
_HTML_ITEM = re.compile(r"<(?:dt|li)\b", re.IGNORECASE)
_HTML_HEAD_CELL = re.compile(r"<th\b", re.IGNORECASE)
_HTML_ROW_END = re.compile(r"</tr\s*>", re.IGNORECASE)
_HTML_THEAD_END = re.compile(r"\s*</thead\s*>", re.IGNORECASE)
_LIST_MARK = re.compile(r"[-*+]|\d{1,9}[.)]")


class Measure:
    """Lengths within one text.

    A piece shorter than `tail` is too short.
    """

    def __init__(self, text: str, size: int, units: Units) -> None:
        self.text = text
        self.size = size
        self.tail = size // 5
        self._count = units
        self._units = units(text)

    def length(self, start: int, end: int) -> int:
        """Return the number of units between two places."""
        return bisect_left(self._units, end) - bisect_left(self._units, start)

    def of(self, text: str) -> int:
        """Return the number of units of another text."""
        return len(self._count(text))

    def reach(self, start: int, size: int) -> int:
        """Return the last place at most `size` units after `start`."""
        last = bisect_left(self._units, start) + max(size, 0)
        return self._units[last] if last < len(self._units) else len(self.text)


@dataclass(frozen=True, slots=True, eq=False)
class Frame:
    """The head and foot of a block, such as code fences, which each of its pieces repeats."""

    start: int
    end: int
    head: str
    foot: str
    head_length: int
    foot_length: int

    def length(self, start: int, end: int) -> int:
        """Return the length of the head and foot that are repeated around a part of the block."""
        return self.head_length * (start > self.start) + self.foot_length * (end < self.end)


class Atom(NamedTuple):
    """A part of the text that is not cut, and the frame that it needs outside of its block."""

    start: int
    end: int
    frame: Frame | None = None


def atoms(lines: Outline, block: Block, measure: Measure, room: int) -> Iterator[Atom]:
    """Yield the parts of a block that is too long: items, rows, lines, sentences or words.

    Args:
        lines: the text and its lines.
        block: the block.
        measure: lengths in the text, and the maximum.
        room: the maximum length of the first part, if it is cut from prose.
    """
    if children := block.children:
        yield from _inner(lines, block, children, measure, room)
        return
    start, end = lines.start(block.first), lines.end(block.last)
    frame, edges = _framed(lines, block, measure)
    size = measure.size - (frame.head_length + frame.foot_length if frame else 0)
    for first, last in pairwise([start, *edges, end]):
        if measure.length(first, last) <= size:
            yield Atom(first, last, frame)
        else:
            for piece in prose(measure, first, last, room if first == start else size, size):
                yield Atom(*piece, frame)


def _inner(
    lines: Outline, block: Block, children: Sequence[Block], measure: Measure, room: int
) -> Iterator[Atom]:
    """Yield the blocks inside a list, an item or a quote; a term stays with its definitions."""
    edges = [block.first, *(child.first for child in children[1:]), block.last + 1]
    parts = [
        replace(child, first=first, last=max(first, end - 1))
        for child, (first, end) in zip(children, pairwise(edges), strict=True)
        if end > first
    ]
    for group in _with_definitions(parts):
        first, last = lines.start(group[0].first), lines.end(group[-1].last)
        if measure.length(first, last) <= measure.size:
            yield Atom(first, last)
            room = measure.size
            continue
        for part in group:
            start, end = lines.start(part.first), lines.end(part.last)
            if measure.length(start, end) <= measure.size:
                yield Atom(start, end)
            else:
                yield from atoms(lines, part, measure, room)
            room = measure.size


def _with_definitions(parts: Sequence[Block]) -> Iterator[list[Block]]:
    group: list[Block] = []
    for part in parts:
        if group and not (part.kind == "definition" or group[-1].kind == part.kind == "term"):
            yield group
            group = []
        group.append(part)
    if group:
        yield group


def _framed(lines: Outline, block: Block, measure: Measure) -> tuple[Frame | None, list[int]]:
    """Return the frame of code or a table, and the places between its lines or rows."""
    start, end = lines.start(block.first), lines.end(block.last)
    if block.kind == "html":
        head, foot, edges = _html(lines.text[start:end])
        edges = [start + edge for edge in edges]
    elif block.head:
        head = lines.text[start : lines.end(block.first + block.head - 1)]
        edges = [
            *map(lines.start, range(block.first + block.head + 1, block.last + 1 - block.foot))
        ]
        foot = ""
        if block.mark:
            indent, _, rest = head.partition(block.mark)
            indent = _LIST_MARK.sub(lambda mark: " " * len(mark[0]), indent)
            head, foot = f"{indent}{block.mark}{rest}", f"{indent}{block.mark}"
    else:
        return None, []
    if not head:
        return None, edges
    head_length, foot_length = measure.of(f"{head}\n"), measure.of(f"\n{foot}") if foot else 0
    if not edges or 2 * (head_length + foot_length) > measure.size:
        return None, []
    is_open = block.mark and not block.foot  # the last piece gets a closing fence, too
    return Frame(start, end + bool(is_open), head, foot, head_length, foot_length), edges


def _html(source: str) -> tuple[str, str, list[int]]:
    """Return the frame of an HTML table or list, and the places between its rows or items."""
    rows = [found.start() for found in _HTML_ROW.finditer(source)]
    if not rows:
        return "", "", [found.start() for found in _HTML_ITEM.finditer(source)][1:]
    closed = _HTML_ROW_END.search(source, rows[0])
    first = min([*rows[1:2], *([closed.end()] if closed else [])], default=len(source))
    if not _HTML_HEAD_CELL.search(source, rows[0], first):
        return "", "", rows[1:]
    if thead := _HTML_THEAD_END.match(source, first):
        first = thead.end()
    foot = "</table>" if "</table" in source[-20:].lower() else ""
    return source[:first].strip(), foot, [row for row in rows if row >= first][1:]


def prose(
    measure: Measure, start: int, end: int, room: int, size: int, level: int = 0
) -> Iterator[tuple[int, int]]:
    """Yield pieces of prose of at most `size` units.

    The first piece has at most `room` units if a joint allows that.

    Each piece is as long as possible, but a last piece that is too short takes text from the piece
    before it.
    """
    edges: list[int] = []
    while level < len(_JOINTS) and not edges:
        found = _JOINTS[level].finditer(measure.text, start, end)
        edges = [joint.end() for joint in found if joint.end() < end]
        level += 1
    while start < end:
        limit = measure.reach(start, room)
        if limit >= end:
            yield start, end
            return
        place = bisect_right(edges, limit) - 1
        if place >= 0 and edges[place] > start:
            cut = _before_tail(measure, edges, place, start, end)
            yield start, cut
        elif room < size:
            cut = start
        elif edges:
            following = bisect_right(edges, start)
            cut = edges[following] if following < len(edges) else end
            yield from prose(measure, start, cut, size, size, level)
        else:
            cut = max(limit, start + 1)
            yield start, cut
        start, room = cut, size


def _before_tail(measure: Measure, edges: list[int], place: int, start: int, end: int) -> int:
    """Return the last edge up to the one at `place` that leaves enough text on both sides, else the
    edge at `place`.
    """
    for edge in reversed(edges[max(0, place - MAX_STEPS) : place + 1]):
        if measure.length(edge, end) >= measure.tail:
            return edge if measure.length(start, edge) >= measure.tail else edges[place]
    return edges[place]
