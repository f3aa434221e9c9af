"""Where the entries of a knowledge base come from."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from langchain_core.documents import Document

from langchain_lookup_knowledge.knowledge import Knowledge
from langchain_lookup_knowledge.l0.glossary import HouseWords
from langchain_lookup_knowledge.l0.hints import HintIndex
from langchain_lookup_knowledge.l0.metadata_search import MetadataSearch
from langchain_lookup_knowledge.opening.kept import KeptEntries
from langchain_lookup_knowledge.reading.documents import read_again, read_documents
from langchain_lookup_knowledge.reading.glossary_file import read_glossary
from langchain_lookup_knowledge.reading.known.files import KnownFolder
from langchain_lookup_knowledge.reading.selection import Selection
from langchain_lookup_knowledge.types import FrontmatterFields


@dataclass(frozen=True, slots=True)
class Source:
    """Where the entries of a knowledge base come from: documents, or else a folder.

    `fields`: which frontmatter keys are read. `selection`: which files are read. `glossary`: the
    path of the glossary in the folder, or "". `kept`: what was read last, on disk.
    `verify`: compare the bytes of every file with those read last.
    """

    folder: Path
    documents: Sequence[Document] | None
    fields: FrontmatterFields
    selection: Selection
    glossary: str
    kept: KeptEntries
    verify: bool = False

    def read(self, before: Knowledge | None) -> Knowledge:
        """Read the entries again. A file is not parsed if it is unchanged since the snapshot
        `before`, or else since the entries kept on disk; it is not even opened, unless `verify` is
        set.

        Raises:
            DocumentError: the folder cannot be read.
        """
        known = KnownFolder()
        if self.documents is None:
            before = before or self.kept.load()
            known = before.known if before else known
            known, report = read_again(
                self.folder, self.fields, self.selection, known, verify=self.verify
            )
            listed = known.entries
        else:
            listed, report = read_documents(self.documents, self.fields)
        entries = {entry.entry_id: entry for entry in listed}
        glossary = read_glossary(self.folder, self.glossary, self.fields)
        report = replace(report, problems=(*report.problems, *glossary.problems))
        words = HouseWords.of(listed, before.words if before else None, glossary)
        empty = HintIndex([], case_sensitive=self.fields.case_sensitive)
        hints = (before.hint_index if before else empty).updated(listed)
        metadata = MetadataSearch(entries, before=before.metadata if before else None)
        after = Knowledge.of(entries, report, hints, words, metadata, known)
        if before:
            after.renew_views(before)
        if self.documents is None:
            self.kept.keep(after)
        return after
