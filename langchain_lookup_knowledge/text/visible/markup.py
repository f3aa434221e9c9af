"""Inline HTML tags and MDX components as a reader sees them.

Block-level tags (`div`, `table`, `h1`) are not changed here.
"""

import re
from collections.abc import Mapping
from html import unescape
from html.entities import html5

from langchain_lookup_knowledge.text.visible.tags import (
    ADMONITIONS,
    DESCRIPTIONS,
    MAX_LINK,
    PICTURES,
    TEXT_ARGUMENTS,
    Tag,
    ended,
    heading_of,
)
from langchain_lookup_knowledge.text.visible.templates import Edit, without_gap

ENTITY = r"&(?:\#(?:[0-9]{1,7}|[xX][0-9A-Fa-f]{1,6})|[A-Za-z][A-Za-z0-9]{1,31});"
"""Pattern of a possible HTML entity."""
_BRACES = r"\{(?:[^{}]|\{(?:[^{}]|\{[^{}]*+\})*+\})*+\}"
TAG_SIGN = rf"""
    <(?P<end>/?)(?P<name>[A-Za-z][\w-]*)
    (?P<attributes>(?:[^<>"'{{]|{_BRACES}|"[^"]*"|'[^']*'|\{{)*+)>
"""
"""Pattern of a tag of HTML or MDX; JSX expressions may have up to three levels of braces."""
MAX_TABS = 2_000
"""Maximum characters of a tab group's attributes that are searched for labels."""
INLINE = frozenset(
    "a abbr acronym b bdi bdo big center cite code dfn em font i ins kbd label mark nobr q rb ruby "
    "s samp small span strike strong sub sup time tt u var".split()
)
"""Inline HTML tags that are removed; their text stays."""
COMPONENT = re.compile(r"(?:[A-Z][a-z0-9]*)+(?:\.[A-Za-z]\w*)*|[A-Z]")
"""Pattern of MDX component names: `Note`, `TabItem`, `Tabs.Tab`; not `NAME`, a placeholder."""
_ENTITY = re.compile(ENTITY)
_SPACES = ("\u00a0", "\u2002", "\u2003", "\u2009")
_WITH_LOWER = re.compile("[a-z]")
_ATTRIBUTE = re.compile(
    r"""(?<![\w-])(?P<key>[A-Za-z][\w-]*+)=
    (?:\{\s*)?+(?:"(?P<double>[^"]*+)"|'(?P<single>[^']*+)'|`(?P<raw>[^`]*+)`)""",
    re.VERBOSE,
)
_PADDING = re.compile(r"[\s|>*_]")
_CODE = frozenset("code kbd samp tt".split())
_TAB = re.compile(r"\{([^{}]*)\}")
_TAB_TEXT = re.compile(r"""(label|value)['"]?\s*:\s*['"]([^'"]*)""")
_NO_CODE = re.compile(r"[`<\n]|\{\{|\{%|\{#|%%")
_SUPERSCRIPT = re.compile(r"[-+−]?\d")


def is_component(name: str) -> bool:
    """Return whether a tag's name is that of an MDX component."""
    return bool(COMPONENT.fullmatch(name) and _WITH_LOWER.search(name))


def attributes_of(written: str) -> dict[str, str]:
    """Return the string attributes of a tag, keyed by lower-cased name."""
    return {
        found["key"].casefold(): " ".join(
            unescape(found["double"] or found["single"] or found["raw"] or "").split()
        )
        for found in _ATTRIBUTE.finditer(written)
    }


def lone_edit(text: str, tag: re.Match[str]) -> Edit | None:
    """Return the edit that replaces a tag without a closing tag; None to keep the tag."""
    name, start, end = tag["name"], tag.start(), tag.end()
    lower = name.casefold()
    if lower in ("br", "wbr"):
        return _line_break(text, start, end) if lower == "br" else Edit(start, end, "")
    if lower == "img":
        return _replaced(text, start, end, attributes_of(tag["attributes"]).get("alt", ""))
    if is_component(name):
        return _replaced(text, start, end, _component(name, attributes_of(tag["attributes"])))
    return Edit(start, without_gap(text, start, end), "") if lower in ("a", "span") else None


def stray_edit(text: str, tag: re.Match[str]) -> Edit | None:
    """Return the edit that replaces an unmatched closing tag; None to keep the tag."""
    if tag["name"].casefold() == "br":
        return _line_break(text, *tag.span())
    return Edit(*tag.span(), "") if tag["name"].casefold() in ("img", *INLINE) else None


