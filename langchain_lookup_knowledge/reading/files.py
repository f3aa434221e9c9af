"""Listing and reading the files of a knowledge folder, never files outside of it."""

import os
import stat
import unicodedata
from collections.abc import Iterator
from pathlib import Path

from langchain_lookup_knowledge.errors import DocumentError
from langchain_lookup_knowledge.reading.selection import Rules, Selection, open_unfollowed
from langchain_lookup_knowledge.text.visible.cleaning import bounded, escaped
from langchain_lookup_knowledge.types import Problem

MAX_FILE_BYTES = 10_000_000
"""Maximum size of a file; larger ones are skipped."""


class Skipped(Exception):
    """The reason why a file is not used, with the fix and the line that caused it."""

    def __init__(self, reason: str, line: int | None = None) -> None:
        super().__init__(reason)
        self.line = line


class _Replaced(Skipped):
    """Raised if a file was moved or replaced while it was being read."""


def markdown_files(folder: Path, rules: Rules, problems: list[Problem]) -> Iterator[Path]:
    """Yield each Markdown file that the rules allow; hidden files and folders are skipped."""

    def report(error: OSError) -> None:
        if Path(error.filename) == folder:
            raise DocumentError(f"cannot list {folder}: {error.strerror}") from error
        message = f"folder not read ({error.strerror}): let this user read it"
        problems.append(Problem(path_within(Path(error.filename), folder), None, message))

    for current, folders, files in os.walk(folder, onerror=report):
        here = Path(current)
        above = here.relative_to(folder).parts
        folders[:] = sorted(
            name
            for name in folders
            if not name.startswith(".") and rules.reads_folder((*above, name))
        )
        for name in folders:
            if os.path.islink(here / name):  # noqa: PTH114  (`Path` raises in a forbidden folder)
                message = (
                    "linked folder not followed: copy it, or open it as a knowledge base of its own"
                )
                problems.append(Problem(path_within(here / name, folder), None, message))
        for name in sorted(files):
            if not name.startswith(".") and rules.reads_file((*above, name)):
                yield here / name


def holds_files(folder: Path, endings: tuple[str, ...]) -> bool:
    """Return whether a folder holds a file with one of these endings, without reading any.

    Raises:
        DocumentError: the folder cannot be listed.
    """
    rules = Rules(folder, Selection(endings=endings), [])
    return next(markdown_files(folder, rules, []), None) is not None


def read_text(folder: Path, name: str) -> str:
    """Return the text of a file in a knowledge folder.

    Raises:
        ValueError: there is no such file in this folder, or it cannot be read.
    """
    try:
        rules = Rules(folder, Selection(), [])
        return decoded(read_settled(path_on_disk(folder, name), folder.resolve(), rules))
    except Skipped as reason:
        raise ValueError(str(reason)) from reason


def path_on_disk(folder: Path, name: str) -> Path:
    """Return the path of a file, given its name in NFC; the name on disk may have another Unicode
    form.
    """
    path, parts = folder / name, Path(name).parts
    if os.path.lexists(path) or Path(name).is_absolute() or ".." in parts:
        return path
    path = folder
    for part in parts:
        listed = path.iterdir() if path.is_dir() else ()
        same = (one for one in listed if unicodedata.normalize("NFC", one.name) == part)
        path = next(same, path / part)
    return path


def read_settled(path: Path, root: Path, rules: Rules) -> bytes:
    """Return the bytes of a file inside `root`; read it once more if it was replaced meanwhile, as
    editors do when saving.

    Raises:
        Skipped: it cannot be used.
    """
    try:
        return _read(path, root, rules)
    except _Replaced:
        return _read(path, root, rules)


def _read(path: Path, root: Path, rules: Rules) -> bytes:
    """Return the bytes of a file, after checking that it really lies inside `root`."""
    real = _inside(path, root, rules)
    if real is None:
        raise Skipped(
            "a link that leaves the knowledge folder, leads to a hidden place, or is a loop: "
            "copy the file instead"
        )
    try:
        with open(real, "rb", opener=open_unfollowed) as file:
            opened = os.fstat(file.fileno())
            if not stat.S_ISREG(opened.st_mode):
                raise Skipped("not a regular file: move it out of the folder")
            data = file.read(MAX_FILE_BYTES + 1)
        if os.path.realpath(real) != real or not os.path.samestat(Path(real).stat(), opened):
            raise _Replaced(
                "it was moved or replaced while it was being read: read the folder again"
            )
    except OSError as error:
        raise Skipped(
            f"it cannot be read ({error.strerror or error}): make it readable, or remove it"
        ) from error
    if len(data) > MAX_FILE_BYTES:
        raise Skipped(f"it has {opened.st_size} bytes, more than {MAX_FILE_BYTES}: split the file")
    return data


def _inside(path: Path, root: Path, rules: Rules) -> str | None:
    """Return a file's path with links resolved; None if it is outside `root` or left out."""
    try:
        real = os.path.realpath(path)
        parts = Path(real).relative_to(root).parts
    except (OSError, ValueError):  # outside
        return None
    is_loop = os.path.islink(real)  # noqa: PTH114  (as above; a link that remains is a loop)
    return None if is_loop or rules.hides(parts) else real


def decoded(data: bytes) -> str:
    """Decode UTF-8, or UTF-16 with a byte order mark.

    Raises:
        Skipped: it is neither.
    """
    encoding = "utf-16" if data.startswith((b"\xff\xfe", b"\xfe\xff")) else "utf-8-sig"
    try:
        return data.decode(encoding)
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise Skipped(
            f"not {error.encoding} at byte {error.start}: save the file as UTF-8", line
        ) from error


def path_within(path: Path, folder: Path) -> str:
    """Return the path within the folder, in NFC; characters that cannot be shown are escaped."""
    written, above = path.as_posix(), folder.as_posix().rstrip("/") + "/"
    if not written.startswith(above):
        written, above = path.relative_to(folder).as_posix(), ""
    name = written[len(above) :]
    if name.isascii() and name.isprintable():  # the usual case
        return name
    name = os.fsencode(name).decode("utf-8", "backslashreplace")
    return unicodedata.normalize("NFC", bounded(escaped(name)))
