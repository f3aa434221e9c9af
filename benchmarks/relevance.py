"""What a result may claim: the model of relevance, fitted to all sets but one and tried on that
one, in turn.

`python benchmarks/relevance.py EVAL [SET ...] [--data-dir DIR] [--json FILE]`

EVAL holds a folder for each set, as in `evidence.py`; questions without an answer take part. Prints
the area under the ROC curve, how often first matches of each level are right (and show the
evidence), and the weights fitted to all sets, to put into `BUNDLED` and `UNFITTED`
(without cosines) of `lookup/relevance.py`. The same for the weights that are there now, which
were fitted to these very questions: look at them for what changed, not for how good they are.
`--json` keeps what was measured of each question. `UNFITTED` is shown as if it could claim high,
which it never does.
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

SIDES = {"BUNDLED": BUNDLED, "UNFITTED": UNFITTED}


def questions_of(folder: Path) -> list[Question]:
    """Return the questions of a set, with and without an answer, and their evidence."""
    asks = read_asks(folder)
    return [
        replace(question, evidence=asks[question.id].evidence) if question.id in asks else question
        for question in read_questions(folder / "queries.dev.jsonl")
    ]


def judged_of(folder: Path, data_dir: Path | None) -> list[Outcome]:
    """Return the outcomes of a set whose first match L1 found."""
    fields = FrontmatterFields(category_from_path=CATEGORY_FROM_PATH.get(folder.name, 2))
    place = data_dir / folder.name if data_dir else None
    with KnowledgeBase.open(folder / "kb", fields=fields, data_dir=place) as kb:
        return [outcome for outcome in outcomes(kb, questions_of(folder)) if outcome.features]


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
    if len(names) < 2:
        parser.error("give two sets or more: it is fitted to all but one, and tried on that one")
    found = {name: judged_of(arguments.folder / name, arguments.data_dir) for name in names}
    judged = [outcome for outcomes_of_set in found.values() for outcome in outcomes_of_set]
    groups = [name for name, outcomes_of_set in found.items() for _ in outcomes_of_set]
    for label, current in SIDES.items():
        features = tuple(current.weights)
        models = cross_validated(judged, groups, features)
        show(f"{label}, fitted to the other sets", judged, models)
        show(f"{label}, as it is", judged, [replace(current, fitted=True)] * len(judged))
        model = fit(judged, features)
        print(f"{label} = {model.intercept:.2f}, {rounded(model)}")
    if arguments.json:
        rows = {name: [asdict(o) for o in of_set] for name, of_set in found.items()}
        arguments.json.write_text(json.dumps(rows, indent=1))


def rounded(model: RelevanceModel) -> dict[str, float]:
    return {name: round(weight, 2) for name, weight in model.weights.items()}


if __name__ == "__main__":
    main()
