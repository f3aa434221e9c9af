"""What becomes of a lookup and its record when the database fails, each fault made for real; and a
resume after a crash.
"""

import resource
import shutil
import sqlite3
import subprocess
import sys
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import replace

import pytest
from conftest import TESTS
from parts.record_lookups import PATIENT, look_up

from langchain_lookup_knowledge import (
    SQLInvocationRecorder,
    create_lookup_knowledge_tool,
)


@contextmanager
def mounted(folder, size="1m"):
    folder.mkdir(exist_ok=True)
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", folder],
        capture_output=True,
        check=False,
    )
    if done.returncode:
        pytest.skip("only root may mount a file system")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


@contextmanager
def locked(folder):
    with closing(sqlite3.connect(folder / "calls.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield


@contextmanager
def locked_before_the_table_is_made(folder):
    with closing(sqlite3.connect(folder / "calls.db", isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        yield


@contextmanager
def full(folder):
    """A file system without a free byte."""
    ballast = folder / "ballast"
    with suppress(OSError), ballast.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))
    yield
    ballast.unlink()


@contextmanager
def limited(folder):
    """A limit of the size of files, which a database that grows runs into."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (8192, hard))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@contextmanager
def read_only(folder):
    with closing(SQLInvocationRecorder.in_file(folder / "calls.db")) as recorder:
        recorder.migrate()
    subprocess.run(["mount", "-o", "remount,ro", folder], check=True)
    yield
    subprocess.run(["mount", "-o", "remount,rw", folder], check=True)


@contextmanager
def deleted(folder):
    (folder / "calls.db").unlink()
    yield


@contextmanager
def deleted_with_its_folder(folder):
    shutil.rmtree(folder)
    yield


@contextmanager
def corrupted(folder):
    """A database overwritten while it is open, and moved away when somebody has noticed."""
    with closing(sqlite3.connect(folder / "calls.db")) as other:
        other.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    (folder / "calls.db").write_bytes(b"garbage " * 10_000)
    yield
    (folder / "calls.db").rename(folder / "damaged.db")


@contextmanager
def corrupted_from_the_start(folder):
    (folder / "calls.db").write_bytes(b"garbage " * 10_000)
    yield
    (folder / "calls.db").unlink()


FAULTS = [
    (locked, True, {"spooled"}),
    (locked_before_the_table_is_made, False, {"spooled"}),
    (full, True, {"spooled"}),
    (limited, True, {"spooled"}),
    (read_only, False, {"spooled"}),
    (deleted, True, {"stored"}),
    (deleted_with_its_folder, True, {"spooled", "stored"}),
    (corrupted, True, {"spooled"}),
    (corrupted_from_the_start, False, {"spooled"}),
]
NEEDS_MOUNT = {full, read_only}


def counted_ids(url, **where):
    with closing(SQLInvocationRecorder(url, **where)) as recorder:
        rows = recorder.invocations(limit=1000)
        assert recorder.waiting() == 0
    return sorted(row["id"] for row in rows)


@pytest.mark.parametrize("query", ["refund", "laptop"], ids=["hinted", "unhinted"])
@pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])
@pytest.mark.parametrize(
    ("fault", "opened_before", "recorded"),
    [
        pytest.param(*each, marks=[pytest.mark.process] if each[0] in NEEDS_MOUNT else [])
        for each in FAULTS
    ],
    ids=[fault.__name__ for fault, _, _ in FAULTS],
)
def test_a_lookup_is_answered_and_recorded_once_whatever_the_database_does(
    kb, tmp_path, fault, opened_before, recorded, asynchronous, query
):
    folder = tmp_path / "records"
    folder.mkdir()
    url = f"sqlite:///{folder}/calls.db"
    with ExitStack() as stack:
        if fault in NEEDS_MOUNT:
            stack.enter_context(mounted(folder))
        recorder = SQLInvocationRecorder(url)
        tool = create_lookup_knowledge_tool(kb, record=recorder, options=PATIENT)
        before = []
        if opened_before:
            before = look_up(tool, query, asynchronous=asynchronous)
            assert {result["recorded"] for result in before} == {"stored"}
        with fault(folder):
            during = look_up(tool, query, asynchronous=asynchronous)
        after = look_up(tool, query, asynchronous=asynchronous)
        recorder.close()
        expected = {result["invocation_id"] for result in (*before, *during, *after)}
        if opened_before and fault.__name__.startswith(("deleted", "corrupted")):
            expected -= {result["invocation_id"] for result in before}
        kept = counted_ids(url)

    for result in (*before, *during, *after):
        assert (result["status"], result["l1"]["status"], len(result["matches"]) > 0) == (
            "ok",
            "ok",
            True,
        )
        assert result["retrieval_layer"] == ("L0+L1" if query == "refund" else "L1")
    assert {result["recorded"] for result in during} <= recorded
    assert {result["recorded"] for result in after} == {"stored"}
    assert kept == sorted(expected)


def test_a_required_record_may_wait_in_the_spool(kb, tmp_path):
    recorder = SQLInvocationRecorder(f"sqlite:///{tmp_path}/calls.db")
    recorder.migrate()
    tool = create_lookup_knowledge_tool(
        kb, record=recorder, options=replace(PATIENT, record_mode="required")
    )
    with locked(tmp_path):
        results = look_up(tool, "refund", asynchronous=False)
    assert {(result["status"], result["recorded"]) for result in results} == {("ok", "spooled")}
    recorder.close()


def test_a_required_record_without_a_place_gives_no_knowledge(kb, tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    recorder = SQLInvocationRecorder(f"sqlite:///{tmp_path}/file/calls.db")
    tool = create_lookup_knowledge_tool(
        kb, record=recorder, options=replace(PATIENT, record_mode="required")
    )
    results = look_up(tool, "refund", asynchronous=False)
    assert {
        (result["status"], result["recorded"], len(result["matches"])) for result in results
    } == {("refused", "failed", 0)}
    recorder.close()


# Shutdown and resume

EXIT = """
import sqlite3, sys
sys.path.insert(0, sys.argv[2])
from conftest import WordEmbeddings
from langchain_lookup_knowledge import KnowledgeBase, create_lookup_knowledge_graph
kb = KnowledgeBase.open(sys.argv[1], embedding=WordEmbeddings())
graph = create_lookup_knowledge_graph(kb)
ids = [graph.invoke({"query": "refund"})["invocation_id"]]
other = sqlite3.connect(kb.data_folder / "invocations.db", isolation_level=None)
other.execute("BEGIN IMMEDIATE")
ids.append(graph.invoke({"query": "refund"})["invocation_id"])
other.rollback()
ids.append(graph.invoke({"query": "refund"})["invocation_id"])
print(*ids)
"""


@pytest.mark.process
def test_the_end_of_the_interpreter_loses_no_record(folder):
    command = [
        sys.executable,
        "-W",
        "ignore::ResourceWarning",
        "-c",
        EXIT,
        str(folder),
        str(TESTS),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert len(done.stdout.split()) == 3, done.stderr
    assert counted_ids(f"sqlite:///{folder}/.lookup-knowledge/invocations.db") == sorted(
        done.stdout.split()
    )


CRASH = """
import os, sys
sys.path.insert(0, sys.argv[2])
from typing_extensions import TypedDict
from conftest import WordEmbeddings
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import END, START, StateGraph
from langchain_lookup_knowledge import (
    KnowledgeBase, SQLInvocationRecorder, create_lookup_knowledge_graph
)

folder, crash_in = sys.argv[1], sys.argv[3]
class State(TypedDict, total=False):
    query: str
    invocation_id: str
    recorded: str

class Crashing:
    def __init__(self, recorder): self.recorder = recorder
    def record(self, invocation):
        if crash_in == "before": os._exit(9)
        kept = self.recorder.record(invocation)
        if crash_in == "after": os._exit(9)
        return kept

with (
    KnowledgeBase.open(folder, embedding=WordEmbeddings()) as kb,
    SqliteSaver.from_conn_string(folder + "/steps.db") as saver,
):
    if crash_in == "l1_retrieve": kb.l1.search = lambda request: os._exit(9)
    recorder = SQLInvocationRecorder.in_file(kb.data_folder / "invocations.db")
    parent = StateGraph(State)
    parent.add_node("lookup", create_lookup_knowledge_graph(kb, record=Crashing(recorder)))
    parent.add_edge(START, "lookup")
    parent.add_edge("lookup", END)
    config = {"configurable": {"thread_id": "t1"}}
    given = None if crash_in == "nowhere" else {"query": "refund"}
    graph = parent.compile(checkpointer=saver)
    print(graph.invoke(given, config, durability="sync")["invocation_id"])
    recorder.close()
"""


@pytest.mark.process
@pytest.mark.parametrize("crash_in", ["l1_retrieve", "before", "after"])
def test_a_crash_between_steps_and_a_resume_give_one_row(folder, crash_in):
    def run(where):
        command = [sys.executable, "-c", CRASH, str(folder), str(TESTS), where]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)

    database = f"sqlite:///{folder}/.lookup-knowledge/invocations.db"
    crashed = run(crash_in)
    assert crashed.returncode == 9, crashed.stderr
    assert len(counted_ids(database)) == (crash_in == "after")
    resumed = run("nowhere")
    assert resumed.returncode == 0, resumed.stderr
    assert counted_ids(database) == [resumed.stdout.strip()]
