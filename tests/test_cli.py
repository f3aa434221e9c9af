"""The command line, in processes of its own: what a person types, sees and gets as exit status."""

import contextlib
import json
import os
import pty
import signal
import sqlite3
import subprocess
import sys
import termios
import time
from contextlib import closing
from datetime import UTC, datetime

import pytest
from conftest import FILES, write_files
from test_records import INVOCATION

from langchain_lookup_knowledge import SQLInvocationRecorder
from langchain_lookup_knowledge.cli import main


def run(*arguments, env=None):
    command = [sys.executable, "-m", "langchain_lookup_knowledge.cli", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, **(env or {})})


def read_all(terminal):
    """Read what was written to a terminal; Linux ends it with EIO."""
    chunks = []
    with contextlib.suppress(OSError):
        while chunk := os.read(terminal, 65_536):
            chunks.append(chunk)
    os.close(terminal)
    return b"".join(chunks)


def test_index_ask_and_invocations(folder):
    first, second = run("index", folder), run("index", folder)
    assert first.returncode == second.returncode == 0
    assert first.stdout == "3 entries; 3 new or changed, 0 removed; 3 passages embedded\n"
    assert second.stdout == "3 entries; 0 new or changed, 0 removed; 0 passages embedded\n"
    assert first.stderr == ""  # no bar in a pipe

    asked = run("ask", folder, "how do I get my money back?")
    assert asked.returncode == 0
    assert asked.stdout.startswith("Keyword hints and vector search answered (L0+L1)")

    result = json.loads(run("ask", folder, "refund", "--json", "-k", "1").stdout)
    assert result["primary"]["entry_id"] == "billing/refunds.md"
    assert len(result["matches"]) == 1

    shown = run("invocations", folder, "--json")
    rows = json.loads(shown.stdout)
    assert rows[0]["id"] == result["invocation_id"]
    assert "-> billing/refunds.md" in run("invocations", folder).stdout
    database = f"sqlite:///{folder}/.lookup-knowledge/invocations.db"
    assert json.loads(run("invocations", "--db", database, "--json", "--limit", "1").stdout) == rows[:1]


def test_invocations_are_filtered_redacted_and_pruned(folder):
    recorder = SQLInvocationRecorder.in_file(folder / "calls.db")
    for number, created in enumerate(["2026-01-01", "2026-01-02", datetime.now(UTC).isoformat()]):
        recorder.record({**INVOCATION, "id": f"i{number}", "created_at": created, "thread_id": f"t{number}"})
    recorder.close()
    database = ["invocations", "--db", f"sqlite:///{folder}/calls.db"]

    def shown(*filters):
        return [row["id"] for row in json.loads(run(*database, "--json", *filters).stdout)]

    assert shown("--since", "2026-01-02", "--until", "1m") == ["i1"]
    assert shown("--since", "12h", "--layer", "L0+L1", "--status", "ok") == ["i2"]
    assert run(*database, "--thread", "nobody").returncode == 1
    assert run(*database, "--redact").stdout == "calls redacted: 3\n"
    assert "sha256:" in run(*database).stdout
    assert "'1m' would be minutes: write days" in run(*database, "--prune", "1m").stderr
    assert run(*database, "--prune", "90d").stdout == "calls deleted: 2\n"
    assert shown() == ["i2"]
    assert run(*database, "--migrate").stdout == "the table is as it should be\n"


