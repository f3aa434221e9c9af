"""Scopes: which entries a caller may see, by frontmatter fields whose values the caller's configuration alone can set."""

import unicodedata
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any

from langchain_lookup_knowledge.cleaning import one_line
from langchain_lookup_knowledge.documents import Entry
from langchain_lookup_knowledge.errors import ScopeError

Scope = tuple[tuple[str, str], ...]
"""Fields with the value that an entry must have in each of them; empty: every entry is visible."""
PUBLIC = ("public", "true")
"""What an entry for everybody has in its frontmatter: `public: true`."""


def read_scope(fields: Sequence[str], configurable: Mapping[str, Any], context: object) -> Scope:
    """Return the scope of a caller: of each field its value in `configurable`, else in the runtime context.

    Raises:
        ScopeError: a field has no value, or none that is a text or a whole number.
    """
    return tuple((field, _value(field, configurable, context)) for field in fields)


def _value(field: str, configurable: Mapping[str, Any], context: object) -> str:
    given = configurable.get(field)
    if given is None:
        given = context.get(field) if isinstance(context, Mapping) else getattr(context, field, None)
    given = given.value if isinstance(given, Enum) else given
    try:
        written = str(given).strip(" ") if isinstance(given, str | int) and not isinstance(given, bool) else ""
    except ValueError as error:  # a number of thousands of digits
        raise ScopeError(f"the caller's {field!r} is too long") from error
    value = one_line(written)
    if value != unicodedata.normalize("NFC", written):  # or two callers would be one
        raise ScopeError(f"the caller's {field!r} has characters or blanks that cannot be seen: leave them out")
    if not value:
        where = f'config={{"configurable": {{"{field}": ...}}}}'
        raise ScopeError(
            f"the caller's scope is not known: give {field!r} a text in {where}, or in the runtime context"
        )
    return value


def is_visible(entry: Entry, scope: Scope) -> bool:
    """Say whether an entry may be seen: it is public, or has the value of each field, among others where it is a list."""
    return is_public(entry) or all((field.casefold(), value) in entry.attributes for field, value in scope)


def is_public(entry: Entry) -> bool:
    """Say whether an entry is for everybody."""
    return any((key, value.casefold()) == PUBLIC for key, value in entry.attributes)
