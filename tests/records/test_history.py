"""What the records tell, in SQLite and in a real PostgreSQL."""

import os
import shutil
import subprocess
import tempfile
from collections import Counter
from datetime import date, timedelta
from pathlib import Path

import pytest
import sqlalchemy as sa
from parts.invocations import START, invocation, read_call

from langchain_lookup_knowledge import SQLInvocationRecorder
from langchain_lookup_knowledge.records import feedback
from langchain_lookup_knowledge.records.history import History
from langchain_lookup_knowledge.records.rows import can_be_compared, is_read
from langchain_lookup_knowledge.records.selection import Selection
from langchain_lookup_knowledge.records.table import facts_index, tool_invocation

ALL = Selection()


@pytest.fixture(scope="module")
def postgres():
    """The URL of a PostgreSQL of its own, run by a user other than root."""
    places = sorted(Path("/usr/lib/postgresql").glob("*/bin/pg_ctl"))
    program = places[-1] if places else shutil.which("pg_ctl")
    if not program:
        pytest.skip("PostgreSQL is not installed")
    folder = Path(tempfile.mkdtemp(prefix="lookup-knowledge-"))
    other = {"user": "nobody"} if os.getuid() == 0 else {}
    if other:
        shutil.chown(folder, "nobody")

    def run(*arguments):
        subprocess.run(
            [program, *arguments], check=True, stdout=subprocess.DEVNULL, cwd=folder, **other
        )

    run("init", "-D", folder / "data", "-o", "-U owner -A trust -N")
    options = f"-k {folder} -c listen_addresses='' -c fsync=off"
    run("start", "-w", "-D", folder / "data", "-l", folder / "log", "-o", options)
    yield f"postgresql+psycopg://owner@/postgres?host={folder}"
    run("stop", "-m", "immediate", "-D", folder / "data")
    shutil.rmtree(folder)


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)])
def recorder(request, tmp_path):
    if request.param == "sqlite":
        made = SQLInvocationRecorder(f"sqlite:///{tmp_path / 'calls.db'}")
    else:
        pytest.importorskip("psycopg")
        made = SQLInvocationRecorder(request.getfixturevalue("postgres"))
        made.read(lambda connection: connection.execute(sa.delete(tool_invocation)))
    yield made
    made.close()


def record(recorder, *invocations):
    for made in invocations:
        recorder.record(made)
    return History(recorder)


def test_an_overview_counts_what_there_is(recorder):
    fired, relaxed = {"category": "it", "relaxed": False}, {"category": "it", "relaxed": True}
    low = {"level": "low"}
    history = record(
        recorder,
        *(invocation(number) for number in range(1, 21)),
        invocation(21, filter=fired),
        invocation(22, filter=fired, relevance=low),
        invocation(23, filter=relaxed),
        invocation(24, status="degraded", retrieval_layer="L0", l1_status="timeout", relevance=low),
        invocation(25, status="no_match", retrieval_layer="none", relevance={"level": "none"}),
    )
    found = history.overview(ALL)
    assert found["statuses"] == {"ok": 23, "degraded": 1, "no_match": 1}
    assert found["layers"] == {"L0+L1": 23, "L0": 1, "none": 1}
    assert found["l1"] == {"ok": 24, "timeout": 1}
    assert found["levels"] == {"high": 22, "low": 2, "none": 1}
    assert found["filter"] == {"fired": 3, "kept": 2, "relaxed": 1}
    assert sum(claims.get("high", 0) for claims in found["claims"].values()) == 22
    assert found["latency"] == {"median": 13.0, "p95": 24.0}


