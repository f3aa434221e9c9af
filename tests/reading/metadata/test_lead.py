"""Texts of the frontmatter: what is shown of them, and that a line cites its line in the file."""

import pytest
from conftest import write_files
from langchain_core.documents import Document

from langchain_lookup_knowledge.reading.documents import read_documents, read_folder
from langchain_lookup_knowledge.reading.passages import split_passages
from langchain_lookup_knowledge.types import FrontmatterFields

HERO = (
    "layout: home\nhero:\n  name: Glasshouse\n  tagline: Control without wires\n"
    "  actions:\n    - theme: brand\n      text: Start\n      link: /start\n"
    "features:\n  - title: Frost alarm\n    details: Wakes you\n    icon: bell\n  - title: Logs\n"
)


def read(tmp_path, written, **fields):
    files = write_files(tmp_path, {"a.md": written})
    (entry,), _ = read_folder(files, FrontmatterFields(**fields))
    return entry


@pytest.mark.parametrize(
    ("header", "lead"),
    [
        ("title: T\nsummary: Pumps, valves\n", "Pumps, valves"),
        ("description: >-\n  Which pumps\n  are there.\n\n", "Which pumps\nare there."),
        ("description: |\n  One.\n\n  Two.\n", "One.\nTwo."),
        ("description: one\n  two\n", "one\ntwo"),
        ("description: 'one\n\n  two'\n", "one\ntwo"),
        ('description: "it\\u0020is\n  so"\n', "it is so"),
        ("question: May I?\nanswer: 42\n", "May I?\n\n42"),
        ("answer: No.\nquestion: May I?\n", "No.\n\nMay I?"),
        ("questions:\n  - text: Who?\n    url: /who\n  - text: When?\n", "- Who?\n- When?"),
        ("objectives:\n- Learn.\n- Do it\n  twice.\n", "- Learn.\n- Do it\n  twice."),
        (HERO, "Glasshouse\nControl without wires\n\n- Frost alarm\n  Wakes you\n- Logs"),
        ("description:\nsummary: ~\nhero: false\n", ""),
        ("hero: {title: null, text: ~, more: true}\n", ""),
        ("title: T\ndescription: T\n", ""),
        ("description: Text.\n", ""),
        ("description: <!-- hidden --><b>Bold</b> <script>x()</script>\n", "Bold"),
        ('description: "```\\n# open"\n', "# open"),
        ("image: x.png\ntags: [a]\nother: prose of a reader\n", ""),
    ],
)
def test_what_a_reader_sees_is_the_beginning_of_the_text(tmp_path, header, lead):
    written = f"---\n{header}---\nText.\n"
    entry = read(tmp_path, written)
    assert entry.lead_text.strip() == lead
    assert entry.text.strip().endswith("Text.")
    lines = written.split("\n")
    for number, line in enumerate(entry.text.split("\n"), start=1):
        said = line.removeprefix("- ").strip().replace("Bold", "<b>Bold</b>")
        assert said in lines[entry.file_line(number) - 1] or said in ("# open", "it is so")


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        (
            '+++\ndescription = """\nOne\nTwo"""\n[hero]\ntagline = "Go"\n+++\n',
            [(3, "One"), (4, "Two"), (6, "Go")],
        ),
        ('{"title": "T",\n"hero": {\n "tagline": "Go"}\n}\n', [(3, "Go")]),
        ("Title: T\nSummary: Short\n\n", [(2, "Short")]),
        ("title:: T\ndescription:: Short\n\n", [(2, "Short")]),
        ("<!-- a -->\n\n---\nsummary: Short\n---\n", [(4, "Short")]),
    ],
)
def test_lines_are_exact_in_every_format(tmp_path, header, expected):
    entry = read(tmp_path, f"{header}Text.\n")
    placed = [
        (entry.file_line(number), line)
        for number, line in enumerate(entry.text.split("\n"), start=1)
        if line
    ]
    assert placed == [*expected, (header.count("\n") + 1, "Text.")]


