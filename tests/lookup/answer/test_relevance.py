"""What a result may claim, judged by its first match."""

import math

import pytest
from conftest import WordEmbeddings
from parts.found import NO_HINTS, found_entry, hints, passage

from langchain_lookup_knowledge import hash_query
from langchain_lookup_knowledge.l1.fusion import RARE, rarity
from langchain_lookup_knowledge.l1.models.embeddings import FastEmbedModel
from langchain_lookup_knowledge.lookup.answer.relevance import (
    BUNDLED,
    FEATURES,
    HIGH,
    MANY_ENTRIES,
    MAX_NAME,
    MAX_NAMED,
    MEDIUM,
    UNFITTED,
    RelevanceModel,
    assess,
    features,
    missing_words,
    model_for,
)
from langchain_lookup_knowledge.text.search_terms import written_terms

MEDIUM_SIMILARITY = 0.4
BY_SIMILARITY = RelevanceModel(-2.0, {"above_others": 5.0})
"""If the other candidates have cosine 0, medium from a similarity of 0.51 on, high from 0.80 on."""
OTHER = {"entry_id": "other.md", "similarity": 0.0}
QUERY = "refund of E-4711"
TERMS = written_terms(QUERY)
COUNTS = {"refund": 1}


def first(similarity=0.5, text="A refund of E-4711.", **changes):
    return found_entry(passage(text), similarity=similarity, **changes)


def judge(found, given=NO_HINTS, l1="ok", query=TERMS, counts=COUNTS, model=BY_SIMILARITY):
    measured = features(found, [OTHER], list(query), counts, 1) if found else {}
    missing = missing_words(query, counts)
    return assess(
        given, found, l1, measured, missing, list(query), counts, model, MEDIUM_SIMILARITY
    )


@pytest.mark.parametrize(
    ("similarity", "level", "support"),
    [(0.8, "high", True), (0.55, "medium", True), (0.3, "low", False), (None, "low", False)],
)
def test_the_level_is_the_models_and_only_the_similarity_supports_a_semantic_claim(
    similarity, level, support
):
    relevance = judge([first(similarity)])
    assert (relevance["level"], relevance["semantic_support"]) == (level, support)


@pytest.mark.parametrize(
    ("query", "entry", "level"),
    [
        ("kw-a.md", "a.md", "medium"),
        ("kw-a.md refund", "a.md", "low"),
        ("kw-a.md", "b.md", "low"),
    ],
)
def test_an_entry_whose_specific_terms_are_the_whole_query_is_at_least_medium(query, entry, level):
    terms = written_terms(query)
    found = [first(0.1, entry_id=entry)]
    given = hints("a.md")
    assert judge(found, given, query=terms, counts=dict.fromkeys(terms, 3))["level"] == level
    vague = hints("a.md", specific=False)
    assert judge(found, vague, query=terms, counts=dict.fromkeys(terms, 3))["level"] == "low"


def test_a_query_names_an_entry_only_if_few_declare_all_of_it_and_no_term_is_left():
    terms = dict.fromkeys(written_terms("shared"), 3)
    for entries, level in ((3, "medium"), (4, "low")):
        given = hints(*(f"{number}.md" for number in range(entries)))
        given["terms"] = [{"text": "shared", "field": "keywords", "specific": True}]
        for entry in given["entries"]:
            entry["keywords"] = ["shared"]
        found = [first(0.1, entry_id="0.md")]
        assert judge(found, given, query=terms, counts=terms)["level"] == level
    unsearched = [*terms, "fee"]  # of a query with more terms than are searched individually
    given["entries"] = given["entries"][:1]
    assert judge(found, given, query=unsearched, counts=terms)["level"] == "low"


@pytest.mark.parametrize(("similarity", "level"), [(None, "high"), (0.39, "high"), (0.4, "high")])
def test_a_level_without_similarity_is_no_semantic_claim(similarity, level):
    relevance = judge([first(similarity)], model=RelevanceModel(3.0, {}))
    assert relevance["level"] == level
    assert relevance["semantic_support"] is (similarity == MEDIUM_SIMILARITY)


@pytest.mark.parametrize(
    ("changes", "absent", "level"),
    [
        ({"similarity": 0.1}, True, "medium"),
        ({"similarity": None}, True, "medium"),
        ({"similarity": 0.5}, True, "high"),
        ({"similarity": 0.1, "layers": ("L0", "L1")}, True, "high"),
        ({"similarity": 0.1}, False, "high"),
    ],
)
def test_words_alone_claim_no_high_level_if_one_is_missing(changes, absent, level):
    counts = COUNTS | ({"parrot": 0} if absent else {})
    query = written_terms("refund of a parrot")
    sure = RelevanceModel(9.0, {})
    assert judge([first(**changes)], query=query, counts=counts, model=sure)["level"] == level


def test_a_low_level_is_no_semantic_claim_however_similar():
    assert judge([first(0.9)], model=RelevanceModel(-9.0, {})) | {"reason": ""} == {
        "level": "low",
        "semantic_support": False,
        "reason": "",
    }


