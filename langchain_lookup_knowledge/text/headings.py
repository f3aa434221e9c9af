"""Headings and titles as a reader sees them: without links, badges, marks, anchors and ids."""

import re
from collections.abc import Sequence

from markdown_it import MarkdownIt
from markdown_it.token import Token

from langchain_lookup_knowledge.text.visible.cleaning import one_line

MAX_SOURCE = 1000
"""Maximum characters of a heading's source that are read."""

_MARKDOWN = MarkdownIt("commonmark")
_TITLE = MarkdownIt("commonmark").disable(["emphasis"])
_WIKILINK = re.compile(r"!?\[\[([^\[\]|]*)(?:\|([^\[\]|]*))?[^\[\]]*\]\]")
_REFERENCE = re.compile(r"\[([^\[\]]+)\](?:\[[^\[\]]*\]|(?=\s*$)(?<=\w\]))")
_END = re.compile(r"\s*(?:\{[:#.][^{}]*\}|(?<=\s)\^[\w-]+)\s*$")
_ANCHOR = re.compile(r"[#¶§🔗\s]*")
EXPORT_ID = re.compile(r"(?<=\S)[ _-][0-9a-f]{32}$")
_ELEMENT = re.compile(r"</?([A-Za-z][\w-]*)([^>]*)>")
_ELEMENTS = frozenset(
    "a abbr b bdi bdo big br center cite code del dfn em font hr i img input ins kbd mark nobr p "
    "q s samp small span strike strong sub sup svg table td tr tt u var wbr div picture "
    "source".split()
)


def heading_text(raw: str, *, is_markdown: bool = True) -> str:
    """Convert the source of a heading to the one line of text that a reader sees.

    Entities are decoded. Alt texts of images, such as badges, are used only if there is no other
    text. Tags that are not HTML elements, such as `<T>`, stay as written.

    Args:
        raw: the source after the `#` marks, or between the tags `<h1>` and `</h1>`.
        is_markdown: False for a title in the frontmatter, where `*` and `_` are plain characters.
    """
    source = _WIKILINK.sub(_wikilink, _without_end(raw.strip()[:MAX_SOURCE]))
    parser = _MARKDOWN if is_markdown else _TITLE
    (inline,) = parser.parseInline(source.replace("\n", " "))
    tokens = inline.children or []
    text = one_line("".join(_texts(tokens)))
    return text or one_line(" ".join(token.content for token in tokens if token.type == "image"))


def file_title(stem: str) -> str:
    """Return the name of a file or folder without the id that an export tool appended."""
    return one_line(EXPORT_ID.sub("", stem))


def _without_end(raw: str) -> str:
    """Remove up to three ids or attribute lists from the end of a heading."""
    for _ in range(3):
        raw = _END.sub("", raw)
    return raw


def _wikilink(link: re.Match[str]) -> str:
    target, shown = link[1], link[2]
    return shown or target.rpartition("#")[2].rpartition("/")[2] or target


def _texts(tokens: Sequence[Token]) -> list[str]:
    found: list[str] = []
    link: int | None = None  # index in `found` at which the open link begins
    for token in tokens:
        if token.type == "link_open":
            link = len(found)
        elif token.type == "link_close" and link is not None:
            if _ANCHOR.fullmatch("".join(found[link:])):
                del found[link:]
            link = None
        elif token.type in ("softbreak", "hardbreak"):
            found.append(" ")
        elif token.type == "html_inline":
            found.append(_tag_text(token.content))
        elif token.type == "text":
            found.append(_REFERENCE.sub(r"\1", token.content))
        elif token.type != "image":
            found.append(token.content)
    return found


def _tag_text(tag: str) -> str:
    element = _ELEMENT.fullmatch(tag)
    if element is None:
        return ""
    if element[1].lower() == "br":
        return " "
    is_known = element[1].lower() in _ELEMENTS or element[2].strip()
    return "" if is_known else tag
