"""The generations of an embedded index: folders that each hold a shard (the files of Qdrant Edge)
and a manifest with their checksums. The file `CURRENT` names the generation to search.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import zlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

from langchain_lookup_knowledge.durable import (
    UnsafeFileError,
    check_folder,
    data_blocks,
    opened,
    read_bytes,
    read_json,
    write_durably,
)
from langchain_lookup_knowledge.errors import IndexDamagedError, StoreError
from langchain_lookup_knowledge.l1.stores.vector_index import REBUILD_COMMAND, Contents

LEAST_ROOM = 100_000_000
"""Bytes that must be free before a write, in addition to the size of the index."""
BUILD_ROOM = 50_000_000
"""Bytes that must be free while the index is written; a batch of passages needs far less."""
MAX_MANIFEST, MAX_JSON = 1 << 30, 1 << 24
FIRST_CHECKED_PAYLOAD = 6
"""From this payload version on, every manifest has checksums."""
PROBE_SECONDS = 120
_NAME = re.compile(r"generation-[0-9a-f]{12}")
_MANIFEST = {"fingerprint": dict, "digests": dict, "points": int, "unembedded": list}
_CHECKSUM = ', "checksum": '
_PROBE = "import sys, qdrant_edge; qdrant_edge.EdgeShard.load(sys.argv[1]).close()"


def damaged(what: str) -> IndexDamagedError:
    """Return the error for an index with unusable files."""
    return IndexDamagedError(f"the index is damaged ({what}): {REBUILD_COMMAND}")


def current(folder: Path) -> Path | None:
    """Return the generation that `CURRENT` names; None if there is no such file.

    Raises:
        IndexDamagedError: the file does not name a generation.
    """
    try:
        check_folder(folder)
        name = read_bytes(folder / "CURRENT").decode("ascii", "replace")
    except FileNotFoundError:
        return None
    except UnsafeFileError as error:
        raise damaged(str(error)) from error
    except OSError as error:
        raise StoreError(f"the index cannot be read: {error.strerror or error}") from error
    if not _NAME.fullmatch(name):
        raise damaged("CURRENT names no generation")
    return folder / name


def read_manifest(generation: Path) -> dict[str, Any]:
    """Return the manifest of a generation; a manifest from an older version has no `files`.

    Raises:
        IndexDamagedError: the manifest is unreadable, or its checksum does not match.
    """
    try:
        check_folder(generation)
        written = read_bytes(generation / "manifest.json", MAX_MANIFEST)
        text, found, checksum = written.rpartition(_CHECKSUM.encode())
        if found and checksum != b"%d}" % zlib.crc32(text):
            raise damaged("the checksum of its manifest does not match")
        manifest = {"unembedded": [], **json.loads(written)}
        whole = all(isinstance(manifest[key], kind) for key, kind in _MANIFEST.items())
        if whole and (found or int(manifest["fingerprint"]["payload"]) < FIRST_CHECKED_PAYLOAD):
            return cast(dict[str, Any], manifest)
    except UnsafeFileError as error:
        raise damaged(str(error)) from error
    except (FileNotFoundError, NotADirectoryError) as error:
        raise damaged("its manifest is missing") from error
    except OSError as error:
        raise StoreError(f"the index cannot be read: {error.strerror or error}") from error
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise damaged("its manifest cannot be read") from error
    raise damaged("its manifest is not complete")


def write_manifest(
    generation: Path, contents: Contents, points: int, unembedded: set[str], *, vectors: bool
) -> None:
    """Write the manifest of a generation, with the checksums of the files of its shard.

    `vectors`: whether any of its passages has a dense vector.
    """
    files = {name: _checksum(generation / name, links=1) for name in sorted(_files(generation))}
    manifest = {
        "fingerprint": dict(contents.fingerprint),
        "digests": dict(contents.digests),
        "points": points,
        "unembedded": sorted(unembedded),
        "vectors": vectors,
        "files": files,
    }
    text = json.dumps(manifest, ensure_ascii=False).removesuffix("}")
    checksum = zlib.crc32(text.encode("utf-8"))
    write_durably(generation / "manifest.json", f"{text}{_CHECKSUM}{checksum}}}")


def verify(generation: Path, manifest: dict[str, Any]) -> None:
    """Check the files of a shard against the checksums in the manifest.

    A shard from an older version has no checksums. It is opened in a child process, because damaged
    files can crash the process.

    Raises:
        IndexDamagedError: a file is missing, damaged, unexpected or not a regular file, or the
            child process fails.
    """
    try:
        if "files" not in manifest:
            _probe(generation)
            return
        found = _files(generation)
        if odd := found.keys() ^ manifest["files"].keys():
            raise damaged(f"{min(odd)} is missing or unexpected")
        shared = _links(generation.parent) if max(found.values(), default=1) > 1 else Counter()
        for name, checksum in manifest["files"].items():
            path = generation / name
            status = path.lstat()
            links = max(1, shared[status.st_dev, status.st_ino])
            if _checksum(path, links) != checksum:
                raise damaged(f"the checksum of {name} does not match")
    except (FileNotFoundError, NotADirectoryError) as error:
        raise damaged("a file is missing") from error
    except (UnsafeFileError, ValueError, AttributeError, TypeError) as error:
        raise damaged(str(error)) from error


def _checksum(path: Path, links: int) -> list[int]:
    """Return the size of a file and a CRC-32 of its nonzero blocks.

    Opening a shard rewrites some of its JSON files with the keys in another order. For JSON files,
    only the values are hashed, and the size is 0.
    """
    if path.suffix == ".json":
        values = json.dumps(read_json(path, MAX_JSON, links=links), sort_keys=True)
        return [0, zlib.crc32(values.encode())]
    checksum = 0
    with opened(path, links=links) as descriptor:
        for position, block in data_blocks(descriptor):
            checksum = zlib.crc32(block, zlib.crc32(position.to_bytes(8, "big"), checksum))
        return [os.fstat(descriptor).st_size, checksum]


def _files(generation: Path) -> dict[str, int]:
    """Return the files of a shard, relative to its generation, each with its number of hard links.

    Hidden folders are skipped: opening a shard uses them to replace two files.
    """
    return {
        path.relative_to(generation).as_posix(): status.st_nlink
        for path, status in _walk(generation / "shard")
    }


def _walk(folder: Path) -> Iterator[tuple[Path, os.stat_result]]:
    """Yield the files in a folder and its subfolders, without following links."""
    check_folder(folder)
    for found in list(os.scandir(folder)):
        if not found.is_dir(follow_symlinks=False):
            yield Path(found.path), Path(found.path).lstat()
        elif not found.name.startswith("."):
            yield from _walk(Path(found.path))


def _links(folder: Path) -> "Counter[tuple[int, int]]":
    """Count the occurrences of each file in the generations of an index, which may share files."""
    walked = (status for one in _generations(folder) for _, status in _walk(one))
    return Counter((status.st_dev, status.st_ino) for status in walked)


def _generations(folder: Path) -> list[Path]:
    """Return the generation folders, and no other files: `shutil.rmtree` would block on a named
    pipe.
    """
    found = (path for path in folder.glob("generation-*") if _NAME.fullmatch(path.name))
    return [path for path in found if path.is_dir() and not path.is_symlink()]


def _probe(generation: Path) -> None:
    for path, status in _walk(generation / "shard"):
        if status.st_nlink > 1:
            raise damaged(f"{path.name} is a hard link")
        with opened(path):
            pass
    command = [sys.executable, "-P", "-c", _PROBE, str(generation / "shard")]
    try:
        subprocess.run(command, check=True, capture_output=True, timeout=PROBE_SECONDS)  # noqa: S603
    except (OSError, subprocess.SubprocessError) as error:
        raise damaged("a child process could not open it") from error


def check_room(folder: Path, copied: Path | None) -> None:
    """Check that the disk has room for a new generation, including a copy of `copied`.

    Qdrant Edge maps its files into memory, so a full disk would crash the process.

    Raises:
        StoreError: there is too little room.
    """
    used = 0
    if copied is not None:
        used = sum(getattr(status, "st_blocks", 0) * 512 for _, status in _walk(copied))
    check_free(folder, LEAST_ROOM + used)


def check_free(folder: Path, needed: int = BUILD_ROOM) -> None:
    """Check that the disk of a folder has `needed` free bytes.

    Raises:
        StoreError: there is too little room.
    """
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise StoreError(
            f"the index needs {needed // 1_000_000} MB of disk space, but only "
            f"{free // 1_000_000} MB are free: free some space, or move the index"
        )


def remove_all_but(folder: Path, *kept: Path | None) -> None:
    """Remove all generations except those in `kept`."""
    for old in _generations(folder):
        if old not in kept:
            shutil.rmtree(old, ignore_errors=True)
