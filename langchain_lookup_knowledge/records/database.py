"""Record databases: engines with bounded waits, file identity, and readable error messages."""

import hashlib
import logging
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import sqlalchemy as sa
from sqlalchemy.exc import (
    DataError,
    DBAPIError,
    IntegrityError,
    OperationalError,
    SQLAlchemyError,
    StatementError,
)

from langchain_lookup_knowledge import forks
from langchain_lookup_knowledge.errors import RecordError, RecordRefusedError, install_hint
from langchain_lookup_knowledge.records import table
from langchain_lookup_knowledge.records.invocations import to_json

logger = logging.getLogger("langchain_lookup_knowledge")

PATIENCE = 30.0
"""Seconds that reading, pruning, redacting and migrating wait for the database."""
STEPS = 1_000_000
"""Virtual-machine steps of SQLite between two checks of the clock: a few milliseconds."""
MAX_CALLS = 32
"""Maximum concurrent calls to a database server per recorder, including calls that hang.

For SQLite, the maximum is 1, because it allows a single writer.
"""

T = TypeVar("T")


def check_kind(backend: str) -> None:
    """Raise RecordError unless the database is SQLite or PostgreSQL."""
    if backend not in ("sqlite", "postgresql"):
        raise RecordError(
            "the record database URL cannot be used: "
            f"it is for SQLite or PostgreSQL, not for {backend}"
        )


def create_engine(url: str | sa.URL, wait: float) -> sa.Engine:
    """Return an engine that waits at most `wait` seconds for a connection or an SQLite lock.

    Raises:
        RecordError: the URL is invalid, its driver is missing, or it names an unsupported database.
    """
    try:
        parsed = sa.make_url(url)
        if parsed.drivername in ("postgres", "postgresql"):
            parsed = parsed.set(drivername="postgresql+psycopg")
        check_kind(parsed.get_backend_name())
        engine = sa.create_engine(parsed, json_serializer=to_json, **_engine_options(parsed, wait))
    except ImportError as error:
        raise RecordError(f"PostgreSQL needs psycopg: {install_hint('postgres')}") from error
    except (SQLAlchemyError, ValueError, TypeError) as error:  # the error may quote the password
        raise RecordError(
            f"the record database URL cannot be used ({type(error).__name__}): check it"
        ) from None
    if parsed.get_backend_name() == "sqlite":
        sa.event.listen(engine, "connect", _tune_sqlite)
    return engine


def _engine_options(url: sa.URL, wait: float) -> dict[str, Any]:
    """Return engine options that bound every wait; threads share one in-memory connection."""
    if url.get_backend_name() == "postgresql":
        server = {
            "connect_timeout": 2,
            "keepalives_idle": 10,
            "keepalives_interval": 5,
            "keepalives_count": 3,
        }
        return {"pool_timeout": wait, "connect_args": {**server, "tcp_user_timeout": 10_000}}
    if url.get_backend_name() == "sqlite" and url.database in (None, "", ":memory:"):
        memory: dict[str, Any] = {"poolclass": sa.QueuePool, "pool_size": 1, "max_overflow": 0}
        return {**memory, "connect_args": {"check_same_thread": False}}
    return {"pool_timeout": wait, "connect_args": {"timeout": wait}}


def _tune_sqlite(connection: Any, _: object) -> None:
    try:
        for pragma in ("journal_mode = WAL", "synchronous = NORMAL"):
            connection.execute(f"PRAGMA {pragma}")
    except BaseException:
        connection.close()  # not in the pool yet, so nothing else would close it
        raise
    connection.text_factory = utf8_or_replaced


def utf8_or_replaced(text: bytes) -> str:
    """Decode text from SQLite; replace invalid UTF-8 with U+FFFD, so that the query succeeds."""
    return text.decode("utf-8", "replace")


def database_file(url: sa.URL) -> Path | None:
    """Return the file of an SQLite database; None for a database in memory or on a server."""
    if url.get_backend_name() != "sqlite" or url.database in (None, "", ":memory:"):
        return None
    return None if str(url.database).startswith("file:") else Path(str(url.database)).absolute()


