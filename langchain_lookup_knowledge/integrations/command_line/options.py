"""Shared parts of the commands: arguments and their types, opening the knowledge base, output."""

import argparse
import codecs
import json
import os
import re
import sys
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from langchain_lookup_knowledge.errors import LookupKnowledgeError
from langchain_lookup_knowledge.records.invocations import utc

if TYPE_CHECKING:
    from langchain_lookup_knowledge.knowledge_base import KnowledgeBase
    from langchain_lookup_knowledge.l1.stores.vector_index import VectorIndex

Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"
DONE, NOTHING_FOUND, PROBLEMS_FOUND, CHANGED, FELL_SHORT, USAGE = 0, 1, 1, 1, 1, 2
ENTRY_SCOPE = "show only entries with this value in the frontmatter, and public ones; repeatable"
NO_FILES = "no Markdown file in this folder: give the folder that holds the files"
_ACTED_UPON = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
"""Control characters except tab and line feed, and characters that change text direction."""
_UNITS = {"d": "days", "h": "hours", "m": "minutes"}


# Arguments


def add_folder(command: argparse.ArgumentParser) -> None:
    """Add the argument KB."""
    command.add_argument("folder", metavar="KB", help="the folder of Markdown files")
    command.add_argument("--data-dir", help="folder of the index and the records, if not inside KB")
    command.add_argument(
        "--trust",
        action="store_true",
        help="use the server and the model from the settings in KB, even if you did not save them; "
        "`index` remembers this choice",
    )


def add_scope(command: argparse.ArgumentParser, what: str = ENTRY_SCOPE) -> None:
    """Add the option --scope; `scope_of` reads it."""
    command.add_argument("--scope", metavar="FIELD=VALUE", action="append", default=[], help=what)


def add_filter(command: argparse.ArgumentParser) -> None:
    """Add the option --filter; `filters_of` reads it."""
    command.add_argument(
        "--filter",
        metavar="FIELD=VALUE",
        action="append",
        default=[],
        help="only entries with this value of category, folder, or a frontmatter key such as "
        "version; repeat it for more values; a range of days: date=2026-01-01..2026-12-31",
    )


def filters_of(pairs: Sequence[str]) -> dict[str, Any]:
    """Return the filters given with --filter: lists of values, and ranges of days.

    Raises:
        ValueError: an argument is not FIELD=VALUE; `check_filters` reports other errors.
    """
    found: dict[str, Any] = {}
    for pair in pairs:
        name, equals, value = (part.strip() for part in pair.partition("="))
        if not (name and equals and value):
            raise ValueError(f"--filter takes FIELD=VALUE, such as category=it, not {pair!r}")
        first, dots, last = value.partition("..")
        if not dots or name == "folder":
            if not isinstance(found.setdefault(name, []), list):
                raise ValueError(f"--filter names {name!r} twice: give days once")
            found[name].append(value)
        elif name in found:
            raise ValueError(f"--filter names {name!r} twice: give days once")
        else:
            days = {"from": first.strip(), "to": last.strip()}
            found[name] = {end: day for end, day in days.items() if day}
    return found


def check_filters(filters: Mapping[str, Any], filterable: Sequence[str]) -> None:
    """Check filters against the keys that the knowledge base can filter by.

    Raises:
        ValueError: a filter cannot be used; the message is in terms of the command line.
    """
    from langchain_lookup_knowledge.reading.metadata.filters import (  # noqa: PLC0415
        ALWAYS,
        MAX_VALUE_CHARS,
        MAX_VALUES,
        normalized,
    )

    for name, value in filters.items():
        if name not in (*ALWAYS, *filterable):
            usable = ", ".join((*ALWAYS, *filterable))
            raise ValueError(f"--filter cannot use {name!r}: use {usable}")
        try:
            normalized({name: value}, filterable)
        except ValueError as error:
            takes = f"days, such as {name}=2026-01-01..2026-12-31"
            if isinstance(value, list):
                takes = f"1 to {MAX_VALUES} values of at most {MAX_VALUE_CHARS} characters"
            raise ValueError(f"--filter {name} takes {takes}") from error


def address(text: str) -> tuple[str, int]:
    """Parse `[HOST:]PORT` into a host and a port."""
    host, _, port = text.rpartition(":")
    if not port.isdecimal() or not 0 < int(port) < 65536:
        raise argparse.ArgumentTypeError(f"{text!r} is not [HOST:]PORT")
    return host.strip("[]") or "127.0.0.1", int(port)


def row_count(text: str) -> int:
    """Parse a number of rows from 1 to 1,000,000."""
    if not text.isdecimal() or not 0 < int(text) <= 1_000_000:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of rows")
    return int(text)


def prune_moment(text: str) -> datetime:
    """Parse a time as `moment` does, but refuse minutes: "1m" may be meant as a month."""
    if text.endswith("m"):
        raise argparse.ArgumentTypeError(f"{text!r} would be minutes: write days, such as 90d")
    return moment(text)


