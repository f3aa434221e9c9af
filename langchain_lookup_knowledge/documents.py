"""From a folder of Markdown files to entries. Nothing is dropped without a problem."""

import json
import os
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml
from frontmatter.default_handlers import YAMLHandler
from langchain_core.documents import Document

from langchain_lookup_knowledge.errors import DocumentError
from langchain_lookup_knowledge.types import FrontmatterFields, Problem

SUFFIXES = (".md", ".markdown", ".mdx")
MAX_VALUES = 1000
"""Most keywords, categories or entities of an entry."""
TOOL_FOLDERS = frozenset({"node_modules", "__pycache__"})

_HEADER = YAMLHandler()
_LOADER = getattr(yaml, "CBaseLoader", yaml.BaseLoader)
_NULLS = frozenset({"", "~", "null", "Null", "NULL"})
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
_HEADING = re.compile(r" {0,3}(#{1,6})[ \t](.*)")
_CONTROLS = dict.fromkeys(place for place in (*range(0x20), *range(0x7F, 0xA0)) if place not in (0x09, 0x0A))
_COMMENT = re.compile(r"(`+)(?:(?!\1).)*\1|<!--.*?-->", re.DOTALL)
_DATA_URI = re.compile(r"data:[\w.+-]+/[\w.+-]+;base64,[A-Za-z0-9+/=]*")
_MODULE_LINE = re.compile(
    r"""(?:import\s+(?:[\w${},*\s]+\sfrom\s+)?['"][^'"]+['"]|export\s+(?:const|let)\s+\w+\s*=.*);?\s*"""
)


@dataclass(frozen=True, slots=True)
class Entry:
    """A file of the knowledge base; `entry_id` is its path in the folder, with `/`, in NFC, `text` its Markdown body."""

    entry_id: str
    title: str
    keywords: tuple[str, ...]
    categories: tuple[str, ...]
    entities: tuple[str, ...]
    text: str

    @property
    def description(self) -> str:
        """What the frontmatter says of the entry: its title, keywords and entities, one a line."""
        return "\n".join((self.title, *self.keywords, *self.entities))


def category_key(category: str) -> str:
    """Return the form in which categories are compared: NFKC, case-folded, blanks trimmed and folded."""
    return " ".join(unicodedata.normalize("NFKC", category).casefold().split())


def read_folder(folder: Path, fields: FrontmatterFields) -> tuple[list[Entry], list[Problem]]:
    """Return the entries of `folder` in path order, and a problem for each file or field not used as written.

    Raises:
        DocumentError: the folder does not exist or cannot be listed.
    """
    if not folder.is_dir():
        raise DocumentError(f"{folder} is not a folder: give the folder that holds the Markdown files")
    entries: dict[str, Entry] = {}
    problems: list[Problem] = []
    for path, name in _markdown_files(folder, problems):
        try:
            if path.exists() and not path.is_file():
                raise OSError(0, "not a regular file")
            text = _decode(path.read_bytes())
        except (OSError, UnicodeDecodeError) as error:
            problems.append(Problem(name, None, f"skipped: {_read_failure(error)}"))
            continue
        if name in entries:
            problems.append(Problem(name, None, "skipped: another file has the same name but for Unicode form"))
            continue
        entries[name] = _read_entry(name, text, fields, problems)
    if not entries:
        problems.append(Problem(".", None, f"no Markdown file ({', '.join(SUFFIXES)}) was read in this folder"))
    return list(entries.values()), problems


def read_documents(documents: Iterable[Document], fields: FrontmatterFields) -> tuple[list[Entry], list[Problem]]:
    """Return an entry for each LangChain document, its metadata read as frontmatter, and problems as `read_folder` does.

    The entry id is the document's `source`, else its id, else its place; a second one of the same source gets "#2". Metadata
    without any of the fields leaves the frontmatter of the text itself, if it has one, to be read.
    """
    wanted = {key.casefold() for key in (*fields.title, *fields.keywords, *fields.category, *fields.entities)}
    entries: dict[str, Entry] = {}
    problems: list[Problem] = []
    counts: Counter[str] = Counter()
    for place, document in enumerate(documents, start=1):
        source = one_line(str(document.metadata.get("source") or document.id or f"document-{place}"))
        counts[source] += 1
        name = source if counts[source] == 1 else f"{source}#{counts[source]}"
        header = {key: value for key, value in document.metadata.items() if str(key).casefold() in wanted}
        text = document.page_content
        if header:
            text = f"---\n{json.dumps(header, ensure_ascii=False, default=str)}\n---\n{text}"  # JSON is YAML
        entries[name] = _read_entry(name, _plain(text), fields, problems)
    if not entries:
        problems.append(Problem(".", None, "there are no documents"))
    return list(entries.values()), problems


