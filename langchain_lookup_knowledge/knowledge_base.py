"""A knowledge base: the entries of a folder, their hints, and an L1 index kept in step with the folder."""

import hashlib
import json
import logging
import math
import os
import threading
import time
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings

from langchain_lookup_knowledge import embeddings, lints, merging
from langchain_lookup_knowledge.breaker import CircuitBreaker
from langchain_lookup_knowledge.cleaning import counted
from langchain_lookup_knowledge.data_folder import (
    find_data_folder,
    given_data_folder,
    make_data_folder,
    read_settings,
    remembered_fields,
    remembered_index,
    without_secrets,
)
from langchain_lookup_knowledge.deadlines import Workers
from langchain_lookup_knowledge.descriptions import DescriptionRanking
from langchain_lookup_knowledge.documents import TOOL_FOLDERS, Entry, category_key, read_documents, read_folder
from langchain_lookup_knowledge.durable import write_durably
from langchain_lookup_knowledge.errors import (
    DocumentError,
    EmbeddingError,
    IndexMissing,
    StoreError,
    StoreForbidden,
    StoreUnreachable,
)
from langchain_lookup_knowledge.hints import HintIndex
from langchain_lookup_knowledge.invocations import storable
from langchain_lookup_knowledge.passages import Passage, split_passages
from langchain_lookup_knowledge.qdrant_index import QdrantIndex
from langchain_lookup_knowledge.scope import PUBLIC, Scope, is_public, is_visible
from langchain_lookup_knowledge.stores import (
    ATTRIBUTE_FIELD,
    CATEGORY_FIELD,
    INDEX_COMMAND,
    PAYLOAD_VERSION,
    REBUILD_COMMAND,
    Contents,
    Fingerprint,
    Point,
    VectorIndex,
)
from langchain_lookup_knowledge.types import (
    Candidate,
    DescribedEntry,
    FrontmatterFields,
    Health,
    Hints,
    LoadReport,
    Match,
    Problem,
)

logger = logging.getLogger("langchain_lookup_knowledge")

PASSAGE_TOKENS = 200
"""Most tokens of a passage. With its title and headings it stays under 256, where the default model stops reading."""
HEADING_TOKENS = 50
"""Most tokens of the title and headings put in front of a passage when it is embedded."""
EMBED_WINDOW = 64
"""Passages embedded, stored and shown on the progress bar at a time."""
SEARCH_LIMIT = merging.FULL_LIST
"""Passages asked for in each ranked list."""
MAX_VIEWS = 100
"""Most scopes whose hints are kept ready."""
WATCH_MILLISECONDS = 1000
"""How often a watch sees whether the folder is still the same."""
MAX_WATCH_PAUSE = 60.0
"""Most seconds before a watch tries again what failed; it begins with one, and doubles."""
FOLLOW_SECONDS = 1.0
"""How often a lookup checks whether another process has written the index."""


@dataclass(frozen=True, slots=True)
class SyncReport:
    """What a sync did: entries read, passages embedded, entries added or renewed, entries removed from the index."""

    entries: int
    embedded: int
    renewed: int
    removed: int


@dataclass(frozen=True, slots=True)
class Retrieved:
    """What L1 found: the best candidates, how many entries reach the least similarity asked for, and the best of all."""

    candidates: list[Candidate]
    entries: int
    best_similarity: float | None


@dataclass(frozen=True, slots=True)
class _Knowledge:
    """What was read from the folder at one moment; replaced as a whole."""

    entries: dict[str, Entry]
    hints: HintIndex
    descriptions: DescriptionRanking
    report: LoadReport
    unembedded: list[Problem] = field(default_factory=list)
    views: "dict[Scope, _Knowledge]" = field(default_factory=dict)

    def seen_by(self, scope: Scope) -> "_Knowledge":
        """Return what a caller may see, hints and counts included; made at the first lookup of a scope, then kept."""
        if not scope:
            return self
        view = self.views.get(scope)
        if view is None:
            for oldest in list(self.views)[: len(self.views) + 1 - MAX_VIEWS]:
                self.views.pop(oldest, None)
            entries = [entry for entry in self.entries.values() if is_visible(entry, scope)]
            by_id = {entry.entry_id: entry for entry in entries}
            view = _Knowledge(by_id, self.hints.anew(entries), DescriptionRanking(entries), self.report)
            self.views[scope] = view
        return view


