"""BM25 as sparse vectors: what a text is encoded as, and what a query searches for."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from langchain_lookup_knowledge.l1.stores.sparse import (
    AVERAGE_TERMS,
    K1,
    MAX_QUERY_TERMS,
    MAX_SINGLE_TERMS,
    B,
    encode_document,
    encode_query,
    query_terms,
    single_terms,
)
from langchain_lookup_knowledge.text.search_terms import search_terms


def weights(text, vector="passage"):
    encoded = encode_document(text, vector)
    return dict(zip(encoded.indices, encoded.values, strict=True))


def weight(term, text, vector="passage"):
    (place,) = encode_query([term]).indices
    return weights(text, vector)[place]


def test_a_weight_is_that_of_bm25_without_idf():
    text = "refund " * 3 + "invoice " * (AVERAGE_TERMS["passage"] - 3)
    assert weight("refund", text) == pytest.approx(3 * (K1 + 1) / (3 + K1))
    half = AVERAGE_TERMS["passage"] // 2
    length = half / AVERAGE_TERMS["passage"]
    assert weight("refund", "refund " + "invoice " * (half - 1)) == pytest.approx(
        (K1 + 1) / (1 + K1 * (1 - B + B * length))
    )


def test_repetitions_count_less_and_less_and_a_long_text_counts_less():
    filled = [weight("refund", "refund " * n + "word " * (60 - n)) for n in (1, 2, 3, 4)]
    gains = [after - before for before, after in itertools.pairwise(filled)]
    assert filled[0] > gains[0] > gains[1] > gains[2] > 0
    assert weight("refund", "refund") > weight("refund", "refund " + "word " * 500)


def test_the_typical_length_is_that_of_what_the_vector_encodes():
    text = "refund " + "word " * 119
    assert weight("refund", text, "entry") > weight("refund", text, "passage")
    assert weight("refund", text, "passage") > weight("refund", text, "frontmatter")


def test_an_exact_thing_is_found_as_a_whole_and_by_its_parts():
    found = weights("upgrade to v2.14.3")
    for term, is_there in [("2.14.3", True), ("14", True), ("upgrade", True), ("2.3.14", False)]:
        assert (encode_query([term]).indices[0] in found) is is_there


def test_a_text_without_words_has_no_vector():
    assert encode_document("?! the", "passage") == ([], [])
    assert encode_query([]) == ([], [])


@settings(deadline=None)
@given(st.text(max_size=300))
def test_places_are_in_order_and_a_query_finds_every_term_of_a_text(text):
    encoded = encode_document(text, "passage")
    assert encoded.indices == sorted(set(encoded.indices))
    assert all(0 < value < K1 + 1 for value in encoded.values)
    asked = encode_query(search_terms(text))
    assert asked.indices == encoded.indices
    assert set(asked.values) <= {1.0}


def test_the_terms_of_a_query_come_once_in_its_order_and_no_more_than_are_searched_for():
    assert query_terms("the refunds, refund of E-4711") == ["refund", "4711", "e-4711"]
    many = " ".join(f"word{n}" for n in range(2 * MAX_QUERY_TERMS))
    assert query_terms(many) == [f"word{n}" for n in range(MAX_QUERY_TERMS)]


def test_exact_things_and_long_words_are_searched_for_alone_first():
    assert single_terms(["tax", "invoice", "7", "e-4711", "b"]) == [
        "e-4711",
        "7",
        "invoice",
        "tax",
        "b",
    ]
    words = [f"{'x' * n}" for n in range(1, 2 * MAX_SINGLE_TERMS)]
    assert single_terms(words) == sorted(words, key=len, reverse=True)[:MAX_SINGLE_TERMS]


def test_an_exact_thing_behind_many_words_is_searched_for():
    words = " ".join(f"word{chr(97 + n // 26)}{chr(97 + n % 26)}" for n in range(100))
    terms = query_terms(f"{words} E-4711")
    assert "e-4711" in terms
    assert len(terms) == MAX_QUERY_TERMS
    assert single_terms(terms)[0] == "e-4711"
