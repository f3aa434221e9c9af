"""Text as a reader sees it: without the parts that Unicode, Markdown and HTML make invisible.

All functions are pure, and take time linear in the length of the text.
"""

import re
import unicodedata
from bisect import bisect
from collections import defaultdict
from collections.abc import Iterator
from functools import cached_property, lru_cache
from html.parser import HTMLParser
from typing import NamedTuple

from langchain_lookup_knowledge.text.markdown import block_edges, code_ranges
from langchain_lookup_knowledge.text.visible.dialects import LINE_SIGNS, SIGN_KINDS, SIGNS, Dialects
from langchain_lookup_knowledge.text.visible.markup import (
    TAG_SIGN,
    lone_edit,
    pair_edits,
    stray_edit,
    without_entities,
)

MAX_MARKS = 30
"""Maximum combining marks on one character, as in Unicode's Stream-Safe Text Format (UAX 15).

Normalizing longer runs takes quadratic time.
"""
ZERO_WIDTH_SPACE = "\u200b"
"""Separates words in scripts written without spaces.

It is kept in keywords, and removed from the text for the model.
"""
MAX_TAG = 100_000
"""Maximum characters of an HTML tag whose attributes are parsed."""

_CONTROLS = "\0-\x08\x0e-\x1f\x7f-\x84\x86-\x9f\ud800-\udfff"
_TAGS = "\U000e0000-\U000e00ff\U000e01f0-\U000e0fff"
"""Tag characters: an invisible copy of ASCII."""
_DIRECTIONS = "\u202a-\u202e\u2066-\u2069"
_UNSEEN_LETTERS = (
    "\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180e\u200b\u200e\u200f\u2060-\u2065\u206a-\u206f\u2800\u3164"
    "\ufeff\uffa0\ufff9-\ufffb\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
)
_JOINERS = "\u200c\u200d"
_SELECTORS = "\ufe00-\ufe0f\U000e0100-\U000e01ef"
_LINE_ENDS = "\x0b\x0c\x85\u2028\u2029"
_UNSEEN_CHARACTER = re.compile(
    f"[{_LINE_ENDS}{_CONTROLS}{_TAGS}{_DIRECTIONS}{_UNSEEN_LETTERS}{_JOINERS}{_SELECTORS}]"
)
_SELECTOR = re.compile(f"[{_SELECTORS}]")
_JOINED = re.compile(
    "[\u0600-\u109f\u1780-\u18af\u2190-\u2bff\ua840-\uabff\ufb50-\ufdff\ufe0f\ufe70-\ufefc"
    "\U00010a00-\U0001faff]"
)
_SELECTABLE = re.compile(f"[^\\sA-Za-z{_JOINERS}{_SELECTORS}]")
_IN_ASCII = dict.fromkeys((*range(9), *range(14, 32), 127)) | {0x0B: "\n", 0x0C: "\n"}
_SUSPICIOUS = re.compile(f"[{_DIRECTIONS}{_TAGS}]")
_MARKS = re.compile(rf"[^\w\s\0-\u02ff][^\w\s\0-\u02ff]{{{MAX_MARKS},}}")


def clean(text: str, *, keep: str = "") -> str:
    """Return `text` in NFC, without control, invisible and text-reversing characters.

    All line ends become newlines. Characters in `keep` are kept. Joiners (U+200C, U+200D) are kept
    between emoji and between letters of joining scripts. A variation selector is kept after a
    symbol or ideograph.
    """
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    if text.isascii():
        return text.translate(_IN_ASCII)
    text = _UNSEEN_CHARACTER.sub(lambda found: found[0] if found[0] in keep else _kept(found), text)
    return unicodedata.normalize("NFC", bounded(text))


def escaped(text: str) -> str:
    """Return `text` as one line; control and invisible characters become escapes (`\\u202e`)."""

    def shown(found: re.Match[str]) -> str:
        return _kept(found) or found[0].encode("unicode_escape").decode()

    return _UNSEEN_CHARACTER.sub(
        shown, re.sub(r"[^\S ]", lambda space: space[0].encode("unicode_escape").decode(), text)
    )


