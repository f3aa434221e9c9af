"""The record of lookups: one row per lookup in `tool_invocation`, in SQLite or PostgreSQL."""

import logging
import os
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any, Literal, TypeVar, cast

import sqlalchemy as sa

from langchain_lookup_knowledge import forks
from langchain_lookup_knowledge.errors import RecordError
from langchain_lookup_knowledge.records import database, upkeep
from langchain_lookup_knowledge.records.database import RecordDatabase, spool_folders
from langchain_lookup_knowledge.records.group_commit import GroupCommit
from langchain_lookup_knowledge.records.invocations import (
    bounded,
    utc,
)
from langchain_lookup_knowledge.records.rows import as_invocation
from langchain_lookup_knowledge.records.selection import raw_columns
from langchain_lookup_knowledge.records.spool import ERASED_SECONDS, Spool
from langchain_lookup_knowledge.records.table import insert, tool_invocation
from langchain_lookup_knowledge.text.storable import storable
from langchain_lookup_knowledge.types import Invocation, InvocationRecorder

__all__ = ["InvocationRecorder", "Redact", "SQLInvocationRecorder"]

logger = logging.getLogger("langchain_lookup_knowledge")

LOOKUP_WAIT = 0.25
"""Seconds a lookup waits for the database before its record goes to the spool."""
DELIVERY_WAIT = 5.0
"""Seconds to wait for the database when a batch of spooled records is delivered."""
DELIVERY_PAUSE = 10.0
"""Seconds to wait after a failed delivery before the next one."""

T = TypeVar("T")
Redact = Callable[[Invocation], Invocation]
_columns = tool_invocation.c


