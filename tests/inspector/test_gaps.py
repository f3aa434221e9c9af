"""What the folder lacks: which lookups are gaps, which are closed, and which ask for the same."""

from datetime import UTC, datetime, timedelta

import pytest
from conftest import WordEmbeddings

from langchain_lookup_knowledge.inspector.gaps import (
    Gap,
    Proof,
    QueryVectors,
    gaps_in,
    grouped,
    may_get_keywords,
    missing_words,
    proof_in,
    proven,
    unshown_words,
)
from langchain_lookup_knowledge.reading.entry import Entry
from langchain_lookup_knowledge.records.feedback import gap_key
from langchain_lookup_knowledge.records.invocations import hash_of
from langchain_lookup_knowledge.records.rows import readable_details

NOW = datetime(2026, 3, 1, tzinfo=UTC)


def row(number, query, level="low", status="ok", l1="ok", **scope):
    return {
        "id": f"i{number}",
        "short_query": query,
        "level": level,
        "status": status,
        "l1_status": l1,
        "moment": str(NOW - timedelta(hours=number)),
        "scope": scope,
    }


def found(rows, done=(), judged=()):
    gaps = gaps_in(rows, dict(done), dict(judged))
    return [(gap.query, gap.times, gap.closed) for gap in gaps]


@pytest.mark.parametrize(
    ("given", "is_gap"),
    [
        ({}, True),
        ({"level": "none", "status": "no_match", "l1": "empty"}, True),
        ({"level": "none", "status": "no_match", "l1": "below_threshold"}, True),
        ({"level": "medium"}, False),
        ({"status": "degraded", "l1": "timeout"}, False),
        ({"level": "none", "status": "no_match", "l1": "failed"}, False),
        ({"level": "none", "status": "no_match", "l1": "disabled"}, False),
        ({"level": "none", "status": "refused", "l1": "skipped"}, False),
    ],
)
def test_only_lookups_in_which_l1_took_part_are_gaps(given, is_gap):
    assert bool(found([row(1, "zebra", **given)])) == is_gap


def test_gaps_are_counted_and_closed_by_a_later_lookup_or_by_hand():
    rows = [
        row(1, "found since", level="high"),
        row(2, "zebra"),
        row(3, "done"),
        row(4, "done"),
        row(5, "asked again"),
        row(6, "zebra"),
        row(7, "found since"),
        row(8, "zebra", level="high"),
    ]
    done = {hash_of("done"): NOW - timedelta(hours=2)}
    done[hash_of("asked again")] = NOW - timedelta(hours=6)
    assert found(rows, done) == [
        ("done", 2, "done"),
        ("zebra", 2, ""),
        ("asked again", 1, ""),
        ("found since", 1, "found"),
    ]


def test_what_people_said_decides():
    rows = [row(1, "wrong", level="high"), row(2, "right")]
    (gap,) = gaps_in(rows, {}, {"i1": False, "i2": True})
    assert (gap.query, gap.wrong) == ("wrong", True)


def test_nothing_found_without_vector_search_is_no_gap_whatever_people_said():
    missed = row(1, "zebra", level="none", status="no_match", l1="failed")
    assert gaps_in([missed], {}, {"i1": False}) == []


def test_queries_that_ask_for_nearly_the_same_are_one_gap():
    queries = ("vpn on my laptop", "laptop with vpn on", "parental leave", "")
    gaps = gaps_in([row(n, query) for n, query in enumerate(queries)], {}, {})
    embedding, vectors = WordEmbeddings(), QueryVectors()
    groups = grouped(gaps, lambda texts: vectors.of(embedding, texts), 0.6)
    assert sorted(sorted(gap.query for gap in group) for group in groups) == [
        [""],
        ["laptop with vpn on", "vpn on my laptop"],
        ["parental leave"],
    ]


def test_a_gap_is_closed_only_by_a_later_lookup_in_its_own_scope():
    rows = [
        row(1, "what is BIR-9100", level="high", customer="birch"),
        row(2, "what is BIR-9100", customer="alder"),
        row(3, "what is BIR-9100"),
        row(4, "what is BIR-9100", customer="alder"),
        row(5, "what is BIR-9100", customer="birch"),
    ]
    gaps = gaps_in(rows, {gap_key("what is BIR-9100", {}): NOW}, {})
    assert [(gap.scope, gap.times, gap.closed) for gap in gaps] == [
        ({"customer": "alder"}, 2, ""),
        ({}, 1, "done"),
        ({"customer": "birch"}, 1, "found"),
    ]


def test_gaps_of_different_scopes_are_never_grouped():
    rows = [row(1, "vpn on linux", customer="alder"), row(2, "vpn at home", customer="birch")]
    rows += [row(3, "vpn at home", customer="alder"), row(4, "vpn at home")]
    for vectors in (lambda texts: [[1.0]] * len(texts), lambda texts: None):
        groups = grouped(gaps_in(rows, {}, {}), vectors, 0.6)
        held = [[gap.scope.get("customer") for gap in group] for group in groups]
        assert sorted(held, key=str) == [["alder", "alder"], ["birch"], [None]]


@pytest.mark.parametrize(
    ("attributes", "may"),
    [
        ([("customer", "alder")], True),
        ([("customer", "alder"), ("customer", "birch")], False),
        ([("customer", "birch")], False),
        ([("customer", "alder"), ("public", "true")], False),
        ([], False),
    ],
)
def test_words_of_a_scope_go_only_to_entries_that_no_other_scope_sees(attributes, may):
    entry = Entry("a.md", "A", (), (), (), "", attributes=tuple(attributes))
    assert may_get_keywords(entry, {"Customer": "alder"}) is may
    assert may_get_keywords(entry, {}) is may_get_keywords(None, {}) is True
    assert may_get_keywords(None, {"customer": "alder"}) is False


