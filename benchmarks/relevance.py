"""What a result may claim: the model of relevance, fitted to all sets but one and tried on that
one, in turn.

`python benchmarks/relevance.py EVAL [SET ...] [--data-dir DIR] [--json FILE]`

EVAL holds a folder for each set, as in `evidence.py`; questions without an answer take part. The
sets of `benchmarks/claims` always take part: ordinary questions about the sample handbook and
about two folders of twelve pages. Prints for EVAL and for these sets the area under
the ROC curve and how often first matches of each level are right (and show the evidence), and the
weights fitted to all sets, to put into `BUNDLED` and `UNFITTED` (without cosines) of
`lookup/answer/relevance.py`. The same for the weights that are there now, which were fitted to
these very questions: look at them for what changed, not for how good they are. Last, the levels as
the whole lookup gives them. `--json` keeps what was measured of each question. `UNFITTED` is shown
as if it could claim high, which it never does.
"""

import argparse
import json
from dataclasses import asdict, replace
from pathlib import Path

from evidence import CATEGORY_FROM_PATH, read_asks

from langchain_lookup_knowledge import FrontmatterFields, KnowledgeBase
from langchain_lookup_knowledge.evaluation.fitting import cross_validated, fit
from langchain_lookup_knowledge.evaluation.measuring import (
    Outcome,
    Question,
    area_under_curve,
    outcomes,
    read_questions,
    reliability,
)
from langchain_lookup_knowledge.evaluation.report import reliability_table
from langchain_lookup_knowledge.lookup.answer.relevance import (
    BUNDLED,
    UNFITTED,
    RelevanceModel,
)

ROOT = Path(__file__).parent.parent
CLAIMS = ROOT / "benchmarks" / "claims"
FOLDERS = {"handbook": ROOT / "notebooks" / "handbook"}
"""Folders of the sets of `CLAIMS` that have no `kb` of their own."""
MORE = {"handbook": ROOT / "notebooks" / "handbook_questions.jsonl"}
"""Further questions about them."""
SIDES = {"BUNDLED": BUNDLED, "UNFITTED": UNFITTED}


def questions_of(folder: Path) -> list[Question]:
    """Return the questions of a set, with and without an answer, and their evidence."""
    asks = read_asks(folder)
    return [
        replace(question, evidence=asks[question.id].evidence) if question.id in asks else question
        for question in read_questions(folder / "queries.dev.jsonl")
    ]


def judged_of(
    folder: Path, questions: list[Question], fields: FrontmatterFields, place: Path | None
) -> list[Outcome]:
    """Return the outcomes of a set whose first match L1 found."""
    with KnowledgeBase.open(folder, fields=fields, data_dir=place) as kb:
        return [outcome for outcome in outcomes(kb, questions) if outcome.features]


def all_judged(folder: Path, names: list[str], data_dir: Path | None) -> dict[str, list[Outcome]]:
    """Return the outcomes of the sets in a folder, and of those in `CLAIMS`."""
    found = {}
    for name in names:
        fields = FrontmatterFields(category_from_path=CATEGORY_FROM_PATH.get(name, 2))
        questions = questions_of(folder / name)
        place = data_dir / name if data_dir else None
        found[name] = judged_of(folder / name / "kb", questions, fields, place)
    for path in sorted(CLAIMS.iterdir()):
        questions = read_questions(path / "queries.dev.jsonl")
        if path.name in MORE:
            questions += read_questions(MORE[path.name])
        place = data_dir / f"claims-{path.name}" if data_dir else None
        of_set = FOLDERS.get(path.name, path / "kb")
        found[path.name] = judged_of(of_set, questions, FrontmatterFields(), place)
    return found


def show(label: str, judged: list[Outcome], models: list[RelevanceModel]) -> None:
    pairs = list(zip(judged, models, strict=True))
    auc = area_under_curve([(model.probability(o.features), o.right) for o, model in pairs])
    print(f"\n{label}: {len(judged)} questions, area under the ROC curve {auc}")
    print("\n".join(reliability_table(reliability([(m.level(o.features), o) for o, m in pairs]))))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("sets", nargs="*")
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    names = arguments.sets or sorted(path.parent.name for path in arguments.folder.glob("*/kb"))
    found = all_judged(arguments.folder, names, arguments.data_dir)
    judged = [outcome for outcomes_of_set in found.values() for outcome in outcomes_of_set]
    groups = [name for name, outcomes_of_set in found.items() for _ in outcomes_of_set]
    halves = {
        side: [place for place, group in enumerate(groups) if (group in names) == is_given]
        for side, is_given in (("EVAL", True), ("claims", False))
    }
    for label, current in SIDES.items():
        features = tuple(current.weights)
        models = cross_validated(judged, groups, features)
        for side, places in halves.items():
            own = [judged[place] for place in places]
            show(f"{side}, {label}, fitted to other sets", own, [models[place] for place in places])
            show(f"{side}, {label}, as it is", own, [replace(current, fitted=True)] * len(own))
        model = fit(judged, features)
        print(f"{label} = {model.intercept:.2f}, {rounded(model)}")
    for side, places in halves.items():
        print(f"\n{side}, levels of the whole lookup")
        given = [(judged[place].level, judged[place]) for place in places]
        print("\n".join(reliability_table(reliability(given))))
    if arguments.json:
        rows = {name: [asdict(o) for o in of_set] for name, of_set in found.items()}
        arguments.json.write_text(json.dumps(rows, indent=1))


def rounded(model: RelevanceModel) -> dict[str, float]:
    return {name: round(weight, 2) for name, weight in model.weights.items()}


if __name__ == "__main__":
    main()
