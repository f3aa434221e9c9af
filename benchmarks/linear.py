"""Time of the reading stages on repeated characters and alternations, at growing sizes.

`python benchmarks/linear.py [MEGABYTES ...]`

Stages: reading one document into an entry, its title and hidden parts included; the block
structure; cutting into passages by the tokens of an estimate. Times are of the processor.
"""

import argparse
import time

from langchain_core.documents import Document

from langchain_lookup_knowledge.l1.models.embeddings import estimated_token_starts
from langchain_lookup_knowledge.reading.documents import read_documents
from langchain_lookup_knowledge.reading.entry import Entry
from langchain_lookup_knowledge.reading.passages import split_passages
from langchain_lookup_knowledge.text.markdown import Outline
from langchain_lookup_knowledge.text.substance import has_words, is_links_alone, left_out
from langchain_lookup_knowledge.text.visible.cleaning import visible
from langchain_lookup_knowledge.types import FrontmatterFields

CHARACTERS = [*" \t\n#-*+>|`~=_<>[](){}!&\\:;,.?'\"^$%@/0aA退"]
ALTERNATIONS = [
    *["x,", "x ", "x. ", "x\n", "x\n\n", "!?", "。x", "aB3 ", "a|", "| ", "|-", "- ", "> ", "1. "],
    *["# x\n", "- x\n", "- x\n\n", "1. x\n", "> x\n", ">\n", "> - ", "- > ", "x\n=\n", "x\n---\n"],
    *["a|b\n-|-\n", "|a|b|\n", "```\n", "```\nx\n", "- ```\n", "> ~~~\n", "    x\n", "    x\n\n"],
    *["<a ", "<a>", "<a>\n", "<h1>", "<h1>x\n", "<h1>x</h1>\n", "<h1>x</h2>\n", "<tr><th>", "<li>"],
    *[
        "<!--",
        "<!-- x -->\n",
        "<p hidden>",
        "<div>\n",
        "</div>",
        "<script>",
        "<pre>\n",
        "<?",
        "{/*",
    ],
    *["[a](b) ", "[a]: b\n", "[a]:\n", "[a][b]", "[[a]]", "![a](b)", "[![", "](", "[a](#b)\n"],
    *[
        "- [a](b)\n",
        "- [a](#b)\n",
        "**a**\n\n",
        "Why?\n\n",
        "x\n: y\n",
        ": y\n",
        "&amp;",
        "\\`",
        "``",
    ],
    *["::: {.content-hidden}\n", "::: {.content-hidden}\na\n:::\n", "{% raw %}", "{{< x >}}"],
    *["` ", "data:image/png;base64,", "iVBORw0KGgoAAAANSUhEUgAA", "https://a.b ", " ^a", "{#a}"],
]
SHAPES = [*CHARACTERS, *ALTERNATIONS]
BEFORE_ONE_LINE = ["| a | b |\n", "| a |\n|---|\n| ", "# ", "- ", "> ", "<table>\n", "[a]: "]
"""Beginnings of a text that go on with a long run of blanks, dashes or letters."""


def stages(text):
    """Return the seconds that each stage takes for a text, by its name."""
    size, seconds = 200, {}
    entry = Entry("a.md", "Title", (), (), (), text)
    calls = {
        "reading": lambda: read_documents([Document(text)], FrontmatterFields()),
        "hidden": lambda: visible(text),
        "blocks": lambda: Outline(text).blocks,
        "words": lambda: (has_words(text), is_links_alone(text), [*left_out(text)]),
        "passages": lambda: split_passages(entry, size=size, units=estimated_token_starts),
    }
    for name, call in calls.items():
        start = time.process_time()
        call()
        seconds[name] = time.process_time() - start
    return seconds


def texts(size):
    """Yield the name of each shape, and a text of about `size` characters."""
    for unit in SHAPES:
        yield repr(unit), (unit * (size // len(unit) + 1))[:size]
    for before in BEFORE_ONE_LINE:
        for unit in (" ", "-", "a", "|", "a "):
            yield f"{before!r} and {unit!r}", before + (unit * size)[:size]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("megabytes", type=float, nargs="*", default=[0.25, 0.5, 1.0])
    sizes = parser.parse_args().megabytes
    totals = {size: {} for size in sizes}
    slowest = {size: {} for size in sizes}
    for size in sizes:
        for name, text in texts(round(size * 1_000_000)):
            for stage, seconds in stages(text).items():
                totals[size][stage] = totals[size].get(stage, 0.0) + seconds
                worst = slowest[size].get(stage, (0.0, ""))
                slowest[size][stage] = max(worst, (seconds, name))
    shapes = sum(1 for _ in texts(1))
    print(f"{shapes} shapes; seconds of the processor: mean, slowest")
    for stage in totals[sizes[0]]:
        cells = (
            f"{size:g} MB: {totals[size][stage] / shapes:.2f}, {slowest[size][stage][0]:.2f} "
            f"({slowest[size][stage][1]})"
            for size in sizes
        )
        print(f"{stage}: {'; '.join(cells)}")


if __name__ == "__main__":
    main()
