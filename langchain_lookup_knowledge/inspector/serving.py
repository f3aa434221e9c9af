"""What the inspector and the MCP server have in common: the HTTP protocol, which closes connections
that send no complete request, and the answer of `/healthz`.
"""

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any, Literal, TypeVar, cast

from starlette.responses import JSONResponse
from uvicorn.protocols.http.h11_impl import H11Protocol

from langchain_lookup_knowledge.health import Health, is_answering

REQUEST_SECONDS = 10.0
"""Maximum seconds for a request to arrive; uvicorn itself waits forever."""
MAX_PAUSE = 60.0
"""Maximum seconds between two attempts at what failed."""
_Result = TypeVar("_Result")


def health_answer(
    health: Health | None, *, whole: bool, without: Literal["ok", "opening", "degraded"]
) -> JSONResponse:
    """Return the answer of `/healthz`: 200 with the status "ok", or 503 with "degraded" if only a
    part of the knowledge base answers.

    `whole`: whether the caller may see all of `KnowledgeBase.health()`. `without`: the status if
    there is no `health`.
    """
    status = without
    if health is not None:
        status = "ok" if is_answering(health) else "degraded"
    shown = dict(health) if health and whole else {}
    headers = {"Cache-Control": "no-store"}
    return JSONResponse({"status": status, **shown}, 200 if status == "ok" else 503, headers)


class Attempts:
    """Attempts at something that may fail. After a failure, a pause begins, of a second, and twice
    as long after each further failure, up to `MAX_PAUSE`; until it ends, nothing is attempted.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._failure: Exception | None = None
        self._pause = self._until = 0.0

    def at(self, attempt: Callable[[], _Result]) -> _Result:
        """Return the result of an attempt.

        Raises:
            Exception: what the attempt raised, or in a pause what the last one raised.
        """
        with self._lock:
            if self._failure is not None and self._clock() < self._until:
                raise self._failure.with_traceback(None)
            try:
                result = attempt()
            except Exception as error:
                self._pause = min(2 * self._pause or 1.0, MAX_PAUSE)
                self._failure, self._until = error, self._clock() + self._pause
                raise
            self._failure, self._pause = None, 0.0
            return result


class PatientH11Protocol(H11Protocol):
    """uvicorn's protocol, with a time limit for the arrival of each request and its body."""

    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Start the time limit of the first request."""
        super().connection_made(transport)
        self._limit()

    def data_received(self, data: bytes) -> None:
        """Handle data; stop the timer after a request, and restart it for the next one."""
        super().data_received(data)
        self._limit()

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel the timer."""
        self._cancel()
        super().connection_lost(exc)

    def _limit(self) -> None:
        if self._is_answering():
            self._cancel()
        elif self._timer is None:
            self._timer = self.loop.call_later(REQUEST_SECONDS, self._expire)

    def _expire(self) -> None:
        self._timer = None
        if not self._is_answering() and not self.transport.is_closing():
            cast(Any, self.transport).close()

    def _is_answering(self) -> bool:
        """Return whether a whole request has arrived and is being answered."""
        cycle = self.cycle
        return cycle is not None and not cycle.more_body and not cycle.response_complete

    def _cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
