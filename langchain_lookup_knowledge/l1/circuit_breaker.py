"""A circuit breaker: after repeated failures, L1 (vector search) is not called for a while, so that
lookups do not wait for it.
"""

import logging
import math
import re
import threading
import time
from datetime import UTC, datetime
from typing import Literal

from langchain_lookup_knowledge import forks
from langchain_lookup_knowledge.health import L1Health, L1State
from langchain_lookup_knowledge.types import L1Status

logger = logging.getLogger("langchain_lookup_knowledge")

FAILURES = 3
"""Failures in a row that open the circuit."""
PAUSE = 10.0
"""Seconds without calls to L1 before one lookup tries it again."""
MAX_ASKED_PAUSE = 300.0
"""Maximum seconds without calls to L1 because a server asks for them."""
MAX_LIMITS = 100
"""Maximum number of circuits, one per time limit; the oldest is dropped first."""

State = Literal["closed", "open", "half-open"]


class CircuitBreaker:
    """After `failures` failures of L1 in a row, lets one call through every `pause` seconds until a
    call succeeds.

    `closed`: calls go through. `open`: calls are refused. `half-open`: one trial call is running;
    if it never reports, the next trial follows `pause` seconds later. `name`: the name of the
    called service, for the log.
    """

    def __init__(self, *, failures: int = FAILURES, pause: float = PAUSE, name: str = "L1") -> None:
        self._name = name
        self._limit = failures
        self._by_seconds: dict[float, CircuitBreaker] = {}
        self._pause = pause
        self.after_fork()
        forks.register(self)

    def after_fork(self) -> None:
        """Start over in a forked child, where the thread that holds the lock may not exist."""
        self._lock = threading.Lock()
        self._by_seconds.clear()
        self._state: State = "closed"
        self._health: L1State = "untried"
        self._since = time.time()
        self._failures = 0  # in a row
        self._slow = 0  # of these, the newest in a row that count for the limit
        self._last_failure: str | None = None
        self._retry_at = 0.0
        self._is_asked = False
        self._logged: set[str] = set()

    def within(self, seconds: float) -> "CircuitBreaker":
        """Return the circuit breaker for calls with this time limit.

        A call with a short time limit may fail where a longer call succeeds, so each time limit has
        its own circuit.
        """
        with self._lock:
            found = self._by_seconds.get(seconds)
            if found is None:
                if len(self._by_seconds) >= MAX_LIMITS:
                    del self._by_seconds[next(iter(self._by_seconds))]
                found = CircuitBreaker(failures=self._limit, pause=self._pause, name=self._name)
                self._by_seconds[seconds] = found
            return found

    def allow_request(self) -> bool:
        """Return whether L1 may be called now; report the outcome of the call with `record_success`
        or `record_failure`.
        """
        with self._lock:
            if self._state == "closed":
                return True
            if self._retry_at > time.monotonic():
                return False
            self._state = "half-open"
            self._retry_at = time.monotonic() + self._pause
            return True

    def refusal(self) -> str:
        """Return why L1 is not called."""
        with self._lock:
            left = max(1, math.ceil(self._retry_at - time.monotonic()))
            failed = f"after {self._failures} failures in a row"
            why = "because the server asks to wait" if self._is_asked else failed
            again = f"not asked {why}, tried again in {left} s"
            return f"{again}; the last failure: {self._last_failure}"

    def record_success(self) -> None:
        """Close the circuit."""
        with self._lock:
            if self._state != "closed":
                logger.info("%s answers again", self._name)
            self._logged.clear()
            self._failures = self._slow = 0
            self._is_asked = False
            self._turn("closed", "ok")

    def record_failure(
        self, status: L1Status, reason: str, *, counts: bool, asked_pause: float = 0.0
    ) -> None:
        """Record a failure, logged once at WARNING.

        A failure that does not count (a quick refusal) closes the circuit like a success. A server
        that asks for a pause opens the circuit at once, for that many seconds, at most
        `MAX_ASKED_PAUSE`.
        """
        with self._lock:
            kind = re.sub(r"\d+", "", reason)
            if kind not in self._logged:
                self._logged.add(kind)
                logger.warning("%s %s: %s", self._name, status, reason)
            self._failures += 1
            self._slow = self._slow + 1 if counts else 0
            self._last_failure = reason
            self._is_asked = asked_pause > 0
            if self._is_asked:
                self._retry_at = time.monotonic() + min(asked_pause, MAX_ASKED_PAUSE)
                self._turn("open", "paused")
            elif self._slow < self._limit:
                self._turn("closed", "failing")
            else:
                if self._state == "closed":
                    self._retry_at = time.monotonic() + self._pause
                self._turn("open", "paused")

    def _turn(self, state: State, health: L1State) -> None:
        self._state = state
        if health != self._health:
            self._health, self._since = health, time.time()

    def health(self) -> L1Health:
        """Return the state of L1, without calling it.

        If there are several circuits, the one with the longest time limit counts, because its
        failures are not caused by a short time limit.
        """
        with self._lock:
            patient = max(self._by_seconds, default=None)
            most_patient = None if patient is None else self._by_seconds[patient]
        if most_patient is not None:
            return most_patient.health()
        with self._lock:
            left = max(0.0, self._retry_at - time.monotonic())
            return {
                "l1": self._health,
                "since": datetime.fromtimestamp(self._since, UTC).isoformat(timespec="seconds"),
                "failures": self._failures,
                "last_failure": self._last_failure,
                "retry_in": round(left, 1) if self._health == "paused" else None,
            }