def _markdown_files(folder: Path, problems: list[Problem]) -> Iterator[tuple[Path, str]]:
    """Yield each Markdown file and its name in the knowledge base; hidden and tool folders are left out."""
    root = folder.resolve()

    def report(error: OSError) -> None:
        if Path(error.filename) == folder:
            raise DocumentError(f"cannot list {folder}: {error.strerror}") from error
        problems.append(Problem(_name(Path(error.filename), folder), None, f"folder skipped: {error.strerror}"))

    for current, folders, files in os.walk(folder, onerror=report):
        here = Path(current)
        folders[:] = sorted(name for name in folders if not name.startswith(".") and name not in TOOL_FOLDERS)
        for name in folders:
            if (here / name).is_symlink():
                problems.append(Problem(_name(here / name, folder), None, "linked folder not followed"))
        for name in sorted(files):
            path = here / name
            if name.startswith(".") or path.suffix.lower() not in SUFFIXES:
                continue
            if not _is_inside(path, root):
                problems.append(
                    Problem(_name(path, folder), None, "skipped: a link out of the knowledge folder, or in a loop")
                )
            else:
                yield path, _name(path, folder)


def _is_inside(path: Path, root: Path) -> bool:
    """Say whether a file, or what a link points to, is in the folder; a link that leads nowhere is."""
    try:
        return not path.is_symlink() or path.resolve().is_relative_to(root)
    except (OSError, RuntimeError):  # a loop of links
        return False


def _name(path: Path, folder: Path) -> str:
    name = os.fsencode(path.relative_to(folder).as_posix()).decode("utf-8", "backslashreplace")
    return unicodedata.normalize("NFC", name)


def _decode(data: bytes) -> str:
    """Decode UTF-8, or UTF-16 with a byte order mark; line ends become newlines, other control characters go."""
    encoding = "utf-16" if data.startswith((b"\xff\xfe", b"\xfe\xff")) else "utf-8-sig"
    return _plain(data.decode(encoding))


def _plain(text: str) -> str:
    text = text.replace("\r\n", "\n").replace("\r", "\n").translate(_CONTROLS)
    return unicodedata.normalize("NFC", text)


def _read_failure(error: OSError | UnicodeDecodeError) -> str:
    if isinstance(error, UnicodeDecodeError):
        return f"not {error.encoding} at byte {error.start}; save the file as UTF-8"
    return error.strerror or str(error)


def _read_entry(name: str, text: str, fields: FrontmatterFields, problems: list[Problem]) -> Entry:
    header, body = _Header.read(name, text, problems)
    folders = name.split("/")[:-1][: fields.category_from_path]
    return Entry(
        entry_id=name,
        title=next(iter(header.values(fields.title, split=False)), None) or _first_heading(body) or Path(name).stem,
        keywords=header.values(fields.keywords),
        categories=header.values(fields.category) or (("/".join(folders),) if folders else ()),
        entities=header.values(fields.entities),
        text=body,
    )


