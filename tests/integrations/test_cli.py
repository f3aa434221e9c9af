"""The command line: what a person types, sees and gets as exit status."""

import contextlib
import io
import json
import logging
import os
import pty
import signal
import sqlite3
import subprocess
import sys
import termios
import threading
import time
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest
from conftest import FILES, write_files
from parts.command_line import COMMAND, run, run_process
from parts.invocations import INVOCATION
from qdrant_server import QdrantServer

from langchain_lookup_knowledge import SQLInvocationRecorder
from langchain_lookup_knowledge.integrations.cli import main
from langchain_lookup_knowledge.integrations.command_line.output import Terminal
from langchain_lookup_knowledge.l1.models.embeddings import FastEmbedModel
from langchain_lookup_knowledge.lookup.answer.relevance import BUNDLED, model_for


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
    assert asked.stdout.startswith(f"Refunds\n{folder}/billing/refunds.md:7\n")

    result = json.loads(run("ask", folder, "refund", "--json", "-k", "1").stdout)
    assert result["primary"]["entry_id"] == "billing/refunds.md"
    assert len(result["matches"]) == 1

    shown = run("invocations", folder, "--json")
    rows = json.loads(shown.stdout)
    assert rows[0]["id"] == result["invocation_id"]
    line = run("invocations", folder).stdout.splitlines()[0]
    assert line.endswith("  lookup_knowledge  'refund' -> billing/refunds.md")
    database = f"sqlite:///{folder}/.lookup-knowledge/invocations.db"
    assert (
        json.loads(run("invocations", "--db", database, "--json", "--limit", "1").stdout)
        == rows[:1]
    )


@pytest.mark.process
def test_a_process_of_its_own_prints_what_this_one_does(folder):
    assert run_process("index", folder).stdout.startswith("3 entries; 3 new or changed")
    asked = ("ask", folder, "refund", "--json", "-k", "1")
    here, there = (json.loads(done.stdout) for done in (run(*asked), run_process(*asked)))
    assert there["matches"] == here["matches"]


def test_invocations_are_filtered_redacted_and_pruned(folder):
    recorder = SQLInvocationRecorder.in_file(folder / "calls.db")
    for number, created in enumerate(["2026-01-01", "2026-01-02", datetime.now(UTC).isoformat()]):
        recorder.record(
            {**INVOCATION, "id": f"i{number}", "created_at": created, "thread_id": f"t{number}"}
        )
    recorder.close()
    database = ["invocations", "--db", f"sqlite:///{folder}/calls.db"]

    def shown(*filters):
        return [row["id"] for row in json.loads(run(*database, "--json", *filters).stdout)]

    assert shown("--since", "2026-01-02", "--until", "1m") == ["i1"]
    assert shown("--since", "12h", "--layer", "L0+L1", "--status", "ok") == ["i2"]
    assert run(*database, "--thread", "nobody").returncode == 1
    assert run(*database, "--redact").stdout == "lookups redacted: 3\n"
    assert "sha256:" in run(*database).stdout
    assert "'1m' would be minutes: write days" in run(*database, "--prune", "1m").stderr
    assert run(*database, "--prune", "90d").stdout == "lookups deleted: 2\n"
    assert shown() == ["i2"]
    assert run(*database, "--migrate").stdout == "the table is up to date\n"


