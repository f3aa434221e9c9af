"""The commands about a knowledge folder: index, check and mcp."""

import argparse
import re
import sys
from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from langchain_lookup_knowledge.errors import install_hint
from langchain_lookup_knowledge.integrations.command_line.findings import check_lines
from langchain_lookup_knowledge.integrations.command_line.opening import (
    check_folder,
    open_kb,
    open_kb_read_only,
)
from langchain_lookup_knowledge.integrations.command_line.options import (
    Commands,
    add_folder,
    add_scope,
    address,
    scope_of,
)
from langchain_lookup_knowledge.integrations.command_line.output import (
    DONE,
    PROBLEMS_FOUND,
    USAGE,
    print_json,
    printable,
)
from langchain_lookup_knowledge.integrations.command_line.server import (
    add_parts,
    add_server,
    check_parts,
    finish_generation,
    live_line,
)
from langchain_lookup_knowledge.text.wording import counted
from langchain_lookup_knowledge.types import TOOL_NAME, LookupOptions, Problem

if TYPE_CHECKING:
    from langchain_lookup_knowledge.knowledge_base import KnowledgeBase
    from langchain_lookup_knowledge.l1.indexing import SyncReport


MCP_TIMEOUT = 10.0
"""Time limit of L1 in seconds; longer than the default, as the first lookups load the model."""


def add_index(commands: Commands) -> None:
    """Add the command index."""
    index = commands.add_parser(
        "index", help="update the vector index from the folder, and save the options"
    )
    add_folder(index)
    index.add_argument(
        "--title", metavar="KEY,...", help="frontmatter keys of the title, tried in order"
    )
    index.add_argument("--keywords", metavar="KEY,...", help="frontmatter keys of keywords")
    index.add_argument("--category", metavar="KEY,...", help="frontmatter keys of the category")
    index.add_argument("--entities", metavar="KEY,...", help="frontmatter keys of entities")
    index.add_argument(
        "--text-keys", metavar="KEY,...", help="frontmatter keys of texts shown to readers"
    )
    index.add_argument(
        "--category-from-path",
        metavar="N",
        type=int,
        help="category from the first N folders of the path",
    )
    index.add_argument(
        "--skip-drafts",
        action=argparse.BooleanOptionalAction,
        help="skip files that are drafts according to their frontmatter",
    )
    index.add_argument(
        "--inline-tags",
        action=argparse.BooleanOptionalAction,
        help="use a #tag in the text as a keyword, too",
    )
    index.add_argument(
        "--plain-headers",
        action=argparse.BooleanOptionalAction,
        help="read lines `Key: value` at the start of a file as its header, as in Notion exports",
    )
    index.add_argument(
        "--exclude",
        metavar="PATTERN",
        action="append",
        help="leave out files and folders, with a pattern as in .gitignore; repeatable",
    )
    index.add_argument(
        "--endings", metavar="ENDING,...", help="endings of the files to read, such as md,txt"
    )
    index.add_argument(
        "--glossary",
        metavar="FILE",
        help="file in KB with words and their other forms: a Markdown table or YAML",
    )
    index.add_argument(
        "--model",
        metavar="NAME",
        help='"multilingual", or a FastEmbed model; downloaded if it is not on this machine',
    )
    add_server(index)
    add_parts(index)
    index.add_argument(
        "--embedded", action="store_true", help="go back to the embedded index after --url"
    )
    index.add_argument(
        "--id", help="id stored in the collection; a knowledge base with another id cannot write it"
    )
    index.add_argument(
        "--take-over",
        action="store_true",
        help="write the collection even if most of its entries are not in this folder",
    )
    index.add_argument(
        "--rebuild", action="store_true", help="embed everything again, even with another model"
    )
    index.add_argument(
        "--verify",
        action="store_true",
        help="open every file, even if its size and times are unchanged",
    )
    index.add_argument(
        "--watch", action="store_true", help="keep running, and index again whenever a file changes"
    )
    index.add_argument(
        "--allow-empty", action="store_true", help="allow an empty folder to empty the index"
    )
    index.set_defaults(run=_index)


def add_check(commands: Commands) -> None:
    """Add the command check."""
    check = commands.add_parser(
        "check", help="show what was read, problems and suggestions; writes nothing"
    )
    add_folder(check)
    add_server(check)
    check.add_argument("--json", action="store_true", help="print the report as JSON")
    check.add_argument(
        "--verbose", action="store_true", help="list everything, not three examples of each finding"
    )
    check.set_defaults(run=_check)


def add_mcp(commands: Commands) -> None:
    """Add the command mcp."""
    serve = commands.add_parser("mcp", help="serve the lookup as an MCP tool, over stdio or HTTP")
    add_folder(serve)
    serve.add_argument("-k", type=int, default=5, help="maximum number of matches (default 5)")
    serve.add_argument(
        "--max-chars",
        metavar="N",
        type=int,
        default=LookupOptions().max_chars,
        help="maximum characters of an answer (default %(default)s)",
    )
    serve.add_argument(
        "--name",
        type=_tool_name,
        default=TOOL_NAME,
        help="name of the tool and the server, if a client has several (default %(default)s)",
    )
    serve.add_argument(
        "--structured",
        action="store_true",
        help="add structured content to the text, within the same limit",
    )
    add_scope(serve)
    serve.add_argument("--no-l1", action="store_true", help="answer from keywords alone")
    serve.add_argument(
        "--http",
        metavar="[HOST:]PORT",
        type=address,
        help="streamable HTTP at /mcp instead of stdio; the default host is 127.0.0.1",
    )
    serve.add_argument(
        "--token",
        help="secret that every HTTP request must send; required if other machines can reach the "
        "host",
    )
    serve.add_argument(
        "--allowed-host",
        metavar="NAME",
        action="append",
        default=[],
        help="host name by which HTTP clients may reach the server, such as that of a proxy; "
        "repeatable (always allowed: the address and, unless the server listens on loopback "
        "alone, the host name of this machine)",
    )
    serve.set_defaults(run=_mcp)


