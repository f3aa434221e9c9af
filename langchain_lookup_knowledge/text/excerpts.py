"""Choosing the part of a text that answers a query: whole lines or sentences, up to a limit."""

import re
from collections.abc import Iterator, Mapping
from itertools import pairwise

from langchain_lookup_knowledge.text.search_terms import held_terms

_JOINT = re.compile(r"\n|[.!?] |[。！？]")
_WORD_JOINT = re.compile(r"(?<=[\s，、；])")
_FENCE = re.compile(r"(?:[ \t>]|[-*+] |\d+[.)] )*(`{3,}|~{3,})")
_INDENTED = re.compile(" {4}|\t")
_QUOTE = re.compile(r"(?:[ \t]*>)*")
_BLOCK = re.compile(
    r"#{1,6}[ \t]|[-*+][ \t]|\d{1,9}[.)][ \t]|>|<|:|`{3}|~{3}|=+[ \t]*$|-{2,}[ \t]*$|!!!|\+\+\+"
    r"|([*_-][ \t]*){3,}$|\[[^\]]*\]:|\[!|\S+::"
)
_HARD = ("  ", "\\")
_SPACELESS = re.compile("[\u3001-\u30ff\u3400-\u9fff\uff01-\uff60]")
WRAPPED = 40
"""Minimum length of a line that an editor may have wrapped, in characters.

A shorter line is joined only to a next line that begins with a lowercase letter.
"""
_PIECES = 16
"""Text is cut into pieces of at least `limit // _PIECES` characters, except the last one."""


def excerpt(text: str, weights: Mapping[str, float], limit: int) -> tuple[int, int]:
    """Return the start and end of the whole lines or sentences with the highest total term weight.

    The excerpt is as long as possible within `limit` characters. Among equals, the first wins. A
    text that fits is returned whole; a sentence that is too long is cut between words if possible.
    """
    if len(text) <= limit:
        return 0, len(text)
    edges = [0, *_edges(text, limit), len(text)]
    pieces = [held_terms(text[start:end], weights) for start, end in pairwise(edges)]
    best, first, last = -1.0, 0, 1
    for start in range(len(pieces)):
        seen: set[str] = set()
        end = start
        while end < len(pieces) and (end == start or edges[end + 1] - edges[start] <= limit):
            seen |= pieces[end]
            end += 1
        value = sum(weights[term] for term in seen)
        if value > best + 1e-9:
            best, first, last = value, start, end
    return edges[first], min(edges[last], edges[first] + limit)


def unwrapped(text: str) -> str:
    """Return Markdown with the hard-wrapped lines of each paragraph joined.

    Code, tables, headings, list items and deliberate line breaks are kept. Of several empty lines
    in a row outside code, one is kept.
    """
    if "\n" not in text:
        return text
    parts: list[str] = []
    fence, above, depth = "", "", -1  # quote depth; -1: no line joins the one above
    written = ""  # the last line that is not empty
    for line in text.split("\n"):
        mark = _FENCE.match(line)
        is_code = bool(fence or mark or (not above.strip() and line.startswith(("    ", "\t"))))
        quote = _QUOTE.match(line)
        rest = line[quote.end() if quote else 0 :].lstrip()
        here = line.count(">", 0, len(line) - len(rest))
        is_text = not is_code and rest != "" and "|" not in rest
        if is_text and here == depth and not _BLOCK.match(rest) and _goes_on(above, rest):
            parts += [_joint_of(above, rest), rest]
        elif line.strip() or above.strip() or fence or not parts or _INDENTED.match(written):
            parts += ["\n", line]
        if mark and not fence:
            fence = mark[1]
        elif mark and mark[1].startswith(fence) and not line.strip(" \t>`~"):
            fence = ""
        is_open = is_text and not rest.startswith(("#", "<")) and not line.endswith(_HARD)
        above, depth = line, here if is_open else -1
        written = line if line.strip() else written
    return "".join(parts[1:])


def _goes_on(above: str, rest: str) -> bool:
    return len(above) >= WRAPPED or rest[:1].islower()


def _joint_of(above: str, rest: str) -> str:
    return "" if _SPACELESS.match(above[-1:]) and _SPACELESS.match(rest[:1]) else " "


def _edges(text: str, limit: int) -> Iterator[int]:
    """Yield the positions where lines and sentences end, and where long sentences may be cut."""
    ends = sorted({found.end() for found in _JOINT.finditer(text)} | {len(text)})
    last = 0
    for end in ends:
        if end - last > limit:
            for found in _WORD_JOINT.finditer(text, last + 1, end - 1):
                if found.start() - last >= limit // _PIECES:
                    last = found.start()
                    yield last
        if end < len(text) and end - last >= limit // _PIECES:
            yield end
            last = end
