"""A circuit breaker: L1 that failed again and again is left alone for a while, and lookups do not wait for it."""

import logging
import math
import os
import re
import threading
import time
from datetime import UTC, datetime

from langchain_lookup_knowledge.types import L1Health, L1State, L1Status

logger = logging.getLogger("langchain_lookup_knowledge")

FAILURES = 3
"""Failures in a row that open the circuit."""
PAUSE = 10.0
"""Seconds L1 is left alone before one lookup tries it again."""


class CircuitBreaker:
    """After `failures` failures of L1 in a row, lets one call through every `pause` seconds, until one is answered.

    The lookup that is let through keeps no state: should it never report, the next one goes `pause` seconds later.
    """

    def __init__(self, *, failures: int = FAILURES, pause: float = PAUSE) -> None:
        self._limit = failures
        self._pause = pause
        self._reset()

    def _reset(self) -> None:
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._state: L1State = "untried"
        self._since = time.time()
        self._failures = 0
        self._last_failure: str | None = None
        self._retry_at = 0.0
        self._logged: set[str] = set()

    def _locked(self) -> threading.Lock:
        """Return the lock; in a forked child, where nobody may be left to release it, everything starts anew."""
        if self._process != os.getpid():
            self._reset()
        return self._lock

    def refusal(self) -> str | None:
        """Return why L1 is not to be asked now, or None: then ask, and report with `answered` or `failed`."""
        with self._locked():
            left = self._retry_at - time.monotonic()
            if self._state != "open":
                return None
            if left <= 0:
                self._retry_at = time.monotonic() + self._pause
                return None
            again = f"not asked after {self._failures} failures in a row, tried again in {math.ceil(left)} s"
            return f"{again}; the last failure: {self._last_failure}"

    def answered(self) -> None:
        """Close the circuit."""
        with self._locked():
            if self._state == "open":
                logger.info("L1 answers again")
            self._logged.clear()
            self._failures = 0
            self._turn("ok")

    def failed(self, status: L1Status, reason: str, *, counts: bool) -> None:
        """Take note of a failure, logged once at WARNING. One that does not count is an answer too: it closes the circuit."""
        with self._locked():
            kind = re.sub(r"\d+", "", reason)
            if kind not in self._logged:
                self._logged.add(kind)
                logger.warning("L1 %s: %s", status, reason)
            self._failures = self._failures + 1 if counts else 0
            self._last_failure = reason
            if self._failures < self._limit:
                self._turn("failing")
            elif self._state != "open":
                self._retry_at = time.monotonic() + self._pause
                self._turn("open")

    def _turn(self, state: L1State) -> None:
        if state != self._state:
            self._state, self._since = state, time.time()

    def health(self) -> L1Health:
        """Return how L1 is, without asking it."""
        with self._locked():
            left = max(0.0, self._retry_at - time.monotonic())
            return {
                "l1": self._state,
                "since": datetime.fromtimestamp(self._since, UTC).isoformat(timespec="seconds"),
                "failures": self._failures,
                "last_failure": self._last_failure,
                "retry_in": round(left, 1) if self._state == "open" else None,
            }
