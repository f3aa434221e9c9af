"""The sentences that say why a lookup was answered as it was."""

import re

import pytest
from parts.invocations import invocation

from langchain_lookup_knowledge.inspector.charts import owed
from langchain_lookup_knowledge.inspector.evidence import with_marks
from langchain_lookup_knowledge.inspector.texts import whole
from langchain_lookup_knowledge.inspector.why import (
    answer_sentence,
    filter_sentence,
    next_ones,
    trust_sentence,
)
from langchain_lookup_knowledge.records.rows import readable_details

TERM = {
    "text": "E-4711",
    "field": "keywords",
    "span": [0, 6],
    "kind": "exact",
    "document_frequency": 1,
    "specific": True,
    "domains": ["billing"],
    "reason": "rare",
}
HINTS = {"terms": [TERM], "domains": ["billing"]}
MATCH = {
    "entry_id": "refunds.md",
    "title": "Refund <b>",
    "lines": [12, 20],
    "score": 1.0,
    "similarity": 0.58,
    "layers": ["L0", "L1"],
    "matched": [
        {"field": "keywords", "text": "E-4711"},
        {"field": "text", "text": "E-4711 refund"},
    ],
    "shares": {"meaning": 0.2, "words": 0.6, "hints": 0.2},
}
FIRED = {"category": "billing", "reason": "single_domain", "relaxed": False}


def said(sentence, query="E-4711 refund", **changes):
    made = invocation(1, query=query, **changes)
    made["retrieval_details"] |= {
        name: changes[name] for name in ("rare", "hidden") if name in changes
    }
    found = sentence(made, readable_details(made["retrieval_details"]))
    return None if found is None else re.sub(r"<[^>]*>", "", found)


def changed(**changes):
    return [{**MATCH, **changes}]


@pytest.mark.parametrize(
    ("expected", "given"),
    [
        (
            "Found in Refund &lt;b&gt;, lines 12 to 20, because it holds “E-4711”, its keyword, "
            "which only one file holds; it also holds “refund”; meaning agrees at 0.58.",
            {"matches": [MATCH], "l0_hints": HINTS},
        ),
        (
            "Found in Refund &lt;b&gt;, line 3, because its meaning comes nearest, at 0.58; it "
            "holds “refund”.",
            {
                "matches": changed(
                    lines=[3, 3],
                    matched=[{"field": "text", "text": "refund"}],
                    shares={"meaning": 0.8, "words": 0.2, "hints": 0.0},
                ),
                "candidates": [{"entry_id": "refunds.md", "score": 1.0, "similarity": 0.58}],
            },
        ),
        (
            "Found in Refund &lt;b&gt;, lines 12 to 20, because its meaning is near, at 0.58.",
            {
                "matches": changed(matched=[], shares={"meaning": 0.8, "words": 0.2}),
                "candidates": [{"entry_id": "nearer.md", "score": 0.5, "similarity": 0.61}],
            },
        ),
        (
            "Found by keywords alone in Refund &lt;b&gt;, lines 12 to 20, because the query names "
            "“E-4711”, its keyword, which only one file holds; it holds “refund”.",
            {
                "matches": changed(
                    similarity=None,
                    layers=["L0"],
                    matched=[MATCH["matched"][0], {"field": "text", "text": "refund"}],
                    shares={},
                ),
                "l0_hints": HINTS,
                "l1": {"status": "failed", "reason": "down"},
            },
        ),
        (
            "The nearest is Refund &lt;b&gt;, lines 12 to 20, because its meaning comes nearest, "
            "though only at 0.21.",
            {
                "matches": changed(
                    similarity=0.21, matched=[], shares={"meaning": 1.0, "words": 0.0}
                ),
                "candidates": [],
                "relevance": {"level": "low", "semantic_support": False, "reason": "x"},
            },
        ),
        (
            "Found in Refund &lt;b&gt;, lines 12 to 20, because it holds “E-4711”, which is in "
            "only 2 passages; it also holds “refund”.",
            {
                "matches": changed(
                    matched=MATCH["matched"][1:], similarity=None, shares={"words": 1.0}
                ),
                "rare": {"e-4711": 2, "refund": 9},
            },
        ),
        (
            "Found by keywords alone in Refund &lt;b&gt;, lines 12 to 20, because it holds "
            "“E-4711”, its keyword, which only one file holds; it also holds “refund”.",
            {
                "matches": changed(similarity=None, shares={}),
                "l0_hints": HINTS,
                "l1": {"status": "timeout", "reason": "late"},
            },
        ),
        (
            "Found in Refund &lt;b&gt;, lines 12 to 20, because the reranker put it first; it "
            "holds “refund”; meaning agrees at 0.58.",
            {
                "matches": changed(
                    matched=[{"field": "text", "text": "refund"}],
                    shares={"reranker": 0.9, "hints": 0.1},
                ),
                "l1": {"status": "ok", "reranked": True},
            },
        ),
        (
            "Found in Refund &lt;b&gt;, lines 12 to 20, because the query names "
            "“Refund &lt;b&gt;”, its title; it holds “E-4711”; meaning agrees at 0.58.",
            {
                "matches": changed(
                    matched=MATCH["matched"][1:],
                    shares={"hints": 0.5, "words": 0.3, "meaning": 0.2},
                ),
                "l0_hints": {
                    "terms": [{**TERM, "text": "Refund <b>", "field": "title", "specific": False}]
                },
            },
        ),
        ("Found in a.md.", {"matches": [{"entry_id": "a.md", "score": 1.0}]}),
        (
            "Nothing found: best similarity 0.1 is under min_similarity 0.6.",
            {
                "matches": [],
                "status": "no_match",
                "l1": {"reason": "best similarity 0.1 is under min_similarity 0.6"},
            },
        ),
        (
            "Nothing found: no passage, title, keyword or entity matched.",
            {"matches": [], "status": "no_match"},
        ),
        (
            "Refused: the caller is not known.",
            {
                "matches": [],
                "status": "refused",
                "relevance": {"reason": "the caller is not known"},
            },
        ),
        ("Cancelled before there was an answer.", {"matches": [], "status": "cancelled"}),
    ],
)
def test_one_sentence_says_what_was_found_and_why(expected, given):
    assert said(answer_sentence, **given) == expected


