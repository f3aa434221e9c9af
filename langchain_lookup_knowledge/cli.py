"""The command `lookup-knowledge`; the only module that reads argv and prints."""

import argparse
import codecs
import io
import json
import os
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from langchain_lookup_knowledge import __version__
from langchain_lookup_knowledge.cleaning import counted
from langchain_lookup_knowledge.errors import LookupKnowledgeError
from langchain_lookup_knowledge.invocations import utc
from langchain_lookup_knowledge.types import Invocation, LookupOptions, Problem, RetrievalLayer, Status

if TYPE_CHECKING:
    from langchain_lookup_knowledge.inspector import Inspector
    from langchain_lookup_knowledge.knowledge_base import KnowledgeBase, SyncReport
    from langchain_lookup_knowledge.records import SQLInvocationRecorder
    from langchain_lookup_knowledge.stores import VectorIndex

DONE, NOTHING_FOUND, PROBLEMS_FOUND, CHANGED, USAGE = 0, 1, 1, 1, 2
_UNITS = {"d": "days", "h": "hours", "m": "minutes"}
ENTRY_SCOPE = "show only entries with this value in the frontmatter, and public ones; repeatable"
ASK_TIMEOUT = 30.0
"""Seconds L1 may take for `ask`: a person waits, and the first lookup of a process loads what it needs."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; return 0 done, 1 nothing or problems found, or changed, 2 usage or configuration error, 130 stopped."""
    arguments = _parser().parse_args(argv)
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # the caller closed it
            setattr(sys, name, Path(os.devnull).open("w"))  # noqa: SIM115  (as long as the process lives)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        status: int = arguments.run(arguments)
        sys.stdout.flush()  # or a closed pipe would be met after the end
    except (LookupKnowledgeError, ValueError) as error:
        print(f"lookup-knowledge: {error}", file=sys.stderr)
        return USAGE
    except OSError as error:
        if isinstance(error, BrokenPipeError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return DONE
        print(f"lookup-knowledge: {error.strerror or error}: {error.filename or ''}", file=sys.stderr)
        return USAGE
    except KeyboardInterrupt:
        print("lookup-knowledge: stopped", file=sys.stderr)
        return 130
    except Exception as error:  # noqa: BLE001  (a person at a terminal has no use for a traceback)
        print(f"lookup-knowledge: unexpected {type(error).__name__}: please report what you ran", file=sys.stderr)
        return USAGE
    return status


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="lookup-knowledge", description="Look up passages in a folder of Markdown files."
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    _add_index(commands)
    _add_ask(commands)
    _add_check(commands)
    _add_evaluate(commands)
    _add_invocations(commands)
    _add_readers_of_records(commands)
    _add_mcp(commands)
    return parser


def _add_index(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    index = commands.add_parser("index", help="bring the vector index in step with the folder; remembers its options")
    _add_folder(index)
    index.add_argument("--title", metavar="KEY,...", help="frontmatter keys of the title, tried in order")
    index.add_argument("--keywords", metavar="KEY,...", help="frontmatter keys of keywords")
    index.add_argument("--category", metavar="KEY,...", help="frontmatter keys of the category")
    index.add_argument("--entities", metavar="KEY,...", help="frontmatter keys of entities")
    index.add_argument(
        "--category-from-path", metavar="N", type=int, help="category from the first N folders of the path"
    )
    index.add_argument(
        "--skip-drafts", action=argparse.BooleanOptionalAction, help="leave files out whose frontmatter says draft"
    )
    index.add_argument("--model", metavar="NAME", help="FastEmbed model; fetched if it is not on this machine")
    index.add_argument(
        "--url", help="a Qdrant server instead of the embedded index; the key is read from QDRANT_API_KEY"
    )
    index.add_argument("--collection", help="its collection; by default the name of the folder")
    index.add_argument("--embedded", action="store_true", help="the embedded index again, after --url")
    index.add_argument("--rebuild", action="store_true", help="embed everything anew, also after a change of model")
    index.add_argument("--watch", action="store_true", help="stay, and index again whenever a file changes")
    index.add_argument("--allow-empty", action="store_true", help="let an empty folder empty the index")
    index.set_defaults(run=_index)


def _add_ask(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    ask = commands.add_parser("ask", help="answer a query")
    _add_folder(ask)
    ask.add_argument("query", metavar="QUERY", help="one argument: put it in quotes")
    ask.add_argument("-k", type=int, default=5, help="most matches (default 5)")
    _add_scope(ask)
    ask.add_argument("--no-l1", action="store_true", help="answer from keywords alone")
    ask.add_argument("--json", action="store_true", help="print the result as JSON")
    ask.set_defaults(run=_ask)


def _add_check(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    check = commands.add_parser(
        "check", help="show what was read and what could be better in the files; writes nothing"
    )
    _add_folder(check)
    check.add_argument("--json", action="store_true", help="print the report as JSON")
    check.set_defaults(run=_check)


def _add_evaluate(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    evaluate = commands.add_parser("eval", help="measure how well questions with known answers are answered")
    _add_folder(evaluate)
    evaluate.add_argument("questions", metavar="QUERIES.jsonl", help="a line each: id, query, relevant (entry ids)")
    evaluate.add_argument("--json", action="store_true", help="print the figures as JSON")
    evaluate.add_argument("--plot", metavar="FILE.png", type=Path, help="draw the figures (needs the extra [plot])")
    evaluate.set_defaults(run=_evaluate)


def _add_invocations(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    invocations = commands.add_parser("invocations", help="show recorded calls, newest first")
    invocations.add_argument(
        "folder", metavar="KB", nargs="?", default=".", help="the knowledge folder (default: this one)"
    )
    invocations.add_argument("--data-dir", help="where its data is, if not in the folder")
    invocations.add_argument("--db", metavar="URL", help="a record database, as an SQLAlchemy URL, instead of KB's")
    invocations.add_argument("--limit", type=_count, default=20, help="most rows (default 20)")
    invocations.add_argument("--json", action="store_true", help="print a JSON list")
    when = (
        "a date or time in ISO 8601 (UTC unless it says otherwise; a date alone is its beginning), or 7d, 12h, 30m ago"
    )
    invocations.add_argument("--since", metavar="TIME", type=_moment, help=f"calls made then or later: {when}")
    invocations.add_argument("--until", metavar="TIME", type=_moment, help="calls made before then")
    invocations.add_argument("--layer", choices=get_args(RetrievalLayer), help="calls that this layer answered")
    invocations.add_argument("--status", choices=get_args(Status), help="calls of this status")
    invocations.add_argument("--thread", metavar="ID", help="calls of this thread")
    upkeep = invocations.add_mutually_exclusive_group()
    upkeep.add_argument("--prune", metavar="TIME", type=_prune_moment, help="delete the calls made before, such as 90d")
    upkeep.add_argument("--redact", action="store_true", help="replace the queries already stored by their hash")
    upkeep.add_argument("--migrate", action="store_true", help="add the columns that an older table lacks")
    invocations.set_defaults(run=_invocations, kb=None)


def _add_readers_of_records(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    inspect = commands.add_parser("inspect", help="serve pages that show what was looked up, how, and what is missing")
    _add_records(inspect)
    inspect.add_argument("--host", default="127.0.0.1", help="address to serve on (default 127.0.0.1)")
    inspect.add_argument(
        "--port", type=_port, default=8477, help="port to serve on (default 8477; 0: any that is free)"
    )
    inspect.add_argument(
        "--token", help="secret that every request needs; required unless served to this machine alone"
    )
    inspect.set_defaults(run=_inspect)

    report = commands.add_parser("report", help="write the same pages into one file")
    _add_records(report)
    report.add_argument("--out", metavar="FILE.html", required=True, help="the file, written anew if it is a page")
    report.add_argument("--limit", type=_count, default=50, help="most lookups shown one by one (default 50)")
    report.set_defaults(run=_report)

    replay = commands.add_parser(
        "replay", help="run recorded queries again; tell what changed, with status 1 if any did"
    )
    _add_records(replay)
    replay.add_argument("--limit", type=_count, default=1000, help="most queries, newest first (default 1000)")
    replay.add_argument("--json", action="store_true", help="print the changes as JSON")
    replay.set_defaults(run=_replay)


def _add_records(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "folder", metavar="KB", nargs="?", help="the knowledge folder (default: this one, or none with --db)"
    )
    command.add_argument("--kb", metavar="KB", help="the same")
    command.add_argument("--data-dir", help="where its data is, if not in the folder")
    command.add_argument("--db", metavar="URL", help="a record database, as an SQLAlchemy URL, instead of KB's")
    _add_scope(command, "only calls of exactly this scope; repeatable")


def _add_mcp(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    serve = commands.add_parser("mcp", help="serve the lookup as an MCP tool, over stdio or HTTP")
    _add_folder(serve)
    serve.add_argument("-k", type=int, default=5, help="most matches (default 5)")
    _add_scope(serve)
    serve.add_argument("--no-l1", action="store_true", help="answer from keywords alone")
    serve.add_argument(
        "--http",
        metavar="[HOST:]PORT",
        type=_address,
        help="streamable HTTP at /mcp instead of stdio; the host is this machine alone (127.0.0.1) unless given",
    )
    serve.set_defaults(run=_mcp)


def _add_scope(command: argparse.ArgumentParser, what: str = ENTRY_SCOPE) -> None:
    command.add_argument("--scope", metavar="FIELD=VALUE", action="append", default=[], help=what)


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not port.isdecimal() or not 0 < int(port) < 65536:
        raise argparse.ArgumentTypeError(f"{text!r} is not [HOST:]PORT")
    return host.strip("[]") or "127.0.0.1", int(port)


def _count(text: str) -> int:
    if not text.isdecimal() or not 0 < int(text) <= 1_000_000:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of rows")
    return int(text)


def _prune_moment(text: str) -> datetime:
    if text.endswith("m"):
        raise argparse.ArgumentTypeError(f"{text!r} would be minutes: write days, such as 90d")
    return _moment(text)


def _moment(text: str) -> datetime:
    try:
        if ago := re.fullmatch(r"(\d{1,6})([dhm])", text):
            return datetime.now(UTC) - timedelta(**{_UNITS[ago[2]]: int(ago[1])})
        return utc(datetime.fromisoformat(text))
    except (ValueError, OverflowError) as error:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a time: write 2026-01-31, 2026-01-31T12:00, 7d or 12h"
        ) from error


def _port(text: str) -> int:
    if not text.isdecimal() or int(text) > 65_535:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port, 0 to 65535")
    return int(text)


def _add_folder(command: argparse.ArgumentParser) -> None:
    command.add_argument("folder", metavar="KB", help="the folder of Markdown files")
    command.add_argument("--data-dir", help="where the index and the records go, if not in the folder")


def _index(arguments: argparse.Namespace) -> int:
    with _open(arguments, sync=False) as kb:
        report = kb.sync(rebuild=arguments.rebuild, allow_empty=arguments.allow_empty)
        kb.remember()
        told = _print_problems(kb)
        print(_sync_line(report), flush=True)
        for later in kb.watch() if arguments.watch else ():
            told = _print_problems(kb, told)
            print(_sync_line(later), flush=True)
    return DONE


def _sync_line(report: "SyncReport") -> str:
    entries, embedded = counted(report.entries, "entry", "entries"), counted(report.embedded, "passage", "passages")
    return f"{entries}; {report.renewed} new or changed, {report.removed} removed; {embedded} embedded"


def _open(arguments: argparse.Namespace, *, sync: bool) -> "KnowledgeBase":
    """Open the knowledge base with what `index` remembered, but for the options given now."""
    from langchain_lookup_knowledge.data_folder import find_data_folder, read_settings, remembered_fields  # noqa: PLC0415
    from langchain_lookup_knowledge.knowledge_base import KnowledgeBase  # noqa: PLC0415

    data_folder = find_data_folder(arguments.folder, arguments.data_dir)
    settings = read_settings(data_folder)
    return KnowledgeBase.open(
        arguments.folder,
        index=None if getattr(arguments, "no_l1", False) else _index_meant(arguments, settings, data_folder),
        embedding=getattr(arguments, "model", None),
        fields=replace(remembered_fields(settings), **_given_fields(arguments)),
        data_dir=arguments.data_dir,
        sync=sync,
    )


def _look(arguments: argparse.Namespace) -> "KnowledgeBase":
    """Read the folder as it is indexed, and write nothing."""
    from langchain_lookup_knowledge.data_folder import find_data_folder, read_settings  # noqa: PLC0415
    from langchain_lookup_knowledge.knowledge_base import KnowledgeBase  # noqa: PLC0415

    data_folder = find_data_folder(arguments.folder, arguments.data_dir, make=False)
    index = _index_meant(arguments, read_settings(data_folder), data_folder)
    return KnowledgeBase.look(arguments.folder, index=index, data_dir=arguments.data_dir)


def _index_meant(arguments: argparse.Namespace, settings: dict[str, Any], data_folder: Path) -> "VectorIndex":
    """Return the index of the options, or else the remembered one; a server's key is in the environment."""
    from langchain_lookup_knowledge.data_folder import remembered_index  # noqa: PLC0415
    from langchain_lookup_knowledge.qdrant_index import QdrantIndex  # noqa: PLC0415

    url, collection = getattr(arguments, "url", None), getattr(arguments, "collection", None)
    api_key = os.environ.get("QDRANT_API_KEY")
    if collection and not url:
        raise ValueError("--collection names a collection on a server: give --url too")
    if url == ":memory:":
        raise ValueError("--url :memory: would be gone with this command: leave --url out for an index on disk")
    if url:
        return QdrantIndex(url, collection or Path(arguments.folder).absolute().name, api_key=api_key)
    if getattr(arguments, "embedded", False):
        settings = {}
    index = remembered_index(settings, data_folder, api_key=api_key)
    if api_key and isinstance(index, QdrantIndex) and index.url != os.environ.get("QDRANT_URL"):
        print(  # whoever made the folder may have named it
            f"note: QDRANT_API_KEY is not sent to {index.url}, which the folder names: set QDRANT_URL to it",
            file=sys.stderr,
        )
        index = remembered_index(settings, data_folder)
    return index


def _given_fields(arguments: argparse.Namespace) -> dict[str, Any]:
    given: dict[str, Any] = {
        name: tuple(key.strip() for key in value.split(",") if key.strip())
        for name in ("title", "keywords", "category", "entities")
        if (value := getattr(arguments, name, None)) is not None
    }
    kept = {name: getattr(arguments, name, None) for name in ("category_from_path", "skip_drafts")}
    return given | {name: value for name, value in kept.items() if value is not None}


def _print_json(value: Any) -> None:
    """Print JSON, in ASCII where standard output does not take every character."""
    is_utf8 = codecs.lookup(sys.stdout.encoding).name == "utf-8"
    print(json.dumps(value, ensure_ascii=not is_utf8, indent=2))


def _print_problems(kb: "KnowledgeBase", told: Sequence[Problem] = ()) -> list[Problem]:
    """Print the problems that were not told yet, and return all there are."""
    problems = kb.problems
    for problem in problems:
        if problem not in told:
            print(f"note: {problem}", file=sys.stderr)
    return problems


def _ask(arguments: argparse.Namespace) -> int:
    from langchain_lookup_knowledge.graph import create_lookup_knowledge_graph  # noqa: PLC0415
    from langchain_lookup_knowledge.rendering import render  # noqa: PLC0415

    scope = _scope(arguments.scope)
    options = LookupOptions(k=arguments.k, l1_timeout=ASK_TIMEOUT, scope_fields=tuple(scope))
    with _open(arguments, sync=True) as kb:
        if count := len(kb.problems):
            unused = counted(count, "file or field was", "files or fields were")
            print(f"note: {unused} not used as written: see `lookup-knowledge check`", file=sys.stderr)
        result: Any = create_lookup_knowledge_graph(kb, options=options).invoke(
            {"query": arguments.query}, {"configurable": scope}
        )
    if arguments.json:
        _print_json(result)
    else:
        print(render(result, options.max_chars))
    return DONE if result["matches"] else NOTHING_FOUND


def _check(arguments: argparse.Namespace) -> int:
    with _look(arguments) as kb:
        report, problems, lints = kb.load_report, kb.problems, kb.lints()
    if arguments.json:
        counts = {"seen": report.seen, "loaded": report.loaded}
        lists = {"skipped": report.skipped, "problems": problems, "lints": lints}
        shown = counts | {name: [asdict(problem) for problem in found] for name, found in lists.items()}
        _print_json(shown)
    else:
        for problem in (*problems, *lints):
            print(problem)
        seen, found = counted(report.seen, "file", "files"), counted(len(problems), "problem", "problems")
        print(f"{seen} seen: {report.loaded} loaded, {len(report.skipped)} skipped")
        print(f"{found}, {len(lints)} that could be better")
    return PROBLEMS_FOUND if problems or lints else DONE


def _evaluate(arguments: argparse.Namespace) -> int:
    from langchain_lookup_knowledge import evaluation  # noqa: PLC0415

    questions = evaluation.read_questions(Path(arguments.questions))
    with _open(arguments, sync=True) as kb:
        figures = evaluation.evaluate(kb, questions)
    if arguments.plot:
        evaluation.plot(figures, arguments.plot)
    if arguments.json:
        _print_json(figures)
    else:
        print("\n".join(evaluation.table(figures)))
    return DONE


def _invocations(arguments: argparse.Namespace) -> int:
    filters = {name: getattr(arguments, name) for name in ("since", "until", "layer", "status")}
    filters["thread_id"] = arguments.thread
    upkeep = arguments.prune or arguments.redact or arguments.migrate
    if upkeep and any(value is not None for value in filters.values()):
        raise ValueError("--prune, --redact and --migrate take no filter: leave the filters out")
    recorder = _recorder(arguments)
    if recorder is None:
        return NOTHING_FOUND
    with closing(recorder):
        if upkeep:
            print(_upkeep(recorder, arguments))
            return DONE
        rows = recorder.invocations(limit=arguments.limit, **filters)
        if waiting := recorder.waiting():
            print(f"note: calls that wait until the database takes them: {waiting}", file=sys.stderr)
    if arguments.json:
        _print_json(rows)
    else:
        print("\n".join(map(_line, rows)) or "no such call has been recorded")
    return DONE if rows else NOTHING_FOUND


def _upkeep(recorder: "SQLInvocationRecorder", arguments: argparse.Namespace) -> str:
    """Prune, redact or migrate; return what was done."""
    if arguments.prune:
        return f"calls deleted: {recorder.prune(arguments.prune)}"
    if arguments.redact:
        return f"calls redacted: {recorder.redact()}"
    added = recorder.migrate()
    return f"columns added: {', '.join(added)}" if added else "the table is as it should be"


def _recorder(arguments: argparse.Namespace) -> "SQLInvocationRecorder | None":
    """Return the records meant, or None, told, where there are none; sets `folder` to the knowledge folder meant."""
    from langchain_lookup_knowledge.data_folder import find_data_folder  # noqa: PLC0415
    from langchain_lookup_knowledge.records import SQLInvocationRecorder  # noqa: PLC0415

    if arguments.kb and arguments.folder:
        raise ValueError("KB and --kb both name the knowledge folder: give one of them")
    arguments.folder = arguments.kb or arguments.folder or (None if arguments.db else ".")
    if arguments.db:
        recorder = SQLInvocationRecorder(arguments.db)
    else:
        data_folder = find_data_folder(arguments.folder, arguments.data_dir, make=False)
        recorder = SQLInvocationRecorder.in_file(data_folder / "invocations.db")
    if recorder.is_new():
        whose = "" if arguments.db else f" for the folder {arguments.folder}"
        print(f"no call has been recorded{whose}: there is no file {recorder.file}", file=sys.stderr)
        return None
    return recorder


@contextmanager
def _inspector(arguments: argparse.Namespace) -> "Iterator[Inspector | None]":
    try:
        from langchain_lookup_knowledge.inspector import Inspector  # noqa: PLC0415
    except ImportError as error:
        raise ValueError(f"{error.name} is not installed: pip install 'langchain-lookup-knowledge[inspect]'") from error
    from langchain_lookup_knowledge.history import History  # noqa: PLC0415

    recorder = _recorder(arguments)
    if recorder is None:
        yield None
        return
    opener = (lambda: _open(arguments, sync=True)) if arguments.folder else None
    looker = (lambda: _look(arguments)) if arguments.folder else None
    with closing(recorder):
        history = History(recorder, _scope(arguments.scope))
        with closing(Inspector(history, opener, looker)) as inspector:
            yield inspector


def _scope(given: Sequence[str]) -> dict[str, str]:
    pairs = [text.partition("=") for text in given]
    if any(not (name and equals) for name, equals, _ in pairs):
        raise ValueError("--scope takes FIELD=VALUE, such as tenant=north")
    if len({name for name, _, _ in pairs}) < len(pairs):
        raise ValueError("--scope names a field twice: one value a field")
    return {name: value for name, _, value in pairs}


def _inspect(arguments: argparse.Namespace) -> int:
    with _inspector(arguments) as inspector:
        if inspector is None:
            return NOTHING_FOUND
        inspector.serve(
            arguments.host, arguments.port, arguments.token, started=lambda url: print(f"serving {url}", flush=True)
        )
    return DONE


def _report(arguments: argparse.Namespace) -> int:
    with _inspector(arguments) as inspector:
        if inspector is None:
            return NOTHING_FOUND
        out = Path(arguments.out)
        if out.is_file() and not re.match(rb"\s*(<!doctype html|$)", _start(out), re.IGNORECASE):
            raise ValueError(f"{out} is there already, and is no HTML page: name another file")
        out.write_text(inspector.report(arguments.limit), "utf-8")
    return DONE


def _start(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(100)


def _replay(arguments: argparse.Namespace) -> int:
    from langchain_lookup_knowledge import replay  # noqa: PLC0415
    from langchain_lookup_knowledge.history import History  # noqa: PLC0415

    recorder = _recorder(arguments)
    if recorder is None:
        return USAGE
    with closing(recorder):
        if arguments.folder is None:
            raise ValueError("replay asks a knowledge base: give its folder with --kb")
        rows, left_out = History(recorder, _scope(arguments.scope)).newest_answers(arguments.limit)
    if not rows:
        raise ValueError("there is no recorded query to run again")
    with _open(arguments, sync=True) as kb:
        found = [(row, changed) for row, changed in replay.replay(kb, rows) if changed]
    if arguments.json:
        listed = [{"query": row["query"], "invocation_id": row["id"], "changes": changed} for row, changed in found]
        figures = {"queries": len(rows), "changed": len(found), "left_out": left_out, "changes": listed}
        _print_json(figures)
    else:
        for row, changed in found:
            print("\n  ".join([repr(_short_query(row["query"])), *map(_printable, replay.told(changed))]))
        print(f"{counted(len(rows), 'query', 'queries')} run again: {len(found)} changed")
    if left_out:
        queries = counted(left_out, "query was", "queries were")
        print(f"note: {queries} left out: L1 failed each time, refused, invalid or hashed", file=sys.stderr)
    return CHANGED if found else DONE


def _mcp(arguments: argparse.Namespace) -> int:
    """Serve until the client goes or the keyboard stops it; standard output carries the protocol alone."""
    try:
        from langchain_lookup_knowledge import mcp_server  # noqa: PLC0415
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] not in ("mcp", "mcp_types"):
            raise
        raise ValueError("`mcp` needs an extra: pip install 'langchain-lookup-knowledge[mcp]'") from error
    scope = _scope(arguments.scope)
    with _open(arguments, sync=True) as kb:
        options = LookupOptions(k=arguments.k, scope_fields=tuple(scope))
        server = mcp_server.create_mcp_server(kb, options=options, scope=scope)
        if arguments.http is None:
            server.run("stdio")
            return DONE
        host, port = arguments.http

        def started(url: str) -> None:
            print(f"serving {kb.folder.name!r} at {url}", file=sys.stderr)
            if host not in ("127.0.0.1", "localhost", "::1"):
                print("note: whoever reaches this address can read the knowledge base", file=sys.stderr)

        mcp_server.serve_http(server, host, port, started=started)
    return DONE


def _line(row: Invocation) -> str:
    found = row["primary_entry_id"] or "-"
    query = _short_query(row["query"] or "-")
    created = f"{row['created_at'][:19]}Z" if row["created_at"] else "-"
    return (
        f"{created:<20}  {row['status'] or '-':<13} {row['retrieval_layer'] or '-':<5} L1 {row['l1_status'] or '-':<15} "
        f"{row['duration_ms'] or 0:7.1f} ms  {query!r} -> {found}"
    )


def _short_query(query: str) -> str:
    return " ".join(query.split())[:60]


def _printable(text: str) -> str:
    return "".join(character if character.isprintable() else "\ufffd" for character in text)


if __name__ == "__main__":
    sys.exit(main())
