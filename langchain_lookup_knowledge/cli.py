"""The command `lookup-knowledge`; the only module that reads argv and prints."""

import argparse
import io
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from langchain_lookup_knowledge import __version__
from langchain_lookup_knowledge.errors import LookupKnowledgeError
from langchain_lookup_knowledge.types import Invocation, LookupOptions

if TYPE_CHECKING:
    from langchain_lookup_knowledge.knowledge_base import KnowledgeBase, SyncReport
    from langchain_lookup_knowledge.stores import VectorIndex

DONE, NOTHING_FOUND, USAGE = 0, 1, 2
ASK_TIMEOUT = 30.0
"""Seconds L1 may take for `ask`: a person waits, and the first lookup of a process loads what it needs."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; return 0 done, 1 nothing found, 2 usage or configuration error, 130 stopped at the keyboard."""
    arguments = _parser().parse_args(argv)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        status: int = arguments.run(arguments)
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

    index = commands.add_parser("index", help="bring the vector index in step with the folder; remembers its options")
    _add_folder(index)
    index.add_argument("--title", metavar="KEY,...", help="frontmatter keys of the title, tried in order")
    index.add_argument("--keywords", metavar="KEY,...", help="frontmatter keys of keywords")
    index.add_argument("--category", metavar="KEY,...", help="frontmatter keys of the category")
    index.add_argument("--entities", metavar="KEY,...", help="frontmatter keys of entities")
    index.add_argument(
        "--category-from-path", metavar="N", type=int, help="category from the first N folders of the path"
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

    ask = commands.add_parser("ask", help="answer a query")
    _add_folder(ask)
    ask.add_argument("query", metavar="QUERY", help="one argument: put it in quotes")
    ask.add_argument("-k", type=int, default=5, help="most matches (default 5)")
    ask.add_argument("--no-l1", action="store_true", help="answer from keywords alone")
    ask.add_argument("--json", action="store_true", help="print the result as JSON")
    ask.set_defaults(run=_ask)

    evaluate = commands.add_parser("eval", help="measure how well questions with known answers are answered")
    _add_folder(evaluate)
    evaluate.add_argument("questions", metavar="QUERIES.jsonl", help="a line each: id, query, relevant (entry ids)")
    evaluate.add_argument("--json", action="store_true", help="print the figures as JSON")
    evaluate.add_argument("--plot", metavar="FILE.png", type=Path, help="draw the figures (needs the extra [plot])")
    evaluate.set_defaults(run=_evaluate)

    invocations = commands.add_parser("invocations", help="show recorded calls, newest first")
    invocations.add_argument(
        "folder", metavar="KB", nargs="?", default=".", help="the knowledge folder (default: this one)"
    )
    invocations.add_argument("--data-dir", help="where its data is, if not in the folder")
    invocations.add_argument("--db", metavar="URL", help="a record database, as an SQLAlchemy URL, instead of KB's")
    invocations.add_argument("--limit", type=_count, default=20, help="most rows (default 20)")
    invocations.add_argument("--json", action="store_true", help="print a JSON list")
    invocations.set_defaults(run=_invocations)

    serve = commands.add_parser("mcp", help="serve the lookup as an MCP tool, over stdio or HTTP")
    _add_folder(serve)
    serve.add_argument("-k", type=int, default=5, help="most matches (default 5)")
    serve.add_argument("--no-l1", action="store_true", help="answer from keywords alone")
    serve.add_argument(
        "--http",
        metavar="[HOST:]PORT",
        type=_address,
        help="streamable HTTP at /mcp instead of stdio; the host is this machine alone (127.0.0.1) unless given",
    )
    serve.set_defaults(run=_mcp)
    return parser


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not port.isdecimal() or not 0 < int(port) < 65536:
        raise argparse.ArgumentTypeError(f"{text!r} is not [HOST:]PORT")
    return host.strip("[]") or "127.0.0.1", int(port)


def _count(text: str) -> int:
    if not text.isdecimal() or not 0 < int(text) <= 1_000_000:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of rows")
    return int(text)


def _add_folder(command: argparse.ArgumentParser) -> None:
    command.add_argument("folder", metavar="KB", help="the folder of Markdown files")
    command.add_argument("--data-dir", help="where the index and the records go, if not in the folder")


def _index(arguments: argparse.Namespace) -> int:
    with _open(arguments, sync=False) as kb:
        report = kb.sync(rebuild=arguments.rebuild, allow_empty=arguments.allow_empty)
        kb.remember()
        _print_problems(kb)
        print(_sync_line(report), flush=True)
        for later in kb.watch() if arguments.watch else ():
            print(_sync_line(later), flush=True)
    return DONE


def _sync_line(report: "SyncReport") -> str:
    return (
        f"{report.entries} entries; {report.renewed} new or changed, {report.removed} removed; "
        f"{report.embedded} passages embedded"
    )


def _open(arguments: argparse.Namespace, *, sync: bool) -> "KnowledgeBase":
    """Open the knowledge base with what `index` remembered, but for the options given now."""
    from langchain_lookup_knowledge import knowledge_base  # noqa: PLC0415

    data_folder = knowledge_base.find_data_folder(arguments.folder, arguments.data_dir)
    settings = knowledge_base.read_settings(data_folder)
    return knowledge_base.KnowledgeBase.open(
        arguments.folder,
        index=None if getattr(arguments, "no_l1", False) else _index_meant(arguments, settings, data_folder),
        embedding=getattr(arguments, "model", None),
        fields=replace(knowledge_base.remembered_fields(settings), **_given_fields(arguments)),
        data_dir=arguments.data_dir,
        sync=sync,
    )


def _index_meant(arguments: argparse.Namespace, settings: dict[str, Any], data_folder: Path) -> "VectorIndex":
    """Return the index of the options, or else the remembered one; a server's key is in the environment."""
    from langchain_lookup_knowledge.knowledge_base import remembered_index  # noqa: PLC0415
    from langchain_lookup_knowledge.stores import QdrantIndex  # noqa: PLC0415

    url, collection = getattr(arguments, "url", None), getattr(arguments, "collection", None)
    api_key = os.environ.get("QDRANT_API_KEY")
    if collection and not url:
        raise ValueError("--collection names a collection on a server: give --url too")
    if url == ":memory:":
        raise ValueError("--url :memory: would be gone with this command: leave --url out for an index on disk")
    if url:
        return QdrantIndex(url, collection or Path(arguments.folder).absolute().name, api_key=api_key)
    return remembered_index({} if getattr(arguments, "embedded", False) else settings, data_folder, api_key=api_key)


def _given_fields(arguments: argparse.Namespace) -> dict[str, Any]:
    given: dict[str, Any] = {
        name: tuple(key.strip() for key in value.split(",") if key.strip())
        for name in ("title", "keywords", "category", "entities")
        if (value := getattr(arguments, name, None)) is not None
    }
    if getattr(arguments, "category_from_path", None) is not None:
        given["category_from_path"] = arguments.category_from_path
    return given


def _print_problems(kb: "KnowledgeBase") -> None:
    for problem in kb.problems:
        print(f"note: {problem}", file=sys.stderr)


def _ask(arguments: argparse.Namespace) -> int:
    from langchain_lookup_knowledge.graph import create_lookup_knowledge_graph  # noqa: PLC0415
    from langchain_lookup_knowledge.tool import render  # noqa: PLC0415

    options = LookupOptions(k=arguments.k, l1_timeout=ASK_TIMEOUT)
    with _open(arguments, sync=True) as kb:
        if count := len(kb.problems):
            print(
                f"note: {count} files or fields were not used as written: see `lookup-knowledge index`", file=sys.stderr
            )
        result: Any = create_lookup_knowledge_graph(kb, options=options).invoke({"query": arguments.query})
    if arguments.json:
        print(json.dumps(result, ensure_ascii=False, indent=2))
    else:
        print(render(result, options.max_chars))
    return DONE if result["matches"] else NOTHING_FOUND


def _evaluate(arguments: argparse.Namespace) -> int:
    from langchain_lookup_knowledge import evaluation  # noqa: PLC0415

    questions = evaluation.read_questions(Path(arguments.questions))
    with _open(arguments, sync=True) as kb:
        figures = evaluation.evaluate(kb, questions)
    if arguments.plot:
        evaluation.plot(figures, arguments.plot)
    print(json.dumps(figures, ensure_ascii=False, indent=2) if arguments.json else "\n".join(evaluation.table(figures)))
    return DONE


def _invocations(arguments: argparse.Namespace) -> int:
    from langchain_lookup_knowledge.knowledge_base import find_data_folder  # noqa: PLC0415
    from langchain_lookup_knowledge.records import SQLInvocationRecorder  # noqa: PLC0415

    if arguments.db:
        recorder = SQLInvocationRecorder(arguments.db)
    else:
        data_folder = find_data_folder(arguments.folder, arguments.data_dir, make=False)
        if not (data_folder / "invocations.db").exists():
            print(f"no call has been recorded in {data_folder}", file=sys.stderr)
            return NOTHING_FOUND
        recorder = SQLInvocationRecorder.in_file(data_folder / "invocations.db")
    rows = recorder.invocations(limit=arguments.limit)
    recorder.close()
    if arguments.json:
        print(json.dumps(rows, ensure_ascii=False, indent=2))
    else:
        print("\n".join(map(_line, rows)) or "no call has been recorded")
    return DONE if rows else NOTHING_FOUND


def _mcp(arguments: argparse.Namespace) -> int:
    """Serve until the client goes or the keyboard stops it; standard output carries the protocol alone."""
    try:
        from langchain_lookup_knowledge import mcp_server  # noqa: PLC0415
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] not in ("mcp", "mcp_types"):
            raise
        raise ValueError("`mcp` needs an extra: pip install 'langchain-lookup-knowledge[mcp]'") from error
    with _open(arguments, sync=True) as kb:
        server = mcp_server.create_mcp_server(kb, options=LookupOptions(k=arguments.k))
        if arguments.http is None:
            server.run("stdio")
            return DONE
        host, port = arguments.http
        print(f"serving {kb.folder.name!r} at http://{host}:{port}/mcp", file=sys.stderr)
        if host not in ("127.0.0.1", "localhost", "::1"):
            print("note: whoever reaches this address can read the knowledge base", file=sys.stderr)
        mcp_server.serve_http(server, host, port)
    return DONE


def _line(row: Invocation) -> str:
    found = row["primary_entry_id"] or "-"
    query = " ".join(row["query"].split())[:60]
    return (
        f"{row['created_at'][:19]}Z  {row['status']:<13} {row['retrieval_layer']:<5} L1 {row['l1_status']:<15} "
        f"{row['duration_ms']:7.1f} ms  {query!r} -> {found}"
    )


if __name__ == "__main__":
    sys.exit(main())
