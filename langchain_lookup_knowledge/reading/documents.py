"""Reading a folder of Markdown files, or LangChain documents, into entries.

Hidden files are skipped silently. `selection` counts the files that patterns or endings exclude.
Any other omission is reported as a problem.
"""

import os
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial
from itertools import dropwhile, pairwise
from pathlib import Path
from typing import Any

from langchain_core.documents import Document

from langchain_lookup_knowledge.errors import DocumentError
from langchain_lookup_knowledge.reading.embeds import find_connections, joined, rejoined
from langchain_lookup_knowledge.reading.entry import Entry
from langchain_lookup_knowledge.reading.files import (
    Skipped,
    decoded,
    markdown_files,
    path_within,
    read_settled,
)
from langchain_lookup_knowledge.reading.known.files import KnownFolder, Parsed, Reader
from langchain_lookup_knowledge.reading.links import INDEX_NAMES
from langchain_lookup_knowledge.reading.metadata.frontmatter import (
    MAX_VALUE_CHARS,
    SUSPICION,
    Frontmatter,
    inline_tags,
    listed,
)
from langchain_lookup_knowledge.reading.metadata.headers import lines_above
from langchain_lookup_knowledge.reading.metadata.lead import Line
from langchain_lookup_knowledge.reading.metadata.standing import Standing
from langchain_lookup_knowledge.reading.metadata.unfenced import without_block_properties
from langchain_lookup_knowledge.reading.selection import Rules, Selection, files_named
from langchain_lookup_knowledge.text.headings import file_title, heading_text
from langchain_lookup_knowledge.text.markdown import limits, outline
from langchain_lookup_knowledge.text.visible.cleaning import (
    ZERO_WIDTH_SPACE,
    Shifts,
    Visible,
    clean,
    one_line,
    suspicious,
    visible,
)
from langchain_lookup_knowledge.text.wording import shorten
from langchain_lookup_knowledge.types import FrontmatterFields, LoadReport, Problem

MAX_FILES = 100_000
"""Maximum number of files; any further files are skipped."""
MAX_COMPARED = 20_000
"""Maximum characters of a body that are searched for a text of the frontmatter."""

_DRAWING = ".excalidraw"
"""Name ending of drawings; their headings are written by the drawing tool."""


def read_folder(
    folder: Path, fields: FrontmatterFields, selection: Selection | None = None
) -> tuple[list[Entry], LoadReport]:
    """Return the entries of `folder` in path order, and a report on how each file was handled.

    Raises:
        DocumentError: the folder does not exist or cannot be listed.
    """
    known, report = read_again(folder, fields, selection or Selection(), KnownFolder())
    return list(known.entries), report


def read_again(
    folder: Path,
    fields: FrontmatterFields,
    selection: Selection,
    known: KnownFolder,
    *,
    verify: bool = False,
) -> tuple[KnownFolder, LoadReport]:
    """Return the entries of `folder` in path order, and a report on how each file was handled; a
    file that is `known` and has not changed is not read again.

    `known` must have been read with the same settings. `verify` compares the bytes of each file.

    Raises:
        DocumentError: the folder does not exist or cannot be listed.
    """
    if not folder.is_dir():
        raise DocumentError(
            f"{folder} is not a folder: give the folder that holds the Markdown files"
        )
    entries: dict[str, Entry] = {}
    skipped: list[Problem] = []
    problems: list[Problem] = []
    rules = Rules(folder, selection, problems)
    try:
        paths = list(markdown_files(folder, rules, problems))
    except RecursionError as error:
        raise DocumentError(
            f"the folders in {folder} are nested too deeply to be listed: flatten them"
        ) from error
    root = folder.resolve()
    reader = Reader(
        known.files,
        lambda path: read_settled(path, root, rules),
        partial(_parsed, fields=fields),
        verify=verify,
    )
    for path in paths:
        name = path_within(path, folder)
        try:
            if len(entries) >= MAX_FILES:
                raise Skipped(f"the knowledge base already has {MAX_FILES} files: split it")
            if name in entries:
                raise Skipped("another file has the same name in another Unicode form: rename one")
            parsed = reader.read(name, path)
        except Skipped as reason:
            skipped.append(Problem(name, reason.line, f"skipped: {reason}"))
            problems.append(skipped[-1])
            continue
        problems += parsed.problems
        if parsed.entry is None:
            skipped += parsed.problems[-1:]
            continue
        entries[name] = parsed.entry
    if not entries:
        kind = files_named(selection.endings, listed=True)
        problems.append(Problem(".", None, f"no {kind} was read in this folder"))
    joined_entries, embeds = known.entries, list(known.problems)
    if not known.holds(reader.files, list(entries)):
        edited = known.edited(reader.files, list(entries))
        renewed = None if edited is None else rejoined(known.entries, edited)
        if renewed is None:
            embeds = []
            renewed = joined(list(entries.values()), embeds)
        joined_entries = renewed
    report = LoadReport(
        len(paths),
        len(entries),
        tuple(skipped),
        (*problems, *embeds),
        rules.left_out(),
        tuple(embeds),
    )
    return KnownFolder(reader.files, joined_entries, embeds, reader.parsed), report


