"""Finding links in Markdown, and the entries that they lead to.

Wikilinks are resolved as in Obsidian and Logseq. Markdown links are resolved as on GitHub and in
site generators, where file endings and `index` may be omitted.
"""

import posixpath
import re
import unicodedata
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from urllib.parse import unquote

from langchain_lookup_knowledge.reading.entry import Entry, Link
from langchain_lookup_knowledge.reading.selection import ENDINGS

MAX_LINKS = 1000
"""Maximum links that are read from an entry."""
MAX_NAMESAKES = 1000
"""Maximum entries with the same file name that a link may choose from."""

WIKILINK = (
    r"\[\[(?P<page>[^\[\]|#\n]{0,300})(?P<fragment>\#[^\[\]|\n]{0,300})?"
    r"(?:\\?\|[^\[\]\n]{0,300})?\]\]"
)
"""Pattern of a wikilink: `[[Page#Heading|text]]`."""

_LINK = re.compile(
    rf"""
    (?<![\\!]){WIKILINK}
  | \]\([ ]{{0,3}}(?:<(?P<angled>[^<>\n]{{1,1000}})>
    |(?P<bare>(?!\{{[{{%])[^\s<>()]{{1,1000}}(?:\([^\s<>()]{{0,300}}\)[^\s<>()]{{0,300}})?))
  | ^[ ]{{0,3}}\[[^\[\]\n]{{1,300}}\]:[ \t]{{0,3}}(?P<defined>[^\s<>]{{1,1000}})
  | \{{(?:%-?|\{{[<%])[ ]{{0,3}}(?:page|link|ref|relref)[ ]{{1,3}}
    ["']?(?P<tag>[^\s"'%<>{{}}]{{1,300}})
    """,
    re.VERBOSE | re.MULTILINE,
)
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:|//")
_ENDING = re.compile(r"\.[A-Za-z]\w{0,9}$")
INDEX_NAMES = frozenset({"readme", "index", "_index"})
"""Names of files, in lower case and without their ending, that stand for their folder."""
_INCLUDE_FOLDERS = frozenset({"_includes", "includes", "included", "_snippets", "snippets"})


def find_links(text: str, unread: Sequence[tuple[int, int]]) -> Iterator[Link]:
    """Yield the links of a Markdown text that do not begin in one of the `unread` spans.

    Web addresses and links to headings of the same text are skipped.
    """
    for found in _LINK.finditer(text):
        if is_within(found.start(), unread):
            continue
        if found["page"] is not None:
            target, is_wiki = found["page"].rstrip("\\").strip(), True
        else:
            written = found["angled"] or found["bare"] or found["defined"] or found["tag"]
            target, is_wiki = written.partition("#")[0].partition("?")[0], False
        if target and not _SCHEME.match(target):
            yield Link(target, is_wiki)


def is_within(position: int, spans: Sequence[tuple[int, int]]) -> bool:
    """Return whether a position is in one of the ordered spans, which do not overlap."""
    before = bisect_right(spans, position, key=lambda span: span[0])
    return before > 0 and position < spans[before - 1][1]


def is_file_of_another_kind(target: str) -> bool:
    """Return whether a link names a non-Markdown file, such as an image."""
    return _ENDING.search(target) is not None and not _is_markdown(target)


def _is_markdown(target: str) -> bool:
    ending = _ENDING.search(target)
    return ending is not None and ending[0].lower() in ENDINGS


