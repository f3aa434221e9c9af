"""The commands about recorded lookups: invocations, inspect, report, replay."""

import argparse
import json
import re
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, get_args

from langchain_lookup_knowledge.errors import install_hint
from langchain_lookup_knowledge.integrations.command_line.opening import open_kb, open_kb_read_only
from langchain_lookup_knowledge.integrations.command_line.options import (
    Commands,
    add_scope,
    moment,
    port_number,
    prune_moment,
    row_count,
    scope_of,
)
from langchain_lookup_knowledge.integrations.command_line.output import (
    CHANGED,
    DONE,
    NOTHING_FOUND,
    USAGE,
    print_json,
    printable,
    short_query,
)
from langchain_lookup_knowledge.text.wording import counted, shorten
from langchain_lookup_knowledge.types import Invocation, RecordedStatus, RetrievalLayer

if TYPE_CHECKING:
    from langchain_lookup_knowledge.inspector.app import Inspector
    from langchain_lookup_knowledge.records.recorder import SQLInvocationRecorder


def add_commands(commands: Commands) -> None:
    """Add the commands invocations, feedback, inspect, report and replay."""
    _add_invocations(commands)
    _add_feedback(commands)
    _add_inspect(commands)
    _add_report(commands)
    _add_replay(commands)


def _add_invocations(commands: Commands) -> None:
    invocations = commands.add_parser(
        "invocations", help="show recorded lookups and reads, newest first"
    )
    invocations.add_argument(
        "folder",
        metavar="KB",
        nargs="?",
        default=".",
        help="the knowledge folder (default: this one)",
    )
    _add_database(invocations)
    invocations.add_argument(
        "--limit", type=row_count, default=20, help="maximum number of rows (default 20)"
    )
    invocations.add_argument("--json", action="store_true", help="print a JSON list")
    when = "ISO 8601 (UTC by default; a date means its start), or an age such as 7d, 12h or 30m"
    invocations.add_argument(
        "--since", metavar="TIME", type=moment, help=f"lookups made at or after this time: {when}"
    )
    invocations.add_argument(
        "--until", metavar="TIME", type=moment, help="lookups made before this time"
    )
    invocations.add_argument(
        "--layer", choices=get_args(RetrievalLayer), help="lookups that this layer answered"
    )
    invocations.add_argument(
        "--status", choices=get_args(RecordedStatus), help="lookups with this status"
    )
    invocations.add_argument("--thread", metavar="ID", help="lookups of this thread")
    upkeep = invocations.add_mutually_exclusive_group()
    upkeep.add_argument(
        "--prune",
        metavar="TIME",
        type=prune_moment,
        help="delete the lookups made before this time; 90d: older than 90 days",
    )
    upkeep.add_argument(
        "--redact", action="store_true", help="replace the stored queries by their hashes"
    )
    upkeep.add_argument("--migrate", action="store_true", help="bring an older table up to date")
    invocations.set_defaults(run=_invocations, kb=None)


def _add_feedback(commands: Commands) -> None:
    feedback = commands.add_parser(
        "feedback", help="say whether the answer of a recorded lookup was right"
    )
    feedback.add_argument("folder", metavar="KB", help="the knowledge folder")
    feedback.add_argument(
        "invocation",
        metavar="ID",
        nargs="?",
        help="the id of the lookup; without it, the answers called right are printed as questions "
        "for eval",
    )
    given = feedback.add_mutually_exclusive_group()
    given.add_argument("--right", action="store_true", help="its first match was right")
    given.add_argument("--wrong", action="store_true", help="its first match was wrong")
    feedback.add_argument("--note", metavar="TEXT", default="", help="what was right or wrong")
    _add_database(feedback)
    feedback.set_defaults(run=_feedback, kb=None)


def _feedback(arguments: argparse.Namespace) -> int:
    from langchain_lookup_knowledge.records import feedback  # noqa: PLC0415

    if bool(arguments.invocation) != (arguments.right or arguments.wrong):
        raise ValueError("give the ID of a lookup together with --right or --wrong")
    recorder = _recorder(arguments)
    if recorder is None:
        return NOTHING_FOUND
    with closing(recorder):
        if arguments.invocation:
            feedback.give(
                recorder, arguments.invocation, right=arguments.right, note=arguments.note
            )
            return DONE
        found = feedback.questions(recorder)
    for question in found:
        print(json.dumps(question, ensure_ascii=True))
    return DONE if found else NOTHING_FOUND


