"""An MCP server over stdio or streamable HTTP, with version 1 or 2 of the MCP SDK.

No other module imports the SDK. Both versions have the same low-level server, but they
differ in how handlers are registered and how a handler gets its request.
"""

import asyncio
import secrets
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from mcp import types
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp.shared import exceptions as sdk_exceptions

from langchain_lookup_knowledge import __version__
from langchain_lookup_knowledge.integrations.mcp_answers import (
    KnowledgeServer,
    Progress,
    ProtocolError,
    ServerSettings,
)

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from langchain_lookup_knowledge.knowledge_base import KnowledgeBase

Answer = Callable[[Mapping[str, Any], str | int, Progress], Awaitable[dict[str, Any]]]
"""Answers a request, given its parameters, its id, and a function that reports progress."""
# Any, because the types differ between the versions
_Server: Any = Server
_types: Any = types
_errors: Any = sdk_exceptions


def create_mcp_server(kb: "KnowledgeBase", **settings: Any) -> "Server[Any]":
    """Return a server for an open knowledge base; `settings` are those of `ServerSettings`."""
    return sdk_server(KnowledgeServer(kb, ServerSettings(**settings)))


def sdk_server(knowledge: KnowledgeServer) -> "Server[Any]":
    """Return the SDK's low-level server for a knowledge base."""
    is_v1 = not hasattr(_Server, "add_request_handler")
    title = {} if is_v1 else {"title": f"Knowledge base {knowledge.title}"}
    server: Server[Any] = _Server(
        knowledge.name, version=__version__, instructions=knowledge.instructions, **title
    )
    register = _register_v1 if is_v1 else _register_v2
    register(server, "tools/list", "ListTools", _plain(knowledge.list_tools))
    register(server, "tools/call", "CallTool", knowledge.call_tool)
    register(server, "resources/list", "ListResources", _plain(knowledge.list_resources))
    register(
        server,
        "resources/templates/list",
        "ListResourceTemplates",
        _plain(knowledge.list_resource_templates),
    )
    register(server, "resources/read", "ReadResource", _plain(knowledge.read_resource))
    return server


def _plain(answer: Callable[[Mapping[str, Any]], Awaitable[dict[str, Any]]]) -> Answer:
    async def plain(params: Mapping[str, Any], _: str | int, __: Progress) -> dict[str, Any]:
        return await answer(params)

    return plain


def _register_v1(server: Any, _: str, kind: str, answer: Answer) -> None:
    async def handle(request: Any) -> Any:
        context = server.request_context
        session, token = context.session, getattr(context.meta, "progressToken", None)

        async def progress(done: float, total: float, message: str) -> None:
            if token is not None:
                await session.send_progress_notification(
                    token, done, total, message, related_request_id=str(context.request_id)
                )

        try:
            found = await answer(_dumped(request.params), context.request_id, progress)
        except ProtocolError as error:
            data = _types.ErrorData(code=error.code, message=str(error))
            raise _errors.McpError(data) from error
        return _types.ServerResult(_result(kind, found))

    server.request_handlers[getattr(_types, f"{kind}Request")] = handle


def _register_v2(server: Any, method: str, kind: str, answer: Answer) -> None:
    async def handle(context: Any, params: Any) -> Any:
        try:
            found = await answer(
                _dumped(params), context.request_id, context.session.report_progress
            )
        except ProtocolError as error:
            raise _errors.MCPError(error.code, str(error)) from error
        return _result(kind, found)

    params_type = getattr(_types, f"{kind}RequestParams", _types.PaginatedRequestParams)
    server.add_request_handler(method, params_type, handle)


def _dumped(params: Any) -> dict[str, Any]:
    return params.model_dump(by_alias=True, mode="json", exclude_none=True) if params else {}


def _result(kind: str, found: dict[str, Any]) -> Any:
    return getattr(_types, f"{kind}Result").model_validate(found)


def serve_stdio(knowledge: KnowledgeServer) -> None:
    """Serve over standard input and output until the client closes them."""
    server = sdk_server(knowledge)

    async def serve() -> None:
        async with stdio_server() as (read, write):
            await server.run(read, write, server.create_initialization_options())

    asyncio.run(serve())


