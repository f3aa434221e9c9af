"""Fusion, merging and what a result may claim."""

from functools import partial

import pytest

from langchain_lookup_knowledge import merging
from langchain_lookup_knowledge.filters import choose_filter, hides_better
from langchain_lookup_knowledge.graph import no_hints
from langchain_lookup_knowledge.merging import (
    FULL_LIST,
    Hit,
    RankedEntry,
    Thresholds,
    above,
    assess,
    layer,
    shorten,
)

NO_HINTS = no_hints()
THRESHOLDS = Thresholds(medium=0.4, high=0.6)
fuse = partial(merging.fuse, medium=0.3)
merge = partial(merging.merge, medium=0.4)


def hit(entry_id, score=0.5, number=0):
    return Hit(number, entry_id, score)


def candidate(entry_id, similarity=0.5, score=0.01):
    metadata = {"title": entry_id.upper(), "categories": [], "source": entry_id, "heading": ""}
    ranked = RankedEntry(entry_id, score, similarity, 0)
    return merging.candidate(ranked, {"page_content": f"text of {entry_id}", "metadata": metadata})


def hints(*entries, specific=True, domains=()):
    """Hints in which each entry has a keyword of its own."""
    terms = [{"text": f"kw-{i}", "field": "keywords", "specific": specific} for i in entries]
    listed = [
        {"entry_id": i, "title": i, "domains": [], "keywords": [f"kw-{i}"], "entities": [], "score": 1.0}
        for i in entries
    ]
    return {**NO_HINTS, "entries": listed, "terms": terms, "domains": list(domains)}


def described(entry_id):
    return {"entry_id": entry_id, "title": entry_id, "domains": [], "words": ["some", "words"]}


def ids(matches):
    return [match["entry_id"] for match in matches]


def excerpt(entry_id):
    return f"text of {entry_id}"


def full(*hits, lowest):
    """Return a full dense list: these hits, and as many others as it takes, none of them of an entry that matters."""
    return [*hits, *(hit("other", lowest) for _ in range(FULL_LIST - len(hits)))]


def scores(fused):
    return {entry.entry_id: round(entry.score, 6) for entry in fused if entry.entry_id != "other"}


def test_fusion_is_the_weighted_sum_of_scores_relative_to_each_list():
    dense = full(hit("a", 0.6), hit("b", 0.3), lowest=0.2)
    fused = fuse({"dense": dense, "entry": [hit("b", 12.0), hit("c", 3.0)], "frontmatter": [hit("a", 7.0)]})
    assert scores(fused) == {
        "a": pytest.approx((2.0 + 0.3) / 3.8, abs=1e-6),
        "b": pytest.approx((2.0 * 0.25 + 1.0) / 3.8, abs=1e-6),
        "c": pytest.approx(0.25 / 3.8, abs=1e-6),
    }
    assert [entry.entry_id for entry in fused][:2] == ["a", "b"]


def test_the_range_in_which_a_model_has_its_cosines_does_not_matter():
    entry = [hit("c", 9.0), hit("b", 6.0), hit("a", 3.0)]
    wide = fuse({"dense": full(hit("a", 0.7), hit("b", 0.4), lowest=0.1), "entry": entry})
    narrow = fuse({"dense": full(hit("a", 0.87), hit("b", 0.84), lowest=0.81), "entry": entry})
    assert scores(wide) == scores(narrow)


def test_in_a_short_list_a_small_difference_stays_small():
    fused = fuse({"dense": [hit("a", 0.32), hit("b", 0.30)], "entry": [hit("b", 5.0)]})
    assert [entry.entry_id for entry in fused] == ["b", "a"]
    assert scores(fused)["a"] == pytest.approx(2 / 3.8, abs=1e-6)
    assert scores(fused)["b"] > 2.8 / 3.8


def test_similarities_of_zero_or_less_add_nothing():
    fused = fuse({"dense": [hit("a", 0.0), hit("b", -0.2)], "entry": [hit("b", 1.0)]})
    assert [(entry.entry_id, entry.score) for entry in fused] == [("b", pytest.approx(1 / 3.8, abs=1e-6)), ("a", 0.0)]


def test_cosines_that_say_nothing_weigh_less_than_words():
    words = {"entry": [hit("b", 5.0)], "passage": [hit("b", 5.0)]}
    assert scores(fuse({"dense": full(hit("a", 0.12), lowest=0.01), **words})) == {
        "a": pytest.approx(2.0 * 0.4 / 3.8, abs=1e-6),
        "b": pytest.approx(1.5 / 3.8, abs=1e-6),
    }
    assert scores(fuse({"dense": full(hit("a", 0.3), lowest=0.01), **words}))["a"] == pytest.approx(2 / 3.8, abs=1e-6)