def _kept(found: re.Match[str]) -> str:
    character, text, at = found[0], found.string, found.start()
    if character in _LINE_ENDS:
        return "\n"
    if character in _JOINERS:
        is_needed = _JOINED.match(text, at - 1) and _JOINED.match(text, at + 1) if at else None
    else:
        is_needed = _SELECTOR.match(character) and _SELECTABLE.match(text, at - 1) if at else None
    return character if is_needed else ""


def bounded(text: str) -> str:
    """Return `text` with at most `MAX_MARKS` combining marks in a row.

    The result can be normalized in linear time.
    """
    return text if text.isascii() else _MARKS.sub(_bounded_run, text)


def _bounded_run(run: re.Match[str]) -> str:
    kept, marks = [], 0
    for character in run[0]:
        marks = marks + 1 if unicodedata.combining(character) else 0
        if marks <= MAX_MARKS:
            kept.append(character)
    return "".join(kept)


def suspicious(text: str) -> list[str]:
    """Return the invisible characters that reverse or hide text, written like `U+202E`."""
    if text.isascii():
        return []
    return [f"U+{ord(character):04X}" for character in sorted(set(_SUSPICIOUS.findall(text)))]


def one_line(text: str, *, keep: str = "") -> str:
    """Return `text` cleaned, with each run of whitespace replaced by one space."""
    return " ".join(clean(text, keep=keep).split())


_CLOSERS = {
    "<!--": "-->",
    "<?": "?>",
    "<![CDATA[": "]]>",
    "{/*": "*/}",
    "<script": "</script",
    "<style": "</style",
}
_UNSEEN = frozenset(
    "script style template noscript noembed noframes iframe datalist head title".split()
)
_VOID = frozenset("area base br col embed hr img input link meta source track wbr".split())
_UNSEEN_STYLE = re.compile(
    r"display:none|visibility:hidden|(?:opacity|font-size):0(?:\.0*)?(?:[a-z%]*)(?:[;!}]|$)"
)
_STYLE_NOISE = re.compile(r"/\*.*?\*/|[\s'\"\\{]")
_MAYBE_HIDDEN = re.compile("hidden|style", re.IGNORECASE)

_LONE_TAG = re.compile(r"\{(?:%|\{(?!/\*|!--|<\s*/\*))(?:(?!\{[%{]).)*+", re.DOTALL)
"""A single template tag, which may name another entry; a pair of tags may hide text."""
_MAYBE = re.compile(r"[<{%&#]|data:|import|export|\]:")
# Each alternative begins with a literal character, so that `re` can skip ahead to the next one.
_SIGNS = r"""
    \\[\\`<{%&]
  | \n(?P<definition>[ ]{0,3}\[[^\]\n]*\]:[ \t]*(?:\#|<>)[ \t]+["'(][^\n]*)
  | (?P<ticks>`+)
  | (?P<opener><!--|<\?|<!\[CDATA\[|<![A-Za-z])
  | (?P<mdx>\{/\*)
"""
_SIGNS += rf"| {TAG_SIGN} | \n(?:{LINE_SIGNS}) | {SIGNS}"
_DATA = r"""
  | (?P<data>data:(?:image/[^\s"'<>)]*|[\w.+-]+/[\w.+-]+(?:;[\w.=+-]+)*;base64,[A-Za-z0-9+/=%]*))
"""
_SIGN = re.compile(_SIGNS, re.VERBOSE)
_SIGN_OR_DATA = re.compile(_SIGNS + _DATA, re.VERBOSE)


WITHIN = 0.5
"""Added to the line number in a pair of `Shifts` that applies only from within the line on."""
Shifts = tuple[tuple[float, int], ...]
"""Pairs (line, shift): from this line of a text on, line `n` is the file's line `n + shift`. If
several lines of the file became line `n`, the pair of `n + WITHIN` has the shift for the end of
line `n`.
"""
_LINE_END = re.compile(r"[ \t]*(?:\n|\Z)")


class Visible(NamedTuple):
    """The visible part of a text, and the shifts that give the original line numbers."""

    text: str
    shifts: Shifts = ((1, 0),)


def visible_text(body: str) -> str:
    """Return Markdown without the parts that a reader does not see: the text of `visible`."""
    return visible(body).text


def seen_title(title: str) -> str:
    """Return a title as a reader sees it: one line, without tags, with entities decoded."""
    # `visible` puts a backslash before some decoded characters, which a title does not need.
    shown = without_entities(visible_text(title.replace("&", "&amp;")))
    return one_line(shown) or one_line(title)