@pytest.mark.slow
def test_calls_that_wait_are_told(folder):
    recorder = SQLInvocationRecorder.in_file(folder / "calls.db")
    recorder.migrate()
    with closing(sqlite3.connect(folder / "calls.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        recorder.record(INVOCATION)
        done = run("invocations", "--db", f"sqlite:///{folder}/calls.db")
    assert done.returncode == 1
    assert "note: 1 record is waiting in the spool" in done.stderr
    recorder.close()


def test_eval_shows_figures(folder):
    questions = folder.parent / "questions.jsonl"
    questions.write_text('{"id": "1", "query": "refund", "relevant": ["billing/refunds.md"]}')
    shown = run("eval", folder, questions)
    assert shown.returncode == 0
    assert "full" in shown.stdout
    figures = json.loads(run("eval", folder, questions, "--json").stdout)
    assert figures["rankings"]["full"]["success@1"]["mean"] == 1


@pytest.fixture
def asked(folder):
    """Return a file with two questions, of which one carries evidence that is shown."""
    path = folder.parent / "questions.jsonl"
    questions = [
        {"query": "refund", "relevant": ["billing/refunds.md"], "evidence": ["five days"]},
        {"query": "vpn", "relevant": ["hr/leave.md"]},
    ]
    path.write_text("\n".join(map(json.dumps, questions)))
    return path


def test_eval_ends_with_1_and_a_line_for_each_figure_below_its_minimum(folder, asked):
    passed = run("eval", folder, asked, "--min", "evidence=1,success@1=0.5")
    assert (passed.returncode, passed.stderr) == (0, "")
    fallen = run("eval", folder, asked, "--min", "evidence=1,success@1=0.6,mrr=1", "--json")
    assert fallen.returncode == 1
    assert json.loads(fallen.stdout)["evidence"]["shown"] == 1
    first, second = fallen.stderr.splitlines()
    assert first == "success@1: 0.5, wanted 0.6"
    assert second.startswith("mrr: 0.")


@pytest.mark.slow
def test_eval_ends_with_1_if_a_figure_is_lower_than_the_saved_one(folder, asked):
    saved = folder.parent / "saved.json"
    saved.write_text(run("eval", folder, asked, "--json").stdout)
    assert run("eval", folder, asked, "--against", saved).returncode == 0
    (folder / "billing/refunds.md").write_text("---\ntitle: Refunds\n---\nNothing is paid back.\n")
    fallen = run("eval", folder, asked, "--against", saved)
    assert fallen.returncode == 1
    assert fallen.stderr.splitlines() == [
        "evidence: 0, wanted 1, 0.01 less allowed",
        "first: 0, wanted 1, 0.01 less allowed",
    ]
    assert run("eval", folder, asked, "--against", saved, "--tolerance", "1").returncode == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--min", "speed=1"), "'speed' is not a figure: name evidence, first, success@1"),
        (("--min", "ndcg=75"), "'75' is not a number from 0 to 1"),
        (("--tolerance", "2", "--against", "x"), "'2' is not a number from 0 to 1"),
        (("--tolerance", "0.1"), "give --against too"),
        (("--against", "nowhere.json"), "nowhere.json cannot be read: give figures saved by"),
        (("--fit",), "--fit needs 20 questions with an answer"),
    ],
)
def test_a_gate_or_fit_that_cannot_be_is_a_usage_error(folder, asked, options, message):
    done = run("eval", folder, asked, *options)
    assert done.returncode == 2
    assert message in done.stderr


@pytest.mark.slow
def test_eval_fits_relevance_and_later_lookups_go_by_it(tmp_path):
    notebooks, data = Path(__file__).parents[2] / "notebooks", tmp_path / "data"
    handbook, questions = notebooks / "handbook", notebooks / "handbook_questions.jsonl"
    command = ("eval", handbook, questions, "--data-dir", data)
    fitted = run(*command, "--fit")
    assert (fitted.returncode, fitted.stderr) == (0, "")
    *_, kept = fitted.stdout.splitlines()
    assert kept == f"kept in {data / 'relevance.json'}; delete it to go back"
    assert "relevance fitted, 5-fold cross-validation: " in fitted.stdout
    model = model_for(FastEmbedModel(), data)
    assert model != BUNDLED
    again = run(*command, "--fit", "--json")
    assert json.loads(again.stdout)["auc"] is not None
    assert again.stderr.splitlines()[-1] == kept
    assert model_for(FastEmbedModel(), data) == model  # a fit is the same each time