def _add_inspect(commands: Commands) -> None:
    inspect = commands.add_parser(
        "inspect", help="serve pages that show lookups, how they were answered, and gaps"
    )
    _add_records(inspect)
    inspect.add_argument(
        "--host", default="127.0.0.1", help="address to serve on (default 127.0.0.1)"
    )
    inspect.add_argument(
        "--port",
        type=port_number,
        default=8477,
        help="port to serve on (default 8477; 0: any free port)",
    )
    inspect.add_argument(
        "--token",
        help="secret that every request needs; required if other machines can reach the host",
    )
    inspect.add_argument(
        "--open-with",
        choices=("vscode", "file", "none"),
        default="vscode",
        help="links that open a file: vscode:// (default), file://, or none",
    )
    inspect.set_defaults(run=_inspect)


def _add_report(commands: Commands) -> None:
    report = commands.add_parser("report", help="write the pages of inspect into one file")
    _add_records(report)
    report.add_argument(
        "--out",
        metavar="FILE.html",
        required=True,
        help="the file; overwritten only if it is an HTML page",
    )
    report.add_argument(
        "--limit",
        type=row_count,
        default=50,
        help="maximum number of lookups in detail (default 50)",
    )
    report.set_defaults(run=_report)


def _add_replay(commands: Commands) -> None:
    replay = commands.add_parser(
        "replay", help="run recorded queries again and show changes; status 1 if there are any"
    )
    _add_records(replay)
    replay.add_argument(
        "--limit",
        type=row_count,
        default=1000,
        help="maximum number of queries, newest first (default 1000)",
    )
    replay.add_argument("--json", action="store_true", help="print the changes as JSON")
    replay.set_defaults(run=_replay)


def _add_records(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "folder",
        metavar="KB",
        nargs="?",
        help="the knowledge folder (default: this one, or none with --db)",
    )
    command.add_argument("--kb", metavar="KB", help="the same")
    _add_database(command)
    add_scope(command, "only lookups of exactly this scope; repeatable")


def _add_database(command: argparse.ArgumentParser) -> None:
    command.add_argument("--data-dir", help="folder of its data, if not inside KB")
    command.add_argument(
        "--db", metavar="URL", help="a record database, as an SQLAlchemy URL, instead of KB's"
    )


def _invocations(arguments: argparse.Namespace) -> int:
    filters = {name: getattr(arguments, name) for name in ("since", "until", "layer", "status")}
    filters["thread_id"] = arguments.thread
    upkeep = arguments.prune or arguments.redact or arguments.migrate
    if upkeep and any(value is not None for value in filters.values()):
        raise ValueError("--prune, --redact and --migrate take no filter: leave out the filters")
    _set_folder(arguments)
    recorder = _recorder(arguments)
    if recorder is None:
        return NOTHING_FOUND
    with closing(recorder):
        if upkeep:
            print(_upkeep(recorder, arguments))
            return DONE
        rows = recorder.invocations(limit=arguments.limit, **filters)
        if waiting := recorder.waiting():
            records = counted(waiting, "record is", "records are")
            print(f"note: {records} waiting in the spool", file=sys.stderr)
    if arguments.json:
        print_json(rows)
    else:
        print("\n".join(map(_line, rows)) or "no such lookup has been recorded")
    return DONE if rows else NOTHING_FOUND


def _upkeep(recorder: "SQLInvocationRecorder", arguments: argparse.Namespace) -> str:
    """Prune, redact or migrate the database as requested; return a sentence about the result."""
    if arguments.prune:
        return f"lookups deleted: {recorder.prune(arguments.prune)}"
    if arguments.redact:
        return f"lookups redacted: {recorder.redact()}"
    added = recorder.migrate()
    return f"added: {', '.join(added)}" if added else "the table is up to date"


def _set_folder(arguments: argparse.Namespace) -> None:
    """Set `folder` to the requested knowledge folder, or to None if only a database was given."""
    if arguments.kb and arguments.folder:
        raise ValueError("KB and --kb both name the knowledge folder: give one of them")
    arguments.folder = arguments.kb or arguments.folder or (None if arguments.db else ".")


def _recorder(arguments: argparse.Namespace) -> "SQLInvocationRecorder | None":
    """Open the requested record database; if it does not exist, print a note and return None."""
    from langchain_lookup_knowledge.data_folder import find_data_folder  # noqa: PLC0415
    from langchain_lookup_knowledge.records.recorder import SQLInvocationRecorder  # noqa: PLC0415

    if arguments.db:
        recorder = SQLInvocationRecorder(arguments.db)
    else:
        data_folder = find_data_folder(arguments.folder, arguments.data_dir, make=False)
        recorder = SQLInvocationRecorder.in_file(data_folder / "invocations.db")
    if recorder.is_new():
        whose = "" if arguments.db else f" for the folder {arguments.folder}"
        nothing = f"no lookup has been recorded{whose}: there is no file {recorder.file}"
        print(nothing, file=sys.stderr)
        return None
    return recorder


