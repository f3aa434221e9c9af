"""What the inspector and the MCP server have in common: the HTTP protocol, which closes connections
that send no complete request, and the answer of `/healthz`.
"""

import asyncio
from typing import Any, Literal, cast

from starlette.responses import JSONResponse
from uvicorn.protocols.http.h11_impl import H11Protocol

from langchain_lookup_knowledge.health import Health, is_answering

REQUEST_SECONDS = 10.0
"""Maximum seconds for a request to arrive; uvicorn itself waits forever."""


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
