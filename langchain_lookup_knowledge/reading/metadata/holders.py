"""Which entries have a value, found without looking at every entry: for scopes and filters."""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from langchain_lookup_knowledge.reading.entry import Entry
from langchain_lookup_knowledge.reading.metadata.filters import (
    STATE,
    Condition,
    Conditions,
    conditions_of,
    values_of,
)
from langchain_lookup_knowledge.reading.metadata.standing import STATE_KEYS
from langchain_lookup_knowledge.scope import PUBLIC, Scope, is_true, is_visible


class Holders:
    """The entries by their values; a field is indexed when it is first asked for.

    Args:
        entries: the entries by id.
    """

    def __init__(self, entries: Mapping[str, Entry]) -> None:
        self._entries = list(entries.values())
        self._places: _Places = {}
        self._declared: _Places = {}

    @property
    def fields(self) -> list[str]:
        """The fields that are indexed."""
        return list(self._places)

    def values(self, field: str) -> Mapping[str, Collection[int]]:
        """Return the values of a field, as in a `Condition`, with the places of their entries."""
        return self._indexed(self._places, field, values_of)

    def _indexed(
        self, places: "_Places", field: str, values: Callable[[Entry, str], Iterable[str]]
    ) -> Mapping[str, Collection[int]]:
        if field not in places:
            found: dict[str, dict[int, None]] = defaultdict(dict)
            for place, entry in enumerate(self._entries):
                for value in values(entry, field):
                    found[value][place] = None
            places[field] = dict(found)
        return places[field]

    def conditions(self, filters: Mapping[str, Any]) -> Conditions:
        """Return a caller's normalized filters as conditions on the entries."""
        found = conditions_of(filters, self.values)
        return tuple(self._as_declared(one) if one.field == STATE else one for one in found)

    def _as_declared(self, condition: Condition) -> Condition:
        """Add the attributes with which entries declare these states: an index holds no states."""
        found = self.meeting([condition])
        attributes = {pair for entry in found for pair in entry.attributes if pair[0] in STATE_KEYS}
        return condition._replace(attributes=tuple(sorted(attributes)))

    def meeting(self, conditions: Iterable[Condition]) -> list[Entry]:
        """Return the entries that meet all conditions, in their order."""
        held = [set(_at_any(self.values(one.field), one.values)) for one in conditions]
        return self._at(set.intersection(*held)) if held else list(self._entries)

    def seen_by(self, scope: Scope) -> list[Entry]:
        """Return the entries that may be seen in a scope, in their order.

        A scope compares frontmatter values as written, even for a field with which a filter
        compares other values, such as states.
        """
        places = set.intersection(
            *(set(_at_any(self._written(field.casefold()), [value])) for field, value in scope)
        )
        written = self._written(PUBLIC[0])
        public = _at_any(written, [value for value in written if is_true(value)])
        found = self._at(places.union(public))
        return [entry for entry in found if is_visible(entry, scope)]

    def _written(self, field: str) -> Mapping[str, Collection[int]]:
        return self._indexed(self._declared, field, Entry.values)

    def _at(self, places: Iterable[int]) -> list[Entry]:
        return [self._entries[place] for place in sorted(places)]


_Places = dict[str, Mapping[str, Collection[int]]]


def _at_any(places: Mapping[str, Collection[int]], values: Iterable[str]) -> Iterable[int]:
    return (place for value in values for place in places.get(value, ()))
