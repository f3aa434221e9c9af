"""Count, list and search lookups inside the database, without loading all rows."""

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, cast

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import JSONB

from langchain_lookup_knowledge.errors import RecordError
from langchain_lookup_knowledge.records.recorder import SQLInvocationRecorder
from langchain_lookup_knowledge.records.rows import (
    ANSWERED,
    as_invocation,
    can_be_compared,
    moment_of,
    number_of,
    scope_of,
    text_of,
    whole_number_of,
)
from langchain_lookup_knowledge.records.selection import (
    LATER,
    Overview,
    Selection,
    counted,
    is_dated,
    is_scope,
    json_of_kind,
    moment_text,
    moments_of,
    one_if,
    raw_columns,
    sources,
    unit_of,
)
from langchain_lookup_knowledge.records.table import (
    DETAIL_FACTS,
    UNDATED,
    facts_index,
    tool_feedback,
    tool_invocation,
    undated_index,
)
from langchain_lookup_knowledge.types import L1_FAILED, Invocation

PAGE_ROWS = 50
DETAILED_ROWS = 1_000
"""Number of newest lookups whose matches and terms are counted; counting parses their JSON."""
BATCH = 500
"""Number of invocations read at a time."""
_COLUMNS = tool_invocation.c
_LARGEST_MS: sa.ColumnElement[Any] = sa.literal_column("1e300")
"""Valid durations are less than this; infinity, NaN and (in SQLite) text are not."""


