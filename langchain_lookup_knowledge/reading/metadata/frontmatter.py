"""Frontmatter: the fields of one entry as written, and problems in them."""

import ast
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import yaml

from langchain_lookup_knowledge.reading.metadata.headers import (
    PLAIN_TAG,
    Unreadable,
    find_exported,
    find_header,
    mapping_node,
    plain_value,
)
from langchain_lookup_knowledge.reading.metadata.lead import Line, in_file_order, lead_lines
from langchain_lookup_knowledge.reading.metadata.standing import OFF
from langchain_lookup_knowledge.text.markdown import code_ranges
from langchain_lookup_knowledge.text.visible.cleaning import (
    ZERO_WIDTH_SPACE,
    one_line,
    seen_title,
    suspicious,
)
from langchain_lookup_knowledge.text.visible.markup import without_entities
from langchain_lookup_knowledge.types import FrontmatterFields, Problem

MAX_VALUES = 1000
"""Maximum keywords, categories or entities of an entry."""
MAX_ATTRIBUTES = 100
"""Maximum values of an entry that are kept for scopes."""
MAX_VALUE_CHARS = 200
"""Maximum characters of a title, keyword, category or entity."""
MAX_LIST_CHARS = 100_000
"""Maximum characters of a string that is parsed as a list in Python syntax."""
SUSPICION = "they may be an attempt to deceive"
"""The last words of a problem about hidden characters."""

_NULLS = frozenset({"", "~", "null", "Null", "NULL"})
_TRUE = frozenset({"true", "yes", "on", "1"})
_SINGULAR = {"keywords": "keyword", "tags": "tag", "entities": "entity", "aliases": "alias"}
_WIKILINK = re.compile(r"\[\[(?:[^\[\]|]*\|)?([^\[\]|]*)\]\]")
_MARKED = re.compile(
    r"(?<!`)(`+)(?P<code>[^`]+)\1 | \*\*(?P<bold>[^*]+)\*\* | !?\[(?P<link>[^\[\]]*)\]\([^()\s]*\)"
    r"| (?P<comment><!--.*?-->|\{\{!.*?\}\})",
    re.VERBOSE,
)
MAX_MARKED = 1000
"""Maximum characters of a value that is searched for marks; a longer one is ignored anyway."""
_NOT_SEARCHED = re.compile(r"true|false|yes|no|on|off|-?\d{1,3}|/.*", re.IGNORECASE)
_TEMPLATE = re.compile(r"\s*<%.*%>\s*", re.DOTALL)
_LAYOUT_KEYS = frozenset("layout template theme css cssclass cssclasses icon image outline".split())
_INLINE_CODE = re.compile(r"`[^`\n]*`")
_INLINE_TAG = re.compile(r"(?<![^\s(,;])#((?=[\d/_-]*[^\W\d_])[\w/-]+)")
_DRAFT_FIELDS = (("draft", _TRUE), ("publish", OFF), ("published", OFF))