def visible(body: str) -> Visible:
    """Return Markdown without the parts that a reader does not see.

    Removed are comments of HTML and Markdown dialects, hidden HTML elements, embedded images, and
    MDX import and export statements. Template tags, MDX components, inline HTML tags and entities
    are replaced by their visible text. Code is kept. An unclosed comment hides nothing; an unclosed
    hidden element hides the rest of its paragraph.
    """
    if not _MAYBE.search(body):
        return Visible(body)
    text = f"\n{body}"
    kept: list[str] = []
    shifts: list[tuple[float, int]] = [(1, 0)]
    line, shift, is_line_start = 1, 0, True
    position = 1  # after the newline that was added
    for start, end, instead in sorted(_scanned(text)[1]):
        if end > position or start == end == position:
            kept += [text[position : max(start, position)], clean(instead)]
            line += kept[-2].count("\n") + instead.count("\n")
            is_line_start = kept[-2].endswith("\n") or (is_line_start and not kept[-2])
            if lost := text.count("\n", max(start, position), end) - instead.count("\n"):
                shift += lost
                if is_line_start and (not instead.strip() or "\n" in instead):
                    place: float = line
                else:
                    is_line_end = not instead.strip() and _LINE_END.match(text, end)
                    place = line + (1 if is_line_end else WITHIN)
                while shifts and shifts[-1][0] >= place:
                    shifts.pop()
                shifts.append((place, shift))
            is_line_start = is_line_start and not instead
            position = end
    return Visible("".join([*kept, text[position:]]), tuple(shifts))


@lru_cache(maxsize=1)
def _scanned(text: str) -> "tuple[_Scan, list[tuple[int, int, str]]]":
    """Return a finished scan and the edits that it found. The last result is cached, because
    reading a text usually needs it twice.
    """
    scan = _Scan(text)
    return scan, list(scan.hidden())


def unread_spans(body: str) -> list[tuple[int, int]]:
    """Return the ordered, disjoint spans [start, end) of Markdown that are not read as text.

    These are code blocks, code spans, and the parts that `visible` removes.
    """
    text = f"\n{body}"
    scan, edits = _scanned(text)
    cut = ((start, end) for start, end, _ in edits if end > start)
    hidden = [(start, end) for start, end in cut if not _LONE_TAG.fullmatch(text, start, end)]
    spans = (*hidden, *scan.code_blocks, *scan.code_spans)
    disjoint: list[tuple[int, int]] = []
    for start, end in sorted((max(0, start - 1), end - 1) for start, end in spans):
        if disjoint and start < disjoint[-1][1]:
            disjoint[-1] = disjoint[-1][0], max(end, disjoint[-1][1])
        else:
            disjoint.append((start, end))
    return disjoint


class _Attributes(HTMLParser):
    """A parser for the attributes of single tags."""

    def read(self, tag: str) -> dict[str, str]:
        self.found: dict[str, str] = {}
        self.reset()
        self.feed(tag)
        return self.found

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found = {name: value or "" for name, value in attrs}


