"""Files of values that only this user can have written: each block is signed with the key in the
user's state folder, and read only after its signature was checked.
"""

import hashlib
import hmac
import os
import secrets
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import ormsgpack

from langchain_lookup_knowledge.data_folder import make_data_folder, user_key
from langchain_lookup_knowledge.durable import opened, write_durably

_NONCE, _MAC, _SIZE = 16, 32, 8
_LAST = b"last"


class UnusableFileError(Exception):
    """A file is damaged, or another user signed it; the message says which."""


def write_signed(path: Path, blocks: Iterable[Any]) -> None:
    """Write blocks of plain values: texts, bytes, numbers, None, and lists of them.

    Raises:
        OSError: the file, or the key, cannot be written.
    """
    make_data_folder(path.parent)
    write_durably(path, _signed(user_key(make=True), blocks))


def _signed(key: bytes, blocks: Iterable[Any]) -> Iterator[bytes]:
    nonce = secrets.token_bytes(_NONCE)
    yield nonce
    number = 0
    for number, block in enumerate(blocks, start=1):
        packed = ormsgpack.packb(block)
        yield from _block(key, nonce, number, packed)
    yield from _block(key, nonce, number + 1, _LAST)


def _block(key: bytes, nonce: bytes, number: int, packed: bytes) -> Iterator[bytes]:
    yield len(packed).to_bytes(_SIZE, "big")
    yield _signature(key, nonce, number, packed)
    yield packed


def _signature(key: bytes, nonce: bytes, number: int, packed: bytes) -> bytes:
    signature = hmac.new(key, b"blocks" + nonce + number.to_bytes(_SIZE, "big"), hashlib.sha256)
    signature.update(packed)
    return signature.digest()


def read_signed(path: Path) -> Iterator[Any]:
    """Yield the blocks of a file that this user signed.

    Raises:
        UnusableFileError: the file is cut or changed, or this user did not sign it.
        OSError: there is no such file, or it cannot be read.
    """
    try:
        key = user_key(make=False)
    except OSError as error:
        raise UnusableFileError("this user has signed nothing yet") from error
    with opened(path) as descriptor, os.fdopen(descriptor, "rb", closefd=False) as file:
        left = os.fstat(descriptor).st_size - _NONCE
        nonce, number = file.read(_NONCE), 1
        while True:
            head = file.read(_SIZE + _MAC)
            size = int.from_bytes(head[:_SIZE], "big")
            left -= _SIZE + _MAC + size
            if left < 0:
                raise UnusableFileError("it is cut")
            packed = file.read(size)
            if not hmac.compare_digest(head[_SIZE:], _signature(key, nonce, number, packed)):
                raise UnusableFileError("it is damaged, or another user wrote it")
            if packed == _LAST:
                return
            yield ormsgpack.unpackb(packed)
            number += 1
