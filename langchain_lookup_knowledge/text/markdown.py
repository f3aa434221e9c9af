"""The block structure of Markdown, as found by a CommonMark parser.

The parser is markdown-it-py, with tables and definition lists. Only its block phase runs, and it
takes time linear in the number of lines.
"""

import re
from array import array
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from itertools import groupby
from typing import Literal, NamedTuple

from markdown_it import MarkdownIt
from markdown_it.token import Token
from mdit_py_plugins.deflist import deflist_plugin

MAX_LINES = 100_000
"""Maximum number of lines that are parsed; later lines count as paragraphs."""
MAX_TOKENS = 100_000
"""Maximum parser tokens, about five per list item; the remaining text counts as paragraphs."""
MAX_NESTING = 100
"""Maximum nesting of lists, items and quotes; after a deeper one, no blocks are found."""
Kind = Literal[
    "heading", "code", "list", "item", "quote", "table", "html", "paragraph", "rule",
    "definitions", "term", "definition", "rest",
]  # fmt: skip
"""The kind of a block. `rest` is text outside of the parser's blocks, such as link definitions."""

_KINDS: dict[str, Kind] = {
    "heading_open": "heading",
    "fence": "code",
    "code_block": "code",
    "bullet_list_open": "list",
    "ordered_list_open": "list",
    "list_item_open": "item",
    "blockquote_open": "quote",
    "table_open": "table",
    "html_block": "html",
    "paragraph_open": "paragraph",
    "hr": "rule",
    "dl_open": "definitions",
    "dt_open": "term",
    "dd_open": "definition",
}
_PARSER = MarkdownIt("commonmark", {"maxNesting": MAX_NESTING}).enable("table").use(deflist_plugin)
_MAYBE_CODE = re.compile(r"```|~~~| {4}|\t")
_MAYBE_DEEP = re.compile(r"^[ \t>*+.)\d-]{25,}", re.MULTILINE)
_HTML_HEADING = re.compile(r"<h([1-6])(?:\s[^<>]*)?>", re.IGNORECASE)
_HTML_HEADING_END = re.compile(r"</h([1-6])\s*>", re.IGNORECASE)
_TAG = re.compile(r"<[^<>]*>")
_AS_TEXT = "from here on, headings, lists, tables and code are read as plain text"


@dataclass(frozen=True, slots=True)
class Block:
    """A block of Markdown from line `first` to line `last`, counted from 0.

    Blank lines before and after it are not included.

    `level` and `raw` are the level and the source of a heading. `head` and `foot` are the numbers
    of lines at its start and end that each piece repeats after a cut: code fences and table heads.
    `mark` is the run of backticks or tildes of a fence.
    """

    kind: Kind
    first: int
    last: int
    level: int = 0
    raw: str = ""
    head: int = 0
    foot: int = 0
    mark: str = ""
    inner: list[Token] = field(default_factory=list, repr=False, compare=False)

    @property
    def children(self) -> list["Block"]:
        """The blocks inside a list, an item, a quote or a definition list."""
        return list(_blocks(self.inner)) if self.kind in _CONTAINERS else []


_CONTAINERS = frozenset({"list", "item", "quote", "definitions", "definition"})


class Section(NamedTuple):
    """A heading, as it is written, and the blocks below it, up to the next heading.

    The blocks before the first heading have level 0 and no heading. `line` and `last` are the first
    and last line of the heading, counted from 0.
    """

    level: int
    heading: str
    line: int
    last: int
    blocks: list[Block]


class _TooManyTokens(Exception):
    """Raised to stop the parser."""


class _Tokens(list[Token]):
    """The tokens of a text, at most `MAX_TOKENS`."""

    def append(self, token: Token) -> None:
        if len(self) >= MAX_TOKENS:
            raise _TooManyTokens
        super().append(token)

    def drop_unfinished(self) -> int:
        """Drop the last outermost block, and return its first line."""
        last = max(place for place, token in enumerate(self) if not token.level)
        while self[last].level or self[last].nesting < 0 or self[last].map is None:
            last -= 1
        first = (self[last].map or [0])[0]
        del self[last:]
        return first


