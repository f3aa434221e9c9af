"""Which entries an answer has, and in what order."""

from functools import partial

import pytest
from parts.found import NO_HINTS, candidate, found_entry, hints, passage

from langchain_lookup_knowledge.lookup.answer import merging
from langchain_lookup_knowledge.lookup.answer.merging import (
    WEAK,
    layer,
    specific_entries,
    without_weak,
)


def passages_of(entry_id):
    return [passage(f"text of {entry_id}", 0.0, None, similarity=None)]


merge = partial(merging.merge, medium=0.4, passages=passages_of)
merge_without_l1 = partial(merging.merge_without_l1, passages=passages_of)


def described(entry_id):
    return {"entry_id": entry_id, "title": entry_id, "categories": [], "words": ["some", "words"]}


def ids(found):
    return [entry.entry_id for entry in found]


def texts(entry):
    return [one["text"] for one in entry.passages]


def test_without_l1_the_hinted_entries_answer():
    (entry,) = merge_without_l1(hints("a", "b"), limit=1)
    assert (entry.entry_id, entry.layers, entry.similarity) == ("a", ("L0",), None)
    assert texts(entry) == ["text of a"]


def test_an_entry_with_a_specific_term_is_never_trimmed_away():
    candidates = [candidate(f"c{i}", score=0.9 - i / 1000) for i in range(9)]
    found = merge(hints("rare"), candidates, limit=5)
    assert "rare" in ids(found)
    assert len(found) == 5
    (rare,) = (entry for entry in found if entry.entry_id == "rare")
    assert (rare.layers, texts(rare)) == (("L0",), ["text of rare"])


def test_a_specific_term_has_no_place_kept_where_its_filter_was_relaxed():
    candidates = [candidate(f"c{i}", score=0.9 - i / 1000) for i in range(9)]
    assert "rare" not in ids(merge(hints("rare"), candidates, limit=5, weigh_hints=False))


def test_a_single_match_is_the_best_one():
    assert ids(merge(hints("rare"), [candidate("best", score=0.9)], limit=1)) == ["best"]


def test_an_entry_with_common_terms_only_does_not_push_in():
    assert ids(merge(hints("common", specific=False), [candidate("c")], limit=5)) == ["c"]


def test_both_layers_are_named_where_both_found_the_entry():
    (entry,) = merge(hints("a"), [candidate("a")], limit=5)
    assert entry.layers == ("L0", "L1")
    assert entry.matched == [{"field": "keywords", "text": "kw-a"}]
    assert texts(entry) == ["text of a"]


def test_an_entry_of_l1_alone_has_no_declared_term():
    (entry,) = merge(NO_HINTS, [candidate("a")], limit=5)
    assert (entry.layers, entry.matched) == (("L1",), ())


def test_an_entry_hinted_at_by_its_title_alone_is_matched_by_that():
    found = hints("a")
    found["entries"][0]["keywords"] = []
    (entry,) = merge_without_l1(found, limit=5)
    assert entry.matched == [{"field": "title", "text": "a"}]


@pytest.mark.parametrize("weigh_hints", [True, False])
@pytest.mark.parametrize(("similarity", "first"), [(0.1, "rare"), (0.4, "noise"), (None, "noise")])
def test_where_meaning_says_little_its_weight_goes_to_the_declared_terms(
    similarity, first, weigh_hints
):
    candidates = [candidate("noise", similarity, 0.4), candidate("rare", similarity and 0.01, 0.3)]
    found = merge(hints("rare"), candidates, limit=2, weigh_hints=weigh_hints)
    assert ids(found)[0] == first


def test_misleading_hints_do_not_lift_an_entry():
    candidates = [candidate("good", score=0.02), candidate("hinted", score=0.019)]
    assert ids(merge(hints("hinted"), candidates, limit=2)) == ["hinted", "good"]
    assert ids(merge(hints("hinted"), candidates, limit=2, weigh_hints=False)) == ["good", "hinted"]


def test_ties_are_broken_by_entry_id():
    assert ids(merge(NO_HINTS, [candidate("b"), candidate("a")], limit=2)) == ["a", "b"]


@pytest.mark.parametrize(
    ("given", "candidates", "words", "expected"),
    [
        (NO_HINTS, [], [], "none"),
        (NO_HINTS, [], [described("a")], "L0"),
        (hints("a"), [], [], "L0"),
        (NO_HINTS, [candidate("b")], [], "L1"),
        (hints("a"), [candidate("b")], [], "L0+L1"),
    ],
)
def test_layer(given, candidates, words, expected):
    found = (
        merge(given, candidates, limit=5)
        if candidates
        else merge_without_l1(given, limit=5, described=words)
    )
    assert layer(given, candidates, found) == expected


