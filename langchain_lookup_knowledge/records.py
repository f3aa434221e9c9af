"""Records of calls: one row of `tool_invocation` each, in SQLite or PostgreSQL."""

import logging
import os
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, Literal, Protocol, TypeVar, cast

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from langchain_lookup_knowledge.database import (
    busy,
    check_kind,
    create_engine,
    database_file,
    failure,
    identity,
    spool_folders,
    within,
)
from langchain_lookup_knowledge.errors import RecordError
from langchain_lookup_knowledge.group_commit import GroupCommit
from langchain_lookup_knowledge.invocations import bounded, hash_query, is_hashed, storable, utc
from langchain_lookup_knowledge.spool import Spool
from langchain_lookup_knowledge.types import Invocation

logger = logging.getLogger("langchain_lookup_knowledge")

LOOKUP_WAIT = 0.25
"""Seconds a lookup waits for the database before its record goes to the spool."""
DELIVERY_WAIT = 5.0
"""Seconds the delivery of some spooled records waits for the database."""
DELIVERY_PAUSE = 10.0
"""Seconds in which the spool is left alone after a delivery that failed."""
PATIENCE = 30.0
"""Seconds a person who reads, prunes, redacts or migrates waits for the database."""
MAX_CALLS = 32
"""Calls of a database server under way at once in a recorder, those that hang included. Of SQLite, one: it has one writer."""
MIGRATE_COMMAND = "run `lookup-knowledge invocations --migrate`"
_BATCH = 500

T = TypeVar("T")
Redact = Callable[[Invocation], Invocation]


class InvocationRecorder(Protocol):
    """Something that keeps invocations. Keeping the same id again changes nothing."""

    def record(self, invocation: Invocation) -> Literal["stored", "spooled"] | None:
        """Keep one invocation; say "spooled" if it is safe but not yet where it is read. None counts as "stored".

        Raises:
            RecordError: it could not be kept.
        """


DETAIL_FACTS = {
    "category": "$.filter.category",
    "relaxed": "$.filter.relaxed",
    "level": "$.relevance.level",
    "scope": "$.scope",
}
"""What is counted of `retrieval_details`, and where it stands there."""

metadata = sa.MetaData()
tool_invocation = sa.Table(
    "tool_invocation",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("tool_name", sa.Text, nullable=False),
    sa.Column("query", sa.Text, nullable=False),
    sa.Column("status", sa.Text, nullable=False),
    sa.Column("retrieval_layer", sa.Text, nullable=False),
    sa.Column("retrieval_details", sa.JSON().with_variant(postgresql.JSONB(), "postgresql"), nullable=False),
    sa.Column("l1_status", sa.Text, nullable=False),
    sa.Column("result_count", sa.Integer, nullable=False),
    sa.Column("primary_entry_id", sa.Text),
    sa.Column("duration_ms", sa.Float, nullable=False),
    sa.Column("thread_id", sa.Text),
    sa.Column("run_id", sa.Text),
    sa.Column("tool_call_id", sa.Text),
    sa.Column("created_at", sa.DateTime(timezone=True), nullable=False, index=True),
)
facts_index = sa.Index(
    "ix_tool_invocation_facts",
    *(tool_invocation.c[name] for name in ("created_at", "status", "retrieval_layer", "l1_status", "duration_ms")),
    *(sa.text(f"json_extract(retrieval_details, '{path}')") for path in DETAIL_FACTS.values()),
).ddl_if(dialect="sqlite")
"""Holds all that an overview counts, so that SQLite need not read the details; PostgreSQL scans no index of expressions."""
_columns = tool_invocation.c
_INSERTS: dict[str, Any] = {
    name: dialect.insert(tool_invocation).on_conflict_do_nothing(index_elements=["id"])
    for name, dialect in (("sqlite", sqlite), ("postgresql", postgresql))
}


