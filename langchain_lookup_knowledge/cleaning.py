"""Text as a reader sees it: without what is invisible, in Unicode and in HTML. Pure, and linear in the length of the text."""

import re
import unicodedata
from bisect import bisect
from collections import defaultdict
from collections.abc import Iterator
from functools import cached_property
from html.parser import HTMLParser

MAX_MARKS = 30
"""Most combining marks on one character, as in Unicode's Stream-Safe Text Format (UAX 15); normalising more is quadratic."""
MAX_HEADING = 200
"""Most characters of a heading; a longer one is a paragraph."""

ZERO_WIDTH_SPACE = "\u200b"
"""Ends words in scripts without blanks: a keyword is reported with it, as written; the model does not see it."""
MAX_TAG = 100_000
"""Most characters of an HTML tag whose attributes are looked at."""

_CONTROLS = "\0-\x08\x0e-\x1f\x7f-\x84\x86-\x9f\ud800-\udfff"
_TAGS = "\U000e0000-\U000e00ff\U000e01f0-\U000e0fff"
"""A second alphabet, in which a text can be written that nobody sees."""
_DIRECTIONS = "\u202a-\u202e\u2066-\u2069"
_UNSEEN_LETTERS = (
    "\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180e\u200b\u200e\u200f\u2060-\u2065\u206a-\u206f\u2800\u3164\ufeff\uffa0"
    "\ufff9-\ufffb\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
)
_JOINERS = "\u200c\u200d"
_SELECTORS = "\ufe00-\ufe0f\U000e0100-\U000e01ef"
_LINE_ENDS = "\x0b\x0c\x85\u2028\u2029"
_UNSEEN_CHARACTER = re.compile(f"[{_LINE_ENDS}{_CONTROLS}{_TAGS}{_DIRECTIONS}{_UNSEEN_LETTERS}{_JOINERS}{_SELECTORS}]")
_SELECTOR = re.compile(f"[{_SELECTORS}]")
_JOINED = re.compile(
    "[\u0600-\u109f\u1780-\u18af\u2190-\u2bff\ua840-\uabff\ufb50-\ufdff\ufe0f\ufe70-\ufefc\U00010a00-\U0001faff]"
)
_SELECTABLE = re.compile(f"[^\\sA-Za-z{_JOINERS}{_SELECTORS}]")
_IN_ASCII = dict.fromkeys((*range(9), *range(14, 32), 127)) | {0x0B: "\n", 0x0C: "\n"}
_SUSPICIOUS = re.compile(f"[{_DIRECTIONS}{_TAGS}]")
_MARKS = re.compile(rf"[^\w\s\0-\u02ff][^\w\s\0-\u02ff]{{{MAX_MARKS},}}")


def clean(text: str, *, keep: str = "") -> str:
    """Return `text` in NFC, with newlines as line ends, without control, invisible and text-reversing characters.

    Two kinds of invisible characters stay where they do something: a joiner (U+200C, U+200D) between letters of scripts that
    join, or emoji; and one variation selector after the symbol or ideograph whose form it chooses. So do those in `keep`.
    """
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    if text.isascii():
        return text.translate(_IN_ASCII)
    text = _UNSEEN_CHARACTER.sub(lambda found: found[0] if found[0] in keep else _what_it_does(found), text)
    return unicodedata.normalize("NFC", bounded(text))


def escaped(text: str) -> str:
    """Return `text` in one line in which control and invisible characters are escapes such as `\\n` and `\\u202e`."""

    def shown(found: re.Match[str]) -> str:
        return _what_it_does(found) or found[0].encode("unicode_escape").decode()

    return _UNSEEN_CHARACTER.sub(
        shown, re.sub(r"[^\S ]", lambda blank: blank[0].encode("unicode_escape").decode(), text)
    )


def _what_it_does(found: re.Match[str]) -> str:
    character, text, at = found[0], found.string, found.start()
    if character in _LINE_ENDS:
        return "\n"
    if character in _JOINERS:
        is_needed = _JOINED.match(text, at - 1) and _JOINED.match(text, at + 1) if at else None
    else:
        is_needed = _SELECTOR.match(character) and _SELECTABLE.match(text, at - 1) if at else None
    return character if is_needed else ""


def bounded(text: str) -> str:
    """Return `text` with at most `MAX_MARKS` combining marks in a row, so that it can be normalised in linear time."""
    return text if text.isascii() else _MARKS.sub(_bounded_run, text)


def _bounded_run(run: re.Match[str]) -> str:
    kept, marks = [], 0
    for character in run[0]:
        marks = marks + 1 if unicodedata.combining(character) else 0
        if marks <= MAX_MARKS:
            kept.append(character)
    return "".join(kept)


