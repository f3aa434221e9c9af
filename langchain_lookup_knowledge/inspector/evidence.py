"""The passages of a recorded lookup, read from today's entries."""

import re
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from markupsafe import Markup

from langchain_lookup_knowledge.errors import EntryNotFoundError
from langchain_lookup_knowledge.inspector.texts import shown_lines
from langchain_lookup_knowledge.knowledge_base import KnowledgeBase
from langchain_lookup_knowledge.l1 import indexing
from langchain_lookup_knowledge.lookup.invocation import passage_digest
from langchain_lookup_knowledge.reading.files import markdown_files, path_within
from langchain_lookup_knowledge.reading.parts import part_of
from langchain_lookup_knowledge.reading.selection import Rules
from langchain_lookup_knowledge.text.excerpts import unwrapped
from langchain_lookup_knowledge.text.search_terms import search_terms, term_spans
from langchain_lookup_knowledge.text.tokens import is_spaceless
from langchain_lookup_knowledge.text.wording import line_range, shorten

MAX_CHANGED_CHARS = 900
"""Maximum characters shown of lines that have changed since the lookup."""
MAX_READ_CHARS = 20_000
"""Maximum characters shown of lines that the read tool read."""
OPENERS = {"vscode": "vscode://file", "file": "file://"}
"""The beginnings of links that open a file, by their names."""
_STARTS = re.compile(r"(?<=[\s，、；。！？])(?=\S)|^")


@dataclass(frozen=True, slots=True)
class ShownPassage:
    """A passage as the model got it; if `state` is "changed", the same lines as they are now.

    `state` is "same", "changed", "gone" (the entry or these lines are no longer there), "unknown"
    (the record has no digest), or "unread" (there is no knowledge base to read from, or the scope
    of the caller is not known). Without a text, `text` is empty.
    """

    heading: str
    place: str
    link: str | None
    text: Markup
    state: str


class TodaysEntries:
    """The entries as they are now, read again when a file that is to be shown has changed.

    Args:
        look_kb: opens the knowledge base read-only; None if there is none, or if its entries may
            not be shown.
        opener: a key of `OPENERS`; None makes no links.
    """

    def __init__(
        self, look_kb: Callable[[], KnowledgeBase] | None, opener: str | None = None
    ) -> None:
        self._look_kb = look_kb
        self._opener = opener
        self._lock = threading.Lock()
        self._kb: KnowledgeBase | None = None
        self._seen: dict[str, tuple[int, int] | None] = {}

    def close(self) -> None:
        """Close the knowledge base, if one was opened."""
        if self._kb is not None:
            self._kb.close()

    def kb(self) -> KnowledgeBase | None:
        """Return the knowledge base, read again if a file of it changed or is new; None if there is
        none.
        """
        kb = self._current(list(self._seen))
        if kb is None:
            return None
        files = markdown_files(kb.folder, Rules(kb.folder, kb.selection, []), [])
        return self._current([path_within(path, kb.folder) for path in files])

    def passages(
        self, match: Mapping[str, Any], words: Collection[str], declared: Sequence[str]
    ) -> list[ShownPassage]:
        """Return the passages of a recorded match, best first.

        `words` are the search terms of the query, and `declared` the terms of the entry that the
        query names; both are marked in the texts.
        """
        ids = {match["entry_id"], *(p["path"] for p in match["passages"] if p["path"])}
        kb = self._current(ids)
        return [self._shown(kb, match, place, words, declared) for place in match["passages"]]

    def read(
        self, match: Mapping[str, Any], scope: Mapping[str, str] | None
    ) -> tuple[str, ShownPassage]:
        """Return the title and the lines of what the read tool read, as a caller with this scope
        sees them now; None if the scope of the caller is not known.
        """
        entry_id, lines = match["entry_id"], match["lines"]
        kb = None if scope is None else self._current([entry_id])
        title, text, state = "", "", "unread"
        if kb is not None:
            try:
                entry = kb.entry(entry_id, scope=scope or ())
                part = part_of(entry, lines=tuple(lines) if lines else None)
                title, (text, state) = entry.title, _read_text(part.text.strip(), match)
            except EntryNotFoundError:
                state = "gone"
            else:
                if entry.entry_id != entry_id:  # another entry has this name now
                    title, text, state = "", "", "gone"
        return title, ShownPassage(
            heading=match["heading"],
            place=entry_id + line_range(lines),
            link=self.link(entry_id, lines) if text else None,
            text=shown_lines(shorten(text, MAX_READ_CHARS)),
            state=state,
        )

    def link(self, entry_id: str, lines: Sequence[int] | None) -> str | None:
        """Return a link that opens the file of an entry at its first line, or None."""
        kb = self._current([entry_id])
        if kb is None or self._opener is None or entry_id not in kb.l0.entries:
            return None
        path = quote(str((kb.folder / entry_id).absolute()))
        line = f":{lines[0]}" if lines and self._opener == "vscode" else ""
        return f"{OPENERS[self._opener]}{path}{line}"

    def knowledge_base(self) -> KnowledgeBase | None:
        """Return the knowledge base, opened read-only; None if there is none.

        Raises:
            LookupKnowledgeError: it cannot be opened.
        """
        return self._current(())

    def _current(self, ids: Iterable[str]) -> KnowledgeBase | None:
        if self._look_kb is None:
            return None
        with self._lock:
            kb = self._kb
            if kb is None or any(
                _signature(kb.folder / i) != self._seen.setdefault(i, None) for i in ids
            ):
                self.close()
                self._kb = kb = self._look_kb()
                known = [*kb.l0.entries, *ids]
                self._seen = {i: _signature(kb.folder / i) for i in known}
            return kb

    def _shown(
        self,
        kb: KnowledgeBase | None,
        match: Mapping[str, Any],
        place: Mapping[str, Any],
        words: Collection[str],
        declared: Sequence[str],
    ) -> ShownPassage:
        source = place["path"] or match["entry_id"]
        heading = match["heading"] if place["heading"] is None else place["heading"]
        text, state = ("", "unread") if kb is None else _text(kb, match["entry_id"], place)
        return ShownPassage(
            heading=heading,
            place=source + line_range(place["lines"]),
            link=self.link(source, place["lines"]),
            text=with_marks(text, words, declared),
            state=state,
        )


