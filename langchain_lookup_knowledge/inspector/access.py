"""Access to the inspector: requests must use this machine's own names and, if set, the token."""

import hashlib
import hmac
import ipaddress
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

from starlette.middleware.base import RequestResponseEndpoint
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

COOKIE = "lookup_knowledge_inspector"
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; img-src data:; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}

HEALTH = "/healthz"
"""The path that says whether the knowledge base answers."""
LOOPBACK = ("127.0.0.1", "localhost", "::1")
"""Host names that only this machine can reach."""


def guard(host: str, token: str | None) -> Callable[[Request, RequestResponseEndpoint], Any]:
    """Return the middleware that checks every request.

    Other host names are refused: with DNS rebinding, a page of another site could read ours.
    `HEALTH` can be read by everyone; there, `request.state.whole` is true if the host name and the
    token are right.
    """
    names = {host, *LOOPBACK}

    async def check(request: Request, call_next: RequestResponseEndpoint) -> Response:
        path = request.scope["path"]  # that of `request.url` may depend on the header Host
        is_read = request.method in ("GET", "HEAD")  # the page about another one tells the name
        if path == HEALTH and is_read:
            request.state.whole = (not is_loopback(host) or _host_name(request) in names) and (
                not token or _is_allowed(request, token)
            )
            response = await call_next(request)
        elif is_loopback(host) and _host_name(request) not in names:
            response = Response("This address is not the inspector's.", 421)
        elif token and not (path == "/login" and is_read) and not _is_allowed(request, token):
            response = Response("Open the link that the inspector printed when it started.", 401)
        else:
            response = await call_next(request)
        response.headers.update(HEADERS)
        return response

    return check


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


def login(token: str | None) -> Callable[[Request], Response]:
    """Return the endpoint that exchanges the token for a cookie."""

    def open_session(request: Request) -> Response:
        if token and not _same(request.query_params.get("token", ""), token):
            return Response("This link does not open the inspector.", 401)
        response = RedirectResponse("/", 303)
        if token:
            response.set_cookie(COOKIE, _cookie(token), httponly=True, samesite="lax")
        return response

    return open_session


@contextmanager
def listening(host: str, port: int, token: str | None) -> Iterator[tuple[socket.socket, str]]:
    """Listen at an address while the block runs; yield the socket, and the URL without a path.

    Raises:
        ValueError: other machines can reach the host, and there is no token.
        OSError: the address cannot be bound.
    """
    if not token and not is_loopback(host):
        raise ValueError(
            f"{host} can be reached from other machines: give a --token, or serve on 127.0.0.1"
        )
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.create_server((host, port), family=family) as opened:
        place = f"[{host}]" if ":" in host else host
        yield opened, f"http://{place}:{opened.getsockname()[1]}"


def is_loopback(host: str) -> bool:
    """Return whether a host can only be reached from this machine."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
