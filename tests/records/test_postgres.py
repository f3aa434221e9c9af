"""Records in a real PostgreSQL, which is stopped, started, restarted and frozen while lookups
run.
"""

import os
import random
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections import Counter
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import psycopg
import pytest
from parts.invocations import INVOCATION, details_of
from parts.record_lookups import PATIENT, look_up
from parts.record_workers import finish, ids, kill_while_it_answers, start_worker

from langchain_lookup_knowledge import (
    RecordError,
    SQLInvocationRecorder,
    create_lookup_knowledge_tool,
)
from langchain_lookup_knowledge.records.invocations import MAX_DETAILS_BYTES

pytestmark = pytest.mark.postgres
PLACES = [
    "/usr/lib/postgresql/*/bin",
    "/usr/pgsql-*/bin",
    "/opt/homebrew/opt/postgresql*/bin",
    "/usr/local/bin",
]


def find_binaries():
    """Return the folder of initdb and pg_ctl, or None."""
    found = [path.parent for place in PLACES for path in Path("/").glob(f"{place[1:]}/pg_ctl")]
    on_path = shutil.which("pg_ctl")
    return found[-1] if found else on_path and Path(on_path).parent


class Cluster:
    """A PostgreSQL of its own in a temporary folder, run by a user other than root."""

    def __init__(self, binaries, folder):
        self.binaries, self.folder = binaries, folder
        self.user = {"user": "nobody"} if os.getuid() == 0 else {}
        if self.user:
            shutil.chown(folder, "nobody")
        self.password = secrets.token_hex(8)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        (folder / "password").write_text(self.password)
        (folder / "password").chmod(0o644)
        self.run(
            "initdb",
            "-D",
            folder / "data",
            "-U",
            "owner",
            "-A",
            "scram-sha-256",
            f"--pwfile={folder}/password",
            "-N",
        )
        with (folder / "data/postgresql.conf").open("a") as settings:
            settings.write(
                f"port = {self.port}\nlisten_addresses = '127.0.0.1'\n"
                "unix_socket_directories = ''\n"
            )
        self.url = f"postgresql://owner:{self.password}@127.0.0.1:{self.port}/postgres"

    def run(self, program, *arguments):
        command = [self.binaries / program, *arguments]
        subprocess.run(
            command,
            check=True,
            stdout=subprocess.DEVNULL,
            cwd=self.folder,
            timeout=120,
            **self.user,
        )

    def start(self):
        self.run("pg_ctl", "-D", self.folder / "data", "-w", "-l", self.folder / "log", "start")

    def stop(self, mode="immediate"):
        self.run("pg_ctl", "-D", self.folder / "data", "-w", "-m", mode, "stop")

    def signal(self, number):
        """Send a signal to the server and all its processes."""
        main = int((self.folder / "data/postmaster.pid").read_text().split()[0])
        children = Path(f"/proc/{main}/task/{main}/children").read_text().split()
        for process in (main, *map(int, children)):
            os.kill(process, number)

    def execute(self, statement):
        with psycopg.connect(self.url, autocommit=True) as connection:
            return connection.execute(statement)


@pytest.fixture(scope="module")
def cluster():
    binaries = find_binaries()
    if binaries is None:
        pytest.skip("PostgreSQL is not installed: there is no pg_ctl")
    folder = Path(tempfile.mkdtemp(prefix="lookup-knowledge-postgres-"))
    made = Cluster(binaries, folder)
    made.start()
    yield made
    made.stop()
    shutil.rmtree(folder)


@pytest.fixture
def url(cluster):
    cluster.execute("DROP TABLE IF EXISTS tool_invocation")
    return cluster.url


@pytest.fixture
def recorder(url, tmp_path):
    with closing(SQLInvocationRecorder(url, spool=tmp_path / "spool")) as made:
        yield made


def test_what_is_written_is_read_back_once(recorder):
    assert recorder.migrate() == []
    for query in (INVOCATION["query"], "other"):
        recorder.record({**INVOCATION, "query": query})
    assert recorder.invocations() == [INVOCATION]


def test_what_the_server_would_refuse_is_made_storable_and_fits(recorder):
    recorder.migrate()
    details = {"l1": {"score": float("nan"), "reason": "a\0b\ud800"}, "huge": [2**70, 10**400]}
    huge = details_of(1_000_000)
    recorder.record({**INVOCATION, "query": "nul\0", "retrieval_details": details})
    recorder.record({**INVOCATION, "id": "i2", "result_count": 2**40, "retrieval_details": huge})
    rows = {row["id"]: row for row in recorder.invocations()}
    assert rows["i1"]["query"] == "nul\ufffd"
    assert rows["i1"]["retrieval_details"]["l1"] == {"score": None, "reason": "a\ufffdb\ufffd"}
    with recorder._database.engine.connect() as connection:
        lengths = connection.exec_driver_sql(
            "SELECT octet_length(retrieval_details::text) FROM tool_invocation"
        ).scalars()
        assert max(lengths) <= MAX_DETAILS_BYTES