@pytest.mark.slow
def test_calls_that_wait_are_told(folder):
    recorder = SQLInvocationRecorder.in_file(folder / "calls.db")
    recorder.migrate()
    with closing(sqlite3.connect(folder / "calls.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        recorder.record(INVOCATION)
        done = run("invocations", "--db", f"sqlite:///{folder}/calls.db")
    assert done.returncode == 1
    assert "note: calls that wait until the database takes them: 1" in done.stderr
    recorder.close()


def test_eval_shows_figures(folder):
    questions = folder.parent / "questions.jsonl"
    questions.write_text('{"id": "1", "query": "refund", "relevant": ["billing/refunds.md"]}')
    shown = run("eval", folder, questions)
    assert shown.returncode == 0
    assert "full" in shown.stdout
    figures = json.loads(run("eval", folder, questions, "--json").stdout)
    assert figures["rankings"]["full"]["success@1"]["mean"] == 1


def test_options_of_index_are_remembered(folder):
    run("index", folder, "--category-from-path", "1", "--category", "none")
    result = json.loads(run("ask", folder, "refund", "--json").stdout)
    assert result["primary"]["categories"] == ["billing"]


def test_a_bar_is_shown_on_a_terminal(folder):
    main, child = pty.openpty()
    termios.tcsetwinsize(child, (24, 80))
    command = [sys.executable, "-m", "langchain_lookup_knowledge.cli", "index", str(folder)]
    subprocess.run(command, stderr=child, stdout=subprocess.DEVNULL, check=True)
    os.close(child)
    shown = read_all(main).decode()
    assert "embedding: 100%" in shown
    assert "3/3" in shown


def test_a_broken_file_is_told_by_index_and_counted_by_ask(folder):
    write_files(folder, {"bad.md": "---\ntitle: x: y\n---\n"})
    assert "note: bad.md:2: the frontmatter is not YAML" in run("index", folder).stderr
    assert run("ask", folder, "refund").stderr.startswith("note: 1 file or field was not used as written")


def test_the_embedded_index_can_be_taken_up_again(folder):
    (folder / ".lookup-knowledge").mkdir()
    (folder / ".lookup-knowledge/settings.json").write_text(
        '{"index": {"url": "https://127.0.0.1:9", "collection": "c"}}'
    )
    assert run("index", folder).returncode == 2
    assert run("index", folder, "--embedded").returncode == 0
    assert "(L0+L1)" in run("ask", folder, "refund").stdout


def test_nothing_found_is_status_1(folder):
    assert run("ask", folder, "zebra", "--no-l1").returncode == 1
    nothing = run("invocations", write_files(folder.parent / "other", {"a.md": "x"}))
    assert nothing.returncode == 1
    assert "no call has been recorded for the folder" in nothing.stderr
    assert str(folder.parent / "other/.lookup-knowledge/invocations.db") in nothing.stderr


@pytest.mark.parametrize(
    "command", [["invocations"], ["invocations", "--prune", "90d"], ["inspect"], ["report", "--out", "x"]]
)
def test_a_database_that_is_not_there_is_told_and_not_made(tmp_path, capsys, command):
    misspelt = tmp_path / "clals.db"
    assert main([*command, "--db", f"sqlite:///{misspelt}"]) == 1
    assert capsys.readouterr() == ("", f"no call has been recorded: there is no file {misspelt}\n")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["ask", "nowhere", "x"], "nowhere is not a folder"),
        (["ask", "KB", "x", "-k", "0"], "k must be 1 to 100, not 0"),
        (["index", "KB", "--collection", "c"], "give --url too"),
        (["index", "KB", "--url", ":memory:"], "would be gone with this command"),
        (["index", "KB", "--category-from-path", "-1"], "category_from_path counts folders"),
        (["index", "KB", "--url", "https://127.0.0.1:9"], "the Qdrant server cannot be reached"),
        (["index", "KB", "--model", "nobody/no-model"], "FastEmbed knows no model 'nobody/no-model'"),
        (["eval", "KB", "nowhere.jsonl"], "nowhere.jsonl cannot be read"),
        (["invocations", "--db", "nosuch://h/d"], "the record database URL cannot be used"),
        (
            ["invocations", "--db", "postgresql://u:SECRET@127.0.0.1:9/d"],
            "invocations cannot be read (OperationalError)",
        ),
        (["invocations", "--prune", "90d", "--thread", "t1"], "take no filter: leave the filters out"),
    ],
)
def test_an_error_is_one_line_and_status_2(folder, arguments, message):
    done = run(
        *[folder if argument == "KB" else argument for argument in arguments], env={"QDRANT_API_KEY": "sk-SECRET"}
    )
    assert done.returncode == 2
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert done.stderr.startswith("lookup-knowledge: ")
    assert message in done.stderr
    assert "SECRET" not in done.stderr


