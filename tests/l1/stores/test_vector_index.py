"""Both engines behind the one Protocol: the same passages, the same answers, and failures with
names.
"""

import dataclasses
import errno
import os
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
import uuid
from contextlib import suppress

import pytest
import qdrant_server
from qdrant_server import QdrantServer

from langchain_lookup_knowledge import QdrantIndex, StoreError
from langchain_lookup_knowledge.errors import (
    IndexMissingError,
    StoreTimeoutError,
    StoreUnreachableError,
)
from langchain_lookup_knowledge.l1.deadlines import ThreadPool
from langchain_lookup_knowledge.l1.fusion import RARE, Hit
from langchain_lookup_knowledge.l1.stores import edge_shard, embedded_index
from langchain_lookup_knowledge.l1.stores.embedded_index import EmbeddedIndex
from langchain_lookup_knowledge.l1.stores.sparse import encode_query
from langchain_lookup_knowledge.l1.stores.vector_index import (
    CATEGORY_FIELD,
    ENTRY_FIELD,
    WORDS_ONLY,
    Contents,
    Point,
    Search,
    group_by_filter,
    searches,
)

FINGERPRINT = {"model": "m", "dimensions": 4, "passage_tokens": 200, "payload": 1}


def point(entry_id, number=0, dense=(1, 0, 0, 0), text="refund policy", category="a"):
    passages = 2 if entry_id == "one" else 1
    metadata = {
        "entry_id": entry_id,
        "title": entry_id,
        "categories_key": [category],
        "passages": passages,
    }
    metadata["digest"] = f"{entry_id}-digest"
    sparse = {"passage": text} | ({"entry": text, "frontmatter": text} if number == 0 else {})
    return Point(entry_id, number, dense, sparse, {"page_content": text, "metadata": metadata})


POINTS = [
    point("one", dense=(1, 0, 0, 0), text="refund policy", category="a"),
    point("one", 1, dense=(0, 1, 0, 0), text="refund form", category="a"),
    point("two", dense=(0, 0, 1, 0), text="vpn client", category="b"),
]


def contents(*entry_ids):
    return Contents(FINGERPRINT, {entry_id: f"{entry_id}-digest" for entry_id in entry_ids})


DENSE = [Search("dense", "dense", [1, 0, 0, 0], 10)]
REAL_SERVER = os.environ.get("QDRANT_URL")
ENGINES = ["embedded", "in-process", "http", *(["real"] if REAL_SERVER else [])]


@pytest.fixture(params=ENGINES)
def index(request, tmp_path):
    if request.param == "embedded":
        made = EmbeddedIndex(tmp_path / "index")
    elif request.param == "in-process":
        made = QdrantIndex(":memory:", "kb")
    elif request.param == "http":
        server = QdrantServer(strict=True)
        request.addfinalizer(server.close)
        made = QdrantIndex(server.url, "kb")
    else:
        made = QdrantIndex(
            REAL_SERVER, f"test-{uuid.uuid4().hex}", api_key=os.environ.get("QDRANT_API_KEY")
        )
        request.addfinalizer(
            lambda: made.client.delete_collection(made.generation() or made.collection)
        )
    yield made
    made.close()


def texts(answer, name="dense"):
    """Return the texts of the passages in a list of the first filter's."""
    ids = [hit.point_id for hit in answer.lists[0].lists[name]]
    payloads = answer.payloads(ids)
    return [payloads[point_id]["page_content"] for point_id in ids]


def found(ranked, name):
    return [hit.entry_id for hit in ranked.lists[name]]


def words_only(one):
    metadata = {**one.payload["metadata"], "embedded": WORDS_ONLY}
    return dataclasses.replace(one, dense=None, payload={**one.payload, "metadata": metadata})


def test_passages_without_vectors_on_purpose_are_found_by_words(index):
    index.write(contents("one", "two"), [], [[words_only(one) for one in POINTS]])
    assert index.contents() == contents("one", "two")
    for filters in ([], [(CATEGORY_FIELD, ["b"])]):
        answer = index.search([1, 0, 0, 0], "vpn", [filters], 10)
        assert texts(answer, "passage") == ["vpn client"]
        assert found(answer.lists[0], "dense") == []


def test_an_index_never_written_has_no_contents(index):
    assert index.contents() is None


def test_what_is_written_is_found(index):
    index.write(contents("one", "two"), [], [POINTS])
    assert index.contents() == contents("one", "two")
    answer = index.search([0.9, 0.1, 0, 0], "vpn", [[]], 10)
    (ranked,) = answer.lists
    assert found(ranked, "dense") == ["one", "one", "two"]
    assert ranked.lists["dense"][0].score == pytest.approx(0.9938837, abs=1e-5)
    assert (
        found(ranked, "passage")
        == found(ranked, "entry")
        == found(ranked, "frontmatter")
        == ["two"]
    )
    assert texts(answer, "passage") == ["vpn client"]


