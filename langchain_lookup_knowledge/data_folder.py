"""The data folder of a knowledge base: where it is, and the settings that later commands and `open` go by."""

import hashlib
import json
import os
import uuid
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from langchain_lookup_knowledge.embedded_index import EmbeddedIndex
from langchain_lookup_knowledge.errors import DocumentError
from langchain_lookup_knowledge.qdrant_index import QdrantIndex
from langchain_lookup_knowledge.stores import VectorIndex
from langchain_lookup_knowledge.types import FrontmatterFields

DATA_FOLDER = ".lookup-knowledge"


def find_data_folder(
    folder: str | os.PathLike[str], data_dir: str | os.PathLike[str] | None = None, *, make: bool = True
) -> Path:
    """Return the data folder of a knowledge folder, in the user's cache if that folder is read-only.

    `make` makes it if need be.

    Raises:
        DocumentError: there is no such knowledge folder, or `data_dir` cannot be made.
    """
    root = Path(folder).expanduser().absolute()
    if not root.is_dir():
        raise DocumentError(f"{root} is not a folder: give the folder that holds the Markdown files")
    if data_dir is not None:
        return given_data_folder(data_dir, make)
    usual = root / DATA_FOLDER
    if _is_writable(usual) if make else usual.is_dir():
        return usual
    from platformdirs import user_cache_path  # noqa: PLC0415

    place = hashlib.sha256(os.fsencode(root.resolve())).hexdigest()[:16]
    fallback = user_cache_path("lookup-knowledge") / place
    if make and not _is_writable(fallback):
        raise DocumentError(f"neither {usual} nor {fallback} can be written: choose a data folder with data_dir")
    return fallback if make or fallback.is_dir() else usual


def given_data_folder(data_dir: str | os.PathLike[str], make: bool) -> Path:
    """Return the data folder that the caller chose; `make` makes it if need be.

    Raises:
        DocumentError: it cannot be made.
    """
    chosen = Path(data_dir).expanduser().absolute()
    if make and not _is_writable(chosen):
        raise DocumentError(f"the data folder {chosen} cannot be written: choose another with data_dir")
    return chosen


def _is_writable(folder: Path) -> bool:
    """Say whether the data folder can be made and written; permissions alone do not tell on a read-only mount."""
    try:
        make_data_folder(folder)
        probe = folder / f".probe-{uuid.uuid4().hex}"
        probe.touch()
        probe.unlink()
    except OSError:
        return False
    return True


def make_data_folder(folder: Path) -> None:
    """Make the data folder, with a `.gitignore` that keeps it out of version control."""
    folder.mkdir(parents=True, exist_ok=True)
    ignore = folder / ".gitignore"
    if not ignore.exists():
        ignore.write_text("*\n", "utf-8")


def read_settings(data_folder: Path) -> dict[str, Any]:
    """Return what `KnowledgeBase.remember` kept, or nothing.

    Raises:
        DocumentError: the file is damaged.
    """
    path = data_folder / "settings.json"
    try:
        settings = json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise DocumentError(f"{path} cannot be read: delete it and run `lookup-knowledge index` again") from error
    if not isinstance(settings, dict):
        raise DocumentError(f"{path} does not hold settings: delete it and run `lookup-knowledge index` again")
    return settings


def without_secrets(url: str) -> str:
    """Return a URL without user, password, query and fragment."""
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def remembered_fields(settings: dict[str, Any]) -> FrontmatterFields:
    """Return the field mapping kept in the settings, or the default one."""
    try:
        return FrontmatterFields(**settings.get("fields", {}))
    except (TypeError, ValueError) as error:
        raise DocumentError(f"settings.json holds a field mapping that cannot be used ({error}): delete it") from error


def remembered_index(settings: dict[str, Any], data_folder: Path, *, api_key: str | None = None) -> VectorIndex:
    """Return the index kept in the settings, or the embedded one."""
    if "index" in settings:
        try:
            return QdrantIndex(**settings["index"], api_key=api_key)
        except TypeError as error:
            raise DocumentError("settings.json holds an index that cannot be used: delete it") from error
    return EmbeddedIndex(data_folder / "index")
