"""A knowledge base: the entries of a folder, their hints, and an L1 (vector search) index that
follows the folder.
"""

import logging
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self, SupportsIndex

from langchain_core.documents import BaseDocumentCompressor, Document
from langchain_core.embeddings import Embeddings

from langchain_lookup_knowledge.data_folder import (
    DATA_FOLDER,
    find_data_folder,
    given_data_folder,
)
from langchain_lookup_knowledge.first_sight.base import FirstSight
from langchain_lookup_knowledge.health import Health
from langchain_lookup_knowledge.knowledge import EntryReader, Knowledge
from langchain_lookup_knowledge.l1.indexing import SyncReport
from langchain_lookup_knowledge.l1.saved_settings import Parts, choose_parts, save_parts
from langchain_lookup_knowledge.l1.stores.vector_index import VectorIndex
from langchain_lookup_knowledge.opening.kept import KEPT_FILE, KeptEntries
from langchain_lookup_knowledge.opening.source import Source
from langchain_lookup_knowledge.reading import watching
from langchain_lookup_knowledge.reading.documents import checked_documents
from langchain_lookup_knowledge.reading.embeds import partly_hidden
from langchain_lookup_knowledge.reading.entry import Entry
from langchain_lookup_knowledge.reading.glossary_file import glossary_name
from langchain_lookup_knowledge.scope import scope_problems
from langchain_lookup_knowledge.syncing import Syncing
from langchain_lookup_knowledge.types import (
    FrontmatterFields,
    LoadReport,
    Problem,
    checked_names,
)

logger = logging.getLogger("langchain_lookup_knowledge")