def _parsed(name: str, data: bytes, fields: FrontmatterFields) -> Parsed:
    """Return what the bytes of a file hold; the last problem of a file without an entry says why
    it has none.
    """
    problems: list[Problem] = []
    entry = None
    try:
        entry = _read_entry(name, decoded(data), fields, problems)
    except Skipped as reason:
        problems.append(Problem(name, reason.line, f"skipped: {reason}"))
    return Parsed(entry, tuple(problems))


def checked_documents(documents: Iterable[Document]) -> list[Document]:
    """Return documents as a list.

    Raises:
        ValueError: one of them is no LangChain document.
    """
    listed = list(documents)
    if strange := next((one for one in listed if not isinstance(one, Document)), None):
        raise ValueError(
            f"documents takes LangChain documents, such as loader.load() gives, not {strange!r}"
        )
    return listed


def read_documents(
    documents: Iterable[Document], fields: FrontmatterFields
) -> tuple[list[Entry], LoadReport]:
    """Return the entries of LangChain documents, and a report on how each document was handled.

    A document's metadata is read as frontmatter. If its text has frontmatter of its own, the
    metadata overrides it, key by key.

    The entry id is the document's `source`, else its id, else its position; a second document with
    the same source gets "#2". Metadata from `ObsidianLoader` is restored to what the note contains,
    and `path` replaces `source`, which is only a file name. Folders for `category_from_path` count
    from the common folder of all absolute sources.
    """
    entries: dict[str, Entry] = {}
    skipped: list[Problem] = []
    problems: list[Problem] = []
    counts: Counter[str] = Counter()
    loaded = [(document, _as_in_the_note(document.metadata)) for document in documents]
    root = _shared_folder(metadata.get("source") for _, metadata in loaded)
    for place, (document, metadata) in enumerate(loaded, start=1):
        source = one_line(str(metadata.get("source") or document.id or f"document-{place}"))
        counts[source] += 1
        name = source if counts[source] == 1 else f"{source}#{counts[source]}"
        try:
            entries[name] = _read_entry(
                name, document.page_content, fields, problems, metadata, root
            )
        except Skipped as reason:
            skipped.append(Problem(name, reason.line, f"skipped: {reason}"))
            problems.append(skipped[-1])
    if not entries:
        problems.append(Problem(".", None, "there are no documents"))
    embeds: list[Problem] = []
    connected = joined(list(entries.values()), embeds)
    return connected, LoadReport(
        counts.total(),
        len(entries),
        tuple(skipped),
        (*problems, *embeds),
        not_embedded=tuple(embeds),
    )


def report_in_scope(
    report: LoadReport, visible: Collection[str], not_embedded: Sequence[Problem]
) -> LoadReport:
    """Return a report for a caller who may see only the files of these entries.

    `not_embedded`: the problems of embeds that this caller sees.
    """
    others = {*report.skipped, *report.not_embedded}
    own = (one for one in report.problems if one.path in visible and one not in others)
    count, embeds = len(visible), tuple(not_embedded)
    return LoadReport(count, count, (), (*own, *embeds), not_embedded=embeds)


_TIMES = {"created", "last_modified", "last_accessed"}
_OBSIDIAN = {"source", "path", *_TIMES}
"""Keys that langchain-community's ObsidianLoader gives to each document."""


