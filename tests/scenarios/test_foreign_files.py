"""A data folder that came with a folder: links in it are never followed."""

import hashlib
import os
import socket
from contextlib import suppress
from pathlib import Path

import pytest
from conftest import FILES, WordEmbeddings, write_files

from langchain_lookup_knowledge import KnowledgeBase, create_lookup_knowledge_graph
from langchain_lookup_knowledge.data_folder import DATA_FOLDER
from langchain_lookup_knowledge.durable import copy_folder
from langchain_lookup_knowledge.errors import LookupKnowledgeError
from langchain_lookup_knowledge.lookup.answer.relevance import UNFITTED, keep_model

pytestmark = pytest.mark.skipif(os.name != "posix", reason="named pipes and sockets")

GENERATION = "index/generation-0123456789ab"
FILE_NAMES = [
    ".gitignore",
    "settings.json",
    "relevance.json",
    "invocations.db",
    "invocations.db-wal",
    "invocations.db-shm",
    "invocations.db-journal",
    "invocations.db.spool/00000000000000000001-a.json",
    "invocations.db.spool/.00000000000000000001-a.json",
    "index/CURRENT",
    "index/writer.lock",
    f"{GENERATION}/manifest.json",
    f"{GENERATION}/shard/edge_config.json",
    f"{GENERATION}/shard/segments/SEGMENT/segment.json",
    f"{GENERATION}/shard/segments/SEGMENT/vector_storage-dense/vectors/chunk_0.mmap",
]
FOLDER_NAMES = [
    "",
    "index",
    "invocations.db.spool",
    GENERATION,
    f"{GENERATION}/shard",
    f"{GENERATION}/shard/segments",
]


def link_to_a_file(path: Path, outside: Path) -> None:
    path.symlink_to(outside / "note.json")


def link_to_a_database(path: Path, outside: Path) -> None:
    path.symlink_to(outside / ".dotfile")


def link_to_nothing(path: Path, outside: Path) -> None:
    path.symlink_to(outside / "new.json")


def link_to_a_folder(path: Path, outside: Path) -> None:
    path.symlink_to(outside, target_is_directory=True)


def hard_link(path: Path, outside: Path) -> None:
    path.hardlink_to(outside / "note.json")


def named_pipe(path: Path, _: Path) -> None:
    os.mkfifo(path)


def unix_socket(path: Path, _: Path) -> None:
    here = Path.cwd()
    os.chdir(path.parent)  # the path of a socket is short
    try:
        with socket.socket(socket.AF_UNIX) as bound:
            bound.bind(path.name[:60])
    finally:
        os.chdir(here)


KINDS = [
    link_to_a_file,
    hard_link,
    *(
        pytest.param(kind, marks=pytest.mark.slow)
        for kind in (
            link_to_a_database,
            link_to_nothing,
            link_to_a_folder,
            named_pipe,
            unix_socket,
        )
    ),
]


def watched(folder: Path) -> dict[str, tuple[object, ...]]:
    """Return what identifies each file and folder of a tree, and its contents."""
    found = {}
    for path in sorted([folder, *folder.rglob("*")]):
        status = path.lstat()
        content = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
        size = status.st_size if path.is_file() else 0
        found[str(path)] = (status.st_ino, status.st_mode, size, content)
    return found


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a data folder in which every file is in its place."""
    folder = write_files(tmp_path_factory.mktemp("whole") / "kb", FILES)
    with KnowledgeBase.open(folder, embedding=WordEmbeddings()) as kb:
        create_lookup_knowledge_graph(kb).invoke({"query": "refund"})
        keep_model(UNFITTED, kb.embedding, kb.data_folder)
    index = folder / DATA_FOLDER / "index"
    (index / (index / "CURRENT").read_text()).rename(folder / DATA_FOLDER / GENERATION)
    (index / "CURRENT").write_text(Path(GENERATION).name)
    (folder / DATA_FOLDER / "invocations.db.spool").mkdir(exist_ok=True)
    return folder


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    return write_files(
        tmp_path / "outside",
        {
            "note.json": '{"embedding": "a"}\n',
            ".hidden.json": "{}",
            ".dotfile": "",
            "data/segment.json": "{}",
            "generation-aaaaaaaaaaaa/manifest.json": "{}",
            "CURRENT": "generation-aaaaaaaaaaaa",
        },
    )


LONG_AGO = 1_000_000_000


def unread(folder: Path) -> list[Path]:
    """Set the times of a tree so that a read shows, and return its files and folders."""
    paths = [folder, *folder.rglob("*")]
    for path in paths:
        os.utime(path, (LONG_AGO, LONG_AGO))
    return paths


def read_of(paths: list[Path]) -> list[Path]:
    """Return the files and folders that were read since; empty if the disk keeps no such times."""
    return [path for path in paths if path.lstat().st_atime != LONG_AGO]


def test_a_read_outside_would_be_seen(outside):
    paths = unread(outside)
    assert read_of(paths) == []
    (outside / "note.json").read_bytes()
    list((outside / "data").iterdir())
    if not read_of(paths):
        pytest.skip("this disk keeps no times of reads")
    assert read_of(paths) == [outside / "data", outside / "note.json"]


def use(folder: Path) -> None:
    """Do everything that touches a data folder; a refusal is fine."""
    for _ in range(2):
        with (
            suppress(LookupKnowledgeError),
            KnowledgeBase.open(folder, embedding=WordEmbeddings()) as kb,
        ):
            graph = create_lookup_knowledge_graph(kb)
            assert graph.invoke({"query": "refund"})["primary"]["entry_id"] == "billing/refunds.md"
            with suppress(LookupKnowledgeError):
                kb.sync(rebuild=True)
            with suppress(OSError):
                kb.save_settings()
            with suppress(OSError):
                keep_model(UNFITTED, kb.embedding, kb.data_folder)
            kb.suggestions()


@pytest.mark.parametrize("plant", KINDS)
@pytest.mark.parametrize("name", [*FILE_NAMES, *FOLDER_NAMES], ids=lambda name: name[-40:] or ".")
@pytest.mark.slow
def test_nothing_in_a_data_folder_is_followed_out_of_it(tmp_path, whole, outside, name, plant):
    folder = write_files(tmp_path / "kb", FILES)
    data = folder / DATA_FOLDER
    copy_folder(whole / DATA_FOLDER, data)
    segment = next((data / GENERATION / "shard/segments").iterdir()).name
    path = data / name.replace("SEGMENT", segment)
    path.parent.mkdir(exist_ok=True)
    if path.is_dir():
        path.rename(tmp_path / "moved")
    else:
        path.unlink(missing_ok=True)
    plant(path, outside)
    before, paths = watched(outside), unread(outside)
    use(folder)
    assert read_of(paths) == []
    assert watched(outside) == before
