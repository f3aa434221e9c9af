"""Syncing an index with entries: only changed entries are embedded and written."""

import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from langchain_core.embeddings import Embeddings

from langchain_lookup_knowledge.errors import IndexDamagedError, StoreError
from langchain_lookup_knowledge.l1.index_state import Digests
from langchain_lookup_knowledge.l1.models import embeddings, languages
from langchain_lookup_knowledge.l1.models.passage_vectors import PassageVectors
from langchain_lookup_knowledge.l1.models.unfinished import UnfinishedBuild
from langchain_lookup_knowledge.l1.stores import ownership
from langchain_lookup_knowledge.l1.stores.fingerprints import (
    PASSAGE_TOKENS,
    brand,
    check_fingerprint,
    fingerprint,
    is_older,
)
from langchain_lookup_knowledge.l1.stores.vector_index import (
    WORDS_ONLY,
    Contents,
    Fingerprint,
    Point,
    VectorIndex,
)
from langchain_lookup_knowledge.reading.entry import Entry, category_key
from langchain_lookup_knowledge.reading.metadata.filters import FOLDER, folders_of
from langchain_lookup_knowledge.reading.passages import Passage, split_passages
from langchain_lookup_knowledge.scope import PUBLIC, HasAttributes, is_public

logger = logging.getLogger("langchain_lookup_knowledge")

UNEMBEDDED = (
    "the embedding model gave no usable vector for a passage: it is found by its words alone"
)
"""The message about an entry with a passage that has no vector."""
FIRST_WINDOW, EMBED_WINDOW = 4, 64
"""Number of passages that are embedded, stored and shown on the progress bar at a time: at first,
and at most.
"""


@dataclass(frozen=True, slots=True)
class SyncReport:
    """The outcome of a sync: entries read, passages embedded, entries added or renewed, entries
    removed from the index.

    `unembedded`: ids of the entries in the index with a passage for which the model returned no
    usable vector. `written`: whether the index had to be written. `version`: the version of the
    index with these entries, as `VectorIndex.version` returns it.
    """

    entries: int
    embedded: int
    renewed: int
    removed: int
    unembedded: tuple[str, ...] = ()
    written: bool = False
    version: str | None = None


class _Changes(NamedTuple):
    """The work of a sync: the contents to keep (None means to write all), changed and removed
    entries, whether to write from scratch, and whether to write the id to the collection.
    """

    before: Contents | None
    changed: list[str]
    gone: list[str]
    rebuild: bool
    claimed: bool = False

    @property
    def any(self) -> bool:
        if self.before is None or self.before.faults:
            return True
        return bool(self.changed or self.gone or self.claimed)

    @property
    def stale(self) -> list[str]:
        """Entries with outdated passages in the index."""
        known = self.before.digests if self.before else {}
        return [*self.gone, *(entry_id for entry_id in self.changed if entry_id in known)]


