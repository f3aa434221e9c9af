"""Parts of an entry, selected by heading or by lines."""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from rapidfuzz import process
from typing_extensions import TypedDict

from langchain_lookup_knowledge.errors import EntryNotFoundError
from langchain_lookup_knowledge.reading.entry import Entry
from langchain_lookup_knowledge.text.headings import heading_text
from langchain_lookup_knowledge.text.markdown import outline
from langchain_lookup_knowledge.text.visible.cleaning import one_line
from langchain_lookup_knowledge.text.wording import shorten

NEAREST = 3
"""Maximum number of names that a message suggests."""
NAME_CHARS = 200
"""Maximum characters of a name that is compared or shown in a message."""

_LINES = re.compile(r"\s*(\d{1,9})\s*(?:[-–:]\s*(\d{1,9})\s*)?")
_CITED = re.compile(r"(?P<source>.+?)(?::(?P<lines>\d{1,9}(?:-\d{1,9})?))?(?: > (?P<heading>.*))?")


How = Literal["link", "backlink", "near", "words"]


class Related(TypedDict):
    """An entry related to another one.

    `how`: "link" if the other entry links to this one or embeds it; "backlink" if this entry links
    to the other one or embeds it; "near" if one of the passages of this entry is similar in meaning
    or words: `heading`, `lines` and `similarity` then describe that passage. "words" if only its
    title and frontmatter share words.
    """

    entry_id: str
    title: str
    how: How
    heading: str
    lines: list[int] | None
    similarity: float | None


def related_by(
    how: How,
    entry_id: str,
    title: str,
    heading: str = "",
    lines: list[int] | None = None,
    similarity: float | None = None,
) -> Related:
    """Return an entry related to another one."""
    return {
        "entry_id": entry_id,
        "title": title,
        "how": how,
        "heading": heading,
        "lines": lines,
        "similarity": similarity,
    }


@dataclass(frozen=True, slots=True)
class Part:
    """A part of an entry: whole lines of its text.

    `heading` is the path of the headings above it, joined by " > "; empty for a whole entry.
    `lines` are its first and last line in the file, counted from 1. `numbers` and `ends` hold the
    file's line numbers of the start and the end of each line of `text`: hidden lines are missing,
    and several lines of the file may have become one.
    """

    entry_id: str
    title: str
    heading: str
    text: str
    numbers: tuple[int, ...]
    ends: tuple[int, ...]

    @property
    def lines(self) -> tuple[int, int]:
        """The first and the last line in the file."""
        return self.numbers[0], self.ends[-1]


def part_of(
    entry: Entry, *, heading: str | None = None, lines: tuple[int, int] | None = None
) -> Part:
    """Return a section with its subsections, or lines of the file, or the whole entry.

    With both arguments, return the given lines of that section.

    Raises:
        EntryNotFoundError: the entry has no such section, or no text in these lines.
    """
    written = entry.text.split("\n")
    numbers = [entry.file_line(number) for number in range(1, len(written) + 1)]
    ends = [entry.last_file_line(number) for number in range(1, len(written) + 1)]
    path, first, last = ("", 0, len(written)) if heading is None else _section(entry, heading)
    if lines is not None:
        first = max(first, bisect_left(ends, lines[0]))
        last = min(last, bisect_right(numbers, lines[1]))
    while first < last and not written[first].strip():
        first += 1
    while last > first and not written[last - 1].strip():
        last -= 1
    if first >= last and lines is None and heading is None:
        return Part(entry.entry_id, entry.title, "", "", (1,), (1,))
    if first >= last:
        with_text = [1, *(end for end, line in zip(ends, written, strict=True) if line.strip())]
        raise EntryNotFoundError(
            f"{entry.entry_id!r} has no text in these lines: it ends at line {with_text[-1]}"
        )
    text = "\n".join(written[first:last])
    places = tuple(numbers[first:last]), tuple(ends[first:last])
    return Part(entry.entry_id, entry.title, path, text, *places)


def _section(entry: Entry, heading: str) -> tuple[str, int, int]:
    """Return the path of a heading, and the start and end of its section among the lines.

    `heading` is a heading, or the end of a path such as "Install > Linux"; case does not matter.
    """
    wanted = one_line(heading).casefold()
    found = list(_headings(entry))
    whole = next((one for one in found if one[0].casefold() == wanted), None)
    ends = (one for one in found if f" > {one[0]}".casefold().endswith(f" > {wanted}"))
    chosen = whole or next(ends, None)
    if chosen is None:
        raise EntryNotFoundError(
            f"{entry.entry_id!r} has no heading {_shown(heading)}"
            + _suggestion(heading, [path.rpartition(" > ")[2] for path, _, _ in found])
        )
    path, level, start = chosen
    following = (line for _, other, line in found if line > start and other <= level)
    return path, start, next(following, entry.text.count("\n") + 1)


def _headings(entry: Entry) -> Iterator[tuple[str, int, int]]:
    """Yield the path, the level and the line, counted from 0, of each heading."""
    path: list[tuple[int, str]] = []
    for section in outline(entry.text).sections():
        if section.level:
            step = (section.level, heading_text(section.heading))
            path = [*(above for above in path if above[0] < section.level), step]
            yield " > ".join(title for _, title in path), section.level, section.line


def parse_lines(written: str) -> tuple[int, int]:
    """Return the first and the last line of "12-40" or "12".

    Raises:
        ValueError: it is neither.
    """
    found = _LINES.fullmatch(written)
    first, last = (int(found[1]), int(found[2] or found[1])) if found else (0, 0)
    if not 1 <= first <= last:
        raise ValueError(
            f'lines takes the first and the last line, such as "12-40", not {written!r}'
        )
    return first, last


class Cited(NamedTuple):
    """A place as lookups cite it, such as `guide.md:12-20 > Install`."""

    source: str
    lines: tuple[int, int] | None = None
    heading: str | None = None


def cited(written: str) -> Cited:
    """Return the parts of a citation. If it has lines, they are used and its heading is not."""
    found = _CITED.fullmatch(written)
    if found is None:
        return Cited(written)
    try:
        lines = parse_lines(found["lines"]) if found["lines"] else None
    except ValueError:
        lines = None
    return Cited(found["source"], lines, None if lines else found["heading"])


def unknown_entry(source: str, sources: Sequence[str]) -> EntryNotFoundError:
    """Return an error for an unknown source that suggests similar names from `sources`."""
    return EntryNotFoundError(f"there is no entry {_shown(source)}" + _suggestion(source, sources))


def _suggestion(name: str, names: Sequence[str]) -> str:
    near = process.extract(name[:NAME_CHARS], names, limit=NEAREST, score_cutoff=50)
    listed = ", ".join(dict.fromkeys(_shown(found) for found, _, _ in near))
    return f"; the nearest: {listed}" if listed else ""


def _shown(name: str) -> str:
    return repr(shorten(one_line(name), NAME_CHARS))
