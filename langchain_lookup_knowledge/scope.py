"""Scopes: which entries a caller may see.

Entries are selected by frontmatter fields whose values only the caller's configuration can set.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Protocol

from langchain_lookup_knowledge.errors import ScopeError
from langchain_lookup_knowledge.types import Problem

Scope = tuple[tuple[str, str], ...]
"""(field, value) pairs that an entry must have to be visible; empty if every entry is visible."""
PUBLIC = ("public", "true")
"""The attribute of entries that every caller may see: `public: true`."""
_TRUE = frozenset({"true", "yes", "on"})
"""What YAML 1.1 reads as true, in any case."""
MAX_EXAMPLES = 3
"""Maximum keys or entries that a problem names."""


def checked_scope(fields: Sequence[str], given: "Scope | Mapping[str, str]") -> Scope:
    """Return a scope that has a value for each of these fields.

    Raises:
        ScopeError: a field has no value.
    """
    scope = tuple(given.items()) if isinstance(given, Mapping) else tuple(given)
    values = dict(scope)
    for name in fields:
        if not isinstance(values.get(name), str) or not values[name]:
            raise ScopeError(
                f"the caller's scope is not known: give scope={{{name!r}: ...}}, "
                "because this knowledge base has scope fields"
            )
    return scope


class HasAttributes(Protocol):
    """The part of an entry that scopes need."""

    @property
    def attributes(self) -> tuple[tuple[str, str], ...]:
        """Keys of the frontmatter with each of their values."""


class HasOwnAttributes(HasAttributes, Protocol):
    """The part of an entry that problems with scopes need."""

    @property
    def entry_id(self) -> str:
        """The path of the entry."""


def is_visible(entry: HasAttributes, scope: Scope) -> bool:
    """Return whether an entry may be seen: it is public, or has the value of every field.

    If a field is a list, each of its items is a value.
    """
    return is_public(entry) or all(
        (field.casefold(), value) in entry.attributes for field, value in scope
    )


def is_public(entry: HasAttributes) -> bool:
    """Return whether every caller may see an entry."""
    return any(key == PUBLIC[0] and is_true(value) for key, value in entry.attributes)


def is_true(value: str) -> bool:
    """Return whether a value of `public` makes an entry public."""
    return value.casefold() in _TRUE


def common_attributes(entries: Iterable[HasAttributes]) -> tuple[tuple[str, str], ...]:
    """Return the attributes of a text that several entries share, such as an embedded part.

    In any scope, the text is then visible only if every one of these entries is visible.
    """
    first, *others = [entry.attributes for entry in entries if not is_public(entry)] or [(PUBLIC,)]
    shared = set(first).intersection(*others)
    return tuple(pair for pair in first if pair in shared)


def scope_problems(
    entries: Sequence[HasOwnAttributes], noted: Iterable[str], required: Sequence[str]
) -> Iterator[Problem]:
    """Report scope fields that no entry has, and entries that callers limited by one do not see.

    Args:
        entries: all entries.
        noted: the scope fields of the knowledge base and of all its graphs.
        required: those of the knowledge base, which limit every caller.
    """
    fields = {field.casefold(): field for field in (*required, *sorted(noted))}
    if not fields or not entries:
        return
    keys = [{key for key, _ in entry.attributes} for entry in entries]
    known = set[str]().union(*keys)
    for key, field in fields.items():
        if key not in known:
            near = get_close_matches(key, sorted(known), MAX_EXAMPLES)
            fix = f"did you mean {_listed(near)}?" if near else "add it to the frontmatter"
            seen = "so callers limited by it see only public entries"
            yield Problem(".", None, f"no entry has the scope field {field!r}, {seen}: {fix}")
    held = [key for key in fields if key in known]
    needed = [key for key in map(str.casefold, required) if key in known]
    hidden = [
        entry.entry_id
        for entry, own in zip(entries, keys, strict=True)
        if held
        and not is_public(entry)
        and (not own.issuperset(needed) if needed else own.isdisjoint(held))
    ]
    if hidden:
        count = f"{len(hidden)} {'entry' if len(hidden) == 1 else 'entries'}"
        more = ", ..." if len(hidden) > MAX_EXAMPLES else ""
        yield Problem(
            ".",
            None,
            f"callers limited by {_listed(needed or held)} do not see {count} without it "
            f"({', '.join(hidden[:MAX_EXAMPLES])}{more}): add it to the frontmatter, "
            "or `public: true` if every caller may see them",
        )


def _listed(names: Iterable[str]) -> str:
    return " or ".join(map(repr, names))
