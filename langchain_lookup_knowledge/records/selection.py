"""Selecting lookups in SQL: filters, scopes, the columns that are counted, and their counts."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any, TypedDict

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import JSONB

from langchain_lookup_knowledge.records.rows import LOOKUP_PARTS, READ_STATUSES, text_of
from langchain_lookup_knowledge.records.table import (
    DATED,
    DETAIL_FACTS,
    IS_READ,
    facts_index,
    sqlite_detail,
    tool_feedback,
    tool_invocation,
)
from langchain_lookup_knowledge.types import L1_FAILED

SHOWN_CHARS = 300
"""Maximum characters of a query in a list of lookups."""
_COLUMNS = tool_invocation.c
UNANSWERED = "unanswered"
"""A status to select by: any status except "ok" and "degraded"."""


@dataclass(frozen=True, slots=True)
class Selection:
    """A filter for lookups: whole days in UTC from `since` to `until`, and values of columns.

    None or "" means any value. The query must contain `text`; ASCII letters match in any case.
    `status` may be "unanswered": neither "ok" nor "degraded". `filtered`: "fired" (a category
    filter was chosen), "kept" or "relaxed". `slow`: the minimum duration in milliseconds. `judged`:
    "right" or "wrong", by feedback. `reads`: calls of the read tool instead of lookups.
    """

    since: date | None = None
    until: date | None = None
    layer: str = ""
    status: str = ""
    thread: str = ""
    text: str = ""
    level: str = ""
    l1: str = ""
    filtered: str = ""
    judged: str = ""
    slow: float | None = None
    reads: bool = False

    @property
    def needs(self) -> set[str]:
        """The parts of the details that the conditions compare."""
        needed = {"level"} if self.level else set()
        return needed | ({"category", "relaxed"} if self.filtered else set())

    def conditions(
        self, columns: Mapping[str, sa.ColumnElement[Any]], *, has_feedback: bool
    ) -> list[sa.ColumnElement[bool]]:
        """Return the filter as SQL conditions on the columns that `sources` returns.

        Without a table of feedback, no lookup is judged.
        """
        is_read = columns["read"]
        found: list[sa.ColumnElement[bool]] = [
            columns["dated"],
            is_read if self.reads else sa.not_(is_read),
        ]
        if self.since:
            found.append(columns["created_at"] >= _midnight(self.since))
        if self.until and self.until < date.max:
            found.append(columns["created_at"] < _midnight(self.until + timedelta(days=1)))
        named = {
            "retrieval_layer": self.layer,
            "thread_id": self.thread,
            "l1_status": self.l1,
            "level": self.level,
            "status": "" if self.status == UNANSWERED else self.status,
        }
        found += [columns[name] == value for name, value in named.items() if value]
        if self.status == UNANSWERED:
            found.append(columns["status"].not_in(("ok", "degraded")))
        if self.filtered:
            found.append(columns["category"].is_not(None))
        if self.filtered in ("kept", "relaxed"):
            relaxed = sa.func.coalesce(columns["relaxed"], sa.false())
            found.append(relaxed if self.filtered == "relaxed" else sa.not_(relaxed))
        if self.slow is not None:
            found.append(columns["duration_ms"] >= self.slow)
        if self.judged and not has_feedback:
            found.append(sa.false())
        elif self.judged:
            is_right = tool_feedback.c.is_right == (self.judged == "right")
            found.append(
                columns["id"].in_(sa.select(tool_feedback.c.invocation_id).where(is_right))
            )
        if self.text:
            found.append(columns["query"].icontains(self.text, autoescape=True))
        return found


def _midnight(day: date) -> datetime:
    return datetime(day.year, day.month, day.day, tzinfo=UTC)


def sources(dialect: str, *, indexed: bool) -> tuple[Any, Any, dict[str, sa.ColumnElement[Any]]]:
    """Return the table, the table joined with the counted parts of the details, and the columns.

    Queries on them do not fail, whatever values the rows contain.
    """
    if dialect == "postgresql":
        columns: dict[str, sa.ColumnElement[Any]] = {column.name: column for column in _COLUMNS}
        whole = json_of_kind(_COLUMNS.retrieval_details, "object")
        details = sa.func.jsonb_to_record(whole).table_valued(
            *(sa.column(part, JSONB) for part in ("filter", "relevance", "scope")), name="details"
        )
        details = details.render_derived(with_types=True)
        columns["category"] = details.c.filter["category"].astext
        columns["relaxed"] = details.c.filter["relaxed"].astext == "true"
        columns["level"] = details.c.relevance["level"].astext
        columns["scope"] = details.c.scope
        plain: Any = tool_invocation
        detailed: Any = tool_invocation.join(details, sa.true())
    else:
        columns = {column.name: sa.column(column.name, column.type) for column in _COLUMNS}
        for name, path in DETAIL_FACTS.items():  # the expressions of the index
            columns[name] = sa.literal_column(sqlite_detail(path))
        columns["relaxed"] = columns["relaxed"] == sa.literal_column("1")
        plain = detailed = sa.text(
            f"tool_invocation INDEXED BY {facts_index.name}" if indexed else "tool_invocation"
        )
    columns["moment"] = moment_text(columns["created_at"], dialect)
    columns["dated"] = is_dated(columns["created_at"], dialect)
    columns["short_query"] = sa.func.substr(columns["query"], 1, SHOWN_CHARS)
    columns["read"] = _is_read(dialect)
    return plain, detailed, columns


def _is_read(dialect: str) -> sa.ColumnElement[bool]:
    """Return the condition that a row is a call of the read tool, as `rows.is_read` finds it; it is
    never null.
    """
    if dialect == "sqlite":
        return sa.func.coalesce(
            sa.literal_column(IS_READ), sa.literal_column("0")
        ) == sa.literal_column("1")
    details = _COLUMNS.retrieval_details
    may_be = (
        (_COLUMNS.retrieval_layer == "none")
        & (_COLUMNS.l1_status == "skipped")
        & _COLUMNS.status.in_(READ_STATUSES)
    )
    has_matches = sa.func.jsonb_typeof(details["matches"]) == "array"
    looks_like = sa.and_(
        sa.func.coalesce(has_matches, sa.false()),
        *(sa.func.jsonb_typeof(details[part]).is_(None) for part in LOOKUP_PARTS),
    )
    return sa.case((may_be, looks_like), else_=sa.false())


def json_of_kind(value: sa.ColumnElement[Any], kind: str) -> sa.ColumnElement[Any]:
    """Return a JSON value if its PostgreSQL type is `kind`, else an empty value of that type."""
    empty: sa.ColumnElement[Any] = sa.literal_column(
        "'{}'::jsonb" if kind == "object" else "'[]'::jsonb"
    )
    return sa.case((sa.func.jsonb_typeof(value) == kind, value), else_=empty)


def is_scope(
    written: sa.ColumnElement[Any], scope: Mapping[str, str], dialect: str
) -> sa.ColumnElement[bool]:
    """Return the condition that a JSON object equals this scope, in any key order."""
    if dialect == "postgresql":
        return written == sa.cast(dict(scope), JSONB)
    pairs = sa.func.json_each(sa.case((sa.func.json_valid(written) == 1, written))).table_valued(
        "key", "value"
    )
    equal = sa.or_(
        *((pairs.c.key == name) & (pairs.c.value == value) for name, value in scope.items())
    )
    counts = sa.select(sa.func.count(), sa.func.sum(one_if(equal))).select_from(pairs)
    return sa.tuple_(*([len(scope)] * 2)) == counts.scalar_subquery()


def one_if(condition: sa.ColumnElement[bool]) -> sa.ColumnElement[int]:
    """Return 1 where a condition holds, else 0."""
    return sa.case((condition, 1), else_=0)


# Reading


def moment_text(moment: sa.ColumnElement[Any], dialect: str) -> sa.ColumnElement[str]:
    """Return a UTC time as text, `YYYY-MM-DD HH:MM:SS`; in SQLite, the text as it was written."""
    if dialect == "postgresql":
        return sa.func.to_char(sa.func.timezone("UTC", moment), "YYYY-MM-DD HH24:MI:SS.US")
    return sa.type_coerce(moment, sa.Text)


def is_dated(moment: sa.ColumnElement[Any], dialect: str) -> sa.ColumnElement[bool]:
    """Return the condition that a time is in the years 1 to 9999."""
    if dialect == "postgresql":
        first: sa.ColumnElement[Any] = sa.literal_column("timestamptz '0001-01-01 00:00:00+00'")
        end: sa.ColumnElement[Any] = sa.literal_column("timestamptz '10000-01-01 00:00:00+00'")
        return (moment >= first) & (moment < end)
    return sa.literal_column(DATED, sa.Boolean)


def raw_columns(dialect: str) -> list[sa.ColumnElement[Any]]:
    """Return the columns without conversion, so that malformed values make no query fail.

    `rows.as_invocation` turns such a row into an invocation.
    """
    raw: dict[str, sa.ColumnElement[Any]] = {
        "created_at": moment_text(_COLUMNS.created_at, dialect)
    }
    if dialect == "postgresql":
        raw["retrieval_details"] = sa.cast(_COLUMNS.retrieval_details, sa.Text)
    return [
        sa.type_coerce(raw.get(column.name, column), sa.types.NullType()).label(column.name)
        for column in _COLUMNS
    ]


# Counts over time

LATER = "later"
"""Label in the timeline for lookups that a wrong clock dated in the future."""
MAX_EMPTY_UNITS = 200
"""Maximum number of years in a timeline that also shows years without lookups."""

_UNITS = {"hour": (13, 3), "day": (10, 92), "month": (7, 3660), "year": (4, 10_000_000)}
"""Units of the timeline: prefix length of the timestamp, and the longest period in days."""


class Overview(TypedDict):
    """Counts of lookups.

    `time`: for each unit of time, counts by layer and by status. `latency`: median and 95th
    percentile in milliseconds, empty if there are no lookups. `claims`: for each unit of time,
    counts by relevance level. `filter`: how often a filter was used (`fired`), and then dropped
    (`relaxed`) or `kept`. `feedback`: how many answers people called `right` and `wrong`.
    `missed`: lookups that found nothing while L1 failed, by its status. `reads`: calls of the read
    tool. `undated`: rows without a readable time. No other count includes reads or undated rows.
    """

    unit: str
    time: dict[str, dict[str, int]]
    claims: dict[str, dict[str, int]]
    layers: dict[str, int]
    statuses: dict[str, int]
    l1: dict[str, int]
    levels: dict[str, int]
    filter: dict[str, int]
    latency: dict[str, float]
    feedback: dict[str, int]
    missed: dict[str, int]
    reads: int
    undated: int


def unit_of(first: datetime | None, last: datetime | None) -> tuple[str, int]:
    """Return the unit of a timeline, and the prefix length of a timestamp in this unit."""
    days = (last - first).days if first and last else 0
    return next((unit, characters) for unit, (characters, most) in _UNITS.items() if days < most)


def moments_of(first: datetime, last: datetime, unit: str) -> list[str]:
    """Return each unit of time from the first moment to the last, with or without lookups.

    For years, the list is empty if it would be longer than `MAX_EMPTY_UNITS`.
    """
    step = timedelta(hours=1) if unit == "hour" else timedelta(days=1)
    if unit == "hour":  # whole days, so that the first lookups are not a single bar
        first = first.replace(hour=0, minute=0, second=0, microsecond=0)
        last = last.replace(hour=23)
    if unit == "year":
        years = range(first.year, last.year + 1)
        return [f"{year:04}" for year in years] if len(years) <= MAX_EMPTY_UNITS else []
    passed = [first + number * step for number in range((last - first) // step + 1)]
    length = _UNITS[unit][0]
    return list(dict.fromkeys(f"{moment:%Y-%m-%d %H}"[:length] for moment in (*passed, last)))


def counted(unit: str, moments: Sequence[str], rows: Sequence[Any]) -> dict[str, Any]:
    """Return the counts of an overview, summed over `rows`; `row.times` counts equal lookups."""
    time: dict[str, Counter[str]] = {moment: Counter() for moment in moments}
    claims: dict[str, Counter[str]] = {moment: Counter() for moment in moments}
    counts: dict[str, Counter[str]] = {
        name: Counter() for name in ("layers", "statuses", "l1", "levels", "filter", "missed")
    }
    for row in rows:
        layer, status, l1, level = (
            text_of(value) or "unknown"
            for value in (row.retrieval_layer, row.status, row.l1_status, row.level)
        )
        for name, value in (("layers", layer), ("statuses", status), ("l1", l1), ("levels", level)):
            counts[name][value] += row.times
        here = time.setdefault(text_of(row.time) or "", Counter())
        here.update({layer: row.times})
        here.update({status: row.times})
        claims.setdefault(text_of(row.time) or "", Counter()).update({level: row.times})
        if status == "no_match" and l1 in L1_FAILED:
            counts["missed"].update({l1: row.times})
        if row.fired:
            outcome = "relaxed" if row.relaxed else "kept"
            counts["filter"].update({"fired": row.times, outcome: row.times})
    return {"unit": unit, "time": time, "claims": claims, **counts}