class _Scan:
    """A single pass over a Markdown text that finds its hidden parts, and its code.

    The text must begin with a newline. `code_spans` lists [start, end) of the code spans found so
    far.
    """

    def __init__(self, text: str) -> None:
        self.code_spans: list[tuple[int, int]] = []
        self._text = text
        self._sign = _SIGN_OR_DATA if "data:" in text else _SIGN
        self._missing: set[str] = set()
        self._attributes = _Attributes()
        self._open: dict[str, list[tuple[re.Match[str], bool]]] = defaultdict(list)
        self._dialects = Dialects(text)

    @cached_property
    def _edges(self) -> list[int]:
        """Positions of the newlines at which blocks begin or end."""
        return block_edges(self._text[1:])

    @cached_property
    def code_blocks(self) -> list[tuple[int, int]]:
        """Start and end of each code block; the end is before the last newline."""
        ranges = code_ranges(self._text[1:])
        return [(start + 1, end + (self._text[end] != "\n")) for start, end in ranges]

    @cached_property
    def _ticks(self) -> dict[int, list[int]]:
        """Positions of runs of backticks, by their length."""
        starts: dict[int, list[int]] = defaultdict(list)
        for run in re.finditer("`+", self._text):
            starts[run.end() - run.start()].append(run.start())
        return starts

    def hidden(self) -> Iterator[tuple[int, int, str]]:
        """Yield (start, end, replacement) of each part that a reader does not see as written."""
        position = 0
        while found := self._sign.search(self._text, position):
            position = found.end()
            kind = found.lastgroup
            start = found.start(kind) if kind else position
            if end := self._code_block_end(start):
                position = end
            elif kind == "ticks":
                position = self._after_code(found)
                if position > found.end():
                    self.code_spans.append((start, position))
            elif kind in ("opener", "mdx"):
                if end := self._after(_CLOSERS.get(found[0], ">"), start + 2):
                    yield start, end, ""
                    position = end
            elif kind == "attributes":
                yield from self._tag(found)
                if not found["end"] and found["name"].lower() in ("script", "style"):
                    position = (
                        self._after(_CLOSERS["<" + found["name"].lower()], position, past=False)
                        or position
                    )
            elif kind in SIGN_KINDS:
                position, edits = self._dialects.edits(kind, start, position)
                yield from edits
            elif kind:
                yield start, position, ""
        yield from self._unclosed()

    def _after(self, closer: str, position: int, *, past: bool = True) -> int | None:
        """Return the end of the next `closer` (its start if not `past`); None if it is missing.

        A missing closer is remembered, so that the scan takes linear time.
        """
        if closer in self._missing:
            return None
        found = re.compile(re.escape(closer), re.IGNORECASE | re.ASCII).search(self._text, position)
        if found is None:
            self._missing.add(closer)
            return None
        return found.end() if past else found.start()

    def _code_block_end(self, position: int) -> int | None:
        """Return the end of the code block that holds a position; None if there is none."""
        before = bisect(self.code_blocks, (position, len(self._text) + 1)) - 1
        is_code = before >= 0 and position < self.code_blocks[before][1]
        return self.code_blocks[before][1] if is_code else None

    def _after_code(self, found: re.Match[str]) -> int:
        """Return the end of a code span.

        The span ends with the next run of equally many backticks in the same paragraph.
        """
        starts = self._ticks[len(found[0])]
        following = bisect(starts, found.start())
        if following < len(starts) and starts[following] < self._paragraph_end(found.end()):
            return starts[following] + len(found[0])
        return found.end()

    def _paragraph_end(self, position: int) -> int:
        """Return the end of the block that holds a position."""
        following = bisect(self._edges, position)
        return self._edges[following] if following < len(self._edges) else len(self._text)

    def _tag(self, found: re.Match[str]) -> Iterator[tuple[int, int, str]]:
        name = found["name"].lower()
        if found["end"]:
            if self._open[name]:
                opening, is_hidden = self._open[name].pop()
                if is_hidden:
                    yield opening.start(), found.end(), ""
                else:
                    tabs = next((tag for tag, _ in reversed(self._open["tabs"])), None)
                    yield from pair_edits(self._text, opening, found, tabs)
            elif edit := stray_edit(self._text, found):
                yield edit
        elif name in _VOID or found["attributes"].endswith("/"):
            if name in ("base", "link", "meta") or self._is_hidden(found):
                yield found.start(), found.end(), ""
            elif edit := lone_edit(self._text, found):
                yield edit
        else:
            self._open[name].append((found, name in _UNSEEN or self._is_hidden(found)))

    def _unclosed(self) -> Iterator[tuple[int, int, str]]:
        for name, tags in self._open.items():
            for tag, is_hidden in tags:
                if is_hidden and name not in _UNSEEN:
                    yield tag.start(), self._paragraph_end(tag.start()), ""

    def _is_hidden(self, tag: re.Match[str]) -> bool:
        written = tag["attributes"]
        if len(written) > MAX_TAG or not _MAYBE_HIDDEN.search(written):
            return False
        attributes = self._attributes.read(tag[0])
        style = attributes.get("style", "")
        style = _STYLE_NOISE.sub(
            "", (written if style.startswith("{") else style).casefold()
        )  # JSX: {{display: 'none'}}
        return (
            "hidden" in attributes
            or attributes.get("type") == "hidden"
            or _UNSEEN_STYLE.search(style) is not None
        )
