"""The inspector: pages that show what was looked up, how it was found and what is missing, served to this machine or in a file.

Pages are made here, without scripts; everything recorded is text to them. Starlette serves, uvicorn listens, Jinja writes.
"""

import base64
import hashlib
import hmac
import ipaddress
import json
import re
import socket
import threading
import unicodedata
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime
from importlib.resources import files
from itertools import pairwise
from typing import Any, get_args
from urllib.parse import urlencode, urlsplit

import jinja2
import uvicorn
from markupsafe import Markup
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware, RequestResponseEndpoint
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from langchain_lookup_knowledge import charts
from langchain_lookup_knowledge.descriptions import telling_words
from langchain_lookup_knowledge.errors import LookupKnowledgeError
from langchain_lookup_knowledge.history import DETAILED_ROWS, PAGE_ROWS, History, Selection, can_be_compared
from langchain_lookup_knowledge.invocations import storable
from langchain_lookup_knowledge.knowledge_base import KnowledgeBase
from langchain_lookup_knowledge.merging import shorten
from langchain_lookup_knowledge.replay import replay, told
from langchain_lookup_knowledge.types import STEPS, Invocation, Status
from langchain_lookup_knowledge.words import COMMON_WORDS

LAYERS = ("L0+L1", "L1", "L0", "none")
STATUSES = get_args(Status)
COOKIE = "lookup_knowledge_inspector"
MAX_FILTER_CHARS = 1000
STYLE = (files(__package__) / "pages" / "style.css").read_text("utf-8")
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; img-src data:; form-action 'self'; base-uri 'none'; "
    "frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
_MISSING: dict[str, Any] = {
    "l0_hints": {},
    "filter": {"category": None, "reason": "unknown", "relaxed": False},
    "l1": {"status": "unknown", "reason": None, "candidates": 0, "elapsed_ms": 0.0},
    "relevance": {"level": "unknown", "reason": "not recorded"},
    "candidates": [],
    "matches": [],
    "steps": {},
}
"""What stands in for details that were not recorded."""
_JOINERS = "\u200c\u200d"
"""Format characters that scripts and emoji need; any other is shown by its number, since it can turn text around."""


def shown(text: object, limit: int = 200) -> str:
    """Return a text as it can be shown: cut to `limit` characters, with controls and bidi marks as `[U+202E]`."""
    return "".join(map(_visible, shorten(str(text), limit)))


def _visible(character: str) -> str:
    if character in "\t\n\r":
        return " "
    hidden = unicodedata.category(character) in ("Cc", "Cf", "Cs", "Zl", "Zp") and character not in _JOINERS
    return f"[U+{ord(character):04X}]" if hidden else character


def marked(query: str, terms: Sequence[Mapping[str, Any]], limit: int = 2000) -> Markup:
    """Return a query with its terms marked, each mark with the numbers of the terms that stand there."""
    query = shorten(query, limit)
    places = sorted({0, len(query), *(min(place, len(query)) for term in terms for place in term["span"])})
    parts = []
    for start, end in pairwise(places):
        text = shown(query[start:end], limit)
        here = [n for n, term in enumerate(terms, 1) if term["span"][0] <= start and end <= term["span"][1]]
        if not here:
            parts.append(Markup("{}").format(text))
            continue
        kind = "specific" if any(terms[n - 1]["specific"] for n in here) else "common"
        ends = [n for n in here if terms[n - 1]["span"][1] == end]
        note = Markup("<sup>{}</sup>").format(",".join(map(str, ends))) if ends else ""
        parts.append(Markup('<mark class="{}">{}{}</mark>').format(kind, text, note))
    return Markup("").join(parts)


def by_shared_terms(queries: Sequence[tuple[str, int]]) -> list[dict[str, Any]]:
    """Return the queries, each with how often it was asked, in groups that share a word; the rest is the last group.

    The words asked for most often come first; a common word counts less. Each group: its `terms`, all words that its
    queries share; its `queries` with how often each was asked; `times` in all.
    """
    left = {query: (times, dict(telling_words(query))) for query, times in queries}
    groups = []
    while left:
        weights: Counter[str] = Counter()
        spread = Counter(word for _, words in left.values() for word in words)
        for times, words in left.values():
            weights.update({word: times if word in COMMON_WORDS else 3 * times for word in words if spread[word] > 1})
        word = min(weights, key=lambda word: (-weights[word], word), default=None)
        chosen = {query: found for query, found in left.items() if word is None or word in found[1]}
        first, *others = (words for _, words in chosen.values())
        terms = [written for key, written in first.items() if word and all(key in other for other in others)]
        asked = [(query, times) for query, (times, _) in chosen.items()]
        groups.append({"terms": terms, "queries": asked, "times": sum(times for _, times in asked)})
        left = {query: found for query, found in left.items() if query not in chosen}
    return groups