@contextmanager
def _inspector(arguments: argparse.Namespace) -> "Iterator[Inspector | None]":
    try:
        from langchain_lookup_knowledge.inspector.app import Inspector  # noqa: PLC0415
    except ImportError as error:
        raise ValueError(f"{error.name} is not installed: {install_hint('inspect')}") from error
    from langchain_lookup_knowledge.records.history import History  # noqa: PLC0415

    _set_folder(arguments)
    recorder = _recorder(arguments)
    if recorder is None:
        yield None
        return
    opener = (lambda: open_kb(arguments, sync=True)) if arguments.folder else None
    looker = (lambda: open_kb_read_only(arguments)) if arguments.folder else None
    with closing(recorder):
        history = History(recorder, scope_of(arguments.scope))
        inspected = Inspector(
            history,
            opener,
            looker,
            name=Path(arguments.folder).resolve().name if arguments.folder else "",
            opener={"none": None}.get(links := getattr(arguments, "open_with", "none"), links),
        )
        with closing(inspected) as inspector:
            yield inspector


def _inspect(arguments: argparse.Namespace) -> int:
    with _inspector(arguments) as inspector:
        if inspector is None:
            return NOTHING_FOUND
        inspector.serve(
            arguments.host,
            arguments.port,
            arguments.token,
            started=lambda url: print(f"serving {url}", flush=True),
        )
    return DONE


def _report(arguments: argparse.Namespace) -> int:
    with _inspector(arguments) as inspector:
        if inspector is None:
            return NOTHING_FOUND
        out = Path(arguments.out)
        if out.is_file() and not re.match(rb"\s*(<!doctype html|$)", _start(out), re.IGNORECASE):
            raise ValueError(f"{out} exists and is not an HTML page: choose another file")
        out.write_text(inspector.report(arguments.limit), "utf-8")
        print(f"wrote {out}")
    return DONE


def _start(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(100)


def _replay(arguments: argparse.Namespace) -> int:
    from langchain_lookup_knowledge import replay  # noqa: PLC0415
    from langchain_lookup_knowledge.records.history import History  # noqa: PLC0415

    _set_folder(arguments)
    recorder = _recorder(arguments)
    if recorder is None:
        return USAGE
    with closing(recorder):
        if arguments.folder is None:
            raise ValueError("replay needs a knowledge base: give its folder with --kb")
        rows, left_out = History(recorder, scope_of(arguments.scope)).newest_answers(
            arguments.limit
        )
    if not rows:
        raise ValueError("there is no recorded query to run again")
    with open_kb(arguments, sync=True) as kb:
        found = [(row, changed) for row, changed in replay.replay(kb, rows) if changed]
    if arguments.json:
        changes = [
            {"query": row["query"], "invocation_id": row["id"], "changes": changed}
            for row, changed in found
        ]
        figures = {"queries": len(rows), "changed": len(found), "left_out": left_out}
        print_json({**figures, "changes": changes})
    else:
        for row, changed in found:
            print(repr(short_query(row["query"])))
            for line in replay.format_changes(changed):
                print(f"  {printable(line)}")
        print(f"{counted(len(rows), 'query', 'queries')} run again: {len(found)} changed")
    if left_out:
        queries = counted(left_out, "query was", "queries were")
        print(
            f"note: {queries} left out: L1 failed, refused, invalid, hashed or unreadable",
            file=sys.stderr,
        )
    return CHANGED if found else DONE


def _line(row: Invocation) -> str:
    from langchain_lookup_knowledge.records.rows import is_read, scope_of, unreadable  # noqa: PLC0415

    found = row["primary_entry_id"] or "-"
    query = short_query(row["query"] or "-")
    created = f"{row['created_at'][:19]}Z" if row["created_at"] else "-"
    searched = not is_read(row)
    layer = (row["retrieval_layer"] or "-") if searched else "read"
    l1 = (row["l1_status"] or "-") if searched else "-"
    outcome = f"{row['status'] or '-':<13} {layer:<5}"
    duration = f"{row['duration_ms'] or 0:7.1f} ms"
    tool = row["tool_name"] or "-"
    line = f"{created:<20}  {outcome} L1 {l1:<15} {duration}  {tool}"
    scope = scope_of(row["retrieval_details"].get("scope"))
    pairs = shorten(", ".join(f"{field}={value}" for field, value in scope.items()), 200)
    line = f"{line}  {query!r} -> {found}{f' [{pairs}]' if pairs else ''}"
    odd = ", ".join(unreadable(row))
    return printable(f"{line}{f'  (unreadable: {odd})' if odd else ''}")
