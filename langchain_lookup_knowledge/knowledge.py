"""A snapshot of a knowledge folder, limited to what a caller may see: the basis of L0 (keyword
hints).
"""

import json
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from langchain_lookup_knowledge.l0 import lints
from langchain_lookup_knowledge.l0.glossary import Glossary, HouseWords
from langchain_lookup_knowledge.l0.hints import HintIndex
from langchain_lookup_knowledge.l0.metadata_search import MetadataSearch
from langchain_lookup_knowledge.l1 import indexing
from langchain_lookup_knowledge.l1.requests import L1Request
from langchain_lookup_knowledge.l1.search import L1Search
from langchain_lookup_knowledge.reading.documents import report_in_scope
from langchain_lookup_knowledge.reading.embeds import joined
from langchain_lookup_knowledge.reading.entry import Embed, Entry, file_line, last_file_line
from langchain_lookup_knowledge.reading.known.files import KnownFolder
from langchain_lookup_knowledge.reading.metadata.filters import Conditions
from langchain_lookup_knowledge.reading.metadata.holders import Holders
from langchain_lookup_knowledge.reading.parts import (
    How,
    Part,
    Related,
    cited,
    part_of,
    related_by,
    unknown_entry,
)
from langchain_lookup_knowledge.reading.passages import Passage
from langchain_lookup_knowledge.scope import Scope, checked_scope
from langchain_lookup_knowledge.text.excerpts import excerpt, unwrapped
from langchain_lookup_knowledge.text.search_terms import held_terms
from langchain_lookup_knowledge.text.visible.cleaning import one_line
from langchain_lookup_knowledge.types import (
    Candidate,
    CandidatePassage,
    Hints,
    LoadReport,
    MetadataHit,
    PrimaryMatch,
    Problem,
)

EXCERPT_CHARS = 1000
"""Maximum characters shown of an entry that only L0 found."""
MAX_EXCERPTED = 100_000
"""Maximum characters of an entry that are searched for the excerpt."""
RELATED_CHARS = 1000
"""Number of leading characters of an entry that serve as the query for related entries."""
MAX_EXCERPTED_EMBEDS = 20
"""Maximum embedded parts of an entry that are searched for the excerpt."""
MAX_VIEWS = 100
"""Maximum number of scopes and filters with cached hints."""
MAX_VIEWED = 200_000
"""Maximum number of entries in all cached views together; the latest view is always cached."""


