"""Files of a data folder: written so that they survive a power failure, and never through a link.

A data folder may come from somebody else. So a file in it is opened only if it is a regular file
with one name. A symbolic link, a reparse point (Windows) or a hard link might lead out of the
folder. Reading a named pipe or a device might never end.
"""

import errno
import json
import os
import stat
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

SMALL_FILE = 1_000_000
"""Maximum bytes of a small JSON file, such as the settings."""
_BLOCK = 1 << 16
_READ = (
    os.O_RDONLY
    | getattr(os, "O_NOFOLLOW", 0)
    | getattr(os, "O_NONBLOCK", 0)  # a named pipe without a writer would block
    | getattr(os, "O_CLOEXEC", 0)
    | getattr(os, "O_BINARY", 0)
)
_KINDS = {
    stat.S_IFLNK: "a symbolic link",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFBLK: "a device",
    stat.S_IFCHR: "a device",
    stat.S_IFDIR: "a folder",
}
_REPARSE_POINT = 0x400


class UnsafeFileError(OSError):
    """A path is a link, a special file or too large; the message names the path and the fix."""

    def __init__(self, path: Path, what: str) -> None:
        super().__init__(errno.ELOOP, f"{path} is {what}, which is not used: delete it")

    def __str__(self) -> str:
        return str(self.strerror)


def oddity(status: os.stat_result, *, links: int | None = 1) -> str | None:
    """Return why a path is not a regular file with at most `links` names; None if it is one.

    `links=None` allows any number of names.
    """
    if getattr(status, "st_file_attributes", 0) & _REPARSE_POINT:
        return "a reparse point"
    if not stat.S_ISREG(status.st_mode):
        return _KINDS.get(stat.S_IFMT(status.st_mode), "not a regular file")
    return "a hard link" if links is not None and status.st_nlink > links else None


def check_plain(path: Path) -> None:
    """Check that a path is free, or a regular file with one name, before another library opens it.

    Raises:
        UnsafeFileError: it is a link or a special file.
    """
    with suppress(FileNotFoundError):
        if found := oddity(path.lstat()):
            raise UnsafeFileError(path, found)


def check_folder(path: Path) -> None:
    """Check that a path is free, a folder or a regular file.

    Raises:
        UnsafeFileError: it is a link or a special file.
    """
    with suppress(FileNotFoundError):
        found = oddity(path.lstat(), links=None)
        if found and found != _KINDS[stat.S_IFDIR]:
            raise UnsafeFileError(path, found)


def make_folder(path: Path) -> None:
    """Create a folder and the folders above it, unless a link or a special file is in its place.

    Raises:
        UnsafeFileError: a link or a special file is in its place.
    """
    check_folder(path)
    path.mkdir(parents=True, exist_ok=True)


@contextmanager
def opened(path: Path, *, links: int | None = 1) -> Iterator[int]:
    """Open a regular file for reading, and close it at the end; yields its descriptor.

    Raises:
        UnsafeFileError: it is a link, a special file, or has more than `links` names; `links=None`
            allows any number.
    """
    if os.name == "nt" and (found := oddity(path.lstat(), links=links)):
        raise UnsafeFileError(path, found)
    try:
        descriptor = os.open(path, _READ)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.EMLINK):
            raise UnsafeFileError(path, _KINDS[stat.S_IFLNK]) from error
        if error.errno in (errno.ENXIO, errno.ENODEV):
            raise UnsafeFileError(path, "a special file") from error
        raise
    try:
        if found := oddity(os.fstat(descriptor), links=links):
            raise UnsafeFileError(path, found)
        yield descriptor
    finally:
        os.close(descriptor)


def read_bytes(path: Path, limit: int = SMALL_FILE, *, links: int = 1) -> bytes:
    """Return the contents of a regular file of at most `limit` bytes.

    Raises:
        UnsafeFileError: it is a link, a special file, or too large.
    """
    with (
        opened(path, links=links) as descriptor,
        os.fdopen(descriptor, "rb", closefd=False) as file,
    ):
        data = file.read(limit + 1)
    if len(data) > limit:
        raise UnsafeFileError(path, f"larger than {limit:,} bytes")
    return data


def read_json(path: Path, limit: int = SMALL_FILE, *, links: int = 1) -> Any:
    """Return the value in a JSON file; `read_bytes` reads the file.

    Raises:
        ValueError: the file does not hold JSON, or its values are nested too deeply.
        OSError: the file cannot be read; also `UnsafeFileError`, as for `read_bytes`.
    """
    try:
        return json.loads(read_bytes(path, limit, links=links))
    except RecursionError:
        raise ValueError("its values are nested too deeply") from None


def data_blocks(descriptor: int) -> Iterator[tuple[int, bytes]]:
    """Yield the blocks of an open file that hold anything but zeros, each with its position.

    The files of an index consist mostly of holes, which are skipped.
    """
    size, zeros, position = os.fstat(descriptor).st_size, bytes(_BLOCK), 0
    with os.fdopen(descriptor, "rb", closefd=False) as file:
        while position < size:
            if hasattr(os, "SEEK_DATA"):
                try:
                    position = os.lseek(descriptor, position, os.SEEK_DATA) // _BLOCK * _BLOCK
                except OSError as error:
                    if error.errno == errno.ENXIO:  # only a hole is left
                        return
            file.seek(position)
            if not (block := file.read(_BLOCK)):
                return
            if block != zeros[: len(block)]:
                yield position, block
            position += len(block)


def copy_folder(source: Path, target: Path) -> None:
    """Copy a folder of regular files; blocks of zeros take no room in the copy.

    Hidden folders are left out. A file may have several names (hard links); its copy has one.

    Raises:
        UnsafeFileError: the folder holds a symbolic link or a special file.
    """
    target.mkdir(parents=True, exist_ok=True)
    for found in list(os.scandir(source)):
        path = Path(found.path)
        if not found.is_dir(follow_symlinks=False):
            _copy_sparse(path, target / found.name)
        elif not found.name.startswith("."):
            check_folder(path)
            copy_folder(path, target / found.name)


def _copy_sparse(source: Path, target: Path) -> None:
    with opened(source, links=None) as descriptor, target.open("xb") as writer:
        for position, block in data_blocks(descriptor):
            writer.seek(position)
            writer.write(block)
        writer.truncate(os.fstat(descriptor).st_size)


def write_durably(path: Path, text: str | Iterable[bytes], *, mode: int = 0o666) -> None:
    """Create or replace a file atomically, and flush it to disk; the file holds a text in UTF-8, or
    blocks of bytes.

    They are written to a hidden file, which is then renamed to `path`. A link at `path` is
    replaced, never followed. `mode` is the permissions of a new file, before the umask.
    """
    unfinished = path.with_name(f".{uuid.uuid4().hex}.{path.name}")
    try:
        descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        with open(descriptor, "wb") as file:  # noqa: PTH123  (a descriptor)
            file.writelines([text.encode()] if isinstance(text, str) else text)
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(path)
    except BaseException:
        with suppress(OSError):
            unfinished.unlink(missing_ok=True)
        raise
    if os.name == "posix":
        with suppress(OSError):  # some file systems cannot flush a rename; the file is there anyway
            descriptor = os.open(path.parent, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