def test_help_and_import_load_none_of_the_heavy_libraries():
    script = (
        "import sys, langchain_lookup_knowledge\n"
        "from langchain_lookup_knowledge import cli\n"
        "try: cli.main(['--help'])\n"
        "except SystemExit: pass\n"
        "heavy = {'qdrant_client', 'qdrant_edge', 'fastembed', 'onnxruntime', 'langgraph', 'sqlalchemy'}\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, capture_output=True)


def test_index_watch_stays_and_indexes_what_changes(tmp_path):
    folder = write_files(tmp_path / "kb", {**FILES, "old.md": "---\ntitle: a: b\n---\n"})
    command = [sys.executable, "-m", "langchain_lookup_knowledge.cli", "index", str(folder), "--watch"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as watcher:
        assert watcher.stdout.readline() == "4 entries; 4 new or changed, 0 removed; 4 passages embedded\n"
        time.sleep(0.5)
        write_files(folder, {"new.md": "---\ntitle: c: d\n---\n"})
        assert watcher.stdout.readline() == "5 entries; 1 new or changed, 0 removed; 1 passage embedded\n"
        watcher.send_signal(signal.SIGINT)
        assert watcher.wait(20) == 130
        told = watcher.stderr.read()
    assert [line[:14] for line in told.splitlines() if line.startswith("note: ")] == [
        "note: old.md:2",
        "note: new.md:2",
    ]
    assert told.endswith("lookup-knowledge: stopped\n")


@pytest.mark.parametrize("moment", ["999999d", "0001-01-01T00:00+14:00", "9999-12-31T23:59-10:00"])
def test_a_time_out_of_range_is_told(moment):
    done = run("invocations", "--since", moment)
    assert done.returncode == 2
    assert f"{moment!r} is not a time" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_reader_that_goes_away_is_no_error(folder):
    ask = [sys.executable, "-m", "langchain_lookup_knowledge.cli", "ask", str(folder), "refund", "--no-l1", "--json"]
    with subprocess.Popen(ask, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.close()
        assert (process.stderr.read(), process.wait(60)) == (b"", 0)


def test_json_is_json_in_every_encoding(folder):
    write_files(folder, {"party.md": "---\ntitle: Party \U0001f389\nkeywords: [party]\n---\nTea.\n"})
    done = run("ask", folder, "party", "--no-l1", "--json", env={"PYTHONIOENCODING": "ascii"})
    assert json.loads(done.stdout)["primary"]["title"] == "Party \U0001f389"


def test_the_key_is_not_sent_to_a_server_that_the_folder_names(folder):
    settings = {"index": {"url": "http://127.0.0.1:9", "collection": "c"}}
    write_files(folder, {".lookup-knowledge/settings.json": json.dumps(settings)})
    environment = {"QDRANT_API_KEY": "sk-SECRET", "QDRANT_URL": ""}
    assert "QDRANT_API_KEY is not sent to http://127.0.0.1:9" in run("check", folder, env=environment).stderr
    environment["QDRANT_URL"] = "http://127.0.0.1:9"
    assert "is not sent" not in run("check", folder, env=environment).stderr
    write_files(folder, {".lookup-knowledge/settings.json": '{"index": null}'})
    assert "holds an index that cannot be used" in run("check", folder, env=environment).stderr


def test_a_report_does_not_overwrite_what_is_no_page(folder, capsys):
    assert main(["ask", str(folder), "refund", "--no-l1"]) == 0
    calls, page = folder / ".lookup-knowledge/invocations.db", folder.parent / "report.html"
    assert main(["report", str(folder), "--out", str(calls)]) == 2
    assert "is no HTML page: name another file" in capsys.readouterr().err
    assert calls.read_bytes()[:6] == b"SQLite"
    assert [main(["report", str(folder), "--out", str(page)]) for _ in range(2)] == [0, 0]


def test_a_closed_standard_output_is_no_error(folder):
    command = [
        sys.executable,
        "-m",
        "langchain_lookup_knowledge.cli",
        "ask",
        str(folder),
        "refund",
        "--no-l1",
        "--json",
    ]
    done = subprocess.run(["sh", "-c", '"$@" >&-', "sh", *command], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
