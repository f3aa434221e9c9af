"""Which text is shown of the entries of an answer."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from parts.found import found_entry, passage

from langchain_lookup_knowledge.lookup.answer.snippets import (
    GAP,
    HEADING_CHARS,
    MAX_WINDOW,
    MAX_WINDOWS,
    WEAK_WINDOW,
    from_first,
    show,
)
from langchain_lookup_knowledge.text.excerpts import unwrapped
from langchain_lookup_knowledge.text.search_terms import (
    parts_of,
    search_terms,
    written_terms,
)
from langchain_lookup_knowledge.text.wording import shorten

FILLER = "Nothing to see in this sentence, which goes on. "


def shown(found, query="", counts=None, max_chars=4400):
    return show(found, written_terms(query), counts or {}, max_chars)


def snippet(*passages, **arguments):
    (match,) = shown([found_entry(*passages)], **arguments)
    return match["snippet"]


def in_snippet(match):
    """Return the text at the place of each passage of a match."""
    return [match["snippet"][slice(*one["span"])] for one in match["passages"]]


def test_a_match_is_its_entry_with_its_passages():
    passages = [
        passage("Refunds take days.", 0.9, 3, heading="Refunds", lines=[7, 9]),
        passage("Ask the desk.", 0.4, 1, heading="Desk"),
    ]
    declared = {"field": "keywords", "text": "refund"}
    (match,) = shown([found_entry(*passages, matched=[declared])], query="a refund, please")
    assert match == {
        "entry_id": "a.md",
        "title": "a.md",
        "categories": ["c"],
        "source": "a.md",
        "heading": "Refunds",
        "lines": [7, 9],
        "snippet": f"## Desk\n\nAsk the desk.{GAP}## Refunds\n\nRefunds take days.",
        "score": 1.0,
        "similarity": 0.5,
        "layers": ["L1"],
        "matched": [declared, {"field": "text", "text": "refund"}],
        "metadata": {},
        "passages": [
            {"heading": "Refunds", "lines": [7, 9], "score": 0.9, "span": [39, 57]},
            {"heading": "Desk", "lines": None, "score": 0.4, "span": [9, 22]},
        ],
    }


def test_neighbors_are_joined_and_others_are_separated():
    first, second, fourth = (passage(f"Passage {n}.", 0.5, n) for n in (1, 2, 4))
    assert snippet(second, fourth, first) == f"Passage 1.\n\nPassage 2.{GAP}Passage 4."


@pytest.mark.parametrize(
    ("headings", "shown_above"),
    [
        (["Guide > Refunds"] * 3, ["", "", ""]),
        (["Guide > Refunds", "Guide > Desk", "Guide > Desk"], ["", "## Desk", ""]),
        (["Guide > Refunds", "Guide > Desk", "Guide > Refunds"], ["", "## Desk", "## Refunds"]),
        (["Guide > Refunds", "", "Guide > Refunds"], ["", "## a.md", "## Refunds"]),
    ],
)
def test_a_heading_is_shown_where_another_one_than_the_one_before_applies(headings, shown_above):
    passages = [
        passage(f"Passage {n}.", 0.5 - n / 10, n, heading=heading)
        for n, heading in enumerate(headings)
    ]
    blocks = [
        f"{above}\n\nPassage {n}." if above else f"Passage {n}."
        for n, above in enumerate(shown_above)
    ]
    (match,) = shown([found_entry(*passages)])
    assert (match["heading"], match["snippet"]) == (headings[0], "\n\n".join(blocks))
    assert in_snippet(match) == [f"Passage {n}." for n in range(3)]


def test_what_begins_under_no_heading_stands_under_the_title_alone():
    passages = [passage("Second.", 0.9, 2, heading="Guide > Refunds"), passage("First.", 0.4, 1)]
    (match,) = shown([found_entry(*passages)])
    assert match["heading"] == "Guide > Refunds"
    assert match["snippet"] == "First.\n\n## Refunds\n\nSecond."


@pytest.mark.parametrize(
    "text", ["## Desk", "Desk\n===", "Desk\n   ---", "<h2>Desk</h2>", "### Desk #"]
)
def test_a_heading_that_the_text_begins_with_is_not_repeated(text):
    body = f"{text}\n\nAsk there."
    first = passage("First.", 0.9, 1, heading="Top")
    assert snippet(first, passage(body, 0.5, 2, heading="Desk")) == f"First.\n\n{body}"


def test_a_long_title_in_place_of_a_heading_is_shortened():
    passages = [passage("First.", 0.9, 1, heading="Desk"), passage("Second.", 0.5, 2)]
    (match,) = shown([found_entry(*passages, title="T" * 5000)])
    above = "## " + "T" * (HEADING_CHARS - 1) + "…"
    assert match["snippet"] == f"First.\n\n{above}\n\nSecond."
    assert in_snippet(match) == ["First.", "Second."]


def test_passages_without_numbers_or_cut_are_no_neighbors():
    assert snippet(passage("One.", 0.5, None), passage("Two.", 0.5, None)) == f"One.{GAP}Two."
    cut = passage(FILLER * 100, 0.9, 0)
    text = snippet(cut, passage("Two.", 0.9, 1), max_chars=2000)
    assert text.endswith(f"{GAP}Two.")


def test_a_passage_is_cut_to_the_part_that_holds_the_words_of_the_query():
    text = FILLER * 40 + "The port is 8443. " + FILLER * 40
    assert "8443" in snippet(passage(text), query="which port is 8443", max_chars=1200)


def test_the_rarest_words_decide_what_is_cut():
    text = "The gateway port. " + FILLER * 60 + "The answer is E-4711."
    counts = {"gateway": 17, "port": 17, "e-4711": 1, "4711": 1}
    query = "the E-4711 of the gateway port"
    assert "E-4711" in snippet(passage(text), query=query, counts=counts, max_chars=1200)


def test_characters_go_where_the_evidence_is():
    strong = found_entry(*(passage(f"{n} {FILLER}" * 15, 0.9, 2 * n) for n in range(3)))
    weak = found_entry(passage(FILLER * 15, 0.01), entry_id="b.md", score=0.1)
    matches = shown([strong, weak], max_chars=2400)
    assert len(matches[0]["snippet"]) > 1500
    assert 0 < len(matches[1]["snippet"]) <= 120


def test_further_passages_of_one_entry_give_way_to_equal_ones_of_another():
    first = found_entry(*(passage(FILLER * 12, 0.5, 2 * n) for n in range(5)))
    second = found_entry(passage(FILLER * 12, 0.49), entry_id="b.md", score=0.99)
    matches = shown([first, second], max_chars=2875)
    assert len(matches[0]["passages"]) == 3
    assert len(matches[1]["snippet"]) > 500


def test_of_an_entry_no_more_than_a_few_passages_are_shown():
    passages = [passage(f"Passage {n}.", 0.5, n) for n in range(9)]
    found = [found_entry(*passages, entry_id=f"{place}.md") for place in range(3)]
    of_best, of_others = MAX_WINDOWS
    assert [len(match["passages"]) for match in shown(found)] == [of_best, of_others, of_others]


def test_windows_of_weaker_entries_are_shorter():
    found = [
        found_entry(passage(FILLER * 60), entry_id=f"{n}.md", score=1 - n / 5) for n in range(4)
    ]
    lengths = [len(match["snippet"]) for match in shown(found)]
    assert [MAX_WINDOW - len(FILLER) < length <= MAX_WINDOW for length in lengths[:2]] == [True] * 2
    assert [WEAK_WINDOW - len(FILLER) < n <= WEAK_WINDOW for n in lengths[2:]] == [True] * 2


def test_an_exact_thing_in_a_passage_of_little_score_is_shown():
    passages = [passage(f"{n} {FILLER}" * 15, 0.9, n) for n in range(MAX_WINDOWS[0] + 2)]
    passages[0] |= {"text": f"An invoice. {FILLER * 14}", "rare": ["invoice"]}
    held = passage(FILLER * 30 + "Error E-4711. " + FILLER, 0.01, 9, rare=["e-4711"])
    counts = {"e-4711": 3, "invoice": 1}
    (match,) = shown([found_entry(*passages, held)], "E-4711 of an invoice", counts)
    assert "E-4711" in match["snippet"]
    assert len(match["passages"]) == 1 + MAX_WINDOWS[0]
    assert match["matched"] == [{"field": "text", "text": "E-4711 invoice"}]


def test_a_term_that_the_index_takes_for_held_and_no_text_holds_keeps_none_from_being_shown():
    passages = [passage(f"{n} {FILLER}" * 15, 0.9, n, rare=["7-a"]) for n in range(5)]
    held = passage("Error E-4711.", 0.01, 9, rare=["e-4711"])
    (match,) = shown([found_entry(*passages, held)], "7-A E-4711", {"7-a": 1, "e-4711": 3})
    assert "E-4711" in match["snippet"]


def test_where_it_is_not_known_how_many_hold_a_term_exact_things_call_for_a_passage():
    passages = [passage(f"{n} {FILLER}" * 15, 0.9, n) for n in range(5)]
    held = passage("The invoice of E-4711.", 0.01, 9, rare=["invoice", "e-4711"])
    for query, is_shown in (("E-4711", True), ("invoice", False)):
        rare = [term for term in held["rare"] if term in written_terms(query)]
        (match,) = shown([found_entry(*passages, held | {"rare": rare})], query)
        assert ("E-4711" in match["snippet"]) is is_shown


def test_the_parts_of_an_exact_thing_call_for_a_passage_only_where_none_holds_the_whole():
    passages = [passage(f"{n} {FILLER}" * 15, 0.9, n) for n in range(5)]
    parts = passage("Chapter 14.", 0.01, 9, rare=["14"])
    for whole, is_shown in ((["2.14.3", "14"], False), ([], True)):
        first = "Since 2.14.3. " if whole else FILLER
        passages[0] |= {"text": first + FILLER * 14, "rare": whole}
        counts = {"2": 17, "14": 2, "3": 17, "2.14.3": len(whole) // 2}
        (match,) = shown([found_entry(*passages, parts)], "2.14.3", counts)
        assert ("Chapter 14" in match["snippet"]) is is_shown


@pytest.mark.parametrize("place", ["heading", "title"])
def test_a_term_in_the_heading_of_a_passage_that_is_shown_does_not_cut_it(place):
    named = {place: "Version 2.14.3"}
    heading = {"heading": named["heading"]} if place == "heading" else {}
    text = FILLER * 15 + "It was called Katanafa."
    entry = found_entry(
        passage(text, 0.9, 3, rare=["2.14.3"], **heading),
        passage(FILLER * 12, 0.5, 7),
        title=named.get("title", "Versions"),
    )
    (match,) = shown([entry], "2.14.3", {"2.14.3": 1})
    assert text in match["snippet"]


def test_a_common_word_calls_for_no_passage_of_its_own():
    passages = [passage(f"{n} {FILLER}" * 15, 0.9, n) for n in range(5)]
    held = passage("An invoice.", 0.01, 9, rare=["invoice"])
    entry = found_entry(*passages, held)
    for count, is_shown in ((1, True), (3, False)):
        (match,) = shown([entry], "invoice", {"invoice": count})
        assert ("invoice" in match["snippet"]) is is_shown


def test_matched_names_the_words_that_are_shown_and_no_others():
    (match,) = shown([found_entry(passage("Refunds of E-1."))], "the refund for E-2, E-1, and tax")
    assert match["matched"] == [{"field": "text", "text": "refund E-1"}]
    (match,) = shown([found_entry(passage("Leave."))], "tax")
    assert match["matched"] == []


def test_a_match_without_a_passage_has_no_text():
    (match,) = shown([found_entry()], "refund")
    assert (match["snippet"], match["heading"], match["passages"]) == ("", "", [])


def test_nothing_found_is_nothing_shown():
    assert shown([], "refund") == []


WORDS = ["refund", "leave", "E-4711", "v2.14.3", "8443", "tax", "the", "退款", "x.y_z"]
TEXTS = st.lists(
    st.sampled_from(
        [*(f"{w} " for w in WORDS), ". ", "\n", "。", "x " * 200, FILLER * 3, FILLER * 8]
    ),
    min_size=1,
)
SCORES = st.floats(0, 2)
HEADINGS = st.sampled_from(["", "Install", "Install > Ports", "Install > " + "x" * 200])


@st.composite
def answers(draw):
    """Entries with passages, what the query holds of them, and how many passages hold each term."""
    query = " ".join(draw(st.lists(st.sampled_from(WORDS), unique=True)))
    terms = written_terms(query)
    made = [
        [
            ("".join(draw(TEXTS)).strip() or "x", draw(SCORES), number, draw(HEADINGS))
            for number in sorted(draw(st.sets(st.integers(0, 20), min_size=1, max_size=5)))
        ]
        for _ in range(draw(st.integers(1, 7)))
    ]
    texts = [text for passages in made for text, _, _, _ in passages]
    counts = {term: sum(term in search_terms(text) for text in texts) for term in terms}
    found = [
        found_entry(
            *(
                passage(
                    text,
                    score,
                    n,
                    heading=heading,
                    rare=[t for t in terms if t in search_terms(text)],
                )
                for text, score, n, heading in sorted(passages, key=lambda one: -one[1])
            ),
            entry_id=f"{place}.md",
            score=1 / (place + 1),
        )
        for place, passages in enumerate(made)
    ]
    return found, query, counts


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(answers(), st.integers(500, 5000))
@pytest.mark.slow
def test_whatever_was_found_what_is_shown_is_text_of_it_within_its_room(answer, max_chars):
    found, query, counts = answer
    matches = shown(found, query, counts, max_chars)
    assert [match["entry_id"] for match in matches] == [entry.entry_id for entry in found]
    text_chars = 0
    for match, entry in zip(matches, found, strict=True):
        assert match["snippet"].strip()
        texts = [unwrapped(one["text"]) for one in entry.passages]
        assert all(part and any(part in text for text in texts) for part in in_snippet(match))
        spans = sorted(one["span"] for one in match["passages"])
        between = [
            match["snippet"][end:start]
            for (_, end), (start, _) in zip(spans, spans[1:])  # noqa: B905, RUF007
        ]
        before = match["snippet"][: spans[0][0]]
        assert spans[-1][1] == len(match["snippet"])
        joints = [before, *(text.removeprefix(GAP).removeprefix("\n\n") for text in between)]
        text_chars += len(match["snippet"]) - sum(map(len, joints))
        headings = {one["heading"].rpartition(" > ")[2] for one in entry.passages}
        above = {f"## {shorten(heading or entry.title, HEADING_CHARS)}\n\n" for heading in headings}
        assert set(joints) <= {"", *above}
        assert all(text.startswith(("\n\n", GAP)) for text in between)
        scores = [one["score"] for one in match["passages"]]
        assert scores == sorted(scores, reverse=True)
        named = [one["text"] for one in match["matched"] if one["field"] == "text"]
        in_text = {term for part in in_snippet(match) for term in search_terms(part)}
        written = written_terms(query)
        held = in_text.intersection(written)
        whole = held - parts_of(held)
        assert set(" ".join(named).split()) == {written[term] for term in whole}
    assert text_chars <= max_chars  # apart from lines with headings


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(answers())
@pytest.mark.slow
def test_an_exact_thing_that_a_passage_holds_is_shown(answer):
    found, query, counts = answer
    text = "\n".join(match["snippet"] for match in shown(found, query, counts))
    shown_terms = search_terms(text)
    held = [t for t in ("e-4711", "2.14.3") if counts.get(t)]
    assert [t for t in held if t not in shown_terms] == []


@pytest.mark.parametrize(
    ("text", "path", "above"),
    [
        ("## Desk\n\nAsk.", None, ""),
        ("### **Desk** ##\n\nAsk.", None, ""),
        ("Desk\n====\n\nAsk.", None, ""),
        ("# Desk", None, ""),
        ("## Desks\n\nAsk.", None, "## Desk\n\n"),
        ("```\n# Desk\n```", None, "## Desk\n\n"),
        ("Desk\n\nAsk.", None, "## Desk\n\n"),
        ("Ask.\n\n## Desk", None, "## Desk\n\n"),
        ("## Desk\n\nAsk.", "desk.md", "(desk.md:3-5)\n\n"),
        ("Ask.", "desk.md", "## Desk (desk.md:3-5)\n\n"),
    ],
)
def test_a_heading_that_the_text_begins_with_is_shown_once(text, path, above):
    embedded = {"path": path} if path else {}
    second = passage(text, 0.4, 5, heading="Guide > Desk", lines=[3, 5]) | embedded
    (match,) = shown([found_entry(passage("Refunds.", 0.9, heading="Refunds"), second)])
    assert match["snippet"] == f"Refunds.{GAP}{above}{text}"
    assert in_snippet(match) == ["Refunds.", text]
    first = above.replace(" (desk.md:3-5)", "").removeprefix("(desk.md:3-5)\n\n")
    assert from_first(match) == f"Refunds.{GAP}{first}{text}"


def test_gaps_that_hidden_text_leaves_are_one_empty_line():
    code = "```\na\n\n\nb\n```\n\n    c\n\n\n    d"
    text = f"One.\n\n\n\nTwo.\n \n\n{code}"
    assert snippet(passage(text)) == f"One.\n\nTwo.\n \n{code}"
