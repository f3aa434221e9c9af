"""A folder, an index and records of an older version: nobody has to do anything, and lookups say
what is going on.
"""

import tarfile
import threading
from pathlib import Path

import pytest
from conftest import TESTS, WordEmbeddings
from old_version.make import FILES, QUERIES
from parts.command_line import run
from qdrant_client import QdrantClient

from langchain_lookup_knowledge import (
    KnowledgeBase,
    QdrantIndex,
    SQLInvocationRecorder,
    create_lookup_knowledge_graph,
)
from langchain_lookup_knowledge.l1.models.embeddings import FastEmbedModel
from langchain_lookup_knowledge.l1.stores import fingerprints
from langchain_lookup_knowledge.l1.stores.vector_index import PAYLOAD_VERSION
from langchain_lookup_knowledge.records.rows import readable_details

VISITORS = "where do visitors get the password"
BUILT = "the index was built by an older version"


class GatedModel(FastEmbedModel):
    """The default model, which embeds passages only once a gate is open, or fails to."""

    def __init__(self) -> None:
        super().__init__()
        self.reached, self.gate = threading.Event(), threading.Event()
        self.failure: Exception | None = None

    def embed_documents(self, texts):
        self.reached.set()
        assert self.gate.wait(60)
        if self.failure:
            raise self.failure
        return super().embed_documents(texts)


