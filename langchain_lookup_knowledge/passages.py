"""From an entry to passages: pieces small enough to embed, cut where Markdown has a joint, never silently shortened."""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from langchain_lookup_knowledge.cleaning import one_line
from langchain_lookup_knowledge.documents import Entry, fenced_blocks, sections

if TYPE_CHECKING:
    from langchain_text_splitters import RecursiveCharacterTextSplitter

Length = Callable[[str], int]
"""Measures a text; of texts with blanks between them the lengths add up, as those of tokens do."""

_BLANK_LINES = re.compile(r"\n(?:[ \t]*\n)+")
_ITEM = re.compile(r"([ \t]*)(?:[-*+]|\d{1,9}[.)])[ \t]+\S")
_INDENTED = re.compile(r"[ \t]{2,}\S|\t\S")
_TABLE_RULE = re.compile(r"[ \t]*\|?[ \t]*:?-+:?[ \t]*(\|[ \t]*:?-+:?[ \t]*)*\|?[ \t]*")
_FENCE = re.compile(r"[ \t]*(`{3,}+(?!.*`)|~{3,})")


@dataclass(frozen=True, slots=True)
class Passage:
    """A piece of an entry, small enough to embed; `heading` is the path of headings above it, joined by " > "."""

    number: int
    heading: str
    text: str


class _Parts(NamedTuple):
    """A block taken apart at its own joints; `head` and `foot`, such as the fences of code, belong to each piece of it."""

    head: str
    lines: list[str]
    foot: str


def split_passages(entry: Entry, *, size: int, length: Length) -> list[Passage]:
    """Split an entry at its headings into passages of at most `size`, as `length` measures text.

    Short neighbouring sections share a passage, with their headings in its text. A long section is cut between its
    paragraphs, lists, tables and code blocks. Only a block that is itself too long is cut: code and tables between lines,
    with the fence or the table's head repeated, lists between items, paragraphs between sentences or words. An entry
    without text gives one passage, its title.
    """
    pieces: list[tuple[str, str]] = []
    used = 0  # the length of the last piece
    bare: tuple[int, str] | None = None  # a heading without text, and without a passage that it stands above
    path: list[tuple[int, str]] = []
    for level, heading, text in sections(entry.text):
        if bare and level <= bare[0]:
            pieces.append(("", bare[1]))
            used, bare = length(bare[1]), None
        if heading:
            path = [step for step in path if step[0] < level] + [(level, one_line(heading))]
        above = " > ".join(title for _, title in path)
        body = text.strip()
        added = f"\n\n{'#' * level} {heading}\n\n{body}"
        measured = length(added)
        if pieces and used + measured <= size:
            pieces[-1] = (pieces[-1][0], pieces[-1][1] + added)
            used += measured
        elif body:
            pieces += [(above, piece) for piece in ([body] if measured <= size else _pieces(body, size, length))]
            used, bare = length(pieces[-1][1]), None
        else:
            bare = (level, above)
    if bare and bare[1]:
        pieces.append(("", bare[1]))
    pieces = pieces or [("", entry.title)]
    return [Passage(number, heading, text) for number, (heading, text) in enumerate(pieces)]


def _pieces(body: str, size: int, length: Length) -> list[str]:
    cut = (piece for block in _blocks(body) for piece in _cut(block, size, length))
    return [piece.strip("\n").rstrip() for piece in _packed(cut, "\n\n", size, length) if piece.strip()]


def _blocks(body: str) -> Iterator[str]:
    """Yield the code blocks, lists, tables and paragraphs of a text."""
    for is_code, run in fenced_blocks(body):
        if is_code:
            yield run.rstrip()
            continue
        block = ""
        for part in _BLANK_LINES.split(run.strip("\n")):
            if _ITEM.match(block) and (_ITEM.match(part) or _INDENTED.match(part)):
                block += f"\n\n{part}"
                continue
            if block.strip():
                yield block
            block = part
        if block.strip():
            yield block


def _packed(parts: Iterable[str], joint: str, size: int, length: Length) -> Iterator[str]:
    """Yield neighbouring parts joined as long as they stay within `size`."""
    group: list[str] = []
    used = 0
    for part in parts:
        measured = length(part)
        if group and used + length(joint) + measured > size:
            yield joint.join(group)
            group, used = [], 0
        used += measured + (length(joint) if group else 0)
        group.append(part)
    if group:
        yield joint.join(group)


def _cut(block: str, size: int, length: Length) -> list[str]:
    if length(block) <= size:
        return [block]
    parts = _parts(block)
    room = size - length(f"{parts.head}\n") - length(f"\n{parts.foot}")
    if len(parts.lines) < 2 or 2 * room < size:
        return [piece for piece in _splitter(size, length).split_text(block) if piece.strip()]
    lines = (piece for line in parts.lines for piece in (_cut(line, room, length) if length(line) > room else [line]))
    return ["\n".join(filter(None, (parts.head, group, parts.foot))) for group in _packed(lines, "\n", room, length)]


def _parts(block: str) -> _Parts:
    lines = block.split("\n")
    fence = _FENCE.match(lines[0])
    if fence:
        closed = len(lines) > 1 and _FENCE.match(lines[-1])
        return _Parts(lines[0], lines[1:-1] if closed else lines[1:], lines[-1] if closed else fence[1])
    if len(lines) > 2 and "|" in lines[0] and _TABLE_RULE.fullmatch(lines[1]):
        return _Parts("\n".join(lines[:2]), lines[2:], "")
    return _Parts("", _items(lines) if _ITEM.match(block) else [block], "")


def _items(lines: list[str]) -> list[str]:
    """Return the items of a list, each with the lines that belong to it."""
    outer = min(len(mark[1]) for line in lines if (mark := _ITEM.match(line)))
    items: list[str] = []
    for line in lines:
        mark = _ITEM.match(line)
        if items and not (mark and len(mark[1]) <= outer):
            items[-1] += f"\n{line}"
        else:
            items.append(line)
    return items


def _splitter(size: int, length: Length) -> "RecursiveCharacterTextSplitter":
    """Return what cuts running text at line ends, sentences, blanks, and at last anywhere."""
    from langchain_text_splitters import RecursiveCharacterTextSplitter  # noqa: PLC0415  (0.3 s)

    return RecursiveCharacterTextSplitter(
        separators=["\n\n", "\n", r"(?<=[.!?])\s", r"[。！？]", r"[,;:，；、]\s?", r"\s", ""],
        is_separator_regex=True,
        keep_separator="end",
        chunk_size=size,
        chunk_overlap=0,
        length_function=length,
    )
