"""Cited lines: every word of a text is in the lines of the file that are cited for it."""

import re

import pytest
from conftest import write_files
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from langchain_lookup_knowledge import FrontmatterFields
from langchain_lookup_knowledge.reading.documents import read_folder
from langchain_lookup_knowledge.reading.parts import part_of
from langchain_lookup_knowledge.reading.passages import split_passages

WORD = re.compile(r"word\d+")
# Each `@` becomes a word of its own; `x` is hidden.
BLOCKS = (
    "@ @ <!-- x\nx\n--> @ @ @\n@",
    "@ <!-- x\n\n\nx --> <!-- x\nx --> @",
    "@ @ <!-- x\nx -->\n@",
    "<!-- x\nx\n--> @ @",
    "<!-- x\n\nx -->",
    "@ %%x\nx%% @ {# x\nx #} @",
    '@ {{< button text="@"\n  url="x.md" >}} @\n@',
    '{{< button text="@"\n\n  url="x.md" >}} @',
    '@ <span\n  title="x"\n  class="x">@</span> @',
    "@ <span hidden>x\nx</span> @",
    "- @ <!-- x\n  x --> @\n- @",
    "> @ <!-- x\n> x --> @\n> @",
    "## @ <!-- x\nx --> @",
    "| a | b |\n|---|---|\n| @ | @ |\n| @ <!-- x --> | @ |",
    "{{< note >}}\n@ @\n\n@\n{{< /note >}}",
    '{{< tabs >}}\n{{% tab name="@" %}}\n@\n{{% /tab %}}\n{{< /tabs >}}',
    "```\n@ <!-- @\n@ --> @\n```",
    "@ @ @\n@ @\n@",
    "## @",
)
HEADERS = ("", "---\ntitle: A\ndescription: @ @\n---\n", "---\ndescription: |\n  @\n  @ @\n---\n")


def written(header, blocks):
    """Return a file in which each word has its own number."""
    count = iter(range(10_000))
    body = header + "\n\n".join(blocks) + "\n"
    return re.sub("@", lambda _: f"word{next(count)}", body)


def read(folder, text):
    (entry,), _ = read_folder(write_files(folder, {"a.md": text}), FrontmatterFields())
    return entry


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    header=st.sampled_from(HEADERS),
    blocks=st.lists(st.sampled_from(BLOCKS), min_size=1, max_size=12),
    size=st.sampled_from((40, 120, 400)),
)
def test_every_word_is_in_the_lines_that_are_cited_for_it(tmp_path, header, blocks, size):
    text = written(header, blocks)
    entry, file = read(tmp_path, text), text.split("\n")
    for number, line in enumerate(entry.text.split("\n"), start=1):
        cited = "\n".join(file[entry.file_line(number) - 1 : entry.last_file_line(number)])
        assert {*WORD.findall(line)} <= {*WORD.findall(cited)}, (number, line, text)
    for passage in split_passages(entry, size=size, units=lambda text: range(len(text))):
        first, last = passage.lines
        cited = "\n".join(file[first - 1 : last])
        assert {*WORD.findall(passage.text)} <= {*WORD.findall(cited)}, (passage, text)
    for number, line in enumerate(file, start=1):
        if words := {*WORD.findall(line)} & {*WORD.findall(entry.text)}:
            part = part_of(entry, lines=(number, number))
            assert words <= {*WORD.findall(part.text)}, (number, part, text)
            assert part.lines[0] <= number <= part.lines[1]


@pytest.mark.parametrize(
    ("text", "shown", "lines"),
    [
        ("# A\n\nOne <!-- x\ny\n--> two\n", "One two", (3, 5)),
        ("# A\n\nOne <!-- x\ny\n-->\n", "One", (3, 3)),
        ("# A\n\nOne <!-- x\ny --> two <!--\n\n--> three\n", "One two three", (3, 6)),
        ("# A\n\n<!-- x\ny --> two\n", "two", (4, 4)),
        ('# A\n\nOne {{< button text="Press"\n  url="x" >}} two\n', "One [Press](x) two", (3, 4)),
    ],
)
def test_lines_that_became_one_are_cited_from_the_first_to_the_last(tmp_path, text, shown, lines):
    entry = read(tmp_path, f"{text}\nEnd.\n")
    number = [" ".join(line.split()) for line in entry.text.split("\n")].index(shown) + 1
    assert (entry.file_line(number), entry.last_file_line(number)) == lines
    last = entry.text.split("\n").index("End.") + 1
    assert entry.file_line(last) == entry.last_file_line(last) == text.count("\n") + 2
    assert part_of(entry, lines=(lines[1], lines[1])).lines == lines