def test_a_filter_and_a_probe_go_in_one_request(index):
    index.write(contents("one", "two"), [], [POINTS])
    filtered, unfiltered = index.search(
        [1, 0, 0, 0], "refund", [[(CATEGORY_FIELD, ["b"])], []], 10
    ).lists
    assert found(filtered, "dense") == ["two"]
    assert found(filtered, "passage") == []
    assert found(unfiltered, "dense")[0] == "one"


def test_a_category_that_does_not_exist_finds_nothing(index):
    index.write(contents("one", "two"), [], [POINTS])
    (ranked,) = index.search([1, 0, 0, 0], "refund", [[(CATEGORY_FIELD, ["nowhere"])]], 10).lists
    assert not any(ranked.lists.values())
    assert not any(ranked.terms.values())


def test_a_query_without_words_is_searched_by_its_vector_alone(index):
    index.write(contents("one", "two"), [], [POINTS])
    (ranked,) = index.search([1, 0, 0, 0], "?", [[]], 1).lists
    assert (list(ranked.lists), ranked.terms) == (["dense"], {})


@pytest.mark.parametrize("query", ["2140", "extension 2140", "SN-2140"])
def test_a_number_is_a_word(index, query):
    texts = {"a": "extension 2260", "b": "Call 2140, or SN-2140.", "c": "extension 6740"}
    index.write(contents(*texts), [], [[point(name, text=text) for name, text in texts.items()]])
    (lists,) = index.search([0, 0, 0, 1], query, [[]], 10).lists
    assert lists.lists["passage"][0].entry_id == "b"


def test_an_entry_that_shrank_or_went_leaves_no_passage(index):
    index.write(contents("one", "two"), [], [POINTS])
    renewed = dataclasses.replace(
        POINTS[0], payload={**POINTS[0].payload, "metadata": {**POINTS[0].payload["metadata"]}}
    )
    renewed.payload["metadata"] |= {"digest": "new", "passages": 1}
    after = Contents(FINGERPRINT, {"one": "new"})
    index.write(after, ["one", "two"], [[renewed]])
    (ranked,) = index.search([1, 1, 1, 1], "refund vpn", [[]], 10).lists
    assert found(ranked, "dense") == ["one"]
    assert index.contents() == after


def test_an_entry_that_a_server_holds_in_part_is_not_taken_for_whole():
    index = QdrantIndex(":memory:", "kb")
    index.write(contents("one", "two"), [], [[POINTS[0]], [POINTS[2]]])
    assert index.contents().digests == {"one": "incomplete", "two": "two-digest"}


@pytest.mark.parametrize(
    "payload", [{}, {"metadata": None}, {"text": "foreign"}, {"metadata": {"entry_id": 7}}]
)
def test_points_of_others_are_left_out(index, payload):
    index.write(contents("one"), [], [[POINTS[0], dataclasses.replace(POINTS[2], payload=payload)]])
    (ranked,) = index.search([0, 0, 1, 0], "vpn", [[]], 10).lists
    assert {hit.entry_id for hits in ranked.lists.values() for hit in hits} == {"one"}


def test_each_term_of_a_query_is_searched_for_alone(index):
    texts = {"a": "Refund of E-4711.", "b": "Refund of E-4712.", "c": "Leave."}
    index.write(contents(*texts), [], [[point(name, text=text) for name, text in texts.items()]])
    (ranked,) = index.search([0, 0, 0, 1], "the refund of E-4711 or a tax", [[]], 10).lists
    held = {term: sorted(hit.entry_id for hit in hits) for term, hits in ranked.terms.items()}
    assert held == {"refund": ["a", "b"], "4711": ["a"], "e-4711": ["a"], "tax": []}
    (ranked,) = index.search([0, 0, 0, 1], "refund", [[(CATEGORY_FIELD, ["b"])]], 10).lists
    assert ranked.terms == {"refund": []}


def test_of_a_common_term_one_more_passage_than_may_be_rare_is_asked_for(index):
    texts = {f"e{number:02}": "A refund." for number in range(RARE + 5)}
    index.write(contents(*texts), [], [[point(name, text=text) for name, text in texts.items()]])
    (ranked,) = index.search([0, 0, 0, 1], "refund", [[]], 100).lists
    assert len(ranked.lists["passage"]) == RARE + 5
    assert len(ranked.terms["refund"]) == RARE + 1


def test_without_a_vector_the_words_of_a_query_are_searched_for(index):
    index.write(contents("one", "two"), [], [POINTS])
    (ranked,) = index.search(None, "vpn", [[]], 10).lists
    assert "dense" not in ranked.lists
    assert found(ranked, "passage") == ["two"]