def test_hashed_queries_are_not_embedded_and_each_is_a_gap_of_its_own():
    hashed = [hash_of(query) for query in ("vpn", "leave", "vpn")]
    rows = [row(n, query) for n, query in enumerate((*hashed, "vpn on", "on vpn"))]
    asked = []

    def alike(texts):
        asked.extend(texts)
        return [[1.0]] * len(texts)

    for vectors in (alike, lambda texts: None):
        groups = grouped(gaps_in(rows, {}, {}), vectors, 0.6)
        assert sorted((group[0].times, len(group)) for group in groups) == [(1, 1), (1, 2), (2, 1)]
        assert sorted(map(len, groups[:2])) == [1, 2]  # asked twice, each
    assert sorted(asked) == ["on vpn", "vpn on"]


def test_pages_that_are_made_at_the_same_time_do_not_take_vectors_from_each_other():
    vectors = QueryVectors()

    class Interrupted(WordEmbeddings):
        def embed_query(self, text):
            if text == "laptop":
                assert len(vectors.of(self, ["leave"])) == 1  # another page is made meanwhile
            return super().embed_query(text)

    assert len(vectors.of(Interrupted(), ["vpn", "laptop"])) == 2


def test_where_the_model_fails_gaps_are_grouped_by_their_words():
    embedding = WordEmbeddings()
    embedding.failure = RuntimeError("a detail")
    gaps = gaps_in([row(1, "vpn on linux"), row(2, "vpn at home"), row(3, "zebra")], {}, {})
    groups = grouped(gaps, lambda texts: QueryVectors().of(embedding, texts), 0.6)
    assert [len(group) for group in groups] == [2, 1]


def test_words_that_no_passage_holds_are_suggested():
    def suggested(query, **rare):
        return missing_words(Gap(query, details=readable_details({"rare": rare})))

    query = "stickers at the packing desk, with E-5120"
    absent = {"sticker": 0, "printer": 0, "packing": 3, "e-5120": 0, "5120": 0}
    assert suggested(query, **absent) == ["E-5120", "stickers"]
    assert suggested("anything") == []


WEAK = {"entry_id": "a.md", "score": 0.3, "similarity": 0.2, "layers": ["L1"]}


@pytest.mark.parametrize(
    ("expected", "matches", "rare"),
    [
        (Proof.NOTHING, [], {}),
        (Proof.EXACT, [{**WEAK, "score": 0.8}], {"e-5120": 0, "5120": 0, "scanner": 1}),
        (Proof.NONE, [{**WEAK, "score": 0.8}], {"18": 0, "month": 3}),  # "18 months" or "1.5 years"
        (Proof.NONE, [{**WEAK, "score": 0.8}], {"no_pubkey": 0}),  # a name, not a code
        (Proof.WEAK, [WEAK], {"jacket": 0, "cost": 8}),
        (Proof.NONE, [{**WEAK, "similarity": None}], {"jacket": 0}),
        (Proof.WEAK, [{**WEAK, "similarity": None, "score": 0.2}], {"jacket": 0}),
        (Proof.NONE, [WEAK], {"cost": 8}),
        (Proof.NONE, [{**WEAK, "score": 0.6}], {"jacket": 0}),
        (Proof.NONE, [{**WEAK, "layers": ["L0", "L1"]}], {"jacket": 0}),
        (Proof.NONE, [{**WEAK, "score": None}], {"jacket": 0}),
    ],
)
def test_a_gap_is_what_the_record_proves(expected, matches, rare):
    assert proof_in(readable_details({"matches": matches, "rare": rare}), []) is expected


def test_rare_words_that_were_not_shown_prove_a_weak_match():
    shown = {**WEAK, "matched": [{"field": "text", "text": "Docker price"}]}
    given = {"matches": [shown], "rare": {"docker": 9, "stock": 2, "price": 3, "zebra": 0}}
    details = readable_details(given)
    assert unshown_words("stock prices, or the price of Docker", details) == ["stock"]
    assert unshown_words("the price of Docker", details) == []
    details = readable_details({**given, "rare": {"docker": 9, "stock": 2}})
    assert proof_in(details, ["stock"]) is Proof.WEAK
    assert proof_in(details, []) is Proof.NONE
    strong = readable_details({**given, "matches": [{**shown, "score": 0.6}], "rare": {}})
    assert proof_in(strong, ["stock"]) is Proof.NONE


def test_the_most_certain_gaps_come_first():
    rows = [row(1, "wrong", level="high"), row(2, "weak"), row(3, "doubtful"), row(4, "nothing")]
    rows += [row(5, "weak"), row(6, "not read"), row(7, "weaker"), row(8, "doubtful")]
    details = {
        "i1": {"matches": [WEAK]},
        "i2": {"matches": [WEAK], "rare": {"weak": 0}},
        "i3": {"matches": [WEAK]},
        "i4": {},
        "i7": {"matches": [{**WEAK, "score": 0.2}]},
    }

    def records(ids):
        return [
            {"id": i, "query": "", "retrieval_details": details[i]} for i in ids if i in details
        ]

    gaps = proven(gaps_in(rows, {}, {"i1": False}), records)
    assert [(gap.query, gap.proof.name) for gap in gaps] == [
        ("wrong", "WRONG"),
        ("nothing", "NOTHING"),
        ("weak", "WEAK"),
        ("weaker", "NONE"),
        ("doubtful", "NONE"),
    ]
    groups = grouped(gaps[1:3], lambda texts: [[1.0, 0.0], [0.0, 1.0]], 0.6)
    assert [group[0].query for group in groups] == ["nothing", "weak"]  # asked once, and twice
