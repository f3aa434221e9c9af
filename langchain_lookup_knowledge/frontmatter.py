"""Frontmatter in YAML, TOML or JSON, with its values as written. The only module that imports a parser of any of them."""

import json
import os
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from datetime import date, time
from decimal import Decimal
from enum import Enum
from typing import Any, NamedTuple
from uuid import UUID

import yaml
from frontmatter.default_handlers import BaseHandler, YAMLHandler

from langchain_lookup_knowledge.cleaning import ZERO_WIDTH_SPACE, one_line, suspicious
from langchain_lookup_knowledge.types import Problem

MAX_HEADER_CHARS = 100_000
MAX_VALUES = 1000
"""Most keywords, categories or entities of an entry."""
MAX_ATTRIBUTES = 100
"""Most values that are kept for scopes."""
MAX_VALUE_CHARS = 200
"""Most characters of a title, keyword, category or entity."""
SUSPICION = "somebody may have meant to deceive"
MAX_TOML_DEPTH = 50
"""Most parts of a dotted TOML key; `tomllib` takes time in the square of them."""

_YAML_LOADER = getattr(yaml, "CBaseLoader", yaml.BaseLoader)
_PLAIN_TAG = "tag:yaml.org,2002:str"
_NULLS = frozenset({"", "~", "null", "Null", "NULL"})
_DEEP_KEY = re.compile(rf"""(?:(?:"[^"\n]*+"|'[^'\n]*+'|(?<![\w-])[\w-]++)[ \t]*+\.[ \t]*+){{{MAX_TOML_DEPTH}}}""")
_JSON_START = re.compile(r"\{\s*\"")
_KEY = re.compile(r"[ \t{,]*[\"']?([\w-]+)[\"']?[ \t]*[=:]")
_TRUE = frozenset({"true", "yes", "on", "1"})
_FALSE = frozenset({"false", "no", "off", "0"})


class _Unreadable(Exception):
    """Why a header cannot be read, and on which of its lines, from 1."""

    def __init__(self, reason: str, line: int = 1) -> None:
        super().__init__(reason)
        self.line = line


class _Written(NamedTuple):
    """A header as found: its text, the body below it, and the line of the file it begins on."""

    kind: str
    header: str
    body: str
    first_line: int