class LinkTargets:
    """Entries as targets of links.

    Args:
        entries: all entries that a caller sees.
    """

    def __init__(self, entries: Iterable[Entry]) -> None:
        self._entries = list(entries)
        self._ids = {entry.entry_id for entry in self._entries}
        self._places: tuple[dict[str, str], ...] = ({}, {}, {})  # by id, stem, folder
        self._named: defaultdict[str, list[str]] = defaultdict(list)
        for entry_id in sorted(self._ids):
            whole, stem = _folded(entry_id), _folded(_ENDING.sub("", entry_id))
            folder, _, name = stem.rpartition("/")
            self._places[0].setdefault(whole, entry_id)
            self._places[1].setdefault(stem, entry_id)
            if name in INDEX_NAMES:
                self._places[2].setdefault(folder, entry_id)
                self._named[folder.rpartition("/")[2]].append(entry_id)
            self._named[name].append(entry_id)
        self._endings: dict[str, list[str]] = {}

    @cached_property
    def _by_title(self) -> dict[str, set[str]]:
        """The ids of the entries, by title and by entity."""
        titled: defaultdict[str, set[str]] = defaultdict(set)
        for entry in self._entries:
            for title in (entry.title, *entry.entities):
                titled[_folded(title)].add(entry.entry_id)
        return titled

    def find(self, link: Link, host: str) -> str | None:
        """Return the id of the entry that a link in the entry `host` leads to, or None."""
        return self.page(link.target, host) if link.is_wiki else self.path(link.target, host)

    def page(self, name: str, host: str) -> str | None:
        """Return the entry that a wikilink names, by the rules of Obsidian, then Logseq.

        The candidates, in this order, are: the path from the host, if it begins with `./` or `../`;
        the path from the root; the shortest path that ends with the name, preferably in the host's
        folder; the only entry with this title or alias.
        """
        if name.startswith(("./", "../")):
            return self._at(posixpath.join(posixpath.dirname(host), name))
        path = name.strip("/")
        if exact := self._at(path, folders=False):
            return exact
        found = self._ending_with(path)
        folder = host[: host.rfind("/") + 1]
        if found:
            return next((entry_id for entry_id in found if entry_id.startswith(folder)), found[0])
        if "/" in path and (flat := self._ending_with(path.replace("/", "___"))):
            return flat[0]
        return _only(self._by_title.get(_folded(name), ()))

    def path(self, written: str, host: str) -> str | None:
        """Return the entry that the path of a Markdown link leads to.

        A relative path that matches nothing from the host is tried from the root. A path that
        begins with `/` may be an address of the website: its first folder may be missing in the
        knowledge base, or the knowledge base may have more folders above it.
        """
        path = unquote(written)
        if path.startswith("/"):
            path = path.strip("/")
            inner = path.partition("/")[2]
            found = self._at(path) or (self._at(inner) if inner else None)
            return found or (_only(self._ending_with(path)) if path else None)
        folder, page = posixpath.dirname(host), _ENDING.sub("", host)
        found = self._at(posixpath.join(folder, path))
        if found is None and not _ENDING.search(path):
            found = self._at(posixpath.join(page, path))
        if found is None and ".." not in path and not is_file_of_another_kind(path):
            found = self._at(path) or _only(self._ending_with(path.strip("/")))
        return found

    def included(self, written: str, host: str) -> str | None:
        """Return the entry that an include names.

        The path is tried from the host, then from the root. Otherwise, it is the only entry with
        this path in a folder for includes.
        """
        path = written.strip("/")
        return (
            self._at(posixpath.join(posixpath.dirname(host), path))
            or self._at(path)
            or _only(
                entry_id
                for entry_id in self._ending_with(path)
                if not _INCLUDE_FOLDERS.isdisjoint(entry_id.casefold().split("/")[:-1])
            )
        )

    def _at(self, path: str, *, folders: bool = True) -> str | None:
        """Return the entry at a path from the root, with or without its ending."""
        path = posixpath.normpath(path)
        if path.startswith(".."):
            return None
        exact = unicodedata.normalize("NFC", path)
        if exact in self._ids:
            return exact
        folded = _folded("" if path == "." else path)
        for places in self._places if folders else self._places[:2]:
            if found := places.get(folded):
                return found
        return self._places[1].get(folded.removesuffix(".html")) if folders else None

    def _ending_with(self, path: str) -> list[str]:
        """Return the entries whose path ends with `path`, the shortest first.

        `path` may lack the file ending.
        """
        folded = _folded(path)
        if _is_markdown(folded):
            folded = _ENDING.sub("", folded)
        if folded not in self._endings:
            found = []
            for entry_id in self._named.get(folded.rpartition("/")[2], ()):
                stem = _ENDING.sub("", f"/{_folded(entry_id)}")
                folder, _, name = stem.rpartition("/")
                if stem.endswith(f"/{folded}") or (
                    name in INDEX_NAMES and folder.endswith(f"/{folded}")
                ):
                    found.append(entry_id)
            found.sort(key=lambda entry_id: (len(entry_id), entry_id))
            self._endings[folded] = found[:MAX_NAMESAKES]
        return self._endings[folded]


def _folded(path: str) -> str:
    return unicodedata.normalize("NFC", path).casefold()


def _only(found: Iterable[str]) -> str | None:
    """Return the entry if there is only one; None if there are none, or several."""
    several = set(found)
    return several.pop() if len(several) == 1 else None