class Frontmatter:
    """The frontmatter of one file, as YAML nodes.

    Values are kept as written (`1.10`, `on`), and aliases are never expanded.
    """

    def __init__(self, name: str, problems: list[Problem]) -> None:
        self._name = name
        self._problems = problems
        self._nodes: dict[str, yaml.Node] = {}
        self._first_line = 1
        self._lines: list[str] = []
        self._unplaced: frozenset[str] = frozenset()

    @classmethod
    def read(
        cls, name: str, text: str, problems: list[Problem], *, untitled: bool = False
    ) -> tuple["Frontmatter", str]:
        """Return the frontmatter and body of `text`; the body includes unreadable frontmatter.

        `untitled`: see `find_unfenced`.
        """
        frontmatter = cls(name, problems)
        try:
            header = find_header(text, untitled=untitled) or find_exported(name, text)
            if header is None:
                return frontmatter, text
            frontmatter._first_line = header.first_line
            frontmatter._lines = header.text.split("\n")
            frontmatter._add(header.parse())
        except Unreadable as unreadable:
            line = frontmatter._first_line + unreadable.line - 1
            problems.append(Problem(name, line, f"the frontmatter {unreadable}"))
            return cls(name, problems), text
        return frontmatter, header.body

    @classmethod
    def of(cls, name: str, metadata: Mapping[str, Any], problems: list[Problem]) -> "Frontmatter":
        """Return a document's metadata as frontmatter; unusable values become empty.

        Raises:
            ValueError: a number has too many digits to be converted.
            RecursionError: lists and mappings are nested too deeply.
        """
        frontmatter = cls(name, problems)
        plain: dict[str, Any] = {}
        for key, value in metadata.items():
            try:
                plain[str(key)] = plain_value(value)
            except TypeError as error:
                frontmatter._report(
                    None,
                    f"{one_line(str(key))}: {error} in the metadata is ignored: convert it to text",
                )
                plain[str(key)] = None
        frontmatter._add(mapping_node(plain.items(), {}))
        return frontmatter

    def _add(self, mapping: yaml.MappingNode) -> None:
        for key, value in mapping.value:
            if not isinstance(key, yaml.ScalarNode):
                self._report(key, "a key that is not text is ignored: write key: value")
                continue
            name = one_line(key.value).casefold()
            if name in self._nodes:
                self._report(
                    key,
                    f"the key {one_line(key.value)!r} is written twice; the last one counts: "
                    "remove one",
                )
            if isinstance(value, yaml.MappingNode) and any(
                not isinstance(k, yaml.ScalarNode) for k, _ in value.value
            ):
                self._report(
                    value,
                    f"{one_line(key.value)}: looks like a template that was not filled in; "
                    "ignored: fill it in, or put it in quotes",
                )
            else:
                self._nodes[name] = value

    def _report(self, node: yaml.Node | None, message: str) -> None:
        line = None if node is None else self._first_line + node.start_mark.line
        self._problems.append(Problem(self._name, line, message))

    def title(self, keys: Sequence[str]) -> str | None:
        """Return the first title under `keys`, shortened if it is too long."""
        written = (value for key in keys for value in self._values(key, split=False))
        title = next((seen_title(value) for value in written), None)
        if title is None or len(title) <= MAX_VALUE_CHARS:
            return title
        self._report(
            None,
            f"the title has {len(title)} characters; those after the first {MAX_VALUE_CHARS} "
            "are ignored: shorten it",
        )
        return title[:MAX_VALUE_CHARS].rstrip()

    def values(self, keys: Sequence[str]) -> tuple[str, ...]:
        """Return the values under all `keys`, without duplicates.

        A string is split at commas and semicolons.
        """
        both = (name for key in keys for name in (key, _SINGULAR.get(key, key)))
        found = list(
            dict.fromkeys(
                value for key in dict.fromkeys(both) for value in self._values(key, split=True)
            )
        )
        fitting = [value for value in found if len(value) <= MAX_VALUE_CHARS]
        fields = " and ".join(keys)
        if len(fitting) < len(found):
            ignored = len(found) - len(fitting)
            self._report(
                None,
                f"{fields}: values longer than {MAX_VALUE_CHARS} characters "
                f"are ignored ({ignored}): shorten them",
            )
        if len(fitting) > MAX_VALUES:
            self._report(
                None,
                f"{fields}: {len(fitting)} values; those after the first {MAX_VALUES} are ignored: "
                "remove some",
            )
        return tuple(fitting[:MAX_VALUES])

    def attributes(self) -> tuple[tuple[str, str], ...]:
        """Return the first `MAX_ATTRIBUTES` values of all keys, single values before list items.

        Values longer than `MAX_VALUE_CHARS` are skipped as prose; lists under `public` are skipped,
        too.
        """
        lists = [
            (key, node.value)
            for key, node in self._nodes.items()
            if isinstance(node, yaml.SequenceNode)
        ]
        if isinstance(self._nodes.get("public"), yaml.SequenceNode):
            self._report(self._nodes["public"], "public: a list is ignored: write true or false")
            lists = [(key, items) for key, items in lists if key != "public"]
        written = [*self._nodes.items(), *((key, item) for key, items in lists for item in items)]
        scalars = (
            (key, node)
            for key, node in written
            if isinstance(node, yaml.ScalarNode) and not _is_null(node)
        )
        values = dict.fromkeys((key, one_line(node.value)) for key, node in scalars)
        found = [(key, value) for key, value in values if 0 < len(value) <= MAX_VALUE_CHARS]
        if len(found) > MAX_ATTRIBUTES:
            self._report(
                None,
                f"the frontmatter has {len(found)} values; scopes use only the first "
                f"{MAX_ATTRIBUTES}: remove some",
            )
        return tuple(found[:MAX_ATTRIBUTES])

    def overridden_by(self, other: "Frontmatter") -> "Frontmatter":
        """Return this frontmatter with the keys of `other` added; for equal keys, `other` wins.

        If `other` has keys besides `source`, `public` is taken only from `other`: a text must not
        make itself public.
        """
        both = Frontmatter(self._name, self._problems)
        both._nodes = self._nodes | other._nodes
        if other._nodes.keys() - {"source"} and "public" not in other._nodes:
            both._nodes.pop("public", None)
        both._first_line, both._lines = self._first_line, self._lines
        both._unplaced = frozenset(other._nodes)
        return both

    def lead(self, keys: Sequence[str]) -> list[Line]:
        """Return the lines of the texts under `keys`, in the order of the file.

        Lines of a document's metadata have the number 0.
        """
        texts: list[tuple[int, list[Line]]] = []
        for key in dict.fromkeys(keys):
            if node := self._node(key):
                own = [] if key.casefold() in self._unplaced else self._lines
                lines = list(lead_lines(node, own, self._first_line))
                texts.append((node.start_mark.column, lines))
        return in_file_order(texts)

    def other_values(
        self, fields: FrontmatterFields, attributes: Iterable[tuple[str, str]]
    ) -> tuple[str, ...]:
        """Return the values among the attributes whose keys `fields` does not use.

        Switches, ranks and paths, such as `toc: true`, `weight: 20` and `/old/page/`, are left out.
        """
        named = (fields.title, fields.keywords, fields.category, fields.entities, fields.text)
        used = {key.casefold() for keys in named for key in keys}
        used.update(_SINGULAR[key] for key in used & _SINGULAR.keys())
        used |= _LAYOUT_KEYS
        others = (value for key, value in attributes if key not in used)
        return tuple(dict.fromkeys(v for v in others if not _NOT_SEARCHED.fullmatch(v)))

    def is_draft(self) -> str | None:
        """Return the field and value that mark the file as a draft; None if it is not a draft."""
        nodes = ((key, self._node(key)) for key, _ in _DRAFT_FIELDS)
        return draft_field(
            [
                (key, one_line(node.value))
                for key, node in nodes
                if isinstance(node, yaml.ScalarNode)
            ]
        )

    def _node(self, key: str) -> yaml.Node | None:
        """Return the value of a key.

        `a.b` also means the key `b` in the mapping `a`, as Zola keeps tags in `taxonomies`.
        """
        key = key.casefold()
        if key in self._nodes:
            return self._nodes[key]
        outer, _, inner = key.rpartition(".")
        mapping = self._nodes.get(outer or "taxonomies")
        if not isinstance(mapping, yaml.MappingNode):
            return None
        return next(
            (
                v
                for k, v in mapping.value
                if isinstance(k, yaml.ScalarNode) and k.value.casefold() == inner
            ),
            None,
        )

    def _values(self, key: str, *, split: bool) -> list[str]:
        node = self._node(key)
        if node is None:
            return []
        if isinstance(node, yaml.ScalarNode):
            written = self._scalar(key, node)
            if not split:
                return _values([written], key)
            written = without_entities(written)
            parts = listed(written) or _split(written, key)
            return _values(map(_unmarked, _unquoted(parts)), key)
        if not isinstance(node, yaml.SequenceNode):
            self._report(node, f"{key}: a mapping is ignored: write a list or a string")
            return []
        scalars = [item for item in node.value if isinstance(item, yaml.ScalarNode)]
        if len(scalars) < len(node.value):
            self._report(
                node, f"{key}: list items that are not plain text are ignored: put them in quotes"
            )
        values = (self._scalar(key, item) for item in scalars)
        return _values(map(_unmarked, map(without_entities, values)) if split else values, key)

    def _scalar(self, key: str, node: yaml.ScalarNode) -> str:
        if node.tag != PLAIN_TAG:
            self._report(
                node,
                f"{key}: a value with the tag {one_line(node.tag)!r} is ignored: remove the tag",
            )
            return ""
        if unfilled := _TEMPLATE.fullmatch(node.value):  # `<% tp.file.title %>` of Templater
            self._report(node, f"{key}: a template that was not filled in is ignored: fill it in")
        if found := suspicious(node.value):
            self._report(
                node, f"{key}: hidden characters are removed ({', '.join(found)}): {SUSPICION}"
            )
        return "" if unfilled or _is_null(node) else str(node.value)


