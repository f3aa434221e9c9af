"""Bringing an index in step with entries, without a knowledge base."""

import pytest
from conftest import FILES, VPN, WordEmbeddings, write_files

from langchain_lookup_knowledge import FrontmatterFields, KnowledgeBase, QdrantIndex, StoreError
from langchain_lookup_knowledge.l1 import index_state
from langchain_lookup_knowledge.l1.indexing import Indexer
from langchain_lookup_knowledge.l1.stores.embedded_index import EmbeddedIndex
from langchain_lookup_knowledge.reading.documents import read_folder


def read(folder, files=FILES):
    entries, _ = read_folder(write_files(folder, files), FrontmatterFields())
    return {entry.entry_id: entry for entry in entries}


@pytest.fixture(params=["embedded", "server"])
def index(request, tmp_path):
    embedded = request.param == "embedded"
    made = EmbeddedIndex(tmp_path / "index") if embedded else QdrantIndex(":memory:", "kb")
    yield made
    made.close()


class Locked(EmbeddedIndex):
    """An index that another process is writing."""

    def lock(self):
        raise StoreError("another process is writing the index")


class OddEmbeddings(WordEmbeddings):
    """Gives no usable vector for texts with the word "unusable"."""

    def embed_documents(self, texts):
        vectors = super().embed_documents(texts)
        return [
            [float("nan")] * 64 if "unusable" in text else vector
            for text, vector in zip(texts, vectors, strict=True)
        ]


def test_only_what_differs_is_written(tmp_path, index, embedding):
    entries = read(tmp_path / "kb")
    indexer, shares = Indexer(index, embedding), []
    first = indexer.write(entries, on_progress=shares.append)
    assert (first.entries, first.embedded, first.renewed, first.removed) == (3, 3, 3, 0)
    assert (first.written, first.version, shares) == (True, index.version(), [0.0, 1.0])
    again = indexer.write(entries)
    assert (again.written, again.embedded, again.version) == (False, 0, index.version())
    changed = read(tmp_path / "kb", {"it/vpn.md": VPN.replace("laptop", "phone")})
    del changed["hr/leave.md"]
    third = indexer.write(changed)
    assert (third.entries, third.embedded, third.renewed, third.removed) == (2, 1, 1, 1)
    assert index.contents().digests.keys() == changed.keys()


def test_where_nothing_differs_no_lock_is_needed(tmp_path, embedding):
    entries = read(tmp_path / "kb")
    Indexer(EmbeddedIndex(tmp_path / "index"), embedding).write(entries)
    busy = Indexer(Locked(tmp_path / "index"), embedding)
    assert busy.write(entries).written is False
    with pytest.raises(StoreError, match="another process is writing"):
        busy.write(entries, rebuild=True)
    del entries["hr/leave.md"]
    with pytest.raises(StoreError, match="another process is writing"):
        busy.write(entries)


def test_what_another_process_wrote_before_the_lock_was_free_is_not_written_again(
    tmp_path, embedding
):
    entries, other = read(tmp_path / "kb"), WordEmbeddings()

    class Overtaken(EmbeddedIndex):
        def lock(self):
            Indexer(EmbeddedIndex(tmp_path / "index"), other).write(entries)
            return super().lock()

    report = Indexer(Overtaken(tmp_path / "index"), embedding).write(entries)
    assert (report.written, report.embedded) == (False, 0)
    assert (embedding.embedded, len(other.embedded)) == ([], 3)


def test_a_write_that_its_caller_stops_leaves_the_index_as_it_was(tmp_path, embedding):
    index = EmbeddedIndex(tmp_path / "index")

    def stop(share):
        raise StoreError("closed")

    with pytest.raises(StoreError, match="closed"):
        Indexer(index, embedding).write(read(tmp_path / "kb"), on_progress=stop)
    assert index.contents() is None


def test_the_index_knows_which_entries_have_a_passage_without_a_vector(tmp_path, index):
    odd = {"odd.md": "# Odd\n\nunusable zebras.\n", "other.md": "# Other\n\nunusable lions.\n"}
    entries = read(tmp_path / "kb", {**FILES, **odd})
    indexer = Indexer(index, OddEmbeddings())
    assert indexer.write(entries).unembedded == ("odd.md", "other.md")
    assert index.contents().unembedded == ("odd.md", "other.md")
    assert indexer.write(entries).unembedded == ("odd.md", "other.md")
    entries = read(tmp_path / "kb", {"odd.md": "# Odd\n\nUsable zebras.\n"})
    assert indexer.write(entries).unembedded == index.contents().unembedded == ("other.md",)
    del entries["other.md"]
    assert indexer.write(entries).unembedded == index.contents().unembedded == ()


@pytest.mark.parametrize("embedded", [True, False])
def test_problems_name_an_entry_without_a_vector_after_the_next_sync_and_open(tmp_path, embedded):
    folder = write_files(tmp_path / "kb", {**FILES, "odd.md": "# Odd\n\nunusable zebras.\n"})
    index = "from_settings" if embedded else QdrantIndex(":memory:", "kb")

    def named(found):
        return [p.path for p in found if "no usable vector for a passage" in p.message]

    with KnowledgeBase.open(folder, embedding=OddEmbeddings(), index=index) as kb:
        for _ in range(2):
            kb.sync()
            assert named(kb.problems) == ["odd.md"]
        with KnowledgeBase.open(folder, embedding=OddEmbeddings(), index=index) as again:
            assert named(again.problems) == (["odd.md"] if embedded else [])
            assert named([*again.problems, *again.suggestions()]) == ["odd.md"]
            again.sync()
            assert named(again.problems) == ["odd.md"]
            assert named(again.suggestions()) == []
    if embedded:
        with KnowledgeBase.open(folder, embedding=OddEmbeddings(), sync=False) as unsynced:
            assert named(unsynced.problems) == ["odd.md"]


def test_only_entries_that_changed_are_hashed_again(tmp_path, monkeypatch):
    hashed = []
    real = index_state.digest
    monkeypatch.setattr(index_state, "digest", lambda entry: hashed.append(entry) or real(entry))
    folder = write_files(tmp_path / "kb", FILES)
    with KnowledgeBase.open(folder, embedding=WordEmbeddings(), progress=False) as kb:
        assert sorted(entry.entry_id for entry in hashed) == sorted(FILES)
        name = next(iter(FILES))
        for number in range(2):
            hashed.clear()
            text = f"{FILES[name]}\nEdit {number}.\n"
            (folder / name).write_text(text, encoding="utf-8")
            assert kb.sync(progress=False).renewed == 1
            assert {entry.entry_id for entry in hashed} == {name}
            assert kb.index_problems() == []


def test_digests_are_those_of_the_given_entries_though_another_thread_asks_for_others(tmp_path):
    class Overtaken(index_state.Digests):
        def __setattr__(self, name, value):
            super().__setattr__(name, {})

    folder = write_files(tmp_path / "kb", FILES)
    with KnowledgeBase.open(folder, index=None) as kb:
        entries = kb.l0.entries
    assert Overtaken().of(entries) == index_state.Digests().of(entries)
    assert len(Overtaken().of(entries)) == len(FILES)
