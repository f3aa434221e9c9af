"""Files that only this user can have written."""

import pytest

from langchain_lookup_knowledge.durable import UnsafeFileError
from langchain_lookup_knowledge.opening.signed_file import (
    UnusableFileError,
    read_signed,
    write_signed,
)

BLOCKS = [["a", 1, None, True], {"é": [b"\x00\xff", 1.5]}, [], ["x" * 5000]]


def test_blocks_come_back_as_they_were(tmp_path):
    write_signed(tmp_path / "kept", BLOCKS)
    assert list(read_signed(tmp_path / "kept")) == BLOCKS


@pytest.mark.parametrize("blocks", [[], [[]]])
def test_a_file_may_hold_little(tmp_path, blocks):
    write_signed(tmp_path / "kept", blocks)
    assert list(read_signed(tmp_path / "kept")) == blocks


def test_every_cut_and_every_changed_byte_is_found(tmp_path):
    path = tmp_path / "kept"
    write_signed(path, [["a", "b"], ["c"]])
    data = path.read_bytes()
    for place in range(len(data)):
        for harmed in (data[:place], data[:place] + bytes([data[place] ^ 4]) + data[place + 1 :]):
            path.write_bytes(harmed)
            with pytest.raises(UnusableFileError):
                list(read_signed(path))


def test_blocks_cannot_be_left_out_or_exchanged(tmp_path):
    path = tmp_path / "kept"
    write_signed(path, [["a"], ["b"]])
    data = path.read_bytes()
    block = 8 + 32 + 3
    nonce, first, second, last = data[:16], *(data[16 + i * block :][:block] for i in range(3))
    for harmed in (
        [nonce, second, first, last],
        [nonce, first, last],
        [nonce, first, first, second, last],
    ):
        path.write_bytes(b"".join(harmed))
        with pytest.raises(UnusableFileError):
            list(read_signed(path))


def test_a_block_of_another_file_is_found(tmp_path):
    for name in ("one", "other"):
        write_signed(tmp_path / name, [[name]])
    one, other = ((tmp_path / name).read_bytes() for name in ("one", "other"))
    (tmp_path / "one").write_bytes(one[:16] + other[16:])
    with pytest.raises(UnusableFileError):
        list(read_signed(tmp_path / "one"))


def test_a_link_is_not_followed(tmp_path):
    write_signed(tmp_path / "kept", BLOCKS)
    (tmp_path / "link").symlink_to("kept")
    with pytest.raises(UnsafeFileError):
        list(read_signed(tmp_path / "link"))