def suspicious(text: str) -> list[str]:
    """Return which invisible characters `text` has that turn text around or spell a second one, as `U+202E`."""
    if text.isascii():
        return []
    return [f"U+{ord(character):04X}" for character in sorted(set(_SUSPICIOUS.findall(text)))]


def one_line(text: str, *, keep: str = "") -> str:
    """Return `text` cleaned, with runs of blanks and line ends made one blank."""
    return " ".join(clean(text, keep=keep).split())


def counted(number: int, one: str, many: str) -> str:
    """Return a number with its noun, such as "1 entry" or "0 entries"."""
    return f"{number} {one if number == 1 else many}"


_CLOSERS = {"<!--": "-->", "<?": "?>", "<![CDATA[": "]]>", "{/*": "*/}", "<script": "</script", "<style": "</style"}
_UNSEEN = frozenset("script style template noscript noembed noframes iframe datalist head title".split())
_VOID = frozenset("area base br col embed hr img input link meta source track wbr".split())
_UNSEEN_STYLE = re.compile(r"display:none|visibility:hidden|(?:opacity|font-size):0(?:\.0*)?(?:[a-z%]*)(?:[;!}]|$)")
_STYLE_NOISE = re.compile(r"/\*.*?\*/|[\s'\"\\{]")
_MAYBE_HIDDEN = re.compile("hidden|style", re.IGNORECASE)
_BLANK_LINE = re.compile(r"\n[ \t]*\n")
_FLUSH = re.compile(r"\n(?! {4}|\t|[ \t]*(?:\n|$))")
_LIST_ITEM = re.compile(r"\n {0,3}(?:[-*+]|\d{1,9}[.)])[ \t]")

# Each alternative begins with one literal character: `re` then skips to the next of these.
_SIGNS = r"""
    \\[\\`<]
  | \n(?:(?P<indent>[ \t]*)(?P<fence>`{3,}(?![^\n]*`)|~{3,})
     | (?P<definition>[ ]{0,3}\[[^\]\n]*\]:[ \t]*(?:\#|<>)[ \t]+["'(][^\n]*)
     | (?P<module>import[ \t]+(?:[\w${},* \t]+[ \t]from[ \t]+)?['"][^'"\n]+['"];?[ \t]*(?=\n)
        | export[ \t]+(?:const|let)[ \t]+\w+[ \t]*=[^\n]*)
     | [ ]{0,3}(?P<heading>\#{1,6}[ \t][^\n]{%d,})
     | [ \t]*(?P<indented>\n(?:[ ]{4}|\t)))
  | (?P<ticks>`+)
  | <(?P<end>/?)(?P<name>[A-Za-z][\w-]*)(?P<attributes>(?:[^<>"']|"[^"]*"|'[^']*')*+)>
  | (?P<opener><!--|<\?|<!\[CDATA\[|<![A-Za-z])
  | (?P<mdx>\{/\*)
""" % (MAX_HEADING + 8)  # noqa: UP031  (braces)
_DATA = r"""
  | (?P<data>data:(?:image/[^\s"'<>)]*|[\w.+-]+/[\w.+-]+(?:;[\w.=+-]+)*;base64,[A-Za-z0-9+/=%]*))
"""
_SIGN = re.compile(_SIGNS, re.VERBOSE)
_SIGN_OR_DATA = re.compile(_SIGNS + _DATA, re.VERBOSE)


def visible_text(body: str) -> str:
    """Return Markdown without what a reader does not see: HTML comments, hidden HTML elements, embedded images, module lines.

    Code stays as it is. A comment that is never closed hides nothing; a hidden element that is never closed hides the rest
    of its paragraph.
    """
    if not any(sign in body for sign in ("<", "data:", "import", "export", "{/*", "]:", "#")):
        return body
    text = f"\n{body}"
    kept: list[str] = []
    position = 1  # behind the newline put in front
    for start, end, instead in sorted(_Scan(text).hidden()):
        if end > position or start == end == position:
            kept += [text[position : max(start, position)], instead]
            position = end
    return "".join([*kept, text[position:]])


class _Attributes(HTMLParser):
    """Reads the attributes of one tag at a time."""

    def read(self, tag: str) -> dict[str, str]:
        self.found: dict[str, str] = {}
        self.reset()
        self.feed(tag)
        return self.found

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found = {name: value or "" for name, value in attrs}


