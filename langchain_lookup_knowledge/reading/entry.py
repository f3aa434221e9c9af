"""An entry of the knowledge base: the contents of one Markdown file or document."""

import math
import unicodedata
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from langchain_lookup_knowledge.reading.metadata.standing import NO_STANDING, Standing
from langchain_lookup_knowledge.text.visible.cleaning import WITHIN, Shifts, bounded
from langchain_lookup_knowledge.types import Field


class Link(NamedTuple):
    """A link as written: its target, and whether it is a wikilink."""

    target: str
    is_wiki: bool


class Mark(NamedTuple):
    """An embed or include as written.

    `shown` is the text that remains if it cannot be embedded.
    """

    written: str
    shown: str
    target: str
    fragment: str
    is_include: bool
    is_partial: bool = False


class Connections(NamedTuple):
    """The links and embeds of an entry as written; where they lead depends on what a caller sees.

    `text` is the entry's text with an invisible mark in the place of each embed; "" without marks.
    """

    links: tuple[Link, ...] = ()
    marks: tuple[Mark, ...] = ()
    text: str = ""


NO_CONNECTIONS = Connections()


@dataclass(frozen=True, slots=True)
class Embed:
    """A part of another entry that is embedded, such as by `![[Page#Heading]]`.

    The host is the entry with the embed. `sources`: the ids of the entries between the host and the
    text; the last one holds the text, and `title` is its title. `line`: the line of the embed in
    the host's file. `attributes`: those that the host and all sources share, so that whoever sees
    the part may see all of them.
    """

    sources: tuple[str, ...]
    title: str
    text: str
    shifts: Shifts
    line: int
    attributes: tuple[tuple[str, str], ...]

    @property
    def path(self) -> str:
        """The id of the entry that holds the text."""
        return self.sources[-1]


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry: a file of the knowledge folder, or a document.

    `entry_id` is the file's path within the folder, in NFC and with `/` as separator, or the name
    of the document. `text` is the visible text: the texts of the frontmatter, then the body.
    """

    entry_id: str
    title: str
    keywords: tuple[str, ...]
    categories: tuple[str, ...]
    entities: tuple[str, ...]
    text: str
    attributes: tuple[tuple[str, str], ...] = ()
    """Lower-cased frontmatter keys with each of their values."""
    shifts: Shifts = ((1, 0),)
    lead: int = 0
    """The number of lines at the beginning of `text` that come from the frontmatter."""
    other_values: tuple[str, ...] = ()
    """Frontmatter values that no field uses; they are found by their exact words."""
    standing: Standing = NO_STANDING
    """Its state and version, and which entries replace it or are replaced by it."""
    embeds: tuple[Embed, ...] = ()
    """Embedded parts of other entries, in the order of their lines."""
    links: tuple[str, ...] = ()
    """The ids of the entries that this one links to or embeds, in order, each once."""
    backlinks: tuple[str, ...] = ()
    """The ids of the entries that link to this one or embed it, in the order of their paths."""
    written: Connections = NO_CONNECTIONS
    """Its links and embeds as written."""

    def __repr__(self) -> str:
        return f"Entry({self.entry_id!r}, {self.title!r})"

    def file_line(self, line: int) -> int:
        """Convert a line number of `text` to a line number of the file; both count from 1."""
        return file_line(line, self.shifts)

    def last_file_line(self, line: int) -> int:
        """Return the line number in the file of the end of a line of `text`; it differs from
        `file_line` where a hidden part of several lines stood within the line.
        """
        return last_file_line(line, self.shifts)

    def values(self, key: str) -> list[str]:
        """Return the values of a frontmatter key; case is ignored."""
        return [value for name, value in self.attributes if name == key.casefold()]

    def declared(self) -> Iterator[tuple[Field, str]]:
        """Yield the title, the keywords and the entities, each with the name of its field."""
        yield "title", self.title
        for text in self.keywords:
            yield "keywords", text
        for text in self.entities:
            yield "entities", text

    @property
    def declared_text(self) -> str:
        """The title, keywords and entities, one per line."""
        return "\n".join((self.title, *self.keywords, *self.entities))

    @property
    def lead_text(self) -> str:
        """The texts of the frontmatter at the beginning of `text`."""
        return "\n".join(self.text.split("\n", self.lead)[: self.lead])

    @property
    def frontmatter_text(self) -> str:
        """The values of the frontmatter that are not part of `text`, one per line."""
        return "\n".join((self.declared_text, *self.other_values))


def file_line(line: int, shifts: Shifts) -> int:
    """Convert a line number of a text to a line number of its file; both count from 1."""
    return line + shifts[bisect_right(shifts, (line, math.inf)) - 1][1]


def last_file_line(line: int, shifts: Shifts) -> int:
    """Return the line number in the file of the end of a line of a text; both count from 1."""
    return line + shifts[bisect_right(shifts, (line + WITHIN, math.inf)) - 1][1]


def category_key(category: str) -> str:
    """Return the form in which categories are compared: NFKC, case-folded, whitespace collapsed."""
    return " ".join(unicodedata.normalize("NFKC", bounded(category)).casefold().split())