def draft_field(attributes: Iterable[tuple[str, str]]) -> str | None:
    """Return the field and value that mark an entry as a draft; None if it is not a draft."""
    written = dict(reversed(list(attributes)))
    for key, values in _DRAFT_FIELDS:
        if (value := written.get(key)) is not None and value.casefold() in values:
            return f"{key}: {value}"
    return None


def _is_null(node: yaml.ScalarNode) -> bool:
    # One YAML loader represents the plain style as None, the other as "".
    return not node.style and node.value in _NULLS


def _values(written: Iterable[str], key: str) -> list[str]:
    """Return each value as one line: a link as its text, a tag without its `#`."""
    lines = (one_line(_WIKILINK.sub(r"\1", text), keep=ZERO_WIDTH_SPACE) for text in written)
    if key.casefold() in ("tag", "tags"):
        lines = (re.sub(r"^#(?=[^\W\d])", "", line) for line in lines)
    return [line for line in lines if line]


def _unmarked(value: str) -> str:
    """Return a value without comments and the marks of code, bold text and links."""

    def shown(found: re.Match[str]) -> str:
        return "" if found["comment"] else found[found.lastgroup or 0]

    return _MARKED.sub(shown, value) if len(value) <= MAX_MARKED else value


def _split(written: str, key: str) -> list[str]:
    """Return the parts of a string between commas and semicolons; `#a #b` are two tags."""
    parts = re.split("[,;]", written)
    if key.casefold() not in ("tag", "tags"):
        return parts
    are_tags = (all(word[0] == "#" for word in part.split()) for part in parts)
    return [
        tag
        for part, several in zip(parts, are_tags, strict=True)
        for tag in (part.split() if several else [part])
    ]


