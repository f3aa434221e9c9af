"""A collection is built beside the live one and switched when it is complete."""

import json
import logging
import os
import socket
import subprocess
import sys
import time

import pytest
import qdrant_server
from conftest import WordEmbeddings, write_files
from qdrant_client import models
from qdrant_server import QdrantServer

from langchain_lookup_knowledge import (
    KnowledgeBase,
    QdrantIndex,
    StoreError,
    create_lookup_knowledge_graph,
)
from langchain_lookup_knowledge.errors import EmbeddingError, StoreForbiddenError
from langchain_lookup_knowledge.l1.deadlines import ThreadPool
from langchain_lookup_knowledge.l1.stores.qdrant import builds, progress
from langchain_lookup_knowledge.l1.stores.qdrant.points import PROGRESS_KEY
from langchain_lookup_knowledge.l1.stores.vector_index import INDEXED_FIELDS


@pytest.fixture
def server():
    with QdrantServer() as running:
        yield running


@pytest.fixture
def folder(tmp_path):
    texts = {f"{number}.md": f"# Page {number}\n\nText number{number}.\n" for number in range(5)}
    return write_files(tmp_path / "kb", texts)


def base(folder, server, embedding=None):
    index = QdrantIndex(server.url, "kb", api_key=server.api_key)
    return KnowledgeBase.open(folder, embedding=embedding or WordEmbeddings(), index=index)


def aliases(server):
    return {one.alias_name: one.collection_name for one in server._client.get_aliases().aliases}


def look_up(kb, query="number3"):
    return create_lookup_knowledge_graph(kb, record=None).invoke({"query": query})["l1"]


class Watching(WordEmbeddings):
    """Calls `look` whenever documents are embedded."""

    look = staticmethod(lambda: None)

    def embed_documents(self, texts):
        self.look()
        return super().embed_documents(texts)


def test_a_first_build_is_seen_when_it_is_complete(folder, any_server):
    embedding, seen = Watching(), []
    with base(folder, any_server, embedding) as kb, base(folder, any_server, Watching()) as reader:
        embedding.look = lambda: seen.append(look_up(reader))
        kb.sync()
        assert {one["status"] for one in seen} == {"unavailable"}
        assert seen[0]["reason"] == 'collection "kb" is being built, 0 passages so far'
        assert look_up(reader)["status"] == "ok"
        (target,) = any_server.collections()
        assert target.startswith("kb--")
        assert aliases(any_server) == {"kb": target}
        assert kb.index.generation() == target


def test_a_rebuild_leaves_no_gap_and_replaces_the_old_collection(folder, any_server):
    embedding, seen = Watching(), []
    with base(folder, any_server, embedding) as kb, base(folder, any_server, Watching()) as reader:
        kb.sync()
        (old,) = any_server.collections()
        embedding.look = lambda: seen.append(look_up(reader))
        kb.sync(rebuild=True)
        assert {(one["status"], one["reason"]) for one in seen} == {("ok", None)}
        (new,) = any_server.collections()
        assert new != old
        assert aliases(any_server) == {"kb": new}
        assert look_up(reader)["reason"] is None


def test_the_old_and_the_new_collection_are_switched_in_one_request(folder, server):
    with base(folder, server) as kb:
        kb.sync()
        server.requests.clear()
        kb.sync(rebuild=True)
    changes = [
        body
        for line, body in zip(server.requests, server.bodies[-len(server.requests) :], strict=True)
        if line.startswith("POST /collections/aliases")
    ]
    assert len(changes) == 2
    assert changes[1].count(b"delete_alias") == 2
    assert changes[1].count(b"create_alias") == 1


def done_but_late(server):
    """Do as asked, but answer that it took too long."""

    def fault(handler):
        server.answer(handler.command, handler.path, handler.headers, handler.body)
        return qdrant_server.status(500, "timed out")(handler)

    return fault


