"""How the time of a call grows with the size of what it is given."""

import time
from collections.abc import Callable
from typing import Any

NOISE = 0.02
"""Seconds of the processor that say nothing."""


def grows_with_its_input(call: Callable[[Any], object], small: Any, large: Any) -> bool:
    """Return whether a call with `large`, four times `small`, takes less than ten times as long;
    one that takes quadratic time takes sixteen times as long.
    """
    seconds = []
    for given in (small, large):
        started = time.process_time()
        call(given)
        seconds.append(time.process_time() - started)
    return seconds[1] < 10 * (seconds[0] + NOISE)