class SQLInvocationRecorder:
    """Records in a SQL database; the table is made at first use.

    A record that the database does not take within `LOOKUP_WAIT` is spooled: written to a folder beside an SQLite file
    (`calls.db.spool`), or to `spool`, or, where that is full or read-only or there is none, to the user's state folder.
    The spool is delivered in the background when a recorder is made and after a record that was stored, and by
    `invocations`, `prune`, `redact` and `close`. Nothing is kept in memory, so a process may end at any moment. SQLite is
    used with WAL and `synchronous=NORMAL`: a power cut, unlike a crash of the process, may take the last rows.

    Args:
        url_or_engine: an SQLAlchemy URL (`sqlite:///calls.db`, `postgresql://...`, with the extra `[postgres]`) or an engine
            of the caller's, which `close()` leaves alone, and whose own time limits hold in SQLite.
        spool: a folder for records that wait, such as the knowledge base's `data_folder` for a database on a server.
        redact: changes each invocation before it is kept, in the database or in the spool; see `hash_query`.

    Raises:
        RecordError: the URL cannot be used. On use: the database cannot be reached, or its table has other columns.
    """

    def __init__(
        self,
        url_or_engine: str | sa.URL | sa.Engine,
        *,
        spool: str | os.PathLike[str] | None = None,
        redact: Redact | None = None,
    ) -> None:
        self._own = not isinstance(url_or_engine, sa.Engine)
        self._engine = (
            url_or_engine if isinstance(url_or_engine, sa.Engine) else create_engine(url_or_engine, LOOKUP_WAIT)
        )
        self._dialect = self._engine.dialect.name
        check_kind(self._dialect)
        if self._own:
            weakref.finalize(self, self._engine.dispose)  # a recorder that nobody closed leaves no connection open
        self.file = database_file(self._engine.url)
        """The file of an SQLite database, None of another."""
        self._spool = Spool(spool_folders(self._engine.url, self.file, spool))
        self._redact = redact
        self._ready = False
        self._opened: tuple[int, int] | None = None
        self._told: str | None = None
        self._start_process()
        _recorders.add(self)
        if not self._spool.is_empty():
            self._deliver_beside()

    @classmethod
    def in_file(cls, path: Path, *, redact: Redact | None = None) -> "SQLInvocationRecorder":
        """Return a recorder into an SQLite file."""
        return cls(sa.URL.create("sqlite", database=str(path)), redact=redact)

    def record(self, invocation: Invocation) -> Literal["stored", "spooled"]:
        """Write one row, or spool it; a row with the same id is left as it is.

        Raises:
            RecordError: neither the database nor the spool takes it, or the `redact` function fails.
        """
        kept = self._kept(invocation)
        try:
            self._group.write(kept, LOOKUP_WAIT, self._store)
        except RecordError as error:
            self._keep_for_later(kept, error)
            return "spooled"
        if self._spool.is_empty():
            self._told = None
        elif time.monotonic() >= self._deliver_from and not self._delivering.locked():
            self._deliver_beside()
        return "stored"

    def invocations(
        self,
        *,
        limit: int = 20,
        since: datetime | None = None,
        until: datetime | None = None,
        layer: str | None = None,
        status: str | None = None,
        thread_id: str | None = None,
    ) -> list[Invocation]:
        """Return the newest invocations, newest first: those made at `since` or later and before `until`.

        A time without a zone is UTC.

        Raises:
            RecordError: the database cannot be read.
        """
        wanted = sa.select(tool_invocation).order_by(_columns.created_at.desc(), _columns.id).limit(limit)
        if since is not None:
            wanted = wanted.where(_columns.created_at >= utc(since))
        if until is not None:
            wanted = wanted.where(_columns.created_at < utc(until))
        for column, value in (
            (_columns.retrieval_layer, layer),
            (_columns.status, status),
            (_columns.thread_id, thread_id),
        ):
            if value is not None:
                wanted = wanted.where(column == value)
        return self.read(lambda connection: [as_invocation(row) for row in connection.execute(wanted).mappings()])

    def read(self, work: Callable[[sa.Connection], T]) -> T:
        """Return what `work` returns, given a connection to the database; its table is there, the spool delivered.

        Raises:
            RecordError: the database cannot be read.
        """
        if time.monotonic() >= self._deliver_from:
            self._deliver()
        return self._run("read", work)

    def is_new(self) -> bool:
        """Say whether nothing was ever recorded here: no call waits, and SQLite's file is not there yet."""
        waiting = self.waiting()  # asked first: what waits is brought to the database meanwhile
        return not waiting and self.file is not None and not self.file.exists()

    def waiting(self) -> int:
        """Return how many records are in the spool."""
        return len(self._spool.waiting())

    def prune(self, before: datetime) -> int:
        """Delete the invocations made before a time; return how many.

        Raises:
            RecordError: the database cannot be written, or calls wait or lie damaged in the spool, where they would stay.
        """
        self._empty_spool("prune")
        older = sa.delete(tool_invocation).where(_columns.created_at < utc(before))
        deleted = self._erase(lambda connection: connection.execute(older).rowcount)
        self._empty_log()
        return deleted

    def redact(self) -> int:
        """Do to the invocations already stored what `hash_query` does; return how many were changed.

        SQLite overwrites the old text at once; PostgreSQL keeps it on disk until its next VACUUM.

        Raises:
            RecordError: the database cannot be written, or calls wait or lie damaged in the spool, where they would stay.
        """
        self._empty_spool("redact")
        changed, last = 0, ""
        while rows := self._after(last):
            last = rows[-1]["id"]
            hashed = [_hashed(row) for row in rows if not is_hashed(row["query"])]
            if hashed:
                self._erase(partial(sa.Connection.execute, statement=_REDACTION, parameters=hashed))
            changed += len(hashed)
        self._empty_log()
        return changed

    def migrate(self) -> list[str]:
        """Make the table, or add to it the columns it lacks, empty in the rows that are there; return their names."""
        missing = self._run("migrated", _add_columns, checked=False)
        self._deliver()
        return missing

    def close(self) -> None:
        """Deliver what was spooled, if the database takes it, and close the connections of an engine made here."""
        self._deliver()
        if self._own:
            self._engine.dispose()

    def _kept(self, invocation: Invocation) -> Invocation:
        """Return what is to be kept of an invocation."""
        try:
            kept = cast(Invocation, storable(invocation))
            if self._redact:
                kept = cast(Invocation, storable(self._redact(kept)))
            kept = bounded(kept)
            utc(datetime.fromisoformat(kept["created_at"]))
        except Exception as error:  # a function of the caller's may raise anything
            what = "could not be redacted, so it is not kept" if self._redact else "is not an invocation"
            raise RecordError(f"the call {what} ({type(error).__name__})") from error
        return kept

    def _keep_for_later(self, invocation: Invocation, reason: RecordError) -> None:
        try:
            folder = self._spool.keep(invocation)
        except OSError as error:
            raise RecordError(f"{reason}; nor can the spool be written ({error.strerror})") from error
        if self._told != str(reason):
            logger.warning("%s; until then, calls are kept in %s", reason, folder)
            self._told = str(reason)

    def _empty_spool(self, what: str) -> None:
        """Deliver the spool; refuse if queries stay in it."""
        if not self._deliver():
            raise RecordError(f"calls wait in the spool, their queries with them: {what} when the database takes them")
        if damaged := self._spool.damaged():
            named = ", ".join(map(str, damaged[:3])) + (", ..." if len(damaged) > 3 else "")
            raise RecordError(
                f"damaged calls in the spool may hold queries: look at and delete {len(damaged)} files, then {what}: {named}"
            )

    def _deliver(self) -> bool:
        """Bring the spool to the database; what cannot be delivered stays. Say whether all could."""
        if not self._delivering.acquire(timeout=PATIENCE):
            return False
        try:
            self._spool.deliver(lambda invocations: self._store(invocations, DELIVERY_WAIT))
        except (RecordError, OSError) as error:
            self._deliver_from = time.monotonic() + DELIVERY_PAUSE
            logger.warning("calls that wait in the spool: %s (%s)", self.waiting(), error)
            return False
        finally:
            self._delivering.release()
        self._deliver_from = 0.0
        return True

    def _deliver_beside(self) -> None:
        with suppress(RuntimeError):  # no thread can be started while the interpreter shuts down
            threading.Thread(target=self._deliver, name="lookup-knowledge-spool", daemon=True).start()

    def _store(self, invocations: Sequence[Invocation], seconds: float) -> None:
        rows = [_row(invocation) for invocation in invocations]
        self._run("written", lambda connection: connection.execute(_INSERTS[self._dialect], rows), seconds)

    def _after(self, last: str) -> list[Any]:
        further = (_columns.id > last) & _columns.query.is_not(None)
        some = sa.select(tool_invocation).where(further).order_by(_columns.id).limit(_BATCH)
        return self._run("read", lambda connection: list(connection.execute(some).mappings()))

    def _erase(self, work: Callable[[sa.Connection], T]) -> T:
        """Run work that removes texts, from SQLite's file too."""

        def erase(connection: sa.Connection) -> T:
            if self._dialect == "sqlite":
                connection.exec_driver_sql("PRAGMA secure_delete = ON")
            return work(connection)

        return self._run("erased", erase)

    def _empty_log(self) -> None:
        """Remove from SQLite's log the texts that were removed from its file."""
        if self._dialect != "sqlite":
            return
        emptied = sa.text("PRAGMA wal_checkpoint(TRUNCATE)")
        if self._run("erased", lambda connection: connection.execute(emptied).scalar()):
            raise RecordError("what was erased is still in the database's log, which others are reading: do it again")

    def _run(
        self, what: str, work: Callable[[sa.Connection], T], seconds: float | None = None, *, checked: bool = True
    ) -> T:
        """Run work in a transaction, within a time limit (None: `PATIENCE`); once more if a pooled connection is dead."""
        seconds = PATIENCE if seconds is None else seconds
        deadline = time.monotonic() + seconds
        if not self._slots.acquire(timeout=seconds):
            raise busy()
        slots = self._slots

        def run() -> T:
            try:
                left = max(deadline - time.monotonic(), 0.01)
                try:
                    return self._attempt(work, left, checked)
                except DBAPIError as error:
                    if not error.connection_invalidated:
                        raise
                    return self._attempt(work, left, checked)
            except (SQLAlchemyError, OSError) as error:
                raise failure(error, what) from error
            finally:
                slots.release()

        return run() if self._dialect == "sqlite" else within(run, deadline)

    def _attempt(self, work: Callable[[sa.Connection], T], seconds: float, checked: bool) -> T:
        if self._ready and self._opened != identity(self.file):
            self._engine.dispose()
            self._ready = False
        if not self._ready:
            self._make_table()
            if checked:
                self._check_table()
        opened = identity(self.file) if self._ready else None
        with self._engine.begin() as connection:
            if self._dialect == "postgresql":
                connection.exec_driver_sql(f"SET LOCAL statement_timeout = {seconds * 1000:.0f}")
            elif self._own:
                driver: Any = connection.connection.driver_connection  # SQLAlchemy's own way is as dear as the insert
                driver.execute(f"PRAGMA busy_timeout = {seconds * 1000:.0f}").close()
            result = work(connection)
        if opened is not None and opened != identity(self.file):
            raise RecordError("the record database was deleted or replaced meanwhile: what was done went with it")
        return result

    def _make_table(self) -> None:
        try:
            metadata.create_all(self._engine)
        except SQLAlchemyError:
            if not sa.inspect(self._engine).has_table(tool_invocation.name):
                raise  # else another process has just made it

    def _check_table(self) -> None:
        """Refuse a table that cannot take our rows: without our columns, or with others that must be filled."""
        with self._engine.connect() as connection:
            missing, foreign = _differences(connection)
        if missing:
            raise RecordError(f"the table tool_invocation lacks the columns {', '.join(missing)}: {MIGRATE_COMMAND}")
        if foreign:
            listed = ", ".join(foreign)
            raise RecordError(f"the table tool_invocation demands columns of its own, {listed}: give them a default")
        self._opened = identity(self.file)
        self._ready = True

    def _start_process(self) -> None:
        self._delivering = threading.Lock()
        self._group: GroupCommit[Invocation] = GroupCommit()
        self._deliver_from = 0.0
        self._slots = threading.BoundedSemaphore(1 if self._dialect == "sqlite" else MAX_CALLS)

    def _after_fork(self) -> None:
        """Leave the parent's connections alone: closing one here would end its session, or drop its locks."""
        _inherited.append(self._engine.pool)
        self._engine.dispose(close=False)
        self._ready = False
        self._start_process()