class SQLInvocationRecorder:
    """Records invocations in a SQL database; the table is created at first use.

    A record that the database does not accept within `LOOKUP_WAIT` is spooled: it is written to
    `spool`, by default a folder next to the SQLite file (`calls.db.spool`). If that folder is full,
    read-only or missing, the record goes to the user's state folder. Spooled records are delivered
    to the database in the background when a recorder is created and after each stored record, and
    also by `invocations`, `prune`, `redact` and `close`. Nothing is kept in memory, so a process
    may end at any moment. SQLite runs with WAL and `synchronous=NORMAL`: a power cut, unlike
    a crash of the process, may lose the last rows.

    Args:
        url_or_engine: an SQLAlchemy URL (`sqlite:///calls.db`; `postgresql://...`, with the extra
            `[postgres]`), or your own engine. `close()` does not dispose of your engine, and in
            SQLite the time limits of your engine apply.
        spool: a folder for waiting records, such as the knowledge base's `data_folder` for a
            database on a server.
        redact: a function that changes each invocation before it is stored in the database or in
            the spool, such as `hash_query`.

    Raises:
        RecordError: the URL cannot be used. Methods also raise it if the database cannot be
            reached, a newer version migrated it, or its table has other columns.
    """

    def __init__(
        self,
        url_or_engine: str | sa.URL | sa.Engine,
        *,
        spool: str | os.PathLike[str] | None = None,
        redact: Redact | None = None,
    ) -> None:
        self._database = RecordDatabase(url_or_engine, LOOKUP_WAIT)
        self.file = self._database.file
        """The file of an SQLite database; None for any other database."""
        self._spool = Spool(spool_folders(self._database.engine.url, self.file, spool))
        self._redact = redact
        self.redacts = redact is not None
        """Whether invocations are changed before they are stored."""
        self._last_warning: str | None = None
        self._start_process()
        forks.register(self)
        if not self._spool.is_empty():
            self._deliver_in_background()

    def __repr__(self) -> str:
        """Return the URL of the database, without a password."""
        url = self._database.engine.url.set(query={}).render_as_string(hide_password=True)
        return f"SQLInvocationRecorder({url!r})"

    @classmethod
    def in_file(cls, path: Path, *, redact: Redact | None = None) -> "SQLInvocationRecorder":
        """Return a recorder that writes to an SQLite file."""
        return cls(sa.URL.create("sqlite", database=str(path)), redact=redact)

    def record(self, invocation: Invocation) -> Literal["stored", "spooled"]:
        """Write or spool one record; an existing row is not changed.

        If a row with the same id has the same outcome, nothing is written. If it has another
        outcome, such as "cancelled", the record gets a new id.

        Raises:
            RecordError: neither the database nor the spool accepts the record, or the `redact`
                function fails.
        """
        kept = self._kept(invocation)
        try:
            self._group.write(kept, LOOKUP_WAIT, self._store)
        except RecordError as error:
            self._keep_for_later(kept, error)
            return "spooled"
        if self._spool.is_empty():
            self._last_warning = None
        elif time.monotonic() >= self._deliver_from and not self._delivering.locked():
            self._deliver_in_background()
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
        """Return the newest invocations made at or after `since` and before `until`, newest first.

        A time without a zone is UTC. A value that cannot be read becomes None, and
        `retrieval_details["unreadable"]` names its column.

        Raises:
            RecordError: the database cannot be read.
        """
        chosen = sa.select(*raw_columns(self._database.dialect))
        chosen = chosen.order_by(_columns.created_at.desc(), _columns.id).limit(limit)
        if since is not None:
            chosen = chosen.where(_columns.created_at >= utc(since))
        if until is not None:
            chosen = chosen.where(_columns.created_at < utc(until))
        for column, value in (
            (_columns.retrieval_layer, layer),
            (_columns.status, status),
            (_columns.thread_id, thread_id),
        ):
            if value is not None:
                chosen = chosen.where(column == value)
        return self.read(
            lambda connection: [as_invocation(row) for row in connection.execute(chosen).mappings()]
        )

    def read(self, work: Callable[[sa.Connection], T]) -> T:
        """Call `work` with a connection and return its result.

        Before the call, the spool is delivered and a missing table is created.

        Raises:
            RecordError: the database cannot be read.
        """
        if time.monotonic() >= self._deliver_from:
            self._deliver()
        return self._database.run("read", work)

    def is_new(self) -> bool:
        """Return whether nothing was recorded yet: the spool is empty and no SQLite file exists."""
        waiting = self.waiting()  # first: the spool may be delivered meanwhile
        return not waiting and self.file is not None and not self.file.exists()

    def waiting(self) -> int:
        """Return how many records are in the spool."""
        return len(self._spool.waiting())

    def prune(self, before: datetime) -> int:
        """Delete the invocations made before a time, and return their number.

        Raises:
            RecordError: the database cannot be written, or the spool holds waiting or damaged
                records, which would survive.
        """
        self._empty_spool("prune")
        return upkeep.prune(self._database, before)

    def redact(self) -> int:
        """Apply `hash_query` to the invocations already stored, and return how many were changed.

        SQLite overwrites the old text at once; PostgreSQL keeps it on disk until its next VACUUM.

        Raises:
            RecordError: the database cannot be written, or the spool holds waiting or damaged
                records, whose queries would survive.
        """
        self._empty_spool("redact")
        return upkeep.redact(self._database)

    def migrate(self) -> list[str]:
        """Create the table or bring it up to date; return the names of added columns and indexes.

        Added columns are null in existing rows.

        Raises:
            RecordError: the database cannot be changed, or a newer version migrated it.
        """
        added = self._database.migrate()
        if added or time.monotonic() >= self._deliver_from:
            self._deliver()
        return added

    def close(self) -> None:
        """Deliver the spool if possible, and close all connections except the caller's own."""
        self._deliver()
        self._database.close()

    def _kept(self, invocation: Invocation) -> Invocation:
        """Return an invocation as it will be stored."""
        try:
            kept = cast(Invocation, storable(invocation))
            if self._redact:
                kept = cast(Invocation, storable(self._redact(kept)))
            kept = bounded(kept)
            utc(datetime.fromisoformat(kept["created_at"]))
        except Exception as error:  # a caller's `redact` may raise anything
            what = (
                "could not be redacted, so it is not kept"
                if self._redact
                else "is not an invocation"
            )
            raise RecordError(f"the invocation {what} ({type(error).__name__})") from error
        return kept

    def _keep_for_later(self, invocation: Invocation, reason: RecordError) -> None:
        try:
            folder = self._spool.keep(invocation)
        except OSError as error:
            raise RecordError(
                f"{reason}; the spool cannot be written either ({error.strerror})"
            ) from error
        if self._last_warning != str(reason):
            logger.warning("%s; meanwhile, records are kept in %s", reason, folder)
            self._last_warning = str(reason)

    def _empty_spool(self, what: str) -> None:
        """Deliver the spool; raise RecordError if it may still hold queries afterwards."""
        if not self._deliver():
            raise RecordError(
                "the spool holds records, with their queries: "
                f"{what} again when the database accepts them"
            )
        try:
            unfinished = self._spool.erase_unfinished()
        except OSError as error:
            raise RecordError(
                f"a half-written record in the spool may hold a query ({error.strerror}): "
                f"delete it, then {what} again: {error.filename}"
            ) from error
        if unfinished:
            raise RecordError(
                "a record with its query is being written to the spool: "
                f"{what} again in {ERASED_SECONDS} seconds"
            )
        if damaged := self._spool.damaged():
            named = ", ".join(map(str, damaged[:3])) + (", ..." if len(damaged) > 3 else "")
            raise RecordError(
                f"damaged records in the spool may hold queries: look at {len(damaged)} files, "
                f"delete them, then {what} again: {named}"
            )

    def _deliver(self) -> bool:
        """Store the spooled records; return False if some could not be delivered and were kept."""
        if not self._delivering.acquire(timeout=database.PATIENCE):
            return False
        try:
            self._spool.deliver(lambda invocations: self._store(invocations, DELIVERY_WAIT))
        except Exception as error:
            logger.debug("the spool was not delivered", exc_info=True)
            self._deliver_from = time.monotonic() + DELIVERY_PAUSE
            logger.warning("records waiting in the spool: %s (%s)", self.waiting(), error)
            return False
        finally:
            self._delivering.release()
        self._deliver_from = 0.0
        return True

    def _deliver_in_background(self) -> None:
        with suppress(RuntimeError):  # no thread can be started while the interpreter shuts down
            threading.Thread(
                target=self._deliver, name="lookup-knowledge-spool", daemon=True
            ).start()

    def _store(self, invocations: Sequence[Invocation], seconds: float) -> None:
        rows = [_row(invocation) for invocation in invocations]
        self._database.run("written", lambda connection: insert(connection, rows), seconds)

    def _start_process(self) -> None:
        self._delivering = threading.Lock()
        self._group: GroupCommit[Invocation] = GroupCommit()
        self._deliver_from = 0.0

    def after_fork(self) -> None:
        """Replace locks and connections in a forked child, where the inherited ones are unsafe."""
        self._database.after_fork()
        self._start_process()


def _row(invocation: Invocation) -> dict[str, Any]:
    row: dict[str, Any] = {key: value for key, value in invocation.items() if key in _columns}
    return {**row, "created_at": utc(datetime.fromisoformat(invocation["created_at"]))}
