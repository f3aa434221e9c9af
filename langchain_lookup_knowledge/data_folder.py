"""The data folder of a knowledge base: its location, whether its files are safe to open, and the
settings that later commands and `open` read from it.

The settings are signed with a key in the user's state folder. The signature distinguishes settings
that this user saved from settings that came with a folder.
"""

import hashlib
import hmac
import json
import logging
import os
import secrets
import shutil
import uuid
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from langchain_lookup_knowledge.durable import (
    UnsafeFileError,
    check_folder,
    check_plain,
    copy_folder,
    make_folder,
    read_bytes,
    read_json,
    write_durably,
)
from langchain_lookup_knowledge.errors import DocumentError
from langchain_lookup_knowledge.types import FrontmatterFields

logger = logging.getLogger("langchain_lookup_knowledge")

DATA_FOLDER = ".lookup-knowledge"
SETTINGS = "settings.json"
INDEX_FOLDER = "index"
_SIGNATURES = "signatures"
MAX_SIGNATURES = 20
"""Maximum number of signatures of the same settings, one per user of a shared data folder."""
_ORIGIN = "origin"
"""Name of a file in a data folder in the user's cache. The file holds a hash of the read-only
folder that was copied there.
"""


def find_data_folder(
    folder: str | os.PathLike[str],
    data_dir: str | os.PathLike[str] | None = None,
    *,
    make: bool = True,
) -> Path:
    """Return the data folder of a knowledge folder, in the user's cache if that folder is
    read-only.

    `make` creates the data folder if it does not exist.

    Raises:
        DocumentError: there is no such knowledge folder, or `data_dir` cannot be made.
    """
    root = Path(folder).expanduser().absolute()
    if not root.is_dir():
        raise DocumentError(
            f"{root} is not a folder: give the folder that holds the Markdown files"
        )
    if data_dir is not None:
        return given_data_folder(data_dir, make)
    usual = root / DATA_FOLDER
    check_contents(usual)
    fallback = _in_cache(root)
    if _is_writable(usual) if make else _is_used(usual, fallback):
        return usual
    if make and not _is_writable(fallback):
        raise DocumentError(
            f"neither {usual} nor {fallback} can be written: choose a data folder with data_dir"
        )
    if make:
        _copy_from(usual, fallback)
    return fallback if make or fallback.is_dir() else usual


def _is_used(usual: Path, fallback: Path) -> bool:
    """Return whether the data folder in its usual place is used, and not the one in the cache."""
    return usual.is_dir() and (os.access(usual, os.W_OK) or not fallback.is_dir())


def given_data_folder(data_dir: str | os.PathLike[str], make: bool) -> Path:
    """Return the data folder that the caller chose; `make` creates it if it does not exist.

    A read-only one that holds an index is copied to the user's cache.

    Raises:
        DocumentError: the folder cannot be created or written, or holds a link or a special file.
    """
    chosen = Path(data_dir).expanduser().absolute()
    if chosen.is_dir():
        check_contents(chosen.resolve())
    if not make or _is_writable(chosen):
        return chosen
    fallback = _in_cache(chosen)
    if not (chosen / INDEX_FOLDER).is_dir() or not _is_writable(fallback):
        raise DocumentError(
            f"the data folder {chosen} cannot be written: choose another with data_dir"
        )
    _copy_from(chosen, fallback)
    return fallback


def _in_cache(folder: Path) -> Path:
    from platformdirs import user_cache_path  # noqa: PLC0415

    place = hashlib.sha256(os.fsencode(folder.resolve())).hexdigest()[:16]
    return user_cache_path("lookup-knowledge") / place


def check_contents(folder: Path) -> None:
    """Check that a data folder holds only folders and regular files with one name.

    The files of the index are checked when they are opened. Other subfolders may hold hard links,
    because their files are read, renamed and deleted, but never written.

    Raises:
        DocumentError: one of them is a link or a special file.
    """
    try:
        check_folder(folder)
        if not folder.is_dir():
            return
        for found in list(os.scandir(folder)):
            path = Path(found.path)
            if not found.is_dir(follow_symlinks=False):
                check_plain(path)
                continue
            check_folder(path)  # on Windows, a junction is a folder, too
            if path.name != INDEX_FOLDER:
                _check_files(path)
    except UnsafeFileError as error:
        raise DocumentError(
            f"{error} (links in a data folder are never followed); "
            "data_dir chooses another data folder"
        ) from error
    except OSError as error:
        raise DocumentError(f"{folder} cannot be read: {error.strerror or error}") from error


def _check_files(folder: Path) -> None:
    with os.scandir(folder) as found:
        for one in found:
            if not one.is_file(follow_symlinks=False):
                check_folder(Path(one.path))


def _copy_from(origin: Path, folder: Path) -> None:
    """Copy the settings and the index of a read-only data folder into another one, unless the copy
    already exists.

    An index cannot be opened in a read-only folder.
    """
    small = [name for name in (SETTINGS, "relevance.json") if (origin / name).is_file()]
    pointer, marker = origin / INDEX_FOLDER / "CURRENT", folder / _ORIGIN
    try:
        texts = {name: read_bytes(origin / name).decode("utf-8") for name in small}
        current = read_bytes(pointer).decode("utf-8") if pointer.is_file() else None
        if not texts and current is None:
            return
        mark = hashlib.sha256(json.dumps([texts, current]).encode()).hexdigest()
        if marker.exists() and read_bytes(marker) == mark.encode():
            return
        if current is not None and Path(current).name == current:
            _copy_generation(origin / INDEX_FOLDER / current, folder / INDEX_FOLDER / current)
            write_durably(folder / INDEX_FOLDER / "CURRENT", current)
        for name, text in texts.items():
            write_durably(folder / name, text)
        write_durably(marker, mark)
    except (OSError, ValueError) as error:
        logger.warning("the index in %s is not used, because it cannot be read: %s", origin, error)


