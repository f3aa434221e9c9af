"""Odd rows among good ones: every reader shows what it can, and never fails because of them."""

import json
import re
import shutil
import sqlite3
from contextlib import closing
from datetime import UTC, datetime

import pytest
import sqlalchemy as sa
from conftest import FILES, WordEmbeddings, write_files
from starlette.testclient import TestClient
from test_history import invocation, postgres  # noqa: F401  (a fixture)

from langchain_lookup_knowledge import (
    KnowledgeBase,
    SQLInvocationRecorder,
    create_lookup_knowledge_graph,
)
from langchain_lookup_knowledge.inspector.app import Inspector
from langchain_lookup_knowledge.integrations.cli import main
from langchain_lookup_knowledge.records.history import History
from langchain_lookup_knowledge.records.rows import readable_details, unreadable
from langchain_lookup_knowledge.records.selection import Selection
from langchain_lookup_knowledge.records.table import facts_index
from langchain_lookup_knowledge.replay import replay
from langchain_lookup_knowledge.text.storable import storable

QUERY = "how is the odd row read?"
GOOD = invocation(1, id="odd", query=QUERY)["retrieval_details"]
TERM = {"text": "vpn", "field": "title", "span": [0, 3], "kind": "exact", "files": 9,
        "specific": False, "domains": [], "reason": "common"}  # fmt: skip


def details(**changes):
    return json.dumps({**GOOD, **changes})


PARTS = ("l0_hints", "filter", "l1", "candidates", "matches", "relevance", "steps", "scope",
         "options", "hidden", "unreadable")  # fmt: skip
VALUES = {"null": None, "a text": "x", "a number": 7, "a list": ["x"], "numbers": [1],
          "lists": [[]], "an object": {"x": "y"}, "objects": [{"x": 1}], "true": True,
          "nested": {"level": {}}}  # fmt: skip
ODD_DETAILS = {
    **{
        f"{part} is {name}": details(**{part: value})
        for part in PARTS
        for name, value in VALUES.items()
    },
    "terms are odd": details(l0_hints={"terms": ["x", None, TERM, {**TERM, "span": "ab"},
        {**TERM, "span": [5, -1]}, {**TERM, "files": "many"}, {**TERM, "domains": "IT"}],
        "entries": ["x", {"entry_id": 5}, {"entry_id": "a.md", "domains": "IT"}], "domains": "IT"}),
    "ids are odd": details(matches=[{"entry_id": 5}, {"entry_id": None}, {"entry_id": "a.md"},
        {"entry_id": "a.md", "score": "high", "similarity": [], "layers": "L1"},
        {"entry_id": "a.md", "title": 5, "lines": [9, 3], "matched": "x", "shares": {"words": "x"},
         "passages": ["x", {"lines": "3", "digest": 7, "chars": "9"}]}]),
    "the passages are odd": details(matches=[{"entry_id": "a.md", "lines": [0, 0],
        "passages": {"x": 1}, "shares": [1], "matched": [5, {"field": "text"}, {"text": []}]}]),
    "the filter is odd": details(filter={"category": ["it"], "reason": 5, "relaxed": "yes"}),
    "the level is a number": details(relevance={"level": 3}),
    "the level is an object": details(relevance={"level": {"a": 1}}),
    "options are odd": details(options={"k": "five", "filter_mode": ["off"], "min_similarity": {}}),
    "the scope has a blank field": details(scope={" ": "north"}),
    "the scope has a number": details(scope={"tenant": 5}),
    "steps are odd": details(steps={"l0_hints": "fast", "choose_filter": 1}),
    "huge numbers": details(steps={"l0_hints": 10**400}, l1={"candidates": 10**30}),
    "a lone surrogate": details(relevance={"level": "low", "reason": "\ud800"}),
    "a list": "[]", "a text": '"x"', "a number": "5", "null": "null",
}  # fmt: skip
CUT = {
    "cut": details()[:100], "empty": "", "no JSON": "refund", "NaN": '{"l1": NaN}',
    "deep": "[" * 100_000, "not UTF-8": b'{"relevance": {"level": "caf\xe9"}}',
    "bytes": b"\xff\x00", "a number": 5,
}  # fmt: skip
ODD_COLUMNS = {
    "created_at": ["yesterday", "", "2026-02-30 00:00:00", "9998-01-01 00:00:00", b"\xff", 42,
        "0001-01-01 00:00:00", "9999-12-31 23:59:59", "2026-01-02T03:04:05Z"],
    "query": [b"caf\xe9", b"\xff\xfe", 42, ""],
    "id": [None, b"\xff", "", "a\u0000b"],
    "status": ["fine", b"\xff", 7, ""],
    "retrieval_layer": ["L7", b"\xff"],
    "l1_status": ["asleep", b"\xff"],
    "result_count": ["many", -5, 2**62, 1e300, b"x"],
    "duration_ms": ["fast", -1.0, 1e308, float("inf"), b"x"],
    "primary_entry_id": [b"\xff", 5],
    "thread_id": [b"\xff", 5],
}  # fmt: skip
GROUPS = {
    "details": [{"retrieval_details": value} for value in ODD_DETAILS.values()],
    "cut JSON": [{"retrieval_details": value} for value in CUT.values()],
    **{column: [{column: value} for value in values] for column, values in ODD_COLUMNS.items()},
}


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    """A knowledge folder with two good lookups, in a table without constraints."""
    folder = write_files(tmp_path_factory.mktemp("base") / "kb", FILES)
    with KnowledgeBase.open(folder, embedding=WordEmbeddings()) as kb:
        graph = create_lookup_knowledge_graph(kb)
        for query in ("install the vpn", "zebra"):
            graph.invoke({"query": query})
    return folder


