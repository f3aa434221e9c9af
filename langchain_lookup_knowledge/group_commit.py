"""Group commit: of the threads that want something written at the same time, one writes it all, in one transaction."""

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from langchain_lookup_knowledge.database import busy
from langchain_lookup_knowledge.errors import RecordError, RecordRefused

LARGEST_GROUP = 100
"""Most items written together."""

T = TypeVar("T")
Store = Callable[[Sequence[T], float], None]
"""Writes a group within some seconds. It comes with each call: kept here, it would hold its recorder in a cycle."""


@dataclass(slots=True, eq=False)
class _Waiting(Generic[T]):
    """An item that waits. `news` is set when it is done, or when its thread should see whether it can write."""

    item: T
    news: threading.Event = field(default_factory=threading.Event)
    done: bool = False
    error: RecordError | None = None

    def settle(self, error: RecordError | None) -> None:
        self.error, self.done = error, True
        self.news.set()


class GroupCommit(Generic[T]):
    """Has items of many threads written a group at a time; each thread learns what became of its own.

    With a transaction for each item, every thread would wait for all before it, each of which has to get hold of the
    interpreter several times on its way through the database. A thread that is interrupted takes its item back.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: list[_Waiting[T]] = []
        self._writer: _Waiting[T] | None = None

    def write(self, item: T, seconds: float, store: Store[T]) -> None:
        """Return when `store`, of this call or another's, has written the item; a group has the time its writer has left.

        Raises:
            RecordError: it was not written within this time; if it was under way, it may still be.
        """
        deadline = time.monotonic() + seconds
        mine = _Waiting(item)
        try:
            with self._lock:
                self._waiting.append(mine)
            while not mine.done:
                if group := self._take_group(mine):
                    _write(group, deadline, store)
                elif mine.news.wait(_left(deadline)):
                    mine.news.clear()
                elif not mine.done:
                    raise busy()
        finally:
            self._leave(mine)
        if mine.error is not None:
            raise RecordError(str(mine.error)) from mine.error

    def _take_group(self, mine: _Waiting[T]) -> list[_Waiting[T]]:
        """Return what waits, for this thread to write it; nothing while another one writes."""
        with self._lock:
            if mine.done or self._writer not in (None, mine):
                return []
            self._writer = mine
            group, self._waiting = self._waiting[:LARGEST_GROUP], self._waiting[LARGEST_GROUP:]
            return group

    def _leave(self, mine: _Waiting[T]) -> None:
        with self._lock:
            if mine in self._waiting:
                self._waiting.remove(mine)
            if self._writer is mine:
                self._writer = None
            if self._writer is None and self._waiting:
                self._waiting[0].news.set()


def _left(deadline: float) -> float:
    return max(deadline - time.monotonic(), 0.01)


def _write(group: Sequence[_Waiting[T]], deadline: float, store: Store[T]) -> None:
    """Write a group; item by item if the database refuses one of them, so that the others do not suffer for it."""
    error: RecordError | None = RecordError("the writing of the record was interrupted")
    try:
        store([waiting.item for waiting in group], _left(deadline))
        error = None
    except Exception as failure:  # noqa: BLE001  (each thread is told of its own)
        unknown = RecordRefused(f"the record cannot be written ({type(failure).__name__})")
        error = failure if isinstance(failure, RecordError) else unknown
        if isinstance(error, RecordRefused) and len(group) > 1:
            for waiting in group:
                _write([waiting], deadline, store)
    finally:
        for waiting in group:
            if not waiting.done:
                waiting.settle(error)