def test_a_folder_without_markdown_is_indexed_if_its_endings_are_given(tmp_path):
    folder = write_files(tmp_path / "kb", {"a.txt": "# Refunds\n\nThey take five days.\n"})
    assert "no Markdown file in this folder" in run("index", folder).stderr
    other = run("index", folder, "--endings", "rst").stderr
    assert "no file ending in .rst in this folder: give the folder" in other
    assert run("index", folder, "--endings", "txt").stdout.startswith("1 entry; 1 new or changed")
    assert run("ask", folder, "refunds").stdout.startswith("Refunds\n")


def test_options_of_index_are_remembered(folder):
    run("index", folder, "--category-from-path", "1", "--category", "none")
    result = json.loads(run("ask", folder, "refund", "--json").stdout)
    assert result["primary"]["categories"] == ["billing"]


@pytest.mark.process
def test_a_bar_is_shown_on_a_terminal(folder):
    main, child = pty.openpty()
    termios.tcsetwinsize(child, (24, 80))
    command = [
        *COMMAND,
        "index",
        str(folder),
    ]
    subprocess.run(command, stderr=child, stdout=subprocess.DEVNULL, check=True)
    os.close(child)
    shown = read_all(main).decode()
    assert "embedding: 100%" in shown
    assert "3/3" in shown


def test_a_broken_file_is_told_by_index_and_counted_by_ask(folder):
    write_files(folder, {"bad.md": "---\ntitle: x: y\n---\n"})
    assert "note: bad.md:2: the frontmatter is not YAML" in run("index", folder).stderr
    assert run("ask", folder, "refund").stderr.startswith(
        "note: 1 file or field was not used as written"
    )


def test_the_embedded_index_can_be_taken_up_again(folder):
    (folder / ".lookup-knowledge").mkdir()
    (folder / ".lookup-knowledge/settings.json").write_text(
        '{"index": {"url": "https://127.0.0.1:9", "collection": "c"}}'
    )
    assert run("index", folder, "--trust").returncode == 2
    assert run("index", folder, "--embedded").returncode == 0
    assert "(L0+L1)" in run("ask", folder, "refund", "--text").stdout


def test_a_server_is_indexed_checked_and_remembered(folder):
    with QdrantServer(api_key="sk-RIGHT") as server:
        key = {"QDRANT_API_KEY": "sk-RIGHT", "QDRANT_URL": server.url}
        indexed = run("index", folder, "--url", server.url, "--collection", "kb", env=key)
        (live,) = server.collections()
        assert f"collection 'kb' is now '{live}'" in indexed.stdout
        assert "(L0+L1)" in run("ask", folder, "refund", "--text", env=key).stdout
        server._indexed[live].clear()
        named = ("--url", server.url, "--collection", "kb")
        checked = run("check", folder, "--verbose", *named, env=key)
        assert 'no payload index on "metadata.digest": run `lookup-knowledge index`' in (
            checked.stdout
        )


def test_nothing_found_is_status_1(folder):
    assert run("ask", folder, "zebra", "--no-l1").returncode == 1
    nothing = run("invocations", write_files(folder.parent / "other", {"a.md": "x"}))
    assert nothing.returncode == 1
    assert "no lookup has been recorded for the folder" in nothing.stderr
    assert str(folder.parent / "other/.lookup-knowledge/invocations.db") in nothing.stderr


