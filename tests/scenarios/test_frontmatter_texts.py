"""Texts and values of the frontmatter, as somebody who asks meets them."""

import json

import pytest
from conftest import write_files
from parts.command_line import run

from langchain_lookup_knowledge import (
    KnowledgeBase,
    LookupOptions,
    create_lookup_knowledge_graph,
)

FILES = {
    "sheet.md": "---\ntitle: Sheet 4\nsummary: >-\n  Hygrometers, pyranometers\n  and anemometers\n"
    "---\nBooked by telephone.\n",
    "faq.md": "---\ntitle: FAQ 7\nquestion: May I move the boiler myself?\n"
    "answer: No, ask a certified fitter.\n---\n",
    "index.md": "---\nlayout: home\nhero:\n  name: Glasshouse\n  tagline: Irrigation control\n"
    "features:\n  - title: Frost alarm\n    details: Wakes you under two degrees\n---\n",
    "lesson.md": "+++\ntitle = 'Lesson 3'\nobjectives = ['Prune the vines']\n+++\nBring gloves.\n",
    "bread.md": "# Bread\n\nRests overnight.\n",
}


@pytest.mark.parametrize("l1_enabled", [True, False])
@pytest.mark.parametrize(
    ("query", "first", "text", "line"),
    [
        ("pyranometers", "sheet.md", "Hygrometers, pyranometers and anemometers", 4),
        ("may I move the boiler", "faq.md", "No, ask a certified fitter.", 3),
        ("frost alarm degrees", "index.md", "- Frost alarm\n  Wakes you under two degrees", 4),
        ("prune vines", "lesson.md", "- Prune the vines", 3),
    ],
)
def test_a_text_of_the_frontmatter_answers(
    tmp_path, embedding, query, first, text, line, l1_enabled
):
    folder = write_files(tmp_path, FILES)
    with KnowledgeBase.open(folder, embedding=embedding, progress=False) as kb:
        options = LookupOptions(l1_enabled=l1_enabled)
        graph = create_lookup_knowledge_graph(kb, record=None, options=options)
        best = graph.invoke({"query": query})["matches"][0]
    assert best["entry_id"] == first
    assert text in best["snippet"]
    assert best["lines"][0] == line


def test_the_command_line_chooses_what_is_read(tmp_path):
    write_files(
        tmp_path,
        {
            "a.md": "---\nbelow: About valves.\n---\nSee #pumps.\n",
            "b.md": "Status: Open\nTags: heating\n\nCall the fitter.\n",
            "c/d.md": "x\n",
        },
    )
    options = ["--text-keys", "below", "--inline-tags", "--plain-headers", "--exclude", "c/"]
    assert run("index", tmp_path, *options).returncode == 0
    settings = json.loads((tmp_path / ".lookup-knowledge" / "settings.json").read_text("utf-8"))
    assert settings["selection"]["exclude"] == ["c/"]
    with KnowledgeBase.open(tmp_path, index=None) as kb:
        found = {entry.entry_id: (entry.lead_text, entry.keywords) for entry in kb.entries}
    assert found == {"a.md": ("About valves.", ("pumps",)), "b.md": ("", ("heating",))}