class KnowledgeBase:
    """The entries of a folder, ready for lookups. Made by `open`; closed by `close` or a `with` block."""

    def __init__(
        self,
        folder: Path,
        data_folder: Path,
        index: VectorIndex | None,
        embedding: Embeddings,
        fields: FrontmatterFields,
        documents: Sequence[Document] | None = None,
    ) -> None:
        self.folder = folder
        self.data_folder = data_folder
        self.fields = fields
        self.index = index
        self.embedding = embedding
        self.index_failure: str | None = None
        self._documents = documents
        self._seen = index.version() if index else None
        self.breaker = CircuitBreaker()
        self.workers = Workers()
        self._next_look = 0.0
        self._start_process()
        self._closed = False
        self._closing: list[Callable[[], None]] = []
        self._notices: list[Problem] = []
        self._read(HintIndex([], case_sensitive=fields.case_sensitive))
        _knowledge_bases.add(self)

    def _start_process(self) -> None:
        self._syncing = threading.Lock()
        self._built: float | None = None
        self._builder: threading.Thread | None = None

    @classmethod
    def open(
        cls,
        folder: str | os.PathLike[str],
        *,
        index: VectorIndex | Literal["remembered"] | None = "remembered",
        embedding: Embeddings | str | None = None,
        fields: FrontmatterFields | None = None,
        data_dir: str | os.PathLike[str] | None = None,
        sync: bool = True,
        background: bool = False,
        progress: bool | None = None,
    ) -> "KnowledgeBase":
        """Read the folder, build L0, and bring an embedded L1 index up to date.

        Args:
            folder: the folder of Markdown files.
            index: a `QdrantIndex` for a server, None for L0 alone; left out, the one that `lookup-knowledge index` was
                told, else the embedded index in the data folder.
            embedding: a LangChain `Embeddings` or the name of a FastEmbed model; left out, as for `index`, the bundled one.
            fields: which frontmatter keys hold what; left out, as for `index`, the defaults.
            data_dir: where the index and the records go; by default `.lookup-knowledge` in the folder.
            sync: False leaves an embedded index as it is; a server's collection is written by `sync()` alone anyway.
            background: True returns as soon as L0 is ready and brings the index up to date beside it. Until there is one,
                lookups answer from L0 and say how far the building is; an older one answers meanwhile.
            progress: True shows a bar while passages are embedded, False none; None shows it on a terminal.

        Raises:
            DocumentError: the folder cannot be read, or the data folder cannot be made. A server, model or index out of
                reach does not raise: the lookup says so.
        """
        root = Path(folder).expanduser().absolute()
        data_folder = find_data_folder(root, data_dir)
        kb = cls._assembled(root, data_folder, index, embedding, fields)
        if data_dir is None and data_folder.parent != root:
            message = f"the knowledge folder is read-only; the index and the records are in {data_folder}"
            kb._notices.append(Problem(".", None, message))
            logger.warning("%s", message)
        kb._start(sync=sync, background=background, progress=progress)
        return kb

    @classmethod
    def from_documents(
        cls,
        documents: Iterable[Document],
        *,
        data_dir: str | os.PathLike[str],
        index: VectorIndex | Literal["remembered"] | None = "remembered",
        embedding: Embeddings | str | None = None,
        fields: FrontmatterFields | None = None,
        progress: bool | None = None,
    ) -> "KnowledgeBase":
        """Make a knowledge base of LangChain documents, those of a loader say, instead of a folder.

        Args:
            documents: one entry each; `source` in the metadata is its id, the fields are read from the metadata too.
            data_dir: where the index and the records go; its name is that of the knowledge base. With documents changed and
                the same `data_dir`, only what changed is embedded.
            index, embedding, fields, progress: as in `open`.

        Raises:
            DocumentError: the data folder cannot be made.
        """
        listed = list(documents)
        if strange := next((document for document in listed if not isinstance(document, Document)), None):
            raise ValueError(f"documents takes LangChain documents, such as loader.load() gives, not {strange!r}")
        data_folder = given_data_folder(data_dir, make=True)
        kb = cls._assembled(data_folder, data_folder, index, embedding, fields, listed)
        kb._start(sync=True, background=False, progress=progress)
        return kb

    @classmethod
    def _assembled(
        cls,
        folder: Path,
        data_folder: Path,
        index: VectorIndex | Literal["remembered"] | None,
        embedding: Embeddings | str | None,
        fields: FrontmatterFields | None,
        documents: Sequence[Document] | None = None,
    ) -> "KnowledgeBase":
        """Check the arguments, and fill in what the data folder remembers."""
        if index not in (None, "remembered") and not hasattr(index, "search"):
            raise ValueError(f"index takes a QdrantIndex or None, not {index!r}")
        if fields is not None and not isinstance(fields, FrontmatterFields):
            raise ValueError(f"fields takes a FrontmatterFields, not {fields!r}")
        settings = read_settings(data_folder)
        return cls(
            folder,
            data_folder,
            remembered_index(settings, data_folder) if index == "remembered" else index,
            embeddings.as_embeddings(embedding if embedding is not None else settings.get("embedding")),
            fields or remembered_fields(settings),
            documents,
        )

    def _start(self, *, sync: bool, background: bool, progress: bool | None) -> None:
        if sync and self.index is not None and self.index.embedded:
            if background:
                self._build_beside()
            else:
                self._sync_softly(progress)
        if not background:
            self._warm()

    def _warm(self) -> None:
        """Load what the first lookup would have to load within its time limit; what fails here, the lookup tells."""
        if self.index is None:
            return
        with suppress(EmbeddingError, StoreError):
            if isinstance(self.embedding, embeddings.FastEmbedModel):
                self.embedding.load()
            self.index.warm()

    def _build_beside(self) -> None:
        self._built = 0.0

        def build() -> None:
            self._sync_softly(progress=False)
            self._warm()

        self._run_beside(build)

    def _run_beside(self, work: Callable[[], None]) -> None:
        thread = threading.Thread(target=work, name="lookup-knowledge-index", daemon=True)
        thread.start()
        self._builder = thread  # started, so that whoever sees it may join it

    @property
    def building(self) -> str | None:
        """How far the building of the index in the background is, or None when there is none."""
        return None if self._built is None else f"the index is being built, {self._built:.0%}".replace("%", " %")

    def _sync_softly(self, progress: bool | None) -> None:
        """Bring the index up to date, if that can be done."""
        try:
            with self._syncing:
                self._write_index(progress=progress)
        except (StoreError, EmbeddingError) as error:
            logger.warning("the index of %s is not up to date: %s", self.folder.name, error)

    @classmethod
    def look(
        cls, folder: str | os.PathLike[str], *, index: VectorIndex, data_dir: str | os.PathLike[str] | None
    ) -> "KnowledgeBase":
        """Read the folder with the remembered model and fields, and write nothing: neither an index nor a data folder."""
        data_folder = find_data_folder(folder, data_dir, make=False)
        return cls._assembled(Path(folder).expanduser().absolute(), data_folder, index, None, None)

    def lints(self) -> list[Problem]:
        """Return what could be better in the knowledge itself, and where the index is out of step with the folder."""
        return [*lints.lint(self.entries, self._knowledge.hints), *self._index_problems()]

    def _index_problems(self) -> list[Problem]:
        try:
            contents = self.index.contents() if self.index else None
            if contents is None:
                return []
            self._check(contents.fingerprint)
        except StoreError as error:
            return [Problem(".", None, str(error))]
        return list(lints.out_of_step(_digests(self._knowledge.entries), contents.digests))

    @property
    def entries(self) -> list[Entry]:
        """The entries, in the order of their paths."""
        return list(self._knowledge.entries.values())

    @property
    def load_report(self) -> LoadReport:
        """What became of each Markdown file of the folder."""
        return self._knowledge.report

    @property
    def problems(self) -> list[Problem]:
        """Every file or field that was not used as written, and why."""
        problems = [
            *self._notices,
            *self._knowledge.report.problems,
            *self._knowledge.hints.problems,
            *self._knowledge.unembedded,
        ]
        if self.index is None:
            return problems
        foreign = sum(not self.understands(entry.text[:2000]) for entry in self._knowledge.entries.values())
        if 2 * foreign > len(self._knowledge.entries):
            entries = counted(foreign, "entry is", "entries are")
            problems.append(Problem(".", None, f"{entries} in a script that {_MODEL_ADVICE}"))
        return problems

    def health(self) -> Health:
        """Return how L1 and the index are, as the last lookups left them: nothing is asked of a server or a model."""
        index = "off" if self.index is None else self.building or self.index_failure or _state(self.index)
        health: Health = {**self.breaker.health(), "entries": len(self._knowledge.entries), "index": index}
        if self.index is None:
            health["l1"] = "disabled"
        return health

    def hints(self, query: str, *, scope: Scope = ()) -> Hints:
        """Return what L0 alone finds in a query: the `hints` of a result. With a scope, as if there were no other entries."""
        return self._knowledge.seen_by(scope).hints.hints(query)

    def described(self, query: str, limit: int, *, scope: Scope = ()) -> list[DescribedEntry]:
        """Return the entries whose titles, keywords and entities share words with a query, best first.

        Weaker than hints, since no whole term need stand in the query: it answers only where L1 cannot take part.
        """
        return self._knowledge.seen_by(scope).descriptions.rank(query, limit)

    def excerpt(self, entry_id: str, *, scope: Scope = ()) -> str:
        """Return the text of an entry as a reader sees it; nothing if there is no such entry in the scope."""
        entry = self._knowledge.entries.get(entry_id)
        return entry.text.strip() if entry and is_visible(entry, scope) else ""

    def neighbours(self, match: Match, around: int = 1, *, scope: Scope = ()) -> list[Passage]:
        """Return the passage that a match shows with those before and after it, for more of the text than the snippet.

        Empty if the entry has changed since, or is not in the scope. Of an entry that only L0 found, the first passages.
        """
        entry = self._knowledge.entries.get(match["entry_id"])
        entry = entry if entry and is_visible(entry, scope) else None
        passages = self._passages(entry) if entry else []
        shown = match["snippet"].removesuffix("…")
        place = next(
            (i for i, p in enumerate(passages) if p.text.startswith(shown) and p.heading == match["heading"]), None
        )
        if "L1" not in match["layers"]:
            place = 0
        return [] if place is None else passages[max(0, place - around) : place + around + 1]

    def _passages(self, entry: Entry) -> list[Passage]:
        return split_passages(entry, size=PASSAGE_TOKENS, length=embeddings.token_counter(self.embedding))

    def sync(self, *, progress: bool | None = None, rebuild: bool = False, allow_empty: bool = False) -> SyncReport:
        """Read the folder again and bring the index, embedded or on a server, in step with it.

        Args:
            progress: as in `open`.
            rebuild: embed and write everything anew, also where the index was built with another model.
            allow_empty: let a folder without entries empty the index.

        Raises:
            DocumentError: the folder cannot be read.
            EmbeddingError: the model fails.
            StoreError: the index cannot be written, or was built with another model and `rebuild` is not set.
        """
        if self._builder is not None:
            self._builder.join()
        self._closed = False
        with self._syncing:
            self._read(self._knowledge.hints)
            return self._write_index(progress=progress, rebuild=rebuild, allow_empty=allow_empty, download=True)

    def watch(self, stop: threading.Event | None = None) -> Iterator[SyncReport]:
        """Sync whenever a file of the folder changes, and yield each report, until `stop` is set.

        The first sync is for what changed before: its report is only yielded if there was something. A sync that fails is
        logged and tried again. A knowledge base of documents has no folder.
        """
        if self._documents is not None:
            raise ValueError("a knowledge base of documents has no folder to watch: call from_documents again")
        due, pause, told = 0.0, 1.0, None
        for changed in self._changes(stop):
            if not changed and time.monotonic() < due:
                continue
            try:
                report = self.sync()
            except (DocumentError, EmbeddingError, StoreError) as error:
                due, pause = time.monotonic() + pause, min(2 * pause, MAX_WATCH_PAUSE)
                if told != str(error):
                    logger.warning("the index of %s is not up to date: %s", self.folder.name, error)
                told = str(error)
                continue
            due, pause, told = math.inf, 1.0, None
            if changed or report.renewed or report.removed:
                yield report

    def _changes(self, stop: threading.Event | None) -> Iterator[bool]:
        """Yield whether files changed: True when they do, False as time passes.

        The folder is watched anew where another one took its place, or where the watcher fails, as it does at a name that is
        not UTF-8; what changed in between is a change.
        """
        from watchfiles import watch  # noqa: PLC0415

        missed = False
        while stop is None or not stop.is_set():
            folder = _identity(self.folder)
            watched = watch(
                self.folder,
                watch_filter=self._is_knowledge,
                stop_event=stop,
                rust_timeout=WATCH_MILLISECONDS,
                yield_on_timeout=True,
            )
            try:
                for changes in watched:
                    if _identity(self.folder) != folder:
                        break
                    yield bool(changes) or missed
                    missed = False
                else:
                    return
            except (OSError, RuntimeError) as error:
                logger.debug("the folder is watched anew: %s", type(error).__name__)
                time.sleep(WATCH_MILLISECONDS / 1000)
                yield not missed
            missed = True

    def _is_knowledge(self, _: object, path: str) -> bool:
        inside = Path(path).relative_to(self.folder).parts
        return not any(part.startswith(".") or part in TOOL_FOLDERS for part in inside)

    def _read(self, hints: HintIndex) -> None:
        if self._documents is None:
            entries, report = read_folder(self.folder, self.fields)
        else:
            entries, report = read_documents(self._documents, self.fields)
        by_id = {entry.entry_id: entry for entry in entries}
        self._knowledge = _Knowledge(by_id, hints.updated(entries), DescriptionRanking(entries), report)

    def _write_index(
        self,
        *,
        progress: bool | None = None,
        rebuild: bool = False,
        allow_empty: bool = False,
        download: bool = False,
    ) -> SyncReport:
        """Write what differs from the index; while passages are embedded, and if that fails, lookups are told."""
        if self.index is None:
            return SyncReport(len(self._knowledge.entries), 0, 0, 0)
        try:
            if download and isinstance(self.embedding, embeddings.FastEmbedModel):
                self.embedding.load(download=True)
            with self.index.lock():
                report = self._write_locked(self.index, progress, rebuild, allow_empty)
                self._seen = self.index.version()
        except (StoreError, EmbeddingError) as error:
            if self.index.embedded:
                self.index_failure = str(error)
            raise
        finally:
            self._built = None
        self.index_failure = None
        return report

    def _write_locked(self, index: VectorIndex, progress: bool | None, rebuild: bool, allow_empty: bool) -> SyncReport:
        entries = self._knowledge.entries
        before = None if rebuild else index.contents()
        known = before.digests if before else {}
        if not entries and not allow_empty and (known or (rebuild and _holds_entries(index))):
            raise StoreError(
                f"{self.folder} has no entries any more; to empty the index, use --allow-empty, or sync(allow_empty=True)"
            )
        digests = _digests(entries)
        changed = [entry_id for entry_id, digest in digests.items() if known.get(entry_id) != digest]
        gone = [entry_id for entry_id in known if entry_id not in digests]
        if before:
            self._check(before.fingerprint)
        passages: list[tuple[Entry, Passage]] = []
        if before is None or changed or gone:
            dimensions = int(before.fingerprint["dimensions"]) if before else self._dimensions()
            contents = Contents(self._fingerprint(dimensions), digests)
            for entry_id in changed:
                passages += [(entries[entry_id], passage) for passage in self._passages(entries[entry_id])]
            stale = [*gone, *(entry_id for entry_id in changed if entry_id in known)]
            index.write(contents, stale, self._points(passages, contents, progress), anew=rebuild)
            if index.embedded:
                self._remember_safely()
        else:
            index.warm()
        return SyncReport(entries=len(entries), embedded=len(passages), renewed=len(changed), removed=len(gone))

    def _points(
        self, passages: Sequence[tuple[Entry, Passage]], contents: Contents, progress: bool | None
    ) -> Iterator[list[Point]]:
        """Embed the passages, longest first so that little is padded, and yield points in batches."""
        from tqdm import tqdm  # noqa: PLC0415

        count = embeddings.token_counter(self.embedding)
        lengths = Counter(entry.entry_id for entry, _ in passages)
        passages = sorted(passages, key=lambda pair: -len(pair[1].text))
        disable = None if progress is None else not progress
        told = self.index is not None and self.index.embedded
        self._built = 0.0 if told else None
        with tqdm(total=len(passages), desc="embedding", unit="passage", disable=disable) as bar:
            for start in range(0, len(passages), EMBED_WINDOW):
                window = passages[start : start + EMBED_WINDOW]
                texts = [_embedded_text(entry, passage, count) for entry, passage in window]
                vectors = embeddings.embed_documents(self.embedding, texts)
                if not any(vectors):
                    embeddings.check_documents(self.embedding)
                yield [
                    _point(entry, passage, lengths[entry.entry_id], vector, contents)
                    for (entry, passage), vector in zip(window, vectors, strict=True)
                ]
                self._tell_unembedded(
                    entry for (entry, _), vector in zip(window, vectors, strict=True) if vector is None
                )
                bar.update(len(window))
                if told:
                    self._built = (start + len(window)) / len(passages)
                if self._closed:
                    raise StoreError("the knowledge base was closed while its index was built")

    def _tell_unembedded(self, entries: Iterable[Entry]) -> None:
        for entry in dict.fromkeys(entries):
            message = "the embedding model gave no usable vector for a passage: it is found by its words alone"
            self._knowledge.unembedded.append(Problem(entry.entry_id, None, message))
            logger.warning("%s: %s", entry.entry_id, message)

    def _dimensions(self) -> int:
        if isinstance(self.embedding, embeddings.FastEmbedModel):
            self.embedding.load(download=True)
        return len(embeddings.embed_query(self.embedding, "dimensions"))

    def _fingerprint(self, dimensions: int) -> dict[str, str | int]:
        return {
            "model": embeddings.identity(self.embedding),
            "dimensions": dimensions,
            "passage_tokens": PASSAGE_TOKENS,
            "payload": PAYLOAD_VERSION,
        }

    def _check(self, fingerprint: Fingerprint, dimensions: int | None = None) -> None:
        """Refuse an index that was built in another way, for vectors of other dimensions say: it would give wrong answers."""
        if dimensions is None:
            dimensions = int(fingerprint.get("dimensions", 0))
        ours = self._fingerprint(dimensions)
        adopted = self.index is not None and self.index.adopted
        known = fingerprint if adopted else ours
        differing = [key for key in known if fingerprint.get(key) != ours[key]]
        if differing:
            sizes = f"size: embedding is {dimensions}-d, collection is {fingerprint.get('dimensions')}-d"
            told = [
                sizes if key == "dimensions" else f"{key} {fingerprint.get(key)!r}, now {ours[key]!r}"
                for key in differing
            ]
            fix = "open it with the embedding model it was built with"
            if not adopted:
                fix = f"{fix}, or {REBUILD_COMMAND}" if "model" in differing else REBUILD_COMMAND
            raise StoreError(f"the index was built with another {'; '.join(told)}: {fix}")

    def retrieve(
        self,
        query: str,
        categories: Sequence[str | None],
        *,
        limit: int,
        min_similarity: float | None = None,
        scope: Scope = (),
    ) -> list[Retrieved]:
        """Return what L1 finds in each category (None: in all), at most `limit` candidates each, in one search.

        Where the embedding model does not know the script of the query, its similarities take no part. What the scope does not
        let through is left out by the index, and once more here, should the index be behind the folder.

        Raises:
            EmbeddingError: the query cannot be embedded.
            StoreError: the index cannot be reached or used.
        """
        if self.index is None:
            raise StoreError("this knowledge base has no index")
        if self.building and self.index.fingerprint() is None:
            raise IndexMissing(self.building)
        if scope and self.index.adopted:
            raise StoreError(
                "a collection that others made cannot be searched within a scope: build an index of our own"
            )
        vector = embeddings.embed_query(self.embedding, query)
        visible = self._knowledge.seen_by(scope).entries
        filters = [self._conditions(category, scope) for category in categories]
        try:
            answer = self.index.search(vector, query, filters, SEARCH_LIMIT)
        except (StoreUnreachable, StoreForbidden):
            raise
        except IndexMissing as error:
            raise IndexMissing(self.index_failure or str(error)) from error
        except StoreError:
            self._diagnose(len(vector))
            raise
        if not self.understands(query):
            min_similarity = None
            answer = replace(answer, lists=[{**lists, "dense": []} for lists in answer.lists])
        ranked = [merging.fuse(lists, self.thresholds.medium) for lists in answer.lists]
        if scope:
            ranked = [[entry for entry in entries if entry.entry_id in visible] for entries in ranked]
        kept = [merging.above(entries, min_similarity) for entries in ranked]
        stored = answer.payloads({entry.point_id for entries in kept for entry in entries[:limit]})
        brand = None if self.index.adopted else _brand(self._fingerprint(len(vector)))
        ours = {i: payload for i, payload in stored.items() if _is_sound(payload, brand)}
        if len(ours) < len(stored):
            self._diagnose(len(vector))
        self._follow()
        return [_retrieved(*found, ours, limit) for found in zip(ranked, kept, strict=True)]

    def _conditions(self, category: str | None, scope: Scope) -> list[tuple[str, list[str]]]:
        named = [(CATEGORY_FIELD, self._spellings(category))] if category else []
        allowed = [
            (ATTRIBUTE_FIELD, [_attribute(field.casefold(), value), _attribute(*PUBLIC)]) for field, value in scope
        ]
        return [*named, *allowed]

    def _spellings(self, category: str) -> list[str]:
        """Return how an index holds a category: folded; in one of others' making, as the files write it."""
        key = category_key(category)
        if self.index is None or not self.index.adopted:
            return [key]
        written = {name for entry in self._knowledge.entries.values() for name in entry.categories}
        return sorted(name for name in written if category_key(name) == key)

    @property
    def thresholds(self) -> merging.Thresholds:
        """The similarities from which a result may claim medium and high relevance."""
        return embeddings.thresholds(self.embedding)

    def understands(self, text: str) -> bool:
        """Say whether the embedding model knows the script of a text; else its similarities mean nothing and are dropped."""
        return embeddings.understands(self.embedding, text)

    def _follow(self) -> None:
        """See, beside the lookups, whether another process has written the index; looked at once a second."""
        if self.index is None or time.monotonic() < self._next_look or (self._builder and self._builder.is_alive()):
            return
        self._next_look = time.monotonic() + FOLLOW_SECONDS
        if self.index_failure or self.index.version() != self._seen:
            self._run_beside(partial(self._catch_up, self.index))

    def _catch_up(self, index: VectorIndex) -> None:
        """Read the folder again if the index was written, and forget a failed sync if the two are in step."""
        version = index.version()
        try:
            if version != self._seen:
                with self._syncing:
                    self._read(self._knowledge.hints)
                    self._seen = version
            contents = index.contents()
        except (DocumentError, StoreError) as error:
            logger.warning("L0 of %s is not up to date: %s", self.folder.name, error)
            return
        if contents and contents.digests == _digests(self._knowledge.entries):
            self.index_failure = None

    def _diagnose(self, dimensions: int) -> None:
        """Raise an error that says better than the search did why the index cannot be used, if there is one."""
        fingerprint = self.index.fingerprint() if self.index else None
        if fingerprint is None:
            raise IndexMissing(self.index_failure or f"there is no index yet: {INDEX_COMMAND}")
        self._check(fingerprint, dimensions)

    def _remember_safely(self) -> None:
        try:
            self.remember()
        except OSError as error:
            raise StoreError(f"the settings cannot be written: {error.strerror or error}") from error

    def remember(self) -> None:
        """Keep the index, model and fields in the data folder, for later commands and `open`; never a key."""
        settings: dict[str, Any] = {"fields": asdict(self.fields)}
        if isinstance(self.embedding, embeddings.FastEmbedModel):
            settings["embedding"] = self.embedding.model_name
        if isinstance(self.index, QdrantIndex):
            settings["index"] = {"url": without_secrets(self.index.url), "collection": self.index.collection}
        make_data_folder(self.data_folder)
        write_durably(self.data_folder / "settings.json", json.dumps(settings, indent=2, ensure_ascii=False) + "\n")

    def on_close(self, call: Callable[[], None]) -> None:
        """Have `close` call something too: the recorder that a graph opened by default."""
        self._closing.append(call)

    def close(self) -> None:
        """Let go of the index and of default recorders. Closing twice is harmless; a later lookup opens them again."""
        self._closed = True
        if self._builder is not None:
            self._builder.join()
        self.workers.dismiss()
        if self.index is not None:
            self.index.close()
        for call in self._closing:
            call()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


