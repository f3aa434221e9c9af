"""The parts of a knowledge base that scopes and filters show: found quickly, kept within bounds."""

import random

import pytest
from conftest import write_files

from langchain_lookup_knowledge import FrontmatterFields, KnowledgeBase
from langchain_lookup_knowledge.reading.metadata.filters import values_of
from langchain_lookup_knowledge.scope import is_visible

FILTERABLE = FrontmatterFields(filterable=("version",))


def page(rng):
    lines = [f"tenant: {rng.choice(['a', 'b', '[a, b]'])}"] if rng.random() < 0.8 else []
    lines += [f"team: {rng.choice('xy')}"] if rng.random() < 0.7 else []
    lines += [f"public: {rng.choice(['true', 'True', 'no'])}"] if rng.random() < 0.2 else []
    lines += [f"version: {rng.randint(1, 3)}", f"category: C{rng.randint(1, 2)}"]
    words = " ".join(rng.choices(["refund", "vpn", "leave", "policy"], k=2))
    return "\n".join(["---", *lines, f"keywords: [{words}]", "---", f"# {words}", "", words, ""])


@pytest.fixture
def kb(tmp_path):
    rng = random.Random(3)
    files = {f"{rng.choice('fg')}/{number:03}.md": page(rng) for number in range(120)}
    folder = write_files(tmp_path / "kb", files)
    with KnowledgeBase.open(folder, index=None, fields=FILTERABLE) as kb:
        yield kb


SCOPES = [
    (("tenant", "a"),),
    (("tenant", "b"), ("team", "x")),
    (("Tenant", "a"), ("team", "y")),
    (("tenant", "nobody"),),
]


@pytest.mark.parametrize("scope", SCOPES)
def test_a_scope_shows_the_entries_that_a_look_at_each_entry_would_show(kb, scope):
    expected = [entry.entry_id for entry in kb.entries if is_visible(entry, scope)]
    assert 0 < len(expected) < len(kb.entries)
    assert list(kb.seen_by(scope).entries) == expected


@pytest.mark.parametrize(
    ("filters", "field", "value"),
    [
        ({"category": ["c1"]}, "category", "c1"),
        ({"folder": ["f/"]}, "folder", "f/"),
        ({"version": ["2"]}, "version", "2"),
    ],
)
def test_a_filter_keeps_the_entries_that_a_look_at_each_entry_would_keep(kb, filters, field, value):
    for knowledge in (kb.l0, kb.seen_by(SCOPES[0])):
        expected = [i for i, entry in knowledge.entries.items() if value in values_of(entry, field)]
        assert 0 < len(expected) < len(knowledge.entries)
        limited = knowledge.limited_to(filters)
        assert list(limited.entries) == expected
        found = limited.search_metadata("refund vpn", 200)
        assert {one["entry_id"] for one in found} <= set(expected)


def test_after_a_sync_the_views_in_use_are_there_and_right(kb, tmp_path):
    scope, other = SCOPES[0], SCOPES[1]
    for one in (scope, other):
        kb.hints("refund", scope=one)
    before = kb.l0
    write_files(kb.folder, {"f/new.md": "---\ntenant: a\nkeywords: [zebra]\n---\nzebra refund\n"})
    kb.sync()
    assert kb.l0 is not before
    assert list(kb.l0.views) == [scope, other]
    with KnowledgeBase.open(
        kb.folder, index=None, fields=FILTERABLE, data_dir=tmp_path / "cold"
    ) as cold:
        for one in (scope, other):
            for query in ("zebra", "refund policy", "vpn"):
                assert kb.hints(query, scope=one) == cold.hints(query, scope=one)
                found = kb.seen_by(one).search_metadata(query, 9)
                assert found == cold.seen_by(one).search_metadata(query, 9)
    assert kb.hints("zebra", scope=scope)["keywords"] == ["zebra"]
    assert kb.hints("zebra", scope=other)["keywords"] == []


def test_views_of_many_entries_drive_the_oldest_out(kb, monkeypatch):
    monkeypatch.setattr("langchain_lookup_knowledge.knowledge.MAX_VIEWED", 100)
    sizes = [len(kb.seen_by(scope).entries) for scope in SCOPES]
    assert sum(sizes) > 100
    assert list(kb.l0.views)[-1] == SCOPES[-1]
    assert SCOPES[0] not in kb.l0.views
    assert sum(len(view.entries) for view in kb.l0.views.values()) <= 100
    monkeypatch.setattr("langchain_lookup_knowledge.knowledge.MAX_VIEWED", 1)
    kb.seen_by(SCOPES[0])
    assert list(kb.l0.views) == [SCOPES[0]]
