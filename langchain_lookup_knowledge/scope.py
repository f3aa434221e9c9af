"""Scopes: which entries a caller may see.

Entries are selected by frontmatter fields whose values only the caller's configuration can set.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from langchain_lookup_knowledge.errors import ScopeError

Scope = tuple[tuple[str, str], ...]
"""(field, value) pairs that an entry must have to be visible; empty if every entry is visible."""
PUBLIC = ("public", "true")
"""The attribute of entries that every caller may see: `public: true`."""


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


def is_visible(entry: HasAttributes, scope: Scope) -> bool:
    """Return whether an entry may be seen: it is public, or has the value of every field.

    If a field is a list, each of its items is a value.
    """
    return is_public(entry) or all(
        (field.casefold(), value) in entry.attributes for field, value in scope
    )


def is_public(entry: HasAttributes) -> bool:
    """Return whether every caller may see an entry."""
    return any((key, value.casefold()) == PUBLIC for key, value in entry.attributes)


def common_attributes(entries: Iterable[HasAttributes]) -> tuple[tuple[str, str], ...]:
    """Return the attributes of a text that several entries share, such as an embedded part.

    In any scope, the text is then visible only if every one of these entries is visible.
    """
    first, *others = [entry.attributes for entry in entries if not is_public(entry)] or [(PUBLIC,)]
    shared = set(first).intersection(*others)
    return tuple(pair for pair in first if pair in shared)