def test_the_version_of_a_software_is_not_that_of_another(index):
    texts = {"a": "Since 2.14.3 it works.", "b": "Since 2.3.14 it works."}
    index.write(contents(*texts), [], [[point(name, text=text) for name, text in texts.items()]])
    (ranked,) = index.search([0, 0, 0, 1], "v2.14.3", [[]], 10).lists
    assert [hit.entry_id for hit in ranked.terms["2.14.3"]] == ["a"]
    assert found(ranked, "passage")[0] == "a"


def test_the_lists_of_each_filter_and_each_term_come_in_the_order_of_the_searches():
    sent = searches([1, 0, 0, 0], "refund tax", 10)
    assert [(search.name, search.using, search.limit, search.term) for search in sent] == [
        ("dense", "dense", 10, ""),
        *((name, name, 10, "") for name in ("passage", "entry", "frontmatter")),
        ("", "passage", RARE + 1, "refund"),
        ("", "passage", RARE + 1, "tax"),
    ]
    answers = [[Hit(number, f"e{number}", 0.5)] for number in range(2 * len(sent))]
    first, second = group_by_filter(2, sent, answers)
    assert list(first.lists) == ["dense", "passage", "entry", "frontmatter"]
    assert [hits[0].entry_id for hits in first.terms.values()] == ["e4", "e5"]
    assert [hits[0].entry_id for hits in second.lists.values()] == ["e6", "e7", "e8", "e9"]
    with pytest.raises(StoreError, match="wrong number of answers"):
        group_by_filter(2, sent, answers[:-1])


def test_the_words_that_the_glossary_adds_are_a_list_of_their_own(index):
    texts = {"a": "The PTO rules.", "b": "Paid time off is 25 days.", "c": "Choir."}
    index.write(contents(*texts), [], [[point(name, text=text) for name, text in texts.items()]])
    (plain,) = index.search([0, 0, 0, 1], "PTO", [[]], 10).lists
    (ranked,) = index.search([0, 0, 0, 1], "PTO", [[]], 10, glossary=["paid time off"]).lists
    assert found(ranked, "glossary") == ["b"]
    assert found(ranked, "passage") == found(plain, "passage") == ["a"]
    assert (ranked.terms, "glossary" in plain.lists) == (plain.terms, False)


def test_scores_that_are_no_numbers_are_left_out():
    (ranked,) = group_by_filter(1, DENSE, [[Hit("a", "one", float("nan")), Hit("b", "two", 0.5)]])
    assert found(ranked, "dense") == ["two"]


@pytest.mark.parametrize(
    "manifest",
    ["{", "null", "[]", '{"fingerprint": [], "digests": {}, "points": 1}', "[" * 100_000],
)
def test_a_manifest_of_another_shape_is_damage(tmp_path, manifest):
    index = EmbeddedIndex(tmp_path)
    index.write(contents("one"), [], [[POINTS[0]]])
    (tmp_path / (tmp_path / "CURRENT").read_text() / "manifest.json").write_text(manifest)
    with pytest.raises(StoreError, match="the index is damaged"):
        index.contents()


def test_lost_points_are_damage_and_not_an_empty_answer(tmp_path):
    index = EmbeddedIndex(tmp_path)
    index.write(contents("one"), [], [[POINTS[0]]])
    for path in tmp_path.rglob("mutable_id_tracker.mappings"):
        path.unlink()
    with pytest.raises(StoreError, match=r"damaged|cannot be opened"):
        EmbeddedIndex(tmp_path).search([1, 0, 0, 0], "refund", [[]], 1)


def test_point_ids_are_the_same_everywhere():
    assert POINTS[0].id == point("one").id != POINTS[1].id


def test_a_reader_follows_the_writer(tmp_path):
    reader, writer = EmbeddedIndex(tmp_path), EmbeddedIndex(tmp_path)
    with pytest.raises(StoreError, match="there is no index: run"):
        reader.search([1, 0, 0, 0], "refund", [[]], 10)
    for round_ in range(4):
        writer.write(contents("one"), ["one"], [[point("one", text=f"round {round_}")]])
        assert texts(reader.search([1, 0, 0, 0], "round", [[]], 50)) == [f"round {round_}"]
    assert len(list(tmp_path.glob("generation-*"))) == 2


def test_a_second_writer_is_told(tmp_path):
    from filelock import FileLock

    taken = pytest.raises(StoreError, match="another process is writing the index")
    with FileLock(tmp_path / "writer.lock"), taken, EmbeddedIndex(tmp_path).lock():
        pass


def test_a_write_that_fails_leaves_the_old_state(tmp_path):
    index = EmbeddedIndex(tmp_path)
    index.write(contents("one"), [], [[POINTS[0]]])

    def failing():
        yield [POINTS[2]]
        raise OSError(28, "No space left on device")

    with pytest.raises(StoreError, match="cannot be written: No space left on device"):
        index.write(contents("one", "two"), [], failing())
    assert index.contents() == contents("one")
    assert len(list(tmp_path.glob("generation-*"))) == 1
    (ranked,) = EmbeddedIndex(tmp_path).search([1, 1, 1, 1], "refund", [[]], 10).lists
    assert found(ranked, "dense") == ["one"]