def test_a_failing_delete_of_the_old_collection_keeps_the_new_one(folder, server, caplog):
    with base(folder, server) as kb:
        kb.sync()
        (old,) = server.collections()
        server.misbehave(qdrant_server.status(403), where=f"DELETE /collections/{old}")
        kb.sync(rebuild=True)
        assert aliases(server)["kb"] != old
        assert look_up(kb)["status"] == "ok"
        assert f'the old collection "{old}" is not deleted yet' in caplog.text
        server.misbehave(None)
        kb.sync()
        assert server.collections() == [aliases(server)["kb"]]


def test_a_switch_that_was_made_but_seems_to_fail_is_found(folder, server):
    with base(folder, server) as kb:
        kb.sync()
        (old,) = server.collections()
        server.misbehave(done_but_late(server), where="delete_alias")
        kb.sync(rebuild=True)
        assert server.collections() == [aliases(server)["kb"]] != [old]
        assert look_up(kb)["status"] == "ok"


def test_a_live_collection_is_never_given_up(folder, any_server):
    with base(folder, any_server) as kb:
        kb.sync()
        kb.index.builds.abandon(aliases(any_server)["kb"])
        assert look_up(kb)["status"] == "ok"


class Failing(WordEmbeddings):
    def embed_documents(self, texts):
        raise RuntimeError("no model")


def test_a_build_that_fails_leaves_nothing(folder, any_server):
    with base(folder, any_server) as kb:
        kb.sync()
    before = any_server.collections()
    with base(folder, any_server, Failing()) as kb, pytest.raises(EmbeddingError):
        kb.sync(rebuild=True)
    assert any_server.collections() == before


def left_behind(server, name, **progress):
    noted = {"written": 7, "at": int(time.time()), "host": builds.host(), "pid": 0}
    server.make(name, {PROGRESS_KEY: {**noted, **progress}})