def _copy_generation(source: Path, target: Path) -> None:
    """Copy a folder; the copy gets its final name only when it is complete."""
    if target.exists():
        return
    unfinished = target.with_name(f"copy-{uuid.uuid4().hex}")
    try:
        copy_folder(source, unfinished)
        unfinished.rename(target)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def _is_writable(folder: Path) -> bool:
    """Return whether the data folder can be created and written; checking permissions is not enough
    on a read-only mount.
    """
    try:
        make_data_folder(folder)
        probe = folder / f".probe-{uuid.uuid4().hex}"
        probe.touch()
        probe.unlink()
    except OSError:
        return False
    return True


def make_data_folder(folder: Path) -> None:
    """Create the data folder, with a `.gitignore` that keeps it out of version control."""
    make_folder(folder)
    with suppress(FileExistsError), (folder / ".gitignore").open("x", encoding="utf-8") as ignore:
        ignore.write("*\n")


def read_settings(data_folder: Path) -> dict[str, Any]:
    """Return the settings that `KnowledgeBase.save_settings` wrote; empty if there are none.

    Raises:
        DocumentError: the settings file is damaged.
    """
    path = data_folder / SETTINGS
    try:
        settings = read_json(path)
    except FileNotFoundError:
        return {}
    except UnsafeFileError as error:
        raise DocumentError(str(error)) from error
    except (OSError, ValueError) as error:
        raise DocumentError(
            f"{path} cannot be read: delete it and run `lookup-knowledge index` again"
        ) from error
    if not isinstance(settings, dict):
        raise DocumentError(
            f"{path} does not hold settings: delete it and run `lookup-knowledge index` again"
        )
    return settings


def write_settings(data_folder: Path, settings: dict[str, Any]) -> None:
    """Save the settings, signed with the key of this user; other users' signatures of the same
    settings are kept.

    Raises:
        OSError: they cannot be written.
    """
    make_data_folder(data_folder)
    with suppress(DocumentError, RecursionError):
        before = read_settings(data_folder)
        if _signed_part(before) == _signed_part(settings):
            if signed_here(before):
                return
            settings = {**settings, _SIGNATURES: _signatures(before)}
    try:
        ours = _signature(user_key(make=True), settings)
        settings = {**settings, _SIGNATURES: [ours, *_signatures(settings)][:MAX_SIGNATURES]}
    except OSError as error:
        logger.warning(
            "the settings in %s are not signed, because the state folder cannot be written (%s): "
            "a server or model that they name is used with --trust or trust=True only",
            data_folder,
            error.strerror or error,
        )
    text = json.dumps(settings, indent=2, ensure_ascii=False) + "\n"
    write_durably(data_folder / SETTINGS, text)


def signed_here(settings: dict[str, Any]) -> bool:
    """Return whether settings carry the signature of this user."""
    given = _signatures(settings)
    if not given:
        return False
    try:
        expected = _signature(user_key(make=False), settings)
    except (OSError, RecursionError):
        return False
    return any(hmac.compare_digest(one, expected) for one in given)


def _signatures(settings: dict[str, Any]) -> list[str]:
    given = settings.get(_SIGNATURES)
    found = given if isinstance(given, list) else []
    return [one for one in found if isinstance(one, str) and one.isascii()][:MAX_SIGNATURES]


def _signed_part(settings: dict[str, Any]) -> str:
    signed = {name: value for name, value in settings.items() if name != _SIGNATURES}
    return json.dumps(signed, sort_keys=True)


def _signature(key: bytes, settings: dict[str, Any]) -> str:
    return hmac.new(key, _signed_part(settings).encode(), hashlib.sha256).hexdigest()


def user_key(*, make: bool) -> bytes:
    """Return the key in the user's state folder; `make` creates it if there is none.

    Raises:
        OSError: there is no key, or it cannot be written.
    """
    from platformdirs import user_state_path  # noqa: PLC0415

    path = user_state_path("lookup-knowledge") / "settings.key"
    if make and not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_name(f".{uuid.uuid4().hex}.key")
        unfinished.touch(0o600, exist_ok=False)
        try:
            unfinished.write_bytes(secrets.token_bytes(32))
            with suppress(FileExistsError):  # another process has made one
                path.hardlink_to(unfinished)
        finally:
            unfinished.unlink()
    key = path.read_bytes()
    if len(key) < 32:
        raise OSError(f"{path} holds no key: delete it")
    return key


def without_secrets(url: str) -> str:
    """Return a URL without user, password, query and fragment."""
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def saved_fields(settings: dict[str, Any]) -> FrontmatterFields:
    """Return the field mapping kept in the settings, or the default one."""
    try:
        return FrontmatterFields(**settings.get("fields", {}))
    except (TypeError, ValueError) as error:
        raise DocumentError(
            f"settings.json holds a field mapping that cannot be used ({error}): delete it"
        ) from error