class Frontmatter:
    """The frontmatter of one file, as YAML nodes: values stay as written (`1.10`, `on`) and anchors never expand."""

    def __init__(self, name: str, problems: list[Problem]) -> None:
        self._name = name
        self._problems = problems
        self._nodes: dict[str, yaml.Node] = {}
        self._first_line = 1

    @classmethod
    def read(cls, name: str, text: str, problems: list[Problem]) -> tuple["Frontmatter", str]:
        """Return the frontmatter and the body of `text`; what cannot be read stays in the body."""
        frontmatter = cls(name, problems)
        try:
            written = _find(text)
            if written is None:
                return frontmatter, text
            frontmatter._first_line = written.first_line
            frontmatter._add(_READERS[written.kind](written.header))
        except _Unreadable as unreadable:
            line = frontmatter._first_line + unreadable.line - 1
            problems.append(Problem(name, line, f"the frontmatter {unreadable}"))
            return cls(name, problems), text
        return frontmatter, written.body

    @classmethod
    def of(cls, name: str, metadata: Mapping[str, Any], problems: list[Problem]) -> "Frontmatter":
        """Return the metadata of a document as frontmatter; a value that cannot be used leaves its key without one.

        Raises:
            ValueError, RecursionError: a number is too long to be written, or lists and mappings are nested too deeply.
        """
        frontmatter = cls(name, problems)
        plain: dict[str, Any] = {}
        for key, value in metadata.items():
            try:
                plain[str(key)] = _plain(value)
            except TypeError as error:
                frontmatter._report(None, f"{one_line(str(key))}: {error} in the metadata is not used: give it as text")
                plain[str(key)] = None
        frontmatter._add(_mapping(plain.items(), {}))
        return frontmatter

    def _add(self, mapping: yaml.MappingNode) -> None:
        for key, value in mapping.value:
            if not isinstance(key, yaml.ScalarNode):
                self._report(key, "a key that is not text is ignored: write key: value")
                continue
            name = one_line(key.value).casefold()
            if name in self._nodes:
                self._report(key, f"the key {one_line(key.value)!r} is written twice; the last one counts: remove one")
            if isinstance(value, yaml.MappingNode) and any(not isinstance(k, yaml.ScalarNode) for k, _ in value.value):
                self._report(value, f"{one_line(key.value)}: looks like a template that was not filled in; ignored")
            else:
                self._nodes[name] = value

    def _report(self, node: yaml.Node | None, message: str) -> None:
        line = None if node is None else self._first_line + node.start_mark.line
        self._problems.append(Problem(self._name, line, message))

    def title(self, keys: Sequence[str]) -> str | None:
        """Return the first title under `keys`, shortened where it is too long."""
        title = next((value for key in keys for value in self._values(key, split=False)), None)
        if title is None or len(title) <= MAX_VALUE_CHARS:
            return title
        self._report(
            None, f"the title has {len(title)} characters; those after the first {MAX_VALUE_CHARS} are ignored"
        )
        return title[:MAX_VALUE_CHARS].rstrip()

    def values(self, keys: Sequence[str]) -> tuple[str, ...]:
        """Return the values under `keys`, together, without doubles; a string is split at commas and semicolons."""
        found = list(dict.fromkeys(value for key in keys for value in self._values(key, split=True)))
        fitting = [value for value in found if len(value) <= MAX_VALUE_CHARS]
        fields = " and ".join(keys)
        if len(fitting) < len(found):
            message = (
                f"{fields}: values longer than {MAX_VALUE_CHARS} characters are ignored: {len(found) - len(fitting)}"
            )
            self._report(None, message)
        if len(fitting) > MAX_VALUES:
            self._report(None, f"{fields}: {len(fitting)} values; those after the first {MAX_VALUES} are ignored")
        return tuple(fitting[:MAX_VALUES])

    def attributes(self) -> tuple[tuple[str, str], ...]:
        """Return the plain values of all keys, those of lists last: the first `MAX_ATTRIBUTES`.

        A value longer than `MAX_VALUE_CHARS` is text, such as a description, and none of them; nor is a list under `public`.
        """
        lists = [(key, node.value) for key, node in self._nodes.items() if isinstance(node, yaml.SequenceNode)]
        if isinstance(self._nodes.get("public"), yaml.SequenceNode):
            self._report(self._nodes["public"], "public: a list is ignored: write true or false")
            lists = [(key, items) for key, items in lists if key != "public"]
        written = [*self._nodes.items(), *((key, item) for key, items in lists for item in items)]
        scalars = ((key, node) for key, node in written if isinstance(node, yaml.ScalarNode) and not _is_null(node))
        values = dict.fromkeys((key, one_line(node.value)) for key, node in scalars)
        found = [(key, value) for key, value in values if 0 < len(value) <= MAX_VALUE_CHARS]
        if len(found) > MAX_ATTRIBUTES:
            self._report(None, f"{len(found)} values in all; no scope sees those after the first {MAX_ATTRIBUTES}")
        return tuple(found[:MAX_ATTRIBUTES])

    def under(self, other: "Frontmatter") -> "Frontmatter":
        """Return this frontmatter with the keys of another in place of its own.

        `public` counts from the other alone, if that says more than where a text is from: a text must not open itself to all.
        """
        both = Frontmatter(self._name, self._problems)
        both._nodes = self._nodes | other._nodes
        if other._nodes.keys() - {"source"} and "public" not in other._nodes:
            both._nodes.pop("public", None)
        both._first_line = self._first_line
        return both

    def is_draft(self) -> str | None:
        """Return the field that says that the author does not want the file shown yet, if there is one."""
        for key, telling in (("draft", _TRUE), ("publish", _FALSE), ("published", _FALSE)):
            node = self._node(key)
            if isinstance(node, yaml.ScalarNode) and node.value.strip().casefold() in telling:
                return f"{key}: {one_line(node.value)}"
        return None

    def _node(self, key: str) -> yaml.Node | None:
        """Return the value of a key; `a.b` is also the key `b` in the mapping `a`, and Zola keeps tags in `taxonomies`."""
        key = key.casefold()
        if key in self._nodes:
            return self._nodes[key]
        outer, _, inner = key.rpartition(".")
        mapping = self._nodes.get(outer or "taxonomies")
        if not isinstance(mapping, yaml.MappingNode):
            return None
        return next(
            (v for k, v in mapping.value if isinstance(k, yaml.ScalarNode) and k.value.casefold() == inner), None
        )

    def _values(self, key: str, *, split: bool) -> list[str]:
        node = self._node(key)
        if node is None:
            return []
        if isinstance(node, yaml.ScalarNode):
            written = self._scalar(key, node)
            parts = _listed(written) or re.split("[,;]", written) if split else [written]
            return _values(_unquoted(parts) if split else parts, key)
        if not isinstance(node, yaml.SequenceNode):
            self._report(node, f"{key}: a mapping is ignored: write a list or a string")
            return []
        scalars = [item for item in node.value if isinstance(item, yaml.ScalarNode)]
        if len(scalars) < len(node.value):
            self._report(node, f"{key}: list items that are not plain text are ignored: put them in quotes")
        return _values((self._scalar(key, item) for item in scalars), key)

    def _scalar(self, key: str, node: yaml.ScalarNode) -> str:
        if node.tag != _PLAIN_TAG:
            self._report(node, f"{key}: a value with the tag {one_line(node.tag)!r} is ignored: remove the tag")
            return ""
        if found := suspicious(node.value):
            self._report(node, f"{key}: hidden characters are removed ({', '.join(found)}): {SUSPICION}")
        return "" if _is_null(node) else str(node.value)


