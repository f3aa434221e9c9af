"""Reading takes time in proportion to the size of a text, whatever is repeated in it."""

import runpy
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "linear.py"


@pytest.mark.nightly
def test_each_stage_takes_time_in_proportion_to_the_text():
    if not SCRIPT.exists():
        pytest.skip(f"{SCRIPT} is not part of a source distribution")
    benchmark = runpy.run_path(str(SCRIPT))
    small, large = (dict(benchmark["texts"](size)) for size in (10_000, 40_000))
    for shape, text in large.items():
        before, after = benchmark["stages"](small[shape]), benchmark["stages"](text)
        for stage, seconds in after.items():  # quadratic: 16 times; 20 ms are noise
            assert seconds < 10 * (before[stage] + 0.02), (shape, stage, before[stage], seconds)
