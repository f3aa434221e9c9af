"""Group commit: one thread writes the items of all waiting threads, in one transaction."""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from langchain_lookup_knowledge.errors import RecordError, RecordRefusedError
from langchain_lookup_knowledge.records.database import busy

logger = logging.getLogger("langchain_lookup_knowledge")

LARGEST_GROUP = 100
"""Maximum number of items in a group."""

T = TypeVar("T")
Store = Callable[[Sequence[T], float], None]
"""Writes a group within a number of seconds.

It is passed with each call: a stored reference would create a cycle with the recorder.
"""


@dataclass(slots=True, eq=False)
class _Waiting(Generic[T]):
    """A waiting item; `wake` is set when the item is done or its thread may become the writer."""

    item: T
    wake: threading.Event = field(default_factory=threading.Event)
    done: bool = False
    error: RecordError | None = None

    def settle(self, error: RecordError | None) -> None:
        self.error, self.done = error, True
        self.wake.set()


class GroupCommit(Generic[T]):
    """Writes the items of many threads in groups; each thread learns the outcome of its own item.

    With one transaction per item, each thread would wait for all threads before it, and each
    transaction needs the GIL several times. An interrupted thread withdraws its item.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: list[_Waiting[T]] = []
        self._writer: _Waiting[T] | None = None

    def write(self, item: T, seconds: float, store: Store[T]) -> None:
        """Write an item within `seconds`; return once this thread or another has written it.

        The time limit of a group is the remaining time of the thread that writes it.

        Raises:
            RecordError: the item was not written in time; a write in progress may still succeed.
        """
        deadline = time.monotonic() + seconds
        mine = _Waiting(item)
        try:
            with self._lock:
                self._waiting.append(mine)
            while not mine.done:
                if group := self._take_group(mine):
                    _write(group, deadline, store)
                elif mine.wake.wait(_left(deadline)):
                    mine.wake.clear()
                elif not mine.done:
                    raise busy()
        finally:
            self._leave(mine)
        if mine.error is not None:
            raise RecordError(str(mine.error)) from mine.error

    def _take_group(self, mine: _Waiting[T]) -> list[_Waiting[T]]:
        """Return the items that this thread has to write; empty while another thread writes."""
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
                self._waiting[0].wake.set()


def _left(deadline: float) -> float:
    return max(deadline - time.monotonic(), 0.01)


def _write(group: Sequence[_Waiting[T]], deadline: float, store: Store[T]) -> None:
    """Write a group; if the database refuses an item, write each item separately."""
    error: RecordError | None = RecordError("the writing of the record was interrupted")
    try:
        store([waiting.item for waiting in group], _left(deadline))
        error = None
    except Exception as failure:  # passed on to the waiting threads
        logger.debug("a group of records was not written", exc_info=True)
        unknown = RecordRefusedError(f"the record cannot be written ({type(failure).__name__})")
        error = failure if isinstance(failure, RecordError) else unknown
        if isinstance(error, RecordRefusedError) and len(group) > 1:
            for waiting in group:
                _write([waiting], deadline, store)
    finally:
        for waiting in group:
            if not waiting.done:
                waiting.settle(error)
