"""Headers: finding the frontmatter at the start of a text, and parsing it into YAML nodes.

YAML, TOML, JSON and headers without fences all become YAML nodes, which keep values as written. No
other module parses YAML or TOML.
"""

import json
import os
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from datetime import date, time
from decimal import Decimal
from enum import Enum
from pathlib import PurePath
from typing import Any, NamedTuple
from uuid import UUID

import yaml
from frontmatter.default_handlers import BaseHandler

from langchain_lookup_knowledge.reading.metadata.unfenced import find_unfenced
from langchain_lookup_knowledge.text.headings import EXPORT_ID
from langchain_lookup_knowledge.text.visible.cleaning import one_line

MAX_HEADER_CHARS = 100_000
"""Maximum characters of the frontmatter of a file."""
MAX_TOML_DEPTH = 50
"""Maximum parts of a dotted TOML key; the time that `tomllib` takes is quadratic in this number."""

PLAIN_TAG = "tag:yaml.org,2002:str"
"""The YAML tag of a value that is written without a tag."""

_YAML_LOADER = getattr(yaml, "CBaseLoader", yaml.BaseLoader)
_DEEP_KEY = re.compile(
    rf"""(?:(?:"[^"\n]*+"|'[^'\n]*+'|(?<![\w-])[\w-]++)[ \t]*+\.[ \t]*+){{{MAX_TOML_DEPTH}}}"""
)
_JSON_START = re.compile(r"\{\s*\"")
_KEY = re.compile(r"[ \t{,]*[\"']?([\w-]+)[\"']?[ \t]*[=:]")
_NOTICE = re.compile(r"(?:<!--(?:[^-]++|-(?!->))*+-->[ \t]*\n\s*)+")
_LICENCE = re.compile(r"(?:#(?!#)[^\n]*\n)+\n*(?=-{3,}[ \t]*\n)")
_TITLE = re.compile(r"\n*# [^\n]+\n+")
_LICENCE_WORD = re.compile(r"copyright|licen[cs]e|spdx", re.IGNORECASE)


class Unreadable(Exception):
    """The reason why a header cannot be read; `line` counts from 1 within the header."""

    def __init__(self, reason: str, line: int = 1) -> None:
        super().__init__(reason)
        self.line = line


class Header(NamedTuple):
    """A header that was found: its format, text and first line, and the body below it."""

    kind: str
    text: str
    body: str
    first_line: int

    def parse(self) -> yaml.MappingNode:
        """Return the mapping of keys to values.

        Raises:
            Unreadable: the text is not valid.
        """
        return _PARSERS[self.kind](self.text)


def find_header(text: str, *, untitled: bool = False) -> Header | None:
    """Return the header at the start of a text, or None if the text does not begin with one.

    Comments may come before it: HTML comments, and lines with `#` that name a license. `untitled`:
    see `find_unfenced`.

    Raises:
        Unreadable: the header is never closed, invalid JSON or too long; the line of the error
            counts from the start of `text`.
    """
    rest = text.lstrip("\n")
    start = len(text) - len(rest)
    header = _below_notice(rest, start + 1) or _fenced(rest, start + 1)
    if header is None and (found := find_unfenced(rest, untitled=untitled)):
        lines = rest.split("\n", found.lines)
        body = lines[found.lines] if len(lines) > found.lines else ""
        header = Header("PLAIN", "\n".join(lines[: found.lines]), body, start + 1)
    return header


def find_exported(name: str, text: str) -> Header | None:
    """Return the lines `Key: value` below the title of a page that Notion exported; None if there
    are none.

    The name of such a file ends with an id. The lines stay in the body, since they may be prose.
    """
    title = _TITLE.match(text) if EXPORT_ID.search(PurePath(name).stem) else None
    found = find_unfenced(text[title.end() :], untitled=True) if title else None
    if title is None or found is None:
        return None
    lines = text[title.end() :].split("\n", found.lines)[: found.lines]
    return Header("PLAIN", "\n".join(lines), text, title[0].count("\n") + 1)


def _below_notice(rest: str, first_line: int) -> Header | None:
    """Return the header below a license or other comments; None if there is no such header."""
    notice = _NOTICE.match(rest) or _LICENCE.match(rest)
    if not notice or (rest[0] == "#" and not _LICENCE_WORD.search(notice[0])):
        return None
    try:
        header = _fenced(rest[notice.end() :], first_line + notice[0].count("\n"))
    except Unreadable:
        return None
    # Without a key, the marks are thematic breaks.
    return header if header and _KEY.match(header.text.lstrip()) else None


def _fenced(rest: str, first_line: int) -> Header | None:
    for kind, (mark, fence) in _FENCES.items():
        if rest.startswith(mark) and fence.detect(rest):
            try:
                header, body = fence.split(rest)
            except ValueError:
                raise Unreadable(
                    f"is never closed; {_AS_TEXT}: add a line {rest[:3]}", first_line
                ) from None
            return _bounded_header(
                kind, header, body, first_line + rest.count("\n", 0, rest.index(header))
            )
    if _JSON_START.match(rest):
        try:
            _, end = json.JSONDecoder().raw_decode(rest)
        except (ValueError, RecursionError) as error:
            raise Unreadable(
                _not("JSON", error), first_line + getattr(error, "lineno", 1) - 1
            ) from None
        if rest[end : end + 1] in ("\n", ""):
            return _bounded_header("JSON", rest[:end], rest[end + 1 :], first_line)
    return None


def _bounded_header(kind: str, header: str, body: str, first_line: int) -> Header:
    if len(header) > MAX_HEADER_CHARS:
        reason = (
            f"has {len(header)} characters, more than {MAX_HEADER_CHARS}; {_AS_TEXT}: shorten it"
        )
        raise Unreadable(reason, first_line)
    return Header(kind, header, body, first_line)