@pytest.mark.parametrize(
    "command",
    [["invocations"], ["invocations", "--prune", "90d"], ["inspect"], ["report", "--out", "x"]],
)
def test_a_database_that_is_not_there_is_told_and_not_made(tmp_path, capsys, command):
    misspelt = tmp_path / "clals.db"
    assert main([*command, "--db", f"sqlite:///{misspelt}"]) == 1
    assert capsys.readouterr() == (
        "",
        f"no lookup has been recorded: there is no file {misspelt}\n",
    )
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["ask", "nowhere", "x"], "nowhere is not a folder"),
        (["ask", "KB", "x", "-k", "0"], "k must be 1 to 100, not 0"),
        (["index", "KB", "--collection", "c"], "give --url too"),
        (["index", "KB", "--grpc"], "--grpc and --ca are for one on a server: give --url too"),
        (["index", "KB", "--url", "http://u:SECRET@h"], "holds no user, password or query"),
        (["index", "KB", "--url", "http://h", "--ca", "no.pem"], "is not a file: give a CA file"),
        (["index", "KB", "--url", "http://h:1", "--grpc"], "is not known: give grpc_port="),
        (["index", "KB", "--url", ":memory:"], "would be gone with this command"),
        (
            ["index", "KB", "--category-from-path", "-1"],
            "category_from_path is a number of folders",
        ),
        (["index", "KB", "--url", "https://127.0.0.1:9"], "the Qdrant server cannot be reached"),
        (
            ["index", "KB", "--model", "nobody/no-model"],
            "FastEmbed knows no model 'nobody/no-model': it knows BAAI/",
        ),
        (["eval", "KB", "nowhere.jsonl"], "nowhere.jsonl cannot be read"),
        (["invocations", "--db", "nosuch://h/d"], "the record database URL cannot be used"),
        (
            ["invocations", "--db", "postgresql://u:SECRET@127.0.0.1:9/d"],
            "invocations cannot be read (OperationalError)",
        ),
        (
            ["invocations", "--prune", "90d", "--thread", "t1"],
            "take no filter: leave out the filters",
        ),
    ],
)
def test_an_error_is_one_line_and_status_2(folder, arguments, message):
    done = run(
        *[folder if argument == "KB" else argument for argument in arguments],
        env={"QDRANT_API_KEY": "sk-SECRET"},
    )
    assert done.returncode == 2
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert done.stderr.startswith("lookup-knowledge: ")
    assert message in done.stderr
    assert "SECRET" not in done.stderr


