"""Records of calls: one row of `tool_invocation` each, in SQLite or PostgreSQL."""

import json
import math
import re
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol, TypeVar, cast

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import SQLAlchemyError

from langchain_lookup_knowledge.errors import RecordError
from langchain_lookup_knowledge.types import Invocation

T = TypeVar("T")

_UNSTORABLE = re.compile("[\0\ud800-\udfff]")


class InvocationRecorder(Protocol):
    """Something that keeps invocations. Keeping the same id again changes nothing."""

    def record(self, invocation: Invocation) -> None:
        """Keep one invocation.

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


class SQLInvocationRecorder:
    """Records in a SQL database; the table is made at first use.

    Args:
        url_or_engine: an SQLAlchemy URL (`sqlite:///calls.db`, `postgresql+psycopg://...`) or an engine of the caller's,
            which `close()` leaves alone.

    Raises:
        RecordError: on use, when the database cannot be reached or its table has other columns.
    """

    def __init__(self, url_or_engine: str | sa.Engine) -> None:
        self._own = isinstance(url_or_engine, str)
        self._lock = threading.Lock()
        self._ready = False
        self._file: Path | None = None
        self._inode: int | None = None
        if isinstance(url_or_engine, str):
            try:
                self._engine = sa.create_engine(url_or_engine, json_serializer=_to_json)
            except (SQLAlchemyError, ImportError) as error:
                raise RecordError(
                    f"the record database URL cannot be used ({type(error).__name__}): check it"
                ) from error
        else:
            self._engine = url_or_engine
        if self._own:
            weakref.finalize(self, self._engine.dispose)  # a recorder that nobody closed leaves no connection open
        if self._own and self._engine.dialect.name == "sqlite":
            sa.event.listen(self._engine, "connect", _tune_sqlite)

    @classmethod
    def in_file(cls, path: Path) -> "SQLInvocationRecorder":
        """Return a recorder into an SQLite file."""
        recorder = cls(sa.URL.create("sqlite", database=str(path)).render_as_string(hide_password=False))
        recorder._file = path
        return recorder

    def record(self, invocation: Invocation) -> None:
        """Write one row; a row with the same id is left as it is."""
        row = cast(dict[str, Any], storable(invocation))
        row["created_at"] = datetime.fromisoformat(invocation["created_at"])
        insert = postgresql.insert if self._engine.dialect.name == "postgresql" else sqlite.insert
        with self._translated("written"), self._begin() as connection:
            connection.execute(insert(tool_invocation).values(**row).on_conflict_do_nothing(index_elements=["id"]))

    def invocations(self, *, limit: int = 20) -> list[Invocation]:
        """Return the newest invocations, newest first."""
        newest = sa.select(tool_invocation).order_by(tool_invocation.c.created_at.desc()).limit(limit)
        return self.read(lambda connection: [as_invocation(row) for row in connection.execute(newest).mappings()])

    def read(self, work: Callable[[sa.Connection], T]) -> T:
        """Return what `work` returns, given a connection to the database; its table is there.

        Raises:
            RecordError: the database cannot be read.
        """
        with self._translated("read"), self._begin() as connection:
            return work(connection)

    def close(self) -> None:
        """Close the connections of an engine made here."""
        if self._own:
            self._engine.dispose()

    @contextmanager
    def _begin(self) -> Iterator[sa.Connection]:
        with self._lock:
            if self._ready and self._was_replaced():
                self._engine.dispose()
                self._ready = False
            if not self._ready:
                self._prepare()
                self._ready = True
        with self._engine.begin() as connection:
            yield connection

    def _was_replaced(self) -> bool:
        """Say whether the file is another one than that opened: rows written to a deleted file would be lost silently."""
        return self._file is not None and _inode(self._file) != self._inode

    def _prepare(self) -> None:
        metadata.create_all(self._engine)
        present = {column["name"] for column in sa.inspect(self._engine).get_columns(tool_invocation.name)}
        missing = sorted(column.name for column in tool_invocation.columns if column.name not in present)
        if missing:
            listed = ", ".join(missing)
            raise RecordError(
                f"the table tool_invocation lacks the columns {listed}: use another database, or add them"
            )
        self._inode = _inode(self._file) if self._file else None

    @contextmanager
    def _translated(self, what: str) -> Iterator[None]:
        try:
            yield
        except (SQLAlchemyError, OSError) as error:
            cause = getattr(error, "orig", None) or error
            raise RecordError(f"invocations cannot be {what} ({type(cause).__name__}): check the database") from error


def _inode(path: Path) -> int | None:
    try:
        return path.stat().st_ino
    except OSError:
        return None


def _tune_sqlite(connection: Any, _: object) -> None:
    try:
        for pragma in ("busy_timeout = 5000", "journal_mode = WAL", "synchronous = NORMAL"):
            connection.execute(f"PRAGMA {pragma}")
    except BaseException:
        connection.close()  # the pool has not taken it in yet, so nobody else would
        raise


def _to_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def storable(value: Any) -> Any:
    """Return JSON data that every database takes: NaN and infinities become null, NUL and lone surrogates U+FFFD."""
    if isinstance(value, str):
        return _UNSTORABLE.sub("\ufffd", value)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {storable(key): storable(item) for key, item in value.items()}
    if isinstance(value, list):
        return [storable(item) for item in value]
    return value


def as_invocation(row: Any) -> Invocation:
    """Return a row of `tool_invocation` as it was recorded."""
    created = row["created_at"]
    moment = created.replace(tzinfo=UTC) if created.tzinfo is None else created.astimezone(UTC)
    return cast(Invocation, {**row, "created_at": moment.isoformat()})
