"""Migrations of the record table: each database is brought up to date once, and loses nothing."""

import sqlite3
import subprocess
import sys
from contextlib import closing

import pytest
import sqlalchemy as sa
from test_history import invocation, postgres  # noqa: F401  (a fixture)
from test_recorder import INVOCATION

from langchain_lookup_knowledge import RecordError, SQLInvocationRecorder
from langchain_lookup_knowledge.records import database, table
from langchain_lookup_knowledge.records.history import History
from langchain_lookup_knowledge.records.selection import Selection
from langchain_lookup_knowledge.records.table import (
    MIGRATIONS,
    Migration,
    facts_index,
    undated_index,
)

SQLITE_0_1 = """
PRAGMA journal_mode = WAL;
CREATE TABLE tool_invocation (
    id TEXT NOT NULL, tool_name TEXT NOT NULL, query TEXT NOT NULL, status TEXT NOT NULL,
    retrieval_layer TEXT NOT NULL, retrieval_details JSON NOT NULL, l1_status TEXT NOT NULL,
    result_count INTEGER NOT NULL, primary_entry_id TEXT, duration_ms FLOAT NOT NULL,
    thread_id TEXT, run_id TEXT, tool_call_id TEXT, created_at DATETIME NOT NULL,
    PRIMARY KEY (id)
);
CREATE INDEX ix_tool_invocation_facts ON tool_invocation (
    created_at, status, retrieval_layer, l1_status, duration_ms,
    json_extract(retrieval_details, '$.filter.category'),
    json_extract(retrieval_details, '$.filter.relaxed'),
    json_extract(retrieval_details, '$.relevance.level'),
    json_extract(retrieval_details, '$.scope')
);
CREATE INDEX ix_tool_invocation_created_at ON tool_invocation (created_at);
INSERT INTO tool_invocation VALUES (
    'old', 'lookup_knowledge', '退款 🚀', 'ok', 'L0+L1', '{"matches": [{"entry_id": "a.md"}]}',
    'ok', 1, 'a.md', 3.5, 't1', NULL, NULL, '2026-01-02 03:04:05.678900'
);
"""
"""What version 0.1 wrote."""
POSTGRES_0_1 = (
    SQLITE_0_1.replace("PRAGMA journal_mode = WAL;", "")
    .replace("JSON NOT", "JSONB NOT")
    .replace("DATETIME", "TIMESTAMP WITH TIME ZONE")
    .replace("05.678900'", "05.678900+00'")
)
OLD = {
    **INVOCATION,
    "id": "old",
    "query": "退款 🚀",
    "retrieval_details": {"matches": [{"entry_id": "a.md"}]},
    "thread_id": "t1",
    "run_id": None,
    "tool_call_id": None,
}
ALL = {migration.number for migration in MIGRATIONS}


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)])
def older(request, tmp_path):
    """The URL of a database of version 0.1 with one row."""
    if request.param == "sqlite":
        with closing(sqlite3.connect(tmp_path / "calls.db")) as connection:
            connection.executescript(SQLITE_0_1)
        yield f"sqlite:///{tmp_path / 'calls.db'}"
        return
    url = request.getfixturevalue("postgres")
    start = POSTGRES_0_1.index("CREATE INDEX ix_tool_invocation_facts")
    end = POSTGRES_0_1.index("CREATE INDEX ix_tool_invocation_created")
    engine = sa.create_engine(url)
    with engine.begin() as connection:
        connection.exec_driver_sql(
            "DROP TABLE IF EXISTS tool_invocation, tool_invocation_migration, "
            "tool_feedback, tool_gap"
        )
        connection.exec_driver_sql(POSTGRES_0_1[:start] + POSTGRES_0_1[end:])
    engine.dispose()
    yield url
    table.metadata.drop_all(engine)
    engine.dispose()


def added_by_migrations(url):
    """Return the names that migrations add to a table of version 0.1."""
    indexes = [[facts_index.name], [undated_index.name]] if url.startswith("sqlite") else [[], []]
    return [*indexes[0], "tool_feedback", "tool_gap", *indexes[1]]


