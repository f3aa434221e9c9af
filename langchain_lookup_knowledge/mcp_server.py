"""The lookup as a tool of an MCP server, over stdio or streamable HTTP. The only module that imports the MCP SDK."""

import socket
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal

from mcp.server.mcpserver import Context, MCPServer
from mcp_types import CallToolResult, TextContent, ToolAnnotations
from pydantic import Field

from langchain_lookup_knowledge import __version__
from langchain_lookup_knowledge.knowledge_base import KnowledgeBase
from langchain_lookup_knowledge.records import InvocationRecorder
from langchain_lookup_knowledge.tool import LookupKnowledgeInput, create_lookup_knowledge_tool
from langchain_lookup_knowledge.types import LookupOptions, LookupResult

Query = Annotated[str, Field(description=LookupKnowledgeInput.model_fields["query"].description)]


def create_mcp_server(
    kb: KnowledgeBase,
    *,
    record: InvocationRecorder | Literal["default"] | None = "default",
    options: LookupOptions | None = None,
    scope: Mapping[str, str] | None = None,
) -> MCPServer[Any]:
    """Return a server with the tool `lookup_knowledge`: its text is the content, its artifact the structured content.

    `scope` holds the values of the scope fields of `options`, the same for all clients of this server.
    """
    tool = create_lookup_knowledge_tool(kb, record=record, options=options)
    server: MCPServer[Any] = MCPServer("lookup-knowledge", version=__version__, log_level="WARNING")

    async def lookup_knowledge(query: Query, context: Context[Any]) -> Annotated[CallToolResult, LookupResult]:
        call = {"type": "tool_call", "name": tool.name, "args": {"query": query}, "id": f"mcp-{context.request_id}"}
        message = await tool.ainvoke(call, {"configurable": dict(scope or {})})
        return CallToolResult(content=[TextContent(text=message.content)], structured_content=message.artifact)

    annotations = ToolAnnotations(read_only_hint=True, idempotent_hint=True, open_world_hint=False)
    server.add_tool(lookup_knowledge, description=tool.description, annotations=annotations)
    return server


def serve_http(server: MCPServer[Any], host: str, port: int, *, started: Callable[[str], None]) -> None:
    """Serve at `http://host:port/mcp` until stopped; `started` is called with this address once it can be used.

    Raises:
        OSError: the address cannot be used.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.create_server((host, port), family=family):  # uvicorn would log a traceback and exit
        pass
    place = f"[{host}]" if ":" in host else host
    started(f"http://{place}:{port}/mcp")
    server.run("streamable-http", host=host, port=port, stateless_http=True)
