"""The state and version of an entry, and which entries it means."""

import pytest

from langchain_lookup_knowledge.reading.metadata.standing import Standing, refers_to, version_parts


@pytest.mark.parametrize(
    ("attributes", "expected"),
    [
        ({}, Standing()),
        (
            {"status": "superseded", "superseded_by": "new.md"},
            Standing("superseded", "", ("new.md",)),
        ),
        ({"superseded-by": "[[New page|new]]"}, Standing("superseded", "", ("New page",))),
        (
            {"status": "Superseded by [ADR-0005](0005-queue.md#why)"},
            Standing("superseded", "", ("0005-queue.md",)),
        ),
        ({"status": "superseded by ADR-0123"}, Standing("superseded", "", ("ADR-0123",))),
        ({"replaces": "old.md, older.md"}, Standing("", "", (), ("old.md", "older.md"))),
        ({"supersedes": "3"}, Standing("", "", (), ("3",))),
        ({"status": "Deprecated"}, Standing("deprecated")),
        ({"state": "archived"}, Standing("archived")),
        ({"status": "draft"}, Standing("draft")),
        ({"draft": "true"}, Standing("draft")),
        ({"deprecated": "use the new one"}, Standing("deprecated")),
        ({"deprecated": "false", "archived": "no"}, Standing()),
        ({"status": "accepted"}, Standing()),
        ({"status": "experimental"}, Standing()),
        ({"version": "1.10"}, Standing("", "1.10")),
    ],
)
def test_the_standing_of_an_entry(attributes, expected):
    assert Standing.of("docs/a.md", attributes.items()) == expected


@pytest.mark.parametrize(
    ("name", "version"),
    [
        ("docs/v2.1/a.md", "2.1"),
        ("docs/V3/guide/a.md", "3"),
        ("versioned_docs/version-1.0/a.md", "1.0"),
        ("docs/2.1.x/a.md", "2.1.x"),
        ("v1/v2/a.md", "2"),
        ("docs/7/a.md", ""),
        ("notes/2024.01/a.md", ""),
        ("notes/2024.01.31/a.md", ""),
        ("vacation/a.md", ""),
        ("docs/v2.1.md", ""),
    ],
)
def test_a_folder_named_like_a_version_gives_it(name, version):
    assert Standing.of(name, []).version == version
    assert Standing.of(name, [("version", "9")]).version == "9"


@pytest.mark.parametrize(
    ("reference", "expected"),
    [
        ("new.md", True),
        ("./new.md", True),
        ("../docs/new", True),
        ("/docs/new.md", True),
        ("docs/new.md", True),
        ("new", True),
        ("The New Page", True),
        ("newer.md", False),
        ("../new.md", False),
        ("other/new.md", False),
        ("5", False),
    ],
)
def test_what_a_reference_means(reference, expected):
    assert refers_to(reference, "docs/old.md", "docs/new.md", "The new page") is expected


@pytest.mark.parametrize(
    ("reference", "expected"), [("ADR-0005", True), ("adr 5", True), ("0005", True), ("50", False)]
)
def test_decisions_are_meant_by_their_numbers(reference, expected):
    assert refers_to(reference, "adr/0001-a.md", "adr/0005-use-a-queue.md", "Queue") is expected


def test_the_numbers_of_a_version():
    assert [version_parts(text) for text in ("v2.1.x", "1.10", "next", "9" * 50)] == [
        (2, 1),
        (1, 10),
        (),
        (int("9" * 18),),
    ]