def moment(text: str) -> datetime:
    """Parse a time in ISO 8601, or as 7d, 12h or 30m (ago), and return it in UTC."""
    try:
        if ago := re.fullmatch(r"(\d{1,6})([dhm])", text):
            return datetime.now(UTC) - timedelta(**{_UNITS[ago[2]]: int(ago[1])})
        return utc(datetime.fromisoformat(text))
    except (ValueError, OverflowError) as error:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a time: write 2026-01-31, 2026-01-31T12:00, 7d or 12h"
        ) from error


def port_number(text: str) -> int:
    """Parse a port number from 0 to 65535."""
    if not text.isdecimal() or int(text) > 65_535:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port, 0 to 65535")
    return int(text)


def minima(text: str) -> dict[str, float]:
    """Parse the minimum values of figures, given as `NAME=SHARE,...`."""
    from langchain_lookup_knowledge.evaluation.gate import read_minima  # noqa: PLC0415

    try:
        return read_minima(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def share(text: str) -> float:
    """Parse a number from 0 to 1."""
    from langchain_lookup_knowledge.evaluation.gate import read_share  # noqa: PLC0415

    try:
        return read_share(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def scope_of(given: Sequence[str]) -> dict[str, str]:
    """Parse the values of `--scope` options into fields and their values."""
    pairs = [text.partition("=") for text in given]
    for name, _, value in pairs:
        if not name.strip():
            raise ValueError("--scope takes FIELD=VALUE, such as tenant=north")
        if not value.strip():
            raise ValueError(f"--scope needs a value: --scope {name}=NAME")
    if len({name for name, _, _ in pairs}) < len(pairs):
        raise ValueError("--scope names a field twice: give one value per field")
    return {name: value for name, _, value in pairs}


# The knowledge base


class EmptyFolderError(LookupKnowledgeError):
    """The folder has no Markdown file and no data folder, so nothing is made in it."""


def check_folder(arguments: argparse.Namespace) -> None:
    """Refuse a folder without Markdown files, unless it has been indexed before.

    Raises:
        EmptyFolderError: there is nothing to index; the folder was not changed.
    """
    from langchain_lookup_knowledge.data_folder import find_data_folder  # noqa: PLC0415
    from langchain_lookup_knowledge.reading.files import holds_markdown  # noqa: PLC0415

    folder = Path(arguments.folder).expanduser().absolute()
    known = find_data_folder(folder, arguments.data_dir, make=False).is_dir()
    if not known and not holds_markdown(folder):
        raise EmptyFolderError(f"{arguments.folder}: {NO_FILES}")


def open_kb(
    arguments: argparse.Namespace, *, sync: bool, background: bool = False
) -> "KnowledgeBase":
    """Open the knowledge base with the given options, or else with the options `index` saved.

    Raises:
        EmptyFolderError: there is nothing to index; the folder was not changed.
    """
    from langchain_lookup_knowledge.data_folder import (  # noqa: PLC0415
        find_data_folder,
        read_settings,
        saved_fields,
    )
    from langchain_lookup_knowledge.knowledge_base import KnowledgeBase  # noqa: PLC0415

    check_folder(arguments)
    data_folder = find_data_folder(arguments.folder, arguments.data_dir)
    index, saved_id = _chosen_index(arguments, data_folder)
    fields = saved_fields(read_settings(data_folder))
    return KnowledgeBase.open(
        arguments.folder,
        index=None if getattr(arguments, "no_l1", False) else index,
        embedding=getattr(arguments, "model", None),
        fields=replace(fields, **_given_fields(arguments)),
        data_dir=arguments.data_dir,
        glossary=getattr(arguments, "glossary", None),
        sync=sync,
        background=background,
        exclude=getattr(arguments, "exclude", None),
        endings=_endings(getattr(arguments, "endings", None)),
        knowledge_base_id=getattr(arguments, "id", None) or saved_id,
        trust=_trusts(arguments),
        verify=getattr(arguments, "verify", False),
    )


def open_kb_read_only(arguments: argparse.Namespace) -> "KnowledgeBase":
    """Open the knowledge base as it was indexed, without writing anything."""
    from langchain_lookup_knowledge.data_folder import find_data_folder  # noqa: PLC0415
    from langchain_lookup_knowledge.knowledge_base import KnowledgeBase  # noqa: PLC0415

    data_folder = find_data_folder(arguments.folder, arguments.data_dir, make=False)
    index, _ = _chosen_index(arguments, data_folder)
    return KnowledgeBase.open_read_only(
        arguments.folder,
        index=index,
        data_dir=arguments.data_dir,
        trust=_trusts(arguments),
    )


def _trusts(arguments: argparse.Namespace) -> bool:
    return bool(getattr(arguments, "trust", False))


def _chosen_index(
    arguments: argparse.Namespace, data_folder: Path
) -> "tuple[VectorIndex | Literal['from_settings'], str | None]":
    """Return the index named by the options, or else by the saved settings, and the saved id.

    The API key is read from the environment variable QDRANT_API_KEY. A server that QDRANT_URL names
    needs no `--trust`.
    """
    from langchain_lookup_knowledge.integrations.command_line.server import (  # noqa: PLC0415
        index_on_server,
        server_options,
    )
    from langchain_lookup_knowledge.l1.saved_settings import load_settings, saved_index  # noqa: PLC0415

    url, collection = getattr(arguments, "url", None), getattr(arguments, "collection", None)
    api_key = os.environ.get("QDRANT_API_KEY")
    server = server_options(arguments)
    if (collection or server) and not url:
        what = "--collection names a collection" if collection else "--grpc and --ca are for one"
        raise ValueError(f"{what} on a server: give --url too")
    if url == ":memory:":
        raise ValueError(
            "--url :memory: would be gone with this command: leave out --url for an index on disk"
        )
    named = os.environ.get("QDRANT_URL")
    given = {"index_given": True, "model_given": True}  # `open` reports unused settings
    saved = load_settings(
        data_folder,
        trust=_trusts(arguments),
        servers=(named,) if named else (),
        **given,
    )
    if url:
        collection = collection or Path(arguments.folder).absolute().name
        return index_on_server(arguments, collection, api_key), saved.knowledge_base_id
    if getattr(arguments, "embedded", False):
        return saved_index({}, data_folder), saved.knowledge_base_id
    if "index" not in saved.values:
        return "from_settings", saved.knowledge_base_id
    if api_key and saved.values["index"]["url"] != named:
        print(  # the folder's author may have chosen the URL
            f"note: QDRANT_API_KEY is not sent to {saved.values['index']['url']}, because only "
            "the folder names this server: set QDRANT_URL to this address to allow it",
            file=sys.stderr,
        )
        api_key = None
    return saved_index(saved.values, data_folder, api_key=api_key), saved.knowledge_base_id


def _endings(given: str | None) -> tuple[str, ...] | None:
    if given is None:
        return None
    return tuple(f".{ending.strip().lstrip('.')}" for ending in given.split(",") if ending.strip())


def _given_fields(arguments: argparse.Namespace) -> dict[str, Any]:
    given: dict[str, Any] = {
        name: tuple(key.strip() for key in value.split(",") if key.strip())
        for name in ("title", "keywords", "category", "entities")
        if (value := getattr(arguments, name, None)) is not None
    }
    if (keys := getattr(arguments, "text_keys", None)) is not None:
        given["text"] = tuple(key.strip() for key in keys.split(",") if key.strip())
    others = ("category_from_path", "skip_drafts", "inline_tags", "plain_headers")
    kept = {name: getattr(arguments, name, None) for name in others}
    return given | {name: value for name, value in kept.items() if value is not None}


# Output


def print_json(value: Any) -> None:
    """Print JSON, with non-ASCII characters escaped unless standard output is UTF-8."""
    is_utf8 = codecs.lookup(sys.stdout.encoding).name == "utf-8"
    written = json.dumps(value, ensure_ascii=not is_utf8, indent=2)
    print(_ACTED_UPON.sub(lambda found: f"\\u{ord(found[0]):04x}", written))


class Terminal:
    """A text stream that cannot control the terminal: control characters are written as U+FFFD.

    `progress` lets carriage returns through, which progress bars need. `unfiltered` is the stream
    itself, for text that is `printable` but for marks of our own.
    """

    def __init__(self, stream: Any, *, progress: bool = False) -> None:
        self.unfiltered = stream
        self._kept = "\r" if progress else ""

    def write(self, text: str) -> int:
        """Write a text."""
        replaced = _ACTED_UPON.sub(lambda c: c[0] if c[0] in self._kept else "\ufffd", text)
        written: int = self.unfiltered.write(replaced)
        return written

    def __getattr__(self, name: str) -> Any:
        return getattr(self.unfiltered, name)


def short_query(query: str) -> str:
    """Return the first 60 characters of a query, on one line."""
    return " ".join(query.split())[:60]


def printable(text: str) -> str:
    """Replace characters that could control the terminal with U+FFFD; spaces of any width stay."""
    return "".join(
        character
        if character.isprintable() or unicodedata.category(character) == "Zs"
        else "\ufffd"
        for character in text
    )


def printable_lines(text: str) -> str:
    """Do what `printable` does, but keep line ends, and replace each tab with four spaces."""
    lines = text.replace("\r\n", "\n").replace("\t", "    ").split("\n")
    return "\n".join(map(printable, lines))


def can_mark() -> bool:
    """Return whether stdout is a terminal that shows bold text, and NO_COLOR is not set."""
    plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    return not plain and sys.stdout.isatty()
