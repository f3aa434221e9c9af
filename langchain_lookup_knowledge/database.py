"""The databases that records can go to: engines whose waits are bounded, files that are told apart, failures in words."""

import hashlib
import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
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

from langchain_lookup_knowledge.errors import RecordError, RecordRefused
from langchain_lookup_knowledge.invocations import to_json

T = TypeVar("T")


def check_kind(backend: str) -> None:
    """Refuse what is neither SQLite nor PostgreSQL."""
    if backend not in ("sqlite", "postgresql"):
        raise RecordError(f"the record database URL cannot be used: it is for SQLite or PostgreSQL, not for {backend}")


def create_engine(url: str | sa.URL, wait: float) -> sa.Engine:
    """Return an engine that waits for a connection, and in SQLite for a lock, at most `wait` seconds.

    Raises:
        RecordError: the URL is none, its driver is missing, or it is for another kind of database.
    """
    try:
        parsed = sa.make_url(url)
        check_kind(parsed.get_backend_name())
        if parsed.drivername in ("postgres", "postgresql"):
            parsed = parsed.set(drivername="postgresql+psycopg")
        engine = sa.create_engine(parsed, json_serializer=to_json, **_engine_options(parsed, wait))
    except ImportError as error:
        raise RecordError("PostgreSQL needs psycopg: pip install 'langchain-lookup-knowledge[postgres]'") from error
    except (SQLAlchemyError, ValueError, TypeError) as error:  # its text may hold the password
        raise RecordError(f"the record database URL cannot be used ({type(error).__name__}): check it") from None
    if parsed.get_backend_name() == "sqlite":
        sa.event.listen(engine, "connect", _tune_sqlite)
    return engine


def _engine_options(url: sa.URL, wait: float) -> dict[str, Any]:
    """Return options that bound every wait; one connection for all threads where the database is in memory."""
    if url.get_backend_name() == "postgresql":
        server = {"connect_timeout": 2, "keepalives_idle": 10, "keepalives_interval": 5, "keepalives_count": 3}
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
        connection.close()  # the pool has not taken it in yet, so nobody else would
        raise


def database_file(url: sa.URL) -> Path | None:
    """Return the file of an SQLite database, if it is in one."""
    if url.get_backend_name() != "sqlite" or url.database in (None, "", ":memory:"):
        return None
    return None if str(url.database).startswith("file:") else Path(str(url.database)).absolute()


def spool_folders(url: sa.URL, file: Path | None, given: str | os.PathLike[str] | None) -> list[Path]:
    """Return where the records of a database wait: in the folder given or beside its file, and then in the user's state."""
    from platformdirs import user_state_path  # noqa: PLC0415

    place = str(file.resolve()) if file else f"{url.get_backend_name()}://{url.host}:{url.port}/{url.database}"
    name = f"{hashlib.sha256(os.fsencode(place)).hexdigest()[:16]}.spool"
    elsewhere = user_state_path("lookup-knowledge") / name
    if given is not None:
        return [Path(given).expanduser().absolute() / name, elsewhere]
    if file is not None:
        return [file.with_name(file.name + ".spool"), elsewhere] if file.parent.is_dir() else [elsewhere]
    in_memory = url.get_backend_name() == "sqlite" and not str(url.database).startswith("file:")
    return [] if in_memory else [elsewhere]  # in memory, another process has another database


def identity(file: Path | None) -> tuple[int, int] | None:
    """Return what tells a file from another of the same name: rows written to a deleted file would be lost silently."""
    try:
        status = file.stat() if file else None
    except OSError:
        return None
    return status and (status.st_dev, status.st_ino)


def within(call: Callable[[], T], deadline: float) -> T:
    """Run a call of a server in a thread that is left alone if it hangs; what it writes late, it writes once."""
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(call())
        except BaseException as error:  # noqa: BLE001  (raised in the caller's thread)
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
    """Return the error of a call that did not get its turn in time."""
    return RecordError("the record database has been busy for too long: check it")


def failure(error: Exception, what: str) -> RecordError:
    """Return the error of a call that could not be done, in words."""
    unbindable = isinstance(error, StatementError) and not isinstance(error, DBAPIError)
    kind = RecordRefused if unbindable or isinstance(error, IntegrityError | DataError) else RecordError
    return kind(f"invocations cannot be {what} ({cause(error)}): {advice(error)}")


def cause(error: Exception) -> str:
    """Return what went wrong, without what a server's message may quote."""
    original = getattr(error, "orig", None) or error
    return str(original) if type(original).__module__ == "sqlite3" else type(original).__name__


def advice(error: Exception) -> str:
    """Return what a person can do about it."""
    original = getattr(error, "orig", None)
    if any(word in str(original) for word in ("not a database", "malformed")):
        return "move the damaged file away, and a new one is made"
    if isinstance(error, OperationalError) and type(original).__module__ != "sqlite3":
        return "check that the server runs and takes this login"
    return "check the database"