class Inspector:
    """The pages of a history.

    Args:
        history: the records, and the scope that may be seen.
        open_kb: opens the knowledge base when a lookup is first run again; None: there is none. With a scope it stays closed,
            since its entries are not only those of the scope.
        look_kb: opens it to read its entries alone.
    """

    def __init__(
        self,
        history: History,
        open_kb: Callable[[], KnowledgeBase] | None = None,
        look_kb: Callable[[], KnowledgeBase] | None = None,
    ) -> None:
        self.history = history
        self._open_kb = None if history.scope else open_kb
        self._look_kb = None if history.scope else look_kb
        self._kb: KnowledgeBase | None = None
        self._lock = threading.Lock()
        loader = jinja2.PackageLoader(__package__, "pages")
        self._pages = jinja2.Environment(
            loader=loader, autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
        )
        self._pages.filters |= {"shown": shown, "when": _when, "anchor": _anchor, "share": _share}
        self._pages.globals |= {"swatch": charts.swatch, "fills": charts.FILLS, "layers": LAYERS, "statuses": STATUSES}

    def close(self) -> None:
        """Close the knowledge base, if one was opened."""
        if self._kb is not None:
            self._kb.close()

    def render(self, body: str, title: str, **values: Any) -> str:
        """Return a page."""
        return self._pages.get_template("page.html").render(
            {"style": None, "scope": self.history.scope, **values, "body": body, "title": title}
        )

    def overview(self, selection: Selection) -> dict[str, Any]:
        """Return what the overview shows."""
        counts = self.history.overview(selection)
        total = sum(counts["statuses"].values())
        by_layer = charts.stacked("layers", "Lookups by layer", counts["time"], LAYERS)
        by_status = charts.stacked("statuses", "Lookups by status", counts["time"], STATUSES)
        return {"counts": counts, "total": total, "by_layer": by_layer, "by_status": by_status}

    def gaps(self, selection: Selection) -> dict[str, Any]:
        """Return what the page of gaps shows; without a knowledge base nobody knows which entries were never found."""
        found = self.history.found_entries(selection)
        never = None
        if self._look_kb:
            with self._look_kb() as kb:
                never = [entry for entry in kb.entries if entry.entry_id not in found]
        return {
            "groups": by_shared_terms(self.history.weak_queries(selection)),
            "never": never,
            "terms": self.history.common_terms(selection),
            "filters": self.history.filters(selection),
            "detailed_rows": DETAILED_ROWS,
        }

    def lookup(self, invocation: Invocation) -> dict[str, Any]:
        """Return what the picture of one lookup shows; older or shortened rows lack some of it."""
        details: dict[str, Any] = _MISSING | (invocation["retrieval_details"] or {})
        hints = {"terms": [], "entries": [], "domains": []} | details["l0_hints"]
        before = {item["entry_id"]: item for item in details["candidates"]}
        after = {item["entry_id"]: item for item in details["matches"]}
        order = [*after, *(entry_id for entry_id in before if entry_id not in after)]
        name = _anchor(invocation["id"])
        named = [shown(i, 120) for i in before], [shown(i, 120) for i in after]
        steps = {step: details["steps"][step] for step in STEPS if step in details["steps"]}
        return {
            "invocation": invocation,
            "details": details,
            "hints": hints,
            "marked": marked(invocation["query"] or "", hints["terms"]),
            "table": [(entry_id, before.get(entry_id), after.get(entry_id)) for entry_id in order],
            "ranks": [{entry_id: rank for rank, entry_id in enumerate(side, 1)} for side in (before, after)],
            "slopes": charts.slopes(f"{name}-ranks", "Ranks before and after the merge", *named),
            "steps": steps,
            "times": charts.bars(f"{name}-steps", "Time of each step", steps, "ms"),
            "again": None,
            "can_run": self._open_kb is not None and can_be_compared(invocation),
        }

    def again(self, invocation: Invocation) -> list[str]:
        """Run a lookup again on the folder and index as they are now, unrecorded; return a line for each change."""
        if not can_be_compared(invocation):
            raise ValueError(
                "This lookup cannot be run again: it was not answered, L1 failed, or its query is not kept."
            )
        with self._lock:
            kb = self._current_kb()
            if kb is None:
                raise ValueError("There is no knowledge base to ask: start the inspector with one.")
            ((_, changed),) = replay(kb, [invocation])
        return list(told(changed))

    def _current_kb(self) -> KnowledgeBase | None:
        """Return the knowledge base, if any, in step with its folder; a server's collection is for `index` to write."""
        if self._kb is None:
            self._kb = self._open_kb() if self._open_kb else None
        elif self._kb.index is None or self._kb.index.embedded:
            self._kb.sync()
        return self._kb

    def report(self, limit: int) -> str:
        """Return all in one page that needs nothing else, with the newest `limit` lookups one by one."""
        everything = Selection()
        rows = self.history.lookups(everything, limit=limit)
        pictures = [self.lookup(found) for found in self.history.invocations([row["id"] for row in rows])]
        digest = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
        policy = f"default-src 'none'; style-src 'sha256-{digest}'; img-src data:; base-uri 'none'; form-action 'none'"
        overview, gaps = self.overview(everything), self.gaps(everything)
        made = {"rows": rows, "pictures": pictures, "can_run": False, **overview, **gaps}
        return self.render(
            "report.html", "Lookup report", style=STYLE, policy=policy, written=datetime.now(UTC), **made
        )

    def serve(self, host: str, port: int, token: str | None, *, started: Callable[[str], None]) -> None:
        """Serve the pages until interrupted; `started` is called with the address to open.

        Raises:
            ValueError: the host is not this machine's own and there is no token.
            OSError: the address cannot be bound.
        """
        if not token and not _is_loopback(host):
            raise ValueError(f"{host} can be reached from other machines: give a --token, or serve on 127.0.0.1")
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        with socket.create_server((host, port), family=family) as listening:
            place = f"[{host}]" if ":" in host else host
            link = "/login?" + urlencode({"token": token}) if token else "/"
            started(f"http://{place}:{listening.getsockname()[1]}{link}")
            config = uvicorn.Config(self.app(host, token), log_level="critical", access_log=False, server_header=False)
            uvicorn.Server(config).run(sockets=[listening])

    def app(self, host: str = "127.0.0.1", token: str | None = None) -> Starlette:
        """Return the pages as an ASGI application that answers only to names of `host`, and only with the token."""
        return Starlette(
            routes=[
                Route("/", self._overview_page),
                Route("/lookups", self._lookups_page),
                Route("/lookup", self._lookup_page),
                Route("/lookup/again", self._lookup_page),
                Route("/lookup/json", self._json),
                Route("/gaps", self._gaps_page),
                Route("/style.css", _style),
                Route("/login", _login(token)),
            ],
            middleware=[Middleware(BaseHTTPMiddleware, dispatch=_guard(host, token))],
            exception_handlers=dict.fromkeys(
                (HTTPException, LookupKnowledgeError, ValueError, Exception), self._failed
            ),
        )

    def _page(self, body: str, title: str, status: int = 200, **values: Any) -> HTMLResponse:
        return HTMLResponse(self.render(body, title, **values), status)

    def _overview_page(self, request: Request) -> Response:
        selection = _selection(request)
        return self._page("overview.html", "Overview", selection=selection, **self.overview(selection))

    def _gaps_page(self, request: Request) -> Response:
        selection = _selection(request)
        return self._page("gaps.html", "Gaps", selection=selection, **self.gaps(selection))

    def _lookups_page(self, request: Request) -> Response:
        selection = _selection(request)
        before = storable(request.query_params.get("before", ""))
        rows = self.history.lookups(selection, before=before, limit=PAGE_ROWS + 1)
        kept = {key: value for key, value in request.query_params.items() if value and key != "before"}
        older = urlencode({**kept, "before": rows[PAGE_ROWS - 1]["id"]}) if len(rows) > PAGE_ROWS else None
        first = urlencode(kept) if before else None
        return self._page(
            "lookups.html", "Lookups", selection=selection, rows=rows[:PAGE_ROWS], older=older, newest=first
        )

    def _lookup_page(self, request: Request) -> Response:
        invocation = self._invocation(request)
        values = self.lookup(invocation)
        if request.url.path.endswith("/again"):
            values["again"] = self.again(invocation)
        return self._page("lookup.html", "Lookup", **values)

    def _json(self, request: Request) -> Response:
        written = json.dumps(self._invocation(request), indent=2)
        return Response(written, media_type="application/json")

    def _invocation(self, request: Request) -> Invocation:
        found = self.history.invocation(storable(request.query_params.get("id", "")))
        if found is None:
            raise HTTPException(404, "There is no such lookup.")
        return found

    async def _failed(self, request: Request, error: Exception) -> Response:
        status, message = 500, f"unexpected {type(error).__name__}: please report what you opened"
        if isinstance(error, HTTPException):
            status, message = error.status_code, error.detail
        elif isinstance(error, LookupKnowledgeError | ValueError):
            status, message = 503 if isinstance(error, LookupKnowledgeError) else 400, str(error)
        page = await run_in_threadpool(self._page, "message.html", "Not shown", status, message=message)
        page.headers.update(HEADERS)  # what nobody foresaw is answered outside the guard
        return page