def applied(url):
    engine = sa.create_engine(url)
    with engine.connect() as connection:
        found = set(connection.execute(sa.select(table.applied_migrations.c.number)).scalars())
    engine.dispose()
    return found


def schema(url):
    """Return the columns, their kinds, and the indexes of a table, as SQLAlchemy sees them."""
    engine = sa.create_engine(url)
    inspector = sa.inspect(engine)
    columns = {
        column["name"]: (str(column["type"]), column["nullable"])
        for column in inspector.get_columns("tool_invocation")
    }
    with engine.connect() as connection:
        names = set()
        if engine.dialect.name == "sqlite":
            listed = "SELECT name, sql FROM sqlite_master WHERE type = 'index' AND sql NOT NULL"
            names = {tuple(row) for row in connection.exec_driver_sql(listed)}
    engine.dispose()
    return columns, names


def test_an_older_database_is_migrated_and_keeps_its_rows(older):
    with closing(SQLInvocationRecorder(older)) as recorder:
        assert recorder.record(INVOCATION) == "stored"
        added = recorder.migrate()
        assert recorder.migrate() == []
        assert recorder.invocations() == [INVOCATION, OLD]
    assert added == added_by_migrations(older)
    assert applied(older) == ALL


def test_the_former_index_is_replaced(tmp_path):
    url = f"sqlite:///{tmp_path / 'calls.db'}"
    with closing(SQLInvocationRecorder(url)) as recorder:
        assert recorder.record(INVOCATION) == "stored"
    with closing(sqlite3.connect(tmp_path / "calls.db")) as connection:
        connection.execute(f"DROP INDEX {facts_index.name}")
        connection.execute("CREATE INDEX ix_tool_invocation_details ON tool_invocation (status)")
        connection.execute("DELETE FROM tool_invocation_migration WHERE number = 4")
        connection.commit()
    with closing(SQLInvocationRecorder(url)) as recorder:
        assert recorder.migrate() == [facts_index.name]
        assert recorder.migrate() == []
        assert recorder.invocations() == [INVOCATION]
    assert "ix_tool_invocation_details" not in str(schema(url))


def test_a_migrated_database_has_the_schema_of_a_new_one(older, tmp_path):
    with closing(SQLInvocationRecorder(older)) as recorder:
        recorder.migrate()
    if older.startswith("sqlite"):
        new = f"sqlite:///{tmp_path / 'new.db'}"
        with closing(SQLInvocationRecorder(new)) as recorder:
            recorder.record(INVOCATION)
        assert schema(older) == schema(new)
        assert applied(new) == ALL
    else:
        migrated = schema(older)
        engine = sa.create_engine(older)
        table.metadata.drop_all(engine)
        engine.dispose()
        with closing(SQLInvocationRecorder(older)) as recorder:
            recorder.record(INVOCATION)
        assert migrated == schema(older)


def test_a_lookup_does_not_wait_for_a_slow_migration_and_the_history_applies_it(older):
    with closing(SQLInvocationRecorder(older)) as recorder:
        assert recorder.record(INVOCATION) == "stored"
        assert not recorder.read(
            lambda connection: sa.inspect(connection).has_table("tool_invocation_migration")
        )
        history = History(recorder)
        assert len(history.lookups(Selection())) == 2
    assert applied(older) == ALL


def test_an_automatic_migration_is_applied_by_the_first_lookup(older, monkeypatch):
    def add_price(connection):
        connection.exec_driver_sql("ALTER TABLE tool_invocation ADD COLUMN price REAL")
        return ["price"]

    monkeypatch.setattr(table, "MIGRATIONS", (*MIGRATIONS, Migration(99, "price", add_price)))
    with closing(SQLInvocationRecorder(older)) as recorder:
        assert recorder.record(INVOCATION) == "stored"
        assert applied(older) == {99}
        recorder.migrate()
        assert applied(older) == {*ALL, 99}
    assert "price" in schema(older)[0]


