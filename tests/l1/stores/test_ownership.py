"""A sync does not empty the collection of another knowledge base by mistake."""

import json

import pytest
from conftest import WordEmbeddings, write_files
from qdrant_server import QdrantServer

from langchain_lookup_knowledge import (
    KnowledgeBase,
    QdrantIndex,
    create_lookup_knowledge_graph,
)
from langchain_lookup_knowledge.errors import StoreError
from langchain_lookup_knowledge.l1.stores.ownership import check_removals
from langchain_lookup_knowledge.l1.stores.vector_index import Contents


@pytest.fixture
def server():
    with QdrantServer() as running:
        yield running


def base(tmp_path, server, name, count, **arguments):
    texts = {f"{name}{number}.md": f"# {name} {number}\n\nText.\n" for number in range(count)}
    folder = write_files(tmp_path / name, texts)
    index = QdrantIndex(server.url, "docs")
    return KnowledgeBase.open(folder, embedding=WordEmbeddings(), index=index, **arguments)


@pytest.mark.parametrize(
    ("known", "kept", "refused"),
    [
        (0, 0, False),
        (3, 0, True),
        (3, 1, False),
        (11, 1, False),
        (12, 1, True),
        (33, 22, False),
        (32, 21, True),
        (300, 200, False),
        (300, 199, True),
    ],
)
def test_a_third_and_more_than_ten_is_too_much_and_so_is_none_of_its_own(known, kept, refused):
    found = Contents({}, {str(number): "" for number in range(known)})
    ours = [str(number) for number in range(kept)] + ["new"]
    if not refused:
        check_removals(found, ours)
        return
    with pytest.raises(StoreError, match=f"holds {known} entries, and this folder has {kept} of"):
        check_removals(found, ours)


@pytest.mark.parametrize("rebuild", [False, True])
def test_two_folders_of_one_name_do_not_empty_each_other(tmp_path, server, rebuild):
    with base(tmp_path, server, "one", 12) as one, base(tmp_path, server, "two", 3) as two:
        one.sync()
        with pytest.raises(StoreError, match=r"12 entries, .* 0 of them, .*--take-over"):
            two.sync(rebuild=rebuild)
        assert len(one.index.contents().digests) == 12
        assert two.sync(rebuild=rebuild, take_over=True).renewed == 3
        assert sorted(two.index.contents().digests) == ["two0.md", "two1.md", "two2.md"]


def test_a_clone_syncs_as_ever(tmp_path, server):
    with base(tmp_path, server, "docs", 30) as one:
        one.sync()
    with base(tmp_path / "clone", server, "docs", 30) as clone:
        assert clone.sync().embedded == 0
        for number in range(10):
            (clone.folder / f"docs{number}.md").unlink()
        assert clone.sync().removed == 10


def test_a_collection_carries_the_id_of_its_base_and_refuses_another(tmp_path, server):
    with base(tmp_path, server, "docs", 3) as unnamed:
        unnamed.sync()
        assert unnamed.index.contents().owner is None
    with base(tmp_path, server, "docs", 3, knowledge_base_id="handbook") as named:
        assert named.sync().written
        assert named.index.contents().owner == "handbook"
        assert not named.sync().written
        named.save_settings()
        named.sync(rebuild=True)
    with base(tmp_path, server, "docs", 3) as again:  # the id is saved
        again.sync()
    no_id = pytest.raises(StoreError, match="with the id 'handbook', and this one has no id")
    with base(tmp_path / "clone", server, "docs", 3) as unnamed, no_id:
        unnamed.sync()
    with base(tmp_path, server, "docs", 3, knowledge_base_id="wiki") as other:
        for rebuild in (False, True):
            with pytest.raises(StoreError, match="the id 'handbook', and this one has the id 'w"):
                other.sync(rebuild=rebuild, take_over=True)
    with pytest.raises(ValueError, match="not an empty text"):
        base(tmp_path, server, "docs", 3, knowledge_base_id=" ")


def test_passages_without_their_vectors_are_no_search_by_meaning(tmp_path, server):
    with base(tmp_path, server, "docs", 3) as kb:
        kb.sync()
        assert kb.index.search([0.1] * 64, "text", [()], 5).lists[0].lists["dense"]
        ids = [point.id for point in kb.index.client.scroll("docs")[0]]
        server._client.delete_vectors("docs", ["dense"], ids)
        with pytest.raises(StoreError, match="holds passages without vectors"):
            kb.index.search([0.1] * 64, "text", [()], 5)


def test_passages_that_the_model_does_not_know_cost_no_further_requests(tmp_path, server):
    folder = write_files(tmp_path / "docs", {"a.md": "退款需要五个工作日。\n"})
    with KnowledgeBase.open(folder, index=QdrantIndex(server.url, "docs")) as kb:
        kb.sync()
        for requests in (3, 1, 1):  # the first asks whether there are vectors, and why not
            server.requests.clear()
            found = kb.index.search([0.1] * 384, "退款", [()], 5).lists[0].lists
            assert any(found.values()) and not found["dense"]
            assert len(server.requests) == requests


def test_text_that_the_file_no_longer_has_is_shown_with_a_note(tmp_path, server):
    folder = write_files(tmp_path / "docs", {"a.md": "The code is 4471.\n", "b.md": "Parking.\n"})
    settings = {"embedding": WordEmbeddings(), "index": QdrantIndex(server.url, "docs")}
    with KnowledgeBase.open(folder, **settings) as kb:
        kb.sync()
        graph = create_lookup_knowledge_graph(kb, record=None)
        assert graph.invoke({"query": "code"})["l1"]["reason"] is None
    write_files(folder, {"a.md": "The code is 9999.\n"})
    settings["index"] = QdrantIndex(server.url, "docs")
    with KnowledgeBase.open(folder, **settings) as kb:
        graph = create_lookup_knowledge_graph(kb, record=None)
        result = graph.invoke({"query": "code"})
        assert "4471" in result["matches"][0]["snippet"]
        assert result["l1"]["reason"].startswith(
            "passages are shown as indexed, and the files here have"
        )
        assert graph.invoke({"query": "parking"})["matches"][0]["source"] == "b.md"
        kb.sync()
        assert graph.invoke({"query": "code"})["l1"]["reason"] is None


def test_every_query_asks_only_the_given_shard(tmp_path, server):
    with base(tmp_path, server, "docs", 3) as kb:
        kb.sync()
        ids = [point.id for point in kb.index.client.scroll("docs")[0]]
        server._client.delete_vectors("docs", ["dense"], ids)
    index = QdrantIndex(server.url, "docs", shard_key="north")
    server.requests.clear()
    server.bodies.clear()
    with pytest.raises(StoreError, match="holds passages without vectors"):
        index.search([0.1] * 64, "text", [()], 5)
    existing = QdrantIndex.from_existing(server.url, "docs", vector_name="dense", shard_key="north")
    existing.search([0.1] * 64, "text", [()], 5)
    batches = [
        json.loads(body)["searches"]
        for line, body in zip(server.requests, server.bodies, strict=True)
        if "/query/batch" in line
    ]
    assert len(batches) == 3
    assert {one.get("shard_key") for searches in batches for one in searches} == {"north"}
    existing.close()
    index.close()