def _not(kind: str, error: Exception) -> str:
    what = (
        getattr(error, "problem", None)
        or getattr(error, "msg", None)
        or str(error)
        or type(error).__name__
    )
    fix = "quote the value" if kind == "YAML" else "correct it"
    if "']'" in what or "'}'" in what:
        fix = "close the bracket"
    return f"is not {kind} ({one_line(what)}); {_AS_TEXT}: {fix}"


def _parse_yaml(header: str) -> yaml.MappingNode:
    try:
        node = yaml.compose(header, Loader=_YAML_LOADER)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        line = getattr(getattr(error, "problem_mark", None), "line", 0) + 1
        raise Unreadable(_not("YAML", error), line) from None
    if node is None:
        return yaml.MappingNode(PLAIN_TAG, [])
    if not isinstance(node, yaml.MappingNode):
        raise Unreadable(
            f"is not a mapping of keys to values; {_AS_TEXT}: write key: value",
            node.start_mark.line + 1,
        )
    return node


def _parse_toml(header: str) -> yaml.MappingNode:
    if deep := _DEEP_KEY.search(header):
        line = header.count("\n", 0, deep.start()) + 1
        raise Unreadable(
            f"has a key of more than {MAX_TOML_DEPTH} parts; {_AS_TEXT}: shorten it", line
        )
    try:
        return mapping_node(tomllib.loads(header, parse_float=str).items(), _key_lines(header))
    except (ValueError, RecursionError) as error:
        at = re.search(r"at line (\d+)", str(error))
        raise Unreadable(_not("TOML", error), int(at[1]) if at else 1) from None


def _parse_json(header: str) -> yaml.MappingNode:
    pairs = json.loads(header, object_pairs_hook=tuple, parse_int=str, parse_float=str)
    try:
        return mapping_node(pairs, _key_lines(header))
    except RecursionError as error:
        raise Unreadable(_not("JSON", error)) from None


def _parse_plain(header: str) -> yaml.MappingNode:
    found = find_unfenced(header, untitled=True)
    pairs = found.pairs if found else []
    nodes = [(_node(key, line), _node(value, line)) for key, value, line in pairs]
    return yaml.MappingNode(PLAIN_TAG, nodes, _mark(0))


_AS_TEXT = "the whole file is used as text"
_FENCES = {
    "YAML": ("-", BaseHandler(fm_boundary=re.compile(r"^(?:-{3,}|\.{3})\s*$", re.MULTILINE))),
    "TOML": ("+", BaseHandler(fm_boundary=re.compile(r"^\+{3,}\s*$", re.MULTILINE))),
}
_PARSERS = {
    "YAML": _parse_yaml,
    "TOML": _parse_toml,
    "JSON": _parse_json,
    "PLAIN": _parse_plain,
}


def _key_lines(header: str) -> dict[str, int]:
    """Return the line, counted from 0, of each key of a TOML or JSON header."""
    found = ((_KEY.match(line), number) for number, line in enumerate(header.split("\n")))
    return {key[1]: number for key, number in found if key}


def mapping_node(
    pairs: Iterable[tuple[str, Any]], lines: Mapping[str, int], line: int = 0
) -> yaml.MappingNode:
    """Return keys and plain values as a YAML node; `lines` maps keys to their lines, from 0."""
    nodes = [
        (_node(key, lines.get(key, line)), _node(value, lines.get(key, line)))
        for key, value in pairs
    ]
    return yaml.MappingNode(PLAIN_TAG, nodes, _mark(line))


def _node(value: Any, line: int) -> yaml.Node:
    """Return a TOML or JSON value as a YAML node, with numbers as text.

    JSON mappings are passed as tuples of pairs.
    """
    if isinstance(value, dict | tuple):
        return mapping_node(value.items() if isinstance(value, dict) else value, {}, line)
    if isinstance(value, list):
        return yaml.SequenceNode(PLAIN_TAG, [_node(item, line) for item in value], _mark(line))
    if isinstance(value, date | time):
        value = value.isoformat()
    text = "" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
    return yaml.ScalarNode(PLAIN_TAG, text, _mark(line), style='"')


def scalar_lists(
    mapping: yaml.MappingNode,
) -> Iterator[tuple[str, list[str] | None, int]]:
    """Yield each key of a mapping with its values as a list and its line, counted from 1.

    The list is None if the key or a value is not plain text.
    """
    for key, value in mapping.value:
        items = value.value if isinstance(value, yaml.SequenceNode) else [value]
        is_plain = all(isinstance(node, yaml.ScalarNode) for node in (key, *items))
        texts = [item.value for item in items] if is_plain else None
        yield str(key.value) if is_plain else "", texts, key.start_mark.line + 1


def plain_value(value: Any) -> Any:
    """Convert a Python value to texts, numbers and dates, in lists and mappings.

    Raises:
        TypeError: the value has a type that cannot be converted.
    """
    if isinstance(value, Enum):
        return plain_value(value.value)
    if isinstance(value, Mapping):
        return {str(key): plain_value(item) for key, item in value.items()}
    if isinstance(value, set | frozenset):
        return [plain_value(item) for item in sorted(value, key=str)]
    if isinstance(value, list | tuple):
        return [plain_value(item) for item in value]
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if value is None or isinstance(value, str | int | float | date | time | Decimal | UUID):
        return value
    raise TypeError(f"a value of the type {type(value).__name__}")


def _mark(line: int) -> yaml.Mark:
    return yaml.Mark("", 0, line, 0, None, 0)


def lines_above(text: str, body: str) -> int:
    """Return how many lines of a text the header takes above the body."""
    return text[: max(0, text.rfind(body))].count("\n")
