"""Group commit: of the threads that want something written at the same time, one writes it all, in one transaction."""

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from langchain_lookup_knowledge.database import busy
from langchain_lookup_knowledge.errors import RecordError

LARGEST_GROUP = 100
"""Most items written together."""

T = TypeVar("T")


@dataclass(slots=True, eq=False)
class _Waiting(Generic[T]):
    """An item that waits. `news` is set when it is done, or when its thread should see whether it can write."""

    item: T
    news: threading.Event = field(default_factory=threading.Event)
    done: bool = False
    error: RecordError | None = None


class GroupCommit(Generic[T]):
    """Has items of many threads written a group at a time; each thread learns what became of its own.

    With a transaction for each item, every thread would wait for all before it, each of which has to get hold of the
    interpreter several times on its way through the database.
    """

    def __init__(self) -> None:
        self._waiting: deque[_Waiting[T]] = deque()
        self._writing = threading.Lock()

    def write(self, item: T, seconds: float, store: Callable[[Sequence[T], float], None]) -> None:
        """Return when `store`, this call's or another's, has written the item; `store` takes a group and the seconds it has.

        Raises:
            RecordError: it was not written within this time; if it was under way, it may still be.
        """
        deadline = time.monotonic() + seconds
        mine = _Waiting(item)
        self._waiting.append(mine)
        while not mine.done:
            left = max(deadline - time.monotonic(), 0.01)
            if self._writing.acquire(blocking=False):
                try:
                    self._write_group(left, store)
                finally:
                    self._writing.release()
                    self._wake_next()
            elif mine.news.wait(left):
                mine.news.clear()
            else:
                with suppress(ValueError):  # it is under way
                    self._waiting.remove(mine)
                raise busy(seconds)
        if mine.error is not None:
            raise RecordError(str(mine.error)) from mine.error

    def _write_group(self, seconds: float, store: Callable[[Sequence[T], float], None]) -> None:
        group: list[_Waiting[T]] = []
        with suppress(IndexError):  # no more wait
            while len(group) < LARGEST_GROUP:
                group.append(self._waiting.popleft())
        error: RecordError | None = RecordError("the writing of the record was interrupted")
        try:
            store([waiting.item for waiting in group], seconds)
            error = None
        except RecordError as failure:
            error = failure
        finally:
            for waiting in group:
                waiting.error = error
                waiting.done = True
                waiting.news.set()

    def _wake_next(self) -> None:
        with suppress(IndexError):  # another thread has just taken all that waited
            self._waiting[0].news.set()