def test_writing_anew_repairs_a_damaged_index_and_keeps_nothing(tmp_path):
    index = EmbeddedIndex(tmp_path)
    index.write(contents("one", "two"), [], [POINTS])
    generation = tmp_path / (tmp_path / "CURRENT").read_text()
    for path in generation.rglob("*"):
        if path.is_file():
            path.write_bytes(b"junk")
    with pytest.raises(StoreError):
        EmbeddedIndex(tmp_path).search([1, 0, 0, 0], "refund", [[]], 10)
    index.write(contents("one"), [], [[POINTS[0]]], rebuild=True)
    (ranked,) = EmbeddedIndex(tmp_path).search([1, 1, 1, 1], "refund", [[]], 10).lists
    assert found(ranked, "dense") == ["one"]


def test_writing_anew_starts_from_nothing(index):
    index.write(contents("one", "two"), [], [POINTS])
    other = Contents({**FINGERPRINT, "model": "other"}, {"two": "two-digest"})
    index.write(other, [], [[POINTS[2]]], rebuild=True)
    assert index.contents() == other
    (ranked,) = index.search([1, 1, 1, 1], "refund vpn", [[]], 10).lists
    assert found(ranked, "dense") == ["two"]


@pytest.mark.slow
def test_a_reader_that_opens_the_index_does_not_disturb_its_writer(tmp_path):
    """Edge replaces files of a shard that it opens by way of folders that come and go, here far
    more often.
    """
    index = EmbeddedIndex(tmp_path)
    index.write(contents("one", "two"), [], [POINTS])
    done = threading.Event()

    def come_and_go():
        while not done.is_set():
            with suppress(OSError):
                shard = tmp_path / (tmp_path / "CURRENT").read_text() / "shard"
                made = [shard / f".atomicwrite{number}" for number in range(20)]
                for folder in made:
                    folder.mkdir(exist_ok=True)
                for folder in made:
                    folder.rmdir()

    reader = threading.Thread(target=come_and_go)
    reader.start()
    try:
        for _ in range(10):
            index.write(contents("one", "two"), ["two"], [[POINTS[2]]])
    finally:
        done.set()
        reader.join()
    (ranked,) = index.search([1, 1, 1, 1], "refund vpn", [[]], 10).lists
    assert sorted(found(ranked, "dense")) == ["one", "one", "two"]


@pytest.mark.parametrize(
    "read", [EmbeddedIndex.contents, lambda index: index.search([0, 0, 1, 0], "vpn", [[]], 1)]
)
def test_a_reader_whose_generation_is_removed_while_it_reads_follows_the_writers(
    tmp_path, monkeypatch, read
):
    writer, reader = EmbeddedIndex(tmp_path), EmbeddedIndex(tmp_path)
    writer.write(contents("one", "two"), [], [POINTS])
    generation = EmbeddedIndex._generation

    def overtaken(self):
        monkeypatch.undo()
        before = generation(self)
        for _ in range(
            2
        ):  # the second write removes the generation that this reader is about to open
            writer.write(contents("two"), ["one"], [])
        assert not before.exists()
        return before

    monkeypatch.setattr(EmbeddedIndex, "_generation", overtaken)
    assert read(reader)
    assert reader.contents() == contents("two")


def test_an_index_that_cannot_be_read_whole_is_not_copied_in_part(tmp_path, monkeypatch):
    index = EmbeddedIndex(tmp_path)
    index.write(contents("one", "two"), [], [POINTS])
    scandir = os.scandir

    def broken(path):
        if str(path).endswith("payload_storage"):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", broken)
    with pytest.raises(StoreError, match="cannot be written: Input/output error"):
        index.write(contents("one", "two"), ["two"], [[POINTS[2]]])


@pytest.mark.parametrize("failure", [OSError(errno.EINVAL, "no such thing"), KeyboardInterrupt()])
def test_a_folder_that_cannot_be_synced_to_disk_does_not_cost_the_index(
    tmp_path, monkeypatch, failure
):
    index = EmbeddedIndex(tmp_path)
    index.write(contents("one", "two"), [], [POINTS])
    before, fsync = (tmp_path / "CURRENT").read_text(), os.fsync

    def refused(descriptor):
        if (
            stat.S_ISDIR(os.fstat(descriptor).st_mode)
            and (tmp_path / "CURRENT").read_text() != before
        ):
            raise failure
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", refused)
    with suppress(KeyboardInterrupt):
        index.write(contents("two"), ["one"], [])
    assert EmbeddedIndex(tmp_path).contents() == contents("two")


