"""From ranked entries to candidates: which passages are read, and which of those that are stored
can be shown.
"""

import pytest

from langchain_lookup_knowledge.l1.candidates import (
    MAX_PASSAGES,
    candidates,
    choose,
    is_sound,
    point_ids,
)
from langchain_lookup_knowledge.l1.fusion import RARE, Hit, Ranked, RankedEntry, RankedPassage

BRAND = "brand"


def passage(number, score=0.5, similarity=0.4, rare=()):
    return RankedPassage(number, score, similarity, tuple(rare))


def entry(entry_id, *passages, score=0.5):
    return RankedEntry(entry_id, score, 0.4, list(passages) or [passage(f"{entry_id}/0")])


def found(**terms):
    """Return a search in which each term is held by so many passages."""
    hits = {t: [Hit(n, f"e{n}", 1.0) for n in range(count)] for t, count in terms.items()}
    return Ranked({}, hits)


def stored(entry_id="a.md", **metadata):
    given = {
        "entry_id": entry_id,
        "title": "A",
        "categories": ["c"],
        "source": entry_id,
        "heading": "Install",
        "passage": 2,
        "fingerprint": BRAND,
    }
    return {"page_content": "text", "metadata": given | metadata}


def ids(chosen):
    return [one.entry_id for one in chosen]


def test_the_best_entries_are_kept_each_with_its_best_passages():
    ranked = [entry(str(n), *(passage(f"{n}/{p}") for p in range(9))) for n in range(9)]
    chosen = choose(ranked, found(), 8)
    assert ids(chosen) == list("01234567")
    kept = [*MAX_PASSAGES, *(MAX_PASSAGES[-1:] * (8 - len(MAX_PASSAGES)))]
    assert list(point_ids(chosen)) == [f"{n}/{p}" for n in range(8) for p in range(kept[n])]
    assert kept == sorted(kept, reverse=True)


def test_a_passage_with_a_rare_term_that_the_best_ones_lack_is_kept():
    passages = [passage(n) for n in range(MAX_PASSAGES[0])]
    passages[0] = passage(0, rare=["one"])
    more = [passage(17, rare=["one"]), passage(18, rare=["one", "two"]), passage(19, rare=["two"])]
    (chosen,) = choose([entry("a", *passages, *more)], found(one=3, two=2), 5)
    assert [p.point_id for p in chosen.passages] == [*range(MAX_PASSAGES[0]), 18]


def test_the_best_entry_with_a_rare_term_that_no_chosen_one_holds_is_there_too():
    ranked = [
        entry("best", passage(0, rare=["one"])),
        entry("second"),
        entry("third", passage(1)),
        entry("fourth", passage(2, rare=["one"])),
        entry("fifth", *(passage(n) for n in range(3, 9)), passage(9, rare=["two", "three"])),
        entry("sixth", passage(10, rare=["two"])),
    ]
    chosen = choose(ranked, found(one=2, two=2, three=1), 2)
    assert ids(chosen) == ["best", "second", "fifth"]
    assert chosen[-1].passages[-1].rare == ("two", "three")


@pytest.mark.parametrize("count", [0, RARE + 1])
def test_a_term_that_no_passage_or_too_many_hold_brings_nothing(count):
    ranked = [entry("a"), entry("b")]
    assert ids(choose(ranked, found(term=count), 1)) == ["a"]


def test_a_rare_term_of_an_entry_that_was_dropped_brings_nothing():
    assert ids(choose([entry("a")], found(term=1), 1)) == ["a"]


def test_a_candidate_is_what_is_stored_of_its_passages():
    ranked = entry("a.md", passage(1, 0.75, 0.123456789, ["e-1"]), passage(2, 0.5, None))
    payloads = {
        1: stored(lines=[3, 9]),
        2: stored(heading="", passage=None),
    }
    assert candidates([ranked], payloads) == [
        {
            "entry_id": "a.md",
            "title": "A",
            "categories": ["c"],
            "source": "a.md",
            "score": 0.5,
            "similarity": 0.4,
            "meaning": 0.0,
            "passages": [
                {
                    "number": 2,
                    "heading": "Install",
                    "text": "text",
                    "lines": [3, 9],
                    "score": 0.75,
                    "similarity": 0.123457,
                    "rare": ["e-1"],
                },
                {
                    "number": None,
                    "heading": "",
                    "text": "text",
                    "lines": None,
                    "score": 0.5,
                    "similarity": None,
                    "rare": [],
                },
            ],
        }
    ]


def test_what_is_not_stored_is_left_out():
    ranked = [entry("a", passage(1), passage(2)), entry("b", passage(3))]
    (candidate,) = candidates(ranked, {2: stored("a", passage=5)})
    assert [p["number"] for p in candidate["passages"]] == [5]
    assert candidates(ranked, {}) == []


@pytest.mark.parametrize("metadata", [{}, {"lines": None}, {"lines": [1, 1]}, {"passage": None}])
def test_what_this_package_stores_is_sound(metadata):
    assert is_sound(stored(**metadata), BRAND)


@pytest.mark.parametrize(
    "payload",
    [
        {},
        {"metadata": ["a"]},
        stored(fingerprint="another"),
        stored(title=None),
        stored(source=7),
        stored(heading=["Install"]),
        stored(title="\ud800"),
        stored(categories=None),
        stored(categories="c"),
        stored(categories=["c", 1]),
        stored(passage="2"),
        stored(passage=-1),
        stored(passage=True),
        stored(lines=[1]),
        stored(lines=[1, 2, 3]),
        stored(lines=[1, "2"]),
        stored(lines="12"),
        {**stored(), "page_content": None},
        {**stored(), "page_content": "\ud800"},
    ],
)
def test_what_cannot_be_shown_is_not_sound(payload):
    assert not is_sound(payload, BRAND)


def test_without_a_brand_an_index_created_elsewhere_is_read():
    assert is_sound(stored(fingerprint=None), None)
    assert not is_sound(stored(), None)
