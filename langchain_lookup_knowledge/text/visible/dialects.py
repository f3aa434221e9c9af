"""Syntax of Markdown dialects: comments, CriticMarkup, MDX modules, template tags and entities."""

import re
from functools import cached_property

from langchain_lookup_knowledge.text.visible.markup import ENTITY, decoded
from langchain_lookup_knowledge.text.visible.templates import (
    MAX_COMMENT,
    Edit,
    Templates,
    without_gap,
)

SIGNS = rf"""
    (?P<brace>\{{(?:[{{%\#]|--|\+\+|~~|>>|==))
  | (?P<percents>%%)
  | (?P<entity>{ENTITY})
"""
"""Pattern of signs that may occur anywhere in a line."""
LINE_SIGNS = r"""
    (?P<module>import[ \t]+(?:[\w${},* \t]+[ \t]from[ \t]+)?['"][^'"\n]+['"];?[ \t]*(?=\n)
      | import[ \t]+[\w$,* \t]*\{[^{}'"\n;]*\n[^{}'";]*\}[ \t]*from[ \t]+['"][^'"\n]+['"][^\n]*)
  | (?P<exported>export[ \t]+(?:(?:const|let|var)[ \t]+\w+[ \t]*=|\{|\*[ \t]+from[ \t]+['"]
      | default[ \t]+[({]
      | (?:default[ \t]+)?(?:async[ \t]+)?(?:function|class)[ \t]+\w*[^\n]*\{))
  | (?P<division>:{3,}[ \t]*\{(?![^}\n]{0,300}[ \t](?:when|unless)-)
      (?:[^}\n]{0,300}[ \t])?\.content-hidden(?=[ \t}])[^}\n]{0,300}\}[ \t]*:*[ \t]*(?=\n))
  | (?P<remark>(?:%[ \t][^\n]*(?:\n(?=%[ \t]))?)+)
"""
"""Pattern of signs that count only at the start of a line."""
SIGN_KINDS = frozenset(("brace", "percents", "entity", "module", "exported", "division", "remark"))
"""Names of the groups in both patterns."""

_MODULE_LINE = re.compile(r"(?:ex|im)port\b")
_CAPITALS = re.compile(r"[A-Z0-9_]+")
_DIVISION = re.compile(r"^:{3,}+[ \t]*+(?P<attributes>[^\s:][^\n]*)?[ \t]*$", re.MULTILINE)
_FIRST = re.compile(r"[ \t>*+-]*\Z")


class Dialects:
    """Reads the dialect syntax in one text; the caller finds where a sign begins.

    Takes time linear in the length of the text.
    """

    def __init__(self, text: str) -> None:
        self._text = text
        self._templates = Templates(text)

    def edits(self, kind: str, start: int, end: int) -> tuple[int, list[Edit]]:
        """Return where reading continues after a sign, and the edits that it requires.

        Args:
            kind: one of `SIGN_KINDS`.
            start: where the sign begins.
            end: where it ends.
        """
        if kind == "brace":
            is_tag = self._text[start + 1] in "{%#"
            return self._templates.edits(start) if is_tag else self._critic(start)
        if kind == "percents":
            closed = self._percent_comment(start)
            return (closed, [Edit(start, closed, "")]) if closed else (end, [])
        if kind == "entity":
            return end, self._entity(start, end)
        if kind == "division":
            closed = self._divisions.get(start)
            return (closed, [Edit(start, closed, "")]) if closed else (end, [])
        if kind == "exported":
            end = statement_end(self._text, start)
        elif kind == "remark" and self._text[start - 2 : start - 1] not in (
            "\n",
            "",
        ):  # a remark within a paragraph
            return end, []
        return end, [Edit(start, end, "")]

    @cached_property
    def _divisions(self) -> dict[int, int]:
        """The end of each of Pandoc's divisions (`::: {.a}` .. `:::`), by its start; divisions may
        be nested.
        """
        found: dict[int, int] = {}
        opened: list[int] = []
        for fence in _DIVISION.finditer(self._text):
            if fence["attributes"]:
                opened.append(fence.start())
            elif opened:
                found[opened.pop()] = fence.end()
        return found

    def _critic(self, start: int) -> tuple[int, list[Edit]]:
        """Apply CriticMarkup: remove deletions and comments, keep the new text of substitutions."""
        text = self._text
        mark = text[start + 1 : start + 3]
        close = self._templates.closer({">>": "<<}"}.get(mark, f"{mark}}}"), start + 3)
        if close is None or close - start > MAX_COMMENT:
            return start + 1, []
        end = close + 3
        if mark in ("--", ">>"):
            return end, [Edit(start, without_gap(text, start, end), "")]
        inner = start + 3
        if mark == "~~":
            arrow = self._templates.closer("~>", inner)
            if arrow is None or arrow > close:
                return start + 1, []
            inner = arrow + 2
        return inner, [Edit(start, inner, ""), Edit(close, end, "")]

    def _percent_comment(self, start: int) -> int | None:
        """Return the end of an Obsidian comment, `%% .. %%`, at `start`; None if there is none.

        Percent signs after a number are text, and so is an all-caps name, as in a batch variable. A
        comment that begins within a line ends in the same paragraph.
        """
        text = self._text
        before = text[start - 1 : start]
        if before.isalnum() or before == "%" or text[start + 2 : start + 3] == "%":
            return None
        close = self._templates.closer("%%", start + 2)
        if close is None or close - start > MAX_COMMENT:
            return None
        inside = text[start + 2 : close]
        is_text = not inside or _CAPITALS.fullmatch(inside)
        if is_text or ("\n\n" in inside and not self._is_first(start)):
            return None
        return close + 2

    def _entity(self, start: int, end: int) -> list[Edit]:
        after = self._text[end : end + 1]
        shown = decoded(self._text[start:end], after, at_line_start=self._is_first(start))
        return [] if shown is None else [Edit(start, end, shown)]

    def _is_first(self, position: int) -> bool:
        """Return whether only list or quote markers come before a position in its line."""
        before = self._text[max(0, position - 40) : position].rpartition("\n")
        return bool(before[1]) and _FIRST.match(before[2]) is not None


def statement_end(text: str, start: int) -> int:
    """Return the end of the MDX module statement that begins at `start`.

    It is the end of the line on which all brackets are closed. If they are still open at the next
    statement, it is the end of the first line.
    """
    depth, position = 0, start
    while True:
        end = text.find("\n", position)
        end = len(text) if end < 0 else end
        line = text[position:end]
        if position > start and _MODULE_LINE.match(line):
            break
        depth += sum(line.count(mark) for mark in "{[(") - sum(line.count(mark) for mark in "}])")
        if depth <= 0:
            return end
        if end == len(text):
            break
        position = end + 1
    end = text.find("\n", start)
    return len(text) if end < 0 else end
