"""Several machines build one collection, each a part of it, and one of them makes it live."""

import re
import shutil

import pytest
import qdrant_server
from conftest import WordEmbeddings, write_files
from parts.command_line import run
from qdrant_server import QdrantServer

from langchain_lookup_knowledge import KnowledgeBase, QdrantIndex, StoreError
from langchain_lookup_knowledge.l1 import index_state
from langchain_lookup_knowledge.l1.stores.shared_builds import (
    GenerationPart,
    collection_of,
    finish,
    part_of,
)
from langchain_lookup_knowledge.l1.stores.vector_index import INDEXED_FIELDS


@pytest.fixture
def server():
    with QdrantServer(strict=True) as running:
        yield running


@pytest.fixture
def folder(tmp_path):
    texts = {f"{number}.md": f"# Page {number}\n\nText number{number}.\n" for number in range(20)}
    return write_files(tmp_path / "kb", texts)


def write_part(folder, server, part, parts=2, generation="new", **options):
    one = GenerationPart(server.url, "kb", generation, part, parts, api_key=server.api_key)
    with KnowledgeBase.open(folder, embedding=WordEmbeddings(), index=one, **options) as kb:
        return kb.sync()


def finish_all(folder, server, generation="new", **options):
    whole = QdrantIndex(server.url, collection_of("kb", generation), api_key=server.api_key)
    live = QdrantIndex(server.url, "kb", api_key=server.api_key)
    with KnowledgeBase.open(folder, embedding=WordEmbeddings(), index=live) as kb:
        digests = {entry.entry_id: index_state.digest(entry) for entry in kb.entries}
        finish(live, whole, digests, kb.embedding, **options)
    whole.close()


def sync(folder, server, **options):
    index = QdrantIndex(server.url, "kb", api_key=server.api_key)
    with KnowledgeBase.open(folder, embedding=WordEmbeddings(), index=index) as kb:
        return kb.sync(**options)


def aliases(server):
    return {one.alias_name: one.collection_name for one in server._client.get_aliases().aliases}


def names_of(part, parts=2):
    return [f"{number}.md" for number in range(20) if part_of(f"{number}.md", parts) == part]


def test_each_entry_falls_in_one_part():
    names = [f"{number}.md" for number in range(1000)]
    sizes = [sum(part_of(name, 4) == part for name in names) for part in (1, 2, 3, 4)]
    assert sum(sizes) == 1000 and min(sizes) > 200
    with pytest.raises(ValueError, match="there is no part 5/4: give 1/4 to 4/4"):
        GenerationPart(":memory:", "kb", "g", 5, 4)
    assert collection_of("kb", "2026-12") == "kb--2026-12"
    for name in (
        *("a--b", "", "-a", "..", "a b", "a/b"),
        *("building", "20260101-000000-0000"),  # of syncs' own
    ):
        with pytest.raises(ValueError, match=re.escape(f"'{name}' cannot name a generation")):
            collection_of("kb", name)


def test_parts_are_made_live_together(folder, server, tmp_path):
    sync(folder, server)
    old = aliases(server)["kb"]
    (folder / "20.md").write_text("# Page 20\n\nNew.\n")
    other = tmp_path / "on-another-machine"
    shutil.copytree(folder, other)
    reports = [write_part(folder, server, 1), write_part(other, server, 2)]
    assert sum(report.renewed for report in reports) == 21
    assert min(report.renewed for report in reports) > 0
    assert aliases(server) == {"kb": old}
    server.requests.clear()
    finish_all(folder, server)
    assert aliases(server) == {"kb": "kb--new"}
    assert sum(line.startswith("POST /collections/aliases") for line in server.requests) == 1
    assert server.collections() == ["kb--new"]
    assert not sync(folder, server).written


def test_the_next_generation_and_a_rebuild_replace_the_last_one(folder, any_server):
    for generation in ("a", "b"):
        for part in (1, 2):
            write_part(folder, any_server, part, generation=generation)
        finish_all(folder, any_server, generation)
        assert any_server.collections() == [f"kb--{generation}"]
    sync(folder, any_server, rebuild=True)
    assert any_server.collections() == [aliases(any_server)["kb"]] != ["kb--b"]


@pytest.mark.parametrize("where", ["DELETE /collections/kb--a", "GET /collections/kb--a"])
def test_an_old_generation_that_cannot_be_deleted_is_named(folder, server, caplog, where):
    for generation in ("a", "b"):
        write_part(folder, server, 1, parts=1, generation=generation)
        finish_all(folder, server, generation)
        server.misbehave(qdrant_server.status(403), where=where)
    assert aliases(server)["kb"] == "kb--b"
    assert 'the old collection "kb--a" is kept: delete it' in caplog.text


def test_a_part_is_written_again_where_it_differs(folder, any_server):
    write_part(folder, any_server, 1)
    write_part(folder, any_server, 2)
    changed, gone = names_of(1)[:2]
    (folder / changed).write_text("# Page\n\nChanged.\n")
    (folder / gone).unlink()
    report = write_part(folder, any_server, 2)
    assert not report.written
    report = write_part(folder, any_server, 1)
    assert (report.renewed, report.removed) == (1, 1)
    finish_all(folder, any_server)
    assert aliases(any_server) == {"kb": "kb--new"}


def test_a_generation_that_is_live_takes_no_more_parts(folder, server):
    for part in (1, 2):
        write_part(folder, server, part)
    finish_all(folder, server)
    assert not write_part(folder, server, 1).written
    (folder / names_of(1)[0]).write_text("# Page\n\nOf a machine that lags behind.\n")
    with pytest.raises(StoreError, match='"kb--new" is live already'):
        write_part(folder, server, 1)
    assert sync(folder, server).renewed == 1