def serve_http(
    knowledge: KnowledgeServer,
    host: str,
    port: int,
    token: str | None = None,
    *,
    allowed_hosts: Sequence[str] = (),
    started: Callable[[str], None],
) -> None:
    """Serve at `http://host:port/mcp` until stopped; first, call `started` with this address.

    `allowed_hosts`: as for `http_app`.

    Raises:
        ValueError: other machines can reach the host, and there is no token.
        OSError: the address cannot be bound.
    """
    import uvicorn  # noqa: PLC0415

    from langchain_lookup_knowledge.inspector.access import listening  # noqa: PLC0415
    from langchain_lookup_knowledge.inspector.serving import PatientH11Protocol  # noqa: PLC0415

    with listening(host, port, token) as (opened, url):
        started(f"{url}/mcp")
        config = uvicorn.Config(
            http_app(knowledge, host, token, allowed_hosts),
            http=PatientH11Protocol,
            log_level="critical",
            access_log=False,
            server_header=False,
        )
        uvicorn.Server(config).run(sockets=[opened])


def http_app(
    knowledge: KnowledgeServer,
    host: str = "127.0.0.1",
    token: str | None = None,
    allowed_hosts: Sequence[str] = (),
) -> Any:
    """Return the ASGI application with the endpoints `/mcp` and `/healthz`."""
    from mcp.server.streamable_http_manager import StreamableHTTPSessionManager  # noqa: PLC0415
    from mcp.server.transport_security import TransportSecuritySettings  # noqa: PLC0415
    from starlette.applications import Starlette  # noqa: PLC0415
    from starlette.concurrency import run_in_threadpool  # noqa: PLC0415
    from starlette.routing import Route  # noqa: PLC0415

    from langchain_lookup_knowledge.inspector.access import LOOPBACK, is_loopback  # noqa: PLC0415
    from langchain_lookup_knowledge.inspector.serving import health_answer  # noqa: PLC0415

    machine = () if is_loopback(host) else (socket.gethostname(),)  # `getfqdn` waits for DNS
    names = frozenset(name.casefold() for name in (host, *LOOPBACK, *machine, *allowed_hosts))
    security = TransportSecuritySettings(enable_dns_rebinding_protection=False)  # see `_Endpoint`
    manager = StreamableHTTPSessionManager(
        sdk_server(knowledge), stateless=True, security_settings=security
    )

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        async with manager.run():
            yield

    endpoint = _Endpoint(manager.handle_request, token, names)

    async def healthz(request: "Request") -> "Response":
        whole = endpoint.refusal(request.scope) is None
        health = await run_in_threadpool(knowledge.health)
        return health_answer(health, whole=whole, without="opening")

    return Starlette(
        routes=[Route("/mcp", endpoint), Route("/healthz", healthz)], lifespan=lifespan
    )


class _Endpoint:
    """The ASGI application of `/mcp`: checks host, origin and token, and passes the request on."""

    def __init__(
        self, handle: Callable[..., Awaitable[None]], token: str | None, names: Collection[str]
    ) -> None:
        self._handle = handle
        self._token = token
        self._names = names

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        refused = self.refusal(scope)
        if refused is None:
            await self._handle(scope, receive, send)
        else:
            await refused(scope, receive, send)

    def refusal(self, scope: Any) -> "Response | None":
        """Return the answer to a request that is refused; None if it is allowed."""
        from starlette.responses import PlainTextResponse  # noqa: PLC0415

        headers = dict(scope["headers"])
        reached = str((scope.get("server") or ("",))[0]).casefold()
        known = {*self._names, reached}
        origin = headers.get(b"origin")
        if _name(b"//" + headers.get(b"host", b"")) not in known:
            text = "This is not a name of this server: allow it with --allowed-host NAME."
            return PlainTextResponse(text, 421)
        if origin is not None and _name(origin) not in known:
            text = "Pages of this origin may not ask: allow it with --allowed-host NAME."
            return PlainTextResponse(text, 403)
        if self._token and not bears(scope["headers"], self._token):
            text = "Send the token as Authorization: Bearer TOKEN."
            return PlainTextResponse(text, 401, {"WWW-Authenticate": "Bearer"})
        return None


def _name(address: bytes) -> str | None:
    """Return the host name in a URL, in lower case; None if the URL has none."""
    try:
        return urlsplit(address.decode("latin-1")).hostname
    except ValueError:
        return None


def bears(headers: list[tuple[bytes, bytes]], token: str) -> bool:
    """Return whether the headers of a request contain `Authorization: Bearer TOKEN`."""
    given = dict(headers).get(b"authorization", b"")
    scheme, _, credentials = given.partition(b" ")
    return scheme.lower() == b"bearer" and secrets.compare_digest(
        credentials.strip(), token.encode()
    )
