"""The table of invocations, and the numbered migrations that bring an older table up to date.

A new database gets the table as it is defined here; an older one gets the migrations that it lacks.
To change the table, change its definition and append to `MIGRATIONS`; never edit a released
migration.
"""

import logging
import re
import uuid
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import SQLAlchemyError

from langchain_lookup_knowledge.errors import RecordError
from langchain_lookup_knowledge.records.rows import LOOKUP_PARTS, READ_STATUSES

logger = logging.getLogger("langchain_lookup_knowledge")

MIGRATE_COMMAND = "run `lookup-knowledge invocations --migrate`"
DETAIL_FACTS = {
    "category": "$.filter.category",
    "relaxed": "$.filter.relaxed",
    "level": "$.relevance.level",
    "scope": "$.scope",
}
"""The parts of `retrieval_details` that are counted, each with its JSON path."""
_OUTCOMES = uuid.UUID("5f0b3f0e-0a4c-4d7b-9a55-6f2a3c1de9b8")
"""UUID namespace for the additional outcomes of an invocation."""
_ADVISORY_LOCK = 7_284_113_905
"""Key of the PostgreSQL advisory lock that lets only one session migrate at a time."""

metadata = sa.MetaData()
tool_invocation = sa.Table(
    "tool_invocation",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("tool_name", sa.Text, nullable=False),
    sa.Column("query", sa.Text, nullable=False),
    sa.Column("status", sa.Text, nullable=False),
    sa.Column("retrieval_layer", sa.Text, nullable=False),
    sa.Column(
        "retrieval_details",
        sa.JSON().with_variant(postgresql.JSONB(), "postgresql"),
        nullable=False,
    ),
    sa.Column("l1_status", sa.Text, nullable=False),
    sa.Column("result_count", sa.Integer, nullable=False),
    sa.Column("primary_entry_id", sa.Text),
    sa.Column("duration_ms", sa.Float, nullable=False),
    sa.Column("thread_id", sa.Text),
    sa.Column("run_id", sa.Text),
    sa.Column("tool_call_id", sa.Text),
    sa.Column("created_at", sa.DateTime(timezone=True), nullable=False, index=True),
)
applied_migrations = sa.Table(
    "tool_invocation_migration",
    metadata,
    sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("applied_at", sa.Text, nullable=False),
)
tool_feedback = sa.Table(
    "tool_feedback",
    metadata,
    sa.Column("invocation_id", sa.Text, primary_key=True),
    sa.Column("is_right", sa.Boolean, nullable=False),
    sa.Column("note", sa.Text),
    sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
)
"""What a person said of an answer: one row per invocation, the latest."""
tool_gap = sa.Table(
    "tool_gap",
    metadata,
    sa.Column("query_hash", sa.Text, primary_key=True),
    sa.Column("done_at", sa.DateTime(timezone=True), nullable=False),
)
"""The queries without a good match that a person marked as done, by `feedback.gap_key`."""
_columns = tool_invocation.c


def sqlite_detail(path: str, function: str = "json_extract") -> str:
    """Return SQLite's SQL for a part of the details; null if the details are not valid JSON."""
    valid = "CASE WHEN json_valid(retrieval_details) THEN retrieval_details END"
    return f"{function}({valid}, '{path}')"


