"""Detecting Markdown blocks without content of their own: links, badges or encoded data."""

import re
from collections.abc import Iterator
from typing import NamedTuple

from langchain_lookup_knowledge.text.markdown import Block, Outline, outline

MIN_DATA = 200
"""Minimum characters of a block to be left out as encoded data."""

_TARGET = r"\(\s*<?([^()\s<>]*(?:\([^()\s]*\)[^()\s<>]*)*)>?(?:\s+(?:\"[^\"]*\"|'[^']*'))?\s*\)"
_IMAGE = re.compile(rf"!\[([^\[\]]*)\](?:{_TARGET}|\[[^\[\]]*\])")
_LINK = re.compile(rf"\[([^\[\]]*)\](?:{_TARGET}|\[[^\[\]]*\])")
_WIKILINK = re.compile(r"\[\[[^\[\]]+\]\]")
_ADDRESS = re.compile(r"<?\b(?:https?|ftp|mailto):[^\s<>]+>?")
_DEFINITION = re.compile(r"^ {0,3}\[[^\[\]\n]+\]:[ \t]*\S+(?:[ \t]+[\"'(][^\n]*)?[ \t]*$", re.M)
_MARK = re.compile(r"^[ \t>]*(?:[-*+]|\d{1,9}[.)])[ \t]+", re.M)
_TAG = re.compile(r"</?[A-Za-z][^<>]*>|<!--[^<>]*-->")
_WORD = re.compile(r"[^\W_]")
_RUN = re.compile(r"[A-Za-z0-9+/=_-]{48,}")
_KINDS_OF_CHARACTERS = (re.compile("[a-z]"), re.compile("[A-Z]"), re.compile("[0-9]"))
_BADGE = re.compile(r"badge|shields\.io", re.IGNORECASE)
_DRAWING = re.compile(r"[ \t]*[`~]{3,}[ \t]*compressed-json\b")


class LeftOut(NamedTuple):
    """A block that is left out of all passages.

    `first` and `last` are its lines, counted from 0; `characters` is its length.
    """

    reason: str
    first: int
    last: int
    characters: int


def left_out(text: str) -> Iterator[LeftOut]:
    """Yield the outermost blocks of a text that are left out of all passages."""
    lines = outline(text)
    for block in lines.blocks:
        if reason := reason_to_leave_out(lines, block):
            start, end = lines.start(block.first), lines.end(block.last)
            yield LeftOut(reason, block.first, block.last, end - start)


def reason_to_leave_out(lines: Outline, block: Block) -> str | None:
    """Return why a block is left out: "encoded data", "a table of contents", "badges", or None.

    A table of contents is a list of links within the page; its words repeat the headings. Links to
    other pages stay.
    """
    if block.kind == "heading":
        return None
    text = lines.text[lines.start(block.first) : lines.end(block.last)]
    if _is_data(text):
        return "encoded data"
    if block.kind not in ("list", "paragraph", "html") or not is_links_alone(text):
        return None
    without_images, images = _IMAGE.subn("", text)
    links = _LINK.findall(without_images)
    targets = [target for _, target in links]
    if len(links) > 1 and not images and all(target.startswith("#") for target in targets):
        return "a table of contents"
    shown = "".join(label for label, _ in links)
    is_linked = images <= len(links) and bool(links)
    if images and not _WORD.search(shown) and (is_linked or _BADGE.search(text)):
        return "badges"
    return None


def is_links_alone(text: str) -> bool:
    """Return whether a text holds links, images or addresses, and no word outside of them."""
    if not any(sign in text for sign in ("](", "][", "[[", "://", "]:")):
        return False
    found = 0
    for pattern in (_DEFINITION, _IMAGE, _LINK, _WIKILINK, _ADDRESS):
        text, count = pattern.subn("", text)
        found += count
    return found > 0 and not _WORD.search(_TAG.sub("", _MARK.sub("", text)))


def has_words(text: str) -> bool:
    """Return whether a text holds a word outside of HTML tags and definitions of links."""
    return bool(_WORD.search(_TAG.sub("", _DEFINITION.sub("", text))))


def _is_data(text: str) -> bool:
    """Return whether at least nine tenths of a long text look like Base64."""
    if len(text) < MIN_DATA:
        return False
    if _DRAWING.match(text):
        return True
    runs = (run[0] for run in _RUN.finditer(text))
    encoded = sum(len(run) for run in runs if all(k.search(run) for k in _KINDS_OF_CHARACTERS))
    return encoded >= MIN_DATA and 10 * encoded >= 9 * len("".join(text.split()))
