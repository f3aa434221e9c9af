"""A knowledge base in a console and in a notebook."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from langchain_lookup_knowledge.first_sight.answer import SHOWN, Answer
from langchain_lookup_knowledge.first_sight.tables import html_table
from langchain_lookup_knowledge.health import Health
from langchain_lookup_knowledge.types import LookupResult, Problem

CATEGORIES, PROBLEMS = 10, 5
"""Maximum number of categories, and of problems, in the table of a knowledge base."""
INTERNAL = frozenset(
    {
        "add_problem",
        "index_problems",
        "l0",
        "l1",
        "note_scope_fields",
        "on_close",
        "open_read_only",
        "save_settings",
        "selection",
    }
)
"""Members of a knowledge base that other parts of this package use; completion omits them."""


class _Entry(Protocol):
    @property
    def categories(self) -> tuple[str, ...]: ...


class _Shown(Protocol):
    folder: Path

    @property
    def entries(self) -> Sequence[_Entry]: ...

    @property
    def problems(self) -> Sequence[Problem]: ...

    def health(self) -> Health: ...


class FirstSight:
    """Shows a knowledge base; no server or model is called for it."""

    def __repr__(self: _Shown) -> str:
        health = self.health()
        return (
            f"<KnowledgeBase {self.folder.name!r}: {health['entries']} entries, "
            f"index {health['index']}, L1 {health['l1']}>"
        )

    def _repr_html_(self: _Shown) -> str:
        health, problems = self.health(), self.problems
        counts = Counter(category for entry in self.entries for category in entry.categories)
        largest = [f"{name} ({count})" for name, count in counts.most_common(CATEGORIES)]
        rows = {
            "entries": str(health["entries"]),
            "categories": ", ".join([*largest, *_more(len(counts) - CATEGORIES)]),
            "index": _with_reason(health["index"], health["message"]),
            "L1": _with_reason(health["l1"], health["last_failure"]),
            "problems": "\n".join(
                [*map(str, problems[:PROBLEMS]), *_more(len(problems) - PROBLEMS)]
            )
            or "none",
        }
        return html_table(f"Knowledge base {self.folder.name}", ("", ""), rows.items())

    def show(self, result: LookupResult) -> Answer:
        """Return the result of a lookup as an object that a notebook shows: each match with its
        path, the reason for it, and its text, with the words of the query marked.

        Args:
            result: what the graph returns, or the artifact of the tool.

        Raises:
            ValueError: it is not such a result.
        """
        given = result if isinstance(result, Mapping) else {}
        if lacking := [name for name in SHOWN if name not in given]:
            is_part = len(lacking) < len(SHOWN)
            what = f"one without {', '.join(lacking)}" if is_part else type(result).__name__
            raise ValueError(
                f"show takes the result of a lookup, not {what}: give it what the graph returns, "
                "or the artifact of the tool's message"
            )
        return Answer(result)

    def __dir__(self) -> Iterable[str]:
        """List the members that users need."""
        return [name for name in super().__dir__() if name not in INTERNAL]


def _more(count: int) -> list[str]:
    return [f"... and {count} more"] if count > 0 else []


def _with_reason(state: str, reason: str | None) -> str:
    return f"{state}: {reason}" if reason else state
