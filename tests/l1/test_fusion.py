"""Fusion: from ranked lists to ranked passages, and to the entries that they are of."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from langchain_lookup_knowledge.l1.fusion import (
    BEST_PASSAGES,
    BEST_WEIGHTS,
    ENTRY_WEIGHTS,
    PASSAGE_WEIGHTS,
    RARE,
    Hit,
    Ranked,
    RankedEntry,
    _rare_shares,
    above,
    coverage,
    rank,
    rarity,
    support,
)
from langchain_lookup_knowledge.text.search_terms import is_part

MEDIUM = 0.3
DENSE, PASSAGE = (
    PASSAGE_WEIGHTS[name] / sum(PASSAGE_WEIGHTS.values()) for name in ("dense", "passage")
)
BEST = {name: weight / sum(BEST_WEIGHTS.values()) for name, weight in BEST_WEIGHTS.items()}
ENTRY = {name: weight / sum(ENTRY_WEIGHTS.values()) for name, weight in ENTRY_WEIGHTS.items()}
FULL = 30
"""Cosines from which on a list shows how low they go."""


def hit(entry_id, score=0.5, number=0):
    return Hit(f"{entry_id}/{number}", entry_id, score)


def full(*hits, lowest):
    """Return a full dense list: these hits, and as many others as it takes, none of them of an
    entry that matters.
    """
    return [*hits, *(hit("other", lowest, n) for n in range(FULL - len(hits)))]


def fuse(terms=None, **lists):
    return rank(Ranked(lists, terms or {}), MEDIUM, 1000)


def scores(ranked):
    """Return the scores of entries, and those of their best passages."""
    return {
        e.entry_id: (pytest.approx(e.score), pytest.approx(e.passages[0].score))
        for e in ranked
        if e.entry_id != "other"
    }


def ids(ranked):
    return [entry.entry_id for entry in ranked]


def entry_score(*passages):
    """Return what passages with these scores, best first, bring their entry."""
    best = zip(BEST_PASSAGES, passages, strict=False)
    return ENTRY["passages"] * sum(w * p for w, p in best) / sum(BEST_PASSAGES)


def test_a_passage_scores_by_its_place_in_the_lists_of_passages():
    dense = full(hit("a", 0.6), hit("b", 0.3), lowest=0.2)
    ranked = fuse(dense=dense, passage=[hit("b", 12.0), hit("c", 3.0)])
    assert {e.entry_id: e.passages[0].score for e in ranked} == {
        "a": pytest.approx(DENSE),
        "b": pytest.approx(DENSE * 0.25 + PASSAGE),
        "c": pytest.approx(PASSAGE * 0.25),
        "other": pytest.approx(0.0),
    }


def test_an_entry_scores_by_its_best_passages_and_by_the_lists_of_entries():
    ranked = fuse(
        dense=full(hit("a", 0.6, 1), hit("a", 0.4, 2), lowest=0.2),
        entry=[hit("b", 12.0), hit("a", 3.0)],
        frontmatter=[hit("a", 7.0)],
    )
    found = {e.entry_id: e.score for e in ranked}
    assert found["a"] == pytest.approx(
        entry_score(BEST["dense"], BEST["dense"] / 2) + ENTRY["entry"] / 4 + ENTRY["frontmatter"]
    )
    assert found["b"] == pytest.approx(ENTRY["entry"])


def test_words_say_less_of_which_entry_it_is_than_of_which_passage():
    ranked = fuse(dense=full(hit("a", 0.6), lowest=0.2), passage=[hit("b", 12.0)])
    assert scores(ranked) == {
        "a": (entry_score(BEST["dense"]), DENSE),
        "b": (entry_score(BEST["passage"]), PASSAGE),
    }
    assert BEST["passage"] < PASSAGE


def test_further_passages_of_an_entry_count_for_less_than_the_one_before():
    def best(number):
        lists = {"dense": full(*(hit("a", 0.6, n) for n in range(number)), lowest=0.2)}
        return next(e.score for e in fuse(**lists) if e.entry_id == "a")

    gains = [after - before for before, after in pairwise(map(best, range(1, 6)))]
    assert best(1) > gains[0] > gains[1] > gains[2] > 0
    assert gains[3:] == [0]


def test_passages_come_best_first_and_the_similarity_is_the_best():
    (entry,) = fuse(dense=[hit("a", 0.9, 7), hit("a", 0.8, 2)], passage=[hit("a", 12.0, 2)])
    assert [p.point_id for p in entry.passages] == ["a/2", "a/7"]
    assert [p.similarity for p in entry.passages] == [0.8, 0.9]
    assert entry.similarity == 0.9


def test_the_range_in_which_a_model_has_its_cosines_does_not_matter():
    words = [hit("c", 9.0), hit("b", 6.0), hit("a", 3.0)]
    wide = fuse(dense=full(hit("a", 0.7), hit("b", 0.4), lowest=0.1), passage=words)
    narrow = fuse(dense=full(hit("a", 0.87), hit("b", 0.84), lowest=0.81), passage=words)
    assert scores(wide) == scores(narrow)


def test_in_a_short_list_a_small_difference_stays_small():
    ranked = fuse(dense=[hit("a", 0.32), hit("b", 0.30)], passage=[hit("b", 5.0)])
    assert ids(ranked) == ["b", "a"]
    best, second = (e.passages[0].score for e in ranked)
    assert second == pytest.approx(DENSE)
    assert PASSAGE < best < PASSAGE + DENSE


def test_similarities_of_zero_or_less_add_nothing():
    ranked = fuse(dense=[hit("a", 0.0), hit("b", -0.2)], passage=[hit("b", 1.0)])
    assert ids(ranked) == ["b", "a"]
    assert [e.passages[0].score for e in ranked] == [pytest.approx(PASSAGE), 0.0]


def test_cosines_that_say_nothing_weigh_less_than_words():
    words = [hit("b", 5.0)]
    weak = fuse(dense=full(hit("a", 0.12), lowest=0.01), passage=words)
    strong = fuse(dense=full(hit("a", MEDIUM), lowest=0.01), passage=words)
    assert {e.entry_id: e.passages[0].score for e in weak} == {
        "a": pytest.approx(DENSE * 0.4),
        "b": pytest.approx(PASSAGE),
        "other": pytest.approx(0.0),
    }
    assert (ids(weak)[0], ids(strong)[0]) == ("b", "a")


@pytest.mark.parametrize(
    ("similarity", "supported"), [(-0.5, 0.0), (0.0, 0.0), (0.15, 0.5), (0.3, 1.0), (0.9, 1.0)]
)
def test_meaning_supports_what_was_found_as_far_as_cosines_mean_something(similarity, supported):
    assert support(similarity, MEDIUM) == pytest.approx(supported)


def test_what_words_alone_found_has_no_similarity():
    (entry,) = fuse(passage=[hit("a", 12.0)])
    assert (entry.similarity, entry.passages[0].similarity) == (None, None)


def test_an_entry_that_no_list_of_passages_names_shows_the_passage_that_its_own_lists_name():
    ranked = fuse(dense=[hit("b", 0.6)], entry=[hit("a", 3.0)])
    (entry,) = (e for e in ranked if e.entry_id == "a")
    assert [(p.point_id, p.score) for p in entry.passages] == [("a/0", 0.0)]
    assert entry.score == pytest.approx(ENTRY["entry"])


def test_ties_are_broken_by_id():
    ranked = fuse(dense=[hit("b"), hit("a", number=1), hit("a")])
    assert ids(ranked) == ["a", "b"]
    assert [p.point_id for p in ranked[0].passages] == ["a/0", "a/1"]


def test_an_exact_thing_is_not_overtaken_by_near_equal_cosines():
    near = [hit("a", 0.62), hit("b", 0.61), hit("c", 0.6)]
    words = {"passage": [hit("a", 9.0), hit("b", 8.9), hit("c", 8.8)]}
    terms = {"2.1.0": [hit("c", 2.0)], "release": [hit(i, 1.0) for i in "abc"]}
    assert ids(fuse(dense=near, **words))[0] == "a"
    ranked = fuse(dense=near, terms=terms, **words)
    assert ids(ranked)[0] == "c"
    assert ranked[0].passages[0].rare == ("2.1.0", "release")


def test_the_rarer_term_counts_more():
    terms = {"one": [hit("a", 1.0)], "two": [hit("b", 1.0), hit("c", 1.0)]}
    ranked = fuse(terms=terms)
    assert ids(ranked) == ["a", "b", "c"]
    total = rarity(1) + rarity(2)
    assert [e.passages[0].score for e in ranked] == [
        pytest.approx(rarity(count) / total) for count in (1, 2, 2)
    ]


def test_the_share_of_a_rare_term_is_less_where_the_query_has_more_to_say():
    held = {"one": [hit("a", 1.0)]}
    (alone,), (among,) = (fuse(terms=held | more) for more in ({}, {"absent": []}))
    assert alone.passages[0].score == 1.0
    assert among.passages[0].score == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("term", "passages", "is_rare"), [("x", RARE, True), ("x", RARE + 1, False), ("退款", 1, False)]
)
def test_a_common_term_and_a_pair_of_characters_are_not_rare(term, passages, is_rare):
    hits = [hit(f"e{n:02}", 1.0) for n in range(passages)]
    ranked = fuse(terms={term: hits}, passage=hits)
    assert {passage.rare for e in ranked for passage in e.passages} == {(term,) if is_rare else ()}
    assert (ranked[0].passages[0].score > PASSAGE + 1e-9) is is_rare


def test_a_term_in_all_passages_still_has_some_weight():
    assert rarity(RARE + 1) == rarity(1_000) > 0
    assert rarity(0) == rarity(1) > rarity(2) > rarity(RARE)
    assert rarity(1) / 5 < rarity(RARE + 1) < rarity(1) / 3


def test_min_similarity_drops_what_is_less_similar_or_of_unknown_similarity():
    ranked = [
        RankedEntry(entry_id, 1.0, s, []) for entry_id, s in (("a", 0.5), ("b", 0.3), ("c", None))
    ]
    assert above(ranked, 0.5) == ranked[:1]
    assert above(ranked, None) == ranked


PLACES = st.tuples(st.sampled_from("abcd"), st.integers(0, 5))
COSINES = st.dictionaries(PLACES, st.floats(-1, 1), max_size=12)
WORDS = st.dictionaries(PLACES, st.floats(0, 1e6, exclude_min=True), max_size=12)
OF_ENTRIES = st.dictionaries(
    st.tuples(st.sampled_from("abcd"), st.just(0)), st.floats(0, 1e6, exclude_min=True)
)
"""What lists of entries find: the first passage of each, which has their vectors."""


def hits_of(found):
    hits = [hit(entry_id, score, number) for (entry_id, number), score in found.items()]
    return sorted(hits, key=lambda one: -one.score)


@settings(deadline=None)
@given(
    COSINES,
    WORDS,
    OF_ENTRIES,
    OF_ENTRIES,
    st.dictionaries(st.sampled_from(["e-1", "two", "三月"]), WORDS),
)
def test_whatever_is_found_is_ranked_once_within_its_range(
    dense, passage, entry, frontmatter, terms
):
    lists = {"dense": dense, "passage": passage, "entry": entry, "frontmatter": frontmatter}
    ranked = fuse(
        terms={term: hits_of(hits) for term, hits in terms.items()},
        **{name: hits_of(hits) for name, hits in lists.items()},
    )
    assert [e.score for e in ranked] == sorted((e.score for e in ranked), reverse=True)
    assert all(0 <= e.score <= 1 + 1e-9 for e in ranked)
    assert all(0 <= p.score <= 2 + 1e-9 for e in ranked for p in e.passages)
    rare = [hits for term, hits in terms.items() if not is_part(term)]
    named = {place for found in (*lists.values(), *rare) for place in found}
    shown = [passage.point_id for e in ranked for passage in e.passages]
    assert sorted(shown) == sorted({f"{entry_id}/{number}" for entry_id, number in named})
    for e in ranked:
        assert all(p.point_id.startswith(f"{e.entry_id}/") for p in e.passages)
        known = [score for (entry_id, _), score in dense.items() if entry_id == e.entry_id]
        assert e.similarity == max(known, default=None)


def test_the_words_of_the_glossary_add_to_the_scores_and_lower_none():
    own = {"dense": [hit("a", 0.5), hit("b", 0.3)], "passage": [hit("a", 4.0), hit("b", 2.0)]}
    without = {entry.entry_id: entry.score for entry in rank(Ranked(own), MEDIUM, 100)}
    joined = rank(Ranked({**own, "glossary": [hit("b", 9.0), hit("c", 3.0)]}), MEDIUM, 100)
    scores = {entry.entry_id: entry.score for entry in joined}
    assert scores["a"] == without["a"]
    assert scores["b"] > without["b"]
    assert scores["c"] > 0
    alone = rank(Ranked({"passage": [hit("own", 4.0)], "glossary": [hit("other", 4.0)]}), 0.3, 9)
    assert [entry.entry_id for entry in alone] == ["own", "other"]


def numbered(*ids):
    return [Hit(point_id, f"e{point_id}", 1.0) for point_id in ids]


@pytest.mark.parametrize(
    ("terms", "expected"),
    [
        ({}, 1.0),
        ({"a": numbered(1), "b": numbered(1)}, 1.0),
        ({"a": numbered(1), "b": numbered(2)}, 0.5),
        ({"a": numbered(1), "b": []}, 0.5),
        ({"a": numbered(9), "b": numbered(9)}, 0.0),  # not one of the best passages
        (
            {"a": numbered(1), "b": numbered(*range(2, RARE + 3))},
            1.0,
        ),  # a common term counts as contained
    ],
)
def test_coverage_is_the_share_of_the_query_that_one_of_the_best_passages_contains(terms, expected):
    found = Ranked({"passage": numbered(1, 2, 3, 4, 5, 9)}, terms)
    assert coverage(found) == pytest.approx(expected)


def test_meaning_counts_more_if_no_passage_covers_the_query():
    dense = [
        Hit(1, "meaning", 0.6),
        *(Hit(n, f"e{n}", 0.3) for n in range(10, 40)),
        Hit(2, "words", 0.3),
    ]
    lists = {"dense": dense, "passage": [Hit(2, "words", 4.0)], "entry": [Hit(2, "words", 4.0)]}
    covered, uncovered = (
        {entry.entry_id: entry.score for entry in rank(Ranked(lists, terms), MEDIUM, 1000)}
        for terms in ({"a": numbered(*range(10, RARE + 11))}, {"b": []})
    )
    lead = [scores["meaning"] / scores["words"] for scores in (covered, uncovered)]
    assert lead[1] > lead[0]


def test_an_entry_says_how_much_of_its_score_meaning_gave():
    dense = full(hit("a", 0.6), hit("b", 0.3), lowest=0.2)
    ranked = fuse(dense=dense, passage=[hit("b", 12.0)], entry=[hit("a", 3.0)])
    found = {e.entry_id: e for e in ranked}
    assert found["a"].meaning == pytest.approx(entry_score(BEST["dense"]))
    assert found["a"].score == pytest.approx(found["a"].meaning + ENTRY["entry"])
    assert 0 < found["b"].meaning < found["b"].score - found["b"].meaning


def test_the_parts_of_a_version_that_was_found_add_nothing():
    version, number = Hit(1, "a.md", 1.0), Hit(2, "b.md", 1.0)
    shares, held = _rare_shares({"2.14.3": [version], "14": [version, number]}, 1)
    assert (shares[1], shares[2]) == (1.0, 0.0)
    assert held[1] == ("2.14.3", "14")
    shares, _ = _rare_shares({"2.14.3": [], "14": [version, number]}, 1)
    assert shares[1] == shares[2] > 0