def test_a_passage_of_the_lead_cites_its_lines(tmp_path):
    entry = read(tmp_path, "---\ntitle: T\nquestion: May I?\nanswer: No.\n---\n\n# H\n\nBody.\n")
    first, second = split_passages(entry, size=20, units=lambda text: range(len(text)))
    assert (first.text, first.lines) == ("May I?\n\nNo.", (3, 4))
    assert (second.text, second.lines) == ("Body.", (9, 9))


def test_the_fields_decide_what_is_text(tmp_path):
    settings = "weight: 20\ntoc: true\nslug: /t/\n"
    text = f"---\nsummary: One\nbelow: Two\nowner: Jane Doe\n{settings}---\nText.\n"
    entry = read(tmp_path, text, text=("below",))
    assert entry.lead_text.strip() == "Two"
    assert entry.other_values == ("One", "Jane Doe")
    assert read(tmp_path, text, text=()).lead == 0


def test_metadata_of_a_document_is_text_too():
    documents = [
        Document("Text.", metadata={"source": "a", "description": "One\ntwo", "id": "X-1"})
    ]
    (entry,), _ = read_documents(documents, FrontmatterFields())
    assert entry.text == "One\ntwo\n\nText."
    assert [entry.file_line(number) for number in (1, 2, 4)] == [1, 1, 1]
    assert "X-1" in entry.other_values


def test_aliases_are_not_expanded(tmp_path):
    nested = "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 9))
    entry = read(tmp_path, f"---\na0: &a0 [a word]\n{nested}features: *a8\n---\nText.\n")
    assert entry.lead_text.strip() == "- a word"


def test_a_header_of_many_texts_is_bounded(tmp_path):
    items = "".join(f"- item {number}\n" for number in range(5000))
    entry = read(tmp_path, f"---\nfeatures:\n{items}---\nText.\n")
    assert entry.lead == 200


@pytest.mark.parametrize("row", ['hero = "One.\\nTwo.\\nThree."', 'description = """One.\nTwo."""'])
def test_lines_of_a_toml_text_stay_in_order(tmp_path, row):
    """Found by fuzzing: an escaped line end is no line of the file."""
    written = f'+++\n{row}\nquestions = "Four."\n+++\nText.\n'
    entry = read(tmp_path, written)
    lines = [entry.file_line(n) for n in range(1, entry.text.count("\n") + 2)]
    assert lines == sorted(lines)
    places = dict(zip(entry.text.split("\n"), lines, strict=True))
    file = written.split("\n")
    for text in ("One.", "Four.", "Text."):
        assert text in file[places[text] - 1]


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (
            '---\n{"hero": {"name": "Go"}, "questions": ["Who?", "When\n is it?"], "answer":\n'
            '"Now"}\n---\n',
            [(2, "Go"), (2, "- Who?"), (2, "- When"), (3, "  is it?"), (4, "Now")],
        ),
        (
            "---\ntext: &a One\nhero: &b\n  name: Two\n  tagline: *a\nsummary: *b\n---\n",
            [(4, "Two"), (4, "One"), (4, "Two"), (4, "One")],
        ),
        (
            '+++\nquestions = [\n"Who?",\n"When \\u0041?", "Why?"]\n+++\n',
            [(3, "- Who?"), (3, "- When A?"), (4, "- Why?")],
        ),
        (
            '{"questions": [\n"Who?",\n"A caf\\u00e9?"]}\n',
            [(2, "- Who?"), (3, "- A café?")],
        ),
    ],
)
def test_lines_never_go_back(tmp_path, written, expected):
    """Found by fuzzing: keys in one row, aliases, and texts written with escapes."""
    entry = read(tmp_path, f"{written}Text.\n")
    lines = [entry.file_line(n) for n in range(1, entry.text.count("\n") + 2)]
    assert lines == sorted(lines)
    placed = [*zip(lines, entry.text.split("\n"), strict=True)]
    assert [pair for pair in placed[: entry.lead] if pair[1]] == expected
