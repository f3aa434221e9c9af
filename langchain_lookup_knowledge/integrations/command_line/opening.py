"""Opening the knowledge base that the arguments of a command name."""

import argparse
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from langchain_lookup_knowledge.errors import LookupKnowledgeError
from langchain_lookup_knowledge.integrations.command_line.server import (
    index_on_server,
    server_options,
)

if TYPE_CHECKING:
    from langchain_lookup_knowledge.knowledge_base import KnowledgeBase
    from langchain_lookup_knowledge.l1.stores.vector_index import VectorIndex


class EmptyFolderError(LookupKnowledgeError):
    """The folder has no file to read and no data folder, so nothing is made in it."""


def check_folder(arguments: argparse.Namespace) -> None:
    """Refuse a folder without files to read, unless it has been indexed before.

    Raises:
        EmptyFolderError: there is nothing to index; the folder was not changed.
    """
    from langchain_lookup_knowledge.data_folder import find_data_folder  # noqa: PLC0415
    from langchain_lookup_knowledge.reading.files import holds_files  # noqa: PLC0415
    from langchain_lookup_knowledge.reading.selection import ENDINGS, files_named  # noqa: PLC0415

    folder = Path(arguments.folder).expanduser().absolute()
    known = find_data_folder(folder, arguments.data_dir, make=False).is_dir()
    endings = _endings(getattr(arguments, "endings", None)) or ENDINGS
    if not known and not holds_files(folder, endings):
        raise EmptyFolderError(
            f"{arguments.folder}: no {files_named(endings)} in this folder: give the folder that "
            "holds the files"
        )


def open_kb(
    arguments: argparse.Namespace, *, sync: bool, background: bool = False
) -> "KnowledgeBase":
    """Open the knowledge base with the given options, or else with the options `index` saved.

    Raises:
        EmptyFolderError: there is nothing to index; the folder was not changed.
    """
    from langchain_lookup_knowledge.data_folder import (  # noqa: PLC0415
        find_data_folder,
        read_settings,
        saved_fields,
    )
    from langchain_lookup_knowledge.knowledge_base import KnowledgeBase  # noqa: PLC0415

    check_folder(arguments)
    data_folder = find_data_folder(arguments.folder, arguments.data_dir)
    index, saved_id = _chosen_index(arguments, data_folder)
    fields = saved_fields(read_settings(data_folder))
    return KnowledgeBase.open(
        arguments.folder,
        index=None if getattr(arguments, "no_l1", False) else index,
        embedding=getattr(arguments, "model", None),
        fields=replace(fields, **_given_fields(arguments)),
        data_dir=arguments.data_dir,
        glossary=getattr(arguments, "glossary", None),
        sync=sync,
        background=background,
        exclude=getattr(arguments, "exclude", None),
        endings=_endings(getattr(arguments, "endings", None)),
        knowledge_base_id=getattr(arguments, "id", None) or saved_id,
        trust=_trusts(arguments),
        verify=getattr(arguments, "verify", False),
    )


def open_kb_read_only(arguments: argparse.Namespace) -> "KnowledgeBase":
    """Open the knowledge base as it was indexed, without writing anything."""
    from langchain_lookup_knowledge.data_folder import find_data_folder  # noqa: PLC0415
    from langchain_lookup_knowledge.knowledge_base import KnowledgeBase  # noqa: PLC0415

    data_folder = find_data_folder(arguments.folder, arguments.data_dir, make=False)
    index, _ = _chosen_index(arguments, data_folder)
    return KnowledgeBase.open_read_only(
        arguments.folder,
        index=index,
        data_dir=arguments.data_dir,
        trust=_trusts(arguments),
    )


def _trusts(arguments: argparse.Namespace) -> bool:
    return bool(getattr(arguments, "trust", False))


def _chosen_index(
    arguments: argparse.Namespace, data_folder: Path
) -> "tuple[VectorIndex | Literal['from_settings'], str | None]":
    """Return the index named by the options, or else by the saved settings, and the saved id.

    The API key is read from the environment variable QDRANT_API_KEY. A server that QDRANT_URL names
    needs no `--trust`.
    """
    from langchain_lookup_knowledge.data_folder import without_secrets  # noqa: PLC0415
    from langchain_lookup_knowledge.l1.saved_settings import load_settings, saved_index  # noqa: PLC0415
    from langchain_lookup_knowledge.l1.stores.qdrant.address import same_server  # noqa: PLC0415

    url, collection = getattr(arguments, "url", None), getattr(arguments, "collection", None)
    api_key = os.environ.get("QDRANT_API_KEY")
    if (collection or server_options(arguments)) and not url:
        what = "--collection names a collection" if collection else "--grpc and --ca are for one"
        raise ValueError(f"{what} on a server: give --url too")
    if url == ":memory:":
        raise ValueError(
            "--url :memory: would be gone with this command: leave out --url for an index on disk"
        )
    named = os.environ.get("QDRANT_URL")
    given = {"index_given": True, "model_given": True}  # `open` reports unused settings
    saved = load_settings(
        data_folder,
        trust=_trusts(arguments),
        servers=(named,) if named else (),
        **given,
    )
    if url:
        collection = collection or Path(arguments.folder).absolute().name
        return index_on_server(arguments, collection, api_key), saved.knowledge_base_id
    if getattr(arguments, "embedded", False):
        return saved_index({}, data_folder), saved.knowledge_base_id
    if "index" not in saved.values:
        return "from_settings", saved.knowledge_base_id
    if api_key and not (named and same_server(saved.values["index"]["url"], named)):
        print(  # the folder's author may have chosen the URL
            f"note: QDRANT_API_KEY is not sent to {without_secrets(saved.values['index']['url'])}, "
            "because only the folder names this server: set QDRANT_URL to this address to allow it",
            file=sys.stderr,
        )
        api_key = None
    return saved_index(saved.values, data_folder, api_key=api_key), saved.knowledge_base_id


def _endings(given: str | None) -> tuple[str, ...] | None:
    if given is None:
        return None
    return tuple(f".{ending.lstrip('.')}" for ending in _listed(given))


def _given_fields(arguments: argparse.Namespace) -> dict[str, Any]:
    given: dict[str, Any] = {
        name: _listed(value)
        for name in ("title", "keywords", "category", "entities")
        if (value := getattr(arguments, name, None)) is not None
    }
    if (keys := getattr(arguments, "text_keys", None)) is not None:
        given["text"] = _listed(keys)
    others = ("category_from_path", "skip_drafts", "inline_tags", "plain_headers")
    kept = {name: getattr(arguments, name, None) for name in others}
    return given | {name: value for name, value in kept.items() if value is not None}


def _listed(given: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in given.split(",") if part.strip())