def test_no_payload_is_lost_when_the_cached_ones_make_room(tmp_path, monkeypatch):
    monkeypatch.setattr(embedded_index, "MAX_PAYLOADS", 2)
    index = EmbeddedIndex(tmp_path)
    index.write(contents("one", "two"), [], [POINTS])
    answer = index.search([1, 0, 0, 0], "", [[]], 10)
    first, second, third = (hit.point_id for hit in answer.lists[0].lists["dense"])
    assert set(answer.payloads([first, second])) == {first, second}
    assert set(answer.payloads([first, third])) == {first, third}
    assert set(answer.payloads([first, second, third])) == {first, second, third}


def both(category, entry_id="one"):
    """Return a filter with two conditions."""
    return [(CATEGORY_FIELD, [category]), (ENTRY_FIELD, [entry_id])]


def test_a_small_index_has_no_payload_indexes_and_filters_all_the_same(tmp_path, monkeypatch):
    monkeypatch.setattr(edge_shard, "SMALL_SHARD", 3)
    index = EmbeddedIndex(tmp_path)
    index.write(contents("one", "two"), [], [POINTS])
    shard = edge_shard.load(tmp_path / index.version() / "shard")
    assert not shard.info().payload_schema
    asked = [[(CATEGORY_FIELD, ["b"])], [(ENTRY_FIELD, ["one"])], both("a"), both("b")]
    expected = [["two"], ["one", "one"], ["one", "one"], []]
    for _ in range(2):
        lists = index.search([1, 1, 1, 1], "refund vpn", asked, 10).lists
        assert [found(ranked, "dense") for ranked in lists] == expected

    index.write(contents("one", "two", "three"), [], [[point("three", category="c")]])
    shard = edge_shard.load(tmp_path / index.version() / "shard")
    assert CATEGORY_FIELD in shard.info().payload_schema
    lists = index.search([1, 1, 1, 1], "refund vpn", asked, 10).lists
    assert [found(ranked, "dense") for ranked in lists] == expected


def many(numbers, word):
    """Return one passage for each number, with words of its own and one that all have."""
    return [
        point(f"page {n}", dense=(1, n % 7, n % 5, n % 3), text=f"{word} word{n} x{n % 40}")
        for n in numbers
    ]


def test_a_large_index_keeps_its_words_on_disk_and_finds_the_same(tmp_path, monkeypatch):
    names = [f"page {n}" for n in range(2000)]
    plain, large = EmbeddedIndex(tmp_path / "plain"), EmbeddedIndex(tmp_path / "large")

    def both_find_the_same():
        for query in ("word7", "word1999", "x3 word3", "edited", "added word2000"):
            lists = [
                one.search([1, 2, 3, 1], query, [[]], 50).lists[0].lists for one in (plain, large)
            ]
            for name in ("dense", "passage", "entry"):
                first, second = ({h.point_id: h.score for h in found[name]} for found in lists)
                assert sorted(first.values()) == pytest.approx(sorted(second.values()), rel=0.01)
                if len(first) < 50:  # otherwise equal scores compete for the last places
                    assert first.keys() == second.keys()

    def segments(index):
        return edge_shard.load(index._folder / index.version() / "shard").info().segments_count

    for index in (plain, large):
        index.write(contents(*names), [], [many(range(2000), "common")])
    assert segments(large) == 1
    monkeypatch.setattr(edge_shard, "LARGE_SHARD", 1000)
    large.write(contents(*names), ["page 3"], [many([3], "edited")])  # as of an older version
    assert segments(large) == 2
    monkeypatch.setattr(edge_shard, "LARGE_SHARD", 100_000)
    plain.write(contents(*names), ["page 3"], [many([3], "edited")])
    both_find_the_same()
    monkeypatch.setattr(edge_shard, "LARGE_SHARD", 1000)
    large.write(contents(*names, "page 2000"), ["page 7"], [many([2000], "added")])
    large.close()
    monkeypatch.setattr(edge_shard, "LARGE_SHARD", 100_000)
    plain.write(contents(*names, "page 2000"), ["page 7"], [many([2000], "added")])
    both_find_the_same()
    assert not large.search(None, "word7", [[]], 10).lists[0].lists["passage"]


