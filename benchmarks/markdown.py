"""What is left of markup in the passages of a knowledge base: counts, and examples of each.

`python benchmarks/markdown.py KB [KB ...] [--examples N]`

Passages are cut at 1,200 characters. Counted are passages with template tags outside code, passages
with comments or tags of HTML within lines outside code, passages of links alone, and titles with
entities or marks. Code is found by rules of this script's own: fenced blocks, indented blocks, and
text between backticks.
"""

import argparse
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from langchain_lookup_knowledge import FrontmatterFields
from langchain_lookup_knowledge.reading.documents import read_folder
from langchain_lookup_knowledge.reading.passages import split_passages

CHARACTERS = 1200
"""Maximum characters of a passage."""

_FENCE = re.compile(r"(?:[ \t>]|[-*+] |\d+[.)] )*(`{3,}|~{3,})")
_CODE_SPAN = re.compile(r"(?<!`)(`+)(?!`)(?:(?!\n[ \t]*\n).)+?(?<!`)\1(?!`)", re.DOTALL)
_TAG = re.compile(
    r"""\{\{[<%].*?[>%]\}\}|\{%.*?%\}|\{\#\s.*?\#\}|(?<![$=])\{\{\s*[A-Za-z_'"]""", re.DOTALL
)
_HTML = re.compile(r"<!--|</?(?:a|b|br|code|em|i|img|kbd|span|strong|sub|sup|tt|u)(?:\s[^<>]*)?/?>")
_LINK = re.compile(r"!?\[(?:[^\[\]]|!?\[[^\[\]]*\](?:\([^()]*\))?)*\](?:\([^()]*\)|\[[^\[\]]*\])?")
_ENTITY = re.compile(r"&(?:#\w+|[A-Za-z]\w*);")
_MARK = re.compile(r"[`*]|\]\(|\[\[|\{[#:%{<]|</?\w|[\u200b\u00ad\ufeff\u2060]")


def without_code(text: str) -> str:
    """Return a text without its code."""
    kept: list[str] = []
    fence, was_blank, is_indented = "", True, False
    for line in text.split("\n"):
        mark = _FENCE.match(line)
        if fence:
            if mark and mark[1].startswith(fence) and not line.strip(" \t>`~"):
                fence = ""
            continue
        if mark:
            fence = mark[1]
            continue
        is_indented = line.startswith(("    ", "\t")) and (was_blank or is_indented)
        was_blank = not line.strip()
        if not is_indented:
            kept.append(line)
    return _CODE_SPAN.sub("", "\n".join(kept))


def findings(folder: Path) -> Iterator[tuple[str, str]]:
    """Yield each finding in a folder, with where it is and what it is."""
    entries, _ = read_folder(folder, FrontmatterFields(category_from_path=2))
    for entry in entries:
        yield "titles", entry.title
        if _ENTITY.search(entry.title):
            yield "titles with entities", f"{entry.entry_id}: {entry.title}"
        if _MARK.search(entry.title):
            yield "titles with marks", f"{entry.entry_id}: {entry.title}"
        for passage in split_passages(entry, size=CHARACTERS, length=len):
            yield "passages", passage.text
            prose = without_code(passage.text)
            where = f"{entry.entry_id}:{passage.lines[0]}"
            if tag := _TAG.search(prose):
                yield "passages with template tags", f"{where}: {prose[tag.start() :][:80]!r}"
            if tag := _HTML.search(prose):
                yield "passages with HTML within lines", f"{where}: {tag[0][:80]!r}"
            if _ENTITY.search(prose):
                yield "passages with entities", f"{where}: {_ENTITY.findall(prose)[:3]}"
            lines = [line for line in passage.text.split("\n") if not line.startswith("#")]
            if _LINK.search("\n".join(lines)) and not re.search(
                r"\w", _LINK.sub("", "\n".join(lines))
            ):
                yield "passages of links alone", f"{where}: {passage.text[:80]!r}"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("folders", metavar="KB", type=Path, nargs="+")
    parser.add_argument("--examples", type=int, default=0, help="how many of each to print")
    arguments = parser.parse_args()
    for folder in arguments.folders:
        found: dict[str, list[str]] = defaultdict(list)
        for kind, example in findings(folder):
            found[kind].append(example)
        print(folder)
        for kind, examples in found.items():
            print(f"  {kind}: {len(examples)}")
            if kind not in ("titles", "passages"):
                for example in examples[: arguments.examples]:
                    print(f"    {example}")


if __name__ == "__main__":
    main()