class _Scan:
    """One walk over a Markdown text, which begins with a newline, that finds what is hidden in it."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._sign = _SIGN_OR_DATA if "data:" in text else _SIGN
        self._missing: set[str] = set()
        self._unfenced: dict[str, int] = {}
        self._attributes = _Attributes()
        self._open: dict[str, list[tuple[int, bool]]] = defaultdict(list)

    @cached_property
    def _blank_lines(self) -> list[int]:
        return [found.start() for found in _BLANK_LINE.finditer(self._text)]

    @cached_property
    def _flush(self) -> list[int]:
        """Where lines begin that are not indented."""
        return [found.start() for found in _FLUSH.finditer(self._text)]

    @cached_property
    def _ticks(self) -> dict[int, list[int]]:
        """Where runs of backticks begin, by their length."""
        starts: dict[int, list[int]] = defaultdict(list)
        for run in re.finditer("`+", self._text):
            starts[run.end() - run.start()].append(run.start())
        return starts

    def hidden(self) -> Iterator[tuple[int, int, str]]:
        """Yield (start, end, what stands there instead)."""
        position = 0
        while found := self._sign.search(self._text, position):
            position = found.end()
            kind = found.lastgroup
            start = found.start(kind) if kind else position
            if kind == "fence":
                position = self._after_fence(found)
            elif kind == "ticks":
                position = self._after_code(found)
            elif kind == "indented":
                position = self._after_indented(found)
            elif kind in ("opener", "mdx"):
                if end := self._after(_CLOSERS.get(found[0], ">"), start + 2):
                    yield start, end, ""
                    position = end
            elif kind == "heading":
                yield start, start, "\\"
                position = start + 1
            elif kind == "attributes":
                yield from self._tag(found)
                if not found["end"] and found["name"].lower() in ("script", "style"):
                    position = self._after(_CLOSERS["<" + found["name"].lower()], position, past=False) or position
            elif kind:
                yield start, position, ""
        yield from self._unclosed()

    def _after(self, closer: str, position: int, *, past: bool = True) -> int | None:
        """Return where a closer, in any case, ends or begins; what is not found once is not sought again."""
        if closer in self._missing:
            return None
        found = re.compile(re.escape(closer), re.IGNORECASE | re.ASCII).search(self._text, position)
        if found is None:
            self._missing.add(closer)
            return None
        return found.end() if past else found.start()

    def _after_fence(self, found: re.Match[str]) -> int:
        """Return the end of a fenced block; in a list, where it is indented, it ends at the latest with the list item."""
        mark = found["fence"]
        is_nested = len(found["indent"].expandtabs(4)) > 3
        limit = self._next_flush(found.start()) if is_nested else len(self._text)
        if self._unfenced.get(mark, -1) >= limit:
            return found.end()
        closer = re.compile(rf"\n[ \t]*{mark[0]}{{{len(mark)},}}[ \t]*(?=\n|$)")
        if closed := closer.search(self._text, found.end(), limit):
            return closed.end()
        self._unfenced[mark] = limit
        return found.end() if is_nested else limit

    def _next_flush(self, position: int) -> int:
        following = bisect(self._flush, position)
        return self._flush[following] if following < len(self._flush) else len(self._text)

    def _after_code(self, found: re.Match[str]) -> int:
        """Return the end of a code span: the next run of as many backticks in the same paragraph."""
        starts = self._ticks[len(found[0])]
        following = bisect(starts, found.start())
        if following < len(starts) and starts[following] < self._paragraph_end(found.end()):
            return starts[following] + len(found[0])
        return found.end()

    def _paragraph_end(self, position: int) -> int:
        following = bisect(self._blank_lines, position - 1)
        return self._blank_lines[following] if following < len(self._blank_lines) else len(self._text)

    def _after_indented(self, found: re.Match[str]) -> int:
        """Return the end of an indented code block; after a list item, the lines are text of that item."""
        following = bisect(self._flush, found.start())
        before = self._flush[following - 1] if following else 0
        if _LIST_ITEM.match(self._text, before):
            return found.start("indented")
        return self._next_flush(found.start())

    def _tag(self, found: re.Match[str]) -> Iterator[tuple[int, int, str]]:
        name = found["name"].lower()
        if found["end"]:
            if self._open[name]:
                start, is_hidden = self._open[name].pop()
                if is_hidden:
                    yield start, found.end(), ""
        elif name in _VOID or found["attributes"].endswith("/"):
            if name in ("base", "link", "meta") or self._is_hidden(found):
                yield found.start(), found.end(), ""
        else:
            self._open[name].append((found.start(), name in _UNSEEN or self._is_hidden(found)))

    def _unclosed(self) -> Iterator[tuple[int, int, str]]:
        for name, tags in self._open.items():
            for start, is_hidden in tags:
                if is_hidden and name not in _UNSEEN:
                    yield start, self._paragraph_end(start), ""

    def _is_hidden(self, tag: re.Match[str]) -> bool:
        written = tag["attributes"]
        if len(written) > MAX_TAG or not _MAYBE_HIDDEN.search(written):
            return False
        attributes = self._attributes.read(tag[0])
        style = attributes.get("style", "")
        style = _STYLE_NOISE.sub(
            "", (written if style.startswith("{") else style).casefold()
        )  # JSX: {{display: 'none'}}
        return "hidden" in attributes or attributes.get("type") == "hidden" or _UNSEEN_STYLE.search(style) is not None