class History:
    """The invocations of a record database; lists and counts omit those without a readable time.

    Args:
        recorder: the database; its table is brought up to date if it is writable.
        scope: if given, only invocations of exactly this scope are visible.

    Raises:
        RecordError: the database cannot be read; also raised by every method.
    """

    def __init__(
        self, recorder: SQLInvocationRecorder, scope: Mapping[str, str] | None = None
    ) -> None:
        self.recorder = recorder
        self.scope = scope or {}
        self._dialect = recorder.read(lambda connection: connection.dialect.name)
        with suppress(RecordError):  # a read-only database still works, but more slowly
            recorder.migrate()
        present = set()
        if self._dialect == "sqlite":
            present = {name for (name,) in self._rows(sa.text("SELECT name FROM sqlite_master"))}
        self._knows_undated = undated_index.name in present
        self._plain, self._detailed, self._columns = sources(
            self._dialect, indexed=facts_index.name in present
        )
        self._has_feedback = recorder.read(
            lambda connection: sa.inspect(connection).has_table(tool_feedback.name)
        )

    def _rows(self, statement: sa.Executable) -> Sequence[Any]:
        return self.recorder.read(lambda connection: connection.execute(statement).all())

    def _dicts(self, statement: sa.Executable) -> list[dict[str, Any]]:
        return [dict(row._mapping) for row in self._rows(statement)]

    def overview(self, selection: Selection) -> Overview:
        """Return the counts of the selected lookups."""
        first, last = self._ends(selection)
        now = datetime.now(UTC)
        if first and last:  # a lookup dated 9998 must not stretch the timeline
            last = max(first, min(last, now))
        unit, characters = unit_of(first, last)
        rows = self._rows(self._counts(selection, characters, max(now, last or now)))
        moments = moments_of(first, last, unit) if first and last else []
        return cast(
            Overview,
            {
                **counted(unit, moments, rows),
                "latency": self._latency(selection),
                "feedback": self._feedback(selection),
                "reads": self._reads(selection),
                "undated": self._undated(),
            },
        )

    def _ends(self, selection: Selection) -> tuple[datetime | None, datetime | None]:
        """Return the times of the first and the last selected lookup; None without lookups."""
        created = self._facts(selection, "created_at", materialized=False).c.created_at
        moments = sa.select(moment_text(created, self._dialect))
        ends = (self._rows(moments.order_by(by).limit(1)) for by in (created, created.desc()))
        first, last = (moment_of(found[0][0]) if found else None for found in ends)
        return first, last

    def _feedback(self, selection: Selection) -> dict[str, int]:
        """Count the right and the wrong answers among the selected lookups."""
        if not self._has_feedback:
            return {"right": 0, "wrong": 0}
        _, source, columns = sources(self._dialect, indexed=False)
        given = selection.conditions(columns, has_feedback=True)
        given.append(_COLUMNS.id == tool_feedback.c.invocation_id)
        if self.scope:
            given.append(is_scope(columns["scope"], self.scope, self._dialect))
        if self._dialect == "sqlite":
            source = tool_invocation
        is_right = tool_feedback.c.is_right
        chosen = sa.select(is_right, sa.func.count()).where(
            sa.exists(sa.select(sa.literal(1)).select_from(source).where(*given))
        )
        found = dict(tuple(row) for row in self._rows(chosen.group_by(is_right)))
        return {"right": found.get(True, 0), "wrong": found.get(False, 0)}

    def _reads(self, selection: Selection) -> int:
        """Count the calls of the read tool in the selected time."""
        facts = self._facts(replace(selection, reads=True), "id", materialized=False)
        return int(self._rows(sa.select(sa.func.count()).select_from(facts))[0][0])

    def _undated(self) -> int:
        columns = self._known_columns()
        if columns is not self._columns:
            return 0
        dated = sa.func.coalesce(columns["dated"], sa.false())
        chosen = sa.select(columns["scope"].label("scope")).select_from(self._detailed)
        rows = chosen.where(sa.not_(dated)).subquery("undated")
        counted = sa.select(sa.func.count()).select_from(rows)
        if self.scope:
            counted = counted.where(is_scope(rows.c.scope, self.scope, self._dialect))
        return int(self._rows(counted)[0][0])

    def _latency(self, selection: Selection) -> dict[str, float]:
        durations = self._facts(selection, "duration_ms", materialized=False).c.duration_ms
        known = sa.select(durations).where(durations < _LARGEST_MS)
        total = self._rows(sa.select(sa.func.count()).select_from(known.subquery()))[0][0]
        if not total:
            return {}
        median = known.order_by(durations).offset((total - 1) // 2)
        p95 = known.order_by(durations.desc()).offset(total - math.ceil(0.95 * total))
        wanted = {"median": median, "p95": p95}
        found = {name: self._rows(one.limit(1)) for name, one in wanted.items()}
        return {name: rows[0][0] for name, rows in found.items() if rows}

    def _counts(self, selection: Selection, characters: int, now: datetime) -> sa.Select[Any]:
        names = ("status", "retrieval_layer", "l1_status", "level", "relaxed")
        facts = self._facts(selection, "moment", "category", *names).c
        later = facts.moment > sa.literal(f"{now:%Y-%m-%d %H:%M:%S}.999999")
        keys = [
            sa.case((later, LATER), else_=sa.func.substr(facts.moment, 1, characters)).label(
                "time"
            ),
            facts.category.is_not(None).label("fired"),
            *(facts[name] for name in names),
        ]
        counted = sa.select(*keys, sa.func.count().label("times"))
        return counted.group_by(*(key.name for key in keys)).order_by("time")

    def lookups(
        self, selection: Selection, *, before: str = "", limit: int = PAGE_ROWS
    ) -> list[dict[str, Any]]:
        """Return the newest selected lookups without their details, newest first.

        Queries are cut to `SHOWN_CHARS`. `before` is the id of a lookup; only lookups listed
        after it are returned.
        """
        names = ("status", "retrieval_layer", "l1_status", "level", "thread_id", "primary_entry_id")
        wanted = ("id", "created_at", "moment", "short_query", "duration_ms", "scope", *names)
        facts = self._facts(selection, *wanted, materialized=False).c
        chosen = sa.select(*(facts[name] for name in wanted if name != "created_at"))
        chosen = chosen.order_by(facts.created_at.desc(), facts.id.desc()).limit(limit)
        for last in self._place(before) if before else ():
            at = sa.type_coerce(facts.created_at, sa.types.NullType())
            chosen = chosen.where(sa.tuple_(at, facts.id) < sa.tuple_(sa.literal(last), before))
        return [
            {
                **{name: text_of(row[name]) for name in ("id", "short_query", *names)},
                "created_at": moment_of(row["moment"]),
                "duration_ms": number_of(row["duration_ms"]),
                "scope": scope_of(row["scope"]),
            }
            for row in self._dicts(chosen)
        ]

    def asked(self, selection: Selection, *, limit: int) -> list[dict[str, Any]]:
        """Return what the newest selected lookups asked and how they went, newest first.

        Each has `id`, `short_query` (cut to `SHOWN_CHARS`), `moment` (its time as text), `status`,
        `l1_status`, `level` and `scope`. In SQLite, only an index is read.
        """
        names = ("id", "short_query", "moment", "status", "l1_status", "level", "scope")
        facts = self._facts(selection, "created_at", *names, materialized=False).c
        chosen = sa.select(*(facts[name] for name in names))
        chosen = chosen.order_by(facts.created_at.desc(), facts.id.desc()).limit(limit)
        return [
            {name: (scope_of if name == "scope" else text_of)(row[name]) for name in names}
            for row in self._dicts(chosen)
        ]

    def _place(self, invocation_id: str) -> list[Any]:
        """Return a list with the stored time of a lookup; empty if the time is unreadable."""
        raw: sa.ColumnElement[Any] = sa.type_coerce(_COLUMNS.created_at, sa.types.NullType())
        chosen = sa.select(raw).where(_COLUMNS.id == invocation_id)
        dated = is_dated(_COLUMNS.created_at, self._dialect)
        return [last for (last,) in self._rows(chosen.where(dated))]

    def invocation(self, invocation_id: str) -> Invocation | None:
        """Return the invocation with this id, or None if the scope contains no such invocation."""
        found = self.invocations([invocation_id])
        return found[0] if found else None

    def newest_answers(self, limit: int) -> tuple[list[Invocation], int]:
        """Return the newest comparable lookup per (query, scope), and how many pairs have none.

        At most `limit` lookups are returned. `can_be_compared` decides which are comparable. Calls
        of the read tool are left out and not counted.
        """
        names = ("id", "query", "created_at", "status", "l1_status", "level", "scope")
        facts = self._facts(Selection(), *names, materialized=False).c
        answered = (
            facts.status.in_(ANSWERED)
            & facts.l1_status.not_in(L1_FAILED)
            & facts.level.is_not(None)
        )
        fit = answered & facts.query.not_like("sha256:" + 64 * "_")
        order = (facts.created_at.desc(), facts.id.desc())
        number = (
            sa.func.row_number()
            .over(partition_by=(facts.query, facts.scope), order_by=order)
            .label("number")
        )
        ranked = sa.select(facts.id, facts.created_at, number).where(fit).subquery().c
        newest = sa.select(ranked.id).where(ranked.number == 1)
        rows = self._rows(newest.order_by(ranked.created_at.desc(), ranked.id.desc()).limit(limit))
        pairs = sa.select(facts.query, facts.scope).where(facts.query.is_not(None)).distinct()
        asked, usable = (
            self._rows(sa.select(sa.func.count()).select_from(chosen.subquery()))[0][0]
            for chosen in (pairs, pairs.where(fit))
        )
        found = self.invocations([row.id for row in rows])
        comparable = [invocation for invocation in found if can_be_compared(invocation)]
        return comparable, asked - usable + len(found) - len(comparable)

    def invocations(self, ids: Sequence[str]) -> list[Invocation]:
        """Return the invocations with these ids that are in scope, in the order of the ids."""
        parts = (ids[start : start + BATCH] for start in range(0, len(ids), BATCH))
        return [invocation for part in parts for invocation in self._invocations(part)]

    def _invocations(self, ids: Sequence[str]) -> list[Invocation]:
        _, source, columns = sources(self._dialect, indexed=False)
        chosen = sa.select(*raw_columns(self._dialect))
        if self._dialect == "postgresql":
            chosen = chosen.select_from(source)
        chosen = chosen.where(_COLUMNS.id.in_(ids))
        if self.scope:
            chosen = chosen.where(is_scope(columns["scope"], self.scope, self._dialect))
        found = {text_of(row["id"]): as_invocation(row) for row in self._dicts(chosen)}
        return [found[invocation_id] for invocation_id in ids if invocation_id in found]

    def filters(self, selection: Selection) -> list[dict[str, Any]]:
        """Count how often each category was used as a filter (`fired`) and dropped (`relaxed`).

        The most often relaxed category comes first.
        """
        facts = self._facts(selection, "category", "relaxed").c
        fired, relaxed = (
            sa.func.count().label("fired"),
            sa.func.sum(one_if(facts.relaxed)).label("relaxed"),
        )
        used = (
            sa.select(facts.category, fired, relaxed)
            .where(facts.category.is_not(None))
            .group_by(facts.category)
        )
        rows = self._dicts(used.order_by(relaxed.desc(), fired.desc(), facts.category).limit(100))
        return [
            {"category": text_of(row["category"]), "fired": row["fired"], "relaxed": row["relaxed"]}
            for row in rows
        ]

    def found_entries(self, selection: Selection) -> set[str]:
        """Return the ids of all entries matched by the newest `DETAILED_ROWS` selected lookups."""
        entry_id = self._items(selection, "matches", "entry_id")["entry_id"]
        rows = self._rows(sa.select(entry_id).distinct())
        return {row[0] for row in rows if isinstance(row[0], str)}

    def common_terms(self, selection: Selection) -> list[dict[str, Any]]:
        """Return matched terms that occur in too many entries, most frequently matched first.

        `times`: how often `text` matched in `field` in the newest `DETAILED_ROWS` selected lookups;
        `document_frequency`: how many entries contain the term.
        """
        # version 0.1 called `document_frequency` `files`
        names = ("text", "field", "document_frequency", "files", "reason")
        term = self._items(selection, "l0_hints.terms", *names)
        times = sa.func.count().label("times")
        frequency = sa.func.coalesce(term["document_frequency"], term["files"])
        common = sa.select(term["text"], term["field"], times, sa.func.max(frequency)).where(
            term["reason"].startswith("common"), term["text"].is_not(None)
        )
        rows = self._rows(
            common.group_by(term["text"], term["field"])
            .order_by(times.desc(), term["text"])
            .limit(50)
        )
        return [
            {
                "text": text_of(text),
                "field": text_of(field) or "",
                "times": count,
                "document_frequency": whole_number_of(held),
            }
            for text, field, count, held in rows
        ]

    def _known_columns(self) -> Mapping[str, sa.ColumnElement[Any]]:
        """Return the columns; if all rows have a readable time, none is checked again."""
        unreadable = sa.select(_COLUMNS.id).where(sa.literal_column(UNDATED)).limit(1)
        if not self._knows_undated or self._rows(unreadable):
            return self._columns
        return {**self._columns, "dated": sa.true()}

    def _facts(self, selection: Selection, *names: str, materialized: bool = True) -> sa.FromClause:
        """Return the named columns of the selected lookups in scope.

        With `materialized`, each row is read once, and SQLite reads only the index if possible.
        """
        columns = self._known_columns()
        wanted = dict.fromkeys((*names, "scope") if self.scope else names)
        needed = wanted.keys() | selection.needs
        source = self._detailed if DETAIL_FACTS.keys() & needed else self._plain
        rows = sa.select(*(columns[name].label(name) for name in wanted)).select_from(source)
        rows = rows.where(*selection.conditions(columns, has_feedback=self._has_feedback))
        facts = (
            rows.cte("facts").prefix_with("MATERIALIZED")
            if materialized
            else rows.subquery("facts")
        )
        if not self.scope:
            return facts
        visible = sa.select(facts).where(is_scope(facts.c.scope, self.scope, self._dialect))
        return (
            visible.cte("visible").prefix_with("MATERIALIZED")
            if materialized
            else visible.subquery("visible")
        )

    def _items(self, selection: Selection, path: str, *names: str) -> sa.ColumnCollection[str, Any]:
        """Return a column for each key in `names`, read from the items of the list at `path`.

        Only the newest `DETAILED_ROWS` selected lookups are read.
        """
        facts = self._facts(selection, "created_at", "retrieval_details", materialized=False)
        newest = (
            sa.select(facts.c.retrieval_details)
            .order_by(facts.c.created_at.desc())
            .limit(DETAILED_ROWS)
        )
        recent = newest.subquery("recent")
        details = recent.c.retrieval_details
        if self._dialect == "postgresql":
            listed = json_of_kind(details[tuple(path.split("."))], "array")
            items = sa.func.jsonb_array_elements(listed).table_valued(sa.column("value", JSONB))
            columns = [items.c.value[name].astext.label(name) for name in names]
        else:
            whole = sa.case((sa.func.json_valid(details) == 1, details))
            items = sa.func.json_each(whole, f"$.{path}").table_valued("value", "type")
            item = sa.case((items.c.type == "object", items.c.value))
            columns = [sa.func.json_extract(item, f"$.{name}").label(name) for name in names]
        return sa.select(*columns).select_from(recent.join(items, sa.true())).subquery("items").c