def test_calls_of_the_read_tool_are_counted_and_listed_apart(recorder):
    gone = {"status": "no_match", "retrieval_layer": "none", "relevance": {"level": "none"}}
    skipped = {"retrieval_layer": "none", "l1_status": "skipped"}
    refused = invocation(4, status="refused", relevance={"level": "none"}, **skipped)
    cancelled = read_call(5, status="cancelled")
    truncated = read_call(6, status="refused", retrieval_details={"truncated": True})
    older = read_call(7, status="refused", retrieval_details={"matches": [], "l0_hints": {}})
    history = record(
        recorder,
        invocation(1),
        invocation(2, l1_status="timeout", **gone),
        invocation(3, l1_status="empty", **gone),
        refused,
        cancelled,
        truncated,
        older,
        read_call(8, duration_ms=1e6, scope={"tenant": "north"}),
        read_call(9, status="no_match"),
        read_call(10, status="refused"),
        read_call(11, status="invalid_query", created_at=START.isoformat()),
    )
    found = history.overview(ALL)
    assert (found["reads"], sum(found["statuses"].values())) == (4, 7)
    assert found["missed"] == {"timeout": 1}
    assert found["latency"]["p95"] == 7.0
    assert found["levels"] == {"high": 1, "none": 3, "unknown": 3}
    reads = [row["id"] for row in history.lookups(Selection(reads=True))]
    assert reads == ["i0010", "i0009", "i0008", "i0011"]
    assert {row["id"] for row in history.lookups(ALL)} == {f"i000{n}" for n in range(1, 8)}
    assert len(history.asked(ALL, limit=100)) == 7
    assert history.overview(Selection(since=(START + timedelta(days=1)).date()))["reads"] == 0
    everything = recorder.invocations(limit=100)
    assert {row["id"] for row in everything if is_read(row)} == set(reads)


def test_rows_whose_details_are_damaged_are_not_taken_for_reads(recorder):
    history = record(recorder, read_call(1), read_call(2), read_call(3))
    damaged = "'\"x\"'" if history._dialect == "postgresql" else "'{'"
    for number, column, value in (
        (1, "retrieval_details", damaged),
        (2, "retrieval_layer", "'?'"),
    ):
        change = f"UPDATE tool_invocation SET {column} = {value} WHERE id = 'i000{number}'"
        recorder.read(lambda connection, change=change: connection.execute(sa.text(change)))
    assert history.overview(ALL)["reads"] == 1
    assert [is_read(row) for row in history.invocations(["i0001", "i0002", "i0003"])] == [
        False,
        False,
        True,
    ]
    assert len(history.lookups(ALL)) == 2


@pytest.mark.parametrize(
    ("hours", "unit", "first", "columns"),
    [
        (1, "hour", "2026-03-01 00", 24),
        (24, "day", "2026-03-01", 10),
        (24 * 20, "month", "2026-03", 6),
    ],
)
def test_the_unit_of_time_fits_the_period(recorder, hours, unit, first, columns):
    moments = (START + timedelta(hours=hours * number) for number in range(10))
    rows = (
        invocation(number, created_at=moment.isoformat()) for number, moment in enumerate(moments)
    )
    found = record(recorder, *rows).overview(ALL)
    assert found["unit"] == unit
    assert min(found["time"]) == first
    assert len(found["time"]) == columns
    assert sum(parts["L0+L1"] for parts in found["time"].values()) == 10


