"""From a folder of Markdown files to entries. Nothing but hidden files and tool folders is dropped without a problem."""

import os
import re
import stat
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from langchain_core.documents import Document

from langchain_lookup_knowledge.cleaning import (
    ZERO_WIDTH_SPACE,
    bounded,
    clean,
    escaped,
    one_line,
    suspicious,
    visible_text,
)
from langchain_lookup_knowledge.errors import DocumentError
from langchain_lookup_knowledge.frontmatter import SUSPICION, Frontmatter
from langchain_lookup_knowledge.types import FrontmatterFields, LoadReport, Problem

SUFFIXES = (".md", ".markdown", ".mdx")
MAX_FILE_BYTES = 10_000_000
MAX_FILES = 100_000
TOOL_FOLDERS = frozenset({"node_modules", "__pycache__"})

_FENCE = re.compile(r" {0,3}(`{3,}+(?!.*`)|~{3,})")
_HEADING = re.compile(r" {0,3}(#{1,6})[ \t](.*)")
_CLOSING = re.compile(r"(?:^|(?<=[ \t]))#+$")
_HEADING_ID = re.compile(r"\s*\{[:#][^{}]*\}\s*$")


@dataclass(frozen=True, slots=True)
class Entry:
    """A file of the knowledge base; `entry_id` is its path in the folder, with `/`, in NFC, `text` what a reader sees of it."""

    entry_id: str
    title: str
    keywords: tuple[str, ...]
    categories: tuple[str, ...]
    entities: tuple[str, ...]
    text: str
    attributes: tuple[tuple[str, str], ...] = ()
    """The keys of the frontmatter, in small letters, each with its value or with one of them."""

    @property
    def description(self) -> str:
        """What the frontmatter says of the entry: its title, keywords and entities, one a line."""
        return "\n".join((self.title, *self.keywords, *self.entities))


def category_key(category: str) -> str:
    """Return the form in which categories are compared: NFKC, case-folded, blanks trimmed and folded."""
    return " ".join(unicodedata.normalize("NFKC", bounded(category)).casefold().split())


def read_folder(folder: Path, fields: FrontmatterFields) -> tuple[list[Entry], LoadReport]:
    """Return the entries of `folder` in path order, and what became of each Markdown file.

    Raises:
        DocumentError: the folder does not exist or cannot be listed.
    """
    if not folder.is_dir():
        raise DocumentError(f"{folder} is not a folder: give the folder that holds the Markdown files")
    entries: dict[str, Entry] = {}
    skipped: list[Problem] = []
    problems: list[Problem] = []
    try:
        paths = list(_markdown_files(folder, problems))
    except RecursionError as error:
        raise DocumentError(f"the folders in {folder} are nested too deeply to be listed: flatten them") from error
    root = folder.resolve()
    for path in paths:
        name = _name(path, folder)
        try:
            if len(entries) >= MAX_FILES:
                raise _Skipped(f"the knowledge base has {MAX_FILES} files already: split it")
            if name in entries:
                raise _Skipped("another file has the same name but for Unicode form: rename one")
            entries[name] = _read_entry(name, _decode(_read_settled(path, root)), fields, problems)
        except _Skipped as reason:
            skipped.append(Problem(name, reason.line, f"skipped: {reason}"))
            problems.append(skipped[-1])
    if not entries:
        problems.append(Problem(".", None, f"no Markdown file ({', '.join(SUFFIXES)}) was read in this folder"))
    return list(entries.values()), LoadReport(len(paths), len(entries), tuple(skipped), tuple(problems))


