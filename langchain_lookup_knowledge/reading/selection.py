"""Selecting the files of a knowledge folder by endings and by patterns that exclude files.

Patterns have the syntax of `.gitignore`. They are checked in this order: `exclude`; the
`.gitignore` files, the innermost first; and built-in patterns for the files of known tools. The
first of these with a matching pattern decides.
"""

import os
import re
import stat
import warnings
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from pathspec import GitIgnoreSpec

from langchain_lookup_knowledge.errors import DocumentError
from langchain_lookup_knowledge.types import LeftOut, Problem

ENDINGS = (
    ".md", ".markdown", ".mdx", ".mkd", ".mkdn", ".mdown", ".mdwn", ".qmd", ".rmd", ".mdc",
)  # fmt: skip
"""Endings of the Markdown files of known tools, in lower case; files match in any case."""
OTHER_ENDINGS = frozenset(
    (*ENDINGS, ".txt", ".rst", ".adoc", ".asciidoc", ".org", ".ipynb", ".html", ".htm", ".pdf",
     ".docx", ".odt", ".rtf", ".tex", ".wiki", ".textile")
)  # fmt: skip
"""Endings of documents; unread files with one of these endings are counted."""
TOOL_FOLDERS = frozenset({"node_modules", "__pycache__"})
"""Names of folders that are not watched for changes."""
TOOL_PATTERNS = (
    "node_modules/", "bower_components/", "__pycache__/", "site-packages/", "vendor/bundle/",
    "logseq/bak/", "logseq/version-files/", "*.sync-conflict-*",
)  # fmt: skip
"""Patterns of files that tools create: packages, backups, conflict copies."""
MAX_PATTERNS = 1000
"""Maximum patterns of one `.gitignore`, or of `exclude`."""
MAX_STARS = 3
"""Maximum wildcards of one part of a pattern; with more, matching can take very long."""
MAX_IGNORE_BYTES = 100_000
"""Maximum size of a `.gitignore`; further bytes are ignored."""

_RUN = re.compile(r"\*+")
_GROUP = re.compile(r"\(\?P<\w+>")


def files_named(endings: Sequence[str], *, listed: bool = False) -> str:
    """Return what files with these endings are called in a message; `listed`: with all endings."""
    if set(endings) != set(ENDINGS):
        return f"file ending in {' or '.join(endings)}"
    return f"Markdown file ({', '.join(endings)})" if listed else "Markdown file"


@dataclass(frozen=True, slots=True)
class Selection:
    """Which files are read.

    `exclude`: patterns as in `.gitignore`, relative to the knowledge folder; a pattern that begins
    with `!` includes files that another pattern or a `.gitignore` excludes. `endings`: the endings
    of the files that are read, such as `.md`.
    """

    exclude: tuple[str, ...] = ()
    endings: tuple[str, ...] = ENDINGS

    def __post_init__(self) -> None:
        for name in ("exclude", "endings"):
            value = getattr(self, name)
            if not isinstance(value, tuple | list) or not all(
                isinstance(text, str) and text.strip() for text in value
            ):
                raise ValueError(f"{name} takes a tuple of strings, not {value!r}")
            object.__setattr__(self, name, tuple(value))
        if len(self.exclude) > MAX_PATTERNS:
            raise ValueError(f"exclude has more than {MAX_PATTERNS} patterns")
        for pattern in self.exclude:
            if _unusable(pattern):
                raise ValueError(f"exclude: {pattern!r} {_unusable(pattern)}")
        if not self.endings or any(not ending.startswith(".") for ending in self.endings):
            raise ValueError(
                f'endings takes endings that begin with a dot, such as (".md",), '
                f"not {self.endings!r}"
            )
        object.__setattr__(self, "endings", tuple(ending.lower() for ending in self.endings))


def chosen_selection(
    settings: Mapping[str, Any],
    exclude: Sequence[str] | None = None,
    endings: Sequence[str] | None = None,
) -> Selection:
    """Return the selection with these arguments; None means the saved value.

    Raises:
        ValueError: an argument cannot be used.
        DocumentError: the saved selection cannot be used.
    """
    given = {"exclude": exclude, "endings": endings}
    for name, value in given.items():
        if isinstance(value, str):
            raise ValueError(f"{name} takes a tuple of strings, not {value!r}")
    try:
        saved = Selection(**settings.get("selection", {}))
    except (TypeError, ValueError) as error:
        raise DocumentError(
            f"settings.json holds a selection of files that cannot be used ({error}): delete it"
        ) from error
    changes = {name: tuple(value) for name, value in given.items() if value is not None}
    return replace(saved, **changes)


class _Patterns(NamedTuple):
    """Patterns of files; a path that `any` does not find matches none of them."""

    spec: GitIgnoreSpec
    any: re.Pattern[str]

    def decision(self, path: str) -> bool | None:
        """Return whether a path is left out; None if no pattern matches it."""
        return self.spec.check_file(path).include if self.any.search(path) else None


