"""Updating an index to match the entries, in the foreground or background, and following other
writers.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TypeVar

from langchain_lookup_knowledge import forks
from langchain_lookup_knowledge.errors import DocumentError, EmbeddingError, StoreError
from langchain_lookup_knowledge.health import SyncHealth
from langchain_lookup_knowledge.knowledge import Knowledge
from langchain_lookup_knowledge.l0 import lints
from langchain_lookup_knowledge.l1 import indexing
from langchain_lookup_knowledge.l1.index_state import Digests, IndexState
from langchain_lookup_knowledge.l1.indexing import Indexer, SyncReport
from langchain_lookup_knowledge.l1.models import embeddings, languages
from langchain_lookup_knowledge.l1.saved_settings import Parts
from langchain_lookup_knowledge.l1.search import L1Search
from langchain_lookup_knowledge.l1.stores.fingerprints import check_fingerprint, is_older
from langchain_lookup_knowledge.l1.stores.shared_builds import GenerationPart
from langchain_lookup_knowledge.l1.stores.vector_index import INDEX_COMMAND, VectorIndex
from langchain_lookup_knowledge.text.wording import counted
from langchain_lookup_knowledge.types import Problem

logger = logging.getLogger("langchain_lookup_knowledge")

T = TypeVar("T")

UNKNOWN_LANGUAGE = "which the embedding model does not know, so only words find them"
MULTILINGUAL_ADVICE = (
    "use the multilingual model: `lookup-knowledge index --model multilingual --rebuild`, or "
    'embedding="multilingual"'
)
LEAST_NAMED = 0.1
"""A language is named if it has at least this share of the entries in languages that the model does
not know.
"""

LANGUAGE_SAMPLE = 24
"""Maximum entries that are examined to find the language of most entries, which is assumed for a
short query.
"""
PROBLEM_SAMPLE = 200
"""Number of entries whose languages `problems` reports."""
FOLLOW_SECONDS = 1.0
"""How often a lookup checks whether another process has written the index."""


class Syncing:
    """The latest entries, the index that follows them, and the thread that updates it in the
    background.

    Args:
        name: the name of the knowledge base, for the log.
        read: reads the entries again, given the previous snapshot.
        save_settings: called after an embedded index was written, so that the next process opens it
            with the same settings.
        parts: the index, the model and the rest.
        unfinished: as for `Indexer`.
    """

    def __init__(
        self,
        name: str,
        read: Callable[[Knowledge | None], Knowledge],
        save_settings: Callable[[], None],
        parts: Parts,
        unfinished: Path | None = None,
    ) -> None:
        self._name = name
        self._id = parts.knowledge_base_id
        self._unfinished = unfinished
        self._read = read
        self._save_settings = save_settings
        self.state = IndexState()
        self._digested = Digests()
        index = parts.index
        self.l1 = L1Search(
            index,
            parts.embedding,
            state=self.state,
            after_search=self.follow,
            reranker=parts.reranker,
        )
        self._seen = index.version() if index else None
        self._next_check = 0.0
        self._unembedded: tuple[str, ...] | None = None
        self._stopped = False
        self.after_fork()
        self.knowledge = read(None)
        self._find_language()
        forks.register(self)

    def after_fork(self) -> None:
        """Start over in a forked child: a running sync continues only in the parent."""
        self._lock = threading.Lock()
        self.state.progress = None
        self.builder: threading.Thread | None = None

    def start(self, *, sync: bool, background: bool, progress: bool | None) -> None:
        """Bring an embedded index up to date if `sync` is set, in the background or before the
        first lookup; `progress` is as in `KnowledgeBase.open`.
        """
        if sync and self.l1.index is not None and self.l1.index.embedded:
            if background:
                self.build_in_background()
            else:
                self.try_sync(progress)
        if not background:
            self.warm(download=sync)

    def read(self) -> None:
        """Read the entries again; unchanged texts are not searched for terms again."""
        self.knowledge = self._read(self.knowledge)
        self._find_language()

    def _find_language(self) -> None:
        """Find the language of most entries, if the model does not know all languages."""
        if self.l1.index is not None and embeddings.is_english(self.l1.embedding):
            texts = self._sample(LANGUAGE_SAMPLE)
            self.state.language = next(iter(languages.languages(texts)), languages.ENGLISH)

    def _sample(self, most: int) -> list[str]:
        """Return the texts of at most `most` entries, evenly spaced."""
        entries = list(self.knowledge.entries.values())
        return [entry.text for entry in entries[:: max(1, -(-len(entries) // most))]]

    def sync(
        self,
        *,
        progress: bool | None,
        rebuild: bool = False,
        allow_empty: bool = False,
        take_over: bool = False,
    ) -> SyncReport:
        """Do what `KnowledgeBase.sync` does."""
        if self.builder is not None:
            self.builder.join()
        self._stopped = False
        with self._lock:
            self.read()
            if self.l1.index is not None:
                load = partial(embeddings.load, self.l1.embedding, download=True)
                self._noting_failures(load)
            self.l1.load_reranker(download=True)
            return self._write(
                progress=progress, rebuild=rebuild, allow_empty=allow_empty, take_over=take_over
            )

    def try_sync(self, progress: bool | None) -> None:
        """Update the index to match the entries read last; log errors instead of raising them."""
        try:
            with self._lock:
                self._write(progress=progress)
        except (StoreError, EmbeddingError) as error:
            logger.warning("the index of %s is not up to date: %s", self._name, error)

    def warm(self, *, download: bool = True) -> None:
        """Load the models and the index before the first lookup, which reports any error. The
        reranker is downloaded only with `download`.
        """
        with suppress(EmbeddingError, StoreError):
            self.l1.warm()
        self.l1.load_reranker(download=download)

    def build_in_background(self) -> None:
        """Start a sync in the background."""
        self.state.progress = 0.0

        def build() -> None:
            self.try_sync(progress=False)
            self.warm()

        self._start_background(build)

    def stop(self) -> None:
        """Stop a sync in the background, and wait for its end."""
        self._stopped = True
        if self.builder is not None:
            self.builder.join()

    def _start_background(self, work: Callable[[], None]) -> None:
        thread = threading.Thread(target=work, name="lookup-knowledge-index", daemon=True)
        thread.start()
        self.builder = thread  # assigned after start(), so that it can always be joined

    def _write(
        self,
        *,
        progress: bool | None,
        rebuild: bool = False,
        allow_empty: bool = False,
        take_over: bool = False,
    ) -> SyncReport:
        """Write the differences to the index; lookups report that the sync is running, or that it
        failed.
        """
        index, entries = self.l1.index, self.knowledge.entries
        if index is None:
            return SyncReport(len(entries), 0, 0, 0)
        if isinstance(index, GenerationPart):
            entries = {name: entry for name, entry in entries.items() if index.holds(name)}

        def write() -> SyncReport:
            indexer = Indexer(
                index,
                self.l1.embedding,
                self._unfinished,
                self._id,
                self.state.language,
                self._digested,
            )
            report = indexer.write(
                entries,
                rebuild=rebuild,
                allow_empty=allow_empty,
                take_over=take_over,
                damaged=self.state.differing,
                progress=progress,
                on_progress=self._note_progress,
            )
            if report.written and index.embedded:
                _save_safely(self._save_settings)
            return report

        report = self._noting_failures(write)
        self._seen, self._unembedded = report.version, report.unembedded
        self.state.succeeded()
        return report

    def _noting_failures(self, call: Callable[[], T]) -> T:
        """Call a part of a sync; if it fails, lookups report why an embedded index is behind."""
        try:
            return call()
        except (StoreError, EmbeddingError) as error:
            if self.l1.index is not None and self.l1.index.embedded:
                self.state.failed(error)
            raise
        finally:
            self.state.progress = None

    def _note_progress(self, share: float) -> None:
        if self.l1.index is not None and self.l1.index.embedded:
            self.state.progress = share
        if self._stopped:
            raise StoreError("the knowledge base was closed while its index was built")

    def follow(self) -> None:
        """Check in the background, at most once a second, whether another process has written the
        index.
        """
        index = self.l1.index
        if (
            index is None
            or time.monotonic() < self._next_check
            or (self.builder and self.builder.is_alive())
        ):
            return
        self._next_check = time.monotonic() + FOLLOW_SECONDS
        if self.state.failure or index.version() != self._seen:
            self._start_background(partial(self._catch_up, index))

    def _catch_up(self, index: VectorIndex) -> None:
        """Read the entries again if another process wrote the index, and clear the failure of a
        sync if the index matches the entries.
        """
        version = index.version()
        try:
            if version != self._seen:
                with self._lock:
                    self.read()
                    self._seen = version
            contents = index.contents()
        except (DocumentError, StoreError) as error:
            logger.warning("L0 of %s is not up to date: %s", self._name, error)
            return
        older = contents and is_older(contents.fingerprint, self.l1.embedding)
        if contents and not older and contents.digests == self._digests():
            self.state.succeeded()
            self._unembedded = contents.unembedded

    def _digests(self) -> dict[str, str]:
        return self._digested.of(self.knowledge.entries)

    def health(self) -> SyncHealth:
        """Return the state of L1 and the index, as in `KnowledgeBase.health`."""
        health: SyncHealth = {
            **self.l1.breaker.health(),
            "entries": len(self.knowledge.entries),
            **self.state.health(self.l1.index),
        }
        if self.l1.index is None:
            health["l1"] = "disabled"
        return health

    def problems(self) -> list[Problem]:
        """Return the problems of the index that are known without asking a server.

        They are the failure of the last sync, the entries with a passage that has no usable vector,
        and, if half of the entries or more are in languages that the model does not know, these
        languages.
        """
        failure = self.state.failure
        behind = [Problem(".", None, f"the index is behind the folder: {failure}")]
        return [
            *(behind if failure else ()),
            *self._unembedded_problems(),
            *self.unknown_languages(half=True),
        ]

    def _unembedded_problems(self) -> list[Problem]:
        index, unembedded = self.l1.index, self._unembedded
        if unembedded is None and index is not None and index.embedded:
            with suppress(StoreError):
                contents = index.contents()
                unembedded = contents.unembedded if contents else ()
        return _without_vector(unembedded or ())

    def unknown_languages(self, *, half: bool) -> Iterator[Problem]:
        """Report the languages of entries that the model does not know. With `half`, report them
        only if at least half of the entries are in such languages; without it, only if fewer are.
        """
        if self.l1.index is None or not embeddings.is_english(self.l1.embedding):
            return
        texts = self._sample(PROBLEM_SAMPLE)
        found = languages.languages(texts)
        unknown = {code: count for code, count in found.items() if code != languages.ENGLISH}
        share = sum(unknown.values()) / max(1, len(texts))
        if not unknown or half != (share >= 0.5):
            return
        if len(texts) < len(self.knowledge.entries):
            named = f"about {share:.0%} of the entries are".replace("%", " %")
        else:
            named = counted(sum(unknown.values()), "entry is", "entries are")
        least = sum(unknown.values()) * LEAST_NAMED
        codes = [code for code, count in unknown.items() if count >= least]
        codes = [code for code in codes if code != languages.UNKNOWN] or [languages.UNKNOWN]
        names = map(languages.named, codes)
        advice = MULTILINGUAL_ADVICE if half else f"if people ask for them, {MULTILINGUAL_ADVICE}"
        yield Problem(".", None, f"{named} in {' and '.join(names)}, {UNKNOWN_LANGUAGE}: {advice}")

    def index_problems(self) -> list[Problem]:
        """Return the differences between the index and the entries, and the problems that only the
        server knows.
        """
        index = self.l1.index
        if index is None:
            return []
        try:
            contents = index.contents()
            if contents is None:
                return []
            check_fingerprint(index, self.l1.embedding, contents.fingerprint)
            index.verify()
        except StoreError as error:
            return [Problem(".", None, str(error))]
        unknown = self._unembedded is None and not index.embedded
        missing = _without_vector(contents.unembedded) if unknown else []
        faults = [Problem(".", None, f"{fault}: {INDEX_COMMAND}") for fault in contents.faults]
        return [*faults, *lints.out_of_step(self._digests(), contents.digests), *missing]


def _without_vector(entry_ids: Iterable[str]) -> list[Problem]:
    return [Problem(entry_id, None, indexing.UNEMBEDDED) for entry_id in entry_ids]


def _save_safely(save_settings: Callable[[], None]) -> None:
    try:
        save_settings()
    except OSError as error:
        raise StoreError(f"the settings cannot be written: {error.strerror or error}") from error
