"""Upkeep of recorded invocations: deleting old ones, and replacing queries with hashes."""

from collections.abc import Callable
from datetime import datetime
from functools import partial
from typing import Any, TypeVar, cast

import sqlalchemy as sa

from langchain_lookup_knowledge.errors import RecordError
from langchain_lookup_knowledge.records.database import RecordDatabase
from langchain_lookup_knowledge.records.invocations import hash_query, is_hashed, utc
from langchain_lookup_knowledge.records.rows import details_of, text_of
from langchain_lookup_knowledge.records.selection import raw_columns
from langchain_lookup_knowledge.records.table import tool_feedback, tool_invocation
from langchain_lookup_knowledge.types import Invocation

BATCH = 500
"""Rows that are redacted at a time."""

T = TypeVar("T")


def prune(database: RecordDatabase, before: datetime) -> int:
    """Delete the invocations made before a time, and return their number.

    Raises:
        RecordError: the database cannot be written.
    """
    older = sa.delete(tool_invocation).where(tool_invocation.c.created_at < utc(before))
    orphaned = tool_feedback.c.invocation_id.not_in(sa.select(tool_invocation.c.id))
    try:
        deleted = _erase(database, lambda connection: connection.execute(older).rowcount)
        _erase_feedback(database, sa.delete(tool_feedback).where(orphaned))
    finally:  # what was deleted before a failure is still in the log
        _empty_log(database)
    return deleted


def redact(database: RecordDatabase) -> int:
    """Apply `hash_query` to the invocations already stored, and return how many were changed.

    Details that cannot be read may contain a query, so they are replaced by empty details. The
    notes of feedback, which may quote a query, are deleted.

    Raises:
        RecordError: the database cannot be written.
    """
    # In SQLite, an id may be null or not text, but each row has a rowid.
    key: Any = (
        sa.literal_column("rowid", sa.Integer)
        if database.dialect == "sqlite"
        else tool_invocation.c.id
    )
    redaction = (
        sa.update(tool_invocation)
        .where(key == sa.bindparam("of"))
        .values(query=sa.bindparam("hash"), retrieval_details=sa.bindparam("details"))
    )
    chosen = sa.select(key.label("of"), *raw_columns(database.dialect))
    chosen = chosen.select_from(tool_invocation).where(tool_invocation.c.query.is_not(None))
    changed, last = 0, None
    try:
        while rows := _after(database, chosen, key, last):
            last = rows[-1]["of"]
            hashed = [_hashed(row) for row in rows if not is_hashed(text_of(row["query"]) or "")]
            if hashed:
                redacted = partial(sa.Connection.execute, statement=redaction, parameters=hashed)
                _erase(database, redacted)
            changed += len(hashed)
        _erase_feedback(database, sa.update(tool_feedback).values(note=None))
    finally:  # what was redacted before a failure is still in the log
        _empty_log(database)
    return changed


def _after(database: RecordDatabase, chosen: sa.Select[Any], key: Any, last: Any) -> list[Any]:
    further = chosen if last is None else chosen.where(key > last)
    part = further.order_by(key).limit(BATCH)
    return database.run("read", lambda connection: list(connection.execute(part).mappings()))


def _hashed(row: Any) -> dict[str, Any]:
    given = {
        "query": text_of(row["query"]) or "",
        "retrieval_details": details_of(row["retrieval_details"]) or {},
    }
    hashed = hash_query(cast(Invocation, given))
    return {"of": row["of"], "hash": hashed["query"], "details": hashed["retrieval_details"]}


def _erase(database: RecordDatabase, work: Callable[[sa.Connection], T]) -> T:
    """Run work that removes text; SQLite also overwrites the text in its file."""

    def erase(connection: sa.Connection) -> T:
        if database.dialect == "sqlite":
            connection.exec_driver_sql("PRAGMA secure_delete = ON")
        return work(connection)

    return database.run("erased", erase)


def _erase_feedback(database: RecordDatabase, statement: sa.Executable) -> None:
    """Run a statement that removes feedback; an older database has no table of it."""

    def work(connection: sa.Connection) -> None:
        if sa.inspect(connection).has_table(tool_feedback.name):
            connection.execute(statement)

    _erase(database, work)


def _empty_log(database: RecordDatabase) -> None:
    """Empty SQLite's write-ahead log, which may still contain the removed text."""
    if database.dialect != "sqlite":
        return
    emptied = sa.text("PRAGMA wal_checkpoint(TRUNCATE)")
    if database.run("erased", lambda connection: connection.execute(emptied).scalar()):
        raise RecordError(
            "the erased text is still in the database's log, which another process is reading: "
            "try again"
        )
