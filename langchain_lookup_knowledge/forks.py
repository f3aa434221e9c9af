"""Cleanup in a forked child process: the locks, threads and connections of its parent do not work
there.

Each object that holds a lock, thread or connection registers itself; its `after_fork` is called in
each forked child before any other code runs there.
"""

import ctypes
import os
import sys
import weakref
from typing import Any, Protocol


class Forkable(Protocol):
    """An object that holds locks, threads or connections."""

    def after_fork(self) -> None:
        """Start over in a forked child: new locks, no threads, no connections."""


_registered: "weakref.WeakSet[Any]" = weakref.WeakSet()
_inherited: list[object] = []


def register(owner: Forkable) -> None:
    """Have `owner.after_fork()` called in each forked child, as long as `owner` lives."""
    _registered.add(owner)


def keep_inherited(thing: object) -> None:
    """Never free an object of the parent, such as a model or a connection pool, in the child.

    Freeing it would close connections that the parent still uses, or wait for threads that the
    child does not have. The interpreter would also free it at exit, so the object gets a reference
    that is never released.
    """
    if thing is None:
        return
    if sys.implementation.name == "cpython":
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))
    else:
        _inherited.append(thing)


def process_id() -> int:
    """Return the id of this process; a forked child has its own."""
    return os.getpid()


def is_running(pid: int) -> bool:
    """Return whether a process of this machine may be running."""
    if sys.platform == "win32":  # signal 0 would end the process there
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:  # it belongs to another user
        return True
    return True


def _after_fork_in_child() -> None:
    for owner in list(_registered):
        owner.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