@pytest.fixture
def folder(base, tmp_path, request):
    """The folder with odd rows as well, in a table of another program's making."""
    copy = shutil.copytree(base, tmp_path / "kb")
    with closing(sqlite3.connect(copy / ".lookup-knowledge/invocations.db")) as connection:
        connection.execute(f"DROP INDEX {facts_index.name}")
        connection.execute("DROP TABLE tool_invocation_migration")
        connection.execute("CREATE TABLE loose AS SELECT * FROM tool_invocation")
        connection.execute("DROP TABLE tool_invocation")
        connection.execute("ALTER TABLE loose RENAME TO tool_invocation")
        connection.execute("CREATE UNIQUE INDEX ids ON tool_invocation (id)")
        for number, change in enumerate(request.param):
            row = {**invocation(1, id=f"odd {number}", query=QUERY)}
            row |= {"created_at": "2026-03-01 12:00:00.000000", "retrieval_details": details()}
            row |= change
            names, marks = ", ".join(row), ", ".join("?" * len(row))
            connection.execute(
                f"INSERT INTO tool_invocation ({names}) VALUES ({marks})", list(row.values())
            )
        connection.commit()
    return copy


def opened(folder):
    return closing(SQLInvocationRecorder.in_file(folder / ".lookup-knowledge/invocations.db"))


@pytest.mark.parametrize(
    ("folder", "count"),
    [(rows, len(rows) + 2) for rows in GROUPS.values()],
    ids=GROUPS,
    indirect=["folder"],
)
@pytest.mark.slow
def test_odd_rows_stop_no_reader(folder, count, tmp_path, capsys):
    with opened(folder) as recorder:
        rows = recorder.invocations(limit=1000)
        assert len(rows) == count
        json.dumps(rows, allow_nan=False)
        history = History(recorder)
        overview = history.overview(Selection())
        listed = history.lookups(Selection(), limit=1000)
        assert sum(overview["statuses"].values()) + overview["undated"] == count
        assert len(listed) + overview["undated"] == count
        assert len(overview["time"]) < 250
        known = [row["id"] for row in listed if row["id"] and history.invocation(row["id"])]
        pages = [history.lookups(Selection(), before=one, limit=1000) for one in known]
        assert all(len(page) < len(listed) for page in pages)
        client = TestClient(
            Inspector(history, look_kb=lambda: KnowledgeBase.open(folder, index=None)).app(),
            base_url="http://127.0.0.1",
        )
        for path in ("/", "/lookups", "/gaps"):
            answer = client.get(path)
            assert answer.status_code == 200, answer.text
        for row in rows:
            for path in ("/lookup", "/lookup/json"):
                answer = client.get(path, params={"id": row["id"] or ""})
                found = history.invocation(storable(row["id"] or "")) is not None
                assert answer.status_code == (200 if found else 404), answer.text
        with KnowledgeBase.open(folder, embedding=WordEmbeddings()) as kb:
            answers, _ = history.newest_answers(1000)
            assert {row["query"] for row, _ in replay(kb, answers)} >= {"install the vpn", "zebra"}
    for command in (
        ["invocations"],
        ["invocations", "--json"],
        ["report", "--limit", "1000", "--out", "R"],
    ):
        given = [str(tmp_path / "report.html") if part == "R" else part for part in command]
        assert main([given[0], str(folder), *given[1:]]) == 0
    assert main(["invocations", str(folder), "--redact"]) == 0
    with opened(folder) as recorder:
        assert all(row["query"].startswith("sha256:") for row in recorder.invocations(limit=1000))
        assert recorder.redact() == 0
        recorder.prune(datetime(9999, 12, 31, tzinfo=UTC))
    assert not re.search("Traceback|Error", "".join(capsys.readouterr()))
    for file in (folder / ".lookup-knowledge").glob("invocations.db*"):
        assert file.is_dir() or QUERY.encode() not in file.read_bytes()