def test_a_model_that_was_not_fitted_never_gives_a_high_level_and_says_so():
    relevance = judge([first(0.99)], model=RelevanceModel(9.0, {}, fitted=False))
    assert (relevance["level"], relevance["semantic_support"]) == ("medium", True)
    assert "not fitted" in relevance["reason"]
    assert "not fitted" not in judge([first(0.99)])["reason"]


def test_the_first_match_is_judged_and_no_other():
    found = [first(0.1), first(0.9, entry_id="b.md", score=0.5)]
    assert judge(found)["level"] == "low"
    assert judge(found[::-1])["level"] == "high"


def test_nothing_found_claims_nothing():
    assert judge([]) == {"level": "none", "semantic_support": False, "reason": "nothing matched"}


@pytest.mark.parametrize("l1", ["failed", "disabled", "empty"])
@pytest.mark.parametrize(("specific", "level"), [(True, "medium"), (False, "low")])
def test_keywords_alone_are_worth_a_medium_level_only_where_a_specific_term_is_declared(
    specific, level, l1
):
    found = [first(None, layers=("L0",))]
    relevance = judge(found, hints("a.md", specific=specific), l1, model=RelevanceModel(9.0, {}))
    assert (relevance["level"], relevance["semantic_support"]) == (level, False)
    assert relevance["reason"].startswith("keyword match alone: ")
    assert f"L1 {l1}" in relevance["reason"]


def test_a_specific_term_of_another_entry_claims_nothing_for_the_first():
    found = [first(None, layers=("L0",)), first(None, layers=("L0",), entry_id="b.md")]
    assert judge(found, hints("b.md"), "failed")["level"] == "low"


def test_what_no_passage_holds_is_named_exact_things_first():
    terms = written_terms("refund of invoice E-4711 on 8443 or 22 退款")
    counts = {**dict.fromkeys(terms, 0), "refund": 1}
    relevance = judge([first()], query=terms, counts=counts)
    named = relevance["reason"].partition("no passage holds ")[2].split("; ")[0]
    assert (
        named == f"'E-4711', '8443', '22' and {len(missing_words(terms, counts)) - MAX_NAMED} more"
    )
    kept = hash_query({"query": "x", "retrieval_details": {"relevance": relevance}})
    assert named not in relevance["reason"].replace(f"; no passage holds {named}", "")
    assert kept["retrieval_details"]["relevance"]["reason"] == relevance["reason"].replace(
        f"; no passage holds {named}", ""
    )
    relevance = judge([first()], query=terms, counts={"invoice": 0, "退款": 0, "22": 0})
    assert "; no passage holds '22', 'invoice';" in relevance["reason"] + ";"


def test_a_long_word_that_no_passage_holds_is_named_by_its_beginning():
    word = "z" * 500
    reason = judge([first()], query=written_terms(word), counts={word: 0})["reason"]
    assert f"no passage holds '{'z' * (MAX_NAME - 1)}…'" in reason


@pytest.mark.parametrize(
    ("query", "counts", "layers", "level"),
    [
        ("4242", {"4242": 0}, ("L1",), "low"),
        ("4242 or 17?", {"4242": 0, "17": 0}, ("L1",), "low"),
        ("4242 or 17?", {"4242": 0, "17": 3}, ("L1",), "medium"),
        ("17", {"17": 3}, ("L1",), "medium"),
        ("17", {"17": 3}, ("L0", "L1"), "high"),
        ("refund 17", {"17": 3, "refund": 3}, ("L1",), "high"),
        ("refund 4242", {"4242": 0, "refund": 3}, ("L1",), "high"),
        ("refund", {"refund": 0}, ("L1",), "high"),
    ],
)
def test_numbers_alone_claim_little(query, counts, layers, level):
    found, model = [first(layers=layers)], RelevanceModel(9.0, {})
    relevance = judge(found, query=written_terms(query), counts=counts, model=model)
    assert relevance["level"] == level


@pytest.mark.parametrize("layers", [("L1",), ("L0",)])
def test_a_missing_exact_thing_is_named_as_it_was_written(layers):
    counts = {**COUNTS, "e-4711": 0}
    assert "; no passage holds 'E-4711'" in judge([first(layers=layers)], counts=counts)["reason"]
    assert "no passage holds" not in judge([first(layers=layers)])["reason"]


def test_a_term_that_was_not_searched_for_is_not_called_missing():
    assert "no passage holds" not in judge([first()], counts={})["reason"]
    assert "no passage holds" not in judge([first()], counts={"of another query": 0})["reason"]


def candidate(entry_id, similarity):
    return {"entry_id": entry_id, "similarity": similarity}