def test_passages_of_one_entry_count_once_and_the_best_is_shown():
    (fused,) = fuse({"dense": [hit("a", 0.9, 7), hit("a", 0.8, 2)], "passage": [hit("a", 12.0, 2)]})
    assert (fused.point_id, fused.similarity) == (7, 0.9)


def test_a_candidate_found_by_words_alone_has_no_similarity():
    (fused,) = fuse({"dense": [], "passage": [hit("a", 12.0)]})
    assert fused.similarity is None


def test_ties_are_broken_by_entry_id():
    assert [entry.entry_id for entry in fuse({"dense": [hit("b"), hit("a")]})] == ["a", "b"]


def test_without_candidates_the_hinted_entries_stand_alone():
    matches = merge(hints("a", "b"), [], limit=1, excerpt=excerpt)
    assert ids(matches) == ["a"]
    assert (matches[0]["layers"], matches[0]["similarity"], matches[0]["snippet"]) == (["L0"], None, "text of a")


def test_an_entry_with_a_specific_term_is_never_trimmed_away():
    candidates = [candidate(f"c{i}", score=0.05 - i / 1000) for i in range(9)]
    assert "rare" in ids(merge(hints("rare"), candidates, limit=5, excerpt=excerpt))


def test_a_single_match_is_the_best_one():
    candidates = [candidate("best", score=0.9)]
    assert ids(merge(hints("rare"), candidates, limit=1, excerpt=excerpt)) == ["best"]


def test_an_entry_with_common_terms_only_does_not_push_in():
    assert ids(merge(hints("common", specific=False), [candidate("c")], limit=5, excerpt=excerpt)) == ["c"]


def test_both_layers_are_named_where_both_found_the_entry():
    (match,) = merge(hints("a"), [candidate("a")], limit=5, excerpt=excerpt)
    assert match["layers"] == ["L0", "L1"]
    assert match["matched"] == [{"field": "keywords", "text": "kw-a"}, {"field": "text", "text": "A"}]


@pytest.mark.parametrize("weigh_hints", [True, False])
@pytest.mark.parametrize(("similarity", "first"), [(0.1, "rare"), (0.4, "noise"), (None, "noise")])
def test_where_meaning_says_little_its_weight_goes_to_the_declared_terms(similarity, first, weigh_hints):
    candidates = [candidate("noise", similarity, 0.4), candidate("rare", similarity and 0.01, 0.3)]
    assert ids(merge(hints("rare"), candidates, limit=2, excerpt=excerpt, weigh_hints=weigh_hints))[0] == first


def test_misleading_hints_do_not_lift_an_entry():
    candidates = [candidate("good", score=0.02), candidate("hinted", score=0.019)]
    assert ids(merge(hints("hinted"), candidates, limit=2, excerpt=excerpt)) == ["hinted", "good"]
    assert ids(merge(hints("hinted"), candidates, limit=2, excerpt=excerpt, weigh_hints=False)) == ["good", "hinted"]


@pytest.mark.parametrize(
    ("found", "candidates", "words", "expected"),
    [
        (NO_HINTS, [], [], "none"),
        (NO_HINTS, [], [described("a")], "L0"),
        (hints("a"), [], [], "L0"),
        (NO_HINTS, [candidate("b")], [], "L1"),
        (hints("a"), [candidate("b")], [], "L0+L1"),
    ],
)
def test_layer(found, candidates, words, expected):
    matches = merge(found, candidates, limit=5, excerpt=excerpt, described=words)
    assert layer(found, candidates, matches) == expected


def test_without_candidates_specific_terms_come_first_then_words_then_other_hints():
    found = hints("common", specific=False)
    rare = hints("rare")
    both = {**found, "entries": found["entries"] + rare["entries"], "terms": found["terms"] + rare["terms"]}
    matches = merge(both, [], limit=5, excerpt=excerpt, described=[described("b"), described("rare")])
    assert ids(matches) == ["rare", "b", "common"]
    assert [match["score"] for match in matches] == sorted((match["score"] for match in matches), reverse=True)
    assert matches[1]["matched"] == [{"field": "description", "text": "some words"}]
    assert matches[1]["layers"] == ["L0"]
    assert matches[0]["matched"] == [
        {"field": "keywords", "text": "kw-rare"},
        {"field": "description", "text": "some words"},
    ]


def test_with_candidates_words_of_descriptions_have_no_say():
    assert ids(merge(NO_HINTS, [candidate("a")], limit=5, excerpt=excerpt, described=[described("b")])) == ["a"]