IS_READ = (
    "CASE WHEN retrieval_layer = 'none' AND l1_status = 'skipped' "
    f"AND status IN ({', '.join(map(repr, READ_STATUSES))}) "
    f"THEN {sqlite_detail('$.matches', 'json_type')} IS 'array'"
    + "".join(f" AND {sqlite_detail(f'$.{part}', 'json_type')} IS NULL" for part in LOOKUP_PARTS)
    + " END"
)
"""SQLite's expression that is 1 for a call of the read tool, as `rows.is_read` finds it."""
facts_index = sa.Index(
    "ix_tool_invocation_calls",
    *(
        _columns[name]
        for name in ("created_at", "status", "retrieval_layer", "l1_status", "duration_ms")
    ),
    *(sa.text(expression) for expression in (*map(sqlite_detail, DETAIL_FACTS.values()), IS_READ)),
    _columns["query"],
    _columns["id"],
).ddl_if(dialect="sqlite")
"""An index with all columns that an overview, a search of queries and the page of gaps need, so
that SQLite need not read the details.

PostgreSQL cannot use index-only scans for expressions, so it does not get this index.
"""
DATED = "(created_at GLOB '[0-9][0-9][0-9][0-9]-[01][0-9]-[0-3][0-9] *')"
UNDATED = f"{DATED} IS NOT 1"
"""SQLite's conditions that the time of a row can be read, and that it cannot."""
undated_index = sa.Index(
    "ix_tool_invocation_undated",
    _columns["id"],
    sqlite_where=sa.text(UNDATED),
).ddl_if(dialect="sqlite")
"""An index of the rows without a readable time, which are few; without it, to count them and to
leave them out takes most of the time of each page.
"""
_FORMER_INDEXES = tuple(f"ix_tool_invocation_{name}" for name in ("facts", "details", "listed"))
_inserts: dict[str, Any] = {
    name: dialect.insert(tool_invocation).on_conflict_do_nothing(index_elements=["id"])
    for name, dialect in (("sqlite", sqlite), ("postgresql", postgresql))
}
"""The statement that inserts rows, by dialect; it skips rows whose id already exists."""
_OUTCOME = ("status", "retrieval_layer", "l1_status", "result_count", "primary_entry_id")
"""Columns that distinguish two outcomes of one invocation."""


def insert(connection: sa.Connection, rows: Sequence[Mapping[str, Any]]) -> None:
    """Insert rows, except rows that are already stored with the same id and outcome.

    If an id is stored with another outcome, the row gets a new id, derived from both.
    """
    statement = _inserts[connection.dialect.name]
    if connection.execute(statement, rows).rowcount == len(rows):
        return
    ids = [row["id"] for row in rows]
    chosen = sa.select(_columns.id, *(_columns[name] for name in _OUTCOME))
    found = connection.execute(chosen.where(_columns.id.in_(ids))).all()
    stored = {row.id: tuple(row)[1:] for row in found}
    others = []
    for row in rows:
        outcome = tuple(row[name] for name in _OUTCOME)
        if stored.get(row["id"], outcome) != outcome:
            others.append({**row, "id": str(uuid.uuid5(_OUTCOMES, f"{row['id']} {outcome}"))})
    if others:
        connection.execute(statement, others)


# Migrations


class Migration(NamedTuple):
    """A change of an existing table.

    `run` returns the names of added columns and indexes. `automatic`: the migration is quick and
    changes no row, so the first lookup of a process applies it; others are applied by `migrate`.
    """

    number: int
    name: str
    run: Callable[[sa.Connection], list[str]]
    automatic: bool = True


_FIRST_COLUMNS = (
    "id tool_name query status retrieval_layer retrieval_details l1_status result_count "
    "primary_entry_id duration_ms thread_id run_id tool_call_id created_at"
).split()


def _add_first_columns(connection: sa.Connection) -> list[str]:
    """Add the columns of version 0.1 that a table lacks; they are null in existing rows."""
    missing = [name for name in _FIRST_COLUMNS if name in _differences(connection)[0]]
    if "id" in missing:
        raise RecordError(
            "the table tool_invocation has no column id, so this package did not create it: "
            "use another database"
        )
    for name in missing:
        kind = _columns[name].type.compile(connection.dialect)
        connection.exec_driver_sql(f"ALTER TABLE tool_invocation ADD COLUMN {name} {kind}")
    for index in tool_invocation.indexes:
        if [column.name for column in index.columns] == ["created_at"]:
            connection.execute(sa.schema.CreateIndex(index, if_not_exists=True))
    return missing


def _index_facts(connection: sa.Connection) -> list[str]:
    """Replace SQLite's earlier indexes of counted details: the first failed on invalid JSON, the
    second did not contain the queries, and the third not which rows are calls of the read tool.
    """
    if connection.dialect.name != "sqlite":
        return []
    for name in _FORMER_INDEXES:
        connection.exec_driver_sql(f"DROP INDEX IF EXISTS {name}")
    return _add_index(connection, facts_index)