def _as_in_the_note(metadata: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the metadata of a document; undo the changes that `ObsidianLoader` makes.

    The loader writes empty values as "None", lists in Python syntax, and tags in random order. It
    adds file times as numbers; they are dropped, because they change even if the note does not.
    """
    if not metadata.keys() >= _OBSIDIAN:
        return metadata
    times = {key for key in _TIMES if isinstance(metadata[key], float)}
    kept = {
        key: listed(value) or value if isinstance(value, str) else value
        for key, value in metadata.items()
        if value != "None" and key not in times
    }
    if isinstance(tags := kept.get("tags"), str):
        kept["tags"] = sorted(tags.split(","))
    return {**kept, "source": metadata["path"]}


def _shared_folder(sources: Iterable[Any]) -> str:
    """Return the common folder of all absolute sources, with a final `/`; empty if it does not
    exist.
    """
    written = (str(source) for source in sources if isinstance(source, str | os.PathLike))
    folders = [source.rpartition("/")[0] for source in written if source.startswith("/")]
    return os.path.commonpath(folders) + "/" if any(folders) else ""


def _read_entry(
    name: str,
    written: str,
    fields: FrontmatterFields,
    problems: list[Problem],
    metadata: Mapping[str, Any] | None = None,
    root: str = "",
) -> Entry:
    text = clean(written, keep=ZERO_WIDTH_SPACE)
    if len(text) < len(written) and (found := suspicious(written)):
        problems.append(
            Problem(name, None, f"hidden characters are removed ({', '.join(found)}): {SUSPICION}")
        )
    if not text.strip() and not metadata:
        raise Skipped("it is empty: add some text, or remove it")
    header, body = Frontmatter.read(name, text, problems, untitled=fields.plain_headers)
    if metadata:
        try:
            header = header.overridden_by(Frontmatter.of(name, metadata, problems))
        except (ValueError, RecursionError) as error:
            # Skipped: without its metadata, the text alone would decide who may see the document.
            raise Skipped(
                f"its metadata cannot be read ({type(error).__name__}): "
                "use only text, numbers, dates and lists"
            ) from error
    if fields.skip_drafts and (field := header.is_draft()):
        raise Skipped(f"a draft ({field}): remove that field, or set skip_drafts=False")
    above = lines_above(text, body)
    body = without_block_properties(body.replace(ZERO_WIDTH_SPACE, ""))
    marked, connections = find_connections(body)
    seen = visible(marked)
    folders = name.removeprefix(root).split("/")[:-1][: fields.category_from_path]
    folders = [*map(file_title, folders)]
    is_drawing = Path(name).stem.endswith(_DRAWING)
    title = heading_text(header.title(fields.title) or "", is_markdown=False) or (
        "" if is_drawing else _first_heading(seen.text)
    )
    keywords = header.values(fields.keywords)
    if fields.inline_tags:
        keywords = tuple(dict.fromkeys((*keywords, *inline_tags(seen.text))))
    categories = header.values(fields.category) or (("/".join(folders),) if folders else ())
    entities = tuple(text for text in header.values(fields.entities) if not text.startswith("/"))
    attributes = header.attributes()
    standing = Standing.of(name, attributes)
    filterable = attributes
    if standing.version and "version" not in dict(attributes):  # that of a folder
        filterable += (("version", standing.version),)
    lead = _new_lines(header.lead(fields.text), title, seen.text)
    text = "\n".join([*(line.text for line in lead), seen.text]) if lead else seen.text
    entry = Entry(
        entry_id=name,
        title=title or _file_title(name),
        keywords=keywords,
        categories=categories,
        entities=entities,
        text=text,
        attributes=filterable,
        shifts=_shifts(lead, seen, above),
        lead=len(lead),
        other_values=tuple(
            dict.fromkeys(
                (*header.other_values(fields, attributes), *filter(None, (standing.version,)))
            )
        ),
        standing=standing,
        written=connections._replace(text=text) if connections.marks else connections,
    )
    problems += [Problem(name, entry.file_line(line), text) for line, text in limits(entry.text)]
    return entry


def _new_lines(lead: Sequence[Line], title: str | None, body: str) -> list[Line]:
    """Return the lead lines that repeat neither the title nor the body.

    An empty line is added to separate them from the body.
    """
    if not lead:
        return []
    known = one_line(body[:MAX_COMPARED])
    said = [line.text.removeprefix("- ").strip() for line in lead]
    new = [
        line
        for line, text in zip(lead, said, strict=True)
        if not text or (text != title and text not in known)
    ]
    new = list(dropwhile(lambda line: not line.text, new))
    apart = [] if body.startswith("\n") or not new else [Line("", new[-1].number)]
    return [*new, *apart]


def _shifts(lead: Sequence[Line], seen: Visible, above: int) -> Shifts:
    """Return the line shifts of a text: a lead, followed by the visible part of a body."""
    shifts: list[tuple[float, int]] = [
        (place, max(line.number, 1) - place) for place, line in enumerate(lead, start=1)
    ]
    shifts += [(line + len(lead), shift + above - len(lead)) for line, shift in seen.shifts]
    changes = (pair for before, pair in pairwise(shifts) if before[1] != pair[1])
    return (shifts[0], *changes)


def _first_heading(text: str) -> str:
    """Return the first heading of level 1 that has text; empty if there is none."""
    titles = (heading_text(s.heading) for s in outline(text).sections() if s.level == 1)
    return shorten(next(filter(None, titles), ""), MAX_VALUE_CHARS)


def _file_title(name: str) -> str:
    """Return the name of a file, or that of its folder if it is an index or a README."""
    path = Path(name)
    is_named_after_folder = path.stem.casefold() in INDEX_NAMES and path.parent.name
    stem = path.parent.name if is_named_after_folder else path.stem.removesuffix(_DRAWING)
    return file_title(stem) or name
