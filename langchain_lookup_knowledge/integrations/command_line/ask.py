"""The command ask: one lookup, printed for a person, for a model, or as JSON."""

import argparse
import os
import shlex
import sys
from collections.abc import Collection, Iterator, Sequence
from itertools import chain
from pathlib import Path

from langchain_lookup_knowledge.first_sight.answer import NOT_SEARCHED, trust_of, why
from langchain_lookup_knowledge.integrations.command_line.opening import open_kb
from langchain_lookup_knowledge.integrations.command_line.options import (
    Commands,
    add_filter,
    add_folder,
    add_scope,
    check_filters,
    filters_of,
    scope_of,
)
from langchain_lookup_knowledge.integrations.command_line.output import (
    DONE,
    NOTHING_FOUND,
    USAGE,
    can_mark,
    print_json,
    printable,
    printable_lines,
)
from langchain_lookup_knowledge.text.excerpts import excerpt
from langchain_lookup_knowledge.text.search_terms import search_terms, term_spans
from langchain_lookup_knowledge.text.wording import counted, line_range
from langchain_lookup_knowledge.types import LookupOptions, LookupResult, Match, Problem

TIMEOUT = 30.0
"""Time limit in seconds; longer than the default, because the first lookup loads the model."""
FIRST_CHARS, OTHER_CHARS = 480, 240
"""Maximum characters shown of the first match, and of each other match."""
K = 5
"""Maximum number of matches, unless `-k` says otherwise."""
BOLD, PLAIN = "\x1b[1m", "\x1b[0m"


def add_command(commands: Commands) -> None:
    """Add the command ask."""
    ask = commands.add_parser("ask", help="answer a query")
    add_folder(ask)
    ask.add_argument("query", metavar="QUERY", nargs="+", help="question or terms, without quotes")
    ask.add_argument(
        "-k",
        type=int,
        help=f"maximum number of matches (default {K}); those far below the best are left out",
    )
    add_scope(ask)
    add_filter(ask)
    ask.add_argument("--no-l1", action="store_true", help="answer from keywords alone")
    shown = ask.add_mutually_exclusive_group()
    shown.add_argument(
        "--explain", action="store_true", help="also print how the answer was found, and why"
    )
    shown.add_argument("--text", action="store_true", help="print the text that a model gets")
    shown.add_argument("--json", action="store_true", help="print the result as JSON")
    ask.set_defaults(run=_ask)


def _ask(arguments: argparse.Namespace) -> int:
    from langchain_lookup_knowledge.lookup.answer.rendering import render  # noqa: PLC0415
    from langchain_lookup_knowledge.lookup.steps import look_up  # noqa: PLC0415

    scope, filters = scope_of(arguments.scope), filters_of(arguments.filter)
    k = K if arguments.k is None else arguments.k
    options = LookupOptions(k=k, l1_timeout=TIMEOUT, scope_fields=tuple(scope))
    with open_kb(arguments, sync=True) as kb:
        check_filters(filters, kb.fields.filterable)
        kb.note_scope_fields(scope)
        _note(kb.problems, arguments.folder)
        query = " ".join(arguments.query)
        result = look_up(kb, query, options=options, filters=filters, scope=scope)
    if arguments.json:
        print_json(result)
    elif arguments.text:
        print(printable_lines(render(result, options.max_chars)))
    else:
        marks = can_mark()
        lines = answer(result, Path(arguments.folder), marks=marks)
        if arguments.k is not None and len(result["matches"]) < min(k, result["l1"]["candidates"]):
            lines = chain(lines, [f"Weaker matches are left out, so there are fewer than {k}."])
        text = "\n".join([*lines, *(explanation(result) if arguments.explain else ())])
        print(text, file=getattr(sys.stdout, "unfiltered", None) if marks else None)
    if result["status"] in NOT_SEARCHED:
        return USAGE
    return DONE if result["matches"] else NOTHING_FOUND


def _note(problems: Sequence[Problem], folder: str) -> None:
    """Print the problems of the folder as a whole, and the number of problems of its files."""
    whole = [problem.message for problem in problems if problem.path == "."]
    if count := len(problems) - len(whole):
        unused = counted(count, "file or field was", "files or fields were")
        check = f"lookup-knowledge check {shlex.quote(folder)}"
        whole.append(f"{unused} not used as written: see `{check}`")
    for message in whole:
        print(f"note: {printable(message)}", file=sys.stderr)


