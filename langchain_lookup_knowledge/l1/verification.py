"""Comparing stored passages with the entries in memory: the texts in a damaged or outdated index
may differ from the files.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

from langchain_core.embeddings import Embeddings

from langchain_lookup_knowledge.l1 import indexing
from langchain_lookup_knowledge.l1.candidates import is_sound
from langchain_lookup_knowledge.l1.fusion import PointId
from langchain_lookup_knowledge.l1.index_state import digest
from langchain_lookup_knowledge.reading.entry import Entry
from langchain_lookup_knowledge.reading.passages import Passage

MAX_VERDICTS = 20_000
"""Maximum number of passages whose verdicts are kept."""

Payload = Mapping[str, Any]


class Verified(NamedTuple):
    """The payloads that may be shown, by point id.

    `foreign`: whether a payload is malformed or belongs to another index. `differing`: the ids of
    entries with a stored passage that is not in their text. `of_other_state`: the ids of points
    that are not in the text of their entry, because it was indexed in another state.
    """

    payloads: dict[PointId, Payload]
    foreign: bool
    differing: set[str]
    of_other_state: set[PointId]


class _Verdict(NamedTuple):
    """The verdict on a payload, valid for this brand and this entry."""

    payload: Payload
    brand: str | None
    entry: Entry | None
    is_sound: bool
    is_of_entry: bool
    is_of_other_state: bool = False


class _Split:
    """An entry as an index would store it, computed only as far as needed."""

    def __init__(self, entry: Entry, embedding: Embeddings) -> None:
        self._entry = entry
        self._embedding = embedding

    @cached_property
    def _digest(self) -> str:
        return digest(self._entry)

    @cached_property
    def _passages(self) -> list[Passage]:
        return indexing.passages(self._entry, self._embedding)

    def is_other_state(self, payload: Payload) -> bool:
        """Return whether the entry was in another state when a stored passage was indexed: the
        index is ahead of or behind the folder until the next sync.
        """
        stored = payload["metadata"].get("digest")
        return bool(stored) and stored != self._digest

    def holds(self, payload: Payload) -> bool:
        """Return whether a stored passage is one of the entry as it is now."""
        return any(_is_passage(payload, passage) for passage in self._passages)


class PassageVerifier:
    """Decides which stored passages may be shown, and keeps its verdicts for later lookups.

    Args:
        embedding: the model that the index was built with; it determines how entries are split.
    """

    def __init__(self, embedding: Embeddings) -> None:
        self._embedding = embedding
        self._verdicts: dict[PointId, _Verdict] = {}

    def verify(
        self,
        stored: Mapping[PointId, Payload],
        brand: str | None,
        entries: Mapping[str, Entry] | None,
    ) -> Verified:
        """Return the payloads that are well-formed, have this brand (fingerprint hash), and hold
        the text, heading and lines of a passage of their entry. Passages of an entry that differs
        from the indexed one as a whole are kept: the index is then ahead of or behind the folder.

        With `entries` None, texts are not compared: the index was created elsewhere, or by an older
        version of this package that split texts differently.
        """
        found = Verified({}, False, set(), set())
        splits: dict[str, _Split] = {}
        foreign = False
        for point_id, payload in stored.items():
            verdict = self._verdict(point_id, payload, brand, entries, splits)
            if not verdict.is_sound:
                foreign = True
            elif verdict.is_of_entry or verdict.is_of_other_state:
                found.payloads[point_id] = payload
                if not verdict.is_of_entry:
                    found.of_other_state.add(point_id)
            else:
                found.differing.add(payload["metadata"]["source"])
        return found._replace(foreign=foreign)

    def _verdict(
        self,
        point_id: PointId,
        payload: Payload,
        brand: str | None,
        entries: Mapping[str, Entry] | None,
        splits: dict[str, _Split],
    ) -> _Verdict:
        kept = self._verdicts.get(point_id)
        if kept and kept.payload == payload and kept.brand == brand:
            entry = (
                entries.get(payload["metadata"]["source"]) if kept.is_sound and entries else None
            )
            if entry is kept.entry:
                return kept
        verdict = self._judged(payload, brand, entries, splits)
        if len(self._verdicts) >= MAX_VERDICTS:
            self._verdicts.clear()
        self._verdicts[point_id] = verdict
        return verdict

    def _judged(
        self,
        payload: Payload,
        brand: str | None,
        entries: Mapping[str, Entry] | None,
        splits: dict[str, _Split],
    ) -> _Verdict:
        if not is_sound(payload, brand):
            return _Verdict(payload, brand, None, is_sound=False, is_of_entry=False)
        if entries is None:
            return _Verdict(payload, brand, None, is_sound=True, is_of_entry=True)
        entry_id = payload["metadata"]["source"]
        entry = entries.get(entry_id)
        is_of_entry = entry is None or _is_in_text(payload, entry)
        is_of_other_state = False
        if entry and not is_of_entry:
            split = splits.setdefault(entry_id, _Split(entry, self._embedding))
            is_of_other_state = split.is_other_state(payload)
            is_of_entry = split.holds(payload)
        return _Verdict(payload, brand, entry, True, is_of_entry, is_of_other_state)


def _is_passage(payload: Payload, passage: Passage) -> bool:
    metadata = payload["metadata"]
    stored = (payload["page_content"], metadata["heading"], metadata.get("lines"))
    return stored == (passage.text, passage.heading, list(passage.lines))


def _is_in_text(payload: Payload, entry: Entry) -> bool:
    """Return whether each line of a stored passage is among the lines that it cites.

    This is far faster than splitting the entry again. The result is False for some intact passages,
    too, such as one whose code fence was repeated.
    """
    metadata = payload["metadata"]
    if not metadata.get("lines"):
        return False
    cited = _lines(entry, metadata["lines"])
    headings = filter(None, metadata["heading"].split(" > "))
    lines = (line.strip() for line in payload["page_content"].split("\n"))
    return all(line in cited for line in lines) and all(part in entry.text for part in headings)


def _lines(entry: Entry, lines: Sequence[int]) -> str:
    """Return the part of an entry's text between two lines of its file, `lines`."""
    text = entry.text.split("\n")
    numbers = range(1, len(text) + 1)
    first = bisect_left(numbers, lines[0], key=entry.file_line)
    last = bisect_right(numbers, lines[1], key=entry.file_line)
    return "\n".join(text[first:last])