def listed(written: str) -> list[str] | None:
    """Return the items of a list written as a JSON or Python literal; None for other text.

    Examples are `'["a", "b"]'` and `"['a', 'b']"`.
    """
    if len(written) > MAX_LIST_CHARS or not re.match(r"\s*\[\s*[\"']", written):
        return None
    try:
        items = ast.literal_eval(written.strip())
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return None
    return [str(item) for item in items if isinstance(item, str | int | float)]


def _unquoted(parts: Iterable[str]) -> list[str]:
    """Return the parts of a comma-separated string without the quotes around them."""
    stripped = [part.strip() for part in parts]
    return [
        part[1:-1] if len(part) > 2 and part[0] == part[-1] and part[0] in "\"'" else part
        for part in stripped
    ]


def inline_tags(text: str) -> tuple[str, ...]:
    """Return the tags, such as `#house/heating`, in the text outside of code."""
    edges = [0, *(edge for span in code_ranges(text) for edge in span), len(text)]
    runs = (text[start:end] for start, end in zip(edges[::2], edges[1::2], strict=True))
    prose = (_INLINE_CODE.sub(" ", run) for run in runs)
    found = dict.fromkeys(tag for run in prose for tag in _INLINE_TAG.findall(run))
    return tuple(tag.rstrip("/-") for tag in found if len(tag) <= MAX_VALUE_CHARS)[:MAX_VALUES]