class _Header:
    """The frontmatter of one file, as YAML nodes: values stay as written (`1.10`, `on`) and anchors never expand."""

    def __init__(self, name: str, nodes: dict[str, yaml.Node], first_line: int, problems: list[Problem]) -> None:
        self._name = name
        self._nodes = nodes
        self._first_line = first_line
        self._problems = problems

    @classmethod
    def read(cls, name: str, text: str, problems: list[Problem]) -> tuple["_Header", str]:
        """Return the header and the body of `text`; a header that cannot be read stays in the body."""
        nothing = cls(name, {}, 1, problems)
        start = len(text) - len(text.lstrip("\n"))
        if not _HEADER.detect(text[start:]):
            if not text.strip():
                problems.append(Problem(name, None, "the file is empty"))
            elif text.startswith("+++\n"):
                problems.append(Problem(name, 1, "TOML frontmatter is not read; the whole file is used as text"))
            return nothing, text
        try:
            written, body = _HEADER.split(text[start:])
        except ValueError:
            message = "the frontmatter is never closed; the whole file is used as text: add a line ---"
            problems.append(Problem(name, start + 1, message))
            return nothing, text
        first_line = text.count("\n", 0, text.index(written, start)) + 1
        try:
            node = yaml.compose(written, Loader=_LOADER)
        except (yaml.YAMLError, RecursionError) as error:
            line = first_line + getattr(getattr(error, "problem_mark", None), "line", 0)
            what = getattr(error, "problem", None) or type(error).__name__
            message = f"the frontmatter is not YAML ({what}); the whole file is used as text: quote the value"
            problems.append(Problem(name, line, message))
            return nothing, text
        if node is None:
            return nothing, body
        if not isinstance(node, yaml.MappingNode):
            message = "the frontmatter is not a mapping of keys to values; the whole file is used as text"
            problems.append(Problem(name, first_line + node.start_mark.line, message))
            return nothing, text
        header = cls(name, {}, first_line, problems)
        header._add(node)
        return header, body

    def _add(self, mapping: yaml.MappingNode) -> None:
        for key, value in mapping.value:
            if not isinstance(key, yaml.ScalarNode):
                self._report(key, "a key that is not text is ignored")
                continue
            name = key.value.casefold()
            if name in self._nodes:
                self._report(key, f"the key {key.value!r} is written twice; the last one counts")
            if isinstance(value, yaml.MappingNode) and any(not isinstance(k, yaml.ScalarNode) for k, _ in value.value):
                self._report(value, f"{key.value}: looks like a template that was not filled in; ignored")
            else:
                self._nodes[name] = value

    def _report(self, node: yaml.Node, message: str) -> None:
        self._problems.append(Problem(self._name, self._first_line + node.start_mark.line, message))

    def values(self, keys: Sequence[str], *, split: bool = True) -> tuple[str, ...]:
        """Return the values under `keys`, together, without doubles; a string is split at commas and semicolons."""
        found = tuple(dict.fromkeys(value for key in keys for value in self._values(key, split=split)))
        if len(found) > MAX_VALUES:
            message = f"{' and '.join(keys)}: {len(found)} values; those after the first {MAX_VALUES} are ignored"
            self._problems.append(Problem(self._name, None, message))
        return found[:MAX_VALUES]

    def _values(self, key: str, *, split: bool) -> list[str]:
        node = self._nodes.get(key.casefold())
        if node is None:
            return []
        if isinstance(node, yaml.ScalarNode):
            written = _scalar(node)
            return [text for part in (re.split("[,;]", written) if split else [written]) if (text := one_line(part))]
        if not isinstance(node, yaml.SequenceNode):
            self._report(node, f"{key}: a mapping is ignored; write a list or a string")
            return []
        scalars = [item for item in node.value if isinstance(item, yaml.ScalarNode)]
        if len(scalars) < len(node.value):
            self._report(node, f"{key}: list items that are not plain text are ignored")
        return [text for item in scalars if (text := one_line(_scalar(item)))]


def _scalar(node: yaml.ScalarNode) -> str:
    is_null = not node.style and node.value in _NULLS  # plain style is None in one YAML loader, "" in the other
    return "" if is_null else unicodedata.normalize("NFC", node.value)


def one_line(text: str) -> str:
    """Return `text` with runs of blanks and line ends made one blank, and control characters removed."""
    kept = "".join(c for c in text if c.isspace() or unicodedata.category(c) not in ("Cc", "Cs"))
    return " ".join(kept.split())


def _first_heading(body: str) -> str | None:
    return next((one_line(title) for level, title, _ in sections(visible_text(body)) if level and title), None)


def visible_text(body: str) -> str:
    """Return what a reader sees: no HTML comments, embedded images or module lines, but code blocks untouched."""
    return "".join(
        block if is_code else _DATA_URI.sub("", _without_module_lines(_COMMENT.sub(_kept_code, block)))
        for is_code, block in fenced_blocks(body)
    )


def _kept_code(match: re.Match[str]) -> str:
    return match[0] if match[1] else ""


def _without_module_lines(block: str) -> str:
    """Drop the `import` and `export` lines of MDX."""
    return "".join(line for line in block.splitlines(keepends=True) if not _MODULE_LINE.fullmatch(line))


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
                level, heading, lines = len(found[1]), found[2].strip().rstrip("#").rstrip(), []
            else:
                lines.append(line)
    yield level, heading, "".join(lines)
