"""Template tags as a reader sees them: the text that a site generator would put in their place.

Supported are Hugo shortcodes (`{{< note >}}`), tags of Liquid, Jinja, Nunjucks and Twig
(`{% note %}`), and variables (`{{ name }}`). The module `tags` returns the visible text of a tag.
"""

import re
from bisect import bisect
from collections import defaultdict
from functools import cached_property
from typing import NamedTuple

from langchain_lookup_knowledge.text.visible.tags import (
    MAX_LINK,
    VALUES,
    Tag,
    ended,
    parse_tag,
    shown,
)

MAX_TAG = 5_000
"""Maximum characters of a template tag; a longer one is left as it is."""
MAX_COMMENT = 100_000
"""Maximum characters of a comment in a dialect of Markdown; a longer one hides nothing."""
_UNSEEN = frozenset("comment css javascript js schema style stylesheet".split())
_VERBATIM = frozenset("raw verbatim".split())
_LISTINGS = frozenset("code code-block codeblock highlight sourcecode".split())
_CODE = _LISTINGS | frozenset("graphviz katex math mermaid plantuml".split())

_OPENER = re.compile(r"\{\{(?P<hugo>[<%])|\{(?P<liquid>%)|\{(?P<jinja>\#)|\{\{")
_VARIABLE = re.compile(
    r"""\{\{[-~{]?[ \t]*(?:
      (?P<call>[A-Za-z_][\w.]*+\([^{}\n]{0,300}\))
    | (?P<name>[A-Za-z_][\w.-]*+(?:\[[^\[\]{}\n]{0,100}\])*+)
    | "(?P<double>[^"{}\n]{0,500})" | '(?P<single>[^'{}\n]{0,500})'
    )[ \t]*(?:\|[^{}\n]{0,300})?[-~}]?\}\}""",
    re.VERBOSE,
)
_GO_ACTIONS = frozenset("block break continue define else end if range template with".split())
_JINJA_REMARK = re.compile(r"\{\#(?:[\s#-]|[^{}\n#]*+\#\})")
_END = re.compile(r"\{\{[<%]-?\s*/\s*([\w./:-]+)|\{%[-+~]?\s*(?:end|/)[ _]?([\w-]+)")
_COMMENT = re.compile(r"\{%[-+~]?\s*(?P<end>end)?comment\b")
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_FENCED = re.compile(r"\s*(?:```|~~~)")
_WORD = re.compile(r"[\w+#.-]+")


class Edit(NamedTuple):
    """A part of a text, and the text that replaces it."""

    start: int
    end: int
    instead: str