@pytest.fixture(scope="module")
def ended():
    """Return the id of a process that has ended."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


LEFT = "kb--20260101-000000-0000"
OTHER = "kb--20260101-000000-0001"


def test_what_an_interrupted_build_left_is_told_and_removed_by_the_next_sync(folder, any_server):
    with base(folder, any_server) as kb:
        kb.sync()
        left_behind(any_server, LEFT, at=0)
        left_behind(any_server, "kb--notes", at=0)  # not a name of ours
        told = [str(problem) for problem in kb.index_problems()]
        assert told == [
            f'.: collection "{LEFT}" of an interrupted build: run `lookup-knowledge '
            "index` on the knowledge folder, or kb.sync()"
        ]
        assert kb.sync().written
        assert LEFT not in any_server.collections()
        assert "kb--notes" in any_server.collections()
        assert not kb.index_problems()
        assert not kb.sync().written


@pytest.mark.skipif(not builds.host(), reason="processes are told apart by /proc")
def test_a_build_of_an_ended_process_is_left_over_if_the_process_was_surely_here(any_server, ended):
    index = QdrantIndex(any_server.url, "kb", api_key=any_server.api_key)
    left_behind(any_server, LEFT, pid=ended)
    assert index.builds.leftovers() == [LEFT]
    left_behind(any_server, OTHER, pid=os.getpid())  # its build is not under way in this process
    assert index.builds.leftovers() == [LEFT, OTHER]
    for name, host in {LEFT: socket.gethostname(), OTHER: ""}.items():
        noted = {"written": 7, "at": int(time.time()), "host": host, "pid": ended}
        any_server.note(name, {PROGRESS_KEY: noted})
    assert not index.builds.leftovers()
    index.close()


def test_two_builds_in_one_process_do_not_delete_each_other(folder, any_server):
    embedding, refused = Watching(), []

    def build_again():
        with base(folder, any_server) as second, pytest.raises(StoreError) as raised:
            second.sync(rebuild=True)
        refused.append(str(raised.value))

    embedding.look = build_again
    with base(folder, any_server, embedding) as kb:
        kb.sync()
        assert "is being built by another sync" in refused[0]
        assert look_up(kb)["status"] == "ok"
        assert not builds._running


def test_a_build_that_this_process_could_not_delete_is_not_under_way(folder, server):
    with base(folder, server, Failing()) as kb:
        server.misbehave(qdrant_server.status(403), where="DELETE /collections/kb--")
        with pytest.raises(EmbeddingError):
            kb.sync()
        assert kb.index.builds.leftovers() == (server.collections() if builds.host() else [])
        assert len(server.collections()) == 1


def test_a_build_of_a_running_process_is_left_alone_and_told(folder, any_server):
    with base(folder, any_server) as kb:
        left_behind(any_server, LEFT, host="elsewhere")
        any_server._client.update_collection_aliases(
            [
                models.CreateAliasOperation(
                    create_alias=models.CreateAlias(collection_name=LEFT, alias_name="kb--building")
                )
            ]
        )
        says = r'"kb" is being built by another sync \(7 passages so far\): wait for it'
        with pytest.raises(StoreError, match=says):
            kb.sync()
        any_server.note(
            LEFT, {PROGRESS_KEY: {"written": 7, "at": 0, "host": "elsewhere", "pid": 1}}
        )
        kb.sync()
        assert LEFT not in any_server.collections()


def made_plain(server, folder):
    """Make a collection under the plain name, as earlier versions did."""
    with base(folder, server) as kb:
        server.misbehave(qdrant_server.status(403), where="aliases")
        kb.sync()
        server.misbehave(None)
    assert server.collections() == ["kb"]
    assert aliases(server) == {}


def test_a_key_that_may_not_manage_aliases_builds_in_place_and_tells(folder, server, caplog):
    caplog.set_level(logging.WARNING)
    made_plain(server, folder)
    assert 'collection "kb" is built in place, because the API key may not manage' in caplog.text
    with base(folder, server) as kb:
        assert not kb.sync().written
        assert look_up(kb)["reason"] is None


def test_a_collection_under_the_plain_name_is_rebuilt_in_place_with_a_caveat(
    folder, server, caplog
):
    made_plain(server, folder)
    embedding, seen = Watching(), []
    with base(folder, server, embedding) as kb, base(folder, server, Watching()) as reader:
        embedding.look = lambda: seen.append(look_up(reader))
        kb.sync(rebuild=True)
        assert "built in place, because it is no alias" in caplog.text
        assert "the index is being built, 0 passages so far" in seen[0]["reason"]
        assert look_up(reader)["reason"] is None
        assert kb.index.generation() is None


def test_a_rebuild_in_place_that_was_interrupted_is_told_until_it_is_mended(folder, server):
    made_plain(server, folder)
    with base(folder, server) as kb, base(folder, server) as reader:
        server._client.delete("kb", [server._client.scroll("kb")[0][0].id])
        noted = {"written": 7, "at": 0, "host": "h", "pid": 1}
        server._client.update_collection("kb", metadata={PROGRESS_KEY: noted})
        assert "being built, 7 passages so far" in look_up(reader)["reason"]
        assert "the last build was interrupted" in str(kb.index_problems()[0])
        assert kb.sync().renewed == 1
        assert look_up(reader)["reason"] is None
        assert not kb.index_problems()


@pytest.mark.parametrize("fault", [qdrant_server.hang, qdrant_server.status(500)])
def test_a_search_keeps_what_it_found_if_the_state_of_the_build_is_not_told(folder, server, fault):
    with base(folder, server) as kb:
        kb.sync()
    index = QdrantIndex(server.url, "kb", api_key=server.api_key)
    server.misbehave(fault, where="GET /collections/kb b")
    found = ThreadPool().run(lambda: index.search(None, "number3", [()], 1), 5)
    assert [hit.entry_id for hit in found.lists[0].lists["passage"]] == ["3.md"]
    assert found.caveat is None
    assert server.requests[-1] == "GET /collections/kb"
    index.close()


def test_a_note_of_a_build_may_lack_how_far_it_is(folder, server):
    made_plain(server, folder)
    with base(folder, server) as kb, base(folder, server) as reader:
        server._client.update_collection("kb", metadata={PROGRESS_KEY: {"at": 0}})
        assert "being built, 0 passages so far" in look_up(reader)["reason"]
        assert "the last build was interrupted" in str(kb.index_problems()[0])


def test_a_key_that_may_not_make_collections_cannot_rebuild_behind_an_alias(folder, server):
    server.api_key = server.api_key or "sk-KEY"
    with base(folder, server) as kb:
        kb.sync()
        server.misbehave(qdrant_server.status(403), where="PUT /collections/kb--")
        with pytest.raises(StoreForbiddenError, match="its rights on"):
            kb.sync(rebuild=True)
        server.misbehave(None)
        assert look_up(kb)["status"] == "ok"


def test_a_rebuild_under_an_alias_of_the_user_keeps_the_collection_that_the_user_named(
    folder, server, caplog
):
    mine = QdrantIndex(server.url, "mine")
    server.misbehave(qdrant_server.status(403), where="aliases")
    with KnowledgeBase.open(folder, embedding=WordEmbeddings(), index=mine) as kb:
        kb.sync()
    server.misbehave(None)
    made = models.CreateAlias(collection_name="mine", alias_name="kb")
    server._client.update_collection_aliases([models.CreateAliasOperation(create_alias=made)])
    with base(folder, server) as kb:
        kb.sync(rebuild=True)
        assert aliases(server)["kb"].startswith("kb--")
        assert look_up(kb)["reason"] is None
    assert 'the old collection "mine" is kept: delete it' in caplog.text


def test_missing_payload_indexes_are_told_and_made(folder, any_server):
    with base(folder, any_server) as kb:
        kb.sync()
        live = any_server.target("kb")
        any_server.drop_indexes(live, "metadata.digest", "metadata.entry_id")
        told = " ".join(map(str, kb.index_problems()))
        assert 'no payload index on "metadata.digest": run `lookup-knowledge index`' in told
        report = kb.sync()
        assert (report.written, report.embedded) == (True, 0)
        assert any_server.indexed(live) == set(INDEXED_FIELDS)
        assert not kb.index_problems()
        assert not kb.sync().written


def test_an_unchanged_collection_is_read_once_in_a_sync(folder, server):
    with base(folder, server) as kb:
        kb.sync()
        (folder / "0.md").write_text("# Page 0\n\nNew.\n")
        server.requests.clear()
        kb.sync()
        assert sum("scroll" in line for line in server.requests) == 1


def notes(server):
    """Return the notes about builds that were sent."""
    changes = [json.loads(body) for body in list(server.bodies) if b'"metadata"' in body]
    return [one["metadata"][PROGRESS_KEY] for one in changes if "vectors" not in one]


def test_a_batch_that_takes_long_is_noted_while_it_is_embedded(folder, server, monkeypatch):
    monkeypatch.setattr(progress, "NOTE_SECONDS", 0.01)
    embedding, written = Watching(), []

    def until_noted():
        server.bodies.clear()
        while len(notes(server)) < 2:  # the first may have been under way
            time.sleep(0.01)
        written.append(notes(server)[-1]["written"])

    embedding.look = until_noted
    with base(folder, server, embedding) as kb:
        kb.sync()
        (folder / "0.md").write_text("# Page 0\n\nNew.\n")
        kb.sync()
        assert written == [0, 4, 0]
        assert not kb.index_problems()
        assert look_up(kb)["reason"] is None


def test_the_note_of_a_build_stays_until_it_is_live(folder, server):
    with base(folder, server) as kb, base(folder, server) as other:
        kb.sync()
        (old,) = server.collections()
        seen = []

        def look(handler):
            seen.append((aliases(server)["kb"], other.index.builds.progress()))
            new = next(name for name in server.collections() if name != old)
            note = server._client.get_collection(new).config.metadata[PROGRESS_KEY]
            seen.append((note["complete"], note["written"]))
            return False

        server.misbehave(look, times=1, where="delete_alias")
        kb.sync(rebuild=True)
        assert seen == [(old, "5 passages so far"), (True, 5)]
        assert look_up(other)["reason"] is None
        assert not other.index_problems()


def test_the_shard_key_of_new_collections_is_made(folder, monkeypatch):
    made = []
    with KnowledgeBase.open(
        folder,
        embedding=WordEmbeddings(),
        index=QdrantIndex(":memory:", "kb", shard_key=["north", "south"]),
    ) as kb:
        client = kb.index.client
        monkeypatch.setattr(client, "create_shard_key", lambda *given: made.append(given))
        kb.sync()
    assert [key for _, key in made] == ["north", "south"]
