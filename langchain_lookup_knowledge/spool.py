"""Invocations that wait for their database: a file each, in a folder that any number of threads and processes may share."""

import json
import logging
import os
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path

from langchain_lookup_knowledge.durable import write_durably
from langchain_lookup_knowledge.errors import RecordRefused
from langchain_lookup_knowledge.invocations import to_json, utc
from langchain_lookup_knowledge.types import Invocation

logger = logging.getLogger("langchain_lookup_knowledge")

BATCH = 100
"""Invocations delivered at a time."""
UNFINISHED_SECONDS = 3600
"""Age from which a hidden file is what a killed process left, and not one that is being written."""


class Spool:
    """Keeps invocations on disk until a database has taken them.

    No lock is needed: a file appears whole, by a rename, and goes after its row was committed. Two processes that deliver the
    same file store the same id, and a process killed in between leaves the file or a hidden, unfinished one.

    Args:
        folders: where to write; the first that can be written is used, all are delivered from.
    """

    def __init__(self, folders: Sequence[Path]) -> None:
        self.folders = folders

    def keep(self, invocation: Invocation) -> Path:
        """Write an invocation, down to the disk, and return the folder that has it.

        Raises:
            OSError: no folder can be written.
        """
        name = f"{time.time_ns():020d}-{uuid.uuid4().hex}.json"
        failure = OSError("there is no spool folder")
        for folder in self.folders:
            try:
                folder.mkdir(parents=True, exist_ok=True)
                write_durably(folder / name, to_json(invocation) + "\n")
            except OSError as error:
                failure = error
            else:
                return folder
        raise failure

    def waiting(self) -> list[Path]:
        """Return the files that wait, oldest first."""
        return sorted((path for folder in self.folders for path in _files(folder)), key=lambda path: path.name)

    def damaged(self) -> list[Path]:
        """Return the files that were put aside: they hold no invocation, but perhaps parts of a query."""
        return sorted(path for folder in self.folders for path in _files(folder, ".damaged"))

    def is_empty(self) -> bool:
        """Say whether nothing waits."""
        return not any(any(_files(folder)) for folder in self.folders)

    def deliver(self, store: Callable[[list[Invocation]], None]) -> None:
        """Hand all that waits to `store`, some at a time, and forget what it took and what killed processes left unfinished.

        Raises:
            OSError, RecordRefused: files cannot be read or deleted, or `store` refuses them: the first reason, after all
                others were delivered. What else `store` raises is passed on. The rest stays.
        """
        failures: list[Exception] = []
        waiting = self.waiting()
        for start in range(0, len(waiting), BATCH):
            files = waiting[start : start + BATCH]
            read = {path: invocation for path in files if (invocation := _read(path, failures)) is not None}
            for path in _taken(read, store, failures) if read else ():
                _forget(path, failures)
        for folder in self.folders:
            for path in _unfinished(folder):
                _forget(path, failures)
        if failures:
            raise failures[0]


def _taken(
    read: dict[Path, Invocation], store: Callable[[list[Invocation]], None], failures: list[Exception]
) -> Iterator[Path]:
    """Yield the files that `store` took; each is tried by itself if it refuses one of them."""
    try:
        store(list(read.values()))
    except RecordRefused as refusal:
        if len(read) == 1:
            failures.append(refusal)
            return
        for path, invocation in read.items():
            yield from _taken({path: invocation}, store, failures)
    else:
        yield from read


def _files(folder: Path, ending: str = ".json") -> Iterator[Path]:
    with suppress(OSError), os.scandir(folder) as found:
        for file in found:
            if file.name.endswith(ending) and not file.name.startswith("."):
                yield Path(file)


def _unfinished(folder: Path) -> Iterator[Path]:
    """Yield the hidden files of processes that were killed while they wrote them."""
    with suppress(OSError):
        for path in folder.glob(".*.json"):
            with suppress(FileNotFoundError):
                if time.time() - path.stat().st_mtime > UNFINISHED_SECONDS:
                    yield path


def _forget(path: Path, failures: list[Exception]) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        failures.append(error)


def _read(path: Path, failures: list[Exception]) -> Invocation | None:
    """Return the invocation of a file.

    None if another process delivered it, it is damaged and was put aside, or it cannot be read, which is a failure.
    """
    try:
        invocation: Invocation = json.loads(path.read_text("utf-8"))
        utc(datetime.fromisoformat(invocation["created_at"]))
        if invocation.keys() >= Invocation.__required_keys__:
            return invocation
    except FileNotFoundError:
        return None
    except OSError as error:
        failures.append(error)
        return None
    except (ValueError, TypeError, KeyError, OverflowError):
        pass
    try:
        path.rename(path.with_name(path.name + ".damaged"))
    except FileNotFoundError:  # another process put it aside
        return None
    except OSError as error:
        failures.append(error)
        return None
    logger.error("%s holds no invocation: it was put aside as %s.damaged", path, path.name)
    return None
