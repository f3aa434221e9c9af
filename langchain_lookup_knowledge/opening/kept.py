"""What was read of a folder, kept in the data folder: the next opening reads only what changed."""

import hashlib
import logging
import platform
import time
import unicodedata
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict
from functools import cache, partial
from importlib import metadata
from pathlib import Path
from typing import Any

from langchain_lookup_knowledge.knowledge import Knowledge
from langchain_lookup_knowledge.l0 import packing as l0_packing
from langchain_lookup_knowledge.l0.metadata_search import MetadataSearch
from langchain_lookup_knowledge.opening.signed_file import (
    UnusableFileError,
    read_signed,
    write_signed,
)
from langchain_lookup_knowledge.reading.known import packing
from langchain_lookup_knowledge.reading.known.files import ReadFile
from langchain_lookup_knowledge.reading.selection import Selection
from langchain_lookup_knowledge.types import FrontmatterFields, LoadReport

logger = logging.getLogger("langchain_lookup_knowledge")

KEPT_FILE = "entries.kept"
RENEWED_SHARE = 0.01
"""The file is written again if more than this share of the files differ from it, or if it holds a
file that is gone.
"""
UNFINISHED_SECONDS = 3600
"""Age in seconds from which an unfinished file is considered abandoned."""
_READING = ("reading/**/*.py", "text/**/*.py", "l0/*.py", "opening/*.py", "types.py", "scope.py")
_LIBRARIES = ("PyYAML", "python-frontmatter", "markdown-it-py", "mdit-py-plugins")


class KeptEntries:
    """The file with the entries of a folder as they were read last.

    `state` is the `kept_entries` of `health`: how `load` ended, unless the last `keep` failed.

    Args:
        path: the file.
        fields, selection: how the files are read; entries that were read in another way are not
            used.
        writes: False if nothing may be written.
    """

    def __init__(
        self, path: Path, fields: FrontmatterFields, selection: Selection, *, writes: bool
    ) -> None:
        self._path = path
        self._fields = fields
        self._writes = writes
        self._made_by = [_code(), repr(sorted({**asdict(fields), **asdict(selection)}.items()))]
        self._files: Mapping[str, ReadFile] = {}
        self.state = self._loaded_state = "none"

    def load(self) -> Knowledge | None:
        """Return what was read last, without a load report; None if it cannot be used."""
        try:
            knowledge = self._loaded()
        except FileNotFoundError:
            return None
        except (UnusableFileError, OSError) as error:
            self.state = self._loaded_state = f"not used: {error}"
            logger.debug("%s is not used: %s", self._path, error)
            return None
        self._files = knowledge.known.files
        self.state = self._loaded_state = "used"
        return knowledge

    def _loaded(self) -> Knowledge:
        blocks = read_signed(self._path)
        if next(blocks, None) != self._made_by:
            raise UnusableFileError("another version or other settings wrote it")
        files = packing.unpacked_files(iter(partial(next, blocks), None))
        known = packing.unpacked_joined(files, next(blocks))
        words = l0_packing.unpacked_words(next(blocks), known.entries)
        counts = l0_packing.unpacked_counts(next(blocks))
        entries = {entry.entry_id: entry for entry in known.entries}
        hints = l0_packing.unpacked_hints(blocks, known.entries, self._fields.case_sensitive)
        report = LoadReport(0, 0, (), ())
        search = MetadataSearch(entries, counts=counts)
        return Knowledge.of(entries, report, hints, words, search, known)

    def keep(self, knowledge: Knowledge) -> None:
        """Write what was read, if enough of it differs from the file."""
        files = knowledge.known.files
        renewed = sum(self._files.get(name) is not one for name, one in files.items())
        if not self._writes or not (
            renewed > RENEWED_SHARE * len(files) or self._files.keys() - files.keys()
        ):
            return
        self._remove_unfinished()
        try:
            write_signed(self._path, self._blocks(knowledge))
        except (OSError, ValueError, TypeError) as error:
            self.state = f"cannot be written: {getattr(error, 'strerror', None) or error}"
            logger.debug("%s cannot be written: %s", self._path, error)
        else:
            self._files, self.state = files, self._loaded_state

    def _remove_unfinished(self) -> None:
        """Remove the unfinished files of killed processes; they may be large."""
        for path in self._path.parent.glob(f".*.{self._path.name}"):
            with suppress(OSError):
                if time.time() - path.lstat().st_mtime > UNFINISHED_SECONDS:
                    path.unlink()

    def _blocks(self, knowledge: Knowledge) -> Iterator[Any]:
        yield self._made_by
        yield from packing.packed_files(knowledge.known.files)
        yield None
        yield packing.packed_joined(knowledge.known)
        yield l0_packing.packed_words(knowledge.words)
        yield l0_packing.packed_counts(knowledge.metadata.counts)
        yield from l0_packing.packed_hints(knowledge.hint_index)


@cache
def _code() -> str:
    """Return a hash of everything that decides how files are read: the code of this package that
    reads them, and the versions of what it uses.
    """
    package = Path(__file__).parents[1]
    found = hashlib.sha256()
    for pattern in _READING:
        for path in sorted(package.glob(pattern)):
            found.update(path.read_bytes())
    versions = [metadata.version(name) for name in ("langchain-lookup-knowledge", *_LIBRARIES)]
    python = [platform.python_version(), unicodedata.unidata_version]
    found.update(repr([versions, python]).encode())
    return found.hexdigest()