def spool_folders(
    url: sa.URL, file: Path | None, given: str | os.PathLike[str] | None
) -> list[Path]:
    """Return the folders in which records can wait for the database, preferred folder first.

    The first is in `given` or next to the database file; the last is in the user's state folder.
    """
    from platformdirs import user_state_path  # noqa: PLC0415

    place = (
        str(file.resolve())
        if file
        else f"{url.get_backend_name()}://{url.host}:{url.port}/{url.database}"
    )
    name = f"{hashlib.sha256(os.fsencode(place)).hexdigest()[:16]}.spool"
    elsewhere = user_state_path("lookup-knowledge") / name
    if given is not None:
        return [Path(given).expanduser().absolute() / name, elsewhere]
    if file is not None:
        return (
            [file.with_name(file.name + ".spool"), elsewhere]
            if file.parent.is_dir()
            else [elsewhere]
        )
    in_memory = url.get_backend_name() == "sqlite" and not str(url.database).startswith("file:")
    return [] if in_memory else [elsewhere]  # no other process sees an in-memory database


def identity(file: Path | None) -> tuple[int, int] | None:
    """Return the device and inode of a file; None if the file does not exist.

    If they change, the file was replaced, and rows written to the old file are lost.
    """
    try:
        status = file.stat() if file else None
    except OSError:
        return None
    return status and (status.st_dev, status.st_ino)


def within(call: Callable[[], T], deadline: float) -> T:
    """Run a call to a server in a thread, which is abandoned if the call hangs.

    A write that succeeds late is harmless: its row has the same id as the spooled record.
    """
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(call())
        except BaseException as error:  # passed on to the caller's thread
            logger.debug("a call of the record database failed", exc_info=True)
            future.set_exception(error)

    try:
        threading.Thread(target=run, name="lookup-knowledge-record", daemon=True).start()
    except RuntimeError:  # no thread can be started while the interpreter shuts down
        run()
    try:
        return future.result(max(deadline - time.monotonic(), 0))
    except TimeoutError as error:
        raise RecordError("the record database did not answer in time: check it") from error


def busy() -> RecordError:
    """Return the error for a call that waited too long for earlier calls to finish."""
    return RecordError("the record database has been busy for too long: check it")


def failure(error: Exception, what: str) -> RecordError:
    """Return the RecordError that describes a failed database call."""
    unbindable = isinstance(error, StatementError) and not isinstance(error, DBAPIError)
    kind = (
        RecordRefusedError
        if unbindable or isinstance(error, IntegrityError | DataError)
        else RecordError
    )
    return kind(f"invocations cannot be {what} ({cause(error)}): {advice(error)}")


def cause(error: Exception) -> str:
    """Return the cause of an error; omit the server's message, which may quote a record."""
    original = getattr(error, "orig", None) or error
    return str(original) if type(original).__module__ == "sqlite3" else type(original).__name__


def advice(error: Exception) -> str:
    """Return what the user can do about a database error."""
    original = getattr(error, "orig", None)
    if any(word in str(original) for word in ("not a database", "malformed")):
        return "move the damaged file away, and a new one is created"
    if isinstance(error, OperationalError) and type(original).__module__ != "sqlite3":
        return "check that the server runs and accepts this login"
    return "check the database"


@contextmanager
def _bounded_statements(driver: Any, seconds: float) -> Iterator[None]:
    """Interrupt SQLite at the time limit: a crafted database could keep a statement running.

    A statement that waits for a lock has a separate limit of the same length.
    """
    end = time.monotonic() + 2 * seconds
    driver.set_progress_handler(lambda: time.monotonic() > end, STEPS)
    try:
        yield
    finally:
        driver.set_progress_handler(None, 0)


