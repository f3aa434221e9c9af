"""Calling an embedding API again after a temporary failure, such as a rate limit."""

import logging
import random
import time
from collections.abc import Callable
from email.utils import parsedate_to_datetime
from typing import Any, TypeVar

logger = logging.getLogger("langchain_lookup_knowledge")

T = TypeVar("T")

MAX_TRIES = 6
FIRST_PAUSE = 1.0
"""Seconds before the second try; each further pause is twice as long."""
MAX_PAUSE = 30.0
"""Maximum seconds before the next try, even if the server asks for more."""
_PASSING = frozenset((408, 409, 425, 429, 500, 502, 503, 504, 529))
"""HTTP statuses of temporary failures."""
_PASSING_NAMES = ("timeout", "connecterror", "connectionerror", "ratelimit", "unavailable")


def retried(call: Callable[[], T], sleep: Callable[[float], None] = time.sleep) -> T:
    """Return the result of a call, tried up to `MAX_TRIES` times as long as its failures are
    temporary. The server may say how long to wait before the next try.
    """
    for number in range(1, MAX_TRIES):
        try:
            return call()
        except Exception as error:
            if not passes(error):
                raise
            pause = min(MAX_PAUSE, _asked_pause(error) or FIRST_PAUSE * 2 ** (number - 1))
            logger.info("embedding failed with %s: next try in %.0f s", type(error).__name__, pause)
        sleep(pause * random.uniform(1, 1.2))  # noqa: S311  (so that callers do not return at once)
    return call()


def passes(error: Exception) -> bool:
    """Return whether a failure is temporary: a rate limit, a busy server, or no connection."""
    status = _status(error)
    if status is not None:
        return status in _PASSING
    names = " ".join(kind.__name__.lower() for kind in type(error).__mro__)
    return isinstance(error, TimeoutError | ConnectionError) or any(
        name in names for name in _PASSING_NAMES
    )


def _status(error: Exception) -> int | None:
    response = getattr(error, "response", None)
    found = (getattr(source, name, None) for source in (error, response) for name in _STATUS_NAMES)
    return next((status for status in found if type(status) is int and status >= 100), None)


_STATUS_NAMES = ("status_code", "http_status", "status", "code")


def _asked_pause(error: Exception) -> float | None:
    """Return the seconds that the server asks to wait, or None."""
    headers: Any = getattr(getattr(error, "response", None), "headers", None)
    asked = headers.get("retry-after") if hasattr(headers, "get") else None
    if not isinstance(asked, str):
        return None
    try:
        return max(0.0, float(asked))
    except ValueError:
        pass
    try:
        return max(0.0, parsedate_to_datetime(asked).timestamp() - time.time())
    except ValueError:
        return None
