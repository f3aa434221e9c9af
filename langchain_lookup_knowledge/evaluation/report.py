"""The figures of an evaluation as a plot, and as tables for a terminal."""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from langchain_lookup_knowledge.errors import install_hint
from langchain_lookup_knowledge.evaluation.measuring import METRICS

HATCHES = ("", "//", "..", "xx")


def plot(evaluation: Mapping[str, Any], path: Path) -> None:
    """Plot the rankings, with their intervals, and the reliability of the relevance levels.

    The file is a PNG, SVG or PDF.

    Raises:
        ValueError: matplotlib is not installed, or does not support the file type.
    """
    try:
        from matplotlib.figure import Figure  # noqa: PLC0415
    except ImportError as error:
        raise ValueError(f"a plot needs matplotlib: {install_hint('plot')}") from error
    figure = Figure(figsize=(11, 4.5), layout="constrained")
    ranking, claims = figure.subplots(1, 2, width_ratios=[2, 1])
    width = 0.8 / len(evaluation["rankings"])
    for row, (name, metrics) in enumerate(evaluation["rankings"].items()):
        places = [column + row * width for column in range(len(METRICS))]
        means = [metric["mean"] for metric in metrics.values()]
        spread = [
            [m["mean"] - m["low"] for m in metrics.values()],
            [m["high"] - m["mean"] for m in metrics.values()],
        ]
        ranking.bar(
            places,
            means,
            width,
            yerr=spread,
            capsize=2,
            label=name,
            hatch=HATCHES[row % len(HATCHES)],
            edgecolor="white",
        )
    ranking.set_xticks([column + 0.4 - width / 2 for column in range(len(METRICS))], METRICS)
    ranking.set_ylim(0, 1)
    ranking.set_title(
        f"{evaluation['questions']['answerable']} answerable questions, 95 % intervals", loc="left"
    )
    ranking.legend(
        ncols=4, loc="upper center", bbox_to_anchor=(0.5, -0.08), fontsize="small", frameon=False
    )
    _plot_claims(evaluation, claims)
    for axes in (ranking, claims):
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=150)


def _plot_claims(evaluation: Mapping[str, Any], axes: Any) -> None:
    """Plot for each relevance level how often the first match is right, and how often it shows the
    evidence.
    """
    levels = {name: row for name, row in evaluation["reliability"].items() if row["questions"]}
    shown = evaluation["evidence"]["shown"]
    bars = [("right", "first match right"), ("evidence", "evidence in the first match")]
    for row, (key, label) in enumerate(bars[: 1 if shown is None else 2]):
        places = [column + row * 0.4 for column in range(len(levels))]
        shares = [found[key] or 0.0 for found in levels.values()]
        axes.bar(places, shares, 0.4, label=label, hatch=HATCHES[row], edgecolor="white")
    names = [f"{name}\n{found['questions']}" for name, found in levels.items()]
    middle = 0.0 if shown is None else 0.2
    axes.set_xticks([column + middle for column in range(len(levels))], names)
    axes.set_ylim(0, 1)
    axes.set_title(
        "relevance claimed" + ("" if shown is None else f"; evidence shown {shown:.2f}"), loc="left"
    )
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.12), fontsize="small", frameon=False)


def table(evaluation: Mapping[str, Any]) -> Iterable[str]:
    """Yield the lines of an evaluation for a terminal."""
    questions = evaluation["questions"]
    yield (
        f"{questions['answerable']} answerable questions, "
        f"{questions['unanswerable']} without an answer"
    )
    yield f"{'':<12}" + "".join(f"{name:>22}" for name in METRICS)
    for name, metrics in evaluation["rankings"].items():
        cells = (f"{m['mean']:.3f} [{m['low']:.2f}, {m['high']:.2f}]" for m in metrics.values())
        yield f"{name:<12}" + "".join(f"{cell:>22}" for cell in cells)
    for part in ("hints", "filter"):
        yield f"{part}: " + ", ".join(
            f"{name.replace('_', ' ')} {count}" for name, count in evaluation[part].items()
        )
    evidence = evaluation["evidence"]
    if evidence["questions"]:
        yield (
            f"evidence, {evidence['questions']} questions: {evidence['shown']:.3f} shown, "
            f"{evidence['first']:.3f} in the first match"
        )
    auc = evaluation["auc"]
    yield "relevance claimed" + ("" if auc is None else f", area under the ROC curve {auc:.3f}")
    yield from reliability_table(evaluation["reliability"])
    if evaluation["unknown_entries"]:
        yield "not in the knowledge base: " + ", ".join(evaluation["unknown_entries"])


def reliability_table(rows: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """Yield the lines of a reliability table for a terminal; the level "none" is listed only if it
    was claimed.
    """
    names = ("questions", "first right", "evidence first", "without answer")
    yield f"{'':<12}" + "".join(f"{name:>16}" for name in names)
    for level, row in rows.items():
        if level != "none" or row["questions"]:
            shares = (
                "-" if row[key] is None else f"{row[key]:.3f}" for key in ("right", "evidence")
            )
            cells = (row["questions"], *shares, row["without_answer"])
            yield f"{level:<12}" + "".join(f"{cell:>16}" for cell in cells)
