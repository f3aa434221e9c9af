"""A model that runs in this process: loaded at first use, once per process."""

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from langchain_lookup_knowledge import forks
from langchain_lookup_knowledge.errors import EmbeddingError
from langchain_lookup_knowledge.l1.models.native import native_calls

T = TypeVar("T")


class LocalModel(Generic[T]):
    """Loads a model once per process.

    A forked child loads its own model, because the threads of its parent's model exist only in the
    parent.

    Args:
        load: loads the model; True allows it to download files.
        name: the name of the model in messages.
        fix: how to get a model that is not on this machine, for messages.
    """

    def __init__(self, load: Callable[[bool], T], *, name: str, fix: str) -> None:
        self._load = load
        self._name = name
        self._fix = fix
        self._model: T | None = None
        self._lock = threading.Lock()
        forks.register(self)

    def after_fork(self) -> None:
        """Keep the parent's model without using it: freeing it would wait for threads that the
        child does not have.
        """
        forks.keep_inherited(self._model)
        self._model, self._lock = None, threading.Lock()

    def get(self, *, download: bool = False) -> T:
        """Return the model; one that is not on this machine is fetched only with `download`.

        Raises:
            EmbeddingError: the model cannot be loaded.
            StoreError: the process is ending.
        """
        with self._lock, native_calls.running():
            if self._model is None:
                try:
                    self._model = self._load(download)
                except EmbeddingError:
                    raise
                except Exception as error:
                    fix = "check the network" if download else self._fix
                    what = f"cannot load {self._name} ({type(error).__name__})"
                    raise EmbeddingError(f"{what}: {fix}, or reinstall") from error
            return self._model
