"""The part of a text that speaks of a query."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from langchain_lookup_knowledge.text import excerpts
from langchain_lookup_knowledge.text.excerpts import excerpt, unwrapped
from langchain_lookup_knowledge.text.search_terms import held_terms, search_terms

SENTENCES = "Refunds take days. Leave is long. Install the client. Call the desk. "


def taken(text, limit, **weights):
    start, end = excerpt(text, weights, limit)
    return text[start:end]


def test_a_text_that_fits_is_taken_whole():
    assert taken("One. Two.", 9, two=1.0) == "One. Two."
    assert taken("", 10, two=1.0) == ""


def test_whole_sentences_around_the_terms_are_taken_as_many_as_there_is_room_for():
    assert taken(SENTENCES, 42, client=1.0) == "Leave is long. Install the client. "
    assert taken(SENTENCES, 21, client=1.0) == "Install the client. "
    assert taken(SENTENCES, 21, desk=1.0) == "Call the desk. "


def test_lines_are_whole_too():
    table = "| port | use |\n| 80 | web |\n| 443 | tls |\n"
    assert taken(table, 15, **{"443": 1.0}) == "| 443 | tls |\n"


def test_sentences_of_scripts_without_blanks_are_whole_too():
    assert taken("退款五天。病假两周。安装客户端。", 6, 病假=1.0) == "病假两周。"


def test_the_heavier_term_wins_and_a_repeated_one_counts_once():
    text = "Leave leave leave leave. Refunds. Leave. "
    assert taken(text, 10, leave=1.0, refund=3.0) == "Refunds. "
    assert taken("Leave leave leave. Refund and leave. ", 18, leave=1.0, refund=0.5) == (
        "Refund and leave. "
    )


def test_the_first_of_equal_runs_wins():
    assert taken(SENTENCES, 20) == "Refunds take days. "
    assert taken("A refund. B refund. C refund. ", 12, refund=1.0) == "A refund. "


def test_of_a_sentence_that_is_too_long_the_part_with_the_terms_is_taken():
    text = "word " * 100 + "the port is 8443 " + "word " * 100 + "end."
    assert "8443" in taken(text, 60, **{"8443": 1.0})
    assert "8443" in taken("- " + "step, " * 90 + "8443\n", 60, **{"8443": 1.0})
    assert "退款" in taken("字数太多，" * 40 + "退款五天，" + "字数太多，" * 40, 30, 退款=1.0)


def test_a_word_that_is_too_long_is_cut():
    assert taken("x" * 500, 60) == "x" * 60


@settings(deadline=None)
@given(
    st.lists(
        st.sampled_from(["refund ", "leave. ", "x\n", "8443 ", "退款。", "of, "]), max_size=80
    ),
    st.integers(10, 200),
)
def test_an_excerpt_is_within_its_limit_and_holds_the_heaviest_term_that_the_text_holds(
    parts, limit
):
    text = "".join(parts)
    weights = {"8443": 100.0, "refund": 10.0, "退款": 1.0}
    start, end = excerpt(text, weights, limit)
    assert 0 <= start <= end <= len(text)
    assert end - start == len(text) if len(text) <= limit else 0 < end - start <= limit
    held = search_terms(text)
    best = next((term for term in weights if term in held), None)
    assert best is None or best in search_terms(text[start:end])


@pytest.mark.parametrize(
    ("text", "held"), [("Refunds of E-1", {"refund", "e-1"}), ("E-11", set()), ("", set())]
)
def test_the_terms_that_a_text_holds(text, held):
    assert held_terms(text, ["refund", "e-1", "leave"]) == held


@pytest.mark.parametrize("unit", ["a\n", "! ", "\n", "中。", "x\n\n"])
def test_the_number_of_pieces_does_not_grow_with_short_lines(unit):
    text = unit * (40_000 // len(unit))
    edges = list(excerpts._edges(text, 900))
    assert len(edges) <= len(text) / (900 // excerpts._PIECES)


LONG = "A line that is as long as an editor makes them,"


@pytest.mark.parametrize(
    ("text", "joined"),
    [
        (f"{LONG}\nand its rest.\n\nNext.\n", f"{LONG} and its rest.\n\nNext.\n"),
        (f"- {LONG}\n  and its rest\n- next\n", f"- {LONG} and its rest\n- next\n"),
        (f"> {LONG}\n> and its rest\n> > deeper\n", f"> {LONG} and its rest\n> > deeper\n"),
        ("Short,\nthen small.", "Short, then small."),
        ("One.\n\n\n\nTwo.\n\n\n- a\n\n", "One.\n\nTwo.\n\n- a\n"),
        ("> One.\n\n\n# Two\n\n\n", "> One.\n\n# Two\n"),
        ("\u9650\u5236\u901f\u7387" * 10 + "\n\u7684", "\u9650\u5236\u901f\u7387" * 10 + "\u7684"),
        *[
            (text, text)
            for text in (
                "Short.\nNext.",
                f"{LONG}  \nbroken",
                f"{LONG}\\\nbroken",
                f"# {LONG}\ntext",
                f"{LONG}\n# Heading\n",
                f"{LONG}\n- item\n1. item\n",
                f"| {LONG} |\n|---|\n| row |\n",
                f"{LONG}\n===\n",
                f"```\n{LONG}\ncode\n```\n",
                f"> ```\n> {LONG}\n> code\n> ```\n",
                f"a\n\n    {LONG}\n    code\n",
                f"{LONG}\n<p>\n",
                "```\na\n\n\n\nb\n```\n",
                "One.\n\n    a\n\n\n    b\n",
                "one line",
                "",
            )
        ],
    ],
)
def test_lines_that_an_editor_wrapped_are_joined(text, joined):
    assert unwrapped(text) == joined
    assert unwrapped(joined) == joined
