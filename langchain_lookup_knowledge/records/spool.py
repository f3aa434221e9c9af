"""Spooled invocations: one file per invocation, in folders that processes may share."""

import errno
import json
import logging
import os
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path

from langchain_lookup_knowledge.durable import read_bytes, write_durably
from langchain_lookup_knowledge.errors import RecordRefusedError
from langchain_lookup_knowledge.records.invocations import to_json, utc
from langchain_lookup_knowledge.types import Invocation

logger = logging.getLogger("langchain_lookup_knowledge")

BATCH = 100
"""Number of invocations per delivery batch."""
UNFINISHED_SECONDS = 3600
"""Age at which a hidden file is assumed to have been left unfinished by a killed process."""
ERASED_SECONDS = 10
"""Age at which a hidden file is erased by `erase_unfinished`, because it may hold a query.

A slow process whose file was erased writes its record again, to another folder.
"""
MAX_WAITING = 100_000
"""Maximum number of waiting invocations."""
COUNTED_EVERY = 500
"""Number of invocations that a process writes before it counts the waiting ones again."""
MAX_FILE_BYTES = 4_000_000
"""Maximum size of a spooled file; an invocation is smaller."""

_NOT_AN_INVOCATION = (
    ValueError,
    TypeError,
    KeyError,
    AttributeError,
    OverflowError,
    RecursionError,
)


class Spool:
    """Keeps invocations on disk until a database has stored them.

    No lock is needed: a rename makes each file appear complete, and the file is deleted after its
    row was committed. If two processes deliver the same file, they store the same id. If a
    process is killed, its file waits for the next delivery; an unfinished file stays hidden.

    Args:
        folders: records are written to the first writable folder and delivered from all folders.
    """

    def __init__(self, folders: Sequence[Path]) -> None:
        self.folders = folders
        self._uncounted = COUNTED_EVERY

    def keep(self, invocation: Invocation) -> Path:
        """Write an invocation durably, and return the folder it was written to.

        Raises:
            OSError: no folder can be written, or `MAX_WAITING` invocations are waiting.
        """
        self._check_limit()
        name = f"{time.time_ns():020d}-{uuid.uuid4().hex}.json"
        failure = OSError("there is no spool folder")
        for folder in self.folders:
            try:
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                write_durably(folder / name, to_json(invocation) + "\n", mode=0o600)
            except OSError as error:
                failure = error
            else:
                return folder
        raise failure

    def _check_limit(self) -> None:
        self._uncounted += 1
        if self._uncounted >= COUNTED_EVERY:
            self._uncounted = 0
            if sum(1 for folder in self.folders for _ in _files(folder)) >= MAX_WAITING:
                self._uncounted = COUNTED_EVERY
                limit = f"{MAX_WAITING} records are waiting, which is the limit of the spool"
                raise OSError(errno.ENOSPC, limit)

    def waiting(self) -> list[Path]:
        """Return the waiting files, oldest first."""
        return sorted(
            (path for folder in self.folders for path in _files(folder)), key=lambda path: path.name
        )

    def damaged(self) -> list[Path]:
        """Return the damaged files that were set aside; they may still contain parts of a query."""
        return sorted(path for folder in self.folders for path in _files(folder, ".damaged"))

    def is_empty(self) -> bool:
        """Return whether no invocation is waiting."""
        return not any(any(_files(folder)) for folder in self.folders)

    def deliver(self, store: Callable[[list[Invocation]], None]) -> None:
        """Pass all waiting invocations to `store`, in batches, and delete the stored ones.

        If a file cannot be read or `store` refuses it, it is set aside with the reason, and
        delivery continues. Unfinished files of killed processes are deleted.

        Raises:
            OSError: a file can neither be delivered nor set aside; it is raised once all other
                records have been delivered. Errors of `store` other than RecordRefusedError are
                raised at once, and the remaining files are kept.
        """
        failures: list[OSError] = []
        waiting = self.waiting()
        for start in range(0, len(waiting), BATCH):
            files = waiting[start : start + BATCH]
            read = {
                path: invocation
                for path in files
                if (invocation := _read(path, failures)) is not None
            }
            for path in _taken(read, store, failures) if read else ():
                _forget(path, failures)
        self._forget_unfinished(UNFINISHED_SECONDS, failures)
        if failures:
            raise failures[0]

    def erase_unfinished(self) -> int:
        """Delete half-written files of killed processes; return how many half-written files remain.

        A process may still be writing the remaining files.

        Raises:
            OSError: a file cannot be deleted.
        """
        failures: list[OSError] = []
        self._forget_unfinished(ERASED_SECONDS, failures)
        if failures:
            raise failures[0]
        return sum(1 for folder in self.folders for _ in _unfinished(folder, 0))

    def _forget_unfinished(self, seconds: float, failures: list[OSError]) -> None:
        for folder in self.folders:
            for path in _unfinished(folder, seconds):
                _forget(path, failures)


def _taken(
    read: dict[Path, Invocation],
    store: Callable[[list[Invocation]], None],
    failures: list[OSError],
) -> Iterator[Path]:
    """Yield the files that `store` accepted.

    If it refuses a batch, each file is tried separately, and refused files are set aside.
    """
    try:
        store(list(read.values()))
    except RecordRefusedError as refusal:
        if len(read) == 1:
            _set_aside(next(iter(read)), str(refusal), failures)
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


def _unfinished(folder: Path, seconds: float) -> Iterator[Path]:
    """Yield the hidden files that are at least `seconds` old."""
    with suppress(OSError):
        for path in folder.glob(".*.json"):
            with suppress(FileNotFoundError):
                if time.time() - path.lstat().st_mtime >= seconds:
                    yield path


def _forget(path: Path, failures: list[OSError]) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        failures.append(error)


def _read(path: Path, failures: list[OSError]) -> Invocation | None:
    """Return the invocation in a file, or None if there is nothing to deliver.

    That is the case if another process has delivered the file, or if the file holds no invocation
    and was set aside.
    """
    try:
        invocation: Invocation = json.loads(read_bytes(path, MAX_FILE_BYTES))
        utc(datetime.fromisoformat(invocation["created_at"]))
        if invocation.keys() >= Invocation.__required_keys__:
            return invocation
        reason = "it lacks columns of an invocation"
    except FileNotFoundError:
        return None
    except OSError as error:
        reason = f"it cannot be read: {error.strerror or error}"
    except _NOT_AN_INVOCATION as error:
        reason = f"it holds no invocation ({type(error).__name__})"
    _set_aside(path, reason, failures)
    return None


def _set_aside(path: Path, reason: str, failures: list[OSError]) -> None:
    """Rename a file, so that it is not delivered again, and write the reason next to it."""
    aside = path.with_name(path.name + ".damaged")
    try:
        path.rename(aside)
    except FileNotFoundError:  # another process has set it aside or delivered it
        return
    except OSError as error:
        failures.append(error)
        return
    logger.error("%s was set aside as %s: %s", path, aside.name, reason)
    with suppress(OSError):  # the log also has the reason
        write_durably(aside.with_name(aside.name + ".reason"), reason + "\n", mode=0o600)
