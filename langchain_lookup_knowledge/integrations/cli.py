"""The command `lookup-knowledge`; only it and `command_line` read arguments and print."""

import argparse
import io
import logging
import os
import sys
import threading
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from langchain_lookup_knowledge import __version__
from langchain_lookup_knowledge.errors import LookupKnowledgeError
from langchain_lookup_knowledge.integrations.command_line import ask, evaluate, knowledge, records
from langchain_lookup_knowledge.integrations.command_line.opening import EmptyFolderError
from langchain_lookup_knowledge.integrations.command_line.output import (
    DONE,
    NOTHING_FOUND,
    USAGE,
    Terminal,
    printable_lines,
)

AGAIN = "run it again with --traceback to see where, and please report it"


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status.

    0: success; 1: nothing was found, problems were found, a replayed lookup changed, or a figure
    is below its minimum; 2: a usage or configuration error; 130: interrupted from the keyboard.
    """
    arguments = _parser().parse_args(argv)
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # the caller closed it
            nowhere = Path(os.devnull).open("w")  # noqa: SIM115  (open until the process ends)
            setattr(sys, name, nowhere)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    with _terminal(), _tracebacks(arguments.traceback):
        return _run(arguments)


@contextmanager
def _terminal() -> Iterator[None]:
    """Prevent text from files, queries and errors from controlling the terminal."""
    streams = sys.stdout, sys.stderr
    shown: Any = Terminal(sys.stdout), Terminal(sys.stderr, progress=True)
    sys.stdout, sys.stderr = shown
    try:
        yield
    finally:
        sys.stdout, sys.stderr = streams


def _run(arguments: argparse.Namespace) -> int:
    try:
        status: int = arguments.run(arguments)
        if not sys.stdout.closed:  # version 1 of the MCP SDK closes it
            sys.stdout.flush()  # flushed here, so that a closed pipe raises inside `try`
    except KeyboardInterrupt:
        print("lookup-knowledge: stopped", file=sys.stderr)
        return 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return DONE
    except EmptyFolderError as error:
        print(f"lookup-knowledge: {printable_lines(str(error))}", file=sys.stderr)
        return NOTHING_FOUND
    except Exception as error:  # noqa: BLE001  (one line, and the traceback on request)
        print(f"lookup-knowledge: {printable_lines(_message(error))}", file=sys.stderr)
        if arguments.traceback:
            traceback.print_exception(error, file=sys.stderr)
        return USAGE
    return status


def _message(error: Exception) -> str:
    if isinstance(error, LookupKnowledgeError):
        return f"{error} (docs: {error.docs})"
    if isinstance(error, ValueError):
        return str(error)
    if isinstance(error, OSError):
        return f"{error.strerror or error}: {error.filename or ''}"
    return f"unexpected {type(error).__name__}: {AGAIN}"


@contextmanager
def _tracebacks(wanted: bool) -> Iterator[None]:
    """Show the tracebacks of threads and logging if wanted; otherwise hide them."""
    package = logging.getLogger("langchain_lookup_knowledge")
    level, hook, last_resort = package.level, threading.excepthook, logging.lastResort
    handler = logging.StreamHandler()
    if wanted:
        handler.addFilter(lambda record: bool(record.exc_info) or record.levelno >= logging.WARNING)
        package.addHandler(handler)
        package.setLevel(logging.DEBUG)
    else:
        threading.excepthook = _thread_failed
        handler.setLevel(logging.WARNING)
        handler.setFormatter(_OneLine())
        logging.lastResort = handler
    try:
        yield
    finally:
        package.removeHandler(handler)
        package.setLevel(level)
        threading.excepthook, logging.lastResort = hook, last_resort


class _OneLine(logging.Formatter):
    """Formats a log record as its message alone."""

    def format(self, record: logging.LogRecord) -> str:
        return printable_lines(record.getMessage())


def _thread_failed(failure: threading.ExceptHookArgs) -> None:
    kind = failure.exc_type.__name__
    print(f"lookup-knowledge: unexpected {kind} in the background: {AGAIN}", file=sys.stderr)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="lookup-knowledge", description="Look up passages in a folder of Markdown files."
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    knowledge.add_index(commands)
    ask.add_command(commands)
    knowledge.add_check(commands)
    evaluate.add_command(commands)
    records.add_commands(commands)
    knowledge.add_mcp(commands)
    for command in commands.choices.values():
        command.add_argument(
            "--traceback", action="store_true", help="on an error, also print where it was raised"
        )
    return parser


if __name__ == "__main__":
    sys.exit(main())