def _is_null(node: yaml.ScalarNode) -> bool:
    return not node.style and node.value in _NULLS  # plain style is None in one YAML loader, "" in the other


def _values(written: Iterable[str], key: str) -> list[str]:
    """Return values in one line each; note tools put a `#` in front of tags that does not belong to them."""
    lines = (one_line(text, keep=ZERO_WIDTH_SPACE) for text in written)
    if key.casefold() in ("tag", "tags"):
        lines = (re.sub(r"^#(?=[^\W\d])", "", line) for line in lines)
    return [line for line in lines if line]


def _listed(written: str) -> list[str] | None:
    """Return the items of a list that was written as a string: `'["a", "b"]'`."""
    if not written.lstrip().startswith('["'):
        return None
    try:
        items = json.loads(written, parse_int=str, parse_float=str)
    except (ValueError, RecursionError):
        return None
    return [item for item in items if isinstance(item, str)]


def _unquoted(parts: Iterable[str]) -> list[str]:
    """Return the parts of a comma string without quotes around them: `Atomic, "Evergreen note"`."""
    stripped = [part.strip() for part in parts]
    return [part[1:-1] if len(part) > 2 and part[0] == part[-1] and part[0] in "\"'" else part for part in stripped]


def _find(text: str) -> _Written | None:
    """Find the header at the start of a text, if there is one; the line of an error is that of the text."""
    rest = text.lstrip("\n")
    first_line = len(text) - len(rest) + 1
    for kind, fence in _FENCES.items():
        if fence.detect(rest):
            try:
                header, body = fence.split(rest)
            except ValueError:
                mark = rest[:3]
                raise _Unreadable(f"is never closed; {_AS_TEXT}: add a line {mark}", first_line) from None
            return _written(kind, header, body, first_line + rest.count("\n", 0, rest.index(header)))
    if _JSON_START.match(rest):
        try:
            _, end = json.JSONDecoder().raw_decode(rest)
        except (ValueError, RecursionError) as error:
            raise _Unreadable(_not("JSON", error), first_line + getattr(error, "lineno", 1) - 1) from None
        if rest[end : end + 1] in ("\n", ""):
            return _written("JSON", rest[:end], rest[end + 1 :], first_line)
    return None


def _written(kind: str, header: str, body: str, first_line: int) -> _Written:
    if len(header) > MAX_HEADER_CHARS:
        reason = f"has {len(header)} characters, more than {MAX_HEADER_CHARS}; {_AS_TEXT}: shorten it"
        raise _Unreadable(reason, first_line)
    return _Written(kind, header, body, first_line)