class Rules:
    """Decides which files of a folder are read, and counts the files that are left out."""

    def __init__(self, folder: Path, selection: Selection, problems: list[Problem]) -> None:
        self._folder = folder
        self._endings = selection.endings
        self._problems = problems
        self._exclude = _spec(selection.exclude)
        self._tools = _spec(TOOL_PATTERNS)
        self._ignored: dict[tuple[str, ...], _Patterns | None] = {}
        self._read: set[tuple[str, ...]] = set()
        self._files: Counter[str] = Counter()
        self._folders: Counter[str] = Counter()
        self._examples: dict[str, str] = {}

    def reads_folder(self, parts: Sequence[str]) -> bool:
        """Return whether a folder is searched.

        `parts`: its path, relative to the knowledge folder.
        """
        reason = self._reason(parts, is_folder=True)
        return reason is None or self._leave_out(reason, parts, self._folders)

    def reads_file(self, parts: Sequence[str]) -> bool:
        """Return whether a file is read, judging by its path."""
        ending = os.path.splitext(parts[-1])[1].lower()  # noqa: PTH122  (far faster than `Path`)
        if ending not in self._endings:
            if ending in OTHER_ENDINGS:
                self._leave_out(f"the ending {ending}", parts, self._files)
            return False
        reason = self._reason(parts, is_folder=False)
        if reason is not None:
            return self._leave_out(reason, parts, self._files)
        self._read.add(tuple(parts))
        return True

    def hides(self, parts: Sequence[str]) -> bool:
        """Return whether a file, or a folder above it, is hidden or left out by a pattern."""
        if tuple(parts) in self._read:
            return False
        if any(part.startswith(".") for part in parts):
            return True
        above = range(1, len(parts))
        return self._reason(parts, is_folder=False) is not None or any(
            self._reason(parts[:end], is_folder=True) for end in above
        )

    def left_out(self) -> tuple[LeftOut, ...]:
        """Return how many files and folders were left out, by reason."""
        return tuple(
            LeftOut(reason, self._files[reason], self._folders[reason], example)
            for reason, example in sorted(self._examples.items())
        )

    def _leave_out(self, reason: str, parts: Sequence[str], counts: "Counter[str]") -> bool:
        counts[reason] += 1
        self._examples.setdefault(reason, "/".join(parts))
        return False

    def _reason(self, parts: Sequence[str], *, is_folder: bool) -> str | None:
        """Return why a file or folder is left out; None if it is read."""
        specs = [("exclude", 0, self._exclude)] if self._exclude.spec.patterns else []
        for depth in range(len(parts) - 1, -1, -1):
            if ignored := self._gitignore(tuple(parts[:depth])):
                specs.append((".gitignore", depth, ignored))
        specs.append(("a file or folder of a tool", 0, self._tools))
        for reason, depth, spec in specs:
            path = "/".join(parts[depth:]) + ("/" if is_folder else "")
            decided = spec.decision(path)
            if decided is not None:
                return reason if decided else None
        return None

    def _gitignore(self, parts: tuple[str, ...]) -> _Patterns | None:
        """Return the patterns of the `.gitignore` in a folder; None if there is no such file."""
        if parts not in self._ignored:
            self._ignored[parts] = self._read_gitignore(parts)
        return self._ignored[parts]

    def _read_gitignore(self, parts: tuple[str, ...]) -> _Patterns | None:
        name = "/".join((*parts, ".gitignore"))
        try:
            with open(self._folder / name, "rb", opener=open_unfollowed) as file:
                if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                    return None
                text = file.read(MAX_IGNORE_BYTES).decode("utf-8", "replace")
        except (OSError, ValueError):
            return None
        lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
        kept: list[str] = []
        for line in lines[:MAX_PATTERNS]:
            if reason := _unusable(line):
                self._problems.append(Problem(name, None, f"the pattern {line!r} {reason}"))
            else:
                kept.append(line)
        return _spec(kept) if kept else None


def open_unfollowed(path: str, flags: int) -> int:
    """Open a file without following a link or waiting for a pipe that may have replaced it."""
    return os.open(path, flags | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))


def _unusable(pattern: str) -> str | None:
    """Return why a pattern cannot be used, and the fix."""
    parts = pattern.split("/")
    wildcards = [len(_RUN.findall(part)) for part in parts]
    if max(wildcards) > MAX_STARS or parts.count("**") > MAX_STARS:
        return f"has more than {MAX_STARS} wildcards and is ignored: shorten it"
    try:
        _spec([pattern])
    except (ValueError, re.error):
        return "is not a pattern of .gitignore and is ignored: correct it"
    return None


def _spec(patterns: Iterable[str]) -> _Patterns:
    with warnings.catch_warnings():  # `re` warns of brackets inside brackets
        warnings.simplefilter("ignore", FutureWarning)
        spec = GitIgnoreSpec.from_lines(list(patterns))
        used = [one.regex.pattern for one in spec.patterns if one.regex is not None]
        return _Patterns(spec, re.compile("|".join(_GROUP.sub("(?:", one) for one in used)))