@dataclass(frozen=True, slots=True)
class Knowledge:
    """The entries by id, their hints, and the load report; a snapshot is never changed, only
    replaced.
    """

    entries: Mapping[str, Entry]
    report: LoadReport
    hint_index: HintIndex
    metadata: MetadataSearch
    words: HouseWords
    glossary: Glossary
    known: KnownFolder
    holders: Holders
    views: "dict[Scope | str, Knowledge]" = field(default_factory=dict)
    conditions: Conditions = ()
    """The conditions of a caller's filters; all entries of this snapshot meet them."""
    visible: Container[str] | None = None
    """The ids of the entries that the caller may see, regardless of filters; None means the ids in
    `entries`.
    """

    @classmethod
    def of(
        cls,
        entries: Mapping[str, Entry],
        report: LoadReport,
        hint_index: HintIndex,
        words: HouseWords,
        metadata: MetadataSearch,
        known: KnownFolder,
        scope: Scope = (),
    ) -> "Knowledge":
        """Return a snapshot of these entries, which are all that a scope sees. `hint_index` and
        `metadata` must contain all of them; `words` must also contain the entries that the scope
        hides.
        """
        glossary, holders = words.glossary(entries, scope), Holders(entries)
        return cls(entries, report, hint_index, metadata, words, glossary, known, holders)

    def seen_by(self, scope: Scope, before: "Knowledge | None" = None) -> "Knowledge":
        """Return the part that a caller may see, including its hints and counts. It is built at the
        first lookup with a scope and then cached.

        `before`: the same part of an earlier snapshot; texts unchanged since are not searched for
        terms again.
        """
        if not scope:
            return self
        view = self.views.get(scope)
        if view is None:
            problems: list[Problem] = []
            found = joined(self.holders.seen_by(scope), problems)
            seen = {entry.entry_id: entry for entry in found}
            report = report_in_scope(self.report, seen.keys(), problems)
            index = before.hint_index if before else self.hint_index.rebuilt(())
            hints, metadata = index.updated(found), MetadataSearch(seen, self.metadata)
            words, files = self.words, KnownFolder()
            view = Knowledge.of(seen, report, hints, words, metadata, files, scope)
            self._kept(scope, view)
        return view

    def limited_to(self, filters: Mapping[str, Any] | None) -> "Knowledge":
        """Return the part that passes a caller's normalized filters, cached as in `seen_by`.

        Filters do not change what the caller may see: the glossary, embedded parts of other
        entries, and document frequencies over all entries.
        """
        if not filters:
            return self
        key = json.dumps(filters, sort_keys=True)
        view = self.views.get(key)
        if view is None:
            conditions = self.holders.conditions(filters)
            kept = {entry.entry_id: entry for entry in self.holders.meeting(conditions)}
            visible = self.entries if self.visible is None else self.visible
            view = replace(
                self,
                entries=kept,
                metadata=MetadataSearch(kept, self.metadata),
                views={},
                conditions=conditions,
                visible=visible,
            )
            self._kept(key, view)
        return view

    def _kept(self, key: Scope | str, view: "Knowledge") -> None:
        self.views.pop(key, None)
        room = MAX_VIEWED - len(view.entries)
        kept = list(self.views.items())[max(0, len(self.views) + 1 - MAX_VIEWS) :]
        while kept and sum(len(one.entries) for _, one in kept) > room:
            del kept[0]
        names = {name for name, _ in kept}
        for oldest in list(self.views):
            if oldest not in names:
                self.views.pop(oldest, None)
        self.views[key] = view

    def renew_views(self, before: "Knowledge") -> None:
        """Build the views that callers used of the snapshot before this one, so that no lookup has
        to wait for them.
        """
        for scope, view in list(before.views.items()):
            if not isinstance(scope, str):
                self.seen_by(scope, view)
        for name in before.holders.fields:
            self.holders.values(name)

    def hints(self, query: str) -> Hints:
        """Return the hints that L0 finds in a query: the `hints` of a result."""
        only = self.entries.keys() if self.conditions else None
        return self.hint_index.hints(query, self.glossary.joins(query), only)

    def search_metadata(self, query: str, limit: int) -> list[MetadataHit]:
        """Return the entries whose titles and frontmatter share words with a query, best first.

        This is weaker than hints, because no whole term has to occur in the query. It is used only
        when L1 cannot take part.
        """
        return self.metadata.search(query, limit, self.glossary.joins(query))

    def shown(self, entry_id: str, keys: Iterable[str]) -> dict[str, str | list[str]]:
        """Return the values that an entry has under these frontmatter keys: a text, or a list of
        several.
        """
        entry = self.entries.get(entry_id)
        found = {key: entry.values(key) for key in keys} if entry else {}
        return {
            key: values[0] if len(values) == 1 else values
            for key, values in found.items()
            if values
        }

    def excerpt(self, entry_id: str, terms: Iterable[str]) -> list[CandidatePassage]:
        """Return the part of an entry's text that contains most of these terms, and parts of
        embedded texts if there is room. The list is empty if the entry does not exist or has no
        text.
        """
        entry = self.entries.get(entry_id)
        if entry is None:
            return []
        weights = dict.fromkeys(terms, 1.0)
        found = [_excerpt(entry, weights, EXCERPT_CHARS)] if entry.text.strip() else []
        embeds = sorted(
            entry.embeds[:MAX_EXCERPTED_EMBEDS],
            key=lambda embed: -len(held_terms(embed.text[:MAX_EXCERPTED], weights)),
        )
        for embed in embeds:
            room = EXCERPT_CHARS - sum(len(passage["text"]) for passage in found)
            if room > 0:
                passage = _excerpt(embed, weights, room)
                found.append({**passage, "heading": embed.title, "path": embed.path})
        return found

    @property
    def problems(self) -> tuple[Problem, ...]:
        """Every file, field or term that was not used as written, and why."""
        return (*self.report.problems, *self.hint_index.problems)

    def suggestions(self) -> list[Problem]:
        """Return suggestions for improving the entries."""
        entries = list(self.entries.values())
        return lints.suggestions(entries, self.hint_index, self.glossary.ambiguous)


