"""The filter decision, and what takes it back."""

import pytest
from parts.found import NO_HINTS, candidate, hints

from langchain_lookup_knowledge.lookup.filters import choose_filter, hides_better


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
        *(
            ([], [], False),
            ([], [0.1], True),
            ([0.5], [0.52], False),
            ([0.5], [0.54], True),
            ([None], [0.5], True),
        ),
        *(([0.01], [0.29], False), ([0.2], [0.3], True), ([None], [0.29], False)),
    ],
)
def test_a_filter_hides_better_when_nothing_is_left_or_the_margin_is_passed(
    filtered, unfiltered, hidden
):
    found = (
        [candidate("a", s) for s in filtered],
        [candidate("b", s) | {"categories": ["d"]} for s in unfiltered],
    )
    assert hides_better(*found, NO_HINTS) is hidden


def test_a_filter_hides_better_when_it_hides_an_entry_without_category():
    filtered = [candidate("a") | {"categories": ["c"]}]
    for categories, hidden in (([], True), (["d"], False)):
        assert (
            hides_better(
                filtered, [*filtered, candidate("b") | {"categories": categories}], NO_HINTS
            )
            is hidden
        )


def test_a_filter_hides_better_when_the_hints_found_it_too():
    filtered, unfiltered = (
        [candidate("a")],
        [candidate("a"), candidate("b") | {"categories": ["d"]}],
    )
    assert hides_better(filtered, unfiltered, hints("b"))
    assert not hides_better(filtered, unfiltered, hints("a"))