@pytest.mark.process
def test_help_and_import_load_none_of_the_heavy_libraries():
    script = (
        "import sys, langchain_lookup_knowledge\n"
        "from langchain_lookup_knowledge.integrations import cli\n"
        "try: cli.main(['--help'])\n"
        "except SystemExit: pass\n"
        "heavy = {'qdrant_client', 'qdrant_edge', 'fastembed', 'onnxruntime', "
        "'langgraph', 'sqlalchemy'}\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, capture_output=True)


@pytest.mark.process
def test_index_watch_stays_and_indexes_what_changes(tmp_path):
    folder = write_files(tmp_path / "kb", {**FILES, "old.md": "---\ntitle: a: b\n---\n"})
    command = [
        *COMMAND,
        "index",
        str(folder),
        "--watch",
    ]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as watcher:
        assert (
            watcher.stdout.readline()
            == "4 entries; 4 new or changed, 0 removed; 4 passages embedded\n"
        )
        time.sleep(0.5)
        write_files(folder, {"new.md": "---\ntitle: c: d\n---\n"})
        assert (
            watcher.stdout.readline()
            == "5 entries; 1 new or changed, 0 removed; 1 passage embedded\n"
        )
        watcher.send_signal(signal.SIGINT)
        assert watcher.wait(60) == 130
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


@pytest.mark.process
def test_a_reader_that_goes_away_is_no_error(folder):
    ask = [
        *COMMAND,
        "ask",
        str(folder),
        "refund",
        "--no-l1",
        "--json",
    ]
    with subprocess.Popen(ask, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.close()
        assert (process.stderr.read(), process.wait(60)) == (b"", 0)


def test_json_is_json_in_every_encoding(folder):
    write_files(
        folder, {"party.md": "---\ntitle: Party \U0001f389\nkeywords: [party]\n---\nTea.\n"}
    )
    done = run("ask", folder, "party", "--no-l1", "--json", env={"PYTHONIOENCODING": "ascii"})
    assert json.loads(done.stdout)["primary"]["title"] == "Party \U0001f389"


def test_the_key_is_not_sent_to_a_server_that_the_folder_names(folder):
    settings = {"index": {"url": "http://127.0.0.1:9", "collection": "c"}}
    write_files(folder, {".lookup-knowledge/settings.json": json.dumps(settings)})
    environment = {"QDRANT_API_KEY": "sk-SECRET", "QDRANT_URL": ""}
    trusted = run("check", folder, "--trust", env=environment)
    assert "QDRANT_API_KEY is not sent to http://127.0.0.1:9" in trusted.stderr
    settings["index"]["url"] = "http://me:hunter2@127.0.0.1:9"
    write_files(folder, {".lookup-knowledge/settings.json": json.dumps(settings)})
    assert "hunter2" not in run("check", folder, "--trust", env=environment).stderr
    settings["index"]["url"] = "http://127.0.0.1:9"
    write_files(folder, {".lookup-knowledge/settings.json": json.dumps(settings)})
    environment["QDRANT_URL"] = "http://127.0.0.1:9"
    assert "is not sent" not in run("check", folder, env=environment).stderr
    environment["QDRANT_URL"] = "http://127.0.0.1:9/"
    assert "is not sent" not in run("check", folder, env=environment).stderr
    environment["QDRANT_API_KEY"] = "sk-SECRET\u00e9"
    refused = run("check", folder, env=environment)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert refused.stderr.startswith("lookup-knowledge: the API key has a character that no HTTP")
    assert "SECRET" not in refused.stderr
    write_files(folder, {".lookup-knowledge/settings.json": '{"index": null}'})
    assert "holds an index that cannot be used" in run("check", folder, env=environment).stderr


def test_a_report_does_not_overwrite_what_is_no_page(folder, capsys):
    assert main(["ask", str(folder), "refund", "--no-l1"]) == 0
    calls, page = folder / ".lookup-knowledge/invocations.db", folder.parent / "report.html"
    assert main(["report", str(folder), "--out", str(calls)]) == 2
    assert "is not an HTML page: choose another file" in capsys.readouterr().err
    assert calls.read_bytes()[:6] == b"SQLite"
    assert [main(["report", str(folder), "--out", str(page)]) for _ in range(2)] == [0, 0]
    assert capsys.readouterr().out.endswith(f"wrote {page}\n" * 2)


@pytest.mark.process
def test_a_closed_standard_output_is_no_error(folder):
    command = [
        *COMMAND,
        "ask",
        str(folder),
        "refund",
        "--no-l1",
        "--json",
    ]
    done = subprocess.run(
        ["sh", "-c", '"$@" >&-', "sh", *command], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


def crash(*_, **__):
    raise ZeroDivisionError("a fault of ours")


def caught(*_, **__):
    try:
        crash()
    except ZeroDivisionError:
        logging.getLogger("langchain_lookup_knowledge").debug("caught here", exc_info=True)
    logging.getLogger("langchain_lookup_knowledge").warning("plain %s", "warning")
    return 0


def in_a_thread(*_, **__):
    thread = threading.Thread(target=crash)
    thread.start()
    thread.join()
    return 0


def logged_elsewhere(*_, **__):
    try:
        crash()
    except ZeroDivisionError:
        logging.getLogger("another_library").exception("it failed")
    return 0


@pytest.mark.parametrize(
    ("command", "status", "line", "shown"),
    [
        (
            crash,
            2,
            "lookup-knowledge: unexpected ZeroDivisionError: run it again with --trace",
            True,
        ),
        (caught, 0, "plain warning\n", True),
        (logged_elsewhere, 0, "it failed\n", True),
        (in_a_thread, 0, "unexpected ZeroDivisionError in the background: run it again", True),
    ],
)
def test_a_traceback_is_shown_on_request_alone(monkeypatch, capfd, command, status, line, shown):
    monkeypatch.setattr(
        "langchain_lookup_knowledge.integrations.command_line.knowledge._check", command
    )
    monkeypatch.setattr(
        logging.getLogger(), "handlers", []
    )  # pytest's own would hide the last resort
    before = logging.lastResort, threading.excepthook
    assert main(["check", "."]) == status
    quiet = capfd.readouterr().err
    assert line in quiet
    assert "Traceback" not in quiet
    assert len(quiet.splitlines()) == 1
    monkeypatch.setattr(threading, "excepthook", threading.__excepthook__)
    assert main(["check", ".", "--traceback"]) == status
    loud = capfd.readouterr().err
    assert "Traceback (most recent call last)" in loud
    assert "a fault of ours" in loud
    assert before[0] is logging.lastResort


def test_an_expected_error_has_its_traceback_after_its_line(folder):
    done = run("ask", "nowhere", "x", "--traceback")
    first, second, *_ = done.stderr.splitlines()
    assert first.startswith("lookup-knowledge: ")
    assert second == "Traceback (most recent call last):"
    assert done.returncode == 2


def test_every_command_takes_traceback(capsys):
    for command in (
        "index",
        "ask",
        "check",
        "eval",
        "invocations",
        "inspect",
        "report",
        "replay",
        "mcp",
    ):
        with pytest.raises(SystemExit):
            main([command, "--help"])
        assert "--traceback" in capsys.readouterr().out


HOSTILE = "refund \x1b[1mbold\x1b[0m \x1b]0;owned\x07\x1b[2J \x9b31m \u202eevil \x7f"


def test_nothing_recorded_or_noted_controls_the_terminal(folder, tmp_path):
    database = tmp_path / "calls.db"
    with closing(SQLInvocationRecorder.in_file(database)) as recorder:
        given = {**INVOCATION, "query": HOSTILE, "primary_entry_id": HOSTILE, "thread_id": HOSTILE}
        recorder.record(given)
    (folder / "odd\x1b[31m\r.md").write_text("---\ntitle: a: b\n---\n")
    url = f"sqlite:///{database}"
    for arguments in (
        ("invocations", "--db", url),
        ("invocations", "--db", url, "--json"),
        ("check", folder),
        ("check", folder, "--json"),
        ("ask", folder, HOSTILE, "--no-l1"),
        ("ask", folder, HOSTILE, "--no-l1", "--json"),
        ("index", tmp_path / "no\x1b[31m"),
        ("invocations", tmp_path / "no\x9b31m"),
    ):
        shown = run(*arguments)
        written = shown.stdout + shown.stderr
        assert written
        assert not set(written) & {*map(chr, range(9)), "\r", "\x1b", "\x7f", "\x9b", "\u202e"}
    (row,) = json.loads(run("invocations", "--db", url, "--json").stdout)
    assert row["query"] == HOSTILE


def test_no_sequence_reaches_the_terminal_unless_it_is_written_unfiltered():
    written = io.StringIO()
    terminal = Terminal(written)
    print("\x1b[1mbold\x1b[0m\x07", file=terminal)
    print("\x1b[1mours\x1b[0m", file=terminal.unfiltered)
    assert written.getvalue() == "\ufffd[1mbold\ufffd[0m\ufffd\n\x1b[1mours\x1b[0m\n"


def test_a_bad_spool_or_a_prepared_database_does_not_keep_ask_from_its_answer(indexed, caplog):
    data = indexed / ".lookup-knowledge"
    (data / "invocations.db.spool" / "0.json").mkdir(parents=True)
    (data / "invocations.db.spool" / "1.json").write_text("[" * 100_000)
    assert "Refunds take five days" in run("ask", indexed, "refund", "--no-l1").stdout
    with closing(sqlite3.connect(data / "invocations.db")) as connection:
        connection.execute(
            "CREATE TRIGGER t AFTER INSERT ON tool_invocation "
            "BEGIN DELETE FROM tool_invocation; END"
        )
    asked = run("ask", indexed, "refund", "--no-l1")
    assert "Refunds take five days" in asked.stdout
    assert "the record database is refused" in caplog.text
