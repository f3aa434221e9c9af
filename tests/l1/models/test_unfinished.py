"""A build that was interrupted continues: what it had embedded is not embedded again."""

import numpy as np
import pytest
from conftest import WordEmbeddings, write_files

from langchain_lookup_knowledge import KnowledgeBase
from langchain_lookup_knowledge.l1.indexing import EMBED_WINDOW, FIRST_WINDOW
from langchain_lookup_knowledge.l1.models.unfinished import UnfinishedBuild

FILES = {f"{n}.md": f"# Entry {n}\n\nThe text of entry {n}.\n" for n in range(3 * EMBED_WINDOW)}
KEPT = FIRST_WINDOW * (1 + 2 + 4 + 8) + 2 * EMBED_WINDOW
"""Vectors that are kept when a build stops after two windows of full size."""
UNFINISHED = ".lookup-knowledge/unfinished-vectors"


class Stopping(WordEmbeddings):
    """Stops when it has embedded this many windows."""

    def __init__(self, windows=None):
        super().__init__()
        self.windows = windows

    def embed_documents(self, texts):
        if self.windows is not None and len(self.embedded) >= self.windows * EMBED_WINDOW:
            raise KeyboardInterrupt
        return super().embed_documents(texts)


@pytest.fixture
def folder(tmp_path):
    return write_files(tmp_path / "kb", FILES)


def interrupted(folder, windows):
    with pytest.raises(KeyboardInterrupt):
        KnowledgeBase.open(folder, embedding=Stopping(windows))


def finished(folder, **sync):
    embedding = Stopping()
    with KnowledgeBase.open(folder, embedding=embedding, sync=not sync) as kb:
        if sync:
            kb.sync(**sync)
        assert kb.health()["index"] == "current"
        assert kb.index._opened().shard.info().points_count == len(FILES)
    assert not (folder / UNFINISHED).exists()
    return len(embedding.embedded)


@pytest.mark.slow
def test_each_interrupted_build_goes_further(folder):
    interrupted(folder, 1)
    interrupted(folder, 1)
    assert finished(folder) == len(FILES) - KEPT


@pytest.mark.slow
def test_a_rebuild_takes_nothing_from_before(folder):
    interrupted(folder, 2)
    assert finished(folder, rebuild=True) == len(FILES)


@pytest.mark.slow
def test_another_model_takes_nothing_from_before(folder, monkeypatch):
    interrupted(folder, 2)
    monkeypatch.setattr(WordEmbeddings, "model", "other-words")
    assert finished(folder) == len(FILES)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("damage", "lost"),
    [
        (lambda data: data[:-3], 1),
        (lambda data: data + b"half a record", 0),
        (lambda data: data[:-20] + b"\0" * 20, 1),
        (lambda data: b"", KEPT),
        (lambda data: b"\xff" * 1000, KEPT),
    ],
    ids=["cut off", "begun", "zeros at the end", "empty", "of something else"],
)
def test_a_damaged_file_costs_its_damaged_vectors_alone(folder, damage, lost):
    interrupted(folder, 2)
    path = folder / UNFINISHED
    path.write_bytes(damage(path.read_bytes()))
    assert finished(folder) == len(FILES) - KEPT + lost


def test_a_file_that_cannot_be_written_does_not_stop_a_build(folder, caplog):
    (folder / UNFINISHED).mkdir(parents=True)
    with KnowledgeBase.open(folder, embedding=WordEmbeddings()) as kb:
        assert kb.health()["index"] == "current"
    assert "cannot be kept (Is a directory)" in caplog.text


def test_vectors_come_back_as_an_index_stores_them_and_unusable_ones_are_tried_again(tmp_path):
    class Odd(WordEmbeddings):
        def embed_documents(self, texts):
            made = super().embed_documents(texts)
            return [
                [float("nan")] * 64 if "unusable" in text else vector
                for text, vector in zip(texts, made, strict=True)
            ]

    texts, embedding = ["one", "unusable", "two", "one"], Odd()
    for again in (False, True):
        build = UnfinishedBuild(tmp_path / "vectors")
        build.begin(embedding, 64, afresh=False)
        vectors = build.embed(embedding, texts)
        assert vectors[1] is None
        wanted = np.asarray(embedding.embed_query("two"), "f4").tolist()
        assert vectors[2] == (wanted if again else embedding.embed_query("two"))
    assert embedding.embedded == [*texts, "unusable"]