class Templates:
    """The template tags of one text; the caller finds where a tag begins.

    All calls together take time linear in the length of the text.
    """

    def __init__(self, text: str) -> None:
        self._text = text
        self._next: dict[str, int] = {}
        self._raw_until = -1
        self._inline_until = -1  # the end of an inline shortcode, whose content is a Go template

    def closer(self, closer: str, position: int) -> int | None:
        """Return the position of the next `closer`; None if there is none."""
        known = self._next.get(closer)
        if known is None or 0 <= known < position:
            known = self._next[closer] = self._text.find(closer, position)
        return None if known < 0 else known

    @cached_property
    def _ends(self) -> dict[str, list[int]]:
        """Positions of the closing tags, by the name that they close."""
        found: dict[str, list[int]] = defaultdict(list)
        for end in _END.finditer(self._text):
            found[(end[1] or end[2]).casefold()].append(end.start())
        return found

    @cached_property
    def _comments(self) -> dict[int, int]:
        """Positions of the closing tags of Liquid comments, by the positions of their opening tags;
        comments may be nested.
        """
        found: dict[int, int] = {}
        opened: list[int] = []
        for tag in _COMMENT.finditer(self._text):
            if not tag["end"]:
                opened.append(tag.start())
            elif opened:
                found[opened.pop()] = tag.start()
        return found

    def _end_of(self, name: str, position: int) -> int | None:
        ends = self._ends.get(name.casefold(), [])
        following = bisect(ends, position)
        return ends[following] if following < len(ends) else None

    def edits(self, start: int) -> tuple[int, list[Edit]]:
        """Return where reading continues after the tag at `start`, and the edits that replace it.

        Without a tag at `start`, there are no edits, and reading continues after the first brace.
        """
        text = self._text
        opener = _OPENER.match(text, start)
        nothing: tuple[int, list[Edit]] = (start + 1, [])
        if opener is None:
            return nothing
        if opener["jinja"]:
            end = self.closer("#}", start + 2) if _JINJA_REMARK.match(text, start) else None
            is_comment = end is not None and end - start <= MAX_COMMENT and start >= self._raw_until
            return (end + 2, [self._gone(start, end + 2)]) if end and is_comment else nothing
        if not (opener["hugo"] or opener["liquid"]):
            return self._variable(start)
        mark = {"<": ">}}", "%": "%}}"}[opener["hugo"]] if opener["hugo"] else "%}"
        close = self.closer(mark, opener.end())
        if close is None or close - start > MAX_TAG or "\n\n" in text[start:close]:
            return nothing
        if text.rfind(opener[0], opener.end(), close) >= 0:
            return nothing
        end = close + len(mark)
        inside = text[opener.end() : close]
        if inside.startswith("/*"):  # an escaped tag, shown literally
            plain = f"{opener[0]}{inside[2:].removesuffix('*/')}{mark}"
            return end, [Edit(start, end, plain if "`" in plain or "\n" in plain else f"`{plain}`")]
        if start < self._raw_until:
            return nothing
        tag = parse_tag(inside.removesuffix("-").rstrip().removesuffix("/"))
        return self._tag(tag, start, end, is_liquid=not opener["hugo"])

    def _tag(self, tag: Tag, start: int, end: int, *, is_liquid: bool) -> tuple[int, list[Edit]]:
        name = tag.name.casefold()
        if not tag.name:  # `{% # a comment %}`
            return end, [self._gone(start, end)] if is_liquid else []
        last = None if tag.is_closing else self._end_of(tag.name, end)
        if last is not None and is_liquid and name == "comment":
            last = self._comments.get(start, last)
        if last is not None and name.endswith(".inline"):
            self._inline_until = last
        if last is not None and name in _UNSEEN:
            closed = self._closing(last)
            if closed >= 0:
                return closed + 2, [self._gone(start, closed + 2)]
        if last is not None and name in _VERBATIM:
            self._raw_until = last
        if last is not None and name in _CODE:
            return self._code(tag, start, end, last)
        text = shown(tag, is_paired=last is not None)
        return end, [self._put(start, end, text, tag, is_paired=last is not None)]

    def _closing(self, last: int) -> int:
        """Return the position of the `}}` or `%}` of the closing tag at `last`; -1 if there is
        none.
        """
        mark = "}}" if self._text.startswith("{{", last) else "%}"
        return self._text.find(mark, last, last + MAX_TAG)

    def _code(self, tag: Tag, start: int, end: int, last: int) -> tuple[int, list[Edit]]:
        """Mark the text between two tags as code, unless it is fenced already."""
        closed = self._closing(last)
        if closed < 0 or _FENCED.match(self._text, end):
            return end, [self._gone(start, end)]
        inside = self._text[end:last]
        fence = "~~~" if "```" in inside else "```"
        is_block = inside.lstrip(" \t").startswith("\n") and inside.rstrip(" \t").endswith("\n")
        language = next(iter((*tag.bare, *tag.quoted, *tag.values(("lang", "language")))), "")
        if not is_block:
            ticks = "`" if "`" not in inside and "\n\n" not in inside else ""
            return closed + 2, [Edit(start, end, ticks), Edit(last, closed + 2, ticks)]
        if tag.name.casefold() not in _LISTINGS:
            language = tag.name
        opening = fence + (language if _WORD.fullmatch(language) else "")
        return closed + 2, [Edit(start, end, opening), Edit(last, closed + 2, fence)]

    def _variable(self, start: int) -> tuple[int, list[Edit]]:
        text = self._text
        if start < self._raw_until:
            return start + 2, []
        for closer in ("*/", "--}}"):
            if text.startswith("{{!--" if closer == "--}}" else ("{{/*", "{{- /*", "{{-/*"), start):
                close = self.closer(closer, start + 4)
                after = None if close is None else text.find("}}", close, close + 8)
                if after is not None and after >= 0 and after - start <= MAX_COMMENT:
                    return after + 2, [self._gone(start, after + 2)]
        if text.startswith("{{!", start) and not text.startswith("{{!--", start):
            close = self.closer("}}", start + 3)
            if close is not None and close - start <= MAX_TAG:
                return close + 2, [self._gone(start, close + 2)]
        if start < self._inline_until:
            close = self.closer("}}", start)
            if close is not None and close - start <= MAX_TAG:
                return close + 2, [self._gone(start, close + 2)]
        found = _VARIABLE.match(text, start)
        if found is None or text[start - 1 : start] == "$":
            return start + 2, []
        if found["name"] in _GO_ACTIONS:
            return found.end(), []
        instead = found["name"] or found["double"] or found["single"] or ""
        if found["call"]:
            tag = parse_tag(found["call"])
            instead = " ".join((*tag.quoted, *tag.named.values())) or tag.name
        elif found["name"] and (run := _address(text, start)):
            instead = "" if run.endswith("](") else f"{{{instead}}}"
        return found.end(), [Edit(start, found.end(), instead)]

    def _put(self, start: int, end: int, instead: str, tag: Tag, *, is_paired: bool) -> Edit:
        if not instead:
            return self._gone(start, end)
        text = self._text
        before, after = text[start - 1 : start], text[end : end + 1]
        if tag.name.casefold() in VALUES:
            if _address(text, start):
                return Edit(start, end, f"{{{'-'.join(instead.split())}}}")
            instead = " ".join(_CAMEL.sub(" ", instead).replace("_", " ").split()).casefold()
        elif is_paired:
            instead = ended(instead)
        is_word = instead[-1:].isalnum() or instead[-1:] in (*".:;!?",)
        lead = " " if before.isalnum() and instead[:1].isalnum() else ""
        return Edit(start, end, f"{lead}{instead}{' ' if is_word and after.isalnum() else ''}")

    def _gone(self, start: int, end: int) -> Edit:
        return Edit(start, without_gap(self._text, start, end), "")


def _address(text: str, end: int) -> str:
    """Return the part of a link address before `end`; empty if `end` is not inside an address."""
    run = text[max(0, end - MAX_LINK) : end].rpartition(" ")[2].rpartition("\n")[2]
    return run if "](" in run or "://" in run or '="' in run else ""


def without_gap(text: str, start: int, end: int) -> int:
    """Return the end of a removed part, moved so that no double or leading space is left."""
    before = text[start - 1 : start] if start else "\n"
    return end + 1 if before in (" ", "\t", "\n") and text[end : end + 1] in (" ", "\t") else end