@pytest.fixture
def old(tmp_path: Path) -> Path:
    with tarfile.open(TESTS / "old_version" / "kb.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    return tmp_path / "kb"


def ask(kb, query, **arguments):
    return create_lookup_knowledge_graph(kb, record=None, **arguments).invoke({"query": query})


def pointer(folder):
    return (folder / ".lookup-knowledge" / "index" / "CURRENT").read_text("utf-8")


def test_open_rebuilds_an_index_of_an_older_version_and_says_so_once(old, caplog):
    for _ in range(2):
        with KnowledgeBase.open(old) as kb:
            assert kb.index.fingerprint()["payload"] == PAYLOAD_VERSION
            assert kb.health()["index"] == "current"
            result = ask(kb, "who uses 8443")
            assert result["l1"] == {**result["l1"], "status": "ok", "reason": None}
            assert result["primary"]["entry_id"] == "it/vpn.md"
            assert result["primary"]["lines"] == [8, 15]
            assert [p for p in [*kb.problems, *kb.suggestions()] if p.path == "."] == []
    warnings = [r.message for r in caplog.records if r.levelname == "WARNING"]
    assert warnings == [f"{BUILT}: it is being rebuilt"]


def test_the_old_index_answers_by_meaning_while_the_new_one_is_built(old, caplog):
    model, before = GatedModel(), pointer(old)
    with KnowledgeBase.open(old, embedding=model, background=True) as kb:
        assert model.reached.wait(60)
        result = ask(kb, VISITORS)
        assert (result["status"], result["retrieval_layer"]) == ("ok", "L1")
        assert result["primary"]["entry_id"] == "it/wifi.md"
        assert "Visitors ask the front desk" in result["matches"][0]["snippet"]
        assert result["primary"]["lines"] is None
        assert result["l1"]["reason"] == (
            f"{BUILT} and is being rebuilt: passages are found by meaning "
            "alone until then, 0 % done"
        )
        assert kb.health()["index"] == "building"
        assert pointer(old) == before
        model.gate.set()
        kb.sync()
        assert ask(kb, VISITORS)["l1"]["reason"] is None
        assert ask(kb, "8443")["primary"]["lines"] == [8, 15]
        assert kb.health()["index"] == "current"
        assert pointer(old) != before
    assert [r.message for r in caplog.records].count(f"{BUILT}: it is being rebuilt") == 1


@pytest.mark.slow
def test_a_rebuild_that_fails_leaves_the_old_index_answering(old):
    model, before = GatedModel(), pointer(old)
    model.gate.set()
    model.failure = RuntimeError("down")
    with KnowledgeBase.open(old, embedding=model) as kb:
        for _ in range(2):
            result = ask(kb, VISITORS)
            assert result["primary"]["entry_id"] == "it/wifi.md"
            assert result["l1"]["reason"] == (
                f"{BUILT}: passages are found by meaning alone; "
                "the embedding model failed with RuntimeError"
            )
        assert kb.health()["index"] == "behind"
        assert pointer(old) == before
        model.failure = None
        kb.sync()
        assert ask(kb, VISITORS)["l1"]["reason"] is None


@pytest.mark.slow
def test_an_old_index_that_is_not_written_names_the_command(old, caplog):
    before = pointer(old)
    with KnowledgeBase.open(old, sync=False) as kb:
        for _ in range(2):
            result = ask(kb, VISITORS)
            assert result["primary"]["entry_id"] == "it/wifi.md"
            assert f"{BUILT}: passages are found by meaning alone" in result["l1"]["reason"]
            assert "run `lookup-knowledge index`" in result["l1"]["reason"]
        assert kb.health()["index"] == "behind"
        assert kb.health()["message"] == result["l1"]["reason"]
        (problem,) = (p for p in kb.suggestions() if p.path == ".")
        assert problem.message.startswith(f"{BUILT}: run `lookup-knowledge index`")
        assert [r.message for r in caplog.records].count(result["l1"]["reason"]) == 1
        assert pointer(old) == before
        assert run("index", old).returncode == 0
        assert ask(kb, "8443")["primary"]["lines"] == [8, 15]
        assert ask(kb, VISITORS)["l1"]["reason"] is None


@pytest.mark.slow
def test_words_in_a_script_the_model_does_not_know_are_not_found_in_an_old_index(old):
    with KnowledgeBase.open(old, sync=False) as kb:
        ask(kb, VISITORS)
        report = ask(kb, "密码在哪里")["l1"]
        assert report["status"] == "empty"
        assert "the embedding model does not know another language" in report["reason"]
        assert BUILT in report["reason"]


def test_an_old_index_of_another_model_is_refused(old):
    with KnowledgeBase.open(old, embedding=WordEmbeddings()) as kb:
        result = ask(kb, "refund")
        assert result["l1"]["status"] == "failed"
        assert "open it with the embedding model it was built with" in result["l1"]["reason"]
        assert kb.index.fingerprint()["payload"] == 5


def test_the_index_of_a_newer_version_is_not_replaced(old, monkeypatch):
    monkeypatch.setattr(fingerprints, "PAYLOAD_VERSION", 4)
    before = pointer(old)
    with KnowledgeBase.open(old) as kb:
        assert "payload 5, now 4" in ask(kb, "refund")["l1"]["reason"]
    assert pointer(old) == before


def test_an_old_index_is_not_emptied_by_a_folder_that_lost_its_files(old, caplog):
    for name in FILES:
        (old / name).unlink()
    before = pointer(old)
    KnowledgeBase.open(old).close()
    assert "no entries any more" in caplog.text
    assert pointer(old) == before


def test_records_of_an_older_version_are_read_as_they_are(old):
    path = old / ".lookup-knowledge" / "invocations.db"
    recorder = SQLInvocationRecorder.in_file(path)
    rows = recorder.invocations(limit=10)
    recorder.close()
    assert sorted(row["query"] for row in rows) == sorted(QUERIES)
    for row in rows:
        assert (row["status"], row["l1_status"]) == ("ok", "ok")
        details = readable_details(row["retrieval_details"])
        assert details["unreadable"] == []
        assert details["candidates"]
        for entry in details["l0_hints"]["entries"]:
            assert entry["categories"] == ["Billing"]
    listed = run("invocations", old)
    assert listed.returncode == 0
    for query in QUERIES:
        assert query in listed.stdout


@pytest.mark.slow
def test_new_lookups_are_recorded_beside_those_of_an_older_version(old):
    with KnowledgeBase.open(old) as kb:
        result = create_lookup_knowledge_graph(kb).invoke({"query": "who uses 8443"})
        assert result["recorded"] == "stored"
    assert "who uses 8443" in run("invocations", old).stdout


def test_a_collection_on_a_server_answers_until_sync_rebuilds_it(tmp_path, folder, monkeypatch):
    client, embedding = QdrantClient(":memory:"), WordEmbeddings()

    def opened():
        index = QdrantIndex(":memory:", "kb", client=client)
        return KnowledgeBase.open(folder, index=index, embedding=embedding)

    with monkeypatch.context() as older, opened() as kb:
        older.setattr(fingerprints, "PAYLOAD_VERSION", 5)
        kb.sync()
    with opened() as kb, opened() as other:
        for asked in (kb, other):
            result = ask(asked, "five days")
            assert result["primary"]["entry_id"] == "billing/refunds.md"
            assert "run `lookup-knowledge index`" in result["l1"]["reason"]
            assert asked.health()["index"] == "remote"
            assert asked.health()["message"] == result["l1"]["reason"]
        assert kb.sync().renewed == 3
        assert kb.index.fingerprint()["payload"] == PAYLOAD_VERSION
        for asked in (kb, other):
            result = ask(asked, "five days")
            assert result["l1"]["reason"] is None
            assert result["primary"]["lines"] == [7, 7]
            assert asked.health()["message"] is None


@pytest.mark.slow
def test_a_filter_that_is_relaxed_keeps_the_caveat(old):
    with KnowledgeBase.open(old, sync=False) as kb:
        result = ask(kb, "money back: where do visitors get the password of the day at the desk")
        assert result["filter"]["relaxed"]
        assert BUILT in result["l1"]["reason"]
