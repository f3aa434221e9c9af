"""Time limits for calls that cannot be cancelled: they run in kept threads, and a caller waits no longer than agreed."""

import asyncio
import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, wait
from contextvars import ContextVar, copy_context
from functools import partial
from math import inf
from typing import Any, TypeVar

from langchain_lookup_knowledge.errors import StoreError, StoreTimeout

MAX_WORKERS = 32
"""Calls of L1 under way at once in a knowledge base, those that hang included; more wait for their turn, within their limit."""
IDLE_SECONDS = 60.0
"""After how long a thread without a call ends."""

T = TypeVar("T")

_all_workers: "weakref.WeakSet[Workers]" = weakref.WeakSet()
_end: ContextVar[float] = ContextVar("lookup_knowledge_end", default=inf)


def remaining() -> float:
    """Return the seconds left to the call that this code runs in; infinity where there is no limit."""
    return _end.get() - time.monotonic()


class Workers:
    """Daemon threads of one knowledge base for calls that may hang, so that no other waits for them.

    A thread is kept for the next call, since a new one costs L1 5 ms in cold caches, and ends when none has come for a while.
    """

    def __init__(self) -> None:
        self.reset()
        _all_workers.add(self)

    def call(self, call: Callable[[], T], seconds: float) -> T:
        """Return what `call` returns, run in another thread.

        Raises:
            StoreTimeout: it was not done in time; if it has begun it goes on, and its answer is dropped.
        """
        future = self.submit(call, seconds)
        wait([future], seconds)
        return _outcome(future, seconds)

    async def acall(self, call: Callable[[], T], seconds: float) -> T:
        """Do what `call` does, without holding a thread or the event loop while waiting."""
        future = self.submit(call, seconds)
        try:
            return await asyncio.wait_for(asyncio.wrap_future(future), seconds)
        except TimeoutError:  # ours, or the call's own
            return _outcome(future, seconds)

    def reset(self) -> None:
        """Start anew: threads, and who holds a lock, do not follow into a forked child."""
        self._changed = threading.Condition()
        self._calls: deque[tuple[Future[Any], Callable[[], Any]]] = deque()
        self._idle = 0
        self._started = 0
        self._dismissed = 0

    def dismiss(self) -> None:
        """Let the threads that wait for a call end; the next call starts another."""
        with self._changed:
            self._dismissed = self._idle
            self._changed.notify_all()

    def submit(self, call: Callable[[], T], seconds: float) -> Future[T]:
        """Run a call in a thread, in the caller's context, as soon as there is one; `remaining` tells it its time limit."""
        future: Future[T] = Future()
        context = copy_context()
        context.run(_end.set, time.monotonic() + seconds)
        with self._changed:
            self._calls.append((future, partial(context.run, call)))
            if self._idle < len(self._calls) and self._started < MAX_WORKERS:
                threading.Thread(target=self._work, name="lookup-knowledge-l1", daemon=True).start()
                self._started += 1
            self._changed.notify()
        return future

    def _work(self) -> None:
        while waiting := self._next():
            future, call = waiting
            if future.set_running_or_notify_cancel():
                _run(future, call)
            del waiting, future, call

    def _next(self) -> tuple[Future[Any], Callable[[], Any]] | None:
        with self._changed:
            self._idle += 1
            self._changed.wait_for(lambda: self._calls or self._dismissed, IDLE_SECONDS)
            self._idle -= 1
            if self._calls:
                return self._calls.popleft()
            self._dismissed = max(0, self._dismissed - 1)
            self._started -= 1
            return None


def _outcome(future: Future[T], seconds: float) -> T:
    if future.cancel():
        raise StoreTimeout(f"L1 did not get its turn within {seconds:g} s: {MAX_WORKERS} earlier calls are under way")
    if not future.done():
        raise StoreTimeout(f"L1 did not answer within {seconds:g} s")
    return future.result()


def _run(future: Future[Any], call: Callable[[], Any]) -> None:
    try:
        future.set_result(call())
    except (Exception, KeyboardInterrupt, asyncio.CancelledError) as error:  # noqa: BLE001  (raised in the caller's thread)
        future.set_exception(error)
    except BaseException as error:  # noqa: BLE001  (SystemExit of a model's, say, is not the caller's)
        future.set_exception(StoreError(f"unexpected {type(error).__name__}"))


def _after_fork_in_child() -> None:
    for workers in list(_all_workers):
        workers.reset()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
