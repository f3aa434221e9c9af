"""Splitting an entry into passages: pieces small enough to embed.

Cuts follow the structure of Markdown. Only blocks without content of their own are left out (see
`text.substance`).
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from langchain_lookup_knowledge.reading.cutting import Frame, Measure, Units, atoms
from langchain_lookup_knowledge.reading.entry import Embed, Entry
from langchain_lookup_knowledge.text.headings import heading_text
from langchain_lookup_knowledge.text.markdown import Block, Outline, Section, outline
from langchain_lookup_knowledge.text.substance import (
    has_words,
    is_links_alone,
    reason_to_leave_out,
)
from langchain_lookup_knowledge.text.wording import shorten

MAX_HEADING = 200
"""Maximum characters of a heading in the path of a passage; a longer one is shortened there, and
kept in full in the text.
"""

_LABEL = re.compile(
    r"[*_]{2}[^*_\n]+[*_]{2}:?|[^\n]{1,200}\?[*_]{0,3}|(?:\*\*)?Q(?:\d+)?[:.][^\n]*"
)
"""Pattern of a paragraph that acts as a heading: a line in bold, or a question."""


@dataclass(frozen=True, slots=True)
class Passage:
    """A piece of an entry, small enough to embed.

    `heading` is the path of the headings above it, joined by " > ". `lines` are its first and last
    line in the file, counted from 1. For a passage of an embedded part, `embed` is that part, and
    the file is that of the entry with the text. `place` counts the passages of the entry's own text
    from 0. An embedded passage has the place of the passage before it. `place` is None in an entry
    without embedded parts.
    """

    number: int
    heading: str
    text: str
    lines: tuple[int, int] = (1, 1)
    embed: Embed | None = None
    place: int | None = None


class _Part(NamedTuple):
    """A part of the text that is not cut.

    `path` holds the headings above it. `heading` is the last of them if this is the first part
    below it. It is written above the part, unless the part comes first in its passage.
    """

    start: int
    end: int
    path: str
    heading: str = ""
    frame: Frame | None = None


@dataclass(slots=True)
class _Piece:
    """An unfinished passage; `length` is the length of its text."""

    measure: Measure
    parts: list[_Part] = field(default_factory=list)
    length: int = 0
    _before: int = 0  # length without the last run of adjoining parts
    _run: int = 0  # start of the last run

    def length_with(self, part: _Part) -> int:
        """Return the length of the text with one more part."""
        if not self.parts:
            return self._run_length(part.start, part)
        if self._continues(part):
            return self._before + self._run_length(self._run, part)
        above = self.measure.of(f"\n\n{part.heading}\n\n" if part.heading else "\n\n")
        return self.length + above + self._run_length(part.start, part)

    def add(self, part: _Part) -> None:
        length = self.length_with(part)
        if not (self.parts and self._continues(part)):
            self._before = length - self._run_length(part.start, part)
            self._run = part.start
        last = self.parts[-1] if self.parts else part
        self.length = length
        if (
            self.parts
            and part.frame
            and self._continues(part)
            and self.measure.length(last.start, part.end) < self.measure.tail // 2
        ):
            self.parts[-1] = last._replace(end=part.end)
        else:
            self.parts.append(part)

    def text(self) -> str:
        """Return the text of the passage."""
        texts: list[str] = []
        for run in self._runs():
            first, last = run[0], run[-1]
            if (first.heading and texts) or (first.heading and len(first.heading) > MAX_HEADING):
                texts.append(first.heading)
            text = self.measure.text[first.start : last.end].strip("\n").rstrip()
            if frame := first.frame:
                text = f"{frame.head}\n{text}" if first.start > frame.start else text
                text = f"{text}\n{frame.foot}" if frame.foot and last.end < frame.end else text
            texts.append(text if first.start < first.end else "" if texts else first.path)
        return "\n\n".join(filter(None, texts))

    def _runs(self) -> Iterator[list[_Part]]:
        run: list[_Part] = []
        for part in self.parts:
            if run and not _adjoins(self.measure.text, run[-1], part):
                yield run
                run = []
            run.append(part)
        yield run

    def _continues(self, part: _Part) -> bool:
        return _adjoins(self.measure.text, self.parts[-1], part)

    def _run_length(self, start: int, part: _Part) -> int:
        if part.start == part.end:
            return 0 if self.parts else self.measure.of(part.path)
        around = part.frame.length(start, part.end) if part.frame else 0
        return around + self.measure.length(start, part.end)


def _adjoins(text: str, before: _Part, part: _Part) -> bool:
    return (
        before.frame is part.frame
        and not part.heading
        and before.start < before.end <= part.start
        and not text[before.end : part.start].strip()
    )


def split_passages(entry: Entry, *, size: int, units: Units) -> list[Passage]:
    """Split an entry at its headings into passages of at most `size` units.

    Short adjacent sections share a passage, with their headings in its text. A long section is cut
    between its paragraphs, lists, tables and code blocks; a question stays with its answer. A block
    is cut only if it is too long by itself: code and tables between lines, with the code fence or
    table head repeated; lists between items; paragraphs between sentences or words. A passage that
    is shorter than a fifth of `size`, or holds only links, joins its neighbor or takes text from
    it, if that fits. An entry without text becomes one passage with its title.

    The passages of embedded parts follow the passage with the embed. An embedded part shares no
    passage with other text, because not everyone may see it.

    Args:
        entry: the entry.
        size: the maximum length of a passage.
        units: finds the units in which text is measured, such as tokens.
    """
    own = _split(entry, size, units)
    if not entry.embeds:
        return own
    following: dict[int, list[Passage]] = defaultdict(list)
    for embed in entry.embeds:
        place = sum(passage.lines[0] <= embed.line for passage in own[1:])
        part = replace(entry, text=embed.text, shifts=embed.shifts, embeds=())
        following[place] += [
            replace(passage, heading=passage.heading or embed.title, embed=embed, place=place)
            for passage in _split(part, size, units)
        ]
    placed = (replace(passage, place=place) for place, passage in enumerate(own))
    ordered = (p for passage in placed for p in (passage, *following[passage.number]))
    return [replace(passage, number=number) for number, passage in enumerate(ordered)]


def _split(entry: Entry, size: int, units: Units) -> list[Passage]:
    """Split the text of an entry, or of an embedded part, into passages."""
    lines = outline(entry.text)
    measure = Measure(entry.text, size, units)
    found: list[Passage] = []
    for piece, text in _with_headings(_joined(_pieces(lines, measure))):
        places = [*_places(lines, piece)]
        cited = entry.file_line(places[0] + 1), entry.last_file_line(places[-1] + 1)
        found.append(Passage(len(found), _path(piece), text, cited))
    first = entry.file_line(1)
    return found or [Passage(0, "", entry.title, (first, first))]


def _path(piece: _Piece) -> str:
    """Return the path of the headings above a piece; empty if its first part is a heading."""
    first = piece.parts[0]
    return first.path if first.end > first.start else ""


def _with_headings(pieces: Iterable[_Piece]) -> Iterator[tuple[_Piece, str]]:
    """Yield the pieces and their texts; a text that is only links gets its heading.

    If the heading does not fit, the links become two pieces.
    """
    for piece in pieces:
        text, measure = piece.text(), piece.measure
        heading = _path(piece).rpartition(" > ")[2]
        if not heading or not is_links_alone(text):
            yield piece, text
            continue
        above = f"## {heading}\n\n"
        if piece.length + measure.of(above) <= measure.size:
            yield piece, above + text
            continue
        middle = len(piece.parts) // 2
        halves = [half for half in (piece.parts[:middle], piece.parts[middle:]) if half]
        for half in halves:
            part = _piece(measure, half)
            fits = part.length + measure.of(above) <= measure.size
            yield part, above * fits + part.text()


def _places(lines: Outline, piece: _Piece) -> Iterator[int]:
    """Yield the first and last line of the parts of a piece, in order, counted from 0."""
    for part in (piece.parts[0], piece.parts[-1]):
        yield lines.line_at(part.start)
        yield lines.line_at(max(part.start, part.end - 1))


def _pieces(lines: Outline, measure: Measure) -> list[_Piece]:
    """Return the pieces of a text, section by section."""
    pieces: list[_Piece] = []
    bare: tuple[int, _Part] | None = None  # a heading with no text and no passage below it yet
    path: list[tuple[int, str]] = []
    for section in lines.sections():
        if bare and section.level <= bare[0]:
            pieces.append(_piece(measure, [bare[1]]))
            bare = None
        title = heading_text(section.heading)
        if title:
            shown = shorten(title, MAX_HEADING)
            path = [step for step in path if step[0] < section.level] + [(section.level, shown)]
        above = " > ".join(step for _, step in path)
        heading = f"{'#' * section.level} {title}" if title else ""
        groups = _groups(lines, section, measure)
        if len(title) > MAX_HEADING:
            groups.insert(0, [Block("paragraph", section.line, section.last)])
            heading = ""
        if groups:
            parts = [_part(lines, group, above) for group in groups]
            parts[0] = parts[0]._replace(heading=heading)
            _add_section(pieces, measure, lines, groups, parts)
            bare = None
        elif title:
            place = lines.start(section.line)
            part = _Part(place, place, above, heading)
            if pieces and pieces[-1].length_with(part) <= measure.size:
                pieces[-1].add(part)
            else:
                bare = section.level, part
    return [*pieces, _piece(measure, [bare[1]])] if bare else pieces


def _part(lines: Outline, group: Sequence[Block], path: str) -> _Part:
    return _Part(lines.start(group[0].first), lines.end(group[-1].last), path)


def _piece(measure: Measure, parts: Sequence[_Part]) -> _Piece:
    piece = _Piece(measure)
    for part in parts:
        piece.add(part)
    return piece


def _groups(lines: Outline, section: Section, measure: Measure) -> list[list[Block]]:
    """Return the blocks of a section that are not left out, in groups that belong together.

    A question or a line in bold stays with the blocks up to the next one, if that fits.
    """
    blocks = [block for block in section.blocks if not reason_to_leave_out(lines, block)]
    groups: list[list[Block]] = []
    for item in _items(lines, blocks):
        part = _part(lines, item, "")
        if measure.length(part.start, part.end) <= measure.size:
            groups.append(item)
            continue
        label = _part(lines, item[:2], "")
        fits = len(item) > 1 and measure.length(label.start, label.end) <= measure.size
        head = 2 if fits and _is_label(lines, item[0]) else 1
        groups += [item[:head], *([block] for block in item[head:])]
    return groups


def _items(lines: Outline, blocks: Sequence[Block]) -> Iterator[list[Block]]:
    item: list[Block] = []
    for block in blocks:
        if item and (_is_label(lines, block) or not _is_label(lines, item[0])):
            yield item
            item = []
        item.append(block)
    if item:
        yield item


def _is_label(lines: Outline, block: Block) -> bool:
    """Return whether a paragraph is one line that acts as a heading."""
    if block.kind != "paragraph" or block.first != block.last:
        return False
    start, end = lines.start(block.first), lines.end(block.last)
    return end - start <= MAX_HEADING and bool(_LABEL.fullmatch(lines.text, start, end))


def _add_section(
    pieces: list[_Piece],
    measure: Measure,
    lines: Outline,
    groups: Sequence[list[Block]],
    parts: Sequence[_Part],
) -> None:
    """Add a section to the last piece if it fits there, else as one or more new pieces."""
    if pieces and (joined := _with(pieces[-1], parts)):
        pieces[-1] = joined
        return
    if whole := _with(_Piece(measure), parts):
        pieces.append(whole)
        return
    piece = pieces.pop() if pieces and _is_short(pieces[-1]) else _Piece(measure)
    for group, part in zip(groups, parts, strict=True):
        fits = _Piece(measure).length_with(part) <= measure.size
        stands_alone = fits or piece.length >= measure.tail
        if stands_alone and piece.parts and piece.length_with(part) > measure.size:
            pieces.append(piece)
            piece = _Piece(measure)
        if fits:
            piece.add(part)
            continue
        room = measure.size - piece.length
        for atom in (atom for block in group for atom in atoms(lines, block, measure, room)):
            heading = part.heading if atom.start == part.start else ""
            following = _Part(atom.start, atom.end, part.path, heading, atom.frame)
            if piece.parts and piece.length_with(following) > measure.size:
                pieces.append(piece)
                piece = _Piece(measure)
            piece.add(following)
    pieces.append(piece)


def _with(piece: _Piece, parts: Sequence[_Part]) -> _Piece | None:
    """Return a copy of a piece with more parts; None if it would be too long."""
    joined = replace(piece, parts=[*piece.parts])
    for part in parts:
        if joined.length_with(part) > piece.measure.size:
            return None
        joined.add(part)
    return joined


def _is_short(piece: _Piece) -> bool:
    """Return whether a piece should join its neighbor: it is short, or holds only links."""
    return piece.length < piece.measure.tail or is_links_alone(piece.text())


def _joined(pieces: list[_Piece]) -> Iterator[_Piece]:
    """Yield the pieces that hold words; short ones join a neighbor or take parts of it."""
    before: _Piece | None = None
    for number in range(len(pieces)):
        piece = pieces[number]
        if not has_words(piece.text()):
            continue
        if _is_short(piece):
            following = pieces[number + 1] if number + 1 < len(pieces) else None
            if before and (joined := _with(before, piece.parts)):
                before = joined
                continue
            if following and (joined := _with(piece, following.parts)):
                pieces[number + 1] = joined
                continue
            if before:
                before, piece = _balanced(before, piece, from_end=True)
            if following:
                pieces[number + 1], piece = _balanced(following, piece, from_end=False)
        if before:
            yield before
        before = piece
    if before:
        yield before


def _balanced(neighbor: _Piece, piece: _Piece, *, from_end: bool) -> tuple[_Piece, _Piece]:
    """Move parts from the end or the start of a neighbor to a short piece, until it is long enough.

    The neighbor must not become short itself.
    """
    measure = piece.measure
    while len(neighbor.parts) > 1 and _is_short(piece):
        *rest, moved = neighbor.parts if from_end else reversed(neighbor.parts)
        less = _piece(measure, rest if from_end else rest[::-1])
        more = _piece(measure, [moved, *piece.parts] if from_end else [*piece.parts, moved])
        if more.length > measure.size or _is_short(less):
            break
        neighbor, piece = less, more
    return neighbor, piece
