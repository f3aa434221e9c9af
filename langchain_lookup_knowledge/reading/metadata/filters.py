"""A caller's filters: which entries a lookup is limited to, by category, folder or frontmatter.

Unlike scopes, they are not a security boundary, but they are applied just as strictly.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import date, datetime
from typing import Any, NamedTuple

from langchain_lookup_knowledge.reading.entry import Entry, category_key
from langchain_lookup_knowledge.reading.metadata.standing import state_named
from langchain_lookup_knowledge.text.visible.cleaning import one_line
from langchain_lookup_knowledge.text.wording import shorten

MAX_VALUES = 100
"""Maximum values of one filter."""
MAX_VALUE_CHARS = 200
"""Maximum characters of a value; attributes of entries have the same limit."""
ALWAYS = ("category", "folder")
"""Filters that need no frontmatter key."""
STATE = "state"
"""A filter that compares the states of entries, not only the frontmatter key."""
FOLDER = "\nfolder"
"""Attribute name for the folders of an entry; no frontmatter key contains a newline."""
ENDS = ("from", "to")
"""Keys of a date range; both days are included."""


class Condition(NamedTuple):
    """A field, and values of which an entry must have at least one.

    Values are category keys, folders with a trailing `/`, states, or frontmatter values as written.
    `attributes`: for a state, the frontmatter keys and values with which entries declare it.
    """

    field: str
    values: tuple[str, ...]
    attributes: tuple[tuple[str, str], ...] = ()


Conditions = tuple[Condition, ...]


def folders_of(entry_id: str) -> list[str]:
    """Return the folders that an entry is in: `a/`, `a/b/` for `a/b/c.md`."""
    return [entry_id[: i + 1] for i, character in enumerate(entry_id) if character == "/" and i]


def normalized(given: object, filterable: Sequence[str]) -> dict[str, Any] | None:
    """Return filters as plain JSON: lists of texts, and ranges of dates; None for no filters.

    Raises:
        ValueError: a filter cannot be used; the message names the fix.
    """
    if given is None or given == {}:
        return None
    if not isinstance(given, Mapping):
        raise ValueError('filters takes a mapping, such as {"category": ["billing"]}')
    return {str(name): _normalized(name, value, filterable) for name, value in given.items()}


def _normalized(name: object, value: object, filterable: Sequence[str]) -> Any:
    if name not in (*ALWAYS, *filterable):
        raise ValueError(
            f"filters cannot use {_shown(name)}: use category, folder, or a frontmatter key named "
            "in FrontmatterFields(filterable=...)"
        )
    if isinstance(value, Mapping):
        return _range(name, value)
    listed = value if isinstance(value, list | tuple | set | frozenset) else [value]
    texts = list(dict.fromkeys(_text(one) for one in listed))
    if name == "folder":
        texts = [f"{text.strip('/')}/" if text.strip("/") else "" for text in texts]
    if not texts or not all(texts) or len(texts) > MAX_VALUES:
        raise ValueError(
            f"the filter {_shown(name)} takes 1 to {MAX_VALUES} texts, numbers or dates, "
            f"not {_shown(value)}"
        )
    return texts


def _text(value: object) -> str:
    """Return a value as text; empty if it cannot be one."""
    if isinstance(value, bool):
        return str(value).lower()
    if not isinstance(value, str | int | float | date):
        return ""
    with suppress(ValueError):  # an integer with thousands of digits
        text = one_line(str(value))
        return text if len(text) <= MAX_VALUE_CHARS else ""
    return ""


def _range(name: object, value: Mapping[Any, Any]) -> dict[str, str]:
    days = {end: _day(_text(value[end])) for end in ENDS if value.get(end) is not None}
    if not days or None in days.values() or not set(value) <= set(ENDS) or name == "folder":
        raise ValueError(
            f'the filter {_shown(name)} takes days such as {{"from": "2026-01-01", '
            f'"to": "2026-12-31"}}, not {_shown(value)}'
        )
    return {end: day.isoformat() for end, day in days.items() if day}


def _day(text: str) -> date | None:
    """Return the day that a text begins with, in ISO 8601."""
    try:
        return datetime.strptime(text[:10], "%Y-%m-%d").date()
    except ValueError:
        return None


def _shown(value: object) -> str:
    """Return a short form of a value for a message."""
    try:
        written = value if isinstance(value, str) else repr(value)
    except ValueError:  # an integer with thousands of digits
        written = type(value).__name__
    return repr(shorten(one_line(written[:MAX_VALUE_CHARS]), 60))


def conditions_of(filters: Mapping[str, Any], values: Callable[[str], Iterable[str]]) -> Conditions:
    """Convert normalized filters to conditions; `values` returns the values that the entries have
    under a key.

    Case is ignored. A condition without values matches no entry.
    """
    return tuple(_condition(name, value, values) for name, value in filters.items())


def _condition(name: str, value: Any, values: Callable[[str], Iterable[str]]) -> Condition:
    if name == "category" and isinstance(value, list):
        return Condition(name, tuple(map(category_key, value)))
    if name == "folder":
        return Condition(name, tuple(value))
    key = name.casefold()
    if key == STATE and isinstance(value, list):
        return Condition(STATE, tuple(sorted({state_named(text) for text in value})))
    written = sorted(values(key))
    if isinstance(value, list):
        wanted = {text.casefold() for text in value}
        return Condition(key, tuple(text for text in written if text.casefold() in wanted))
    first, last = value.get("from", ""), value.get("to", "9999-12-31")
    days = ((text, _day(text)) for text in written)
    return Condition(key, tuple(t for t, day in days if day and first <= day.isoformat() <= last))


def values_of(entry: Entry, field: str) -> list[str]:
    """Return the values of an entry that a condition on this field is compared with."""
    if field == "category":
        return [category_key(category) for category in entry.categories]
    if field == "folder":
        return folders_of(entry.entry_id)
    if field == STATE:
        return [entry.standing.state, *map(state_named, entry.values(STATE))]
    return entry.values(field)