def test_filters_prune_redact(recorder):
    recorder.migrate()
    for day in (1, 2, 3):
        recorder.record(
            {**INVOCATION, "id": f"i{day}", "created_at": f"2026-01-0{day}T00:00:00+00:00"}
        )
    assert [
        row["id"]
        for row in recorder.invocations(since=datetime(2026, 1, 2, tzinfo=UTC), layer="L0+L1")
    ] == [
        "i3",
        "i2",
    ]
    assert (recorder.redact(), recorder.redact()) == (3, 0)
    assert recorder.invocations(limit=1)[0]["query"].startswith("sha256:")
    assert recorder.prune(datetime(2026, 1, 3)) == 2


def test_an_older_table_is_migrated(cluster, recorder):
    cluster.execute("CREATE TABLE tool_invocation (id TEXT PRIMARY KEY, name TEXT)")
    assert recorder.record(INVOCATION) == "spooled"
    assert "retrieval_details" in recorder.migrate()
    assert recorder.invocations() == [INVOCATION]


def test_two_that_make_the_table_at_once_both_record(url):
    recorders = [SQLInvocationRecorder(url) for _ in range(4)]
    made = [threading.Thread(target=recorder.migrate) for recorder in recorders]
    for thread in made:
        thread.start()
    for thread in made:
        thread.join()
    for number, recorder in enumerate(recorders):
        recorder.record({**INVOCATION, "id": f"i{number}"})
        recorder.close()
    assert len(ids(url)) == 4


def test_a_wrong_password_is_told_without_it(cluster, url, caplog):
    wrong = SQLInvocationRecorder(url.replace(cluster.password, "wr0ng-s3cret"))
    assert wrong.record(INVOCATION) == "spooled"
    with pytest.raises(RecordError, match="cannot be read") as raised:
        wrong.invocations()
    assert "s3cret" not in f"{raised.value!r} {wrong!r} {vars(wrong)} {caplog.text}"
    wrong.close()


def stopped(cluster):
    cluster.stop()
    return cluster.start


def frozen(cluster):
    """A server that takes connections and never answers."""
    cluster.signal(signal.SIGSTOP)
    return lambda: cluster.signal(signal.SIGCONT)


def locked(cluster):
    other = psycopg.connect(cluster.url)
    other.execute("LOCK TABLE tool_invocation IN ACCESS EXCLUSIVE MODE")
    return other.close


@pytest.mark.slow
@pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])
@pytest.mark.parametrize("query", ["refund", "laptop"], ids=["hinted", "unhinted"])
@pytest.mark.parametrize("fault", [stopped, frozen, locked], ids=lambda fault: fault.__name__)
def test_a_lookup_is_answered_and_recorded_once_whatever_the_server_does(
    kb, cluster, url, recorder, fault, asynchronous, query
):
    recorder.migrate()
    tool = create_lookup_knowledge_tool(kb, record=recorder, options=PATIENT)
    results = look_up(tool, query, asynchronous=asynchronous)
    repair = fault(cluster)
    try:
        during = look_up(tool, query, asynchronous=asynchronous)
    finally:
        repair()
    assert {result["recorded"] for result in during} == {"spooled"}
    results += during + look_up(tool, query, asynchronous=asynchronous)
    assert {(result["status"], result["l1"]["status"]) for result in results} == {("ok", "ok")}
    rows = recorder.invocations(limit=100)
    assert recorder.waiting() == 0
    assert sorted(row["id"] for row in rows) == sorted(
        result["invocation_id"] for result in results
    )


def test_a_restart_between_lookups_costs_no_spool(cluster, recorder):
    recorder.migrate()
    recorder.record(INVOCATION)
    cluster.stop("fast")
    cluster.start()
    assert recorder.record({**INVOCATION, "id": "i2"}) == "stored"
    assert recorder.waiting() == 0


@pytest.mark.nightly
def test_1280_lookups_of_4_processes_and_32_threads_with_two_restarts_leave_1280_rows(
    indexed,
    cluster,
    url,
    tmp_path,
):
    spool = tmp_path / "spool"
    with closing(SQLInvocationRecorder(url)) as recorder:
        recorder.migrate()
    workers = [start_worker(indexed, url, 8, 40, spool) for _ in range(4)]
    for wanted in (100, 400):
        wait_for_rows(cluster, wanted)
        cluster.stop()
        time.sleep(1)
        cluster.start()
    lines = finish(workers)
    kept = Counter(recorded for _, recorded, _, _ in lines)
    print(f"two restarts; {dict(kept)}")
    assert len(lines) == 1280
    assert set(kept) == {"stored", "spooled"}
    assert ids(url, spool) == {line[0] for line in lines}


def wait_for_rows(cluster, wanted):
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        if cluster.execute("SELECT count(*) FROM tool_invocation").fetchone()[0] >= wanted:
            return
        time.sleep(0.05)
    raise AssertionError(f"there were never {wanted} rows")


@pytest.mark.nightly
def test_every_answer_handed_out_before_a_kill_has_its_row(indexed, url, tmp_path):
    rng = random.Random(7)
    with closing(SQLInvocationRecorder(url)) as recorder:
        recorder.migrate()
    answered = set()
    for _ in range(10):
        answered |= kill_while_it_answers(indexed, url, rng, [tmp_path / "spool"])
    print(f"10 kills, {len(answered)} answers")
    assert answered <= ids(url, tmp_path / "spool")
