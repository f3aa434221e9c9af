"""The lines of `check`: what was found, grouped by the kind of finding, with examples."""

import re
from collections.abc import Iterable, Iterator, Sequence

from langchain_lookup_knowledge.text.wording import counted
from langchain_lookup_knowledge.types import LeftOut, Problem

EXAMPLES = 3
"""Number of examples of a finding."""

_VARIABLE = re.compile(r"'[^']*'|\"[^\"]*\"|\([^()]*\)|\d+(?:[.,]\d+)*|\S*[/.]\w\S*")


def check_lines(
    problems: Sequence[Problem],
    suggestions: Sequence[Problem],
    left_out: Iterable[LeftOut],
    verbose: bool,
) -> Iterator[str]:
    """Yield one line per finding, if `verbose` is set.

    Otherwise, more than `EXAMPLES` findings of one kind are shown as a number with examples.
    """
    for found in (problems, suggestions):
        kinds: dict[str, list[Problem]] = {}
        for problem in found:
            kinds.setdefault(_VARIABLE.sub("\u2026", problem.message), []).append(problem)
        for kind, alike in kinds.items():
            if verbose or len(alike) <= EXAMPLES:
                yield from map(str, alike)
            else:
                yield from _summary(kind, alike)
    for left in left_out:
        yield f"left out: {_amount(left)} ({left.reason}), such as {left.example}"


def _summary(kind: str, alike: Sequence[Problem]) -> Iterator[str]:
    is_same = len({problem.message for problem in alike}) == 1
    yield f"{len(alike)} times: {alike[0].message if is_same else kind}"
    for problem in alike[:EXAMPLES]:
        place = str(problem).removesuffix(f": {problem.message}")
        yield f"  {place if is_same else problem}"
    yield f"  and {len(alike) - EXAMPLES} more: --verbose lists them"


def _amount(left: LeftOut) -> str:
    files = counted(left.files, "file", "files") if left.files else ""
    folders = counted(left.folders, "folder", "folders") if left.folders else ""
    return " and ".join(filter(None, (files, folders)))
