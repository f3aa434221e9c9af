"""Choose the text to show of each entry: passages with more evidence get more room. All functions
are pure.
"""

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple

from langchain_lookup_knowledge.l1.fusion import RARE, rarity
from langchain_lookup_knowledge.lookup.answer.joined_words import added_terms, matched_forms
from langchain_lookup_knowledge.lookup.answer.merging import FoundEntry
from langchain_lookup_knowledge.text.excerpts import excerpt, unwrapped
from langchain_lookup_knowledge.text.headings import heading_text
from langchain_lookup_knowledge.text.markdown import outline
from langchain_lookup_knowledge.text.search_terms import held_terms, is_exact, is_part, parts_of
from langchain_lookup_knowledge.text.visible.cleaning import one_line
from langchain_lookup_knowledge.text.wording import line_range, shorten
from langchain_lookup_knowledge.types import (
    CandidatePassage,
    GlossaryJoin,
    Match,
    Matched,
    MatchPassage,
)

MAX_WINDOWS = (5, 3)
"""Maximum passages shown of the best entry and of each other entry, not counting windows for rare
terms.
"""
MAX_SHOWN = 14
"""Maximum passages shown in total, not counting windows for rare terms."""
ENTRY_SHARE = 0.5
"""Weight of the entry's score (relative to that of the best entry) in the score of a passage."""
FIRST_BONUS = 0.3
"""Added to the score of each passage of the best entry, because its text is read first."""
REPEATED = 0.9
"""Factor for each further passage of the same entry."""
MAX_WINDOW = 900
"""Maximum characters of a window; a passage of 200 tokens of English mostly fits whole."""
WEAK_WINDOW = 500
"""Maximum characters of a window of the third and later entries."""
MIN_WINDOW = 150
"""Minimum characters of a window; with less room, no further window is shown."""
RARE_WINDOW = 300
"""Maximum characters of a window that is shown only for a rare term."""
RARE_WORD = 2
"""A plain word gets its own window if at most this many passages contain it; an exact thing (such
as a code or a number) gets one if it is rare.
"""
MAX_RARE_WINDOWS = 2
ENTRY_CHARS = 62
"""Typical number of characters around the text of an entry, without its title, source and matched
terms: marks, number and lines.
"""
NAMES_CHARS = 300
"""Maximum characters counted for the title, source and matched terms of an entry."""
WINDOW_CHARS = 30
"""Typical number of characters around a further window of an entry, without its heading."""
HEADING_CHARS = 80
"""Maximum characters of a heading above a window."""
PATH_CHARS = 120
"""Maximum characters of the path of an embedded passage."""
LINE = 120
"""Maximum characters of a match that has no room for a window: one line that shows its topic."""
HEAD_CHARS = 205
"""Typical characters before the first match."""
GAP = "\n[…]\n"
"""Separates two windows of an entry that are not neighbors."""

_MAYBE_HEADING = re.compile(r"[#<]|.*\n {0,3}[=-]")
_unwrapped_text = lru_cache(maxsize=2048)(unwrapped)
"""As `unwrapped`, with the results cached: a lookup shows about twenty passages."""


@dataclass(slots=True)
class _Window:
    passage: CandidatePassage
    start: int
    end: int

    @property
    def text(self) -> str:
        return self.passage["text"][self.start : self.end].strip()

    @property
    def is_whole(self) -> bool:
        return self.end - self.start == len(self.passage["text"])


class _Ranked(NamedTuple):
    """A passage, sorted by negative score, position of its entry in the answer, and position in the
    entry; the smallest is best.
    """

    value: float
    entry: int
    place: int