class Outline:
    """The blocks of a text, and the positions of its lines. Lines count from 0."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._starts = array("L", [0])
        self._starts.extend(found.end() for found in re.finditer("\n", text))
        self.line_count = len(self._starts) - (self._starts[-1] == len(text))
        self.parsed = min(self.line_count, MAX_LINES)
        """The number of lines that were parsed."""
        self.tokens = _Tokens()
        source = text[: self.start(self.parsed)].removesuffix("\n") + "\n"
        try:
            _PARSER.block.parse(source, _PARSER, {}, self.tokens)
        except _TooManyTokens:
            self.parsed = self.tokens.drop_unfinished()

    def start(self, line: int) -> int:
        """Return the position at which a line begins."""
        return self._starts[line] if line < self.line_count else len(self.text)

    def end(self, line: int) -> int:
        """Return the position at which a line ends, before the whitespace at its end."""
        start = self.start(line)
        return start + len(self.text[start : self.start(line + 1)].rstrip())

    def line_at(self, position: int) -> int:
        """Return the line that holds a position."""
        return bisect_right(self._starts, position) - 1

    @cached_property
    def blocks(self) -> list[Block]:
        """The outermost blocks, in order; each line that is not blank is in one of them."""
        found: list[Block] = []
        line = 0
        for block in _blocks(self.tokens):
            found += self._rest(line, block.first)
            found += self._html(block) if block.kind == "html" else [self._trimmed(block)]
            line = block.last + 1
        return [*found, *self._rest(line, self.parsed), *self._unparsed()]

    def sections(self) -> Iterator[Section]:
        """Yield the sections. A heading inside a list or quote does not begin a section."""
        section = Section(0, "", 0, 0, [])
        for block in self.blocks:
            if block.kind == "heading":
                yield section
                section = Section(block.level, block.raw, block.first, block.last, [])
            else:
                section.blocks.append(block)
        yield section

    def _is_text(self, line: int) -> bool:
        return self.end(line) > self.start(line)

    def _rest(self, first: int, end: int) -> Iterator[Block]:
        lines = [line for line in range(first, end) if self._is_text(line)]
        if lines:
            yield Block("rest", lines[0], lines[-1])

    def _unparsed(self) -> Iterator[Block]:
        lines = range(self.parsed, self.line_count)
        for is_text, run in groupby(lines, self._is_text):
            if is_text:
                first = last = next(run)
                for last in run:  # noqa: B007  (used below)
                    pass
                yield Block("paragraph", first, last)

    def _trimmed(self, block: Block) -> Block:
        """Return the block without trailing blank lines, which the parser may include."""
        last = block.last
        while last > block.first and not self._is_text(last):
            last -= 1
        return block if last == block.last else replace(block, last=last)

    def _html(self, block: Block) -> Iterator[Block]:
        """Yield the headings `<h1>` to `<h6>` of an HTML block, and the HTML between them.

        A heading counts only if its lines contain no other text outside of tags.
        """
        first, position, limit = block.first, self.start(block.first), self.start(block.last + 1)
        while opening := _HTML_HEADING.search(self.text, position, limit):
            closing = _HTML_HEADING_END.search(self.text, opening.end(), limit)
            if closing is None:
                break
            top, bottom = self.line_at(opening.start()), self.line_at(closing.start())
            position = self.start(bottom + 1)
            around = (
                self.text[self.start(top) : opening.start()] + self.text[closing.end() : position]
            )
            if opening[1] != closing[1] or _TAG.sub("", around).strip():
                continue
            if top > first:
                yield Block("html", first, top - 1)
            inside = self.text[opening.end() : closing.start()]
            yield Block("heading", top, bottom, int(opening[1]), inside)
            first = bottom + 1
        if first <= block.last:
            yield self._trimmed(Block("html", first, block.last))


@lru_cache(maxsize=1)
def outline(text: str) -> Outline:
    """Return the block structure of a text; the last result is cached."""
    return Outline(text)


def code_ranges(text: str) -> list[tuple[int, int]]:
    """Return the start and end of each code block, fences included, in order.

    A code block is fenced or indented, and may be in a list item or a quote. The range includes the
    newline of its last line.
    """
    if not _MAYBE_CODE.search(text):
        return []
    lines = outline(text)
    return [
        (lines.start(token.map[0]), lines.start(token.map[1]))
        for token in lines.tokens
        if token.map and token.type in ("fence", "code_block")
    ]


def block_edges(text: str) -> list[int]:
    """Return the positions at which blocks begin or end, in order; no inline markup crosses one."""
    lines = outline(text)
    maps = {line for token in lines.tokens if token.map for line in token.map}
    return [*(lines.start(line) for line in sorted(maps)), len(text)]


def limits(text: str) -> Iterator[tuple[int, str]]:
    """Yield a line number, counted from 1, and a message for each limit that a text exceeds."""
    if _MAYBE_DEEP.search(text):
        deepest = max(outline(text).tokens, key=lambda token: token.level, default=None)
        if deepest and deepest.map and deepest.level >= MAX_NESTING - 1:
            message = f"lists or quotes are nested {MAX_NESTING} levels deep"
            yield deepest.map[0] + 1, f"{message}: {_AS_TEXT}: use fewer levels"
    if 3 * len(text) > MAX_TOKENS and (lines := outline(text)).parsed < lines.line_count:
        yield lines.parsed + 1, f"it is too long to be read as Markdown: {_AS_TEXT}: split the file"


def _blocks(tokens: list[Token]) -> Iterator[Block]:
    """Yield the outermost blocks of a run of tokens."""
    number = 0
    while number < len(tokens):
        token = tokens[number]
        end = number + 1
        if token.nesting == 1:
            while tokens[end].level > token.level or tokens[end].nesting != -1:
                end += 1
        kind = _KINDS.get(token.type)
        if kind and token.map:
            yield _block(kind, token, tokens[number + 1 : end])
        number = end if token.nesting != 1 else end + 1


def _block(kind: Kind, token: Token, inner: list[Token]) -> Block:
    first, end = token.map or [0, 0]
    last = max(first, end - 1)
    if kind == "heading":
        return Block(kind, first, last, int(token.tag[1]), inner[0].content)
    if kind == "table":
        return Block(kind, first, last, head=2)
    if token.type == "fence":
        is_closed = last - first > token.content.count("\n")
        return Block(kind, first, last, head=1, foot=int(is_closed), mark=token.markup)
    return Block(kind, first, last, inner=inner)
