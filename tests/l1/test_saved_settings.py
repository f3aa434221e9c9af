"""Settings that came with a folder choose no server and no model."""

import json
import logging

import pytest
from conftest import WordEmbeddings, write_files
from parts.command_line import run

from langchain_lookup_knowledge import KnowledgeBase, QdrantIndex
from langchain_lookup_knowledge.data_folder import DATA_FOLDER, read_settings
from langchain_lookup_knowledge.errors import DocumentError
from langchain_lookup_knowledge.l1.models.embeddings import DEFAULT_MODEL
from langchain_lookup_knowledge.l1.saved_settings import load_settings

SERVER = {"url": "http://127.0.0.1:9", "collection": "theirs"}
SETTINGS = {"index": SERVER, "embedding": "BAAI/bge-small-en-v1.5", "id": "theirs", "fields": {}}


@pytest.fixture
def cloned(folder):
    write_files(folder, {f"{DATA_FOLDER}/settings.json": json.dumps(SETTINGS)})
    return folder


def test_settings_of_a_cloned_folder_name_no_server_and_no_model(cloned, caplog):
    caplog.set_level(logging.WARNING, "langchain_lookup_knowledge")
    with KnowledgeBase.open(cloned) as kb:
        assert kb.index.embedded
        assert kb.embedding.model_name == DEFAULT_MODEL
        (problem,) = kb.problems
        assert "the server 'http://127.0.0.1:9' and the model 'BAAI/bge-small" in problem.message
        assert "run `lookup-knowledge index --trust`, or open with trust=True" in problem.message
        assert sum(problem.message in one.getMessage() for one in caplog.records) == 1
        kb.save_settings()
    assert read_settings(cloned / DATA_FOLDER) == SETTINGS


def test_trust_uses_and_remembers_them(cloned):
    with KnowledgeBase.open(cloned, trust=True) as kb:
        assert (kb.index.url, kb.index.collection) == tuple(SERVER.values())
        assert kb.embedding.model_name == SETTINGS["embedding"]
        assert kb.problems == []
        kb.save_settings()
    with KnowledgeBase.open(cloned) as kb:
        assert kb.index.url == SERVER["url"]


def test_an_argument_that_names_them_needs_no_trust(cloned):
    index = QdrantIndex("http://127.0.0.1:9", "ours")
    with KnowledgeBase.open(cloned, index=index, embedding=WordEmbeddings()) as kb:
        assert kb.problems == []
        kb.save_settings()
    assert load_settings(cloned / DATA_FOLDER).values["index"]["collection"] == "ours"


def test_settings_of_another_user_or_changed_by_hand_are_not_trusted(folder, monkeypatch, tmp_path):
    data = folder / DATA_FOLDER
    with KnowledgeBase.open(folder, embedding=WordEmbeddings(), index=QdrantIndex("http://h", "c")):
        pass
    with KnowledgeBase.open(folder, index=QdrantIndex("http://h", "c"), sync=False) as kb:
        kb.save_settings()
    assert "index" in load_settings(data).values
    written = (data / "settings.json").read_text()
    (data / "settings.json").write_text(written.replace("http://h", "http://x"))
    assert "index" not in load_settings(data).values
    (data / "settings.json").write_text(written)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "another user"))
    assert "index" not in load_settings(data).values
    with KnowledgeBase.open(folder, trust=True, sync=False) as kb:
        kb.save_settings()
    assert "index" in load_settings(data).values
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    assert "index" in load_settings(data).values


def test_a_container_that_cannot_write_a_key_says_so(folder, monkeypatch, tmp_path, caplog):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    with KnowledgeBase.open(folder, index=QdrantIndex("http://h", "c"), sync=False) as kb:
        kb.save_settings()
    assert "are not signed, because the state folder cannot be written" in caplog.text
    assert "index" not in load_settings(folder / DATA_FOLDER).values


GRPC = {"prefer_grpc": True, "grpc_port": 7}


def test_how_a_server_is_reached_is_remembered(folder):
    with KnowledgeBase.open(folder, index=QdrantIndex("http://h", "c", **GRPC), sync=False) as kb:
        kb.save_settings()
    with KnowledgeBase.open(folder, sync=False) as kb:
        assert kb.index.settings() == {"url": "http://h", "collection": "c", **GRPC}


def test_of_settings_that_are_not_trusted_a_named_server_is_used_and_no_other_port(folder):
    index = {"url": "http://h", "collection": "c", "verify": False, **GRPC}
    write_files(folder, {f"{DATA_FOLDER}/settings.json": json.dumps({"index": index})})
    for named in ("http://h", "http://H:6333/"):
        found = load_settings(folder / DATA_FOLDER, servers=[named]).values["index"]
        assert found == {"url": "http://h", "collection": "c"}
    assert "index" not in load_settings(folder / DATA_FOLDER, servers=["http://h:6334"]).values


def test_a_saved_server_that_cannot_be_named_is_told(folder):
    index = {"url": "http://u:SECRET@h", "collection": "c"}
    write_files(folder, {f"{DATA_FOLDER}/settings.json": json.dumps({"index": index})})
    with pytest.raises(DocumentError, match=r"index in settings\.json cannot be used: the URL"):
        KnowledgeBase.open(folder, trust=True)


@pytest.mark.slow
def test_the_command_line_asks_for_trust(cloned):
    indexed = run("index", cloned)
    assert indexed.returncode == 0
    assert "index --trust" in indexed.stderr
    assert "settings.json names the server" in run("check", cloned).stdout
    assert run("index", cloned, "--trust").returncode == 2
    named = run("index", cloned, "--model", DEFAULT_MODEL, env={"QDRANT_URL": SERVER["url"]})
    assert named.returncode == 2


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ("[" * 100_000, "cannot be read: delete it"),
        ('{"fields": ' + '{"a":' * 100_000 + "1" + "}" * 100_001, "cannot be read: delete it"),
        ('{"index": {"url": 5, "collection": "c"}}', "an index that cannot be used"),
        ('{"index": {"url": "u", "collection": "c", "client": 1}}', "an index that cannot be used"),
        ('{"index": {"url": "u", "collection": "c", "verify": 1}}', "an index that cannot be used"),
        ('{"embedding": []}', "is not a string: delete it"),
        ('{"id": 7}', "is not a string: delete it"),
        (" " * 2_000_000, "larger than 1,000,000 bytes"),
    ],
)
def test_settings_of_another_shape_give_one_clear_error(folder, settings, says):
    write_files(folder, {f"{DATA_FOLDER}/settings.json": settings})
    for trust in (False, True):
        with pytest.raises(DocumentError, match=says):
            KnowledgeBase.open(folder, trust=trust)