def answer(result: LookupResult, folder: Path, *, marks: bool) -> Iterator[str]:
    """Yield the lines of an answer for a person: the matches, and how far to trust the answer.

    Each match has its path, its text and the reason for it. `marks` puts the words of the query in
    bold. Control characters in the text of a file are replaced.
    """
    from langchain_lookup_knowledge.lookup.answer.rendering import standing_of  # noqa: PLC0415

    words = set(search_terms(result["query"]))
    for number, match in enumerate(result["matches"]):
        declared = (m["text"] for m in match["matched"] if m["field"] != "text")
        terms = words.union(*map(search_terms, declared))
        yield _marked(printable(match["title"]), terms, marks) + printable(standing_of(match))
        place, origin = _place(match)
        yield printable(os.path.join(folder, place))  # noqa: PTH118
        text = _text(match, terms, OTHER_CHARS if number else FIRST_CHARS)
        yield from (f"  {line}" for line in _marked(text, terms, marks).split("\n") if line.strip())
        if origin:
            yield f"  from {printable(origin)}"
        yield f"  why: {printable(why(match))}"
        yield ""
    yield printable(trust_of(result))


def _place(match: Match) -> tuple[str, str]:
    """Return the path of a match with the line of its best passage, and an empty text; or, if the
    text shown is embedded, the path of the match, and the path and lines of that text.
    """
    if match["passages"] and "path" in (shown := match["passages"][0]):
        return match["source"], shown["path"] + line_range(shown["lines"])
    return match["source"] + line_range((match["lines"] or ())[:1]), ""


def _text(match: Match, terms: Collection[str], limit: int) -> str:
    """Return the part of the best passage that has most of the terms."""
    best = match["passages"][0]["span"] if match["passages"] else (0, len(match["snippet"]))
    passage = match["snippet"][slice(*best)]
    start, end = excerpt(passage, dict.fromkeys(terms, 1.0), limit)
    before, after = ("…" if cut else "" for cut in (start > 0, end < len(passage)))
    return before + printable_lines(passage[start:end].strip()) + after


def _marked(text: str, terms: Collection[str], marks: bool) -> str:
    if not marks:
        return text
    parts, last = [], 0
    for start, end in term_spans(text, terms):
        parts += [text[last:start], BOLD, text[start:end], PLAIN]
        last = end
    return "".join([*parts, text[last:]])


def explanation(result: LookupResult) -> Iterator[str]:
    """Yield the decision behind an answer: the hints, the filter, L1, and each match's scores."""
    hints, chosen, l1 = result["hints"], result["filter"], result["l1"]
    yield ""
    yield f"answered by: {result['retrieval_layer']}, status {result['status']}"
    yield f"hints: {counted(len(hints['terms']), 'term', 'terms')}"
    for term in hints["terms"]:
        specific = "specific" if term["specific"] else "not specific"
        entries = counted(term["document_frequency"], "entry", "entries")
        yield printable(
            f"  {term['field']} {term['text']!r} ({term['kind']}), in {entries}, {specific}: "
            f"{term['reason']}"
        )
    category = "none" if chosen["category"] is None else repr(chosen["category"])
    relaxed = ", taken back" if chosen["relaxed"] else ""
    yield printable(f"filter: {category} ({chosen['reason'].replace('_', ' ')}{relaxed})")
    reason = f" ({l1['reason']})" if l1["reason"] else ""
    found = counted(l1["candidates"], "candidate", "candidates")
    yield printable(f"vector search: {l1['status']}{reason}, {found}, {l1['elapsed_ms']:.0f} ms")
    for number, match in enumerate(result["matches"], start=1):
        similarity = "-" if match["similarity"] is None else f"{match['similarity']:.3f}"
        yield printable(
            f"match {number}: score {match['score']:.3f}, similarity {similarity}, "
            f"found by {' and '.join(match['layers'])}, {match['source']}"
        )
    relevance = result["relevance"]
    support = "with" if relevance["semantic_support"] else "without"
    yield printable(
        f"relevance: {relevance['level']} ({relevance['reason']}), {support} semantic support"
    )
    yield f"recorded: {result['recorded']}, as {result['invocation_id']}"