def _selection(request: Request) -> Selection:
    given = {name: storable(value.strip()) for name, value in request.query_params.items()}
    texts = {name: given.get(name, "") for name in ("layer", "status", "thread", "text")}
    if any(len(text) > MAX_FILTER_CHARS for text in texts.values()):
        raise HTTPException(400, f"A filter takes at most {MAX_FILTER_CHARS} characters.")
    return Selection(_day(given, "since"), _day(given, "until"), **texts)


def _day(given: Mapping[str, str], name: str) -> date | None:
    try:
        return date.fromisoformat(given[name]) if given.get(name) else None
    except ValueError:
        raise HTTPException(400, f"{name} takes a day such as 2026-01-31.") from None


def _style(request: Request) -> Response:
    return Response(STYLE, media_type="text/css")


def _guard(host: str, token: str | None) -> Callable[[Request, RequestResponseEndpoint], Any]:
    """Return what every request passes: names of other hosts are refused, for a page elsewhere could use them to read ours."""
    names = {host, "localhost", "127.0.0.1", "::1"}

    async def guard(request: Request, call_next: RequestResponseEndpoint) -> Response:
        if _is_loopback(host) and _host_name(request) not in names:
            response = Response("This address is not the inspector's.", 421)
        elif token and request.url.path != "/login" and not _is_allowed(request, token):
            response = Response("Open the link that the inspector printed when it started.", 401)
        else:
            response = await call_next(request)
        response.headers.update(HEADERS)
        return response

    return guard


