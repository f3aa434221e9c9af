"""What people say of answers: right or wrong, and why; and the gaps that they closed."""

import json
import logging
import warnings
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite
from typing_extensions import TypedDict

from langchain_lookup_knowledge.records.invocations import hash_of, is_hashed, utc
from langchain_lookup_knowledge.records.recorder import SQLInvocationRecorder
from langchain_lookup_knowledge.records.rows import as_invocation, is_read, text_of
from langchain_lookup_knowledge.records.selection import raw_columns
from langchain_lookup_knowledge.records.table import tool_feedback, tool_gap, tool_invocation
from langchain_lookup_knowledge.text.storable import storable

logger = logging.getLogger("langchain_lookup_knowledge")

MAX_NOTE_CHARS = 2000
TRACE_KEY = "first_match_right"
"""The name of the feedback in LangSmith."""
TRACE_MS = 3000
"""Maximum milliseconds for sending feedback to LangSmith."""
_INSERTS: dict[str, Any] = {"sqlite": sqlite.insert, "postgresql": postgresql.insert}


class Feedback(TypedDict):
    """What a person said of the answer of a lookup; `created_at` is in ISO 8601, UTC."""

    invocation_id: str
    right: bool
    note: str
    created_at: str


def give(
    recorder: SQLInvocationRecorder, invocation_id: str, *, right: bool, note: str = ""
) -> None:
    """Store whether the first match of a lookup was right; earlier feedback on it is replaced.

    If tracing is on, the run of the lookup in LangSmith gets the same feedback. The note, which may
    quote the query, is dropped if the recorder redacts, or if the query is stored as a hash.

    Raises:
        RecordError: the database cannot be written.
        ValueError: no such lookup is recorded, or an argument is of the wrong kind.
    """
    if not isinstance(right, bool) or not isinstance(note, str):
        raise ValueError("feedback takes right=True or right=False, and a note that is a text")
    given = storable(note.strip())[:MAX_NOTE_CHARS] or None
    row = {"invocation_id": invocation_id, "is_right": right, "created_at": datetime.now(UTC)}

    def write(connection: sa.Connection) -> tuple[str | None, str | None]:
        known = sa.select(*raw_columns(connection.dialect.name))
        known = known.where(tool_invocation.c.id == invocation_id)
        found = connection.execute(known).mappings().first()
        if found is None:
            raise ValueError(f"no lookup with the id {invocation_id!r} is recorded")
        if is_read(as_invocation(found)):
            raise ValueError("feedback is on lookups, and this is a call of the read tool")
        query = text_of(found["query"]) or ""
        kept = None if recorder.redacts or is_hashed(query) else given
        _put(connection, tool_feedback, {**row, "note": kept})
        return text_of(found["run_id"]), kept

    recorder.migrate()  # an older database has no table of feedback
    run_id, kept = recorder.read(write)
    if run_id:
        _trace(run_id, right=right, note=kept)


def give_in_folder(data_folder: Path, invocation_id: str, *, right: bool, note: str) -> None:
    """Do the same as `give`, in the records of a data folder."""
    with closing(SQLInvocationRecorder.in_file(data_folder / "invocations.db")) as recorder:
        if recorder.is_new():
            raise ValueError(f"no lookup is recorded in {data_folder}")
        give(recorder, invocation_id, right=right, note=note)


def _trace(run_id: str, *, right: bool, note: str | None) -> None:
    """Give feedback to the run in LangSmith, if tracing is on; a failure is only logged."""
    from langsmith import Client, get_tracing_context  # noqa: PLC0415
    from langsmith.utils import tracing_is_enabled  # noqa: PLC0415

    if not tracing_is_enabled():
        return
    try:
        client = get_tracing_context()["client"] or Client(timeout_ms=TRACE_MS)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the project of the run, which it asks for, is unknown
            client.create_feedback(
                run_id, key=TRACE_KEY, score=float(right), comment=note, stop_after_attempt=1
            )
    except Exception as error:  # the feedback itself is stored
        logger.debug("LangSmith did not take the feedback", exc_info=True)
        logger.warning("LangSmith did not take the feedback: %s", type(error).__name__)