def read_documents(documents: Iterable[Document], fields: FrontmatterFields) -> tuple[list[Entry], LoadReport]:
    """Return an entry for each LangChain document, its metadata read as frontmatter, and what became of each.

    The entry id is the document's `source`, else its id, else its place; a second one of the same source gets "#2". Where the
    text has frontmatter of its own, the metadata come before it, key by key.
    """
    entries: dict[str, Entry] = {}
    skipped: list[Problem] = []
    problems: list[Problem] = []
    counts: Counter[str] = Counter()
    for place, document in enumerate(documents, start=1):
        source = one_line(str(document.metadata.get("source") or document.id or f"document-{place}"))
        counts[source] += 1
        name = source if counts[source] == 1 else f"{source}#{counts[source]}"
        try:
            entries[name] = _read_entry(name, document.page_content, fields, problems, document.metadata)
        except _Skipped as reason:
            skipped.append(Problem(name, reason.line, f"skipped: {reason}"))
            problems.append(skipped[-1])
    if not entries:
        problems.append(Problem(".", None, "there are no documents"))
    return list(entries.values()), LoadReport(counts.total(), len(entries), tuple(skipped), tuple(problems))


class _Skipped(Exception):
    """Why a file is not used, with the fix, and on which line."""

    def __init__(self, reason: str, line: int | None = None) -> None:
        super().__init__(reason)
        self.line = line


class _Replaced(_Skipped):
    """The file was moved or replaced while it was read."""


def _markdown_files(folder: Path, problems: list[Problem]) -> Iterator[Path]:
    """Yield each Markdown file; hidden and tool folders are left out."""

    def report(error: OSError) -> None:
        if Path(error.filename) == folder:
            raise DocumentError(f"cannot list {folder}: {error.strerror}") from error
        message = f"folder not read ({error.strerror}): let this user read it"
        problems.append(Problem(_name(Path(error.filename), folder), None, message))

    for current, folders, files in os.walk(folder, onerror=report):
        here = Path(current)
        folders[:] = sorted(name for name in folders if not name.startswith(".") and name not in TOOL_FOLDERS)
        for name in folders:
            if os.path.islink(here / name):  # noqa: PTH114  (in a folder that may not be searched, `Path` raises)
                message = "linked folder not followed: copy it, or open it as a knowledge base of its own"
                problems.append(Problem(_name(here / name, folder), None, message))
        for name in sorted(files):
            if not name.startswith(".") and Path(name).suffix.lower() in SUFFIXES:
                yield here / name


def _read_settled(path: Path, root: Path) -> bytes:
    """Read a file, once more if it was replaced meanwhile: editors save by putting a new file in its place."""
    try:
        return _read(path, root)
    except _Replaced:
        return _read(path, root)


def _read(path: Path, root: Path) -> bytes:
    """Return the bytes of a file of the folder that really is at `root`."""
    real = _inside(path, root)
    if real is None:
        raise _Skipped("a link out of the knowledge folder, to a hidden place, or in a loop: copy the file instead")
    try:
        with open(real, "rb", opener=_open_as_it_is) as file:
            opened = os.fstat(file.fileno())
            if not stat.S_ISREG(opened.st_mode):
                raise _Skipped("not a regular file: move it out of the folder")
            data = file.read(MAX_FILE_BYTES + 1)
        if os.path.realpath(real) != real or not os.path.samestat(Path(real).stat(), opened):
            raise _Replaced("it was moved or replaced while it was read: read the folder again")
    except OSError as error:
        raise _Skipped(f"it cannot be read ({error.strerror or error}): make it readable, or remove it") from error
    if len(data) > MAX_FILE_BYTES:
        raise _Skipped(f"it has {opened.st_size} bytes, more than {MAX_FILE_BYTES}: split the file")
    return data


def _inside(path: Path, root: Path) -> str | None:
    """Return where a file really lies, if that is below `root` and not hidden there."""
    try:
        real = os.path.realpath(path)
        parts = Path(real).relative_to(root).parts
    except (OSError, ValueError):  # outside
        return None
    hidden = any(part.startswith(".") or part in TOOL_FOLDERS for part in parts)
    return None if hidden or os.path.islink(real) else real  # noqa: PTH114  (what is still a link leads to itself)


