"""A client of an MCP server in this process, with version 1 or 2 of the MCP SDK."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import mcp
from mcp.shared import exceptions

ERROR = getattr(exceptions, "MCPError", None) or exceptions.McpError
"""What the SDK raises if the server answers with an error."""


class JsonClient:
    """Calls a method of the SDK's client and returns the answer as the protocol's JSON."""

    def __init__(self, session: Any) -> None:
        self._session = session

    def __getattr__(self, name: str) -> Any:
        async def call(*arguments: Any, **options: Any) -> Any:
            answer = await getattr(self._session, name)(*arguments, **options)
            return answer.model_dump(by_alias=True, mode="json", exclude_none=True)

        return call


@asynccontextmanager
async def connected(server: Any) -> AsyncIterator[JsonClient]:
    """Connect a client to a low-level server; on entry, `initialize` has been answered."""
    if hasattr(mcp, "Client"):
        connecting = mcp.Client(server, mode="legacy")
    else:
        from mcp.shared.memory import create_connected_server_and_client_session

        connecting = create_connected_server_and_client_session(server)
    async with connecting as session:
        yield JsonClient(session)