def _not(kind: str, error: Exception) -> str:
    what = getattr(error, "problem", None) or getattr(error, "msg", None) or str(error) or type(error).__name__
    fix = "quote the value" if kind == "YAML" else "correct it"
    if "']'" in what or "'}'" in what:
        fix = "close the bracket"
    return f"is not {kind} ({one_line(what)}); {_AS_TEXT}: {fix}"


def _read_yaml(header: str) -> yaml.MappingNode:
    try:
        node = yaml.compose(header, Loader=_YAML_LOADER)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        line = getattr(getattr(error, "problem_mark", None), "line", 0) + 1
        raise _Unreadable(_not("YAML", error), line) from None
    if node is None:
        return yaml.MappingNode(_PLAIN_TAG, [])
    if not isinstance(node, yaml.MappingNode):
        raise _Unreadable(f"is not a mapping of keys to values; {_AS_TEXT}", node.start_mark.line + 1)
    return node


def _read_toml(header: str) -> yaml.MappingNode:
    if deep := _DEEP_KEY.search(header):
        line = header.count("\n", 0, deep.start()) + 1
        raise _Unreadable(f"has a key of more than {MAX_TOML_DEPTH} parts; {_AS_TEXT}: shorten it", line)
    try:
        return _mapping(tomllib.loads(header, parse_float=str).items(), _key_lines(header))
    except (ValueError, RecursionError) as error:
        at = re.search(r"at line (\d+)", str(error))
        raise _Unreadable(_not("TOML", error), int(at[1]) if at else 1) from None


def _read_json(header: str) -> yaml.MappingNode:
    pairs = json.loads(header, object_pairs_hook=tuple, parse_int=str, parse_float=str)
    try:
        return _mapping(pairs, _key_lines(header))
    except RecursionError as error:
        raise _Unreadable(_not("JSON", error)) from None


_AS_TEXT = "the whole file is used as text"
_FENCES = {
    "YAML": YAMLHandler(),
    "TOML": BaseHandler(fm_boundary=re.compile(r"^\+{3,}\s*$", re.MULTILINE)),
}
_READERS = {"YAML": _read_yaml, "TOML": _read_toml, "JSON": _read_json}


def _key_lines(header: str) -> dict[str, int]:
    """Return the line, from 0, on which each key of a TOML or JSON header stands."""
    found = ((_KEY.match(line), number) for number, line in enumerate(header.split("\n")))
    return {key[1]: number for key, number in found if key}


def _mapping(pairs: Iterable[tuple[str, Any]], lines: Mapping[str, int], line: int = 0) -> yaml.MappingNode:
    nodes = [(_node(key, lines.get(key, line)), _node(value, lines.get(key, line))) for key, value in pairs]
    return yaml.MappingNode(_PLAIN_TAG, nodes, _mark(line))


def _node(value: Any, line: int) -> yaml.Node:
    """Return a TOML or JSON value as a YAML node: text, numbers as text, lists and mappings (JSON's are tuples of pairs)."""
    if isinstance(value, dict | tuple):
        return _mapping(value.items() if isinstance(value, dict) else value, {}, line)
    if isinstance(value, list):
        return yaml.SequenceNode(_PLAIN_TAG, [_node(item, line) for item in value], _mark(line))
    if isinstance(value, date | time):
        value = value.isoformat()
    text = "" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
    return yaml.ScalarNode(_PLAIN_TAG, text, _mark(line), style='"')


def _plain(value: Any) -> Any:
    """Return a value of a program as text, numbers and dates, in lists and mappings."""
    if isinstance(value, Enum):
        return _plain(value.value)
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, set | frozenset):
        return [_plain(item) for item in sorted(value, key=str)]
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if value is None or isinstance(value, str | int | float | date | time | Decimal | UUID):
        return value
    raise TypeError(f"a value of the type {type(value).__name__}")


def _mark(line: int) -> yaml.Mark:
    return yaml.Mark("", 0, line, 0, None, 0)
