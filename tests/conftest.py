"""Shared parts: a small knowledge base, and an embedding in which texts that share words are
near.
"""

import math
import os
import re
import shutil
import signal
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from langchain_core.embeddings import Embeddings

from langchain_lookup_knowledge import KnowledgeBase, create_lookup_knowledge_graph
from langchain_lookup_knowledge.l1.models.choice import as_embeddings

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # So a shell starts what it runs in the background; processes of the tests would inherit it.
    signal.signal(signal.SIGINT, signal.default_int_handler)

TESTS = Path(__file__).parent
MEMORY = Path("/dev/shm")
if MEMORY.is_dir() and shutil.disk_usage(MEMORY).free > 4 << 30:
    # Each index and database is flushed to disk when it is made: in memory that takes no time.
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))

DEFAULT_MODEL = as_embeddings(None)
"""Kept, so that the tests of a process load it once, at its first use."""

REFUNDS = """---
title: Refunds
keywords: [refund, money back]
category: Billing
entities: [Stripe]
---
Refunds take five days.
"""
LEAVE = (
    "---\ntitle: Parental leave\nkeywords: [parental leave]\ncategory: HR\n---\n"
    "Parental leave is twelve weeks.\n"
)
VPN = (
    "---\ntitle: VPN\nkeywords: [vpn]\ncategory: IT\n---\nInstall the VPN client on your laptop.\n"
)
FILES = {"billing/refunds.md": REFUNDS, "hr/leave.md": LEAVE, "it/vpn.md": VPN}


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Let Hypothesis try 25 examples a test, and 100 with `--hypothesis-profile thorough`; how long
    one takes does not matter.
    """
    from hypothesis import HealthCheck, settings

    for name, examples in (("thorough", 100), ("quick", 25)):
        checks = [HealthCheck.too_slow]
        settings.register_profile(
            name, max_examples=examples, deadline=None, suppress_health_check=checks
        )
    if not config.getoption("--hypothesis-profile"):
        settings.load_profile("quick")


class WordEmbeddings(Embeddings):
    """A bag of words in 64 dimensions: texts are as near as the words they share. `failure` makes
    it raise.
    """

    model = "words-64"

    def __init__(self) -> None:
        self.failure: Exception | None = None
        self.embedded: list[str] = []

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        self.embedded += texts
        return [self.embed_query(text) for text in texts]

    def embed_query(self, text: str) -> list[float]:
        if self.failure:
            raise self.failure
        vector = [1e-3] * 64
        for word in re.findall(r"\w+", text.lower()):
            vector[zlib.crc32(word.encode()) % 64] += 1
        norm = math.sqrt(sum(value * value for value in vector))
        return [value / norm for value in vector]


def write_files(folder: Path, files: Mapping[str, str]) -> Path:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    return folder


@pytest.fixture(autouse=True)
def state_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Keep records that no other place takes out of the home of who runs the tests."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state" / "lookup-knowledge"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_files(tmp_path / "kb", FILES)


@pytest.fixture
def embedding() -> WordEmbeddings:
    return WordEmbeddings()


@pytest.fixture
def kb(folder: Path, embedding: WordEmbeddings) -> Iterator[KnowledgeBase]:
    with KnowledgeBase.open(folder, embedding=embedding) as opened:
        yield opened


@pytest.fixture
def ask(kb: KnowledgeBase) -> Callable[..., dict[str, Any]]:
    """Run one lookup through the compiled graph and return its result."""

    def run(query: str, **graph_arguments: Any) -> dict[str, Any]:
        return dict(create_lookup_knowledge_graph(kb, **graph_arguments).invoke({"query": query}))

    return run


@pytest.fixture
def indexed(folder: Path) -> Path:
    """Return the folder, indexed and closed: for processes that open it by themselves."""
    KnowledgeBase.open(folder, embedding=WordEmbeddings()).close()
    return folder


@pytest.fixture(params=["stand-in", *(["real"] if os.environ.get("QDRANT_URL") else [])])
def any_server(request: pytest.FixtureRequest) -> Iterator[Any]:
    """The stand-in for a Qdrant server, and also a real server if `QDRANT_URL` names one."""
    from parts.real_server import RealServer
    from qdrant_server import QdrantServer

    with RealServer() if request.param == "real" else QdrantServer() as running:
        yield running
