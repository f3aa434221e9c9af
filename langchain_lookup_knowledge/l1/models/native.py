"""Calls into native code (onnxruntime, Qdrant Edge): the process does not end while one is running.

If a thread returns from C++ or Rust after the interpreter has ended, Python kills the thread. This
aborts the process ("terminate called without an active exception").
"""

import atexit
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from langchain_lookup_knowledge import forks
from langchain_lookup_knowledge.errors import StoreError

EXIT_SECONDS = 10.0
"""Maximum seconds that the end of the process waits for native calls in other threads."""


class NativeCalls:
    """Counts the threads that run native code. Once the process is ending, no thread may enter."""

    def __init__(self) -> None:
        self._ending = False
        self.after_fork()
        forks.register(self)

    def after_fork(self) -> None:
        """Start over in a forked child: the threads that were counted exist only in the parent."""
        self._changed = threading.Condition()
        self._running = 0

    @contextmanager
    def running(self) -> Iterator[None]:
        """Count the calling thread while it runs native code.

        Raises:
            StoreError: the process is ending.
        """
        with self._changed:
            self.check()
            self._running += 1
        try:
            yield
        finally:
            with self._changed:
                self._running = max(0, self._running - 1)  # a fork during a call resets the count
                self._changed.notify_all()

    def check(self) -> None:
        """Raise StoreError if the process is ending; long calls check this between their parts."""
        if self._ending:
            raise StoreError("the process is ending: L1 is not called any more")

    def end(self, seconds: float) -> bool:
        """Block further calls, and wait at most `seconds` for running calls; return whether all are
        done.
        """
        with self._changed:
            self._ending = True
            return self._changed.wait_for(lambda: not self._running, seconds)


native_calls = NativeCalls()
atexit.register(native_calls.end, EXIT_SECONDS)