def _open_as_it_is(path: str, flags: int) -> int:
    """Open a file that may have been replaced since it was looked at: neither follow a link nor wait for a pipe."""
    return os.open(path, flags | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))


def _name(path: Path, folder: Path) -> str:
    """Return the path in the folder, in NFC; bytes and characters that cannot be shown are written as escapes."""
    name = os.fsencode(path.relative_to(folder).as_posix()).decode("utf-8", "backslashreplace")
    return unicodedata.normalize("NFC", bounded(escaped(name)))


def _decode(data: bytes) -> str:
    """Decode UTF-8, or UTF-16 with a byte order mark."""
    encoding = "utf-16" if data.startswith((b"\xff\xfe", b"\xfe\xff")) else "utf-8-sig"
    try:
        return data.decode(encoding)
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise _Skipped(f"not {error.encoding} at byte {error.start}: save the file as UTF-8", line) from error


def _read_entry(
    name: str,
    written: str,
    fields: FrontmatterFields,
    problems: list[Problem],
    metadata: Mapping[str, Any] | None = None,
) -> Entry:
    text = clean(written, keep=ZERO_WIDTH_SPACE)
    if len(text) < len(written) and (found := suspicious(written)):
        problems.append(Problem(name, None, f"hidden characters are removed ({', '.join(found)}): {SUSPICION}"))
    if not text.strip() and not metadata:
        raise _Skipped("it is empty: write something in it, or remove it")
    header, body = Frontmatter.read(name, text, problems)
    if metadata:
        try:
            header = header.under(Frontmatter.of(name, metadata, problems))
        except (ValueError, RecursionError) as error:  # without them, the text would say itself who may see it
            raise _Skipped(f"its metadata cannot be read ({type(error).__name__}): make them plain") from error
    if fields.skip_drafts and (field := header.is_draft()):
        raise _Skipped(f"a draft ({field}): remove that field, or set skip_drafts=False")
    body = visible_text(body.replace(ZERO_WIDTH_SPACE, ""))
    folders = name.split("/")[:-1][: fields.category_from_path]
    return Entry(
        entry_id=name,
        title=header.title(fields.title) or _first_heading(body) or one_line(Path(name).stem) or name,
        keywords=header.values(fields.keywords),
        categories=header.values(fields.category) or (("/".join(folders),) if folders else ()),
        entities=tuple(text for text in header.values(fields.entities) if not text.startswith("/")),
        text=body,
        attributes=header.attributes(),
    )


def _first_heading(text: str) -> str | None:
    headings = (one_line(_HEADING_ID.sub("", title)) for level, title, _ in sections(text) if 1 <= level <= 3)
    return next((title for title in headings if title), None)


def fenced_blocks(body: str) -> Iterator[tuple[bool, str]]:
    """Split Markdown into runs of lines, each marked as inside a code fence or not."""
    run: list[str] = []
    fence: str | None = None
    for line in body.splitlines(keepends=True):
        mark = _FENCE.match(line)
        if fence is None and mark:
            yield False, "".join(run)
            run, fence = [line], mark[1]
        elif fence is not None and mark and mark[1].startswith(fence) and not line.strip(" \t\n`~"):
            yield True, "".join([*run, line])
            run, fence = [], None
        else:
            run.append(line)
    yield fence is not None, "".join(run)


def sections(body: str) -> Iterator[tuple[int, str, str]]:
    """Yield (heading level, heading, text below it) in order; the text before the first heading has level 0."""
    level, heading = 0, ""
    lines: list[str] = []
    for is_code, block in fenced_blocks(body):
        for line in block.splitlines(keepends=True):
            found = None if is_code else _HEADING.match(line.rstrip("\n"))
            if found:
                yield level, heading, "".join(lines)
                level, heading, lines = len(found[1]), _CLOSING.sub("", found[2].strip()).rstrip(), []
            else:
                lines.append(line)
    yield level, heading, "".join(lines)
