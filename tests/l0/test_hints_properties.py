"""Properties of L0 that hold for any text."""

import copy
import unicodedata

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from langchain_lookup_knowledge.l0.hints import HintIndex
from langchain_lookup_knowledge.reading.entry import Entry

WORDS = [
    "refund",
    "policy",
    "C++",
    ".NET",
    "node.js",
    "E-4711",
    "退款",
    "政策",
    "テスト",
    "Straße",
    "café",
    "vpn",
    "IT",
    "🚀",
]
WORDS += [
    "e-mail",
    "email",
    "E-Mail",
    "Refund",
    "resume",
    "résumé",
    "C",
    "Zork",
    "Zork++",
]  # written in several ways
WORDS += ["fly", "flies", "O'Neil", "O’Neil"]
WORDS += ["getUserName", "أمام", "ภาษา", "환불", "İstanbul", "x86_64", "refund policy"]
term = st.one_of(st.sampled_from(WORDS), st.text(min_size=1, max_size=12))
written = st.lists(st.one_of(st.sampled_from(WORDS), st.text(max_size=10)), max_size=8).map(
    " ".join
)
entries = st.lists(
    st.builds(
        lambda keywords, title, text, category, entity: (
            title or "t",
            keywords,
            category,
            [entity],
            text,
        ),
        st.lists(term, max_size=3),
        st.text(max_size=8),
        written,
        st.sampled_from([["a"], ["b"], ["a", "b"], []]),
        term,
    ),
    min_size=1,
    max_size=6,
).map(
    lambda rows: [
        Entry(f"{i}.md", t, tuple(k), tuple(c), tuple(e), x)
        for i, (t, k, c, e, x) in enumerate(rows)
    ]
)
relaxed = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


@relaxed
@given(entries, written)
def test_spans_are_in_the_query_and_the_same_query_gives_the_same_hints(knowledge, query):
    index = HintIndex(knowledge)
    hints = index.hints(query)
    assert hints == index.hints(query)
    for found in hints["terms"]:
        start, end = found["span"]
        assert 0 <= start < end <= len(query)


@relaxed
@given(entries, written)
def test_no_match_begins_or_ends_inside_a_word(knowledge, query):
    def inside(position):
        around = query[position - 1 : position + 1]
        return len(around) == 2 and around.isascii() and around.isalnum()

    for found in HintIndex(knowledge).hints(query)["terms"]:
        start, end = found["span"]
        assert not (start > 0 and inside(start)), (found, query)
        assert not inside(end), (found, query)


@relaxed
@given(
    entries,
    st.lists(st.sampled_from(WORDS), max_size=6).map(" ".join),
    st.sampled_from(["NFC", "NFD", "NFKC"]),
)
def test_normalisation_does_not_change_what_matches(knowledge, query, form):
    index = HintIndex(knowledge)
    one, other = index.hints(query), index.hints(unicodedata.normalize(form, query))
    assert [t["text"] for t in one["terms"]] == [t["text"] for t in other["terms"]]
    assert one["domains"] == other["domains"]


@relaxed
@given(entries, written)
def test_an_unrelated_entry_removes_no_hint(knowledge, query):
    unrelated = Entry("zz.md", "Quuxquux", ("frobnicate quux",), ("a",), (), "Quuxmid blorple.")
    before, after = (
        HintIndex(knowledge).hints(query),
        HintIndex([*knowledge, unrelated]).hints(query),
    )
    assert set(before["keywords"]) <= set(after["keywords"])
    assert set(before["domains"]) <= set(after["domains"])
    assert set(before["entities"]) <= set(after["entities"])


def state(index):
    """Return all that decides what an index finds."""
    terms = index.terms
    forms = {
        keys: [
            (*form[1:], *(getattr(form.term, name) for name in TERM), terms.counts(form.term))
            for form in bucket
        ]
        for keys, bucket in index.matcher.forms.items()
    }
    lost = {
        keys: sorted((term.field, term.text) for term in listed)
        for keys, listed in index.matcher.lost.items()
        if listed
    }
    near = {word: terms.spelling.near(word + "x") for word in index.matcher.words}
    return copy.deepcopy((forms, index.matcher.words, lost, near, list(index.entries)))


TERM = ("text", "field", "cased", "entries", "categories", "categorized", "variants", "lost")


@relaxed
@given(entries, st.lists(entries, min_size=1, max_size=3), written)
@pytest.mark.slow
def test_an_updated_index_equals_a_new_one(before, later, query):
    padding = [
        Entry(f"p{i}.md", f"Padding {i}", ("padding",), ("a",), (), "refund vpn 退款 café")
        for i in range(60)
    ]
    updated = HintIndex([*before, *padding])
    for after in later:
        earlier, unchanged = updated, state(updated)
        updated = updated.updated([*after, *padding])
        new = HintIndex([*after, *padding])
        assert state(updated) == state(new)
        assert state(earlier) == unchanged
        for text in (query, " ".join(WORDS), "e mail"):
            assert updated.hints(text) == new.hints(text)
