"""An evaluation in a notebook."""

from collections.abc import Mapping
from typing import Any

from langchain_lookup_knowledge.first_sight.tables import html_table


class Evaluation(dict[str, Any]):
    """The figures of `evaluate`: a plain dictionary that a notebook shows as a table."""

    def _repr_html_(self) -> str:
        rankings: Mapping[str, Mapping[str, Mapping[str, float]]] = self["rankings"]
        metrics = list(next(iter(rankings.values())))
        rows = [
            (
                name,
                *(
                    f"{found[metric]['mean']:.3f}\n"
                    f"{found[metric]['low']:.2f} to {found[metric]['high']:.2f}"
                    for metric in metrics
                ),
            )
            for name, found in rankings.items()
        ]
        levels = [
            (level, str(row["questions"]), "-" if row["right"] is None else f"{row['right']:.3f}")
            for level, row in self["reliability"].items()
            if row["questions"]
        ]
        questions = self["questions"]["answerable"]
        return html_table(
            f"{questions} answerable questions, with 95 % intervals", ("", *metrics), rows
        ) + html_table(
            "What the relevance levels are worth",
            ("level", "questions", "first match right"),
            levels,
        )
