"""Passages: cut where Markdown has a joint, never too long, and nothing lost."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from langchain_lookup_knowledge.documents import Entry
from langchain_lookup_knowledge.passages import Passage, split_passages

SIZE = 300


def passages(text, size=SIZE):
    return split_passages(Entry("a.md", "Title", (), (), (), text), size=size, length=len)


def texts(text, size=SIZE):
    return [passage.text for passage in passages(text, size)]


def lines(count, start="line"):
    return "\n".join(f"{start} {i} of the block" for i in range(count))


def test_passages_follow_headings_and_size():
    long = "\n\n".join(f"Paragraph {i} " + "word " * 20 for i in range(10))
    found = passages(f"Intro.\n\n# One\n\n## Two\n\n{long}\n\n# Three\n\nEnd.\n")
    assert [passage.number for passage in found] == list(range(len(found)))
    assert all(len(passage.text) <= SIZE for passage in found)
    assert found[0].text.startswith("Intro.")
    assert found[1].heading == "One > Two"
    assert "Paragraph 9" in " ".join(passage.text for passage in found)
    assert found[-1].text.endswith("End.")


def test_an_entry_without_text_is_one_passage():
    assert texts("") == ["Title"]


def test_a_code_block_that_fits_is_not_cut():
    code = f"```sh\n{lines(8)}\n\n{lines(2)}\n```"
    before = "Some words before it. " * 10
    assert texts(f"{before}\n\n{code}\n\nafter") == [before.strip(), f"{code}\n\nafter"]


@pytest.mark.parametrize(("opening", "closing"), [("```sh", "```"), ("~~~~", "~~~~"), ("```", "")])
def test_each_piece_of_a_long_code_block_is_a_code_block(opening, closing):
    found = texts(f"{opening}\n{lines(40)}\n{closing}".rstrip())
    assert len(found) == 3
    assert all(text.startswith(f"{opening}\n") and text.endswith(opening.strip("sh")) for text in found)
    assert "\n".join(text.split("\n", 1)[1].rsplit("\n", 1)[0] for text in found) == lines(40)


def test_each_piece_of_a_long_table_has_its_head():
    head = "| name | value |\n|:-----|------:|"
    rows = "\n".join(f"| row {i} | {i * i} |" for i in range(60))
    found = texts(f"{head}\n{rows}")
    assert len(found) > 3
    assert all(text.startswith(f"{head}\n|") for text in found)
    assert "\n".join(text.removeprefix(f"{head}\n") for text in found) == rows


def test_a_long_list_is_cut_between_its_items():
    items = [f"- item {i}\n  with a second line\n\n  - and a part of its own\n" for i in range(20)]
    found = texts("\n".join(items))
    assert len(found) > 3
    assert all(text.startswith("- item") and text.endswith("of its own") for text in found)


def test_a_paragraph_is_cut_between_sentences():
    found = texts("This is a sentence of some length, more or less. " * 20)
    assert len(found) > 1
    assert all(text.rstrip().endswith("less.") for text in found)


def test_one_word_longer_than_a_passage_is_cut():
    assert "".join(texts("x" * 1000)) == "x" * 1000


LINES = ["# Head", "## Sub", "- item", "  - inner", "1. one", "```", "~~~ sh", "| a | b |", "|---|---|", "| 1 | 2 |"]
LINES += ["", "  ", "word", "a longer line of words, with a comma", "x" * 70, "中文字符", "    code", "> quote", "\tx"]
MARKDOWN = st.lists(st.sampled_from(LINES), max_size=60).map("\n".join)


@given(MARKDOWN)
def test_no_passage_is_too_long_and_no_word_is_lost(text):
    found = passages(text, 60)
    assert all(len(passage.text) <= 60 for passage in found)
    shown = "".join("".join((passage.heading, passage.text)) for passage in found)
    for word in ("item", "inner", "word", "comma", "quote", "code"):
        assert shown.count(word) >= text.count(word)


def test_many_blocks_take_time_in_proportion():
    assert len(texts("- item of a list\n\n" * 20_000)) > 1000


def test_headings_without_text_are_not_lost():
    found = passages("# Outline\n\n## Refund of damaged goods\n\n## Chargebacks\n")
    assert "Refund of damaged goods" in found[0].text
    assert "Chargebacks" in found[0].text
    assert passages("# Title\n\n## Section\n\nText.\n")[0] == Passage(0, "Title > Section", "Text.")
