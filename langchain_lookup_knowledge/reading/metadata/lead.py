"""The lead of an entry: texts of the frontmatter that readers see, as its first lines.

Each line keeps its number in the file, so that a passage of the lead cites the right lines.
"""

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from typing import NamedTuple

import yaml

from langchain_lookup_knowledge.reading.entry import file_line
from langchain_lookup_knowledge.text.visible.cleaning import one_line, visible

MAX_TEXTS = 200
"""Maximum texts that are read from one frontmatter key; a longer list is data, not text."""
MAX_SEARCHED = 500
"""Maximum lines of a TOML or JSON header that are searched for a text."""
MAX_DEPTH = 8
"""Maximum depth of lists and mappings that are searched for texts."""

_MACHINE_KEYS = frozenset(
    """
    action actions align alt background badge bg class classes color colour cta email file height
    href html icon icons id image img key lang layout light dark link links logo number order path
    photo ref rel size slug src style target theme thumbnail type uri url variant video weight width
    """.split()
)
"""Keys inside mappings whose values are not text for readers."""
_NOT_TEXT = re.compile(r"(?:[a-z][a-z0-9+.-]*:)?//\S*|[./~#][^\s]*|\S+\.[a-z0-9]{2,5}|[\W\d_]*")
_NO_VALUE = re.compile(r"~|null|true|false|", re.IGNORECASE)
_TAG = re.compile(r"</?[a-zA-Z][^<>]*>")
_BLOCK_MARK = re.compile(r"(?:`{3,}|~{3,}|<+|#{1,6}(?=\s)|%+)[ \t]*")


class Line(NamedTuple):
    """A line of text, and its number in the file; 0 if it has none."""

    text: str
    number: int


def lead_lines(node: yaml.Node, header: Sequence[str], first_line: int) -> Iterator[Line]:
    """Yield the lines of the texts in a value of the frontmatter; items of a list begin with `-`.

    Args:
        node: the value.
        header: the lines of the header; empty for metadata, which has no lines.
        first_line: the line of the file at which the header begins.
    """
    at = 0
    for number, (mark, scalar) in enumerate(_texts(node, "", 0, set())):
        if number >= MAX_TEXTS:
            return
        at, placed = _place(scalar, header, at)
        for row, (text, line) in enumerate(_cleaned(placed)):
            begins = mark if row == 0 else " " * len(mark)
            yield Line(begins + text, first_line + line if header else 0)


def in_file_order(texts: Iterable[tuple[int, list[Line]]]) -> list[Line]:
    """Return the lines of all texts in the order of the file, with an empty line between two texts.

    Args:
        texts: the column where the text begins, and its lines.
    """
    found = sorted(
        (text for text in texts if text[1]), key=lambda text: (text[1][0].number, text[0])
    )
    apart = [line for _, lines in found for line in (Line("", lines[0].number), *lines)][1:]
    # A text that an alias repeats stands further up: it cites the line before it instead.
    numbers = accumulate((line.number for line in apart), max)
    return [line._replace(number=number) for line, number in zip(apart, numbers, strict=True)]


def _texts(
    node: yaml.Node, mark: str, depth: int, begun: set[int]
) -> Iterator[tuple[str, yaml.ScalarNode]]:
    """Yield the texts in a value with their list marks: `- ` for the first text of an item.

    A list or mapping that an alias repeats is read once; `begun` holds the ids of those already
    read.
    """
    if isinstance(node, yaml.ScalarNode):
        said = one_line(node.value)
        if not (_NO_VALUE.fullmatch(said) or (depth and _NOT_TEXT.fullmatch(said))):
            yield mark, node
        return
    if depth > MAX_DEPTH or id(node) in begun:
        return
    begun.add(id(node))
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if isinstance(key, yaml.ScalarNode) and key.value.casefold() not in _MACHINE_KEYS:
                yield from _texts(value, mark, depth + 1, begun)
    elif isinstance(node, yaml.SequenceNode):
        for item in node.value:
            begins = "- "
            for _, scalar in _texts(item, "", depth + 1, begun):
                yield begins, scalar
                begins = "  "


def _place(
    scalar: yaml.ScalarNode, header: Sequence[str], at: int
) -> tuple[int, list[tuple[str, int]]]:
    """Return the header line where a text ends, and its lines, each with its header line.

    The lines come from the header if they equal the parsed value; else the value is one line. `at`
    is the header line where the previous text ends.
    """
    start, end = scalar.start_mark, scalar.end_mark
    if not header:
        return 0, [(line, 0) for line in scalar.value.split("\n")]
    if end is None:  # in TOML and JSON, only the line of the outermost key is known
        lines = scalar.value.strip().split("\n")
        rows = range(max(at, start.line), len(header))[:MAX_SEARCHED]
        escaped = json.dumps(lines[0])[1:-1]
        begins = [text[:60] for text in (lines[0], escaped)]
        found = (row for row in rows if any(text in header[row] for text in begins))
        row = next(found, max(at, start.line))
        placed = [(lines[0], row)]
        for text in lines[1:]:  # an escaped line end leaves the next line in the same row
            if row + 1 < len(header) and _begins_alike(text.strip(), header[row + 1].strip()):
                row += 1
            placed.append((text, row))
        return row, placed
    if scalar.style in ("|", ">"):
        rows = range(start.line + 1, min(end.line + (end.column > 0), len(header)))
        written = [(header[row].strip(), row) for row in rows]
    else:
        rows = range(start.line, min(end.line + 1, len(header)))
        written = [(header[row].strip(), row) for row in rows]
        if len(written) > 1:
            quote = scalar.style or ""
            written[0] = (header[rows[0]][start.column :].removeprefix(quote), rows[0])
            written[-1] = (header[rows[-1]][: end.column].strip().removesuffix(quote), rows[-1])
    if one_line(" ".join(text for text, _ in written)) == one_line(scalar.value):
        return start.line, written
    return start.line, [(one_line(scalar.value), start.line)]


def _begins_alike(text: str, row: str) -> bool:
    return text[:60] in row if text else not row


def _cleaned(lines: Iterable[tuple[str, int]]) -> Iterator[tuple[str, int]]:
    """Yield the lines as a reader sees them, without marks that would begin a Markdown block."""
    places = list(lines)
    seen = visible("\n".join(text for text, _ in places))
    for number, line in enumerate(seen.text.split("\n"), start=1):
        cleaned = _BLOCK_MARK.sub("", one_line(_TAG.sub(" ", line)), count=1)
        if cleaned and places:
            yield cleaned, places[min(file_line(number, seen.shifts), len(places)) - 1][1]
