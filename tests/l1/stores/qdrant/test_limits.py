"""The limits of strict mode are kept, not run into."""

import pytest
from conftest import FILES, WordEmbeddings, write_files
from qdrant_client import models
from qdrant_server import QdrantServer

from langchain_lookup_knowledge import (
    KnowledgeBase,
    LookupOptions,
    QdrantIndex,
    StoreError,
    create_lookup_knowledge_graph,
)
from langchain_lookup_knowledge.errors import StoreLimitError
from langchain_lookup_knowledge.l1.stores.qdrant.limits import Limits
from langchain_lookup_knowledge.l1.stores.qdrant.points import server_filter

HARSH = {
    "max_query_limit": 20,
    "max_timeout": 1,
    "search_max_batchsize": 2,
    "upsert_max_batchsize": 16,
    "condition_max_size": 2,
}
UNINDEXED = {"unindexed_filtering_retrieve": False, "unindexed_filtering_update": False}
TOPICS = "refund invoice leave salary vpn printer badge parking travel visa".split()


def pages(count):
    """Return files of which each names one of the topics and a number of its own."""
    return {
        f"{TOPICS[number % 10]}/{number}.md": f"---\ntitle: {TOPICS[number % 10]} {number}\n"
        f'keywords: ["word{number}"]\ncategory: {TOPICS[number % 10]}\nteam: t{number % 5}\n---\n'
        f"How to handle {TOPICS[number % 10]} in case {number}, as told by word{number}.\n"
        for number in range(count)
    }


def base(folder, server, **limits):
    """Open a knowledge base whose collections are made with these limits of strict mode."""
    strict = models.StrictModeConfig(enabled=True, **limits)
    index = QdrantIndex(
        server.url,
        "kb",
        api_key=server.api_key,
        timeout=60,
        collection_options={"strict_mode_config": strict} if limits else {},
    )
    return KnowledgeBase.open(folder, embedding=WordEmbeddings(), index=index)


def first_matches(kb, queries, **options):
    graph = create_lookup_knowledge_graph(kb, record=None, options=LookupOptions(**options))
    found = [graph.invoke(query) for query in queries]
    assert {one["l1"]["status"] for one in found} <= {"ok", "empty"}, found
    return [one["primary"] and one["primary"]["entry_id"] for one in found]


QUERIES = [{"query": f"{topic} case {number}"} for number in range(5) for topic in TOPICS]
FILTERED = [
    {"query": "case", "filters": {"category": TOPICS[:5]}},
    {"query": "how to handle it", "filters": {"category": TOPICS[5:], "folder": "visa/"}},
]


@pytest.mark.slow
def test_a_strict_collection_is_synced_edited_and_looked_up_as_one_without_limits(
    tmp_path, any_server
):
    folder = write_files(tmp_path / "kb", pages(120))
    with base(folder, any_server) as kb:
        kb.sync()
        expected = first_matches(kb, QUERIES + FILTERED, l1_timeout=60)
    with base(folder, any_server, **HARSH, **UNINDEXED) as kb:
        assert kb.sync(rebuild=True).renewed == 120
    with base(folder, any_server) as kb:  # which does not know the limits yet
        found = first_matches(kb, QUERIES + FILTERED, l1_timeout=60)
        same = sum(one == other for one, other in zip(found, expected, strict=True))
        assert same >= 0.95 * len(expected)
        for number in range(30):
            (folder / TOPICS[number % 10] / f"{number}.md").unlink()
        (folder / "vpn" / "114.md").write_text("A new text about the tunnel.\n")
        report = kb.sync()
        assert (report.removed, report.renewed) == (30, 1)
        assert len(kb.index.contents().digests) == 90
        assert first_matches(kb, [{"query": "tunnel"}], l1_timeout=60) == ["vpn/114.md"]


SEARCHED, READ = "POST /collections/kb/points/query/batch", "POST /collections/kb/points"


def asked(server, kb, query="refund"):
    """Return the requests of a lookup, and the text of its first match."""
    server.requests.clear()
    graph = create_lookup_knowledge_graph(kb, record=None, options=LookupOptions(l1_timeout=60))
    found = graph.invoke({"query": query})
    return [line.split("?")[0] for line in server.requests], found["matches"][0]["snippet"]


def test_a_lookup_is_one_request_once_its_passages_were_read(tmp_path):
    folder = write_files(tmp_path / "kb", FILES)
    with QdrantServer() as server, base(folder, server) as kb:
        kb.sync()
        requests, text = asked(server, kb)
        assert requests == [SEARCHED, READ]
        assert asked(server, kb) == ([SEARCHED], text)


