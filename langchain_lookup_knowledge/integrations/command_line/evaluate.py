"""The command eval: how well questions with known answers are answered."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from langchain_lookup_knowledge.integrations.command_line.opening import open_kb
from langchain_lookup_knowledge.integrations.command_line.options import Commands, add_folder
from langchain_lookup_knowledge.integrations.command_line.output import DONE, FELL_SHORT, print_json

if TYPE_CHECKING:
    from langchain_lookup_knowledge.evaluation.measuring import Question
    from langchain_lookup_knowledge.knowledge_base import KnowledgeBase


def add_command(commands: Commands) -> None:
    """Add the command eval."""
    evaluate = commands.add_parser(
        "eval", help="measure the answers to questions with known answers"
    )
    add_folder(evaluate)
    evaluate.add_argument(
        "questions",
        metavar="QUERIES.jsonl",
        nargs="?",
        help="JSON lines with id, query, relevant (entry ids) and evidence (texts; at least one "
        "must be shown)",
    )
    evaluate.add_argument(
        "--from-feedback",
        action="store_true",
        help="also ask the recorded queries whose first match was called right",
    )
    evaluate.add_argument("--json", action="store_true", help="print the figures as JSON")
    evaluate.add_argument(
        "--plot", metavar="FILE.png", type=Path, help="draw the figures (needs the extra [plot])"
    )
    evaluate.add_argument(
        "--fit",
        action="store_true",
        help="fit the relevance levels to these questions; kept in the data folder",
    )
    evaluate.add_argument(
        "--min",
        metavar="NAME=SHARE,...",
        type=_minima,
        default={},
        help="minimum values, such as evidence=0.8,ndcg=0.75; exit with status 1 if a figure is "
        "lower; figures: evidence (in the text shown), first (evidence in the first match), "
        "success@1, success@5, mrr, ndcg, recall (all at 10, of the whole lookup), auc (of the "
        "relevance)",
    )
    evaluate.add_argument(
        "--against",
        metavar="SAVED.json",
        type=Path,
        help="exit with status 1 if a figure is lower than in this file, saved by --json",
    )
    evaluate.add_argument(
        "--tolerance",
        metavar="SHARE",
        type=_share,
        help="how far figures may fall below those of --against (default 0.01)",
    )
    evaluate.set_defaults(run=_evaluate)


def _minima(text: str) -> dict[str, float]:
    """Parse the minimum values of figures, given as `NAME=SHARE,...`."""
    from langchain_lookup_knowledge.evaluation.gate import read_minima  # noqa: PLC0415

    try:
        return read_minima(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _share(text: str) -> float:
    """Parse a number from 0 to 1."""
    from langchain_lookup_knowledge.evaluation.gate import read_share  # noqa: PLC0415

    try:
        return read_share(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _evaluate(arguments: argparse.Namespace) -> int:
    from langchain_lookup_knowledge.evaluation import gate, measuring, report  # noqa: PLC0415

    if arguments.tolerance is not None and not arguments.against:
        raise ValueError("--tolerance is how far figures may fall: give --against too")
    if not arguments.questions and not arguments.from_feedback:
        raise ValueError("give QUERIES.jsonl, or --from-feedback for the answers called right")
    questions = measuring.read_questions(Path(arguments.questions)) if arguments.questions else []
    if arguments.from_feedback:
        questions += _questions_of_feedback(arguments)
    saved = gate.read_saved(arguments.against) if arguments.against else {}
    with open_kb(arguments, sync=True) as kb:
        figures = measuring.evaluate(kb, questions)
        if arguments.json:
            print_json(figures)
        else:
            print("\n".join(report.table(figures)))
        if arguments.plot:
            report.plot(figures, arguments.plot)
        if arguments.fit:
            _fit(kb, questions, sys.stderr if arguments.json else sys.stdout)
    tolerance = gate.TOLERANCE if arguments.tolerance is None else arguments.tolerance
    fallen = [
        *gate.shortfalls(figures, arguments.min),
        *gate.shortfalls(figures, saved, tolerance),
    ]
    for line in fallen:
        print(line, file=sys.stderr)
    return FELL_SHORT if fallen else DONE


def _questions_of_feedback(arguments: argparse.Namespace) -> "list[Question]":
    from langchain_lookup_knowledge.data_folder import find_data_folder  # noqa: PLC0415
    from langchain_lookup_knowledge.evaluation.measuring import Question  # noqa: PLC0415
    from langchain_lookup_knowledge.records.feedback import questions_in_folder  # noqa: PLC0415

    data_folder = find_data_folder(arguments.folder, arguments.data_dir, make=False)
    found = [
        Question(one["id"], one["query"], frozenset(one["relevant"]))
        for one in questions_in_folder(data_folder)
    ]
    if not found:
        raise ValueError(
            f"no answer recorded for the folder {arguments.folder} was called right: say so with "
            "`lookup-knowledge feedback` or in the inspector"
        )
    return found


def _fit(kb: "KnowledgeBase", questions: "Sequence[Question]", output: TextIO) -> None:
    """Fit the relevance model, show what it would have claimed for `questions`, and save it."""
    from langchain_lookup_knowledge.evaluation import fitting  # noqa: PLC0415
    from langchain_lookup_knowledge.lookup.answer.relevance import keep_model  # noqa: PLC0415

    found = fitting.fit_to(kb, questions)
    print("\n".join(fitting.fit_table(found)), file=output, flush=True)
    path = keep_model(found.model, kb.embedding, kb.data_folder)
    print(f"kept in {path}; delete it to go back", file=output)