def _host_name(request: Request) -> str | None:
    try:
        return urlsplit("//" + request.headers.get("host", "")).hostname
    except ValueError:
        return None


def _is_allowed(request: Request, token: str) -> bool:
    bearer = request.headers.get("authorization", "").removeprefix("Bearer ")
    return _same(request.cookies.get(COOKIE, ""), _cookie(token)) or _same(bearer, token)


def _same(given: str, wanted: str) -> bool:
    return hmac.compare_digest(given.encode("utf-8", "replace"), wanted.encode())


def _cookie(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


def _login(token: str | None) -> Callable[[Request], Response]:
    def login(request: Request) -> Response:
        if token and not _same(request.query_params.get("token", ""), token):
            return Response("This link does not open the inspector.", 401)
        response = RedirectResponse("/", 303)
        if token:
            response.set_cookie(COOKIE, _cookie(token), httponly=True, samesite="lax")
        return response

    return login


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _when(moment: str | datetime | None) -> str:
    return str(moment or "–")[:19].replace("T", " ")


def _anchor(invocation_id: str) -> str:
    return "i" + re.sub(r"[^\w-]", "_", invocation_id)


def _share(part: int, whole: int) -> str:
    return f"{part / whole:.0%}".replace("%", "\u202f%") if whole else "–"