def test_passages_that_another_process_wrote_again_are_read_again(tmp_path):
    folder = write_files(tmp_path / "kb", FILES)
    with QdrantServer() as server, base(folder, server) as kb, base(folder, server) as writer:
        writer.sync()
        _, text = asked(server, kb)
        for path in folder.rglob("*.md"):
            path.write_text(path.read_text() + "\nA refund of today.\n")
        writer.sync()
        requests, renewed = asked(server, kb)
        assert requests == [SEARCHED, READ]
        assert "A refund of today." in renewed and "A refund of today." not in text
        assert asked(server, kb) == ([SEARCHED], renewed)


def test_a_limit_that_is_set_later_is_learned_from_the_refusal(tmp_path, any_server):
    folder = write_files(tmp_path / "kb", pages(30))
    with base(folder, any_server) as kb:
        kb.sync()
        any_server.restrict("kb", **HARSH)
        (first,) = first_matches(kb, [{"query": "case word7"}], l1_timeout=60)
        assert first == f"{TOPICS[7]}/7.md"
        (folder / "new.md").write_text("Something new.\n")
        assert kb.sync().renewed == 1


def test_a_limit_that_cannot_be_kept_is_named_with_its_value(tmp_path, any_server):
    folder = write_files(tmp_path / "kb", pages(10))
    with base(folder, any_server) as kb:
        kb.sync()
        any_server.restrict("kb", filter_max_conditions=1)
        graph = create_lookup_knowledge_graph(
            kb, record=None, options=LookupOptions(l1_timeout=60, filter_mode="off")
        )
        filters = {"category": ["visa"], "folder": "visa/"}
        l1 = graph.invoke({"query": "case", "filters": filters})["l1"]
        assert l1["status"] == "failed"
        assert "refuses 2 where filter_max_conditions is 1: raise filter_max" in l1["reason"]


def test_too_many_payload_indexes_are_told(tmp_path, any_server):
    folder = write_files(tmp_path / "kb", pages(3))
    limited = pytest.raises(StoreError, match="allows 2 payload indexes: raise max_payload_index")
    with base(folder, any_server, max_payload_index_count=2) as kb:
        with limited:
            kb.sync()
        assert any_server.collections() == []


def test_an_upsert_that_is_too_large_for_the_server_is_halved(tmp_path):
    folder = write_files(tmp_path / "kb", pages(40))
    with QdrantServer(max_body=20_000) as server, base(folder, server) as kb:
        assert kb.sync().renewed == 40
        assert len(kb.index.contents().digests) == 40
        sent = [
            body
            for line, body in zip(server.requests, server.bodies, strict=True)
            if line.startswith("PUT") and "/points" in line
        ]
        assert max(map(len, sent)) > 20_000 > min(map(len, sent))
    too_large = pytest.raises(StoreLimitError, match=r"larger than the Qdrant server allows \(900")
    with QdrantServer(max_body=900) as server, base(folder, server) as kb, too_large:
        kb.sync()


def test_a_write_is_no_larger_than_the_rate_of_writes_allows(tmp_path, any_server):
    folder = write_files(tmp_path / "kb", pages(10))
    with base(folder, any_server, write_rate_limit=12) as kb:
        kb.sync()
        assert len(kb.index.contents().digests) == 10


def test_a_limited_rate_of_reads_is_told(tmp_path, any_server):
    folder = write_files(tmp_path / "kb", pages(10))
    with base(folder, any_server) as kb:
        kb.sync()
        any_server.restrict("kb", read_rate_limit=30)
        graph = create_lookup_knowledge_graph(kb, record=None, options=LookupOptions(l1_timeout=60))
        found = [graph.invoke({"query": f"case word{number}"})["l1"] for number in range(20)]
        assert found[-1]["status"] in ("failed", "unavailable")
        assert "limits the rate of reads" in found[-1]["reason"]


def query(**changes):
    given = {"query": [1.0], "limit": 100, "with_payload": ["a"], **changes}
    return models.QueryRequest(**given)


def test_a_long_list_comes_by_offset():
    parts = Limits(max_query_limit=40).pages(query())
    assert [(part.limit, part.offset) for part in parts] == [(40, None), (40, 40), (20, 80)]
    assert {part.with_payload[0] for part in parts} == {"a"}
    assert [part.limit for part in Limits().pages(query())] == [100]


def test_a_condition_with_many_values_becomes_alternatives():
    conditions = server_filter([("a", ["1", "2", "3"]), ("b", ["4"])])
    (part,) = Limits(condition_max_size=2).pages(query(filter=conditions))
    first, second = part.filter.must
    assert [one.match.any for one in first.should] == [["1", "2"], ["3"]]
    assert second.match.any == ["4"]
    assert conditions.must[0].match.any == ["1", "2", "3"]


def test_a_wide_search_is_as_wide_as_allowed():
    params = models.SearchParams(hnsw_ef=512, exact=False)
    (part,) = Limits(search_max_hnsw_ef=128).pages(query(params=params))
    assert (part.params.hnsw_ef, part.params.exact) == (128, False)