class RecordDatabase:
    """Runs work in bounded transactions; the table is created or checked at first use.

    Args:
        url_or_engine: see `SQLInvocationRecorder`.
        wait: seconds to wait for a connection, if the engine is created here.

    Raises:
        RecordError: the URL cannot be used.
    """

    def __init__(self, url_or_engine: str | sa.URL | sa.Engine, wait: float) -> None:
        self._own = not isinstance(url_or_engine, sa.Engine)
        self.engine = (
            url_or_engine
            if isinstance(url_or_engine, sa.Engine)
            else create_engine(url_or_engine, wait)
        )
        self.dialect = self.engine.dialect.name
        check_kind(self.dialect)
        if self._own:  # closes the connections of a recorder that is never closed
            weakref.finalize(self, self.engine.dispose)
        self.file: Path | None = database_file(self.engine.url)
        self._ready = False
        self._opened: tuple[int, int] | None = None
        self._limit_calls()

    def run(self, what: str, work: Callable[[sa.Connection], T], seconds: float | None = None) -> T:
        """Run `work` in a transaction, and retry it once if the pooled connection was dead.

        `what` completes the message "invocations cannot be ...". `seconds` is the time limit, by
        default `PATIENCE`.

        Raises:
            RecordError: the work failed or was not finished in time.
        """
        return self._bounded(what, partial(self._attempt, work), seconds)

    def migrate(self) -> list[str]:
        """Create the table or bring it up to date; return the names of added columns and indexes.

        Raises:
            RecordError: the migration failed or was not finished in time.
        """
        return self._bounded("migrated", lambda left: table.migrate(self.engine, self._wait(left)))

    def close(self) -> None:
        """Close all connections, unless the engine belongs to the caller."""
        if self._own:
            self.engine.dispose()

    def after_fork(self) -> None:
        """Keep the parent's connections open: closing them would end its sessions or drop locks."""
        forks.keep_inherited(self.engine.pool)
        self.engine.dispose(close=False)
        self._ready = False
        self._limit_calls()

    def _limit_calls(self) -> None:
        self._slots = threading.BoundedSemaphore(1 if self.dialect == "sqlite" else MAX_CALLS)

    def _wait(self, seconds: float) -> float | None:
        return seconds if self._own or self.dialect == "postgresql" else None

    def _bounded(self, what: str, attempt: Callable[[float], T], seconds: float | None = None) -> T:
        seconds = PATIENCE if seconds is None else seconds
        deadline = time.monotonic() + seconds
        slots = self._slots
        if not slots.acquire(timeout=seconds):
            raise busy()

        def run() -> T:
            try:
                left = max(deadline - time.monotonic(), 0.01)
                try:
                    return attempt(left)
                except DBAPIError as error:
                    if not error.connection_invalidated:
                        raise
                    return attempt(left)
            except (SQLAlchemyError, OSError) as error:
                raise failure(error, what) from error
            finally:
                slots.release()

        return run() if self.dialect == "sqlite" else within(run, deadline)

    def _attempt(self, work: Callable[[sa.Connection], T], seconds: float) -> T:
        if self._ready and self._opened != identity(self.file):
            self.engine.dispose()
            self._ready = False
        if not self._ready:
            self._create_file()
            table.prepare(self.engine, self._wait(seconds))
            self._opened = identity(self.file)
            self._ready = True
        opened = self._opened
        with self.engine.begin() as connection:
            if self.dialect == "postgresql":
                connection.exec_driver_sql(f"SET LOCAL statement_timeout = {seconds * 1000:.0f}")
                result = work(connection)
            else:
                result = self._run_in_sqlite(connection, work, seconds)
        if opened is not None and opened != identity(self.file):
            raise RecordError(
                "the record database was deleted or replaced meanwhile: the changes are lost"
            )
        return result

    def _create_file(self) -> None:
        """Create the SQLite file for this user only, because it contains queries."""
        if self._own and self.file is not None:
            with suppress(OSError):  # the file exists, or SQLite reports the cause
                os.close(os.open(self.file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))

    def _run_in_sqlite(
        self, connection: sa.Connection, work: Callable[[sa.Connection], T], seconds: float
    ) -> T:
        driver: Any = connection.connection.driver_connection
        if self._own:  # through SQLAlchemy, this would cost as much as the insert
            driver.execute(f"PRAGMA busy_timeout = {seconds * 1000:.0f}").close()
            with _bounded_statements(driver, seconds):
                return work(connection)
        given, driver.text_factory = driver.text_factory, utf8_or_replaced
        try:
            return work(connection)
        finally:
            driver.text_factory = given
