"""Headers without fences: Logseq properties, Pandoc title blocks, MultiMarkdown metadata.

Lines that might be ordinary text are not read as a header.
"""

import re
from typing import NamedTuple

_PROPERTY = re.compile(r"(?:- )?([^\W\d][\w./ -]{0,60})::(?=[ \t]|$)[ \t]*(.*)")
_KEY_VALUE = re.compile(r"([^\W\d][\w -]{0,60}):[ \t]+(\S.*)|([^\W\d][\w -]{0,60}):[ \t]*$")
_TITLE_LINE = re.compile(r"%(?:[ \t]+(.*))?$")
_MAN_PAGE = re.compile(r"\S+\(\d\w*\)")
_BLOCK_PROPERTY = re.compile(
    r"^([ \t]*(?:- )?)"
    r"(?:id:: [0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|collapsed:: \w+|logseq\.[\w.-]+:: .*)"
    r"[ \t]*$",
    re.MULTILINE,
)
_LOGBOOK = re.compile(
    r"^[ \t]*:LOGBOOK:[ \t]*\n(?:[ \t]*CLOCK:[^\n]*\n){1,100}[ \t]*:END:[ \t]*$", re.MULTILINE
)
_TITLE_BLOCK = ("title", "author", "date")

MAX_LINES = 100
"""Maximum lines of a header without fences."""


class Unfenced(NamedTuple):
    """A header without fences.

    `pairs` holds (key, value, line), with lines counted from 0; `lines` is the number of its lines.
    """

    pairs: list[tuple[str, str, int]]
    lines: int


def find_unfenced(text: str, *, untitled: bool = False) -> Unfenced | None:
    """Return the header that a text begins with, or None.

    A Logseq header has lines `key:: value`. A Pandoc header has three lines with `%`, the last with
    a date, or begins with the title of a manual page such as `% LS(1)`; other lines with `%` may be
    comments. A MultiMarkdown header has lines `Key: value` up to an empty line; one of the keys is
    `Title`. `untitled`: also accept such a header without `Title`.
    """
    lines = text.split("\n", MAX_LINES)[:MAX_LINES]
    return _properties(lines) or _title_block(lines) or _key_values(lines, untitled)


def _properties(lines: list[str]) -> Unfenced | None:
    pairs: list[tuple[str, str, int]] = []
    for number, line in enumerate(lines):
        found = _PROPERTY.fullmatch(line.rstrip())
        if not found:
            break
        pairs.append((found[1].strip(), found[2], number))
    return Unfenced(pairs, len(pairs)) if pairs else None


def _title_block(lines: list[str]) -> Unfenced | None:
    parts: list[tuple[str, int]] = []
    used = 0
    for number, line in enumerate(lines):
        found = _TITLE_LINE.match(line)
        if found and len(parts) < len(_TITLE_BLOCK):
            parts.append((found[1] or "", number))
        elif parts and line.startswith((" ", "\t")) and line.strip():
            parts[-1] = (f"{parts[-1][0]} {line.strip()}".strip(), parts[-1][1])
        else:
            break
        used = number + 1
    ends = used == len(lines) or not lines[used].strip()
    is_dated = len(parts) == len(_TITLE_BLOCK) and any(map(str.isdigit, parts[-1][0]))
    if not (parts and ends and (is_dated or _MAN_PAGE.match(parts[0][0]))):
        return None
    pairs = zip(_TITLE_BLOCK, parts, strict=False)
    return Unfenced([(key, value, line) for key, (value, line) in pairs if value], used)


def _key_values(lines: list[str], untitled: bool) -> Unfenced | None:
    pairs: list[tuple[str, str, int]] = []
    used = 0
    for number, line in enumerate(lines):
        if not line.strip():
            break
        found = _KEY_VALUE.fullmatch(line.rstrip())
        if found:
            pairs.append((found[1] or found[3], found[2] or "", number))
        elif pairs and line.startswith((" ", "\t")):
            key, value, first = pairs[-1]
            pairs[-1] = (key, f"{value} {line.strip()}".strip(), first)
        else:
            return None
        used = number + 1
    if used == MAX_LINES or not pairs:
        return None
    has_title = any(key.casefold() == "title" and value for key, value, _ in pairs)
    return Unfenced(pairs, used) if has_title or untitled else None


def without_block_properties(body: str) -> str:
    """Remove what Logseq hides of a block: ids, states and clocks; the number of lines does not
    change.
    """
    if ":LOGBOOK:" in body:
        body = _LOGBOOK.sub(lambda drawer: "\n" * drawer[0].count("\n"), body)
    return _BLOCK_PROPERTY.sub(r"\1", body) if ":: " in body else body