class EntryReader:
    """Read access for a host: hints, entries, parts of entries, and related entries.

    Each method takes the `scope` of a caller and ignores the entries outside it. If there are
    `scope_fields`, `scope` is required; a ScopeError is raised if the scope lacks a value for one
    of these fields.
    """

    l1: L1Search
    scope_fields: tuple[str, ...]

    @property
    def l0(self) -> Knowledge:
        """The latest snapshot of the folder."""
        raise NotImplementedError

    def seen_by(self, scope: Scope | Mapping[str, str] = ()) -> Knowledge:
        """Return the part of the entries that a caller may see, for a host that reads them itself.

        Raises:
            ScopeError: the scope lacks a value of one of the `scope_fields`.
        """
        return self.l0.seen_by(checked_scope(self.scope_fields, scope))

    def hints(self, query: str, *, scope: Scope | Mapping[str, str] = ()) -> Hints:
        """Return the hints that L0 finds in a query: the `hints` of a result. With a scope, entries
        outside it are ignored.
        """
        return self.seen_by(scope).hints(query)

    def surrounding_passages(
        self, match: PrimaryMatch, around: int = 1, *, scope: Scope | Mapping[str, str] = ()
    ) -> list[Passage]:
        """Return the best passage of a match with its neighbors, to give more text than the
        snippet.

        The list is empty if the entry has changed since, or is not in the scope. For an entry that
        only L0 found, the list holds its first passages.
        """
        entry = self.seen_by(scope).entries.get(match["entry_id"])
        passages = indexing.passages(entry, self.l1.embedding) if entry else []
        snippet: Any = match.get("snippet")
        shown = snippet[slice(*match["passages"][0]["span"])] if snippet else ""
        place = next(
            (
                i
                for i, p in enumerate(passages)
                if p.heading == match["heading"]
                and (shown in unwrapped(p.text) if snippet else list(p.lines) == match["lines"])
            ),
            None if "L1" in match["layers"] else 0,
        )
        return [] if place is None else passages[max(0, place - around) : place + around + 1]

    def entry(self, source: str, *, scope: Scope | Mapping[str, str] = ()) -> Entry:
        """Return the entry of a match's `source`. A place as cited by a lookup, with lines and a
        heading, is accepted too, and so is a title that only one entry has.

        Raises:
            EntryNotFoundError: there is no such entry; the message lists the most similar sources.
        """
        entries = self.seen_by(scope).entries
        written = one_line(source)
        found = entries.get(written) or entries.get(cited(written).source)
        if found is None:
            titled = [e for e in entries.values() if e.title.casefold() == written.casefold()]
            if len(titled) != 1:
                raise unknown_entry(written, list(entries))
            found = titled[0]
        return found

    def section(
        self,
        source: str,
        heading: str | None = None,
        *,
        lines: tuple[int, int] | None = None,
        scope: Scope | Mapping[str, str] = (),
    ) -> Part:
        """Return a part of an entry: the section of `heading` with its subsections, the `lines`
        (first and last) of the file, or the whole entry. If neither is given, and `source` is a
        place as cited by a lookup, its lines or its heading are used.

        Raises:
            EntryNotFoundError: there is no such entry, section or line.
        """
        entry = self.entry(source, scope=scope)
        place = cited(one_line(source))
        if heading is None and lines is None and place.source == entry.entry_id:
            _, lines, heading = place
        return part_of(entry, heading=heading, lines=lines)

    def related(
        self, source: str, *, limit: int = 5, scope: Scope | Mapping[str, str] = ()
    ) -> list[Related]:
        """Return the entries that an entry links to, those that link to it, and those whose
        passages are most similar to its beginning, best first: at most `limit` of each kind, and
        each entry once.

        Without L1, the similar entries are those whose titles, keywords and entities share words
        with it.

        Raises:
            EntryNotFoundError: there is no such entry.
        """
        entry, knowledge = self.entry(source, scope=scope), self.seen_by(scope)
        query = f"{entry.declared_text}\n{entry.text}"[:RELATED_CHARS]
        linked: dict[str, How] = dict.fromkeys(entry.links[:limit], "link")
        backlinks = [name for name in entry.backlinks if name not in linked]
        linked |= dict.fromkeys(backlinks[:limit], "backlink")
        known = {entry.entry_id, *linked}
        wanted = limit + len(known)
        candidates: Sequence[Candidate] = ()
        if self.l1.availability()["status"] == "ok":
            request = L1Request(
                query, knowledge.entries, limit=wanted, scope=checked_scope((), scope)
            )
            candidates = next(iter(self.l1.search(request).candidates), [])
        found = [
            related_by(
                "near",
                candidate["entry_id"],
                candidate["title"],
                candidate["passages"][0]["heading"],
                candidate["passages"][0]["lines"],
                candidate["similarity"],
            )
            for candidate in candidates
        ] or [
            related_by("words", hit["entry_id"], hit["title"])
            for hit in knowledge.search_metadata(entry.declared_text, wanted)
        ]
        others = [one for one in found if one["entry_id"] not in known][:limit]
        return [
            *(related_by(how, i, knowledge.entries[i].title) for i, how in linked.items()),
            *others,
        ]


def _excerpt(part: Entry | Embed, weights: Mapping[str, float], limit: int) -> CandidatePassage:
    """Return the part of a text that contains most of the terms."""
    text = part.text[:MAX_EXCERPTED]
    start, end = excerpt(text, weights, limit)
    start += len(text[start:end]) - len(text[start:end].lstrip())
    return {
        "number": None,
        "heading": "",
        "text": text[start:end].strip(),
        "lines": [
            file_line(1 + text.count("\n", 0, start), part.shifts),
            last_file_line(1 + text.count("\n", 0, max(start, end - 1)), part.shifts),
        ],
        "score": 0.0,
        "similarity": None,
        "rare": [],
    }