def test_removed_passages_of_a_large_index_soon_no_longer_count_as_holders_of_words(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(edge_shard, "LARGE_SHARD", 1000)
    names = [f"page {n}" for n in range(2000)]
    few = round(2000 * edge_shard.MOST_DELETED) + 20

    def best(index):
        return index.search(None, "word1999", [[]], 5).lists[0].lists["passage"][0].score

    edited, fresh = EmbeddedIndex(tmp_path / "edited"), EmbeddedIndex(tmp_path / "fresh")
    edited.write(contents(*names), [], [many(range(2000), "common")])
    before = best(edited)
    edited.write(contents(*names[few:]), names[:few], [])
    fresh.write(contents(*names[few:]), [], [many(range(few, 2000), "common")])
    assert best(edited) == pytest.approx(best(fresh), rel=1e-6) != pytest.approx(before, rel=1e-6)


def test_filters_of_a_small_index_are_kept_up_to_a_limit(tmp_path, monkeypatch):
    monkeypatch.setattr(embedded_index, "MAX_FILTERS", 2)
    index = EmbeddedIndex(tmp_path)
    index.write(contents("one", "two"), [], [POINTS])
    for category, expected in (
        ("a", ["one", "one"]),
        ("b", ["two"]),
        ("c", []),
        ("a", ["one"] * 2),
    ):
        (ranked,) = index.search([1, 1, 1, 1], "", [[(CATEGORY_FIELD, [category])]], 10).lists
        assert found(ranked, "dense") == expected
        assert len(index._opened().filters) <= 2


def test_a_filter_that_another_thread_forgets_at_once_is_used_all_the_same(tmp_path):
    class Forgetful(dict):
        def __setitem__(self, key, value):
            super().__setitem__(key, value)
            self.clear()

    index = EmbeddedIndex(tmp_path)
    index.write(contents("one", "two"), [], [POINTS])
    index._open = index._opened()._replace(filters=Forgetful())
    (ranked,) = index.search([1, 1, 1, 1], "", [[(CATEGORY_FIELD, ["b"])]], 10).lists
    assert found(ranked, "dense") == ["two"]


def test_a_write_serves_the_next_search_with_the_shard_that_it_opened(tmp_path, monkeypatch):
    loads = []
    real = edge_shard.load
    monkeypatch.setattr(embedded_index, "load", lambda path: loads.append(path) or real(path))
    index = EmbeddedIndex(tmp_path)
    index.write(contents("one"), [], [POINTS[:2]])
    before = len(loads)
    index.write(contents("one", "two"), [], [POINTS[2:]])
    assert texts(index.search([0, 0, 1, 0], "vpn", [[]], 10))[0] == "vpn client"
    assert len(loads) == before + 1  # to settle what was written
    other = EmbeddedIndex(tmp_path)  # as another process
    assert texts(other.search([0, 0, 1, 0], "vpn", [[]], 10))[0] == "vpn client"


def test_an_entry_whose_first_passage_is_lost_is_removed_all_the_same(tmp_path):
    index = EmbeddedIndex(tmp_path)
    index.write(contents("one", "two"), [], [POINTS[1:]])
    index.write(contents("two"), ["one"], [])
    (ranked,) = index.search([1, 1, 1, 1], "", [[]], 10).lists
    assert found(ranked, "dense") == ["two"]


@pytest.mark.parametrize("number", [0, -1, 10**15, None, "2"])
def test_an_entry_whose_number_of_passages_is_damaged_is_removed_all_the_same(tmp_path, number):
    first, second, other = POINTS
    metadata = {**first.payload["metadata"], "passages": number}
    first = dataclasses.replace(first, payload={**first.payload, "metadata": metadata})
    index = EmbeddedIndex(tmp_path)
    index.write(contents("one", "two"), [], [[first, second, other]])
    index.write(contents("two"), ["one"], [])
    (ranked,) = index.search([1, 1, 1, 1], "", [[]], 10).lists
    assert found(ranked, "dense") == ["two"]


READER = """
import sys, pathlib
from langchain_lookup_knowledge.l1.stores.embedded_index import EmbeddedIndex
folder, stop = map(pathlib.Path, sys.argv[1:])
lookups = 0
while not stop.exists():
    answer = EmbeddedIndex(folder).search([1, 0, 0, 0], "round", [[]], 50)
    payloads = answer.payloads([hit.point_id for hit in answer.lists[0].lists["dense"]])
    texts = {payload["page_content"] for payload in payloads.values()}
    assert len(payloads) == 20 and len(texts) == 1, texts
    lookups += 1
print(lookups)
"""


@pytest.mark.slow
def test_processes_that_open_the_index_all_the_time_neither_fail_nor_disturb_the_writer(tmp_path):
    folder, stop = tmp_path / "index", tmp_path / "stop"
    index = EmbeddedIndex(folder)

    def write(text):
        index.write(
            contents("one"), ["one"], [[point("one", number, text=text) for number in range(20)]]
        )

    write("round 0")
    command = [sys.executable, "-c", READER, str(folder), str(stop)]
    readers = [
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    try:
        for round_ in range(1, 40):
            write(f"round {round_}")
            time.sleep(0.02)
    finally:
        stop.touch()
        outputs = [reader.communicate(timeout=60) for reader in readers]
    for printed, failed in outputs:
        assert failed == ""
        assert int(printed) > 0


def test_a_collection_of_somebody_elses_is_refused():
    from qdrant_client import models

    index = QdrantIndex(":memory:", "theirs")
    index.client.create_collection(
        "theirs", vectors_config=models.VectorParams(size=4, distance=models.Distance.DOT)
    )
    with pytest.raises(StoreError, match='"theirs" was not made by this package'):
        index.contents()


def test_a_server_out_of_reach_is_told_without_its_key():
    index = QdrantIndex("https://127.0.0.1:9", "kb", api_key="sk-SECRET", timeout=1)
    with pytest.raises(StoreError, match="cannot be reached") as raised:
        index.search([1, 0, 0, 0], "x", [[]], 1)
    assert "SECRET" not in str(raised.value) + repr(index)


@pytest.fixture
def server():
    with QdrantServer() as made:
        yield made


@pytest.fixture
def on_server(server):
    made = QdrantIndex(server.url, "kb")
    made.write(contents("one", "two"), [], [POINTS])
    server.requests.clear()
    yield made
    made.close()


def search(index, category=None):
    conditions = [(CATEGORY_FIELD, [category])] if category else []
    answer = index.search([1, 0, 0, 0], "refund", [conditions], 10)
    return [entry_id for _, entry_id, _ in answer.lists[0].lists["dense"]]


@pytest.mark.process
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_child_has_connections_of_its_own(on_server):
    before = on_server.client
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        os._exit(0 if on_server.client is not before and search(on_server)[0] == "one" else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert on_server.client is before


PASSING = {
    "reset": qdrant_server.reset,
    "429": qdrant_server.status(429),
    "429, try at once": qdrant_server.status(429, retry_after="0"),
    "500": qdrant_server.status(500),
    "503": qdrant_server.status(503),
}


@pytest.mark.parametrize("fault", PASSING.values(), ids=PASSING)
def test_what_fails_in_passing_is_sent_once_more(server, on_server, fault):
    server.misbehave(fault, times=1)
    assert search(on_server)[0] == "one"
    server.misbehave(fault)
    with pytest.raises(StoreUnreachableError):
        search(on_server)
    assert len(server.requests) == 4


def test_a_request_that_got_no_answer_is_sent_once_more_if_there_is_time(server, on_server):
    impatient = QdrantIndex(server.url, "kb", timeout=1)
    server.misbehave(qdrant_server.hang, times=1)
    assert ThreadPool().run(lambda: search(impatient), 30)[0] == "one"
    assert [line.split("/")[-1] for line in server.requests[:2]] == ["batch?timeout=1"] * 2
    impatient.close()


@pytest.mark.parametrize("code", [400, 401, 403, 404])
def test_a_refusal_is_not_sent_again(server, on_server, code):
    server.misbehave(qdrant_server.status(code), where="query")
    with pytest.raises(StoreError, match=f"HTTP {code}"):
        search(on_server)
    assert [line for line in server.requests if "query" in line] == [
        "POST /collections/kb/points/query/batch?timeout=5"
    ]


def test_a_server_that_asks_for_a_longer_wait_than_there_is_time_is_not_asked_again(
    server, on_server
):
    server.misbehave(qdrant_server.status(429, retry_after="5"))
    with pytest.raises(StoreUnreachableError, match="HTTP 429"):
        ThreadPool().run(lambda: search(on_server), 2)
    assert len(server.requests) == 1


def test_a_request_is_kept_within_the_time_that_is_left(server, on_server, monkeypatch):
    """The client counts whole seconds; a thread that waited those would be lost to other calls
    meanwhile.
    """
    server.misbehave(qdrant_server.hang)
    set_limit, limits, ended = socket.socket.settimeout, [], threading.Event()
    callers = []

    def watched(connection, seconds):
        if threading.current_thread() in callers:
            limits.append(seconds)
        set_limit(connection, seconds)

    def call():
        callers.append(threading.current_thread())
        try:
            search(on_server)
        finally:
            ended.set()

    monkeypatch.setattr(socket.socket, "settimeout", watched)
    with pytest.raises(StoreTimeoutError):
        ThreadPool().run(call, 0.1)
    assert ended.wait(60)
    assert min(limits) > 0
    assert max(limits) <= 0.1
    assert server.requests == ["POST /collections/kb/points/query/batch?timeout=1"]


def test_a_write_outlives_a_passing_failure(server):
    index = QdrantIndex(server.url, "kb")
    server.misbehave(qdrant_server.status(503), times=1, where="PUT /collections/kb/points")
    index.write(contents("one", "two"), [], [POINTS])
    assert index.contents() == contents("one", "two")


def test_strict_mode_names_the_field_and_the_fix(server, on_server):
    server.restrict("kb", unindexed_filtering_retrieve=False)
    assert search(on_server, "b") == ["two"]
    server._indexed[server.target("kb")].clear()
    with pytest.raises(
        StoreError, match=r'payload index on "metadata\.categories_key" of collection "kb": run'
    ):
        search(on_server, "b")


def test_a_collection_made_strict_takes_every_filter_of_ours(server):
    from qdrant_client import models

    strict = models.StrictModeConfig(
        enabled=True, unindexed_filtering_retrieve=False, unindexed_filtering_update=False
    )
    index = QdrantIndex(server.url, "strict", collection_options={"strict_mode_config": strict})
    index.write(contents("one", "two"), [], [POINTS])
    index.write(contents("one"), ["two"], [])
    assert search(index, "a") == ["one", "one"]
    assert search(index, "b") == []


def test_other_dimensions_are_told_in_numbers(on_server):
    with pytest.raises(
        StoreError,
        match="embedding is 3-d, collection is 4-d: run `lookup-knowledge index --rebuild`",
    ):
        on_server.search([1, 0, 0], "refund", [[]], 10)


def test_the_api_key_opens_the_server_and_another_is_refused():
    with QdrantServer(api_key="sk-RIGHT") as server:
        index = QdrantIndex(server.url, "kb", api_key="sk-RIGHT")
        index.write(contents("one", "two"), [], [POINTS])
        assert search(index)[0] == "one"
        refused = r"refuses the API key \(HTTP 401\): check api_key"
        for key, says in (("sk-WRONG", refused), (None, r"none was sent \(HTTP 401\)")):
            with pytest.raises(StoreError, match=says) as raised:
                search(QdrantIndex(server.url, "kb", api_key=key))
            assert "WRONG" not in str(raised.value)


def test_a_server_too_old_is_told_with_both_versions(server, on_server):
    from importlib.metadata import version

    server.misbehave(qdrant_server.raw(404, b""), where="/points/query")
    with pytest.raises(
        StoreError,
        match=rf"Qdrant server 1\.9\.0 does not support a .*-client {version('qdrant-client')}",
    ):
        search(on_server)


@pytest.mark.parametrize(
    ("code", "details", "error", "says"),
    [
        ("UNAVAILABLE", "", StoreUnreachableError, "cannot be reached"),
        ("RESOURCE_EXHAUSTED", "", StoreUnreachableError, "overloaded or failing"),
        ("DEADLINE_EXCEEDED", "", StoreTimeoutError, "did not answer in time"),
        ("UNAUTHENTICATED", "sk-SECRET", StoreError, "refuses the API key"),
        (
            "NOT_FOUND",
            "Not found: Collection `kb` doesn't exist!",
            IndexMissingError,
            'collection "kb" does not exist: run',
        ),
        (
            "INVALID_ARGUMENT",
            "Vector dimension error: expected dim: 4, got 3",
            StoreError,
            "embedding is 3-d",
        ),
    ],
)
def test_failures_over_grpc_have_the_same_names(code, details, error, says):
    from concurrent.futures import ThreadPoolExecutor

    import grpc
    from qdrant_client import QdrantClient

    class Refusing(grpc.GenericRpcHandler):
        def service(self, handler_call_details):
            return grpc.unary_unary_rpc_method_handler(
                lambda request, context: context.abort(getattr(grpc.StatusCode, code), details)
            )

    served = grpc.server(ThreadPoolExecutor(2), handlers=[Refusing()])
    port = served.add_insecure_port("127.0.0.1:0")
    served.start()
    index = QdrantIndex("http://127.0.0.1:9", "kb", api_key="sk-KEY")
    index.connection._client = QdrantClient(
        "127.0.0.1", grpc_port=port, prefer_grpc=True, check_compatibility=False
    )
    with pytest.raises(error, match=says) as raised:
        search(index)
    assert "SECRET" not in str(raised.value)
    index.close()
    served.stop(None).wait()


def test_cosines_out_of_range_are_refused():
    with pytest.raises(StoreError, match="cosines outside -1 to 1"):
        group_by_filter(1, DENSE, [[Hit("a", "one", 5.0)]])


def test_a_disk_without_room_is_told_before_it_is_written(tmp_path, monkeypatch):
    monkeypatch.setattr("langchain_lookup_knowledge.l1.stores.generations.LEAST_ROOM", 10**18)
    with pytest.raises(StoreError, match="MB are free: free some space, or move the index"):
        EmbeddedIndex(tmp_path).write(contents("one"), [], [[POINTS[0]]])
    assert not list(tmp_path.glob("generation-*"))


def test_the_numbers_of_a_version_are_no_words_of_titles():
    wanted = {search.name: search.vector for search in searches(None, "changed in v2.14.3", 10)}
    assert wanted["entry"] == wanted["frontmatter"] == encode_query(["changed", "2.14.3"])
    assert wanted["passage"] == encode_query(["changed", "2", "14", "3", "2.14.3"])
    for text in ("page 14", "page 14 of v2.14.3"):
        (page,) = [s.vector for s in searches(None, text, 10) if s.name == "frontmatter"]
        assert page == encode_query(["page", "14", *["2.14.3"] * ("v2" in text)])
