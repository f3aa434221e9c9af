"""Filters as a caller writes them, as conditions on entries, and what is no filter."""

from datetime import date

import pytest

from langchain_lookup_knowledge.reading.entry import Entry
from langchain_lookup_knowledge.reading.metadata.filters import (
    conditions_of,
    folders_of,
    normalized,
)
from langchain_lookup_knowledge.reading.metadata.holders import Holders

FILTERABLE = ("date", "version", "Team")


def entry(entry_id="a/b/c.md", categories=(), **attributes):
    pairs = tuple((key, value) for key, values in attributes.items() for value in values)
    return Entry(entry_id, "Title", (), tuple(categories), (), "Text.", attributes=pairs)


@pytest.mark.parametrize(
    ("given", "found"),
    [
        (None, None),
        ({}, None),
        ({"category": "Billing"}, {"category": ["Billing"]}),
        ({"category": ["a", "a", "b"]}, {"category": ["a", "b"]}),
        ({"folder": "/guides//"}, {"folder": ["guides/"]}),
        ({"version": (1.2, 2)}, {"version": ["1.2", "2"]}),
        ({"version": True}, {"version": ["true"]}),
        ({"date": date(2026, 1, 2)}, {"date": ["2026-01-02"]}),
        (
            {"date": {"from": "2026-01-02T10:00", "to": None}},
            {"date": {"from": "2026-01-02"}},
        ),
    ],
)
def test_filters_are_plain_json(given, found):
    assert normalized(given, FILTERABLE) == found
    assert normalized(found, FILTERABLE) == found


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("category=it", "filters takes a mapping"),
        ({"tenant": "acme"}, "filters cannot use 'tenant': use category, folder, or a frontmatter"),
        ({3: "x"}, "filters cannot use '3'"),
        ({"category": []}, "the filter 'category' takes 1 to 100 texts"),
        ({"category": None}, "the filter 'category' takes 1 to 100 texts"),
        ({"category": [["a"]]}, "the filter 'category' takes 1 to 100 texts"),
        ({"category": " \u200b"}, "the filter 'category' takes 1 to 100 texts"),
        ({"category": list(range(101))}, "the filter 'category' takes 1 to 100 texts"),
        ({"version": "x" * 201}, "the filter 'version' takes 1 to 100 texts"),
        ({"version": 10**5000}, "the filter 'version' takes 1 to 100 texts"),
        ({"folder": "/"}, "the filter 'folder' takes 1 to 100 texts"),
        ({"folder": {"from": "2026-01-01"}}, "the filter 'folder' takes days"),
        ({"date": {"from": "soon"}}, "the filter 'date' takes days such as"),
        ({"date": {"since": "2026-01-01"}}, "the filter 'date' takes days such as"),
        ({"date": {}}, "the filter 'date' takes days such as"),
    ],
)
def test_what_is_no_filter_is_named(given, message):
    with pytest.raises(ValueError, match="^" + message):
        normalized(given, FILTERABLE)


@pytest.mark.parametrize(
    ("filters", "kept"),
    [
        ({"category": ["billing"]}, entry(categories=["HR", "BILLING"])),
        ({"folder": ["a/"]}, entry()),
        ({"folder": ["x/", "a/b/"]}, entry()),
        ({"Team": ["ops"]}, entry(team=["Ops", "dev"])),
        ({"date": {"from": "2026-01-01"}}, entry(date=["2026-01-01 10:20:30 +0100"])),
        ({"date": {"from": "2026-01-01", "to": "2026-01-31"}}, entry(date=["2026-01-31"])),
        ({"version": ["1.2"], "folder": ["a/"]}, entry(version=["1.2"])),
    ],
)
def test_an_entry_with_a_value_of_each_filter_is_kept(filters, kept):
    holders = Holders({"a": entry("z.md"), "b": kept})
    assert holders.meeting(conditions_of(filters, holders.values)) == [kept]


@pytest.mark.parametrize(
    ("filters", "other"),
    [
        ({"category": ["bill"]}, entry(categories=["Billing"])),
        ({"folder": ["b/"]}, entry()),
        ({"folder": ["a/b/c.md/"]}, entry()),
        ({"version": ["1.2"]}, entry(version=["1.20"])),
        ({"version": ["1.2"], "folder": ["x/"]}, entry(version=["1.2"])),
        ({"date": {"to": "2026-01-30"}}, entry(date=["2026-01-31"])),
        ({"date": {"to": "2026-01-30"}}, entry(date=["last week"])),
    ],
)
def test_an_entry_without_is_not(filters, other):
    holders = Holders({"a": other})
    assert holders.meeting(conditions_of(filters, holders.values)) == []


def test_the_folders_of_an_entry_end_with_a_slash():
    assert folders_of("a/b/c.md") == ["a/", "a/b/"]
    assert folders_of("/tmp/c.md") == ["/tmp/"]
    assert folders_of("c.md") == []
