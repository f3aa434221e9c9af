"""What the records tell: lookups counted, listed and searched by the database, in SQLite or PostgreSQL; never all at once."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any, TypedDict

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import JSONB

from langchain_lookup_knowledge.errors import RecordError
from langchain_lookup_knowledge.invocations import is_hashed, utc
from langchain_lookup_knowledge.records import (
    DETAIL_FACTS,
    SQLInvocationRecorder,
    as_invocation,
    facts_index,
    tool_invocation,
)
from langchain_lookup_knowledge.types import L1_FAILED, Invocation

PAGE_ROWS = 50
SHOWN_CHARS = 300
"""Characters of a query that a list reads."""
DETAILED_ROWS = 10_000
"""Newest lookups whose matches and terms are counted one by one: their JSON has to be read row by row."""
MAX_WEAK_QUERIES = 500
BATCH = 500
"""Invocations read at a time."""
ANSWERED = ("ok", "no_match")

_COLUMNS = tool_invocation.c
_UNITS = {"hour": (13, 3), "day": (10, 92), "month": (7, 10_000_000)}
"""Units of the time line: characters of `YYYY-MM-DD HH` that tell one, and the most days that are shown in it."""


@dataclass(frozen=True, slots=True)
class Selection:
    """Which lookups are meant: whole days in UTC, the last included, and values of columns; None or "" means any.

    `text` stands somewhere in the query; ASCII letters match in any case.
    """

    since: date | None = None
    until: date | None = None
    layer: str = ""
    status: str = ""
    thread: str = ""
    text: str = ""

    def conditions(self, columns: Mapping[str, sa.ColumnElement[Any]]) -> list[sa.ColumnElement[bool]]:
        """Return it as SQL conditions on the columns of `tool_invocation`."""
        found: list[sa.ColumnElement[bool]] = [columns["created_at"].is_not(None)]
        if self.since:
            found.append(columns["created_at"] >= _midnight(self.since))
        if self.until and self.until < date.max:
            found.append(columns["created_at"] < _midnight(self.until + timedelta(days=1)))
        named = {"retrieval_layer": self.layer, "status": self.status, "thread_id": self.thread}
        found += [columns[name] == value for name, value in named.items() if value]
        if self.text:
            found.append(columns["query"].icontains(self.text, autoescape=True))
        return found


class Overview(TypedDict):
    """Counts of lookups.

    `time`: for each unit of time, counts by layer and by status. `latency`: milliseconds, empty without lookups. `filter`:
    `fired`, of these `relaxed` and `helped`: kept, and the answer of medium or high relevance.
    """

    unit: str
    time: dict[str, dict[str, int]]
    layers: dict[str, int]
    statuses: dict[str, int]
    l1: dict[str, int]
    levels: dict[str, int]
    filter: dict[str, int]
    latency: dict[str, float]


class History:
    """The invocations of a record database; those without a time are left out of lists and counts.

    Args:
        recorder: the database; an index that it lacks is added if it may be written.
        scope: with it, only invocations of exactly this scope are there.

    Raises:
        RecordError: the database cannot be read; so does every method.
    """

    def __init__(self, recorder: SQLInvocationRecorder, scope: Mapping[str, str] | None = None) -> None:
        self.recorder = recorder
        self.scope = scope or {}
        self._dialect = recorder.read(lambda connection: connection.dialect.name)
        indexed = False
        if self._dialect == "sqlite":
            index = sa.schema.CreateIndex(facts_index, if_not_exists=True)
            with suppress(RecordError):  # a database that cannot be written is only slower without it
                recorder.read(lambda connection: connection.execute(index))
            present = sa.text("SELECT 1 FROM sqlite_master WHERE name = :name").bindparams(name=facts_index.name)
            indexed = bool(self._rows(present))
        self._plain, self._detailed, self._columns = _sources(self._dialect, indexed=indexed)

    def _rows(self, statement: sa.Executable) -> Sequence[Any]:
        return self.recorder.read(lambda connection: connection.execute(statement).all())

    def _dicts(self, statement: sa.Executable) -> list[dict[str, Any]]:
        return [dict(row._mapping) for row in self._rows(statement)]

    def overview(self, selection: Selection) -> Overview:
        """Return the counts of the selected lookups."""
        created = self._facts(selection, "created_at").c.created_at
        ((first, last),) = self._rows(sa.select(sa.func.min(created), sa.func.max(created)))
        unit, characters = _unit(first, last)
        rows = self._rows(self._counts(selection, characters))
        durations = self._facts(selection, "duration_ms").c.duration_ms
        known = durations.is_not(None)  # an older table had none
        place = sa.func.row_number().over(order_by=durations).label("place")
        ranked = sa.select(durations, place).where(known).subquery().c
        ((total,),) = self._rows(sa.select(sa.func.count(durations)))
        wanted = {"median": (total + 1) // 2, "p95": math.ceil(0.95 * total)}
        found = self._rows(sa.select(ranked.place, ranked.duration_ms).where(ranked.place.in_(wanted.values())))
        latency = {row.place: row.duration_ms for row in found}
        moments = _moments(first, last, unit) if first and last else []
        return _counted(unit, moments, rows, {name: latency[at] for name, at in wanted.items() if at in latency})

    def _counts(self, selection: Selection, characters: int) -> sa.Select[Any]:
        names = ("status", "retrieval_layer", "l1_status", "level", "relaxed")
        facts = self._facts(selection, "moment", "category", *names).c
        keys = [
            sa.func.substr(facts.moment, 1, characters).label("time"),
            facts.category.is_not(None).label("fired"),
            *(facts[name] for name in names),
        ]
        counted = sa.select(*keys, sa.func.count().label("times"))
        return counted.group_by(*(key.name for key in keys)).order_by("time")

    def lookups(self, selection: Selection, *, before: str = "", limit: int = PAGE_ROWS) -> list[dict[str, Any]]:
        """Return the newest selected lookups without their details, newest first; a query is cut to `SHOWN_CHARS`.

        `before` is the id of a lookup: only what comes after it in that order is returned.
        """
        names = ("id", "created_at", "short_query", "status", "retrieval_layer", "l1_status", "duration_ms", "level")
        facts = self._facts(selection, *names, "thread_id", "primary_entry_id", materialized=False).c
        chosen = sa.select(*facts).order_by(facts.created_at.desc(), facts.id.desc()).limit(limit)
        for (last,) in self._rows(sa.select(_COLUMNS.created_at).where(_COLUMNS.id == before)) if before else ():
            chosen = chosen.where(sa.tuple_(facts.created_at, facts.id) < sa.tuple_(last, before))
        return self._dicts(chosen)

    def invocation(self, invocation_id: str) -> Invocation | None:
        """Return one invocation, or None if there is none with this id in scope."""
        found = self.invocations([invocation_id])
        return found[0] if found else None

    def newest_answers(self, limit: int) -> tuple[list[Invocation], int]:
        """Return the newest lookup of each of the newest `limit` distinct queries in a scope, and how many were left out.

        A query is left out of which no lookup `can_be_compared`.
        """
        names = ("id", "query", "created_at", "status", "l1_status", "level", "scope")
        facts = self._facts(Selection(), *names, materialized=False).c
        answered = facts.status.in_(ANSWERED) & facts.l1_status.not_in(L1_FAILED) & facts.level.is_not(None)
        fit = answered & facts.query.not_like("sha256:" + 64 * "_")
        order = (facts.created_at.desc(), facts.id.desc())
        number = sa.func.row_number().over(partition_by=(facts.query, facts.scope), order_by=order).label("number")
        ranked = sa.select(facts.id, facts.created_at, number).where(fit).subquery().c
        newest = sa.select(ranked.id).where(ranked.number == 1)
        rows = self._rows(newest.order_by(ranked.created_at.desc(), ranked.id.desc()).limit(limit))
        pairs = sa.select(facts.query, facts.scope).where(facts.query.is_not(None)).distinct()
        asked, usable = (
            self._rows(sa.select(sa.func.count()).select_from(chosen.subquery()))[0][0]
            for chosen in (pairs, pairs.where(fit))
        )
        return self.invocations([row.id for row in rows]), asked - usable

    def invocations(self, ids: Sequence[str]) -> list[Invocation]:
        """Return the invocations with these ids that are in scope, in this order."""
        parts = (ids[start : start + BATCH] for start in range(0, len(ids), BATCH))
        return [invocation for part in parts for invocation in self._invocations(part)]

    def _invocations(self, ids: Sequence[str]) -> list[Invocation]:
        _, source, columns = _sources(self._dialect, indexed=False)
        chosen = sa.select(*(columns[column.name] for column in _COLUMNS)).select_from(source)
        chosen = chosen.where(columns["id"].in_(ids))
        if self.scope:
            chosen = chosen.where(_is_scope(columns["scope"], self.scope, self._dialect))
        found = {row["id"]: as_invocation(row) for row in self._dicts(chosen)}
        return [found[invocation_id] for invocation_id in ids if invocation_id in found]

    def weak_queries(self, selection: Selection) -> list[tuple[str, int]]:
        """Return the queries without a good match and how often each was asked, most often first.

        Nothing matched, or the relevance was low or none. At most `MAX_WEAK_QUERIES`; each is cut to `SHOWN_CHARS`.
        """
        facts = self._facts(selection, "short_query", "status", "level", materialized=False).c
        weak = facts.status.in_(("ok", "degraded", "no_match")) & facts.level.in_(("low", "none"))
        times = sa.func.count().label("times")
        asked = sa.select(facts.short_query, times).where(weak).group_by(facts.short_query)
        return [
            tuple(row) for row in self._rows(asked.order_by(times.desc(), facts.short_query).limit(MAX_WEAK_QUERIES))
        ]

    def filters(self, selection: Selection) -> list[dict[str, Any]]:
        """Return for each category that was a filter how often it `fired` and was `relaxed`, most relaxed first."""
        facts = self._facts(selection, "category", "relaxed").c
        fired, relaxed = sa.func.count().label("fired"), sa.func.sum(_one_if(facts.relaxed)).label("relaxed")
        used = sa.select(facts.category, fired, relaxed).where(facts.category.is_not(None)).group_by(facts.category)
        return self._dicts(used.order_by(relaxed.desc(), fired.desc(), facts.category).limit(100))

    def found_entries(self, selection: Selection) -> set[str]:
        """Return the entries that were among the matches, in the newest `DETAILED_ROWS` selected lookups."""
        entry_id = self._items(selection, "matches", "entry_id")["entry_id"]
        return {row[0] for row in self._rows(sa.select(entry_id).distinct())}

    def common_terms(self, selection: Selection) -> list[dict[str, Any]]:
        """Return terms that matched but stand in too many entries to say anything, the most frequent first.

        `text`, `field`, `times` it did so in the newest `DETAILED_ROWS` selected lookups, `files` that hold it.
        """
        term = self._items(selection, "l0_hints.terms", "text", "field", "files", "reason")
        times = sa.func.count().label("times")
        files = sa.func.max(sa.cast(term["files"], sa.Integer)).label("files")
        common = sa.select(term["text"], term["field"], times, files).where(term["reason"].startswith("common"))
        return self._dicts(common.group_by(term["text"], term["field"]).order_by(times.desc(), term["text"]).limit(50))

    def _facts(self, selection: Selection, *names: str, materialized: bool = True) -> sa.FromClause:
        """Return these columns of the selected lookups in scope.

        Materialized, each row is looked at once, on SQLite in the index alone if that holds the columns.
        """
        columns, wanted = self._columns, dict.fromkeys((*names, "scope") if self.scope else names)
        source = self._detailed if DETAIL_FACTS.keys() & wanted else self._plain
        rows = sa.select(*(columns[name].label(name) for name in wanted)).select_from(source)
        rows = rows.where(*selection.conditions(columns))
        facts = rows.cte("facts").prefix_with("MATERIALIZED") if materialized else rows.subquery("facts")
        if not self.scope:
            return facts
        visible = sa.select(facts).where(_is_scope(facts.c.scope, self.scope, self._dialect))
        return visible.cte("visible").prefix_with("MATERIALIZED") if materialized else visible.subquery("visible")

    def _items(self, selection: Selection, path: str, *names: str) -> sa.ColumnCollection[str, Any]:
        """Return these keys, as columns, of the items of a list in the details of the newest selected lookups."""
        facts = self._facts(selection, "created_at", "retrieval_details", materialized=False)
        newest = sa.select(facts.c.retrieval_details).order_by(facts.c.created_at.desc()).limit(DETAILED_ROWS)
        recent = newest.subquery("recent")
        details = recent.c.retrieval_details
        if self._dialect == "postgresql":
            items = sa.func.jsonb_array_elements(details[tuple(path.split("."))]).table_valued(
                sa.column("value", JSONB)
            )
            columns = [items.c.value[name].astext.label(name) for name in names]
        else:
            items = sa.func.json_each(details, f"$.{path}").table_valued("value")
            columns = [sa.func.json_extract(items.c.value, f"$.{name}").label(name) for name in names]
        return sa.select(*columns).select_from(recent.join(items, sa.true())).subquery("items").c


def can_be_compared(invocation: Invocation) -> bool:
    """Say whether the lookup can be held against another: L1 did not fail, it was answered, and its query was kept."""
    level = ((invocation["retrieval_details"] or {}).get("relevance") or {}).get("level")
    answered = invocation["status"] in ANSWERED and invocation["l1_status"] not in (None, *L1_FAILED)
    return answered and level is not None and not is_hashed(invocation["query"] or "")


def _midnight(day: date) -> datetime:
    return datetime(day.year, day.month, day.day, tzinfo=UTC)


def _sources(dialect: str, *, indexed: bool) -> tuple[Any, Any, dict[str, sa.ColumnElement[Any]]]:
    """Return where the columns stand, where they stand with what is counted of the details, and all of these by name."""
    if dialect == "postgresql":
        columns: dict[str, sa.ColumnElement[Any]] = {column.name: column for column in _COLUMNS}
        details = sa.func.jsonb_to_record(_COLUMNS.retrieval_details).table_valued(
            *(sa.column(part, JSONB) for part in ("filter", "relevance", "scope")), name="details"
        )
        details = details.render_derived(with_types=True)
        columns["category"] = details.c.filter["category"].astext
        columns["relaxed"] = details.c.filter["relaxed"].astext == "true"
        columns["level"] = details.c.relevance["level"].astext
        columns["scope"] = details.c.scope
        columns["moment"] = sa.func.to_char(sa.func.timezone("UTC", _COLUMNS.created_at), "YYYY-MM-DD HH24:MI")
        plain: Any = tool_invocation
        detailed: Any = tool_invocation.join(details, sa.true())
    else:
        columns = {column.name: sa.column(column.name, column.type) for column in _COLUMNS}
        for name, path in DETAIL_FACTS.items():  # written as in the index, or SQLite would not see that it holds them
            columns[name] = sa.literal_column(f"json_extract(retrieval_details, '{path}')")
        columns["relaxed"] = sa.type_coerce(columns["relaxed"], sa.Boolean)
        columns["moment"] = sa.type_coerce(columns["created_at"], sa.Text)
        plain = detailed = sa.text(f"tool_invocation INDEXED BY {facts_index.name}" if indexed else "tool_invocation")
    columns["short_query"] = sa.func.substr(columns["query"], 1, SHOWN_CHARS)
    return plain, detailed, columns


def _is_scope(written: sa.ColumnElement[Any], scope: Mapping[str, str], dialect: str) -> sa.ColumnElement[bool]:
    """Return the condition that a JSON object is exactly this scope, whatever the order of its keys."""
    if dialect == "postgresql":
        return written == sa.cast(dict(scope), JSONB)
    pairs = sa.func.json_each(sa.case((sa.func.json_valid(written) == 1, written))).table_valued("key", "value")
    equal = sa.or_(*((pairs.c.key == name) & (pairs.c.value == value) for name, value in scope.items()))
    counts = sa.select(sa.func.count(), sa.func.sum(_one_if(equal))).select_from(pairs)
    return sa.tuple_(*([len(scope)] * 2)) == counts.scalar_subquery()


def _one_if(condition: sa.ColumnElement[bool]) -> sa.ColumnElement[int]:
    return sa.case((condition, 1), else_=0)


def _unit(first: datetime | None, last: datetime | None) -> tuple[str, int]:
    """Return the unit of the time line between two moments, and how many characters tell one."""
    days = (last - first).days if first and last else 0
    return next((unit, characters) for unit, (characters, most) in _UNITS.items() if days < most)


def _moments(first: datetime, last: datetime, unit: str) -> list[str]:
    """Return each unit of time from the first moment to the last, also those in which nothing was asked."""
    start, end = utc(first), utc(last)
    step = timedelta(hours=1) if unit == "hour" else timedelta(days=1)
    passed = [start + number * step for number in range((end - start) // step + 1)]
    return list(dict.fromkeys(f"{moment:%Y-%m-%d %H}"[: _UNITS[unit][0]] for moment in (*passed, end)))


def _counted(unit: str, moments: Sequence[str], rows: Sequence[Any], latency: dict[str, float]) -> Overview:
    time: dict[str, Counter[str]] = {moment: Counter() for moment in moments}
    counts: dict[str, Counter[str]] = {name: Counter() for name in ("layers", "statuses", "l1", "levels", "filter")}
    for row in rows:
        told = {"layers": row.retrieval_layer, "statuses": row.status, "l1": row.l1_status, "levels": row.level}
        for name, value in told.items():
            counts[name][value or "unknown"] += row.times
        here = time.setdefault(row.time, Counter())  # one that came since the period was looked at
        here.update({row.retrieval_layer or "unknown": row.times})
        here.update({row.status or "unknown": row.times})
        if row.fired:
            outcome = "relaxed" if row.relaxed else "helped" if row.level in ("medium", "high") else "kept"
            counts["filter"].update({"fired": row.times, outcome: row.times})
    return {"unit": unit, "time": time, "latency": latency, **counts}  # type: ignore[typeddict-item]
