"""The options about a Qdrant server, and the line about its collection."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from langchain_lookup_knowledge.integrations.command_line.options import port_number

if TYPE_CHECKING:
    from langchain_lookup_knowledge.l1.stores.vector_index import VectorIndex


def add_server(command: argparse.ArgumentParser) -> None:
    """Add the options about a server; `server_options` reads those besides the URL."""
    command.add_argument(
        "--url",
        help="a Qdrant server instead of the embedded index; the key is read from QDRANT_API_KEY",
    )
    command.add_argument(
        "--collection", help="collection on the server (default: the name of the folder)"
    )
    command.add_argument("--grpc", action="store_true", help="talk to the server over gRPC")
    command.add_argument(
        "--grpc-port",
        metavar="PORT",
        type=port_number,
        help="gRPC port of the server (default 6334, if the port of the URL is 6333)",
    )
    command.add_argument(
        "--ca", metavar="FILE", help="certificate of the CA to trust for the server, in PEM"
    )


def server_options(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the options about a server, as `QdrantIndex` takes them."""
    port, certificates = getattr(arguments, "grpc_port", None), getattr(arguments, "ca", None)
    found: dict[str, Any] = {}
    if getattr(arguments, "grpc", False) or port is not None:
        found["prefer_grpc"] = True
    if port is not None:
        found["grpc_port"] = port
    if certificates is not None:
        found["verify"] = str(Path(certificates).absolute())
    return found


def live_line(index: "VectorIndex | None") -> str | None:
    """Return which collection is live under the name of an index on a server, if it tells."""
    from langchain_lookup_knowledge.l1.stores.qdrant.index import QdrantIndex  # noqa: PLC0415

    if isinstance(index, QdrantIndex) and (live := index.generation()):
        return f"collection {index.collection!r} is now {live!r}"
    return None