def test_without_l1_specific_terms_come_first_then_words_then_metadata_then_other_hints():
    common, rare = hints("common", specific=False), hints("rare")
    both = {
        **common,
        "entries": common["entries"] + rare["entries"],
        "terms": common["terms"] + rare["terms"],
    }
    found = merge_without_l1(
        both,
        limit=5,
        described=[described("b"), described("rare")],
        by_words=[candidate("body"), candidate("b", passages=[passage("by words")])],
    )
    assert ids(found) == ["rare", "body", "b", "common"]
    assert [entry.score for entry in found] == sorted(
        (entry.score for entry in found), reverse=True
    )
    assert {entry.layers for entry in found} == {("L0",)}
    assert {entry.similarity for entry in found} == {None}
    some_words = {"field": "metadata", "text": "some words"}
    assert found[0].matched == [{"field": "keywords", "text": "kw-rare"}, some_words]
    assert (found[1].matched, texts(found[1])) == ((), ["text of body"])
    assert (found[2].matched, texts(found[2])) == ([some_words], ["by words"])
    assert found[3].matched == [{"field": "keywords", "text": "kw-common"}]


def test_specific_entries_are_those_that_declare_a_specific_term_whatever_its_case():
    given = hints("a", "b")
    given["terms"] = [
        {"text": "KW-A", "field": "keywords", "specific": True},
        {"text": "kw-b", "field": "keywords", "specific": False},
    ]
    assert specific_entries(given) == ["a"]


def test_what_is_far_below_the_best_is_dropped():
    scores = [0.8, 0.8 * WEAK + 1e-6, 0.8 * WEAK - 1e-6, 0.0]
    found = [found_entry(entry_id=str(n), score=s) for n, s in enumerate(scores)]
    assert ids(without_weak(found, "high")) == ["0", "1"]
    assert without_weak([], "none") == []


@pytest.mark.parametrize(("level", "kept"), [("low", 2), ("medium", 5), ("high", 5)])
def test_of_an_answer_that_claims_little_few_entries_are_left(level, kept):
    found = [found_entry(entry_id=str(n)) for n in range(5)]
    assert without_weak(found, level) == found[:kept]


def test_beside_a_weak_first_match_stays_the_one_with_the_best_passage():
    found = [
        found_entry(passage("text", s), entry_id=str(n)) for n, s in enumerate((0.9, 0.2, 0.7))
    ]
    assert ids(without_weak(found, "low")) == ["0", "2"]


@pytest.mark.parametrize(
    ("level", "specific", "kept"),
    [
        ("high", ["4", "5"], "0124"),
        ("low", ["4", "5"], "04"),
        ("low", ["2", "4"], "02"),
        ("low", ["1", "4"], "01"),
        ("high", ["2", "4"], "012"),
        ("high", ["elsewhere"], "012"),
    ],
)
def test_one_entry_that_a_specific_term_hints_at_is_never_dropped(level, specific, kept):
    scores = [1.0, 0.9, 0.8, 0.1, 0.1, 0.1]
    found = [found_entry(entry_id=str(n), score=score) for n, score in enumerate(scores)]
    assert ids(without_weak(found, level, specific)) == list(kept)


def test_an_entry_with_an_exact_thing_of_the_query_keeps_a_place():
    others = [candidate(f"note-{n}", score=0.9 - n / 100) for n in range(5)]
    holder = candidate("codes", score=0.1, passages=[passage("E-4711 is it.", rare=["e-4711"])])
    found = merge(NO_HINTS, [*others, holder], limit=3)
    assert ids(found) == ["note-0", "note-1", "codes"]
    assert ids(without_weak(found, "high")) == ["note-0", "note-1", "codes"]
    assert ids(without_weak(found, "low")) == ["note-0", "codes"]


def test_a_rare_word_that_is_no_exact_thing_keeps_no_place():
    others = [candidate(f"note-{n}", score=0.9) for n in range(3)]
    holder = candidate("diary", score=0.1, passages=[passage("A gizmo.", rare=["gizmo"])])
    assert "diary" not in ids(merge(NO_HINTS, [*others, holder], limit=3))


def test_the_entry_of_one_of_the_best_passages_is_a_match_though_it_ranks_lower():
    found = [candidate(f"{n}.md", score=0.5 - n / 100) for n in range(8)]
    found[6]["passages"][0]["score"] = 0.9
    merged = merge(NO_HINTS, found, limit=4)
    ids = [entry.entry_id for entry in merged]
    assert ids[0] == "0.md"
    assert ids[-1] == "6.md"
    assert len(ids) == 4
