"""The inspector over HTTP: which address shows which page, and who may change something."""

import hmac
import json
import logging
import math
import secrets
from collections.abc import Callable, Mapping
from datetime import date
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlencode

import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from langchain_lookup_knowledge.errors import LookupKnowledgeError, unexpected
from langchain_lookup_knowledge.inspector.access import HEADERS, HEALTH, guard, listening, login
from langchain_lookup_knowledge.inspector.serving import PatientH11Protocol, health_answer
from langchain_lookup_knowledge.records import feedback
from langchain_lookup_knowledge.records.history import PAGE_ROWS
from langchain_lookup_knowledge.records.rows import is_read
from langchain_lookup_knowledge.records.selection import Selection
from langchain_lookup_knowledge.text.storable import storable
from langchain_lookup_knowledge.types import Invocation

if TYPE_CHECKING:
    from langchain_lookup_knowledge.inspector.app import Inspector

logger = logging.getLogger("langchain_lookup_knowledge")

MAX_FILTER_CHARS = 1000
MAX_FORM_BYTES = 20_000
_TEXTS = ("layer", "status", "thread", "text", "level", "l1", "filtered", "judged")


class Web:
    """The pages of an inspector as an ASGI app.

    A form that changes something carries a token that only the pages of this process have, so that
    a page of another site cannot send it.
    """

    def __init__(self, inspector: "Inspector") -> None:
        self._inspector = inspector
        self._form_token = secrets.token_urlsafe(24)

    def serve(
        self, host: str, port: int, token: str | None, *, started: Callable[[str], None]
    ) -> None:
        """Serve the pages until interrupted; see `Inspector.serve`."""
        with listening(host, port, token) as (opened, url):
            link = "/login?" + urlencode({"token": token}) if token else "/"
            started(f"{url}{link}")
            config = uvicorn.Config(
                self.app(host, token),
                http=PatientH11Protocol,
                log_level="critical",
                access_log=False,
                server_header=False,
            )
            uvicorn.Server(config).run(sockets=[opened])

    def app(self, host: str, token: str | None) -> Starlette:
        """Return the ASGI app; requests need a host name of `host` and the token, if any."""
        return Starlette(
            routes=[
                Route("/", self._overview),
                Route("/lookups", self._lookups),
                Route("/lookup", self._lookup),
                Route("/lookup/again", self._lookup),
                Route("/lookup/json", self._json),
                Route("/gaps", self._gaps),
                Route("/try", self._try),
                Route("/feedback", self._feedback, methods=["POST"]),
                Route("/gaps/done", self._done, methods=["POST"]),
                Route("/style.css", self._style),
                Route("/login", login(token)),
                Route(HEALTH, self._health),
            ],
            middleware=[Middleware(BaseHTTPMiddleware, dispatch=guard(host, token))],
            exception_handlers=dict.fromkeys(
                (HTTPException, LookupKnowledgeError, ValueError, Exception), self._failed
            ),
        )

    def _page(self, body: str, title: str, status: int = 200, **values: Any) -> HTMLResponse:
        page = self._inspector.render(body, title, form_token=self._form_token, **values)
        return HTMLResponse(page, status)

    def _overview(self, request: Request) -> Response:
        selection = selection_of(request.query_params)
        values = self._inspector.overview(selection)
        return self._page("overview.html", "Overview", selection=selection, **values)

    def _gaps(self, request: Request) -> Response:
        selection = selection_of(request.query_params)
        values = self._inspector.gaps(selection)
        done = _with_parameters("/gaps/done", request)
        return self._page("gaps.html", "Gaps", selection=selection, done_address=done, **values)

    def _lookups(self, request: Request) -> Response:
        selection = selection_of(request.query_params)
        before = storable(request.query_params.get("before", ""))
        rows = self._inspector.history.lookups(selection, before=before, limit=PAGE_ROWS + 1)
        kept = {
            key: value for key, value in request.query_params.items() if value and key != "before"
        }
        older = (
            urlencode({**kept, "before": rows[PAGE_ROWS - 1]["id"]})
            if len(rows) > PAGE_ROWS
            else None
        )
        return self._page(
            "lookups.html",
            "Reads" if selection.reads else "Lookups",
            selection=selection,
            rows=rows[:PAGE_ROWS],
            older=older,
            newest=urlencode(kept) if before else None,
        )

    def _lookup(self, request: Request) -> Response:
        invocation = self._invocation(request.query_params.get("id", ""))
        if is_read(invocation):
            return self._page("read.html", "Read", **self._inspector.read(invocation))
        values = self._inspector.lookup(invocation)
        if request.url.path.endswith("/again"):
            values["again"] = self._inspector.again(invocation)
        return self._page("lookup.html", "Lookup", **values)

    def _json(self, request: Request) -> Response:
        invocation = self._invocation(request.query_params.get("id", ""))
        return Response(json.dumps(invocation, indent=2), media_type="application/json")

    def _try(self, request: Request) -> Response:
        query = storable(request.query_params.get("query", "").strip())
        values = self._inspector.tried(query, dict(request.query_params))
        return self._page("try.html", "Try it", **values)

    async def _feedback(self, request: Request) -> Response:
        form = await self._form(request)
        invocation_id = storable(form.get("id", ""))

        def give() -> Response:
            self._invocation(invocation_id)  # it must be in the scope of these pages
            if form.get("right") not in ("yes", "no"):
                raise HTTPException(400, "Say whether the answer was right.")
            right, note = form["right"] == "yes", form.get("note", "")
            feedback.give(self._inspector.history.recorder, invocation_id, right=right, note=note)
            return RedirectResponse("/lookup?" + urlencode({"id": invocation_id}), 303)

        return await run_in_threadpool(give)

    async def _done(self, request: Request) -> Response:
        form = await self._form(request)
        keys, done = form.get("keys", "").split(), form.get("done") == "yes"
        selection = selection_of(request.query_params)

        def mark() -> Response:
            self._inspector.mark_gap(keys, selection, done=done)
            return RedirectResponse(_with_parameters("/gaps", request), 303)

        return await run_in_threadpool(mark)

    async def _form(self, request: Request) -> Mapping[str, str]:
        """Return the fields of a form that one of these pages sent.

        Raises:
            HTTPException: the form is too large, or another site may have sent it.
        """
        body = b""
        async for part in request.stream():
            body += part
            if len(body) > MAX_FORM_BYTES:
                raise HTTPException(413, f"A form takes at most {MAX_FORM_BYTES} bytes.")
        form = dict(parse_qsl(body.decode("utf-8", "replace"), keep_blank_values=True))
        site = request.headers.get("sec-fetch-site", "same-origin")
        given = form.get("form_token", "").encode("utf-8", "replace")
        if site != "same-origin" or not hmac.compare_digest(given, self._form_token.encode()):
            raise HTTPException(403, "This form is not of this page: load the page again.")
        return form

    def _invocation(self, invocation_id: str) -> Invocation:
        found = self._inspector.history.invocation(storable(invocation_id))
        if found is None:
            raise HTTPException(404, "There is no such lookup.")
        return found

    def _health(self, request: Request) -> Response:
        whole = request.state.whole
        try:
            return health_answer(self._inspector.health(), whole=whole, without="ok")
        except Exception as error:  # a page about it would tell its name to everybody
            logger.debug("the knowledge base cannot be opened", exc_info=True)
            known = isinstance(error, LookupKnowledgeError | ValueError)
            why = str(error) if known else unexpected(error)
            logger.warning("the knowledge base cannot be opened: %s", why)
            return health_answer(None, whole=whole, without="degraded")

    def _style(self, request: Request) -> Response:
        return Response(self._inspector.style, media_type="text/css")

    async def _failed(self, request: Request, error: Exception) -> Response:
        if isinstance(error, HTTPException):
            status, message = error.status_code, error.detail
        elif isinstance(error, LookupKnowledgeError | ValueError):
            status, message = 503 if isinstance(error, LookupKnowledgeError) else 400, str(error)
        else:
            logger.debug("a page of the inspector failed", exc_info=error)
            kind = type(error).__name__
            status, message = 500, f"Unexpected {kind}: start the inspector with --traceback."
        page = await run_in_threadpool(
            self._page, "message.html", "Not shown", status, message=message
        )
        page.headers.update(HEADERS)  # responses to unexpected errors bypass the guard
        return page


