"""Files that were read before: a file is opened again only if its size or one of its times changed,
and parsed again only if its bytes changed.
"""

import hashlib
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from stat import S_ISREG
from typing import NamedTuple

from langchain_lookup_knowledge.reading.entry import Entry
from langchain_lookup_knowledge.types import Problem

SETTLED = 2_000_000_000
"""Nanoseconds that a file must have been unchanged when it is read, so that equal times mean equal
bytes from then on: file systems may count time in steps of up to two seconds.
"""

MAX_EDITED = 1000
"""Maximum edited entries that are joined again alone; if more were edited, all entries are."""


class FileKey(NamedTuple):
    """The size of a file, and when its bytes and its status were changed, in nanoseconds."""

    size: int
    modified: int
    changed: int


_LINK = FileKey(-1, -1, -1)


class Parsed(NamedTuple):
    """What a file holds, before links and embeds are resolved. The last problem of a file without
    an entry says why it has none.
    """

    entry: Entry | None
    problems: tuple[Problem, ...]


@dataclass(frozen=True, slots=True)
class ReadFile:
    """A file as it was read; `is_settled`: whether an equal key later means equal bytes; false for
    a link, and for a file that had been changed shortly before it was read.
    """

    key: FileKey
    is_settled: bool
    digest: bytes
    parsed: Parsed


@dataclass(frozen=True, slots=True)
class KnownFolder:
    """The files of a folder as they were read, by name, with the entries that they make
    together and the problems of their links and embeds.

    `parsed`: the number of files that had to be parsed.
    """

    files: Mapping[str, ReadFile] = field(default_factory=dict)
    entries: Sequence[Entry] = ()
    problems: Sequence[Problem] = ()
    parsed: int = 0

    def edited(
        self, files: Mapping[str, ReadFile], names: Sequence[str]
    ) -> list[tuple[Entry, Entry]] | None:
        """Return the entries whose files have changed, each as joined before and as read now; None
        if the folder has other entries than before, or if too many have changed.
        """
        if names != [entry.entry_id for entry in self.entries] or list(files) != list(self.files):
            return None
        found = []
        for known in self.entries:
            entry = files[known.entry_id].parsed.entry
            if entry is not self.files[known.entry_id].parsed.entry and entry is not None:
                found.append((known, entry))
        return found if len(found) <= MAX_EDITED else None

    def holds(self, files: Mapping[str, ReadFile], names: Sequence[str]) -> bool:
        """Return whether the same files, with the same contents and in the same order, make the
        entries with these names.
        """
        return (
            names == [entry.entry_id for entry in self.entries]
            and list(files) == list(self.files)
            and all(one.parsed is self.files[name].parsed for name, one in files.items())
        )


class Reader:
    """Reads files, unless they are known.

    Args:
        known: the files that were read before.
        load: returns the bytes of a file; an exception means that the file is not used.
        parse: returns what the bytes of a file hold.
        verify: whether every file is opened, whatever its times say.
    """

    def __init__(
        self,
        known: Mapping[str, ReadFile],
        load: Callable[[Path], bytes],
        parse: Callable[[str, bytes], Parsed],
        *,
        verify: bool = False,
    ) -> None:
        self._known = known
        self._load = load
        self._parse = parse
        self._verify = verify
        self.files: dict[str, ReadFile] = {}
        self.parsed = 0

    def read(self, name: str, path: Path) -> Parsed:
        """Return what a file holds."""
        key, known = _key(path), self._known.get(name)
        if known is None or not known.is_settled or known.key != key or self._verify:
            known = self._opened(name, path, key, known)
        self.files[name] = known
        return known.parsed

    def _opened(self, name: str, path: Path, key: FileKey, known: ReadFile | None) -> ReadFile:
        now = time.time_ns()
        data = self._load(path)
        digest = hashlib.sha256(data).digest()
        is_settled = key != _LINK and now - max(key.modified, key.changed) > SETTLED
        if known and known.digest == digest:
            same = (known.key, known.is_settled) == (key, is_settled)
            return known if same else replace(known, key=key, is_settled=is_settled)
        self.parsed += 1
        return ReadFile(key, is_settled, digest, self._parse(name, data))


def _key(path: Path) -> FileKey:
    """Return the key of a file; a link gets a key that no file has, because it may later lead
    somewhere else.
    """
    try:
        status = os.lstat(path)
    except OSError:
        return _LINK
    if not S_ISREG(status.st_mode):
        return _LINK
    return FileKey(status.st_size, status.st_mtime_ns, status.st_ctime_ns)