def feedback_on(recorder: SQLInvocationRecorder, ids: Iterable[str]) -> dict[str, Feedback]:
    """Return the feedback on these invocations, by their ids."""
    chosen = sa.select(tool_feedback).where(tool_feedback.c.invocation_id.in_(list(ids)))
    rows = _rows(recorder, chosen)
    return {
        row.invocation_id: {
            "invocation_id": row.invocation_id,
            "right": bool(row.is_right),
            "note": row.note or "",
            "created_at": utc(row.created_at).isoformat(),
        }
        for row in rows
    }


def judgments(recorder: SQLInvocationRecorder) -> dict[str, bool]:
    """Return whether people called answers right, by the ids of the invocations."""
    rows = _rows(recorder, sa.select(tool_feedback.c.invocation_id, tool_feedback.c.is_right))
    return {row.invocation_id: bool(row.is_right) for row in rows}


def questions(recorder: SQLInvocationRecorder) -> list[dict[str, Any]]:
    """Return the queries whose first match was called right, as questions for an evaluation.

    Each has `id`, `query` and `relevant`, the entries that were right for this query. A query that
    is stored as a hash is left out.
    """
    chosen = (
        sa.select(tool_invocation.c.query, tool_invocation.c.primary_entry_id)
        .join(tool_feedback, tool_feedback.c.invocation_id == tool_invocation.c.id)
        .where(tool_feedback.c.is_right, tool_invocation.c.primary_entry_id.is_not(None))
        .order_by(tool_feedback.c.created_at, tool_feedback.c.invocation_id)
    )
    found: dict[str, dict[str, None]] = {}
    for query, entry_id in _rows(recorder, chosen):
        text = text_of(query) or ""
        if text.strip() and not is_hashed(text):
            found.setdefault(text, {})[text_of(entry_id) or ""] = None
    return [
        {"id": f"feedback-{number}", "query": query, "relevant": list(relevant)}
        for number, (query, relevant) in enumerate(found.items(), start=1)
    ]


def questions_in_folder(data_folder: Path) -> list[dict[str, Any]]:
    """Return the questions in the records of a data folder."""
    with closing(SQLInvocationRecorder.in_file(data_folder / "invocations.db")) as recorder:
        return [] if recorder.is_new() else questions(recorder)


def gap_key(query: str, scope: Mapping[str, str]) -> str:
    """Return the key under which a query is marked as done: its hash or, with a scope, the hash of
    both.
    """
    key = hash_of(query)
    return hash_of(f"{key} {json.dumps(sorted(scope.items()))}") if scope else key


def mark_done(recorder: SQLInvocationRecorder, keys: Iterable[str], *, done: bool) -> None:
    """Mark queries without a good match, given by their `gap_key`, as done, or as open again.

    Raises:
        RecordError: the database cannot be written.
    """
    marked = set(keys)

    def write(connection: sa.Connection) -> None:
        connection.execute(sa.delete(tool_gap).where(tool_gap.c.query_hash.in_(marked)))
        if done:
            now = datetime.now(UTC)
            connection.execute(
                sa.insert(tool_gap), [{"query_hash": key, "done_at": now} for key in marked]
            )

    recorder.migrate()
    recorder.read(write)


def done_at(recorder: SQLInvocationRecorder) -> dict[str, datetime]:
    """Return when each query was marked as done, by its `gap_key`."""
    chosen = sa.select(tool_gap)
    rows = _rows(recorder, chosen)
    return {row.query_hash: utc(row.done_at) for row in rows}


def _rows(recorder: SQLInvocationRecorder, chosen: sa.Select[Any]) -> Sequence[Any]:
    """Return the chosen rows; none if an older table was not brought up to date."""

    def read(connection: sa.Connection) -> Sequence[Any]:
        known = sa.inspect(connection).has_table(tool_feedback.name)
        return connection.execute(chosen).all() if known else []

    return recorder.read(read)


def _put(connection: sa.Connection, table: sa.Table, row: dict[str, Any]) -> None:
    insert = _INSERTS[connection.dialect.name](table).values(row)
    (key,) = table.primary_key.columns
    others = {name: value for name, value in row.items() if name != key.name}
    connection.execute(insert.on_conflict_do_update(index_elements=[key.name], set_=others))