@pytest.mark.parametrize(
    ("folder", "column"),
    [
        ([{"created_at": "yesterday"}], "created_at"),
        ([{"retrieval_details": details()[:50]}], "retrieval_details"),
        ([{"duration_ms": "fast"}], "duration_ms"),
        ([{"retrieval_details": details(candidates=["x"])}], "candidates"),
    ],
    indirect=["folder"],
)
def test_what_cannot_be_read_is_shown_as_such(folder, column, capsys):
    assert main(["invocations", str(folder)]) == 0
    (line,) = [line for line in capsys.readouterr().out.splitlines() if "odd row" in line]
    assert f"(unreadable: {column})" in line
    with opened(folder) as recorder:
        inspector = Inspector(History(recorder))
        answer = TestClient(inspector.app(), base_url="http://127.0.0.1").get("/lookup?id=odd+0")
    assert f"<dt>Unreadable</dt><dd><bdi>{column}</bdi>" in answer.text
    assert ("readable time" in inspector.report(9)) == (column == "created_at")


@pytest.mark.parametrize("folder", [[{"query": b"caf\xe9 secret"}]], indirect=True)
def test_a_query_that_is_not_utf8_is_shown_with_replacements(folder, capsys):
    assert main(["invocations", str(folder)]) == 0
    assert "'caf\ufffd secret'" in capsys.readouterr().out


ODD_IN_POSTGRES = [
    "created_at = 'infinity'",
    "created_at = '-infinity'",
    "created_at = '0044-03-15 BC'",
    "created_at = '20000-01-01'",
    "created_at = '9998-01-01'",
    "duration_ms = 'NaN'",
    "duration_ms = 'Infinity'",
    "retrieval_details = '5'",
    "retrieval_details = 'null'",
    "retrieval_details = '[1]'",
    *(
        f"retrieval_details = '{text}'"
        for name, text in ODD_DETAILS.items()
        if "surrogate" not in name
    ),
]


@pytest.mark.postgres
def test_odd_rows_in_postgresql_stop_no_reader(postgres):  # noqa: F811
    with closing(SQLInvocationRecorder(postgres)) as recorder:
        recorder.migrate()
        recorder.read(lambda connection: connection.exec_driver_sql("DELETE FROM tool_invocation"))
        for number, change in enumerate(ODD_IN_POSTGRES):
            recorder.record(invocation(number))
            text = sa.text(
                f"UPDATE tool_invocation SET {change.replace(':', chr(92) + ':')} WHERE id = :id"
            )
            recorder.read(
                lambda connection, text=text, number=number: connection.execute(
                    text, {"id": f"i{number:04}"}
                )
            )
        rows = recorder.invocations(limit=1000)
        assert len(rows) == len(ODD_IN_POSTGRES)
        json.dumps(rows, allow_nan=False)
        history = History(recorder)
        overview = history.overview(Selection())
        assert overview["undated"] == 4
        assert sum(overview["statuses"].values()) == len(rows) - 4
        assert len(history.lookups(Selection(), limit=1000)) == len(rows) - 4
        assert len(overview["time"]) < 250
        report = Inspector(history).report(1000)
        assert report.count("<dt>Unreadable</dt>") > 50
        assert history.newest_answers(1000)[1] > 0
        assert recorder.redact() == len(rows)


def test_details_that_are_whole_are_read_as_they_are():
    read = readable_details(GOOD)
    assert {name: read[name] for name in GOOD if name != "l0_hints"} == {
        name: GOOD[name] for name in GOOD if name != "l0_hints"
    }
    assert unreadable(invocation(1)) == []


def test_matches_of_older_versions_have_what_they_had():
    old = {"entry_id": "a.md", "score": 0.5, "similarity": None, "layers": ["L0"]}
    (read,) = readable_details({"matches": [old]})["matches"]
    assert {name: read[name] for name in old} == old
    assert (read["title"], read["lines"], read["passages"], read["shares"]) == ("", None, (), {})


def test_the_names_of_hints_of_version_0_1_are_read_as_those_of_today():
    entry = {"entry_id": "a.md", "title": "A", "domains": ["IT"]}
    hints = readable_details({"l0_hints": {"entries": [entry], "terms": [TERM]}})["l0_hints"]
    assert hints["entries"][0]["categories"] == ["IT"]
    assert hints["terms"][0]["document_frequency"] == 9