def _tool_name(text: str) -> str:
    """Parse the name of a tool: 1 to 40 letters, digits, `_` and `-`, accepted by all clients."""
    if not re.fullmatch(r"[A-Za-z0-9_-]{1,40}", text):
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a tool name: use up to 40 ASCII letters, digits, _ and -"
        )
    return text


def _index(arguments: argparse.Namespace) -> int:
    check_parts(arguments)
    with open_kb(arguments, sync=False) as kb:
        if arguments.finish:
            finish_generation(kb, arguments)
            _print_problems(kb)
            return DONE
        report = kb.sync(
            rebuild=arguments.rebuild,
            allow_empty=arguments.allow_empty,
            take_over=arguments.take_over,
        )
        if not arguments.shard:
            kb.save_settings()
        printed = _print_problems(kb)
        print(_sync_line(report), flush=True)
        if live := live_line(kb.index):
            print(live, flush=True)
        for later in kb.watch() if arguments.watch else ():
            printed = _print_problems(kb, printed)
            print(_sync_line(later), flush=True)
    return DONE


def _sync_line(report: "SyncReport") -> str:
    entries = counted(report.entries, "entry", "entries")
    embedded = counted(report.embedded, "passage", "passages")
    return (
        f"{entries}; {report.renewed} new or changed, {report.removed} removed; {embedded} embedded"
    )


def _print_problems(kb: "KnowledgeBase", printed: Sequence[Problem] = ()) -> list[Problem]:
    """Print the problems that were not printed yet, and return all of them."""
    problems = kb.problems
    for problem in problems:
        if problem not in printed:
            print(f"note: {printable(str(problem))}", file=sys.stderr)
    return problems


def _check(arguments: argparse.Namespace) -> int:
    from langchain_lookup_knowledge.lookup.answer.relevance import model_for  # noqa: PLC0415

    with open_kb_read_only(arguments) as kb:
        model_for(kb.embedding, kb.data_folder, kb.add_problem)
        problems, suggestions = [*kb.problems, *kb.index_problems()], kb.l0.suggestions()
        report = kb.load_report
    if arguments.json:
        counts = {"seen": report.seen, "loaded": report.loaded}
        lists = {"skipped": report.skipped, "problems": problems, "suggestions": suggestions}
        shown = counts | {
            name: [asdict(problem) for problem in found] for name, found in lists.items()
        }
        print_json(shown | {"left_out": [asdict(left) for left in report.left_out]})
    else:
        for line in check_lines(problems, suggestions, report.left_out, arguments.verbose):
            print(printable(line))
        seen = counted(report.seen, "file", "files")
        print(f"{seen} seen: {report.loaded} loaded, {len(report.skipped)} skipped")
        found = counted(len(problems), "problem", "problems")
        print(f"{found}, {counted(len(suggestions), 'suggestion', 'suggestions')}")
    return PROBLEMS_FOUND if problems else DONE


def _mcp(arguments: argparse.Namespace) -> int:
    """Serve until the client disconnects or Ctrl-C is pressed; stdout carries only the protocol."""
    try:
        from langchain_lookup_knowledge.integrations import mcp_server  # noqa: PLC0415
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] not in ("mcp", "mcp_types"):
            raise
        raise ValueError(f"`mcp` needs the MCP SDK: {install_hint('mcp')}") from error
    from langchain_lookup_knowledge.integrations.mcp_answers import (  # noqa: PLC0415
        KnowledgeServer,
        ServerSettings,
    )

    for option in ("token", "allowed_host"):
        if getattr(arguments, option) and not arguments.http:
            raise ValueError(f"--{option.replace('_', '-')} is for HTTP: give --http too")
    scope = scope_of(arguments.scope)
    settings = ServerSettings(
        options=LookupOptions(
            k=arguments.k,
            max_chars=arguments.max_chars,
            l1_timeout=MCP_TIMEOUT,
            scope_fields=tuple(scope),
        ),
        scope=scope,
        name=arguments.name,
        structured=arguments.structured,
        title=Path(arguments.folder).absolute().name,
    )
    check_folder(arguments)
    knowledge = KnowledgeServer(lambda: open_kb(arguments, sync=True, background=True), settings)
    with closing(knowledge):
        if arguments.http is None:
            mcp_server.serve_stdio(knowledge)
        else:
            host, port = arguments.http
            mcp_server.serve_http(
                knowledge,
                host,
                port,
                arguments.token,
                allowed_hosts=arguments.allowed_host,
                started=lambda url: print(
                    f"serving {knowledge.title!r} at {url}", file=sys.stderr, flush=True
                ),
            )
    return USAGE if knowledge.failure() else DONE
