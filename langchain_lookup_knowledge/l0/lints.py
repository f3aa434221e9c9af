"""Suggestions for the content of the knowledge base.

Each check takes entries, or facts about them, and yields problems.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from langchain_lookup_knowledge.l0.hints import CommonKeyword, HintIndex
from langchain_lookup_knowledge.l0.terms import is_generic
from langchain_lookup_knowledge.reading.entry import Entry, category_key
from langchain_lookup_knowledge.text.shingles import nearly_equal
from langchain_lookup_knowledge.text.substance import LeftOut, left_out
from langchain_lookup_knowledge.text.wording import counted
from langchain_lookup_knowledge.types import Problem

COMMON_SHARE = 0.25
"""Maximum share of the entries that may contain a useful keyword; an estimate, not measured."""

MIN_LINKS = 5
"""Minimum number of links in an entry that is reported as a list of links."""
LINK_REST = 0.2
"""Maximum ratio of letters outside the links to characters in the links, in such an entry."""
MAX_CHARS = 20_000
"""Maximum characters of an entry that are searched for links."""

_LINK = re.compile(r"!?\[[^\[\]\n]*\]\([^()\s]*\)|\[\[[^\[\]\n]*\]\]|https?://[^\s<>()]+")


def suggestions(
    entries: Sequence[Entry], hints: HintIndex, ambiguous: Iterable[Problem] = ()
) -> list[Problem]:
    """Return the results of all checks of the content, in path order; `ambiguous` are the problems
    that the glossary found.
    """
    found = [
        *without_category(entries),
        *without_keywords(entries),
        *generic_titles(entries),
        *duplicates(entries),
        *all_in_frontmatter(entries),
        *link_lists(entries),
        *categories_written_in_two_ways(entries),
        *common_keywords(hints.common_keywords(COMMON_SHARE)),
        *left_out_of_passages(entries),
        *ambiguous,
    ]
    return sorted(found, key=lambda problem: problem.path)


def without_category(entries: Iterable[Entry]) -> Iterator[Problem]:
    """Report entries without a category: a lookup limited to a category does not find them."""
    for entry in entries:
        if not entry.categories:
            yield Problem(
                entry.entry_id,
                None,
                "no category: add category: to its frontmatter, or use category_from_path",
            )


def without_keywords(entries: Iterable[Entry]) -> Iterator[Problem]:
    """Report entries without keywords and entities: only their titles serve as hints."""
    for entry in entries:
        if not entry.keywords and not entry.entities:
            yield Problem(
                entry.entry_id, None, "no keywords: add the terms that people use when they ask"
            )


def generic_titles(entries: Iterable[Entry]) -> Iterator[Problem]:
    """Report titles that say nothing about the text, such as README, if there are no keywords."""
    for entry in entries:
        if is_generic(entry.title) and not entry.keywords and not entry.entities:
            yield Problem(
                entry.entry_id,
                None,
                f"the title {entry.title!r} says nothing: choose one that names its topic",
            )


def duplicates(entries: Iterable[Entry]) -> Iterator[Problem]:
    """Report entries with the same title or text: an answer does not show which entry it means.

    Versions and states of one page are meant to be alike.
    """
    first: dict[tuple[str, ...], Entry] = {}
    for entry in entries:
        edition = entry.standing.version, entry.standing.state
        titled = first.setdefault(("title", category_key(entry.title), *edition), entry)
        alike = first.setdefault(("text", entry.text.strip(), *edition), entry)
        if titled is not entry and nearly_equal(titled.text, entry.text):
            message = (
                f"{titled.entry_id} has the same title and nearly the same text, so only one of "
                "them is shown: remove one, or add version: to their frontmatter"
            )
        elif titled is not entry:
            message = f"{titled.entry_id} has the same title, {entry.title!r}: change one of them"
        elif alike is not entry and entry.text.strip():
            message = f"{alike.entry_id} has the same text: remove one of them"
        else:
            continue
        yield Problem(entry.entry_id, None, message)


def all_in_frontmatter(entries: Iterable[Entry]) -> Iterator[Problem]:
    """Report entries whose frontmatter holds all their text."""
    for entry in entries:
        if entry.lead and entry.text.strip() == entry.lead_text.strip():
            message = (
                "its frontmatter holds all its text, which is shown as written there: "
                "write the text below the frontmatter instead"
            )
            yield Problem(entry.entry_id, None, message)


def link_lists(entries: Iterable[Entry]) -> Iterator[Problem]:
    """Report entries that are little more than lists of links."""
    for entry in entries:
        text = entry.text[:MAX_CHARS]
        rest, links = _LINK.subn("", text)
        if links < MIN_LINKS:
            continue
        if sum(map(str.isalnum, rest)) < LINK_REST * (len(text) - len(rest)):
            message = (
                "it is a list of links and answers nothing by itself: "
                "describe each link, or leave the entry out with exclude"
            )
            yield Problem(entry.entry_id, None, message)


def categories_written_in_two_ways(entries: Iterable[Entry]) -> Iterator[Problem]:
    """Report categories that differ only in case, width or whitespace.

    They count as one category, under its first spelling.
    """
    spellings: dict[str, Counter[str]] = defaultdict(Counter)
    example: dict[str, str] = {}
    for entry in entries:
        for category in entry.categories:
            spellings[category_key(category)][category] += 1
            example.setdefault(category, entry.entry_id)
    for counts in spellings.values():
        (usual, _), *others = counts.most_common()
        for category, count in others:
            held_by = counted(count, "entry", "entries")
            message = (
                f"the category {category!r} ({held_by}) is also written {usual!r}: use one spelling"
            )
            yield Problem(example[category], None, message)


def common_keywords(keywords: Iterable[CommonKeyword]) -> Iterator[Problem]:
    """Report keywords that appear in many entries: they say little about any of them."""
    for keyword in keywords:
        message = (
            f"the keyword {keyword.text!r} appears in {keyword.document_frequency} entries, "
            "so it says nothing: choose a more specific one"
        )
        yield Problem(keyword.entry_id, None, message)


def left_out_of_passages(entries: Iterable[Entry]) -> Iterator[Problem]:
    """Report text that is left out of passages because it has no meaning, such as encoded data."""
    for entry in entries:
        by_reason: dict[str, list[LeftOut]] = defaultdict(list)
        for block in left_out(entry.text):
            by_reason[block.reason].append(block)
        for reason, blocks in by_reason.items():
            characters = sum(block.characters for block in blocks)
            message = (
                f"{reason} ({counted(len(blocks), 'block', 'blocks')}, {characters} characters): "
                "left out of passages; describe its content in a sentence"
            )
            yield Problem(entry.entry_id, entry.file_line(blocks[0].first + 1), message)


def out_of_step(folder: Mapping[str, str], index: Mapping[str, str]) -> Iterator[Problem]:
    """Report entries whose digests differ between the folder and the index."""
    for entry_id in sorted({*folder, *index}):
        if folder.get(entry_id) == index.get(entry_id):
            continue
        if entry_id not in index:
            what = "is not in the index yet"
        elif entry_id in folder:
            what = "has changed since it was indexed"
        else:
            what = "is in the index, but no longer in the folder"
        yield Problem(entry_id, None, f"{what}: run `lookup-knowledge index`")
