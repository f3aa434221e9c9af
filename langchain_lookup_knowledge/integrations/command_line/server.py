"""The options about a Qdrant server, and the line about its collection."""

import argparse
import os
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from langchain_lookup_knowledge.integrations.command_line.options import port_number
from langchain_lookup_knowledge.text.wording import counted

if TYPE_CHECKING:
    from langchain_lookup_knowledge.knowledge_base import KnowledgeBase
    from langchain_lookup_knowledge.l1.stores.qdrant.index import QdrantIndex
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


def add_parts(command: argparse.ArgumentParser) -> None:
    """Add the options of a build that several machines share."""
    command.add_argument(
        "--shard",
        metavar="I/N",
        type=_part,
        help="write part I of N of the entries into --generation, beside the live collection",
    )
    command.add_argument(
        "--generation", metavar="NAME", help="name of the build that --shard writes a part of"
    )
    command.add_argument(
        "--finish",
        metavar="NAME",
        help="check that the generation NAME holds all entries, and make it the live collection",
    )


def _part(text: str) -> tuple[int, int]:
    part, _, parts = text.partition("/")
    if not (part.isdecimal() and parts.isdecimal() and 1 <= int(part) <= int(parts)):
        raise argparse.ArgumentTypeError(f"{text!r} is no part: give 1/4 to 4/4, for four machines")
    return int(part), int(parts)


def check_parts(arguments: argparse.Namespace) -> None:
    """Check that the options of a shared build are given together, and without options that they
    exclude.

    Raises:
        ValueError: they are not.
    """
    shard, finish = arguments.shard, arguments.finish
    if bool(shard) != bool(arguments.generation):
        raise ValueError("--shard I/N and --generation NAME belong together: give both")
    if not (shard or finish):
        return
    given = "--shard" if shard else "--finish"
    if not arguments.url:
        raise ValueError(f"{given} is for a collection on a server: give --url too")
    excluded = {"finish": shard and finish, "rebuild": arguments.rebuild, "watch": arguments.watch}
    for other, is_given in excluded.items():
        if is_given:
            raise ValueError(f"{given} cannot be given with --{other}")


def index_on_server(
    arguments: argparse.Namespace, collection: str, api_key: str | None
) -> "QdrantIndex":
    """Return the index on the server that the options name, or the part of a build."""
    from langchain_lookup_knowledge.l1.stores.qdrant.index import QdrantIndex  # noqa: PLC0415
    from langchain_lookup_knowledge.l1.stores.shared_builds import GenerationPart  # noqa: PLC0415

    options = {"api_key": api_key, **server_options(arguments)}
    shard = getattr(arguments, "shard", None)
    if shard:
        return GenerationPart(arguments.url, collection, arguments.generation, *shard, **options)
    return QdrantIndex(arguments.url, collection, **options)


def finish_generation(kb: "KnowledgeBase", arguments: argparse.Namespace) -> None:
    """Make a generation that several machines have built the live collection of a knowledge base,
    save its settings, and print which collection is live.

    Raises:
        StoreError: it is incomplete, or cannot be made live.
    """
    from langchain_lookup_knowledge.l1.index_state import digest  # noqa: PLC0415
    from langchain_lookup_knowledge.l1.stores.qdrant.index import QdrantIndex  # noqa: PLC0415
    from langchain_lookup_knowledge.l1.stores.shared_builds import (  # noqa: PLC0415
        collection_of,
        finish,
    )

    live = kb.index
    if not isinstance(live, QdrantIndex):
        raise ValueError("--finish is for a collection on a server: give --url too")
    name = collection_of(live.collection, arguments.finish)
    with closing(
        QdrantIndex(
            arguments.url,
            name,
            api_key=os.environ.get("QDRANT_API_KEY"),
            **server_options(arguments),
        )
    ) as whole:
        digests = {entry.entry_id: digest(entry) for entry in kb.entries}
        finish(
            live,
            whole,
            digests,
            kb.embedding,
            take_over=arguments.take_over,
        )
    kb.save_settings()
    print(f"{counted(len(digests), 'entry', 'entries')}; {live_line(live)}", flush=True)


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
    """Return a line that names the live collection of an index on a server; None if the server does
    not name it.
    """
    from langchain_lookup_knowledge.l1.stores.qdrant.index import QdrantIndex  # noqa: PLC0415

    if isinstance(index, QdrantIndex) and (live := index.generation()):
        return f"collection {index.collection!r} is now {live!r}"
    return None