def _with_parameters(path: str, request: Request) -> str:
    """Return an address with the parameters of a request."""
    given = urlencode({key: value for key, value in request.query_params.items() if value})
    return f"{path}?{given}" if given else path


def selection_of(parameters: Mapping[str, str]) -> Selection:
    """Return the selection that the parameters of an address describe.

    Raises:
        HTTPException: a value is too long, or no day or number.
    """
    given = {name: storable(value.strip()) for name, value in parameters.items()}
    texts = {name: given.get(name, "") for name in _TEXTS}
    if any(len(text) > MAX_FILTER_CHARS for text in texts.values()):
        raise HTTPException(400, f"A filter takes at most {MAX_FILTER_CHARS} characters.")
    since, until = _day(given, "since"), _day(given, "until")
    reads = given.get("calls") == "reads"
    return Selection(since, until, **texts, slow=_slow(given), reads=reads)


def _day(given: Mapping[str, str], name: str) -> date | None:
    try:
        return date.fromisoformat(given[name]) if given.get(name) else None
    except ValueError:
        raise HTTPException(400, f"{name} takes a day such as 2026-01-31.") from None


def _slow(given: Mapping[str, str]) -> float | None:
    try:
        found = float(given["slow"]) if given.get("slow") else None
    except ValueError:
        found = math.nan
    if found is not None and not math.isfinite(found):
        raise HTTPException(400, "slow takes a number of milliseconds.")
    return found