_knowledge_bases: "weakref.WeakSet[KnowledgeBase]" = weakref.WeakSet()


def _after_fork_in_child() -> None:
    for kb in list(_knowledge_bases):
        kb._start_process()  # a sync under way stayed with the parent


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)


def _identity(folder: Path) -> tuple[int, int] | None:
    """Return what tells a folder from another of the same name; None: there is none."""
    with suppress(OSError):
        status = folder.stat()
        return status.st_dev, status.st_ino
    return None


def _digests(entries: Mapping[str, Entry]) -> dict[str, str]:
    return {entry_id: _digest(entry) for entry_id, entry in entries.items()}


_MODEL_ADVICE = (
    "the default model does not know, and found by words alone: name a multilingual model, such as "
    'embedding="sentence-transformers/paraphrase-multilingual-MiniLM-L12-v2"'
)


def _is_sound(payload: Mapping[str, Any], brand: str | None) -> bool:
    """Say whether a stored passage is of this index and can be shown."""
    metadata = payload.get("metadata")
    if not isinstance(metadata, Mapping) or metadata.get("fingerprint") != brand:
        return False
    categories = metadata.get("categories")
    texts = [payload.get("page_content"), *(metadata.get(name) for name in ("title", "source", "heading"))]
    texts += categories if isinstance(categories, list) else [None]
    return all(isinstance(text, str) and storable(text) == text for text in texts)


