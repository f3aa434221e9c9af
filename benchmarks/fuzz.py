"""Hostile input: random and crafted bytes as files, mappings as frontmatter, texts as queries.

Every input must pass without an exception and within a second of processor time (a second for each
500,000 characters of a longer one), and the load report must add up.
"""

import argparse
import json
import random
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from langchain_lookup_knowledge.l0.hints import HintIndex
from langchain_lookup_knowledge.reading.documents import read_folder
from langchain_lookup_knowledge.reading.entry import Entry
from langchain_lookup_knowledge.types import FrontmatterFields

SCRIPTS = [
    *[
        (0x20, 0x7F),
        (0xA0, 0x24F),
        (0x300, 0x36F),
        (0x370, 0x52F),
        (0x590, 0x6FF),
        (0xE00, 0xE7F),
        (0x2000, 0x206F),
    ],
    *[
        (0x3040, 0x30FF),
        (0x4E00, 0x4FFF),
        (0xAC00, 0xAD00),
        (0xFF00, 0xFFEF),
        (0x1F300, 0x1F6FF),
        (0, 0xD7FF),
    ],
    (0xE0000, 0xE01FF),
]
MARKUP = [
    *"`<>[](){}|#*_-+=:;,.'\"\\!&%@/~ \n\t",
    *[
        "---\n",
        "+++\n",
        "```",
        "~~~\n",
        "<!--",
        "-->",
        "<div hidden>",
        "</div>",
        "<script>",
        "</script>",
        "<p style='display:none'>",
    ],
    *[
        "\n\n",
        "\n    ",
        "# ",
        "- ",
        "tags: ",
        "title: ",
        "draft: true\n",
        "&a ",
        "*a ",
        "!!str ",
        "!x ",
        "{{x}}",
        "[a, b]",
        "|\n  ",
    ],
    *[
        '{"title": ',
        "title = ",
        "[x]\n",
        "data:image/png;base64,AAAA",
        "import x from 'y'\n",
        "{/*",
        "*/}",
        "<?",
        "?>",
        "\r\n",
        "\x85",
    ],
    *[
        "{{< note >}}",
        "{{< /note >}}",
        "{{% x a='b' %}}",
        "{% if x %}",
        "{% raw %}",
        "{% endraw %}",
    ],
    *["{# ", " #}", "{{/* ", "%%", "\n% ", "{--", "--}", "{~~", "~>", "~~}", "&amp;", "&#x200b;"],
    *["<b>", "</b>", "<Note>", "</Note>", "<Tab label={`x`}>", "export const x = {\n", "<br>"],
]
REPEATED = [
    "a\u0301\u0323",
    "a",
    "退",
    "- ",
    "[",
    "{a: ",
    '"',
    "'",
    "<!-- ",
    "<p hidden>",
    "<a ",
    "`",
    "` `` ",
    "\n\n",
    "# x\n",
    "x,",
]
REPEATED += [
    "&a ",
    "? ",
    "| ",
    "a.",
    "E-4711 ",
    "re-fund-",
    "aB",
    "\u200d",
    "\ufe0f",
    "\u202e",
    "data:a/b;",
    "[a]: # (b)\n",
    "\n    x\n\n",
    *("{{< x >}}", "{{<", "{% raw %}", "{% x 'y ", "{{", "{# ", "%%", "%% x", "{--", "{~~a~>"),
    *("&amp;", "<b>", "<A {", "<Note>x</Note>", "export const x = {\n", "\n% x"),
]
REPEATED += [
    "a:: b\n",
    "a:: #b ",
    "% a\n",
    "Title: a\n",
    "- a\n",
    "['a', ",
    "[[a|",
    "#a ",
    "<!-- a -->\n",
]
HEADERS = [
    ("---\n", "\n---\n"),
    ("+++\n", "\n+++\n"),
    ("", "\n"),
    ("---\n", "\n...\n"),
    ("<!-- a -->\n---\n", "\n---\n"),
    ("# licence\n---\n", "\n---\n"),
    ("---\ntags: ", "\n---\n"),
    ("+++\ntags = ", "\n+++\n"),
    ("---\ndescription: ", "\n---\n"),
    ("---\nfeatures:\n", "\n---\n"),
    ("+++\nhero = ", "\n+++\n"),
    ("title:: ", "\n"),
    ("% a\n% b\n% 2", "\n\n"),
    ("Title: a\nTags: ", "\n\n"),
]


def text(rng, longest):
    low, high = rng.choice(SCRIPTS)
    return "".join(
        chr(rng.randint(low, high)) if rng.random() < 0.7 else rng.choice(MARKUP)
        for _ in range(rng.randint(0, longest))
    )


