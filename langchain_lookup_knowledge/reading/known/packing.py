"""Converting read files and entries to plain values, to keep them on disk, and back."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

from langchain_lookup_knowledge.reading.entry import (
    NO_CONNECTIONS,
    Connections,
    Embed,
    Entry,
    Link,
    Mark,
)
from langchain_lookup_knowledge.reading.known.files import FileKey, KnownFolder, Parsed, ReadFile
from langchain_lookup_knowledge.reading.metadata.standing import NO_STANDING, Standing
from langchain_lookup_knowledge.types import Problem

BLOCK = 500
"""Number of files in a block."""
_FIELDS = tuple(field.name for field in fields(Entry))
_OWN = tuple(name for name in _FIELDS if name not in ("embeds", "links", "backlinks"))
"""The fields of an entry before its links and embeds are resolved."""


def packed_files(files: Mapping[str, ReadFile]) -> Iterator[list[Any]]:
    """Yield files in blocks."""
    listed = list(files.items())
    for start in range(0, len(listed), BLOCK):
        yield [_packed_file(name, one) for name, one in listed[start : start + BLOCK]]


def _packed_file(name: str, one: ReadFile) -> list[Any]:
    parsed = one.parsed
    entry = None if parsed.entry is None else [_plain(parsed.entry, key) for key in _OWN]
    problems = _packed_problems(parsed.problems)
    return [name, list(one.key), one.is_settled, one.digest, entry, problems]


def _packed_problems(problems: Iterable[Problem]) -> list[Any]:
    return [[problem.path, problem.line, problem.message] for problem in problems]


def _plain(entry: Entry, name: str) -> Any:
    value = getattr(entry, name)
    if isinstance(value, Connections):
        links, marks = list(map(list, value.links)), list(map(list, value.marks))
        return None if value == NO_CONNECTIONS else [links, marks, value.text]
    return _values(value) if isinstance(value, Standing) else value


def _values(value: Standing | Embed) -> list[Any] | None:
    return None if value == NO_STANDING else [getattr(value, one.name) for one in fields(value)]


def unpacked_files(blocks: Iterable[Sequence[Any]]) -> dict[str, ReadFile]:
    """Return the files from the plain values that `packed_files` made."""
    return {packed[0]: _file(packed) for block in blocks for packed in block}


def _file(packed: Sequence[Any]) -> ReadFile:
    _, key, is_settled, digest, entry, problems = packed
    parsed = Parsed(
        None if entry is None else _entry(entry),
        tuple([Problem(*problem) for problem in problems]),
    )
    return ReadFile(FileKey(*key), is_settled, digest, parsed)


def _entry(values: Sequence[Any]) -> Entry:
    own = {name: _tuples(value) for name, value in zip(_OWN, values, strict=True)}
    own["standing"] = Standing(*own["standing"]) if own["standing"] else NO_STANDING
    own["written"] = _connections(*own["written"]) if own["written"] else NO_CONNECTIONS
    return Entry(**own)


def _connections(links: Iterable[Any], marks: Iterable[Any], text: str) -> Connections:
    return Connections(
        tuple([Link(*link) for link in links]), tuple([Mark(*mark) for mark in marks]), text
    )


def _tuples(value: Any) -> Any:
    if type(value) is not list:
        return value
    return tuple([_tuples(one) if type(one) is list else one for one in value])


def packed_joined(known: KnownFolder) -> list[Any]:
    """Return what links and embeds add to the entries, and their problems."""
    added = {}
    for entry in known.entries:
        if entry != known.files[entry.entry_id].parsed.entry:
            embeds = [_values(embed) for embed in entry.embeds]
            added[entry.entry_id] = [entry.text, embeds, entry.links, entry.backlinks]
    return [added, _packed_problems(known.problems)]


def unpacked_joined(files: Mapping[str, ReadFile], packed: Sequence[Any]) -> KnownFolder:
    """Return the folder of these files, with the links and embeds that `packed_joined` kept."""
    added, problems = packed
    entries = [
        _joined(one.parsed.entry, added.get(name))
        for name, one in files.items()
        if one.parsed.entry is not None
    ]
    return KnownFolder(files, entries, [Problem(*problem) for problem in problems])


def _joined(entry: Entry, added: Sequence[Any] | None) -> Entry:
    if added is None:
        return entry
    text, embeds, links, backlinks = added
    parts = tuple([Embed(*_tuples(embed)) for embed in embeds])
    return replace(entry, text=text, embeds=parts, links=tuple(links), backlinks=tuple(backlinks))
