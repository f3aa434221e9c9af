"""What a command gives back: its exit status, and text that cannot control the terminal."""

import codecs
import json
import os
import re
import sys
import unicodedata
from typing import Any

DONE, NOTHING_FOUND, PROBLEMS_FOUND, CHANGED, FELL_SHORT, USAGE = 0, 1, 1, 1, 1, 2
_ACTED_UPON = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
"""Control characters except tab and line feed, and characters that change text direction."""


def print_json(value: Any) -> None:
    """Print JSON, with non-ASCII characters escaped unless standard output is UTF-8."""
    is_utf8 = codecs.lookup(sys.stdout.encoding).name == "utf-8"
    written = json.dumps(value, ensure_ascii=not is_utf8, indent=2)
    print(_ACTED_UPON.sub(lambda found: f"\\u{ord(found[0]):04x}", written))


class Terminal:
    """A text stream that cannot control the terminal: control characters are written as U+FFFD.

    `progress` lets carriage returns through, which progress bars need. `unfiltered` is the stream
    itself, for text that is `printable` except for our own control codes.
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
