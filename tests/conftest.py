"""Shared parts: a small knowledge base, an embedding in which texts that share words are near, and the shared cases."""

import json
import math
import re
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from langchain_core.embeddings import Embeddings

from langchain_lookup_knowledge import KnowledgeBase, create_lookup_knowledge_graph

SHARED = Path(__file__).parents[2] / "shared"

REFUNDS = """---
title: Refunds
keywords: [refund, money back]
category: Billing
entities: [Stripe]
---
Refunds take five days.
"""
LEAVE = "---\ntitle: Parental leave\nkeywords: [parental leave]\ncategory: HR\n---\nParental leave is twelve weeks.\n"
VPN = "---\ntitle: VPN\nkeywords: [vpn]\ncategory: IT\n---\nInstall the VPN client on your laptop.\n"
FILES = {"billing/refunds.md": REFUNDS, "hr/leave.md": LEAVE, "it/vpn.md": VPN}


class WordEmbeddings(Embeddings):
    """A bag of words in 64 dimensions: texts are as near as the words they share. `failure` makes it raise."""

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


def shared_cases(theme: str) -> list[Any]:
    """Return the shared cases of a theme as pytest parameters; one skipped parameter where they are absent."""
    path = SHARED / "cases" / "dev.jsonl"
    if not path.exists():
        return [pytest.param(None, id="absent", marks=pytest.mark.skip(reason=f"{path.parent} is not here"))]
    cases = map(json.loads, path.read_text("utf-8").splitlines())
    return [pytest.param(case, id=case["id"]) for case in cases if case["theme"] == theme]