@pytest.mark.parametrize(
    ("expected", "given"),
    [
        (
            "Only the category “billing” was searched, because “E-4711” names no other; the best "
            "outside it, VPN at 0.31, is not clearly better.",
            {
                "filter": FIRED,
                "hidden": {"entry_id": "vpn.md", "title": "VPN", "similarity": 0.31},
            },
        ),
        (
            "Only the category “billing” was searched, because “E-4711” names no other.",
            {"filter": FIRED},
        ),
        (
            "“E-4711” names the category “billing” alone, but a search in it alone hid better "
            "candidates, so all categories were searched.",
            {"filter": {**FIRED, "relaxed": True}},
        ),
        (
            "“E-4711” names the category “billing”, but a category limits only vector "
            "search: no filter was used.",
            {"filter": FIRED, "l1_status": "timeout"},
        ),
        (
            "All categories were searched, because the query names several: “it” and “hr”.",
            {
                "filter": {"category": None, "reason": "several_domains", "relaxed": False},
                "l0_hints": {"domains": ["it", "hr"], "terms": [TERM]},
            },
        ),
        (
            "All categories were searched, because “E-4711” is too common to name one.",
            {"l0_hints": {"terms": [{**TERM, "specific": False}], "domains": []}},
        ),
        (
            "All categories were searched: the category filter is switched off.",
            {"filter": {"category": None, "reason": "off", "relaxed": False}},
        ),
        (None, {"status": "refused"}),
        (None, {"status": "degraded", "l1_status": "timeout"}),
    ],
)
def test_the_filter_is_said_as_it_happened(expected, given):
    assert said(filter_sentence, **{"l0_hints": HINTS, **given}) == expected


@pytest.mark.parametrize(
    ("expected", "options", "level", "score"),
    [
        ("b.md: it scores 50% of the first, and an answer takes 1 match.", {"k": 1}, "high", 0.5),
        (
            "b.md: it scores 20% of the first, and less than 35% is left out.",
            {"k": 5, "drop_weak": True},
            "high",
            0.2,
        ),
        ("b.md: it scores 50% of the first.", {"k": 5, "drop_weak": False}, "high", 0.5),
    ],
)
def test_what_came_next_is_said_with_the_reason(expected, options, level, score):
    made = invocation(
        1,
        matches=[MATCH],
        candidates=[{"entry_id": "refunds.md", "score": 1.0}, {"entry_id": "b.md", "score": score}],
        options=options,
        relevance={"level": level},
    )
    (line,) = next_ones(readable_details(made["retrieval_details"]))
    assert re.sub(r"<[^>]*>", "", line) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Error E-4711 <b>", 'Error <span class="quoted">E-4711</span> &lt;b&gt;'),
        ("out-of-office", "out-of-office"),
        ("1-" + "x" * 30, "1-" + "x" * 30),
    ],
)
def test_codes_are_not_broken_over_two_lines(text, expected):
    assert whole(text) == expected


def test_trust_names_the_words_that_no_passage_holds():
    reason = "similarity 0.20; no passage holds 'zebra'; not fitted to this embedding model"
    details = readable_details({"relevance": {"level": "low", "reason": reason}})
    assert trust_sentence(details) == (
        "The answer claims low relevance: it may not be in this folder; "
        "no passage holds &#39;zebra&#39;."
    )
    assert trust_sentence(readable_details({})) is None


def test_terms_of_scripts_without_spaces_are_marked_in_a_text():
    marks = with_marks("申请发票前。E-47110 E-4711", set(), ["发票", "E-4711"])
    assert re.findall('<mark class="hint">(.*?)</mark>', marks) == ["发票", "E-4711"]


def test_percentages_are_of_the_best_score_as_the_bars_are():
    def numbers(shares):
        return [number for _, _, number in owed(shares, 0.8)]

    assert numbers({"meaning": 0.2, "words": 0.6, "hints": 0.0}) == ["25%", "75%", "0%"]
    assert numbers({"meaning": 0.1}) == ["12%", "0%", "0%"]
    assert numbers({"reranker": 0.6, "hints": 0.2}) == ["75%", "25%"]
    assert numbers({}) == []