def _signature(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except (OSError, ValueError):
        return None
    return status.st_mtime_ns, status.st_size


def _read_text(text: str, match: Mapping[str, Any]) -> tuple[str, str]:
    """Return lines that the read tool read, and whether they are as they were.

    An embedded part has one line of the file, of which a call may have read the beginning alone.
    """
    place = next(iter(match["passages"]), None)
    if place is None:
        return text, "unknown"
    start, rest = text[: int(place["chars"])], text[int(place["chars"]) :]
    same = passage_digest(start) == place["digest"] and (not rest or rest[0] == "\n")
    return (start, "same") if same else (text, "changed")


def _text(kb: KnowledgeBase, entry_id: str, place: Mapping[str, Any]) -> tuple[str, str]:
    """Return the recorded passage if it is still in the entry, else its lines as they are now."""
    entry = kb.l0.entries.get(entry_id)
    source = kb.l0.entries.get(place["path"] or entry_id)
    if entry is None or source is None:
        return "", "gone"
    try:
        lines = part_of(source, lines=place["lines"]).text if place["lines"] else source.text
    except EntryNotFoundError:
        lines = ""
    now = unwrapped(lines)
    same = (
        found
        for text in (now, *(unwrapped(p.text) for p in indexing.passages(entry, kb.embedding)))
        if (found := _window(text, int(place["chars"]), place["digest"]))
    )
    if text := next(same, None):
        return text, "same"
    return (now[:MAX_CHANGED_CHARS], "changed") if now else ("", "gone")


def _window(text: str, chars: int, digest: str) -> str | None:
    """Return the part of a text with this length and digest, or None."""
    starts = (found.start() for found in _STARTS.finditer(text))
    parts = (text[start : start + chars] for start in starts if start + chars <= len(text))
    return next((part for part in parts if passage_digest(part) == digest), None)


def with_marks(text: str, words: Collection[str], declared: Sequence[str]) -> Markup:
    """Return a text with the words of the query and the declared terms marked in two different
    ways.
    """
    marked = Markup("")
    last = 0
    for start, end, kind in _spans(text, words, declared):
        marked += shown_lines(text[last:start])
        marked += Markup('<mark class="{}">{}</mark>').format(kind, shown_lines(text[start:end]))
        last = end
    return marked + shown_lines(text[last:])


def _spans(
    text: str, words: Collection[str], declared: Sequence[str]
) -> Iterator[tuple[int, int, str]]:
    """Yield the places to mark, in order; a declared term wins over the words in it."""
    hints = sorted((start, end) for term in declared for start, end in _phrases(text, term))
    plain = [(start, end, "word") for start, end in term_spans(text, words)]
    last = 0
    for start, end, kind in sorted([*((s, e, "hint") for s, e in hints), *plain]):
        inside = kind == "word" and any(s < end and start < e for s, e in hints)
        if start >= last and not inside:
            yield start, end, kind
            last = end


def _phrases(text: str, term: str) -> Iterator[tuple[int, int]]:
    """Yield where a term occurs in a text, in any case and with any spaces."""
    parts = term.split()
    if not parts or not search_terms(term):
        return
    before = "" if is_spaceless(parts[0]) else r"(?<!\w)"
    after = "" if is_spaceless(parts[-1][-1]) else r"(?!\w)"
    pattern = before + r"\s+".join(map(re.escape, parts)) + after
    for found in re.finditer(pattern, text, re.IGNORECASE):
        yield found.span()
