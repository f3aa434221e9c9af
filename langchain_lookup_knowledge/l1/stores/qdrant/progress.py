"""The note of a build in its collection: how far it is, and which process is building."""

import hashlib
import socket
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, Self

from langchain_lookup_knowledge import forks
from langchain_lookup_knowledge.errors import StoreError
from langchain_lookup_knowledge.l1.stores.qdrant.points import PARTS_KEY, PROGRESS_KEY

NOTE_SECONDS = 10.0
"""How often a build notes in its collection how far it is."""


class Filled(NamedTuple):
    """How many points were written, and whether a note about that was sent."""

    written: int
    noted: bool


class Notes:
    """Sends a note every `NOTE_SECONDS`, from a thread, with the number of points written."""

    def __init__(self, send: Callable[[Mapping[str, Any]], None]) -> None:
        self.written = 0
        self.sent = False
        self._send = send
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="lookup-knowledge-note", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ended.wait(NOTE_SECONDS):
            self.sent = True
            with suppress(StoreError):  # the next write tells what is wrong, or the next note
                self._send(new_note(self.written))


def progress_of(info: Any) -> str | None:
    """Return how far a build is, given the description of its collection; None if it is done."""
    note = note_of(info)
    return None if note.get("complete") else in_words(note)


def parts_of_build(info: Any) -> int | None:
    """Return the number of parts in which several machines build a collection, given its
    description; None if a single machine builds it.
    """
    found = (info.config.metadata or {}).get(PARTS_KEY) if info else None
    return found if isinstance(found, int) else None


def note_of(info: Any) -> Mapping[str, Any]:
    """Return the note in the description of a collection; empty if there is none."""
    found = (info.config.metadata or {}).get(PROGRESS_KEY) if info else None
    return found if isinstance(found, Mapping) else {}


def in_words(note: Mapping[str, Any]) -> str | None:
    """Return how far a build is, by its note; None if there is none."""
    return f"{note.get('written', 0):,} passages so far" if note else None


def new_note(written: int) -> dict[str, Any]:
    """Return this process's note about a build, with the number of points written so far."""
    return {
        "written": written,
        "at": int(time.time()),
        "host": host(),
        "pid": forks.process_id(),
    }


def host() -> str:
    """Return an id of the system in which process ids are valid, made from the host, its boot and
    the container; empty if these are not known.
    """
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text()
        where = f"{socket.gethostname()} {boot} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return ""
    return hashlib.sha256(where.encode()).hexdigest()[:16]