@pytest.mark.parametrize(
    ("similarity", "level", "support"),
    [(0.7, "high", True), (0.5, "medium", True), (0.3, "low", False), (None, "low", False)],
)
def test_only_the_dense_similarity_supports_a_semantic_claim(similarity, level, support):
    candidates = [candidate("a", similarity)]
    matches = merge(NO_HINTS, candidates, limit=5, excerpt=excerpt)
    relevance = assess(NO_HINTS, matches, "ok", THRESHOLDS)
    assert (relevance["level"], relevance["semantic_support"]) == (level, support)


def test_a_specific_term_is_worth_a_medium_level_but_no_semantic_claim():
    matches = merge(hints("a"), [candidate("a", 0.3)], limit=5, excerpt=excerpt)
    relevance = assess(hints("a"), matches, "ok", THRESHOLDS)
    assert (relevance["level"], relevance["semantic_support"]) == ("medium", False)


def test_relevance_is_that_of_the_matches_shown():
    matches = merge(NO_HINTS, [candidate("shown", 0.3, 0.02), candidate("hidden", 0.9, 0.01)], limit=1, excerpt=excerpt)
    assert assess(NO_HINTS, matches, "ok", THRESHOLDS)["level"] == "low"


def test_a_model_that_was_not_calibrated_never_gives_a_high_level():
    matches = merge(NO_HINTS, [candidate("a", 0.99)], limit=1, excerpt=excerpt)
    relevance = assess(NO_HINTS, matches, "ok", Thresholds(0.5, 0.75, calibrated=False))
    assert (relevance["level"], relevance["semantic_support"]) == ("medium", True)
    assert "not calibrated" in relevance["reason"]


@pytest.mark.parametrize(("specific", "level"), [(True, "medium"), (False, "low")])
def test_keywords_alone_never_claim_semantic_support(specific, level):
    found = hints("a", specific=specific)
    relevance = assess(found, merge(found, [], limit=5, excerpt=excerpt), "failed", THRESHOLDS)
    assert (relevance["level"], relevance["semantic_support"]) == (level, False)
    assert "semantic" not in relevance["reason"]


def test_min_similarity_drops_what_is_less_similar_or_of_unknown_similarity():
    ranked = [RankedEntry("a", 1.0, 0.5, 1), RankedEntry("b", 1.0, 0.3, 2), RankedEntry("c", 1.0, None, 3)]
    assert above(ranked, 0.5) == ranked[:1]
    assert above(ranked, None) == ranked


@pytest.mark.parametrize(
    ("domains", "mode", "category", "reason"),
    [
        (["a"], "guarded", "a", "single_domain"),
        (["a"], "strict", "a", "single_domain"),
        (["a"], "off", None, "off"),
        ([], "guarded", None, "no_domain"),
        (["a", "b"], "guarded", None, "several_domains"),
        ([" "], "guarded", None, "no_domain"),
        (["a", " "], "guarded", "a", "single_domain"),
    ],
)
def test_choose_filter(domains, mode, category, reason):
    choice = choose_filter(hints(domains=domains), mode)
    assert choice == {"category": category, "reason": reason, "relaxed": False}


@pytest.mark.parametrize(
    ("filtered", "unfiltered", "hidden"),
    [
        *(([], [], False), ([], [0.1], True), ([0.5], [0.52], False), ([0.5], [0.54], True), ([None], [0.5], True)),
        *(([0.01], [0.29], False), ([0.2], [0.3], True), ([None], [0.29], False)),
    ],
)
def test_a_filter_hides_better_when_nothing_is_left_or_the_margin_is_passed(filtered, unfiltered, hidden):
    found = [candidate("a", s) for s in filtered], [candidate("b", s) | {"categories": ["d"]} for s in unfiltered]
    assert hides_better(*found, NO_HINTS) is hidden


def test_a_filter_hides_better_when_it_hides_an_entry_without_category():
    filtered = [candidate("a") | {"categories": ["c"]}]
    for categories, hidden in (([], True), (["d"], False)):
        assert hides_better(filtered, [*filtered, candidate("b") | {"categories": categories}], NO_HINTS) is hidden


def test_a_filter_hides_better_when_the_hints_found_it_too():
    filtered, unfiltered = [candidate("a")], [candidate("a"), candidate("b") | {"categories": ["d"]}]
    assert hides_better(filtered, unfiltered, hints("b"))
    assert not hides_better(filtered, unfiltered, hints("a"))


def test_shorten_cuts_at_a_blank_and_says_so():
    assert shorten("short", 10) == "short"
    assert shorten("one two three", 10) == "one two…"
    assert shorten("x" * 30, 10) == "x" * 9 + "…"
