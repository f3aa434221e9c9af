"""Are the gaps that the inspector lists really unanswered? On questions with known answers.

`python benchmarks/gaps.py EVAL [SET ...] [--data-dir DIR]`

EVAL holds a folder for each set, as in `evidence.py`; SET may also be a folder with `NAME/` and
`NAME_questions.jsonl` beside it, such as `notebooks/handbook`. The questions are looked up and
recorded, every tenth without L1 (its time is up at once). A question is really unanswered if no
page answers it, or if the answer is not in the text that the model gets (without known evidence: if
no right page is among the matches).

Prints how many gaps are listed, the share of them that is really unanswered (precision), and the
share of the unanswered questions that is listed (recall), of those for which L1 took part. The same
by what proves a gap, and for all lookups of low or no relevance.
"""

import argparse
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from evidence import CATEGORY_FROM_PATH, read_asks

from langchain_lookup_knowledge import (
    FrontmatterFields,
    KnowledgeBase,
    LookupOptions,
    SQLInvocationRecorder,
    create_lookup_knowledge_graph,
)
from langchain_lookup_knowledge.evaluation.measuring import read_questions, shows
from langchain_lookup_knowledge.inspector.gaps import GAP_ROWS, Proof, gaps_in, proven
from langchain_lookup_knowledge.lookup.answer.rendering import render
from langchain_lookup_knowledge.records.history import History
from langchain_lookup_knowledge.records.selection import Selection

DOWN = 10
"""Of so many lookups, one is without L1."""


class Asked(NamedTuple):
    """A question, whether it is really unanswered, and what its record proves; `proof` is None if
    its lookup cannot be a gap.
    """

    query: str
    unanswered: bool
    l1: bool
    proof: Proof | None


def asked(folder: Path, data_dir: Path) -> Iterator[Asked]:
    """Look up and record the questions of a set; yield what became of each."""
    if (folder / "queries.dev.jsonl").exists():
        files, questions = folder / "kb", read_questions(folder / "queries.dev.jsonl")
        evidence = {question_id: ask.evidence for question_id, ask in read_asks(folder).items()}
        fields = FrontmatterFields(category_from_path=CATEGORY_FROM_PATH.get(folder.name, 2))
    else:
        questions = read_questions(folder.with_name(f"{folder.name}_questions.jsonl"))
        files, evidence, fields = folder, {}, FrontmatterFields()
    recorder = SQLInvocationRecorder.in_file(Path(tempfile.mkdtemp()) / "calls.db")
    unanswered, with_l1 = {}, {}
    with closing(recorder), KnowledgeBase.open(files, fields=fields, data_dir=data_dir) as kb:
        up, down = (
            create_lookup_knowledge_graph(
                kb, record=recorder, options=LookupOptions(l1_timeout=seconds), drop_weak=True
            )
            for seconds in (60, 1e-4)
        )
        for number, question in enumerate(questions, start=1):
            result = (up if number % DOWN else down).invoke({"query": question.query})
            known = evidence.get(question.id, question.evidence)
            ids = {match["entry_id"] for match in result["matches"]}
            answered = bool(ids & question.relevant)
            if known:
                answered = shows(render(result, LookupOptions().max_chars), known)
            unanswered[question.query] = not (question.relevant and answered)
            with_l1[question.query] = result["l1"]["status"] not in ("timeout", "unavailable")
        history = History(recorder)
        rows = history.asked(Selection(), limit=GAP_ROWS)
        gaps = proven(gaps_in(rows, {}, {}), history.invocations)
    proofs = {gap.query: gap.proof for gap in gaps}
    for query, is_unanswered in unanswered.items():
        yield Asked(query, is_unanswered, with_l1[query], proofs.get(query))


def line(label: str, listed: Sequence[Asked], everything: Sequence[Asked]) -> str:
    right = sum(one.unanswered for one in listed)
    missing = sum(one.unanswered for one in everything if one.l1)
    precision = f"{right / len(listed):.2f}" if listed else "-"
    recall = f"{right / missing:.2f}" if missing else "-"
    return f"{label:<26}{len(listed):>8}{right:>8}{precision:>12}{recall:>9}"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("sets", nargs="*")
    parser.add_argument("--data-dir", type=Path, default=Path(tempfile.gettempdir()) / "gaps")
    parser.add_argument("--show", action="store_true", help="also print the gaps")
    arguments = parser.parse_args()
    names = arguments.sets or sorted(
        path.parent.name for path in arguments.folder.glob("*/queries.dev.jsonl")
    )
    found: dict[str, list[Asked]] = {}
    for name in names:
        folder = arguments.folder / name if "/" not in name else Path(name)
        found[name] = list(asked(folder, arguments.data_dir / folder.name))
    print(f"{'':<26}{'listed':>8}{'right':>8}{'precision':>12}{'recall':>9}")
    everything = [one for rows in found.values() for one in rows]
    for name, rows in [*found.items(), ("together", everything)]:
        gaps = [one for one in rows if one.proof not in (None, Proof.NONE)]
        print(line(f"{name}, {len(rows)}", gaps, rows))
    for proof in Proof:
        gaps = [one for one in everything if one.proof is proof]
        if gaps:
            print(line(f"  proof {proof.name.lower()}", gaps, everything))
    low = [one for one in everything if one.proof is not None]
    print(line("  low or no relevance", low, everything))
    for one in everything if arguments.show else ():
        if one.proof not in (None, Proof.NONE):
            print(f"{'' if one.unanswered else 'answered: '}{one.proof.name} {one.query}")


if __name__ == "__main__":
    main()
