"""The similarities from which a result may claim medium and high relevance, fitted for the default model.

`python benchmarks/thresholds.py KB QUERIES.jsonl [KB QUERIES.jsonl ...] [--category-from-path N] [--data-dirs DIR ...]`

The best similarity among the five matches shown is noted for each question. Those of questions without an answer, and of those
whose right entries are not shown, are what a claim must not be made of. They are taken for a normal distribution: one in five
of them may claim medium (its 80th percentile), one in fifty high (its 98th). Prints both, and how the questions fare.
"""

import argparse
from itertools import zip_longest
from pathlib import Path
from statistics import NormalDist

from langchain_lookup_knowledge import FrontmatterFields, KnowledgeBase
from langchain_lookup_knowledge.evaluation import read_questions
from langchain_lookup_knowledge.filters import best_similarity

SHOWN = 5
MEDIUM_CLAIMS, HIGH_CLAIMS = 1 / 5, 1 / 50


def similarities(kb, questions):
    """Return the best similarities where a right entry is shown, and where none is or can be."""
    right, wrong = [], []
    for question in questions:
        if kb.understands(question.query):
            (found,) = kb.retrieve(question.query, [None], limit=SHOWN)
            shown = {candidate["entry_id"] for candidate in found.candidates}
            (wrong if question.relevant.isdisjoint(shown) else right).append(best_similarity(found.candidates))
    return right, wrong


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("bases", nargs="+", metavar="KB QUERIES.jsonl")
    parser.add_argument("--category-from-path", type=int, default=0)
    parser.add_argument("--data-dirs", nargs="*", default=[])
    arguments = parser.parse_args()
    fields = FrontmatterFields(category_from_path=arguments.category_from_path)
    right, wrong = [], []
    pairs = [arguments.bases[i : i + 2] for i in range(0, len(arguments.bases), 2)]
    for (folder, questions), data_dir in zip_longest(pairs, arguments.data_dirs):
        with KnowledgeBase.open(folder, fields=fields, data_dir=data_dir) as kb:
            found = similarities(kb, read_questions(Path(questions)))
        right += found[0]
        wrong += found[1]
    spread = NormalDist.from_samples(wrong)
    print(
        f"{len(right)} questions with a right entry shown, {len(wrong)} without: {spread.mean:.3f} ± {spread.stdev:.3f}"
    )
    for level, share in (("medium", MEDIUM_CLAIMS), ("high", HIGH_CLAIMS)):
        least = spread.inv_cdf(1 - share)
        claims = [f"{sum(value >= least for value in values)} of {len(values)}" for values in (right, wrong)]
        print(f"{level:<7} {least:.2f}   claimed by {claims[0]} with, {claims[1]} without")


if __name__ == "__main__":
    main()
