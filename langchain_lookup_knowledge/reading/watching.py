"""Watching a folder: calling a function after each change, and retrying it while it fails."""

import logging
import math
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from langchain_lookup_knowledge.errors import LookupKnowledgeError
from langchain_lookup_knowledge.reading.selection import TOOL_FOLDERS

logger = logging.getLogger("langchain_lookup_knowledge")

WATCH_MILLISECONDS = 1000
"""Milliseconds between checks whether the watched folder was replaced."""
MAX_WATCH_PAUSE = 60.0
"""Maximum seconds before a failed call is repeated; the pause begins at 1 and doubles."""

T = TypeVar("T")


def follow(
    folder: Path, call: Callable[[], T], stop: threading.Event | None = None
) -> Iterator[tuple[bool, T]]:
    """Call `call` at once and after each change in the folder, until `stop` is set.

    Yields whether files changed, and the result of the call. If the call raises an error of this
    package, the error is logged and the call is repeated later, even if nothing changes.
    """
    due, pause, logged = 0.0, 1.0, None
    for changed in changes(folder, stop):
        if not changed and time.monotonic() < due:
            continue
        try:
            result = call()
        except LookupKnowledgeError as error:
            due, pause = time.monotonic() + pause, min(2 * pause, MAX_WATCH_PAUSE)
            if logged != str(error):
                logger.warning("the index of %s is not up to date: %s", folder.name, error)
            logged = str(error)
            continue
        due, pause, logged = math.inf, 1.0, None
        yield changed, result


def changes(folder: Path, stop: threading.Event | None = None) -> Iterator[bool]:
    """Yield True after files have changed, and False regularly while they have not.

    Watching restarts if the folder is replaced, or if the watcher fails, as it does at a name that
    is not UTF-8. Changes made in between are reported.
    """
    from watchfiles import watch  # noqa: PLC0415

    def is_knowledge(_: object, path: str) -> bool:
        inside = Path(path).relative_to(folder).parts
        if inside[-1:] == (".gitignore",):
            inside = inside[:-1]
        return not any(part.startswith(".") or part in TOOL_FOLDERS for part in inside)

    missed = False
    while stop is None or not stop.is_set():
        identity = _identity(folder)
        watched = watch(
            folder,
            watch_filter=is_knowledge,
            stop_event=stop,
            rust_timeout=WATCH_MILLISECONDS,
            yield_on_timeout=True,
        )
        try:
            for found in watched:
                if _identity(folder) != identity:
                    break
                yield bool(found) or missed
                missed = False
            else:
                return
        except (OSError, RuntimeError):
            logger.debug("the folder is watched again", exc_info=True)
            time.sleep(WATCH_MILLISECONDS / 1000)
            yield not missed
        missed = True


def _identity(folder: Path) -> tuple[int, int] | None:
    """Return the device and inode of a folder; a folder that replaces it has others. None if there
    is no folder.
    """
    with suppress(OSError):
        status = folder.stat()
        return status.st_dev, status.st_ino
    return None