class KnowledgeBase(FirstSight, EntryReader):
    """The entries of a folder, ready for lookups; made by `open`, closed by `close` or a `with`
    block.

    `l1` is vector search: its index, its model, and the time limit and circuit breaker that protect
    lookups. `l0` is the snapshot of the entries that the keyword hints come from.
    """

    def __init__(
        self,
        folder: Path,
        data_folder: Path,
        parts: Parts,
        documents: Sequence[Document] | None = None,
        scope_fields: Sequence[str] = (),
        *,
        writes: bool = True,
        verify: bool = False,
    ) -> None:
        self.folder = folder
        self.data_folder = data_folder
        self.fields, self.selection, self.glossary = parts.fields, parts.selection, parts.glossary
        self.scope_fields = checked_names(scope_fields, "scope_fields", "tenant")
        self._parts, self._documents = parts, documents
        self._closing: list[Callable[[], None]] = []
        self._notices = [Problem(".", None, parts.notice)] if parts.notice else []
        self._scope_fields = set(self.scope_fields)
        unfinished = data_folder / "unfinished-vectors"
        kept = KeptEntries(data_folder / KEPT_FILE, self.fields, self.selection, writes=writes)
        source = Source(folder, documents, self.fields, self.selection, self.glossary, kept, verify)
        self._kept = kept
        self._syncing = Syncing(folder.name, source.read, self.save_settings, parts, unfinished)
        self.l1 = self._syncing.l1

    @classmethod
    def open(
        cls,
        folder: str | os.PathLike[str],
        *,
        index: VectorIndex | Literal["from_settings"] | None = "from_settings",
        embedding: Embeddings | str | None = None,
        fields: FrontmatterFields | None = None,
        data_dir: str | os.PathLike[str] | None = None,
        sync: bool = True,
        background: bool = False,
        progress: bool | None = None,
        rerank: BaseDocumentCompressor | str | None = None,
        exclude: Sequence[str] | None = None,
        endings: Sequence[str] | None = None,
        glossary: str | os.PathLike[str] | None = None,
        scope_fields: Sequence[str] = (),
        knowledge_base_id: str | None = None,
        trust: bool = False,
        verify: bool = False,
    ) -> "KnowledgeBase":
        """Read the folder, build L0, and bring an embedded L1 index up to date.

        Args:
            folder: the folder of Markdown files.
            index: a `QdrantIndex` for a server, or None for L0 alone; by default, the index that
                `lookup-knowledge index` was given, else the embedded index in the data folder.
            embedding: a LangChain `Embeddings`, "multilingual", or the name of a FastEmbed model;
                by default, the saved model, else the bundled one.
            fields: which frontmatter keys to read, and for what; by default, the saved mapping,
                else `FrontmatterFields()`.
            data_dir: where the index and the records are stored; by default `.lookup-knowledge` in
                the folder.
            sync: False leaves an embedded index as it is; a collection on a server is written only
                by `sync()` in any case.
            background: True returns as soon as L0 is ready and brings the index up to date in the
                background. If an older index exists, it answers meanwhile; otherwise lookups answer
                from L0 and report the progress.
            progress: True shows a bar while passages are embedded, False shows no bar, None shows
                it only on a terminal. An interrupted build continues at the next `open`.
            rerank: a LangChain `BaseDocumentCompressor`, or the name of a FastEmbed cross-encoder,
                which is fetched here or by `sync()`, never by a lookup. It orders the passages that
                L1 found, within the time limit of L1; if it fails, their order does not change and
                `l1.reason` says so. It is not saved in the settings.
            exclude: files and folders to leave out, as patterns of a `.gitignore`; by default, as
                saved.
            endings: endings of the files to read, such as ".md"; by default, as saved.
            glossary: the path, in the folder, of a file with your own vocabulary: a Markdown table
                with a word and another form in each row, or a YAML file with lines such as
                `PTO: paid time off`. A query with one form is searched with the other, too. By
                default, the saved path; "" uses no file.
            scope_fields: frontmatter keys, as in `LookupOptions`, that decide who may see an entry.
                They apply to every graph, tool and retriever, and to the methods with a `scope`
                parameter, which then require it. `entries` is for the owner and is not limited.
            knowledge_base_id: an id that the next sync stores in the collection on a server. From
                then on, a sync of a knowledge base with another id is refused. By default, the
                saved id.
            trust: use a server or model named in the settings of the data folder even if this user
                did not save these settings, as in a cloned folder.
            verify: compare the bytes of every file, here and in `sync`. Without it, a file whose
                size and times are those of the last reading is not opened again.

        Raises:
            DocumentError: the folder cannot be read, the data folder cannot be made, or there is no
                such glossary. An unreachable server, model or index raises nothing; `problems` and
                lookups report it.
            ValueError: an argument cannot be used, such as a model name FastEmbed does not know.
        """
        root = Path(folder).expanduser().absolute()
        data_folder = find_data_folder(root, data_dir)
        if glossary:
            glossary = glossary_name(root, Path(glossary))
        parts = choose_parts(
            data_folder,
            index,
            embedding,
            fields,
            rerank=rerank,
            exclude=exclude,
            endings=endings,
            glossary=None if glossary is None else str(glossary),
            knowledge_base_id=knowledge_base_id,
            trust=trust,
        )
        kb = cls(root, data_folder, parts, scope_fields=scope_fields, verify=verify)
        asked = root / DATA_FOLDER if data_dir is None else Path(data_dir).expanduser().absolute()
        if data_folder != asked:
            what = "knowledge folder" if data_dir is None else "data folder"
            message = f"the {what} is read-only; the index and the records are in {data_folder}"
            kb._notices.append(Problem(".", None, message))
            logger.warning("%s", message)
        kb._syncing.start(sync=sync, background=background, progress=progress)
        return kb

    @classmethod
    def from_documents(
        cls,
        documents: Iterable[Document],
        *,
        data_dir: str | os.PathLike[str],
        index: VectorIndex | Literal["from_settings"] | None = "from_settings",
        embedding: Embeddings | str | None = None,
        fields: FrontmatterFields | None = None,
        progress: bool | None = None,
        rerank: BaseDocumentCompressor | str | None = None,
        scope_fields: Sequence[str] = (),
        knowledge_base_id: str | None = None,
        trust: bool = False,
    ) -> "KnowledgeBase":
        """Make a knowledge base from LangChain documents, such as those of a loader, instead of a
        folder.

        Args:
            documents: each becomes one entry; `source` in its metadata is the id, and the fields
                are read from its metadata too.
            data_dir: where the index and the records are stored; the name of this folder is the
                name of the knowledge base. With the same `data_dir`, only documents that changed
                are embedded.
            index, embedding, fields, progress, rerank, scope_fields, knowledge_base_id, trust: as
                in `open`.

        Raises:
            DocumentError: the data folder cannot be made.
        """
        listed = checked_documents(documents)
        data_folder = given_data_folder(data_dir, make=True)
        parts = choose_parts(
            data_folder,
            index,
            embedding,
            fields,
            rerank=rerank,
            knowledge_base_id=knowledge_base_id,
            trust=trust,
        )
        kb = cls(data_folder, data_folder, parts, listed, scope_fields=scope_fields)
        kb._syncing.start(sync=True, background=False, progress=progress)
        return kb

    @classmethod
    def open_read_only(
        cls,
        folder: str | os.PathLike[str],
        *,
        index: VectorIndex | Literal["from_settings"],
        data_dir: str | os.PathLike[str] | None,
        trust: bool = False,
    ) -> "KnowledgeBase":
        """Read the folder with the model and fields from the settings, without writing an index or
        a data folder.
        """
        root = Path(folder).expanduser().absolute()
        data_folder = find_data_folder(folder, data_dir, make=False)
        return cls(root, data_folder, choose_parts(data_folder, index, trust=trust), writes=False)

    def suggestions(self) -> list[Problem]:
        """Return suggestions for the content, and differences between the index and the folder."""
        foreign = self._syncing.unknown_languages(half=False)
        return [*self.l0.suggestions(), *foreign, *self.index_problems()]

    def index_problems(self) -> list[Problem]:
        """Return the differences between the index and the folder."""
        return self._syncing.index_problems()

    @property
    def index(self) -> VectorIndex | None:
        """The index that holds the passages; None if L0 answers alone."""
        return self.l1.index

    @property
    def embedding(self) -> Embeddings:
        """The embedding model."""
        return self.l1.embedding

    @property
    def l0(self) -> Knowledge:
        """The latest snapshot of the folder; `l0.seen_by(scope)` is the part a caller may see."""
        return self._syncing.knowledge

    @property
    def entries(self) -> list[Entry]:
        """The entries, in the order of their paths."""
        return list(self.l0.entries.values())

    @property
    def load_report(self) -> LoadReport:
        """The load report: whether each Markdown file of the folder was read, and its problems."""
        return self.l0.report

    @property
    def problems(self) -> list[Problem]:
        """Files and fields that were not used as written, and why the index is behind, if it is."""
        return [
            *self._notices,
            *self.l0.problems,
            *scope_problems(self.entries, self._scope_fields, self.scope_fields),
            *partly_hidden(self.entries, self._scope_fields),
            *self._syncing.problems(),
        ]

    def add_problem(self, problem: Problem) -> None:
        """Add a problem that another part of this package found to `problems`."""
        if problem not in self._notices:
            self._notices.append(problem)

    def health(self) -> Health:
        """Return the state of L1 and the index after the last lookups and syncs; no server or model
        is called.
        """
        return {**self._syncing.health(), "kept_entries": self._kept.state}

    def sync(
        self,
        *,
        progress: bool | None = None,
        rebuild: bool = False,
        allow_empty: bool = False,
        take_over: bool = False,
    ) -> SyncReport:
        """Read the folder again and update the index, embedded or on a server, to match it.

        Args:
            progress: as in `open`.
            rebuild: embed and write everything from scratch, even if the index was built with
                another model.
            allow_empty: let a folder without entries empty the index.
            take_over: write to a collection on a server even if this removes many of its entries
                (more than ten and more than a third), or if it has no entry of this folder.

        Raises:
            DocumentError: the folder cannot be read.
            EmbeddingError: the model fails.
            StoreError: the index cannot be written, or was built with another model and `rebuild`
                is not set, or its collection seems to belong to another knowledge base.
        """
        return self._syncing.sync(
            progress=progress, rebuild=rebuild, allow_empty=allow_empty, take_over=take_over
        )

    def watch(self, stop: threading.Event | None = None) -> Iterator[SyncReport]:
        """Sync whenever a file of the folder changes, and yield each report, until `stop` is set.

        The first sync covers earlier changes: its report is yielded only if something changed. A
        sync that fails is logged and tried again. A knowledge base made from documents has no
        folder to watch.
        """
        if self._documents is not None:
            raise ValueError(
                "a knowledge base of documents has no folder to watch: call from_documents again"
            )
        for changed, report in watching.follow(self.folder, self.sync, stop):
            if changed or report.renewed or report.removed:
                yield report

    def save_settings(self) -> None:
        """Save the index, model, fields, glossary and id in the data folder, for later commands and
        `open`; an API key is never saved.

        Nothing is saved while settings that came with the folder name a server or model that is not
        trusted.
        """
        save_parts(self.data_folder, self._parts)

    def note_scope_fields(self, fields: Iterable[str]) -> None:
        """Note which frontmatter keys decide who may see an entry; `problems` considers them."""
        self._scope_fields.update(fields)

    def feedback(self, invocation_id: str, *, right: bool, note: str = "") -> None:
        """Record whether the first match of a recorded lookup was right, and a note.

        Raises:
            RecordError, ValueError: see `records.feedback.give`.
        """
        from langchain_lookup_knowledge.records.feedback import give_in_folder  # noqa: PLC0415

        give_in_folder(self.data_folder, invocation_id, right=right, note=note)

    def on_close(self, call: Callable[[], None]) -> None:
        """Register a function that `close` also calls, for example to close a default recorder."""
        self._closing.append(call)

    def close(self) -> None:
        """Close the index and the default recorders. Closing twice is harmless; a later lookup
        opens them again.
        """
        self._syncing.stop()
        self.l1.close()
        for call in self._closing:
            call()

    def __copy__(self) -> Self:
        """Return the knowledge base itself: it holds files and threads that cannot be copied."""
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """Return the knowledge base itself."""
        return self

    def __reduce_ex__(self, protocol: SupportsIndex) -> Any:
        """Refuse to be pickled."""
        raise TypeError(
            "a KnowledgeBase cannot be pickled, because it holds open files and threads: "
            "open the folder in the other process"
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
