"""Arguments that several commands share, and the types of arguments."""

import argparse
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, TypeAlias

from langchain_lookup_knowledge.records.invocations import utc

Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"
ENTRY_SCOPE = "show only entries with this value in the frontmatter, and public ones; repeatable"
_UNITS = {"d": "days", "h": "hours", "m": "minutes"}


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