class Indexer:
    """Writes entries into an index.

    Args:
        index: the index, embedded or on a server.
        embedding: the model that embeds the passages.
        unfinished: the file that keeps the vectors until the index is written, so that a sync can
            continue an interrupted one; None keeps nothing.
        knowledge_base_id: the id that a collection on a server carries.
        language: the language of entries that are too short to tell it.
        digests: the digests of entries, to be filled.
    """

    def __init__(
        self,
        index: VectorIndex,
        embedding: Embeddings,
        unfinished: Path | None = None,
        knowledge_base_id: str | None = None,
        language: str = languages.ENGLISH,
        digests: Digests | None = None,
    ) -> None:
        self._index = index
        self._embedding = embedding
        self._unfinished = UnfinishedBuild(unfinished)
        self._id = knowledge_base_id
        self._digests = digests or Digests()
        self._vectors = PassageVectors(embedding, self._unfinished, language)

    def write(
        self,
        entries: Mapping[str, Entry],
        *,
        rebuild: bool = False,
        allow_empty: bool = False,
        damaged: Collection[str] = (),
        take_over: bool = False,
        progress: bool | None = False,
        on_progress: Callable[[float], None] = lambda share: None,
    ) -> SyncReport:
        """Make the index hold `entries`; the write lock is taken only if something differs.

        An index is written from scratch if it is damaged or was built by an older version of this
        package.

        Args:
            entries: all entries, by their ids.
            rebuild: embed and write everything from scratch, even if the index was built with
                another model.
            allow_empty: if `entries` is empty, empty the index instead of raising an error.
            damaged: ids of entries to write even if they have not changed.
            take_over: write a collection on a server even if that removes more than a third of its
                entries, or if none of them belongs to this knowledge base.
            progress: True shows a bar while passages are embedded, False shows no bar, None shows
                it only on a terminal.
            on_progress: called with the share of the passages that are written, 0 to 1, first with
                0; an exception from it stops the write and leaves an embedded index unchanged.

        Raises:
            EmbeddingError: the model fails.
            StoreError: the index cannot be written, or was built with another model and `rebuild`
                is not set.
        """
        changes = partial(
            self._changes, allow_empty=allow_empty, take_over=take_over, damaged=damaged
        )
        write = partial(self._write, entries, changes, progress, on_progress)
        try:
            return write(rebuild=rebuild)
        except IndexDamagedError as error:
            if rebuild:
                raise
            logger.warning("%s: it is being rebuilt", str(error).partition(":")[0])
            return write(rebuild=True)

    def _write(
        self,
        entries: Mapping[str, Entry],
        find_changes: Callable[[Mapping[str, str], bool], _Changes],
        progress: bool | None,
        on_progress: Callable[[float], None],
        *,
        rebuild: bool,
    ) -> SyncReport:
        digests = self._digests.of(entries)
        looked = False
        if not rebuild:
            version = self._index.version()
            changes = find_changes(digests, rebuild)
            looked = not self._index.embedded  # a server has no lock to wait for
            if changes.before and not changes.any:
                self._index.warm()
                return SyncReport(len(entries), 0, 0, 0, changes.before.unembedded, version=version)
        with self._index.lock():
            if not looked:
                changes = find_changes(digests, rebuild)
            cut = self._passages(entries, changes)
            unembedded = set(changes.before.unembedded if changes.before else ())
            unembedded -= {*changes.changed, *changes.gone}
            if changes.any:  # otherwise another process has written the index meanwhile
                if changes.rebuild and not rebuild:
                    logger.warning("the index was built by an older version: it is being rebuilt")
                contents = Contents(self._fingerprint(changes.before), digests, owner=self._id)
                dimensions = int(contents.fingerprint["dimensions"])
                self._unfinished.begin(self._embedding, dimensions, afresh=rebuild)
                points = self._points(cut, contents, unembedded, progress, on_progress)
                self._index.write(contents, changes.stale, points, rebuild=changes.rebuild)
                self._unfinished.done()
            version = self._index.version()
        return SyncReport(
            entries=len(entries),
            embedded=len(cut),
            renewed=len(changes.changed),
            removed=len(changes.gone),
            unembedded=tuple(sorted(unembedded)),
            written=changes.any,
            version=version,
        )

    def _fingerprint(self, before: Contents | None) -> Fingerprint:
        if before:
            return before.fingerprint
        embeddings.load(self._embedding, download=True)
        dimensions = len(embeddings.embed_query(self._embedding, "dimensions"))
        return fingerprint(self._embedding, dimensions)

    def _passages(
        self, entries: Mapping[str, Entry], changes: _Changes
    ) -> list[tuple[Entry, Passage]]:
        return [
            (entries[entry_id], passage)
            for entry_id in changes.changed
            for passage in passages(entries[entry_id], self._embedding)
        ]

    def _changes(
        self,
        digests: Mapping[str, str],
        rebuild: bool,
        *,
        allow_empty: bool,
        take_over: bool,
        damaged: Collection[str],
    ) -> _Changes:
        found = None if rebuild and self._index.embedded else self._index.contents()
        before = None if rebuild else found
        known = before.digests if before else {}
        if (
            not digests
            and not allow_empty
            and (known or (rebuild and ownership.holds_entries(self._index)))
        ):
            raise StoreError(
                "the folder has no entries any more; "
                "to empty the index, use --allow-empty, or sync(allow_empty=True)"
            )
        if found and not self._index.embedded:
            ownership.check_id(found, self._id)
            if digests and not take_over:
                ownership.check_removals(found, digests.keys())
        gone = [entry_id for entry_id in known if entry_id not in digests]
        if before and is_older(before.fingerprint, self._embedding):
            return _Changes(None, list(digests), gone, rebuild=True)
        if before:
            check_fingerprint(self._index, self._embedding, before.fingerprint)
        changed = [
            entry_id
            for entry_id, found_digest in digests.items()
            if known.get(entry_id) != found_digest or entry_id in damaged
        ]
        claimed = bool(before and self._id != before.owner and not self._index.embedded)
        return _Changes(before, changed, gone, rebuild, claimed)

    def _points(
        self,
        cut: Sequence[tuple[Entry, Passage]],
        contents: Contents,
        unembedded: set[str],
        progress: bool | None,
        on_progress: Callable[[float], None],
    ) -> Iterator[list[Point]]:
        """Embed the passages, longest first to reduce padding, and yield points in batches.

        Entries with a passage that has no usable vector are added to `unembedded`.
        """
        from tqdm import tqdm  # noqa: PLC0415

        lengths = Counter(entry.entry_id for entry, _ in cut)
        mark = brand(contents.fingerprint)
        cut = sorted(cut, key=lambda pair: -len(pair[1].text))
        disable = None if progress is None else not progress
        on_progress(0.0)
        with tqdm(total=len(cut), desc="embedding", unit="passage", disable=disable) as bar:
            for start, end in pairwise(_windows(len(cut))):
                window = cut[start:end]
                vectors = self._vectors.of(window)
                yield [
                    _point(entry, passage, lengths[entry.entry_id], vector, contents.digests, mark)
                    for (entry, passage), vector in zip(window, vectors, strict=True)
                ]
                for (entry, _), vector in zip(window, vectors, strict=True):
                    if vector is None and entry.entry_id not in unembedded:
                        unembedded.add(entry.entry_id)
                        logger.warning("%s: %s", entry.entry_id, UNEMBEDDED)
                bar.update(len(window))
                on_progress(end / len(cut))