def _index_undated(connection: sa.Connection) -> list[str]:
    """Create SQLite's index of rows without a readable time."""
    return _add_index(connection, undated_index) if connection.dialect.name == "sqlite" else []


def _add_index(connection: sa.Connection, index: sa.Index) -> list[str]:
    present = "SELECT 1 FROM sqlite_master WHERE name = ?"
    if connection.exec_driver_sql(present, (index.name,)).first():
        return []
    connection.execute(sa.schema.CreateIndex(index))
    return [str(index.name)]


def _add_feedback(connection: sa.Connection) -> list[str]:
    """Create the tables of feedback and of gaps that are done."""
    for added in (tool_feedback, tool_gap):
        added.create(connection, checkfirst=True)
    return [tool_feedback.name, tool_gap.name]


MIGRATIONS: tuple[Migration, ...] = (
    Migration(1, "columns of version 0.1", _add_first_columns, automatic=False),
    Migration(2, "index of valid details", _index_facts, automatic=False),
    Migration(3, "feedback", _add_feedback, automatic=False),
    Migration(4, "index of listed lookups", _index_facts, automatic=False),
    Migration(5, "index of undated lookups", _index_undated, automatic=False),
    Migration(6, "index of lookups and reads", _index_facts, automatic=False),
)


def prepare(engine: sa.Engine, wait: float | None) -> None:
    """Create the table if it is missing, apply automatic migrations, and check the columns.

    A database that cannot be changed is used as it is if it has all columns. `wait` is the maximum
    wait for a lock in seconds; None keeps the limit of the engine.

    Raises:
        RecordError: a newer version migrated the database, or its table has other columns.
        SQLAlchemyError: the database cannot be reached or is busy.
    """
    try:
        _apply(engine, [one for one in MIGRATIONS if one.automatic], wait)
    except SQLAlchemyError as error:
        if not _is_forbidden(error) or not sa.inspect(engine).has_table(tool_invocation.name):
            raise
        logger.debug("the record database may not be migrated", exc_info=True)
    with engine.connect() as connection:
        missing, foreign = _differences(connection)
    if missing:
        lacks = f"the table tool_invocation lacks the columns {', '.join(missing)}"
        raise RecordError(f"{lacks}: {MIGRATE_COMMAND}")
    if foreign:
        raise RecordError(
            f"the table tool_invocation has required columns of its own, {', '.join(foreign)}: "
            "give them a default"
        )


def check_schema(connection: sa.Connection) -> None:
    """Check that our SQLite tables are plain tables, so that no statement runs code from the file.

    Raises:
        RecordError: one of the tables is a view or a virtual table, or has a trigger, a generated
            column or an index on an expression that this package does not define.
    """
    if connection.dialect.name != "sqlite":
        return
    ours = set(metadata.tables)
    objects = connection.exec_driver_sql("SELECT type, name, tbl_name, sql FROM sqlite_master")
    for kind, name, table, sql in objects.all():
        if not ours & {str(name).casefold(), str(table).casefold()}:
            continue
        if odd := _oddity(connection, kind, str(name), str(sql or "")):
            raise RecordError(
                f"the record database is refused, because {odd}: move the file away, and a new one "
                "is created"
            )


def _oddity(connection: sa.Connection, kind: str, name: str, sql: str) -> str | None:
    """Return why this package cannot have created a part of an SQLite schema, or None."""
    known = {facts_index.name, undated_index.name, *_FORMER_INDEXES}
    words = set(re.findall(r"[a-z]+", re.sub(r'"[^"]*"|\'[^\']*\'', "", sql.casefold())))
    if kind not in ("table", "index"):
        return f"it has the {kind} {name!r} on its table"
    if kind == "table" and words & {"virtual", "generated", "check", "references"}:
        return f"its table {name!r} has constraints that this package does not create"
    if kind == "table" and any(
        column[6] for column in connection.exec_driver_sql(f'PRAGMA table_xinfo("{name}")')
    ):
        return f"its table {name!r} has computed columns"
    if kind == "index" and name not in known and ("where" in words or sql.count("(") > 1):
        return f"its index {name!r} computes something"
    return None


