"""Words of messages."""

from langchain_lookup_knowledge.text.wording import shorten


def test_shorten_cuts_at_a_blank_and_says_so():
    assert shorten("short", 10) == "short"
    assert shorten("one two three", 10) == "one two…"
    assert shorten("x" * 30, 10) == "x" * 9 + "…"