def _state(index: VectorIndex) -> str:
    if not index.embedded:
        return "on a server"
    return "missing" if index.version() is None else "ok"


def _holds_entries(index: VectorIndex) -> bool:
    """Say whether an index holds entries, or may: one that cannot be read is not to be emptied by mistake either."""
    try:
        contents = index.contents()
    except StoreError:
        return True
    return bool(contents and contents.digests)


def _retrieved(
    ranked: Sequence[merging.RankedEntry],
    kept: Sequence[merging.RankedEntry],
    stored: Mapping[merging.PointId, Mapping[str, Any]],
    limit: int,
) -> Retrieved:
    shown = [merging.candidate(entry, stored[entry.point_id]) for entry in kept[:limit] if entry.point_id in stored]
    return Retrieved(shown, len(kept), max((e.similarity for e in ranked if e.similarity is not None), default=None))


def _digest(entry: Entry) -> str:
    written = json.dumps(asdict(entry), ensure_ascii=False, sort_keys=True)
    return hashlib.sha256(written.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def _embedded_text(entry: Entry, passage: Passage, count: Callable[[str], int]) -> str:
    """Return the passage with its title and headings in front, these cut where they are long."""
    above = " > ".join(dict.fromkeys([entry.title, *passage.heading.split(" > ")])).removesuffix(" > ")
    while (tokens := count(above)) > HEADING_TOKENS:
        above = above[: len(above) * HEADING_TOKENS // tokens]
    return f"{above}\n{passage.text}"


def _attribute(key: str, value: str) -> str:
    return f"{key}={value}"


def _attributes(entry: Entry) -> list[str]:
    """Return the attributes of an entry as the index holds them; a public entry has the one that every scope lets through."""
    others = [_attribute(key, value) for key, value in entry.attributes if key != PUBLIC[0]]
    return [*others, _attribute(*PUBLIC)] if is_public(entry) else others


def _brand(fingerprint: Fingerprint) -> str:
    """Return a fingerprint in short, for the payload of each passage."""
    return hashlib.sha256(json.dumps(dict(fingerprint), sort_keys=True).encode()).hexdigest()[:16]


def _point(entry: Entry, passage: Passage, passages: int, vector: Sequence[float] | None, contents: Contents) -> Point:
    sparse = {"passage": f"{entry.title}\n{passage.heading}\n{passage.text}"}
    if passage.number == 0:
        whole = f"{entry.description}\n{entry.text}"
        sparse |= {"entry": whole, "frontmatter": entry.description}
    return Point(
        entry_id=entry.entry_id,
        number=passage.number,
        dense=vector,
        sparse=sparse,
        payload={
            "page_content": passage.text,
            "metadata": {
                "entry_id": entry.entry_id,
                "passage": passage.number,
                "passages": passages,
                "title": entry.title,
                "heading": passage.heading,
                "categories": list(entry.categories),
                "categories_key": [category_key(category) for category in entry.categories],
                "entities": list(entry.entities),
                "attributes": _attributes(entry),
                "source": entry.entry_id,
                "digest": contents.digests[entry.entry_id],
                "fingerprint": _brand(contents.fingerprint),
            },
        },
    )
