"""Trying a query in today's folder: the settings of the form, and two answers compared."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, cast

from markupsafe import Markup

from langchain_lookup_knowledge.inspector.why import title_of
from langchain_lookup_knowledge.knowledge_base import KnowledgeBase
from langchain_lookup_knowledge.lookup.graph import create_lookup_knowledge_graph
from langchain_lookup_knowledge.replay import L1_SECONDS
from langchain_lookup_knowledge.text.wording import counted
from langchain_lookup_knowledge.types import FilterMode, Invocation, LookupOptions

OTHER = "_2"
"""The suffix of the field names of a form's second settings."""
_DEFAULT_K = 5


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of a lookup, as typed into a form; empty for the default."""

    k: str = ""
    filter_mode: str = ""
    l1: str = ""
    filters: str = ""

    @classmethod
    def of_form(cls, given: Mapping[str, str], ending: str = "") -> "Settings":
        """Return the settings whose fields have this ending."""
        return cls(*(given.get(name + ending, "").strip() for name in cls.__slots__))

    def fields(self, ending: str = "") -> dict[str, str]:
        """Return the fields of the form, each with this ending."""
        return {name + ending: value for name, value in asdict(self).items()}

    def options(self, scope: Mapping[str, str]) -> LookupOptions:
        """Return the options of a lookup in a scope.

        Raises:
            ValueError: a setting cannot be used.
        """
        return LookupOptions(
            k=int(self.k) if self.k.isdecimal() and len(self.k) < 4 else _DEFAULT_K,
            filter_mode=cast(FilterMode, self.filter_mode or "guarded"),
            l1_enabled=self.l1 != "off",
            l1_timeout=L1_SECONDS,
            scope_fields=tuple(scope),
        )

    def __str__(self) -> str:
        used = self.options({})
        said = [
            f"At most {counted(used.k, 'match', 'matches')}",
            f"filter mode {used.filter_mode}",
            f"vector search {'on' if used.l1_enabled else 'off'}",
        ]
        return ", ".join([*said, f"only {self.filters}"] if self.filters else said)


@dataclass(frozen=True, slots=True)
class _Kept:
    """A recorder that keeps invocations in a list."""

    invocations: list[Invocation]

    def record(self, invocation: Invocation) -> None:
        """Keep an invocation."""
        self.invocations.append(invocation)


def looked_up(
    kb: KnowledgeBase, query: str, settings: Settings, scope: Mapping[str, str]
) -> Invocation:
    """Look up a query with these settings; return what a recorder would get.

    Raises:
        ValueError: a setting cannot be used.
    """
    filters: dict[str, list[str]] = {}
    for name, value in pairs(settings.filters, "filters"):
        filters.setdefault(name, []).append(value)
    kept: list[Invocation] = []
    options = settings.options(scope)
    graph = create_lookup_knowledge_graph(kb, record=_Kept(kept), options=options, drop_weak=True)
    graph.invoke({"query": query, "filters": filters}, {"configurable": dict(scope)})
    (invocation,) = kept
    return invocation


def pairs(written: str, what: str) -> Iterator[tuple[str, str]]:
    """Yield the fields and values of `field=value, field=value`.

    Raises:
        ValueError: a part is no such pair.
    """
    for part in filter(str.strip, written.split(",")):
        name, equals, value = part.partition("=")
        if not equals or not name.strip() or not value.strip():
            raise ValueError(f"{what} takes FIELD=VALUE, such as category=billing")
        yield name.strip(), value.strip()


def compared(sides: list[dict[str, Any]]) -> list[tuple[Mapping[str, Any], list[int | None]]]:
    """Return each entry that is a match in either of two answers, with its rank in both.

    `sides` are the details of both lookups, as `readable_details` returns them.
    """
    ranks = [
        {match["entry_id"]: rank for rank, match in enumerate(side["matches"], 1)} for side in sides
    ]
    found = {match["entry_id"]: match for side in reversed(sides) for match in side["matches"]}
    order = list(dict.fromkeys(entry_id for side in ranks for entry_id in side))
    return [(found[entry_id], [side.get(entry_id) for side in ranks]) for entry_id in order]


def difference(entries: Sequence[tuple[Mapping[str, Any], Sequence[int | None]]]) -> Markup:
    """Return in one sentence how two answers differ, from what `compared` returns."""
    if not entries:
        return Markup("Nothing was found with either.")
    if all(first == other for _, (first, other) in entries):
        return Markup("The same entries were found, in the same order.")
    firsts = [next((e for e, ranks in entries if ranks[side] == 1), None) for side in (0, 1)]
    if firsts[0] is firsts[1] and firsts[0]:
        return Markup("{} is first with both; what follows differs.").format(title_of(firsts[0]))
    said = ["nothing" if first is None else title_of(first) for first in firsts]
    return Markup("First is {}; with the other settings, it is {}.").format(*said)
