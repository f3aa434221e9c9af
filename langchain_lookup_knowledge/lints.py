"""What could be better in the knowledge itself: each lint takes entries, or what is known of them, and yields problems."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from langchain_lookup_knowledge.cleaning import counted
from langchain_lookup_knowledge.documents import Entry, category_key
from langchain_lookup_knowledge.hints import CommonKeyword, HintIndex, is_generic
from langchain_lookup_knowledge.types import Problem

COMMON_SHARE = 0.25
"""A keyword in a larger share of the entries says nothing; a choice, not a measurement."""


def lint(entries: Sequence[Entry], hints: HintIndex) -> list[Problem]:
    """Return what every lint finds, in the order of the paths."""
    found = [
        *without_category(entries),
        *without_keywords(entries),
        *generic_titles(entries),
        *duplicate_titles(entries),
        *categories_written_in_two_ways(entries),
        *common_keywords(hints.common_keywords(COMMON_SHARE)),
    ]
    return sorted(found, key=lambda problem: problem.path)


def without_category(entries: Iterable[Entry]) -> Iterator[Problem]:
    """An entry without a category is not found where a lookup is limited to one."""
    for entry in entries:
        if not entry.categories:
            yield Problem(
                entry.entry_id, None, "no category: add category: to its frontmatter, or use category_from_path"
            )


def without_keywords(entries: Iterable[Entry]) -> Iterator[Problem]:
    """An entry without keywords and entities is hinted at by its title alone."""
    for entry in entries:
        if not entry.keywords and not entry.entities:
            yield Problem(entry.entry_id, None, "no keywords: add the terms that people ask with")


def generic_titles(entries: Iterable[Entry]) -> Iterator[Problem]:
    """A title such as README says nothing, and is no hint; with keywords, that does no harm."""
    for entry in entries:
        if is_generic(entry.title) and not entry.keywords and not entry.entities:
            yield Problem(entry.entry_id, None, f"the title {entry.title!r} says nothing: give it one that does")


def duplicate_titles(entries: Iterable[Entry]) -> Iterator[Problem]:
    """Entries with the same title cannot be told apart in an answer."""
    by_title: dict[str, list[Entry]] = defaultdict(list)
    for entry in entries:
        by_title[category_key(entry.title)].append(entry)
    for first, *others in by_title.values():
        for other in others:
            message = f"the title {other.title!r} is also that of {first.entry_id}: tell them apart"
            yield Problem(other.entry_id, None, message)


def categories_written_in_two_ways(entries: Iterable[Entry]) -> Iterator[Problem]:
    """Categories that differ in case, width or blanks are one category, under the name that is written first."""
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
            message = f"the category {category!r} ({held_by}) is also written {usual!r}: write it in one way"
            yield Problem(example[category], None, message)


def common_keywords(keywords: Iterable[CommonKeyword]) -> Iterator[Problem]:
    """A keyword that stands in many files says little about any of them."""
    for keyword in keywords:
        message = f"the keyword {keyword.text!r} stands in {keyword.files} files, so it says nothing: take a more specific one"
        yield Problem(keyword.entry_id, None, message)


def out_of_step(folder: Mapping[str, str], index: Mapping[str, str]) -> Iterator[Problem]:
    """Compare the digests of the entries of the folder with those of the index."""
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