def test_a_migration_that_fails_changes_nothing(older, monkeypatch):
    def fail(connection):
        connection.exec_driver_sql("ALTER TABLE tool_invocation ADD COLUMN price REAL")
        connection.exec_driver_sql("ALTER TABLE nowhere ADD COLUMN price REAL")
        return []

    before = schema(older)
    monkeypatch.setattr(table, "MIGRATIONS", (*MIGRATIONS, Migration(99, "price", fail, False)))
    with closing(SQLInvocationRecorder(older)) as recorder:
        with pytest.raises(RecordError, match="cannot be migrated"):
            recorder.migrate()
        assert schema(older) == before
        assert recorder.invocations() == [OLD]


def test_a_newer_database_is_refused_in_one_line_and_its_records_wait(older, monkeypatch):
    newest = (*MIGRATIONS, Migration(99, "newer", lambda connection: []))
    with monkeypatch.context() as newer, closing(SQLInvocationRecorder(older)) as recorder:
        newer.setattr(table, "MIGRATIONS", newest)
        recorder.migrate()
    with closing(SQLInvocationRecorder(older)) as recorder:
        assert recorder.record(INVOCATION) == "spooled"
        for use in (recorder.invocations, recorder.migrate, lambda: History(recorder)):
            with pytest.raises(RecordError, match=r"newer version .* \(migration 99\): upgrade"):
                use()
        monkeypatch.setattr(table, "MIGRATIONS", newest)
        recorder._deliver_from = 0.0
        assert len(recorder.invocations()) == 2
        assert recorder.waiting() == 0


WORKER = """
import sys
from langchain_lookup_knowledge import SQLInvocationRecorder
recorder = SQLInvocationRecorder(sys.argv[1])
print("ready", flush=True)
sys.stdin.readline()
print(recorder.migrate(), flush=True)
recorder.close()
"""


@pytest.mark.process
@pytest.mark.parametrize("exists", [True, False], ids=["older", "new"])
def test_processes_that_migrate_at_the_same_time_do_it_once(older, exists):
    if not exists:
        engine = sa.create_engine(older)
        table.metadata.drop_all(engine)
        engine.dispose()
    command = [sys.executable, "-c", WORKER, older]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    workers = [subprocess.Popen(command, text=True, **pipes) for _ in range(3)]
    for worker in workers:
        assert worker.stdout.readline() == "ready\n"
    for worker in workers:
        worker.stdin.write("go\n")
        worker.stdin.flush()
    ends = [worker.communicate(timeout=60) for worker in workers]
    assert [errors for _, errors in ends] == ["", "", ""]
    lines = sorted(out for out, _ in ends)
    once = [f"{added_by_migrations(older)}\n"] if exists else ["[]\n"]
    assert lines == sorted(["[]\n", "[]\n", *once])
    assert applied(older) == ALL
    with closing(SQLInvocationRecorder(older)) as recorder:
        assert recorder.invocations() == ([OLD] if exists else [])


def test_a_database_that_may_only_be_read_is_read_as_it_is(tmp_path):
    with closing(sqlite3.connect(tmp_path / "calls.db")) as connection:
        connection.executescript(SQLITE_0_1)
    with closing(
        SQLInvocationRecorder(f"sqlite:///file:{tmp_path}/calls.db?mode=ro&uri=true")
    ) as recorder:
        assert recorder.invocations() == [OLD]
        assert History(recorder).overview(Selection())["statuses"] == {"ok": 1}


@pytest.mark.postgres
@pytest.mark.parametrize("change", [False, True], ids=["as it is", "automatic"])
def test_a_login_that_may_not_create_tables_records(postgres, monkeypatch, change):  # noqa: F811
    if change:
        made = Migration(99, "note", lambda connection: [])
        monkeypatch.setattr(table, "MIGRATIONS", (*MIGRATIONS, made))
    engine = sa.create_engine(postgres)
    table.metadata.drop_all(engine)
    start = POSTGRES_0_1.index("CREATE INDEX ix_tool_invocation_facts")
    end = POSTGRES_0_1.index("CREATE INDEX ix_tool_invocation_created")
    with engine.begin() as connection:
        connection.exec_driver_sql(POSTGRES_0_1[:start] + POSTGRES_0_1[end:])
        connection.exec_driver_sql("DROP ROLE IF EXISTS writer")
        connection.exec_driver_sql("CREATE ROLE writer LOGIN")
        connection.exec_driver_sql("GRANT SELECT, INSERT ON tool_invocation TO writer")
    with closing(SQLInvocationRecorder(postgres.replace("owner@", "writer@"))) as recorder:
        assert recorder.record(invocation(1)) == "stored"
        assert len(History(recorder).lookups(Selection())) == 2
    with engine.begin() as connection:
        connection.exec_driver_sql("DROP OWNED BY writer")
        connection.exec_driver_sql("DROP ROLE writer")
    table.metadata.drop_all(engine)
    engine.dispose()