_recorders: "weakref.WeakSet[SQLInvocationRecorder]" = weakref.WeakSet()
_inherited: list[sa.Pool] = []
_REDACTION = (
    sa.update(tool_invocation)
    .where(_columns.id == sa.bindparam("of"))
    .values(query=sa.bindparam("hash"), retrieval_details=sa.bindparam("details"))
)


def _after_fork_in_child() -> None:
    for recorder in list(_recorders):
        recorder._after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)


def _differences(connection: sa.Connection) -> tuple[list[str], list[str]]:
    """Return the columns that the table lacks, and those it has that must be filled and are not ours."""
    present = sa.inspect(connection).get_columns(tool_invocation.name)
    missing = set(_columns.keys()) - {column["name"] for column in present}
    foreign = [
        column["name"]
        for column in present
        if column["name"] not in _columns and not column["nullable"] and column["default"] is None
    ]
    return sorted(missing), foreign


def _add_columns(connection: sa.Connection) -> list[str]:
    missing, _ = _differences(connection)
    if "id" in missing:
        raise RecordError("the table tool_invocation has no column id, so it is not ours: use another database")
    for name in missing:
        kind = _columns[name].type.compile(connection.dialect)
        connection.exec_driver_sql(f"ALTER TABLE tool_invocation ADD COLUMN {name} {kind}")
    return missing


def _row(invocation: Invocation) -> dict[str, Any]:
    row: dict[str, Any] = {key: value for key, value in invocation.items() if key in _columns}
    return {**row, "created_at": utc(datetime.fromisoformat(invocation["created_at"]))}


def as_invocation(row: Any) -> Invocation:
    """Return a row of `tool_invocation` as it was recorded."""
    created = row["created_at"]
    return cast(Invocation, {**row, "created_at": created and utc(created).isoformat()})


def _hashed(row: Any) -> dict[str, Any]:
    hashed = hash_query(cast(Invocation, {**row, "retrieval_details": row["retrieval_details"] or {}}))
    return {"of": row["id"], "hash": hashed["query"], "details": hashed["retrieval_details"]}