def repeated(rng, longest):
    unit = rng.choice(REPEATED) if rng.random() < 0.8 else text(rng, 8) or "x"
    return (unit * (rng.randint(1, longest) // len(unit) + 1))[:longest]


def value(rng, depth=0):
    kind = rng.randint(0, 7 if depth < 3 else 4)
    if kind == 5:
        return [value(rng, depth + 1) for _ in range(rng.randint(0, 4))]
    if kind > 5:
        return {text(rng, 6): value(rng, depth + 1) for _ in range(rng.randint(0, 4))}
    return [text(rng, 30), rng.randint(-(10**20), 10**20), rng.random(), None, rng.random() < 0.5][
        kind
    ]


def as_bytes(rng):
    if rng.random() < 0.3:
        return rng.randbytes(rng.randint(0, 300))
    encoding = rng.choice(["utf-8", "utf-8", "utf-8-sig", "utf-16", "latin-1", "gbk"])
    return text(rng, 300).encode(encoding, "replace")


def as_frontmatter(rng):
    keys = ["title", "tags", "keywords", "category", "aliases", "draft", "taxonomies", text(rng, 5)]
    keys += ["description", "hero", "questions", "status", "superseded_by", "version"]
    mapping = {rng.choice(keys): value(rng) for _ in range(rng.randint(0, 6))}
    before, after = rng.choice(HEADERS[:6])
    if before.startswith("+"):
        written = "\n".join(
            f"{json.dumps(key)} = {json.dumps(item)}" for key, item in mapping.items()
        )
    elif rng.random() < 0.5:
        written = json.dumps(mapping, ensure_ascii=rng.random() < 0.5)
    else:
        written = "\n".join(f"{key}: {item}" for key, item in mapping.items())
    return f"{before}{written}{after}{text(rng, 100)}".encode("utf-8", "replace")


def as_giant(rng, most):
    before, after = rng.choice(HEADERS)
    return f"{before}{repeated(rng, most)}{after}{repeated(rng, most)}".encode("utf-8", "replace")[
        :1_000_000
    ]


def load(folder, fields):
    entries, report = read_folder(folder, fields)
    if report.seen != report.loaded + len(report.skipped) or report.loaded != len(entries):
        raise AssertionError(f"the load report does not add up: {report}")
    for entry in entries:
        lines = [entry.file_line(n) for n in range(1, entry.text.count("\n") + 2)]
        if min(lines) < 1 or lines != sorted(lines):
            raise AssertionError(f"lines out of order: {lines}")
        json.dumps(
            [entry.title, *entry.keywords, *entry.categories, *entry.entities, entry.entry_id]
        ).encode()
        "".join((entry.text, entry.title)).encode()
    return entries


def knowledge_base(rng):
    return [
        Entry(
            f"{i}.md",
            text(rng, 20),
            tuple(text(rng, 12) for _ in range(3)),
            (text(rng, 5),),
            (text(rng, 9),),
            text(rng, 200),
        )
        for i in range(rng.randint(1, 30))
    ]


def fuzz(inputs, seed):
    """Run the inputs; return how many of each kind there were, and for each the slowest: its time
    (for each 500,000 characters of a longer one), its beginning and its end.
    """
    rng = random.Random(seed)
    counts, slowest = Counter(), {}

    def timed(kind, given, call):
        start = time.process_time()
        try:
            return call()
        except Exception:
            print(f"seed {seed}, {kind}: {given[:300]!r}", file=sys.stderr)
            raise
        finally:
            seconds = time.process_time() - start
            counts[kind] += 1
            shown = given if len(given) <= 120 else given[:60] + given[-60:]
            seconds /= max(1, len(given) / 500_000)
            slowest[kind] = max(slowest.get(kind, (0.0, "")), (seconds, repr(shown)))

    index = HintIndex(knowledge_base(rng))  # also makes what is made once in a process
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.md"
        kinds = {
            "bytes": (as_bytes, 45),
            "frontmatter": (as_frontmatter, 30),
            "giant": (lambda r: as_giant(r, 500_000), 0.05),
        }
        for kind, (make, percent) in kinds.items():
            for _ in range(round(inputs * percent / 100)):
                data = make(rng)
                path.write_bytes(data)
                fields = FrontmatterFields(
                    skip_drafts=rng.random() < 0.5,
                    category_from_path=rng.randint(0, 1),
                    inline_tags=rng.random() < 0.5,
                    plain_headers=rng.random() < 0.5,
                )
                timed(kind, data, lambda fields=fields: HintIndex(load(Path(folder), fields)))
    for number in range(inputs - counts.total()):
        if number % 10 == 0:
            entries = knowledge_base(rng)
            index = HintIndex(entries)
        words = [rng.choice([*entry.keywords, entry.title]) for entry in rng.choices(entries, k=3)]
        query = " ".join([text(rng, 200), *words]) if rng.random() < 0.99 else repeated(rng, 20_000)
        timed("query", query, lambda index=index, query=query: index.hints(query))
    return counts, slowest


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("inputs", type=int, nargs="?", default=100_000)
    parser.add_argument("--seed", type=int, default=7)
    arguments = parser.parse_args()
    start = time.perf_counter()
    counts, slowest = fuzz(arguments.inputs, arguments.seed)
    print(
        f"{counts.total()} inputs in {time.perf_counter() - start:.0f} s, no "
        "exception, every load report adds up"
    )
    for kind, (seconds, given) in slowest.items():
        print(
            f"{kind}: {counts[kind]} inputs, slowest {seconds * 1000:.1f} ms of "
            f"the processor: {given}"
        )
    if max(seconds for seconds, _ in slowest.values()) > 1:
        sys.exit("an input took more than a second")


if __name__ == "__main__":
    main()