def test_an_older_table_in_the_place_of_a_migrated_one_is_migrated(tmp_path):
    with closing(SQLInvocationRecorder.in_file(tmp_path / "calls.db")) as recorder:
        recorder.migrate()
        with closing(sqlite3.connect(tmp_path / "calls.db")) as connection:
            connection.execute("DROP TABLE tool_invocation")
            connection.execute("CREATE TABLE tool_invocation (id TEXT PRIMARY KEY, name TEXT)")
        assert "query" in recorder.migrate()
        assert recorder.record(INVOCATION) == "stored"


BODY = "id, tool_name, query, status, retrieval_layer, retrieval_details, l1_status"
ENDLESS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i FROM n"
PREPARED = {
    "a trigger": "CREATE TRIGGER t AFTER INSERT ON tool_invocation BEGIN "
    "DELETE FROM tool_invocation; END",
    "an endless trigger": f"CREATE TRIGGER t BEFORE INSERT ON tool_invocation BEGIN {ENDLESS}; END",
    "a view": "ALTER TABLE tool_invocation RENAME TO other; "
    f"CREATE VIEW tool_invocation AS SELECT * FROM other, ({ENDLESS})",
    "a trigger on the migrations": "CREATE TRIGGER t AFTER INSERT ON tool_invocation_migration "
    "BEGIN SELECT 1; END",
    "a computed index": "CREATE INDEX i ON tool_invocation (length(hex(zeroblob(100000000))))",
    "a partial index": "CREATE INDEX i ON tool_invocation (id) WHERE length(query) > 3",
    "a generated column": "ALTER TABLE tool_invocation ADD COLUMN g AS (upper(query))",
    "a check": "DROP TABLE tool_invocation; CREATE TABLE tool_invocation (id TEXT PRIMARY KEY, "
    "query TEXT CHECK (length(hex(zeroblob(100000000))) > 0))",
}


@pytest.mark.parametrize("prepared", PREPARED)
def test_a_prepared_database_is_refused(tmp_path, prepared):
    file = tmp_path / "calls.db"
    SQLInvocationRecorder.in_file(file).record(INVOCATION)
    with closing(sqlite3.connect(file)) as connection:
        connection.executescript(PREPARED[prepared])
    recorder = SQLInvocationRecorder.in_file(file)
    assert recorder.record({**INVOCATION, "id": "i2"}) == "spooled"
    for call in (recorder.invocations, recorder.migrate):
        with pytest.raises(RecordError, match="the record database is refused, because"):
            call()
    recorder.close()


def test_tables_and_triggers_of_its_owner_are_left_alone(tmp_path):
    file = tmp_path / "calls.db"
    with closing(sqlite3.connect(file)) as connection:
        connection.executescript(
            "CREATE TABLE mine (n CHECK (n > 0)); CREATE VIEW v AS SELECT n FROM mine;"
            "CREATE TRIGGER t AFTER INSERT ON mine BEGIN SELECT 1; END"
        )
    recorder = SQLInvocationRecorder.in_file(file)
    assert recorder.record(INVOCATION) == "stored"
    recorder.close()


def test_an_endless_statement_is_interrupted(tmp_path, monkeypatch):
    monkeypatch.setattr(database, "STEPS", 1000)
    recorder = SQLInvocationRecorder.in_file(tmp_path / "calls.db")
    recorder.record(INVOCATION)
    endless = sa.text(f"SELECT count(*) FROM ({ENDLESS})")
    with pytest.raises(RecordError, match="interrupted"):
        recorder._database.run("read", lambda connection: connection.execute(endless).all(), 0.1)
    recorder.close()