def migrate(engine: sa.Engine, wait: float | None) -> list[str]:
    """Create the table or apply all pending migrations; return the added columns and indexes.

    Raises:
        RecordError: a newer version migrated the database, or the table is not an invocation table.
        SQLAlchemyError: the database cannot be reached, is busy, or may not be changed.
    """
    return _apply(engine, MIGRATIONS, wait)


def _apply(engine: sa.Engine, wanted: Sequence[Migration], wait: float | None) -> list[str]:
    with engine.connect() as connection:
        check_schema(connection)
        present = sa.inspect(connection).has_table(tool_invocation.name)
        if present and not _pending(connection, wanted):
            return []
    with engine.begin() as connection:
        _lock(connection, wait)
        if not sa.inspect(connection).has_table(tool_invocation.name):
            metadata.create_all(connection)
            _remember(connection, MIGRATIONS)
            return []
        pending = _pending(connection, wanted)  # another process may just have applied them
        applied_migrations.create(connection, checkfirst=True)
        added = [name for migration in pending for name in migration.run(connection)]
        _remember(connection, pending)
    return added


def _lock(connection: sa.Connection, wait: float | None) -> None:
    """Let one process migrate at a time; the lock ends with the transaction."""
    if connection.dialect.name == "postgresql":
        if wait is not None:
            connection.exec_driver_sql(f"SET LOCAL statement_timeout = {wait * 1000:.0f}")
        connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_ADVISORY_LOCK})")
        return
    driver: Any = connection.connection.driver_connection
    if wait is not None:
        connection.exec_driver_sql(f"PRAGMA busy_timeout = {wait * 1000:.0f}")
    if not driver.in_transaction:  # a caller's engine may have begun a transaction
        connection.exec_driver_sql("BEGIN IMMEDIATE")


def _pending(connection: sa.Connection, wanted: Sequence[Migration]) -> list[Migration]:
    """Return the migrations that were not applied yet.

    Raises:
        RecordError: a newer version of this package has migrated the database.
    """
    if not sa.inspect(connection).has_table(applied_migrations.name):
        return list(wanted)
    applied = set(connection.execute(sa.select(applied_migrations.c.number)).scalars())
    if newer := applied - {migration.number for migration in MIGRATIONS}:
        raise RecordError(
            f"a newer version of this package made the record database (migration {max(newer)}): "
            "upgrade langchain-lookup-knowledge, or use another database"
        )
    if set(_FIRST_COLUMNS) & set(_differences(connection)[0]):
        applied.discard(1)  # columns are missing again: the table was replaced by an older one
    return [migration for migration in wanted if migration.number not in applied]


def _remember(connection: sa.Connection, migrations: Sequence[Migration]) -> None:
    """Mark migrations as applied, or as not needed by a table that was just created."""
    now = datetime.now(UTC).isoformat(timespec="seconds")
    known = set(connection.execute(sa.select(applied_migrations.c.number)).scalars())
    rows = [
        {"number": migration.number, "name": migration.name, "applied_at": now}
        for migration in migrations
        if migration.number not in known
    ]
    if rows:
        connection.execute(sa.insert(applied_migrations), rows)


def _is_forbidden(error: SQLAlchemyError) -> bool:
    """Return whether the database is read-only or this login may not alter it."""
    original = getattr(error, "orig", None)
    read_only = str(getattr(original, "sqlite_errorname", "")).startswith("SQLITE_READONLY")
    return read_only or getattr(original, "sqlstate", None) in ("42501", "25006")


def _differences(connection: sa.Connection) -> tuple[list[str], list[str]]:
    """Return the missing columns, and the required columns unknown to this package."""
    present = sa.inspect(connection).get_columns(tool_invocation.name)
    missing = set(_columns.keys()) - {column["name"] for column in present}
    foreign = [
        column["name"]
        for column in present
        if column["name"] not in _columns and not column["nullable"] and column["default"] is None
    ]
    return sorted(missing), foreign