def pair_edits(
    text: str, opening: re.Match[str], closing: re.Match[str], tabs: re.Match[str] | None = None
) -> list[Edit]:
    """Return the edits that replace a tag and its closing tag; empty to keep both.

    Args:
        text: the whole text.
        opening: the tag, a match of `TAG_SIGN`.
        closing: the tag that closes it.
        tabs: the enclosing tab group, which may contain the labels of its tabs.
    """
    name, lower = opening["name"], opening["name"].casefold()
    first, last = opening.span(), closing.span()
    if lower == "a" and not is_component(name):
        address = attributes_of(opening["attributes"]).get("href", "")
        inside = text[first[1] : min(last[0], first[1] + MAX_LINK)]
        is_link = last[0] - first[1] <= MAX_LINK and "\n\n" not in inside and inside.strip()
        if address and is_link and not re.search("[<>]", address):
            written = f"<{address}>" if re.search(r"[\s()]", address) else address
            return [Edit(*first, "["), Edit(*last, f"]({written})")]
        return [Edit(*first, ""), Edit(*last, "")]
    if lower == "sup":
        is_power = text[first[0] - 1 : first[0]].strip() and _SUPERSCRIPT.match(text, first[1])
        return [Edit(*first, "^" if is_power else ""), Edit(*last, "")]
    if lower == "summary":
        end = text[last[0] - 1 : last[0]]
        mark = "" if not end.isalnum() and end not in ")`\"'" else ":"
        return [Edit(*first, ""), _spaced(text, *last, mark)]
    if lower == "details":
        return [_spaced(text, *first, ""), _spaced(text, *last, "")]
    if lower in _CODE and last[0] - first[1] <= MAX_LINK:
        inside = text[first[1] : last[0]]
        if inside.strip() and not _NO_CODE.search(inside):
            shown = without_entities(inside).strip()
            shown = shown if "|" in inside else shown.replace("|", "\\|")
            return [] if "`" in shown else [Edit(first[0], last[1], f"`{shown}`")]
    if lower in INLINE and name == lower:
        return [Edit(*first, ""), Edit(*last, "")]
    if not is_component(name):
        return []
    attributes = attributes_of(opening["attributes"])
    if tabs and lower == "tabitem" and "label" not in attributes:
        attributes["label"] = _tab_label(tabs["attributes"], attributes.get("value", ""))
    heading = ended(_component(name, attributes))
    return [_replaced(text, *first, heading), _spaced(text, *last, "")]


def _component(name: str, attributes: Mapping[str, str]) -> str:
    words = [word.casefold() for word in re.findall("[A-Z][a-z0-9]*", name)]
    last = words[-1] if words else ""
    if last in ADMONITIONS:
        return heading_of(Tag(last, False, (), (), attributes))
    keys = TEXT_ARGUMENTS if not PICTURES.intersection(words) else ("title", "caption", "label")
    texts = [attributes[key] for key in keys if attributes.get(key)][:1]
    texts += [attributes[key] for key in DESCRIPTIONS if attributes.get(key)]
    if not texts and "tab" in words and last in ("tab", "item"):
        texts = [attributes[key] for key in ("value",) if attributes.get(key)]
    return " ".join([*(ended(text) for text in texts[:-1]), *texts[-1:]])


def _tab_label(written: str, value: str) -> str:
    """Return the label of a tab from the `values` attribute of its tab group."""
    for item in _TAB.findall(written[:MAX_TABS]):
        texts = dict(_TAB_TEXT.findall(item))
        if texts.get("value") == value:
            return str(texts.get("label", ""))
    return ""


def _replaced(text: str, start: int, end: int, instead: str) -> Edit:
    if not instead:
        return Edit(start, without_gap(text, start, end), "")
    before, after = text[start - 1 : start], text[end : end + 1]
    lead = " " if before and not _PADDING.match(before) and before not in "([{" else ""
    return Edit(start, end, f"{lead}{instead}{' ' if after.isalnum() or after == '`' else ''}")


def _line_break(text: str, start: int, end: int) -> Edit:
    """Replace `<br>` by a space, or at the end of a line by two spaces, Markdown's line break."""
    is_last = text[end : end + 1] in ("\n", "") and text[start - 1 : start].strip()
    return Edit(start, end, "  ") if is_last else _spaced(text, start, end, "")


def _spaced(text: str, start: int, end: int, mark: str) -> Edit:
    """Replace a tag by `mark`, plus a space if there is text on both sides."""
    before, after = text[start - 1 : start], text[end : end + 1]
    is_between = bool(before.strip() and after.strip())
    return Edit(start, end, f"{mark} " if is_between else mark)


def without_entities(text: str) -> str:
    """Return a text with its entities decoded. The text must not be read as Markdown."""
    return _ENTITY.sub(lambda found: _character(found[0]) or found[0], text)


def _character(entity: str) -> str:
    known = entity[1] == "#" or entity[1:] in html5
    character = unescape(entity) if known else ""
    return " " if character in _SPACES else character


def decoded(entity: str, after: str, *, at_line_start: bool) -> str | None:
    """Return the character of an entity such as `&amp;`; None if the entity is unknown.

    A character that would act as Markdown or HTML markup is escaped with a backslash.
    """
    character = _character(entity)
    if not character:
        return None
    is_mark = character in "|`*_[]\\" or (at_line_start and character in "#<>-+=~:!")
    is_mark |= character == "<" and (after.isalpha() or after in ("!", "/", "?"))
    return f"\\{character}" if len(character) == 1 and is_mark else character