def test_a_generation_that_is_not_whole_is_not_made_live(folder, any_server):
    sync(folder, any_server)
    old = aliases(any_server)["kb"]
    with pytest.raises(StoreError, match='no collection "kb--new": build it with --shard'):
        finish_all(folder, any_server)
    write_part(folder, any_server, 2)
    missing = names_of(1)
    with pytest.raises(StoreError) as raised:
        finish_all(folder, any_server)
    assert f'"kb--new" is not whole: of 20, {len(missing)} entries are missing' in str(raised.value)
    assert str(raised.value).endswith("run `lookup-knowledge index` with --shard 1/2")
    write_part(folder, any_server, 1)
    changed, gone = names_of(1)[0], names_of(2)[0]
    (folder / changed).write_text("# Page\n\nChanged.\n")
    (folder / gone).unlink()
    with pytest.raises(StoreError) as raised:
        finish_all(folder, any_server)
    assert f"1 entry is incomplete or different ({changed})" in str(raised.value)
    assert f"1 entry is not in the folder ({gone})" in str(raised.value)
    assert "--shard 1/2, 2/2" in str(raised.value)
    assert aliases(any_server) == {"kb": old}


def test_an_entry_of_which_a_passage_is_missing_is_told(folder, server):
    write_part(folder, server, 1, parts=1)
    long = "".join(f"## Part {number}\n\n{'word ' * 150}\n\n" for number in range(3))
    (folder / "0.md").write_text(long)
    write_part(folder, server, 1, parts=1)
    points, _ = server._client.scroll("kb--new", limit=100)
    lost = next(one.id for one in points if one.payload["metadata"]["passage"] == 1)
    server._client.delete("kb--new", [lost])
    with pytest.raises(StoreError, match=r"1 entry is incomplete or different \(0.md\)"):
        finish_all(folder, server)


def test_a_generation_is_of_one_number_of_parts(folder, server):
    write_part(folder, server, 1)
    with pytest.raises(StoreError, match=r"begun in 2 parts, not in 3: give the same"):
        write_part(folder, server, 3, parts=3)
    sync(folder, server)
    live = server._client.get_collection("kb")
    server._client.create_collection("kb--mine", {}, metadata=live.config.metadata)
    server._indexed["kb--mine"] = set()
    with pytest.raises(StoreError, match=r"begun without --shard, not in 2: give the same"):
        write_part(folder, server, 1, generation="mine")


def test_two_machines_may_begin_at_once(folder, server):
    def begun_by_another(handler):
        server.answer(handler.command, handler.path, handler.headers, handler.body)
        return qdrant_server.status(409, "Wrong input: Collection already exists!")(handler)

    server.misbehave(begun_by_another, times=1, where="PUT /collections/kb--new b")
    write_part(folder, server, 1)
    assert server.indexed("kb--new") == set(INDEXED_FIELDS)
    write_part(folder, server, 2)
    finish_all(folder, server)
    assert aliases(server) == {"kb": "kb--new"}


def test_a_generation_of_another_knowledge_base_does_not_replace_the_live_one(folder, any_server):
    other = write_files(folder.parent / "other", {"x.md": "Other.\n", "y.md": "Another.\n"})
    sync(folder, any_server)
    write_part(other, any_server, 1, parts=1)
    with pytest.raises(StoreError, match="so 20 would be removed"):
        finish_all(other, any_server)
    finish_all(other, any_server, take_over=True)
    assert aliases(any_server) == {"kb": "kb--new"}


def test_a_collection_under_the_plain_name_is_not_replaced(folder, server):
    write_part(folder, server, 1, parts=1)
    server._client.create_collection(
        "kb", {}, metadata=server._client.get_collection("kb--new").config.metadata
    )
    server._indexed["kb"] = set()
    with pytest.raises(StoreError, match='"kb" is a collection, so it cannot become an alias'):
        finish_all(folder, server)


def test_on_the_command_line(folder, server):
    on = ("--url", server.url, "--collection", "kb", "--generation", "g")
    first = run("index", folder, *on, "--shard", "1/2")
    assert first.returncode == 0, first.stderr
    finished = ("index", folder, "--url", server.url, "--collection", "kb", "--finish", "g")
    refused = run(*finished)
    assert refused.returncode == 2
    assert "is not whole" in refused.stderr and "--shard 2/2" in refused.stderr
    assert not (folder / ".lookup-knowledge/settings.json").exists()
    assert run("index", folder, *on, "--shard", "2/2").returncode == 0
    done = run(*finished)
    assert done.stdout == "20 entries; collection 'kb' is now 'kb--g'\n", done.stderr
    assert "(L1)" in run("ask", folder, "number3", "--text").stdout


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--shard", "1/2"], "--shard I/N and --generation NAME belong together"),
        (["--generation", "g"], "--shard I/N and --generation NAME belong together"),
        (["--shard", "3/2", "--generation", "g"], "'3/2' is no part: give 1/4 to 4/4"),
        (["--finish", "g"], "--finish is for a collection on a server: give --url too"),
        (
            ["--finish", "g", "--url", "http://h", "--watch"],
            "--finish cannot be given with --watch",
        ),
        (
            ["--shard", "1/2", "--generation", "g", "--url", "http://h", "--rebuild"],
            "--shard cannot be given with --rebuild",
        ),
    ],
)
def test_options_that_do_not_belong_together_are_told(folder, options, says):
    found = run("index", folder, *options)
    assert found.returncode == 2
    assert says in found.stderr
