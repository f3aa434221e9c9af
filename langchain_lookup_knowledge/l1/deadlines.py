"""Time limits for calls that cannot be cancelled: they run in pooled threads, and a caller waits no
longer than the limit.
"""

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from contextvars import ContextVar, copy_context
from functools import partial
from math import inf
from typing import Any, TypeVar

from langchain_lookup_knowledge import forks
from langchain_lookup_knowledge.errors import StoreError, StoreTimeoutError, unexpected

logger = logging.getLogger("langchain_lookup_knowledge")

MAX_WORKERS = 32
"""Maximum concurrent L1 calls per knowledge base, including hanging ones. Further calls wait for a
free thread within their time limit.
"""
IDLE_SECONDS = 60.0
"""Seconds without a call after which a thread ends."""

T = TypeVar("T")

_end: ContextVar[float] = ContextVar("lookup_knowledge_end", default=inf)


def remaining() -> float:
    """Return the seconds left for the current call; infinity without a time limit."""
    return _end.get() - time.monotonic()


class ThreadPool:
    """Daemon threads of one knowledge base: calls that hang do not block other calls.

    Threads are reused, because a new thread costs L1 5 ms in cold caches. A thread ends after
    `IDLE_SECONDS` without a call.
    """

    def __init__(self) -> None:
        self.after_fork()
        forks.register(self)

    def run(self, call: Callable[[], T], seconds: float) -> T:
        """Run `call` in another thread and return its result.

        Raises:
            StoreTimeoutError: the call did not finish in time; a call that has started continues,
                but its result is dropped.
        """
        future = self.submit(call, seconds)
        with suppress(TimeoutError):  # of the wait, or from the call
            return future.result(seconds)
        return _outcome(future, seconds)

    async def arun(self, call: Callable[[], T], seconds: float) -> T:
        """Do the same as `run`, without blocking a thread or the event loop while waiting."""
        future = self.submit(call, seconds)
        try:
            return await asyncio.wait_for(asyncio.wrap_future(future), seconds)
        except TimeoutError:  # from `wait_for`, or from the call
            return _outcome(future, seconds)

    def after_fork(self) -> None:
        """Start over: threads and lock owners do not survive a fork."""
        self._changed = threading.Condition()
        self._calls: deque[tuple[Future[Any], Callable[[], Any]]] = deque()
        self._idle = 0
        self._started = 0
        self._ending = 0

    def shutdown(self) -> None:
        """End the idle threads; the next call starts a new one."""
        with self._changed:
            self._ending = self._idle
            self._changed.notify_all()

    def submit(self, call: Callable[[], T], seconds: float) -> Future[T]:
        """Run a call in the caller's context as soon as a thread is free.

        Inside the call, `remaining` returns the time left.
        """
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
            self._changed.wait_for(lambda: self._calls or self._ending, IDLE_SECONDS)
            self._idle -= 1
            if self._calls:
                return self._calls.popleft()
            self._ending = max(0, self._ending - 1)
            self._started -= 1
            return None


def _outcome(future: Future[T], seconds: float) -> T:
    if future.cancel():
        raise StoreTimeoutError(
            f"L1 could not start within {seconds:g} s: "
            f"{MAX_WORKERS} earlier calls are still running"
        )
    if not future.done():
        raise StoreTimeoutError(f"L1 did not answer within {seconds:g} s")
    return future.result()


def _run(future: Future[Any], call: Callable[[], Any]) -> None:
    try:
        future.set_result(call())
    # the caller's thread raises and logs it
    except (Exception, KeyboardInterrupt, asyncio.CancelledError) as error:  # noqa: BLE001
        future.set_exception(error)
    except BaseException as error:
        logger.debug("a call of L1 ended its thread", exc_info=True)
        future.set_exception(StoreError(unexpected(error)))