def _windows(passages: int) -> Iterator[int]:
    """Yield the bounds of the passages that are embedded at a time: few at first, so that progress
    is seen at once.
    """
    start, size = 0, FIRST_WINDOW
    while start < passages:
        yield start
        start, size = start + size, min(2 * size, EMBED_WINDOW)
    yield passages


def passages(entry: Entry, embedding: Embeddings) -> list[Passage]:
    """Return the passages of an entry, split as in an index for this model."""
    return split_passages(entry, size=PASSAGE_TOKENS, units=embeddings.token_starts(embedding))


def attribute(key: str, value: str) -> str:
    """Return an attribute of an entry in the form that the index stores."""
    return f"{key}={value}"


def _entry_attributes(entry: Entry) -> list[str]:
    """Return the attributes that callers' filters use, in the form that the index stores."""
    folders = ((FOLDER, folder) for folder in folders_of(entry.entry_id))
    return [attribute(key, value) for key, value in (*entry.attributes, *folders)]


def _attributes(part: HasAttributes) -> list[str]:
    """Return the attributes that scopes use, of an entry or an embedded part, in the form that the
    index stores. A public part has an attribute that every scope accepts.
    """
    others = [attribute(key, value) for key, value in part.attributes if key != PUBLIC[0]]
    return [*others, attribute(*PUBLIC)] if is_public(part) else others


def _point(
    entry: Entry,
    passage: Passage,
    passages: int,
    vector: Sequence[float] | None,
    digests: Mapping[str, str],
    mark: str,
) -> Point:
    """Return the point of a passage; `mark` is the brand (fingerprint hash) of its index."""
    sparse = {"passage": f"{entry.title}\n{passage.heading}\n{passage.text}"}
    if passage.number == 0:
        # Add hidden values to the terms of the first passage, so that an exact match is found.
        sparse["passage"] = "\n".join((sparse["passage"], *entry.other_values))
        whole = f"{entry.frontmatter_text}\n{entry.text}"
        sparse |= {"entry": whole, "frontmatter": entry.frontmatter_text}
    return Point(
        entry_id=entry.entry_id,
        number=passage.number,
        dense=vector or None,
        sparse=sparse,
        payload={
            "page_content": passage.text,
            "metadata": {
                "entry_id": entry.entry_id,
                "passage": passage.number,
                "passages": passages,
                "title": entry.title,
                "heading": passage.heading,
                "lines": list(passage.lines),
                "categories": list(entry.categories),
                "categories_key": [category_key(category) for category in entry.categories],
                "entities": list(entry.entities),
                "attributes": _attributes(passage.embed or entry),
                "entry_attributes": _entry_attributes(entry),
                "source": entry.entry_id,
                "digest": digests[entry.entry_id],
                "fingerprint": mark,
                **({"sources": list(passage.embed.sources)} if passage.embed else {}),
                **({} if passage.place is None else {"place": passage.place}),
                **({} if vector else {"embedded": False if vector is None else WORDS_ONLY}),
            },
        },
    )
