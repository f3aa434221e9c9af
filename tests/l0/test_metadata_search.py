"""Entries ranked by the words of their titles, keywords and entities."""

import math
import random
from collections import Counter, defaultdict
from dataclasses import replace
from functools import cache

import pytest

from langchain_lookup_knowledge.l0.hints import GLOSSARY_WEIGHT
from langchain_lookup_knowledge.l0.metadata_search import (
    LENGTH_WEIGHT,
    SATURATION,
    MetadataSearch,
    content_words,
)
from langchain_lookup_knowledge.reading.entry import Entry


def entry(title, keywords=(), entities=(), text="unread"):
    return Entry(f"{title}.md", title, tuple(keywords), ("Cat",), tuple(entities), text)


ENTRIES = [
    entry("Publish a port", ["container port"], ["iptables"]),
    entry("Limit the memory of a container"),
    entry("Containers", text="port port port"),
    entry("证书续期", ["TLS 证书"]),
]


def by_id(entries):
    return {one.entry_id: one for one in entries}


RANKING = MetadataSearch(by_id(ENTRIES))


def titles(query, limit=10):
    return [found["title"] for found in RANKING.search(query, limit)]


def test_the_entry_with_more_and_rarer_words_is_first():
    assert titles("how much memory may a container take") == [
        "Limit the memory of a container",
        "Containers",
        "Publish a port",
    ]


def test_only_declared_text_is_searched_and_stop_words_say_nothing():
    assert titles("port") == ["Publish a port"]
    assert titles("of the unread") == []
    ranking = MetadataSearch(by_id([entry("What does the cat eat"), entry("Billing")]))
    assert [found["title"] for found in ranking.search("How does billing work", 9)] == ["Billing"]


def test_plural_case_and_accents_do_not_matter():
    assert titles("PÖRTS") == ["Publish a port"]


def test_scripts_without_blanks_are_matched_by_pairs_of_characters():
    assert titles("如何续期证书") == ["证书续期"]
    assert titles("明证") == []


def test_each_says_by_which_words_of_the_query_it_was_found():
    (found,) = RANKING.search("Memory limits, please", 1)
    assert found == {
        "entry_id": "Limit the memory of a container.md",
        "title": "Limit the memory of a container",
        "categories": ["Cat"],
        "words": ["Memory", "limits"],
    }


def test_at_most_so_many_and_none_of_no_entries():
    assert len(RANKING.search("container", 2)) == 2
    assert MetadataSearch({}).search("container", 2) == []


def test_an_entry_without_a_word_in_its_metadata_is_not_found():
    assert MetadataSearch(by_id([entry("---")])).search("---", 5) == []


@cache
def counted(text):
    return Counter(word for word, _ in content_words(text))


def plain_scan(entries, query, joins):
    """Rank by BM25 as it is defined, entry by entry."""
    counts = {one.entry_id: counted(one.frontmatter_text) for one in entries}
    mean = sum(own.total() for own in counts.values()) / max(1, len(entries))
    own = dict(content_words(query))
    forms = dict(content_words(" ".join(form for join in joins for form in join["forms"])))
    scores, words = defaultdict(float), defaultdict(list)
    for word, written in {**forms, **own}.items():
        holders = [entry_id for entry_id, held in counts.items() if held[word]]
        rarity = math.log1p((len(entries) - len(holders) + 0.5) / (len(holders) + 0.5))
        for entry_id in holders:
            count, relative = counts[entry_id][word], counts[entry_id].total() / mean
            slowness = SATURATION * (1 - LENGTH_WEIGHT + LENGTH_WEIGHT * relative)
            weight = (1.0 if word in own else GLOSSARY_WEIGHT) * rarity
            scores[entry_id] += weight * (count * (SATURATION + 1) / (count + slowness))
            words[entry_id].append(written)
    best = sorted(scores, key=lambda entry_id: (-scores[entry_id], entry_id))
    return [(entry_id, words[entry_id]) for entry_id in best]


def listed(found):
    return [(one["entry_id"], one["words"]) for one in found]


@pytest.mark.parametrize(("size", "seed"), [(1, 1), (7, 2), (7, 3), (257, 4), (1500, 5)])
def test_the_best_are_those_of_a_plain_scan(size, seed):
    rng = random.Random(f"{size} {seed}")
    words = [f"w{number}" for number in range(300)]
    weights = [1 / rank for rank in range(1, 301)]

    def drawn(count):
        return " ".join(rng.choices(words, weights, k=count))

    entries = [entry(f"{drawn(2)} {n:04}", [drawn(rng.randint(1, 3))]) for n in range(size)]
    rng.shuffle(entries)
    part = [one for one in entries if rng.random() < 0.4]
    whole = MetadataSearch(by_id(entries))
    later = [one for one in entries if rng.random() < 0.9]
    later = [replace(one, keywords=(drawn(2),)) if rng.random() < 0.1 else one for one in later]
    later += [entry(f"{drawn(2)} new {n}") for n in range(3)]
    searches = [
        (whole, entries),
        (MetadataSearch(by_id(part), whole), part),
        (MetadataSearch(by_id(later), before=whole), later),
    ]
    for length in (1, 1, 2, 4, 12):
        query = drawn(length)
        joins = [{"text": "x", "span": [0, 1], "forms": [drawn(2)]}] if length > 2 else []
        for search, searched in searches:
            expected = plain_scan(searched, query, joins)
            for limit in (0, 1, 5, size):
                assert listed(search.search(query, limit, joins)) == expected[:limit]
