"""Files that survive a power cut."""

import os
import uuid
from contextlib import suppress
from pathlib import Path


def write_durably(path: Path, text: str) -> None:
    """Make or replace a file in one step, down to the disk; until then it is a hidden one."""
    unfinished = path.with_name(f".{uuid.uuid4().hex}.{path.name}")
    try:
        with unfinished.open("x", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(path)
    except BaseException:
        with suppress(OSError):
            unfinished.unlink(missing_ok=True)
        raise
    if os.name == "posix":
        with suppress(OSError):  # the file is there; not every file system can make a rename survive a power cut
            descriptor = os.open(path.parent, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
