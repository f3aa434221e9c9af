"""Which titles, keywords and entities are worth matching."""

from langchain_lookup_knowledge.text.tokens import Tokens, plain
from langchain_lookup_knowledge.text.words import GENERIC_TITLES, STOP_WORDS

MAX_TOKENS = 32
"""Maximum tokens of a term; longer terms are not matched, because nobody types them in full."""


def is_generic(title: str) -> bool:
    """Return whether a title, such as README, says nothing about its text."""
    return plain(title).casefold().strip() in GENERIC_TITLES


def is_worth_matching(tokens: Tokens) -> bool:
    """Return whether a term is worth matching.

    Stop words, bare punctuation, lowercase single letters and texts of more than `MAX_TOKENS`
    tokens are not.
    """
    if len(tokens) != 1:
        return 0 < len(tokens) <= MAX_TOKENS
    text, token = tokens.text, tokens[0]
    symbols = (text[: token.start] + text[token.end :]).strip()
    if symbols or token.spaceless or not token.exact.isalnum():
        return True
    is_name = text.strip().isupper()
    if len(token.exact) == 1:
        return is_name and token.exact not in STOP_WORDS
    return is_name or token.exact not in STOP_WORDS
