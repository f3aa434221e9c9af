"""Embedding parts of other entries: Obsidian's `![[Page#Heading]]`, includes of site generators.

A part comes only from an entry of the same knowledge base, never directly from a file. It has only
the attributes that its host and all of its source entries share. A scope that hides one of these
entries therefore hides the part, too.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from langchain_lookup_knowledge.reading.entry import (
    NO_CONNECTIONS,
    Connections,
    Embed,
    Entry,
    Mark,
    file_line,
)
from langchain_lookup_knowledge.reading.links import (
    MAX_LINKS,
    WIKILINK,
    LinkTargets,
    find_links,
    is_file_of_another_kind,
    is_within,
)
from langchain_lookup_knowledge.reading.metadata.frontmatter import draft_field
from langchain_lookup_knowledge.reading.selection import ENDINGS
from langchain_lookup_knowledge.scope import common_attributes, is_public
from langchain_lookup_knowledge.text.named_parts import (
    BLOCK_ID,
    HEADING_LINE,
    NamedParts,
    Part,
)
from langchain_lookup_knowledge.text.visible.cleaning import Shifts, one_line, unread_spans
from langchain_lookup_knowledge.text.wording import shorten
from langchain_lookup_knowledge.types import Problem

MAX_DEPTH = 3
"""Maximum nesting depth of embedded parts."""
MAX_MARKS = 1000
"""Maximum embeds that are read in a file; further ones stay as written."""
MAX_EMBEDS = 100
"""Maximum parts that one entry embeds, including nested ones."""
MAX_EMBEDDED_CHARS = 100_000
"""Maximum characters that one entry embeds."""
MAX_TOTAL_CHARS = 20_000_000
"""Maximum characters that all entries of a knowledge base embed together."""

_INCLUDED = rf"[^'\"\s%{{}}<>]{{1,300}}(?:{'|'.join(map(re.escape, ENDINGS))})"
_MARK = re.compile(
    rf"""
    (?<!\\)!{WIKILINK}
  | \{{\{{embed[ ]{{1,3}}\[\[(?P<logseq>[^\[\]|\#\n]{{1,300}})\]\]\}}\}}
  | \{{(?:\{{[%<]|%-?)\s{{0,9}}(?:include|include-markdown|include_relative|readfile)\s{{1,9}}
    (?:(?:file|src|path)\s{{0,3}}=\s{{0,3}})?(?P<quote>["']?)(?P<tag>{_INCLUDED})(?P=quote)
    (?P<rest>(?:\s[^%<>{{}}]{{0,500}})?)[-+]?[%>]\}}\}}?
  | ^[ \t]{{0,20}}-{{1,9}}8<-{{1,9}}[ ]{{1,3}}(?P<mark>["'])(?P<snippet>{_INCLUDED})
    (?P<lines>:[^"'\n]{{0,100}})?(?P=mark)[ \t]{{0,20}}$
  | ^[ \t]{{0,20}}(?P<fence>:{{3,20}}|`{{3,20}})\{{include\}}[ \t]{{1,3}}
    (?P<directive>{_INCLUDED})[ \t]*\n
    (?P<options>(?:[ \t]{{0,20}}:[\w-]{{1,40}}:[^\n]{{0,300}}\n){{0,20}})
    (?:[ \t]{{0,20}}\n){{0,3}}[ \t]{{0,20}}(?P=fence)[ \t]*$
    """,
    re.VERBOSE | re.MULTILINE | re.IGNORECASE,
)
_MARK_SIGNS = ("![[", "{{embed", "include", "readfile", "8<-")
_PARTLY = re.compile(r"\b(?:start|end|lines?|after|before|section|range)\b", re.IGNORECASE)
_OPENING, _ZERO, _ONE = "\ufff9", "\ufffa", "\ufffb"  # `clean` removes these from all texts
_PLACE = re.compile(f"{_OPENING}([{_ZERO}{_ONE}]+)")


class _Refused(Exception):
    """The reason why a part cannot be embedded, with the fix."""


class _Limited(_Refused):
    """A reason, such as a limit, that depends on the host (the entry with the embed)."""


def find_connections(body: str) -> tuple[str, Connections]:
    """Return a text with its embeds as invisible marks, and its links and embeds as written.

    Each mark is on the line where its embed begins. Line numbers do not change.
    """
    if not any(sign in body for sign in ("[[", "](", "]:", "{%", "{{", "8<", "{include}")):
        return body, NO_CONNECTIONS
    unread = unread_spans(body)
    begins = {start for start, _ in unread}
    links = tuple(dict.fromkeys(find_links(body, unread)))[:MAX_LINKS]
    marks: list[Mark] = []

    def replaced(found: re.Match[str]) -> str:
        first = found.start() + len(found[0]) - len(found[0].lstrip())
        is_own_fence = found["fence"] and first in begins
        is_code = is_within(first, unread) and not is_own_fence
        line_start = body.rfind("\n", 0, first) + 1
        if len(marks) >= MAX_MARKS or is_code or HEADING_LINE.match(body, line_start):
            return found[0]
        mark = _read_mark(found)
        if mark is None:
            return found[0]
        marks.append(mark)
        return _place(len(marks) - 1) + "\n" * found[0].count("\n")

    has_marks = any(sign in body for sign in _MARK_SIGNS)
    text = _MARK.sub(replaced, body) if has_marks else body
    return text, Connections(links, tuple(marks))


def joined(entries: Sequence[Entry], problems: list[Problem]) -> list[Entry]:
    """Return entries with their links, backlinks and embedded parts, for a caller who may see only
    these entries.

    Embeds that cannot be resolved are reported.
    """
    raw = [e if not e.written.marks else replace(e, text=e.written.text) for e in entries]
    targets = LinkTargets(raw)
    reader = _Reader({entry.entry_id: entry for entry in raw}, targets)
    embeds = {
        entry.entry_id: tuple(reader.read(entry.entry_id, problems))
        for entry in raw
        if entry.written.marks
    }
    links: dict[str, tuple[str, ...]] = {}
    backlinks: dict[str, list[str]] = {}
    for entry in raw:
        name = entry.entry_id
        found = [targets.find(link, name) for link in entry.written.links]
        found += reader.targets_of(name)
        links[name] = tuple(dict.fromkeys(i for i in found if i is not None and i != name))
        for target in links[name]:
            backlinks.setdefault(target, []).append(name)
    return [
        _connected(
            entry,
            text=reader.text(entry.entry_id),
            embeds=embeds.get(entry.entry_id, ()),
            links=links[entry.entry_id],
            backlinks=tuple(backlinks.get(entry.entry_id, ())),
        )
        for entry in entries
    ]


def rejoined(before: Sequence[Entry], edited: Sequence[tuple[Entry, Entry]]) -> list[Entry] | None:
    """Return the joined entries `before`, with the edited ones renewed; `edited` pairs each of them
    as joined before with the same entry as read now. None if an edit may change other entries, too.

    That is so if an edited entry has embeds or is embedded, or if its links or the values by which
    links are resolved have changed.
    """
    new = {entry.entry_id: entry for _, entry in edited}
    for known, entry in edited:
        if (
            (known.title, known.entities, known.attributes, known.written.links)
            != (entry.title, entry.entities, entry.attributes, entry.written.links)
            or known.written.marks
            or entry.written.marks
        ):
            return None
    if any(entry.written.marks and not new.keys().isdisjoint(entry.links) for entry in before):
        return None
    if any(not new.keys().isdisjoint(embed.sources) for e in before for embed in e.embeds):
        return None
    return [
        replace(new[entry.entry_id], links=entry.links, backlinks=entry.backlinks)
        if entry.entry_id in new
        else entry
        for entry in before
    ]


def _connected(entry: Entry, **values: Any) -> Entry:
    """Return an entry with these values; the same object if it has them already."""
    if all(getattr(entry, name) == value for name, value in values.items()):
        return entry
    return replace(entry, **values)


def _place(number: int) -> str:
    return _OPENING + format(number, "b").replace("0", _ZERO).replace("1", _ONE)


def _number(place: re.Match[str]) -> int:
    return int(place[1].replace(_ZERO, "0").replace(_ONE, "1"), 2)


def _read_mark(found: re.Match[str]) -> Mark | None:
    """Return an embed or include; None for an image or another non-Markdown file."""
    written = found[0].strip()
    if found["page"] is not None or found["logseq"]:
        target = (found["page"] or found["logseq"] or "").rstrip("\\").strip()
        fragment = (found["fragment"] or "").rstrip("\\")
        if is_file_of_another_kind(target):
            return None
        return Mark(written, written, target, fragment.lstrip("#").strip(), False)
    target = found["tag"] or found["snippet"] or found["directive"]
    options = (found["rest"] or "") + (found["options"] or "")
    is_partial = bool(found["lines"] or _PARTLY.search(options))
    return Mark(written, target, target, "", True, is_partial)


@dataclass(slots=True)
class _Room:
    """The numbers of parts and characters that an entry may still embed."""

    parts: int
    chars: int


class _Reader:
    """Resolves the marked embeds of entries to parts of other entries."""

    def __init__(self, entries: Mapping[str, Entry], targets: LinkTargets) -> None:
        self._entries = entries
        self._targets = targets
        self._left = MAX_TOTAL_CHARS
        self._named: dict[str, NamedParts] = {}

    def targets_of(self, host: str) -> Iterator[str]:
        """Yield the entries that an entry embeds or tries to embed."""
        for mark in self._entries[host].written.marks:
            if target := self._find(mark, host):
                yield target

    def text(self, name: str) -> str:
        """Return an entry's own text, with its embeds as written."""
        return self._restored(name, self._entries[name].text)

    def _restored(self, name: str, text: str) -> str:
        """Return a part of an entry's text with its embeds as written.

        They are there for every caller, whether read in place or not. Otherwise, a missing embed
        would reveal to a caller that there is an entry which a scope hides.
        """
        marks = self._entries[name].written.marks

        def written(place: re.Match[str]) -> str:
            number = _number(place)
            return marks[number].shown if number < len(marks) else ""

        return _PLACE.sub(written, text) if marks else text

    def read(self, host: str, problems: list[Problem]) -> list[Embed]:
        """Return the embedded parts of an entry, in the order of their lines."""
        entry = self._entries[host]
        room, embeds = _Room(MAX_EMBEDS, MAX_EMBEDDED_CHARS), list[Embed]()
        for line, number in self._places(host, 0, len(entry.text)):
            mark = self._entries[host].written.marks[number]
            at = entry.file_line(line)
            try:
                embeds += self._parts(mark, [entry], at, room, problems)
            except _Refused as reason:
                problems.append(_not_read(mark, host, at, reason))
        return embeds

    def _named_parts(self, name: str) -> NamedParts:
        if name not in self._named:
            self._named[name] = NamedParts(self._entries[name].text)
        return self._named[name]

    def _places(self, name: str, start: int, end: int) -> Iterator[tuple[int, int]]:
        """Yield the line, counted from 1, and the number of each mark in a part of an entry."""
        count = len(self._entries[name].written.marks)
        text = self._entries[name].text
        line, position = 1 + text.count("\n", 0, start) if count else 1, start
        for place in _PLACE.finditer(text, start, end) if count else ():
            line += text.count("\n", position, place.start())
            position = place.start()
            if _number(place) < count:
                yield line, _number(place)

    def _find(self, mark: Mark, host: str) -> str | None:
        if mark.is_include:
            return self._targets.included(mark.target, host)
        return self._targets.page(mark.target, host) if mark.target else host

    def _parts(
        self, mark: Mark, way: list[Entry], line: int, room: _Room, problems: list[Problem]
    ) -> list[Embed]:
        """Return the part that a mark shows, and the parts that are embedded in it.

        Args:
            mark: the embed, in the last entry of `way`.
            way: the host, and the entries that lead to the mark.
            line: the line of the outermost embed in the host's file.
            room: what the host may still embed.
            problems: receives the nested embeds that exceed a limit.

        Raises:
            _Refused: the part cannot be shown.
        """
        room.parts -= 1
        if room.parts < 0:
            raise _Limited(f"an entry may embed {MAX_EMBEDS} parts: link to it instead")
        target = self._allowed(mark, self._find(mark, way[-1].entry_id), way)
        first, start, end = self._part(mark, target)
        if end - start > min(room.chars, self._left):
            most = f"{MAX_EMBEDDED_CHARS} characters, and all together {MAX_TOTAL_CHARS}"
            raise _Limited(f"an entry may embed {most}: link to it instead")
        room.chars -= end - start
        self._left -= end - start
        way = [*way, target]
        embeds = list[Embed]()
        for _, number in self._places(target.entry_id, start, end):
            inner = target.written.marks[number]
            try:
                embeds += self._parts(inner, way, line, room, problems)
            except _Limited as reason:
                problems.append(_not_read(inner, way[0].entry_id, line, reason))
            except _Refused:  # it is reported for the entry that contains the mark
                continue
        text = self._restored(target.entry_id, target.text[start:end])
        if mark.fragment.startswith("^"):
            text = BLOCK_ID.sub("", text)
        if not text.strip():
            return embeds
        sources = tuple(entry.entry_id for entry in way[1:])
        shifts = _shifts(target.shifts, first)
        part = Embed(sources, target.title, text, shifts, line, common_attributes(way))
        return [part, *embeds]

    def _allowed(self, mark: Mark, found: str | None, way: Sequence[Entry]) -> Entry:
        """Return the entry that a mark shows.

        Raises:
            _Refused: it may not be shown.
        """
        if found is None:
            raise _Refused(
                f"{mark.target!r} is no entry of this knowledge base: correct its name, or add it"
            )
        target = self._entries[found]
        if any(entry.entry_id == found for entry in way):
            raise _Limited(f"{found} embeds itself, directly or through others: link to it")
        if len(way) > MAX_DEPTH:
            raise _Limited(f"it is nested more than {MAX_DEPTH} levels deep: link to it instead")
        if (field := draft_field(target.attributes)) and not draft_field(way[0].attributes):
            raise _Refused(f"{found} is a draft ({field}): publish it, or link to it")
        if mark.is_partial:
            raise _Refused("only whole files are included: remove the options that choose a part")
        return target

    def _part(self, mark: Mark, target: Entry) -> Part:
        """Return the part of an entry that a mark shows.

        Raises:
            _Refused: the entry has no such heading or block.
        """
        if not mark.fragment:
            return Part(0, 0, len(target.text))
        parts = self._named_parts(target.entry_id)
        if mark.fragment.startswith("^"):
            part = parts.block(mark.fragment[1:].strip())
        else:
            part = parts.section(mark.fragment.split("#"))
        if part is None:
            raise _Refused(f"{target.entry_id} has no {mark.fragment!r}: correct the name")
        return part


def _not_read(mark: Mark, host: str, line: int, reason: _Refused) -> Problem:
    written = shorten(one_line(mark.written), 80)
    return Problem(host, line, f"{written} is not embedded: {reason}")


def _shifts(shifts: Shifts, first: int) -> Shifts:
    """Return the line shifts of a text without its first `first` lines."""
    start = file_line(first + 1, shifts) - 1
    return ((1, start), *((at - first, s + first) for at, s in shifts if at > first + 1))


def partly_hidden(entries: Iterable[Entry], fields: Iterable[str]) -> Iterator[Problem]:
    """Report the embeds that some callers may not see although they may see the entry.

    `fields` are the frontmatter keys that decide who may see an entry. The text of such an embed is
    shown only to callers who may see both entries.
    """
    wanted = [field.casefold() for field in fields]
    for entry in entries:
        for embed in entry.embeds:
            if is_public(embed):
                continue
            kept = {pair for pair in embed.attributes if pair[0] in wanted}
            own = {pair for pair in entry.attributes if pair[0] in wanted}
            if is_public(entry) or own - kept:
                yield Problem(
                    entry.entry_id,
                    embed.line,
                    f"text of {embed.path} is shown only to callers who may see both "
                    "entries: give both the same values, or link to it",
                )