def test_units_in_which_nothing_was_asked_are_there(recorder):
    days = (START, START + timedelta(days=6))
    rows = (invocation(number, created_at=moment.isoformat()) for number, moment in enumerate(days))
    time = record(recorder, *rows).overview(ALL)["time"]
    assert list(time) == [f"2026-03-0{day}" for day in range(1, 8)]
    assert [sum(parts.values()) // 2 for parts in time.values()] == [1, 0, 0, 0, 0, 0, 1]


def test_an_empty_database_is_an_overview_of_nothing(recorder):
    history = History(recorder)
    assert history.overview(ALL)["statuses"] == {}
    assert history.overview(ALL)["latency"] == {}
    assert history.lookups(ALL) == history.filters(ALL) == history.common_terms(ALL) == []
    assert history.newest_answers(5) == ([], 0)


def test_days_are_whole_days_in_utc(recorder):
    history = record(recorder, *(invocation(number) for number in range(72)))
    day = Selection(since=date(2026, 3, 2), until=date(2026, 3, 2))
    assert sum(history.overview(day)["statuses"].values()) == 24
    assert {str(row["created_at"])[:10] for row in history.lookups(day)} == {"2026-03-02"}
    assert len(history.lookups(Selection(until=date.max), limit=100)) == 72


def test_filters_of_the_list(recorder):
    history = record(
        recorder,
        invocation(1),
        invocation(2, status="no_match", retrieval_layer="none"),
        invocation(3, query="100% of REFUNDS_due", thread_id="other"),
    )

    def ids(**selection):
        return [row["id"] for row in history.lookups(Selection(**selection))]

    assert ids() == ["i0003", "i0002", "i0001"]
    assert ids(status="no_match") == ids(layer="none") == ["i0002"]
    assert (
        ids(thread="other")
        == ids(text="refunds")
        == ids(text="100%")
        == ids(text="s_d")
        == ["i0003"]
    )
    assert ids(text="1_0") == ids(text="%x") == ids(thread="oth") == []


def test_pages_follow_each_other_and_miss_nothing_also_at_one_moment(recorder):
    moment = START.isoformat()
    history = record(recorder, *(invocation(number, created_at=moment) for number in range(7)))
    seen, before = [], ""
    while page := history.lookups(ALL, before=before, limit=3):
        record(recorder, invocation(100 + len(seen)))  # a newer one does not shift the pages
        seen += [row["id"] for row in page]
        before = seen[-1]
    assert seen == [f"i{number:04}" for number in range(6, -1, -1)]


def test_a_long_query_is_cut_in_lists_and_whole_by_itself(recorder):
    history = record(recorder, invocation(1, query="x" * 5000))
    assert history.lookups(ALL)[0]["short_query"] == "x" * 300
    assert history.invocation("i0001")["query"] == "x" * 5000
    assert history.invocation("i0002") is None


@pytest.mark.parametrize(
    ("chosen", "found"),
    [
        ({"level": "low"}, "i0003 i0002"),
        ({"l1": "timeout"}, "i0003"),
        ({"status": "unanswered"}, "i0004"),
        ({"filtered": "fired"}, "i0006 i0005"),
        ({"filtered": "kept"}, "i0005"),
        ({"filtered": "relaxed"}, "i0006"),
        ({"slow": 6.0}, "i0007 i0006"),
        ({"judged": "right"}, "i0001"),
        ({"judged": "wrong"}, "i0002"),
    ],
)
def test_each_figure_leads_to_its_lookups(recorder, chosen, found):
    fired = {"category": "it", "reason": "single_domain", "relaxed": False}
    low = {"level": "low"}
    history = record(
        recorder,
        invocation(1),
        invocation(2, relevance=low),
        invocation(3, status="degraded", retrieval_layer="L0", l1_status="timeout", relevance=low),
        invocation(4, status="no_match", retrieval_layer="none", relevance={"level": "none"}),
        invocation(5, filter=fired),
        invocation(6, filter={**fired, "relaxed": True}),
        invocation(7, status="ok"),
    )
    feedback.give(recorder, "i0001", right=True)
    feedback.give(recorder, "i0002", right=False)
    selection = Selection(**chosen)
    assert [row["id"] for row in history.lookups(selection)] == found.split()
    counts = history.overview(selection)
    assert sum(counts["statuses"].values()) == len(found.split())
    assert history.overview(ALL)["feedback"] == {"right": 1, "wrong": 1}


def test_filters_entries_and_terms_are_counted(recorder):
    common = {
        "text": "docker",
        "field": "keywords",
        "document_frequency": 9,
        "specific": False,
        "reason": "common: appears in 9 of 9",
    }
    rare = {
        "text": "E-1",
        "field": "keywords",
        "document_frequency": 1,
        "specific": True,
        "reason": "appears in 1 of 9 entries",
    }
    history = record(
        recorder,
        invocation(
            1, l0_hints={"terms": [common, rare]}, filter={"category": "it", "relaxed": True}
        ),
        invocation(2, l0_hints={"terms": [common]}, filter={"category": "it"}),
        invocation(
            3, matches=[{"entry_id": "b.md"}, {"entry_id": "c.md"}], filter={"category": "hr"}
        ),
        invocation(4, matches=[]),
    )
    assert history.filters(ALL) == [
        {"category": "it", "fired": 2, "relaxed": 1},
        {"category": "hr", "fired": 1, "relaxed": 0},
    ]
    assert history.found_entries(ALL) == {"a.md", "b.md", "c.md"}
    assert history.common_terms(ALL) == [
        {"text": "docker", "field": "keywords", "times": 2, "document_frequency": 9}
    ]


def test_a_scope_sees_its_rows_alone(recorder):
    record(
        recorder,
        invocation(1),
        invocation(2, scope={"tenant": "north"}),
        invocation(3, scope={"tenant": "south"}),
        invocation(4, scope={"team": "a", "tenant": "north"}),
        invocation(5, scope={"tenant": ["north"]}),
        invocation(6, scope={"tenant": "nor'th", 'a"b': "x"}),
        invocation(7, scope="north"),
    )

    def ids(**scope):
        return [row["id"] for row in History(recorder, scope).lookups(ALL)]

    assert ids(tenant="north") == ["i0002"]
    assert ids(tenant="north", team="a") == ["i0004"]
    assert ids(**{"tenant": "nor'th", 'a"b': "x"}) == ["i0006"]
    assert ids(tenant="east") == ids(other="north") == ids(tenant="") == []
    assert len(ids()) == 7
    everything = History(recorder)
    assert [row["scope"] for row in everything.lookups(ALL)] == [
        {"?": "north"},  # no object, but never taken for no scope
        {"tenant": "nor'th", 'a"b': "x"},
        {"tenant": '["north"]'},
        {"team": "a", "tenant": "north"},
        {"tenant": "south"},
        {"tenant": "north"},
        {},
    ]
    asked = everything.asked(ALL, limit=9)
    assert [row["scope"] for row in asked] == [row["scope"] for row in everything.lookups(ALL)]
    north = History(recorder, {"tenant": "north"})
    assert north.invocation("i0002")["retrieval_details"]["scope"] == {"tenant": "north"}
    assert (
        north.invocation("i0003") is north.invocation("i0001") is north.invocation("i0004") is None
    )
    assert sum(north.overview(ALL)["statuses"].values()) == 1
    assert north.overview(ALL)["latency"] == {"median": 2.0, "p95": 2.0}
    assert north.found_entries(ALL) == {"a.md"}
    assert [row["id"] for row in north.newest_answers(9)[0]] == ["i0002"]


def test_the_newest_answer_of_each_query_that_can_be_held_against_another(recorder):
    history = record(
        recorder,
        invocation(1, query="a"),
        invocation(2, query="b"),
        invocation(3, query="a", status="no_match"),
        invocation(4, query="b", status="degraded", l1_status="timeout"),
        invocation(5, query="c", status="degraded", l1_status="failed"),
        invocation(6, query="d", status="no_match", l1_status="unavailable"),
        invocation(7, query="", status="invalid_query", l1_status="skipped"),
        invocation(8, query="sha256:" + 64 * "0"),
    )
    rows, left_out = history.newest_answers(10)
    assert [row["id"] for row in rows] == ["i0003", "i0002"]
    assert left_out == 4
    comparable = [row["query"] for row in recorder.invocations(limit=99) if can_be_compared(row)]
    assert set(comparable) == {row["query"] for row in rows}
    assert [row["id"] for row in history.newest_answers(1)[0]] == ["i0003"]


def test_the_counts_are_those_of_python(recorder):
    levels = ("high", "medium", "low", "none")
    rows = [
        invocation(number, relevance={"level": levels[number * 7 % 4]}) for number in range(200)
    ]
    found = record(recorder, *rows).overview(ALL)
    assert found["levels"] == Counter(
        row["retrieval_details"]["relevance"]["level"] for row in rows
    )
    assert {day: parts["ok"] for day, parts in found["time"].items()} == Counter(
        row["created_at"][:10] for row in rows
    )


def test_an_older_database_gets_the_index_and_reads_no_details_for_an_overview(tmp_path):
    recorder = SQLInvocationRecorder(f"sqlite:///{tmp_path / 'calls.db'}")
    record(recorder, invocation(1))
    for statement in (f"DROP INDEX {facts_index.name}", "DROP TABLE tool_invocation_migration"):
        recorder.read(lambda connection, made=statement: connection.execute(sa.text(made)))
    history = History(recorder)
    plan = sa.text(
        "EXPLAIN QUERY PLAN "
        + str(history._counts(ALL, 10, START).compile(compile_kwargs={"literal_binds": True}))
    )
    assert any(
        facts_index.name in str(row)
        for row in recorder.read(lambda connection: connection.execute(plan).all())
    )
    recorder.close()


def test_what_was_asked_is_read_from_the_index_alone(tmp_path):
    recorder = SQLInvocationRecorder(f"sqlite:///{tmp_path / 'calls.db'}")
    record(recorder, invocation(1, query="vpn"), invocation(2, query="leave " * 100))
    asked = History(recorder).asked(ALL, limit=9)
    assert [(row["id"], row["status"], row["l1_status"], row["level"]) for row in asked] == [
        (number, "ok", "ok", "high") for number in ("i0002", "i0001")
    ]
    assert [len(row["short_query"]) for row in asked] == [300, 3]
    searched = str(
        sa.select(tool_invocation.c.id)
        .where(tool_invocation.c.query.icontains("vpn"))
        .compile(compile_kwargs={"literal_binds": True})
    ).replace("tool_invocation \n", f"tool_invocation INDEXED BY {facts_index.name} \n")
    plan = sa.text(f"EXPLAIN QUERY PLAN {searched}")
    assert "COVERING INDEX" in str(recorder.read(lambda connection: connection.execute(plan).all()))
    assert [row["id"] for row in History(recorder).lookups(Selection(text="VPN"))] == ["i0001"]
    recorder.close()


@pytest.mark.parametrize("judged", ["right", "wrong"])
def test_a_read_only_database_without_feedback_has_no_judged_lookups(tmp_path, judged):
    path = tmp_path / "calls.db"
    recorder = SQLInvocationRecorder(f"sqlite:///{path}")
    record(recorder, invocation(1))
    for statement in (
        "DROP TABLE tool_feedback",
        "DELETE FROM tool_invocation_migration WHERE number = 3",
    ):
        recorder.read(lambda connection, made=statement: connection.execute(sa.text(made)))
    recorder.close()
    read_only = SQLInvocationRecorder(f"sqlite:///file:{path}?mode=ro&uri=true")
    history = History(read_only)
    assert len(history.lookups(ALL)) == 1
    assert history.lookups(Selection(judged=judged)) == []
    assert history.overview(Selection(judged=judged))["statuses"] == {}
    read_only.close()


def test_a_database_that_cannot_be_written_is_read_without_the_index(tmp_path):
    path = tmp_path / "calls.db"
    recorder = SQLInvocationRecorder(f"sqlite:///{path}")
    record(recorder, invocation(1))
    recorder.read(lambda connection: connection.execute(sa.text(f"DROP INDEX {facts_index.name}")))
    recorder.close()
    read_only = SQLInvocationRecorder(f"sqlite:///file:{path}?mode=ro&uri=true")
    history = History(read_only)
    assert history.overview(ALL)["statuses"] == {"ok": 1}
    assert [row["id"] for row in history.lookups(ALL)] == ["i0001"]
    read_only.close()


def test_a_query_in_two_scopes_has_two_newest_answers(recorder):
    history = record(
        recorder,
        invocation(1, query="a", scope={"tenant": "north"}),
        invocation(2, query="a", scope={"tenant": "south"}),
        invocation(3, query="a", scope={"tenant": "south"}),
        invocation(4, query="a", scope={"tenant": "east"}, status="refused", l1_status="skipped"),
        invocation(5, query="a"),
    )
    rows, left_out = history.newest_answers(10)
    assert ([row["id"] for row in rows], left_out) == (["i0005", "i0003", "i0001"], 1)


def test_lookups_without_a_duration_have_no_part_in_its_percentiles(tmp_path):
    recorder = SQLInvocationRecorder(f"sqlite:///{tmp_path / 'calls.db'}")
    older = "CREATE TABLE tool_invocation (id TEXT PRIMARY KEY, query TEXT, created_at DATETIME)"
    with recorder._database.engine.begin() as connection:
        connection.execute(sa.text(older))
        rows = (
            "(1, 'a', '2026-01-01 00:00:00'), (2, 'b', '2026-01-02 00:00:00'), (3, "
            "'c', '2026-01-03 00:00:00')"
        )
        connection.execute(sa.text(f"INSERT INTO tool_invocation VALUES {rows}"))
    recorder.migrate()
    recorder.record(invocation(4, duration_ms=7.0))
    found = History(recorder).overview(ALL)
    assert (sum(found["statuses"].values()), found["latency"]) == (4, {"median": 7.0, "p95": 7.0})
    recorder.close()