def show(
    found: Sequence[FoundEntry],
    query: Mapping[str, str],
    frequencies: Mapping[str, int],
    max_chars: int,
    joins: Sequence[GlossaryJoin] = (),
) -> list[Match]:
    """Return the matches with the text to show, at most about `max_chars` long with titles and
    marks.

    Passages are taken best first, by their own score and that of their entry; each further passage
    of the same entry counts less. Up to `MAX_RARE_WINDOWS` rare terms of the query that would not
    be shown get windows of their own, the rarest first. The remaining room goes to passages that
    were cut.

    Args:
        found: the entries, best first.
        query: the terms of the query, each with its spelling in the query.
        frequencies: the number of passages with each term that was searched for separately.
        max_chars: as in `LookupOptions`.
        joins: words of the query with other forms, which count less than the query's own words.
    """
    found = [_unwrapped(entry) for entry in found]
    common = rarity(RARE + 1)
    weights = dict.fromkeys(added_terms(joins), common / 2)
    weights |= {term: rarity(frequencies.get(term, RARE + 1)) for term in query}
    order = _order(found)
    calling: list[str] = []
    windows = _windows(found, order, calling, weights, max_chars)
    while len(calling) < MAX_RARE_WINDOWS:
        term = _hidden_term(found, windows, frequencies, calling)
        if term is None:
            break
        calling.append(term)
        windows = _windows(found, order, calling, weights, max_chars)
    without = [n for n, entry in enumerate(found) if entry.passages and not windows[n]]
    left = max_chars - sum(len(window.text) for own in windows.values() for window in own)
    for number in without:
        passage = found[number].passages[0]
        line = min(LINE, max(1, left // len(without)))
        windows[number].append(_Window(passage, *excerpt(passage["text"], weights, line)))
    return [_match(entry, windows[number], query, joins) for number, entry in enumerate(found)]


def _unwrapped(entry: FoundEntry) -> FoundEntry:
    passages: list[CandidatePassage] = [
        {**passage, "text": _unwrapped_text(passage["text"])} for passage in entry.passages
    ]
    return replace(entry, passages=passages)


def _windows(
    found: Sequence[FoundEntry],
    order: Sequence[_Ranked],
    calling: Sequence[str],
    weights: Mapping[str, float],
    max_chars: int,
) -> dict[int, list[_Window]]:
    """Return the windows of each entry: first those for rare terms, then those of the best passages
    while there is room.
    """
    room = _Room(max_chars - HEAD_CHARS)
    around = [_around(entry) for entry in found]
    windows: dict[int, list[_Window]] = defaultdict(list)
    for term in calling:
        number, passage = _best_with(found, term)
        limit = min(RARE_WINDOW, max(MIN_WINDOW, room.left - around[number]))
        start, end = excerpt(passage["text"], {**weights, term: 1e3}, limit)
        if not any(held_terms(window.text, [term]) for window in windows[number]):
            _add(windows[number], _Window(passage, start, end), room, around[number])
    for ranked in order:
        passage = found[ranked.entry].passages[ranked.place]
        if any(window.passage is passage for window in windows[ranked.entry]):
            continue
        most = MAX_WINDOW if ranked.entry < 2 else WEAK_WINDOW
        own = windows[ranked.entry]
        left = min(most, room.left - (WINDOW_CHARS if own else around[ranked.entry]))
        if left < min(MIN_WINDOW, len(passage["text"])):
            continue
        window = _Window(passage, *excerpt(passage["text"], weights, left))
        _add(own, window, room, around[ranked.entry])
    for ranked in order:
        for window in windows[ranked.entry]:
            more = len(window.passage["text"]) - (window.end - window.start)
            if window.passage is found[ranked.entry].passages[ranked.place] and more <= room.left:
                window.start, window.end = 0, len(window.passage["text"])
                room.left -= more
    return windows


@dataclass(slots=True)
class _Room:
    left: int


def _around(entry: FoundEntry) -> int:
    """Return the typical number of characters around the text of an entry."""
    matched = sum(len(one["field"]) + len(one["text"]) for one in entry.matched)
    return ENTRY_CHARS + min(NAMES_CHARS, len(entry.title) + len(entry.entry_id) + matched)


def _add(windows: list[_Window], window: _Window, room: _Room, around: int) -> None:
    passage = window.passage
    above = len(_heading(passage["heading"])) + len(_origin(passage))
    room.left -= window.end - window.start + (WINDOW_CHARS if windows else around) + above
    windows.append(window)


def _order(found: Sequence[FoundEntry]) -> list[_Ranked]:
    """Return the passages to show, best first, regardless of the room."""
    best = max((entry.score for entry in found), default=0.0) or 1.0
    waiting = [
        _Ranked(
            -(passage["score"] + ENTRY_SHARE * entry.score / best + FIRST_BONUS * (number == 0)),
            number,
            place,
        )
        for number, entry in enumerate(found)
        for place, passage in enumerate(entry.passages)
    ]
    taken = [0] * len(found)
    order: list[_Ranked] = []
    while waiting and len(order) < MAX_SHOWN:
        chosen = min(waiting, key=lambda one: (one.value * REPEATED ** taken[one.entry], one[1:]))
        taken[chosen.entry] += 1
        order.append(chosen)
        waiting = [
            one
            for one in waiting
            if one != chosen and taken[one.entry] < MAX_WINDOWS[one.entry > 0]
        ]
    return order


def _hidden_term(
    found: Sequence[FoundEntry],
    windows: Mapping[int, Sequence[_Window]],
    frequencies: Mapping[str, int],
    called: Sequence[str],
) -> str | None:
    """Return the rarest term that is in a passage but in no window; skip the terms in `called`.

    Headings of shown passages and titles of their entries count as shown. The parts of an exact
    thing are ignored if a passage contains the whole.
    """
    there = {term for entry in found for passage in entry.passages for term in passage["rare"]}
    calling = {
        term
        for term in there.difference(called, parts_of(there))
        if not is_part(term) and (is_exact(term) or frequencies.get(term, RARE) <= RARE_WORD)
    }
    for number, own in windows.items() if calling else ():
        for text in (
            found[number].title,
            *(w.passage["heading"] for w in own),
            *(w.text for w in own),
        ):
            calling -= held_terms(text if own else "", calling)
    return min(calling, key=lambda term: (frequencies.get(term, RARE), term), default=None)


def _best_with(found: Sequence[FoundEntry], term: str) -> tuple[int, CandidatePassage]:
    """Return the position of the first entry with a passage that contains a term, and that
    passage.
    """
    return next(
        (number, passage)
        for number, entry in enumerate(found)
        for passage in entry.passages
        if term in passage["rare"]
    )


def _match(
    entry: FoundEntry,
    windows: Sequence[_Window],
    query: Mapping[str, str],
    joins: Sequence[GlossaryJoin],
) -> Match:
    in_order = sorted(windows, key=lambda window: (window.passage["number"] or 0, window.start))
    best_first = sorted(windows, key=lambda window: -window.passage["score"])
    own = next((window.passage for window in best_first if "path" not in window.passage), None)
    heading = own["heading"] if own else ""
    snippet = ""
    spans: dict[int, list[int]] = {}
    begins_under = in_order[0].passage["heading"] if in_order else ""
    above = heading if begins_under == heading else ""  # shown next to the source, or the title
    for before, window in zip((None, *in_order), in_order, strict=False):
        if before:
            snippet += "\n\n" if _are_neighbors(before, window) else GAP
        if window.passage["heading"] != above or "path" in window.passage:
            above = window.passage["heading"]
            snippet += _heading_line(above, entry.title, window.text, _origin(window.passage))
        spans[id(window)] = [len(snippet), len(snippet) + len(window.text)]
        snippet += window.text
    held = {term for window in windows for term in held_terms(window.text, query)}
    held -= parts_of(held)
    words = list(dict.fromkeys(written for term, written in query.items() if term in held))
    texts = [entry.title, *(t for w in windows for t in (w.passage["heading"], w.text))]
    codes, glossary = matched_forms(joins, texts)
    words += codes
    text: list[Matched] = [{"field": "text", "text": " ".join(words)}] if words else []
    return {
        "entry_id": entry.entry_id,
        "title": entry.title,
        "categories": list(entry.categories),
        "source": entry.entry_id,
        "heading": heading,
        "lines": own["lines"] if own else None,
        "snippet": snippet,
        "score": round(entry.score, 6),
        "similarity": entry.similarity,
        "layers": list(entry.layers),
        "matched": [*entry.matched, *text, *glossary],
        "metadata": dict(entry.metadata),
        "passages": [_shown(window, spans[id(window)]) for window in best_first],
    }


def from_first(match: Match) -> str:
    """Return the snippet of a match without the heading of its first passage.

    `match["snippet"]` lacks the heading of its best passage, which depends on the query. Here the
    same passages always have the same text.
    """
    text, end, above = "", 0, ""
    for passage in sorted(match["passages"], key=lambda passage: passage["span"]):
        start, stop = passage["span"]
        if text:
            text += GAP if match["snippet"][end:start].startswith(GAP) else "\n\n"
            if passage["heading"] != above:
                shown = match["snippet"][start:stop]
                text += _heading_line(passage["heading"], match["title"], shown)
        text += match["snippet"][start:stop]
        end, above = stop, passage["heading"]
    return text


def _heading_line(path: str, title: str, text: str, origin: str = "") -> str:
    """Return the line above a text with its heading, and where it is from if it is embedded; the
    heading is left out if the text begins with it.
    """
    heading = _heading(path) or shorten(title, HEADING_CHARS)
    if _MAYBE_HEADING.match(text) and shorten(_first_heading(text), HEADING_CHARS) == heading:
        return f"{origin.strip()}\n\n" if origin else ""
    return f"## {heading}{origin}\n\n"


def _first_heading(text: str) -> str:
    """Return the heading that a text begins with, or ""."""
    first = next(iter(outline("\n".join(text.split("\n", 2)[:2])).blocks), None)
    return heading_text(first.raw) if first and first.kind == "heading" else ""


def _heading(path: str) -> str:
    """Return the last heading of a path, as a window shows it."""
    return shorten(path.rpartition(" > ")[2], HEADING_CHARS)


def _origin(passage: CandidatePassage) -> str:
    """Return the location of an embedded passage's text, as shown in its heading."""
    if "path" not in passage:
        return ""
    return f" ({one_line(shorten(passage['path'], PATH_CHARS))}{line_range(passage['lines'])})"


def _are_neighbors(before: _Window, after: _Window) -> bool:
    """Return whether no text of the entry is left out between two windows.

    Embedded parts between them do not count: the caller may not know that there are any.
    """
    first, second = before.passage, after.passage
    if not (before.is_whole and after.is_whole):
        return False
    if "place" in first and "place" in second and not _are_of_one_part(first, second):
        return second["place"] == first["place"] + ("path" not in second)
    numbers = first["number"], second["number"]
    return None not in numbers and numbers[1] == (numbers[0] or 0) + 1


def _are_of_one_part(first: CandidatePassage, second: CandidatePassage) -> bool:
    return "path" in first and first.get("path") == second.get("path")


def _shown(window: _Window, span: list[int]) -> MatchPassage:
    passage = window.passage
    shown: MatchPassage = {
        "heading": passage["heading"],
        "lines": passage["lines"],
        "score": passage["score"],
        "span": span,
    }
    if "path" in passage:
        shown["path"] = passage["path"]
    return shown