def test_the_features_of_a_first_match():
    found = [
        found_entry(passage("A refund."), passage("E-1", heading="Fees"), score=0.8, title="VPN"),
        found_entry(passage("other"), score=0.6, entry_id="b.md", similarity=None),
        found_entry(passage("third"), score=0.2, entry_id="c.md", similarity=0.3),
    ]
    others = [("a.md", 0.5), ("b.md", None), ("c.md", 0.3), ("d.md", 0.1)]
    counts = {"refund": 1, "fee": 4, "vpn": RARE + 1, "e-9": 0}
    weights = {term: rarity(count) for term, count in counts.items()}
    measured = features(found, [candidate(*one) for one in others], list(counts), counts, 100)
    assert measured == {
        "agreement": 0.8,
        "named": pytest.approx(weights["vpn"] / sum(weights.values())),
        "absent": pytest.approx(0.25 * math.log(100)),
        "hinted": 0.0,
        "lead": pytest.approx(0.75),
        "above_others": pytest.approx(0.5 - (0.3 + 0.1) / 2),
        "no_similarity": 0.0,
    }


def test_a_term_in_the_heading_of_the_best_passage_is_named_and_no_other():
    passages = [passage("A", heading="Refund"), passage("B", heading="Fees")]
    found = [found_entry(*passages, title="VPN")]
    assert features(found, [], ["refund", "fee"], {}, 1)["named"] == pytest.approx(0.5)


def test_a_missing_term_tells_nothing_of_a_single_entry_and_more_the_more_entries_there_are():
    def absent(entries):
        return features([first()], [], ["fee"], {"fee": 0}, entries)["absent"]

    assert absent(0) == absent(1) == 0.0
    assert absent(10) < absent(1000)
    by_words = features([first(None)], [], ["fee"], {"fee": 0}, 1)
    assert by_words["absent"] == pytest.approx(math.log(MANY_ENTRIES))


def test_the_features_of_an_only_match_and_of_a_query_without_words():
    found = [first(None, score=1.3, layers=("L0", "L1"))]
    assert features(found, [candidate("b.md", 0.3)], [], {}, 2) == {
        "agreement": 1.0,
        "named": 0.0,
        "absent": 0.0,
        "hinted": 1.0,
        "lead": 1.0,
        "above_others": 0.0,
        "no_similarity": 1.0,
    }
    assert features([first()], [candidate("a.md", 0.5)], [], {}, 1)["above_others"] == 0.0
    assert features([first(score=0.0)], [], ["refund"], {}, 1)["lead"] == 0.0


def test_every_feature_is_measured_and_weighed():
    assert tuple(features([first()], [], list(TERMS), COUNTS, 1)) == FEATURES
    assert set(FEATURES) == set(BUNDLED.weights)
    assert set(BUNDLED.weights) - set(UNFITTED.weights) == {"above_others", "no_similarity"}


@pytest.mark.parametrize(
    ("probability", "level"),
    [
        (HIGH + 0.01, "high"),
        (HIGH - 0.01, "medium"),
        (MEDIUM + 0.01, "medium"),
        (MEDIUM - 0.01, "low"),
    ],
)
def test_levels_begin_at_their_probabilities(probability, level):
    logit = math.log(probability / (1 - probability))
    assert RelevanceModel(logit, {}).level({}) == level


def test_a_probability_is_that_of_a_logistic_model():
    model = RelevanceModel(-1.0, {"named": 2.0, "lead": -4.0})
    measured = {"hinted": 9.0, "agreement": 9.0, "named": 1.0, "lead": 0.5}
    assert model.probability(measured) == pytest.approx(1 / (1 + math.e))
    assert RelevanceModel(1e9, {}).probability({}) == pytest.approx(1.0)


@pytest.mark.parametrize(("embedding", "fitted"), [(FastEmbedModel, True), (WordEmbeddings, False)])
def test_only_the_bundled_embedding_model_has_a_model_of_relevance_from_the_start(
    embedding, fitted, tmp_path
):
    assert model_for(embedding(), tmp_path).fitted is fitted


@pytest.mark.parametrize(
    ("agreement", "text", "counts", "level"),
    [
        (0.9, "A refund of E-4711.", {"e-4711": 1, "refund": 3}, "high"),
        (0.9, "A refund of E-4712.", {"e-4711": 0, "refund": 3}, "low"),
        (0.9, "A refund of E-4712.", {"e-4711": 2, "refund": 3}, "medium"),
        (0.1, "A refund of E-4711.", {"e-4711": 1, "refund": 3}, "medium"),
        (0.1, "A refund of E-4712.", {"e-4711": 2, "refund": 3}, "low"),
        (0.9, "A refund of E-4712.", {"e-4711": RARE + 1, "refund": 3}, "high"),
        (0.9, "On 10.0.0.1 it is.", {"10.0.0.1:8080": 0, "10.0.0.1": 1}, "high"),
        (0.9, "A refund.", {"refund": 0}, "high"),
    ],
)
def test_exact_things_of_the_query_bound_the_level(agreement, text, counts, level):
    query = written_terms("refund E-4711 10.0.0.1:8080")
    model = RelevanceModel(-4.0, {"agreement": 8.0})
    found = [found_entry(passage(text), score=agreement)]
    assert judge(found, query=query, counts=counts, model=model)["level"] == level
