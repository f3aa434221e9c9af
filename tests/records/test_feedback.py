"""What people say of answers, and what becomes of it."""

import json
import threading
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from langsmith import Client, tracing_context
from parts.invocations import INVOCATION, invocation, read_call

from langchain_lookup_knowledge import KnowledgeBase, SQLInvocationRecorder, hash_query
from langchain_lookup_knowledge.integrations.cli import main
from langchain_lookup_knowledge.records import feedback, upkeep
from langchain_lookup_knowledge.records.invocations import hash_of


@pytest.fixture
def recorder(tmp_path):
    made = SQLInvocationRecorder.in_file(tmp_path / "calls.db")
    yield made
    made.close()


def test_the_latest_feedback_on_a_lookup_counts(recorder):
    recorder.record(INVOCATION)
    feedback.give(recorder, "i1", right=True, note="  yes ")
    assert feedback.feedback_on(recorder, ["i1", "i2"])["i1"]["note"] == "yes"
    feedback.give(recorder, "i1", right=False)
    (found,) = feedback.feedback_on(recorder, ["i1"]).values()
    assert (found["right"], found["note"]) == (False, "")
    assert datetime.fromisoformat(found["created_at"]).tzinfo is not None
    assert feedback.judgments(recorder) == {"i1": False}


def test_feedback_on_an_unknown_lookup_is_refused(recorder):
    with pytest.raises(ValueError, match="no lookup with the id 'nothing' is recorded"):
        feedback.give(recorder, "nothing", right=True)
    with pytest.raises(ValueError, match="right=True or right=False"):
        feedback.give(recorder, "i1", right="yes")


def test_feedback_is_not_on_what_was_read(recorder):
    recorder.record(read_call(1))
    with pytest.raises(ValueError, match="a call of the read tool"):
        feedback.give(recorder, "i0001", right=True)


def test_right_answers_become_questions(recorder):
    recorder.record(invocation(1, query="vpn", primary_entry_id="it/vpn.md"))
    recorder.record(invocation(2, query="vpn", primary_entry_id="it/okta.md"))
    recorder.record(invocation(3, query="wrong"))
    recorder.record(invocation(4, query="nothing", primary_entry_id=None))
    recorder.record(hash_query(invocation(5, query="hashed")))
    for number in (1, 2, 4, 5):
        feedback.give(recorder, f"i000{number}", right=True)
    feedback.give(recorder, "i0003", right=False)
    relevant = ["it/vpn.md", "it/okta.md"]
    assert feedback.questions(recorder) == [
        {"id": "feedback-1", "query": "vpn", "relevant": relevant}
    ]


def test_gaps_are_done_until_they_are_opened_again(recorder):
    zebra, lion = (feedback.gap_key(query, {}) for query in ("zebra", "lion"))
    assert zebra == feedback.gap_key(hash_of("zebra"), {})
    feedback.mark_done(recorder, [zebra, zebra, lion], done=True)
    assert feedback.done_at(recorder).keys() == {zebra, lion}
    feedback.mark_done(recorder, [zebra], done=False)
    assert feedback.done_at(recorder).keys() == {lion}


def test_pruning_and_redacting_reach_feedback_too(recorder, tmp_path):
    recorder.record(invocation(1))
    recorder.record(invocation(2))
    for name in ("i0001", "i0002"):
        feedback.give(recorder, name, right=True, note="grimble")
    recorder.prune(datetime(2026, 3, 1, 14, tzinfo=UTC))
    assert feedback.judgments(recorder) == {"i0002": True}
    recorder.redact()
    assert feedback.feedback_on(recorder, ["i0002"])["i0002"]["note"] == ""
    recorder.close()
    assert not [file for file in tmp_path.glob("calls.db*") if b"grimble" in file.read_bytes()]


@pytest.fixture
def older(recorder):
    """A recorder whose database has no tables of feedback, as before migration 3."""
    recorder.record(invocation(1, query="grimble"))
    recorder.record(invocation(2, query="grimble again"))
    for change in (
        "DROP TABLE tool_feedback",
        "DROP TABLE tool_gap",
        "DELETE FROM tool_invocation_migration WHERE number = 3",
    ):
        recorder.read(lambda connection, made=change: connection.exec_driver_sql(made))
    return recorder


@pytest.mark.parametrize(
    ("erase", "left"),
    [
        (lambda recorder: recorder.prune(datetime(2027, 1, 1, tzinfo=UTC)), 0),
        (lambda recorder: recorder.redact(), 2),
    ],
)
def test_without_tables_of_feedback_queries_are_erased_too(older, tmp_path, erase, left):
    assert [file for file in tmp_path.glob("calls.db*") if b"grimble" in file.read_bytes()]
    assert erase(older) == 2
    assert len(older.invocations()) == left
    assert not [file for file in tmp_path.glob("calls.db*") if b"grimble" in file.read_bytes()]


def test_what_was_redacted_before_a_failure_is_not_left_in_the_log(recorder, tmp_path, monkeypatch):
    monkeypatch.setattr(upkeep, "BATCH", 1)
    for number in (1, 2):
        recorder.record(invocation(number, query=f"grimble {number}"))

    def fail_at_the_second(row):
        if row["query"] == "grimble 2":
            raise RuntimeError("a fault that nobody foresaw")
        return redacted(row)

    redacted = upkeep._hashed
    monkeypatch.setattr(upkeep, "_hashed", fail_at_the_second)
    with pytest.raises(RuntimeError):
        recorder.redact()
    assert not [file for file in tmp_path.glob("calls.db*") if b"grimble 1" in file.read_bytes()]


class LangSmith(BaseHTTPRequestHandler):
    """Takes feedback as LangSmith does, and keeps it in `server.taken`."""

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.taken.append((self.path, json.loads(body)))
        self.answer()

    def do_GET(self):
        self.answer()

    def answer(self):
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, *_): ...


@contextmanager
def traced():
    """Trace to a LangSmith of our own; give the list of what it takes."""
    with HTTPServer(("127.0.0.1", 0), LangSmith) as server:
        server.taken = []
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        client = Client(
            api_url=f"http://127.0.0.1:{server.server_port}", api_key="x", auto_batch_tracing=False
        )
        with tracing_context(enabled=True, client=client):
            yield server.taken
        server.shutdown()


RUN = "5f0b3f0e-0a4c-4d7b-9a55-6f2a3c1de9b8"


def test_the_run_in_the_trace_gets_the_same_feedback(recorder):
    recorder.record({**INVOCATION, "run_id": RUN})
    with traced() as taken:
        feedback.give(recorder, "i1", right=False, note="another page")
    feedback.give(recorder, "i1", right=True)  # not traced
    ((path, sent),) = taken
    assert path == "/feedback"
    assert (sent["run_id"], sent["score"], sent["comment"]) == (RUN, 0.0, "another page")


@pytest.mark.parametrize("redact", [hash_query, None])
def test_a_note_on_a_redacted_lookup_is_kept_nowhere(tmp_path, redact):
    """The note may quote the query, also if another recorder, or `redact`, hashed the query."""
    path = tmp_path / "calls.db"
    with closing(SQLInvocationRecorder.in_file(path, redact=redact)) as recorder:
        recorder.record({**INVOCATION, "run_id": RUN})
        recorder.redact()
        with traced() as taken:
            feedback.give(recorder, "i1", right=False, note="grimble")
        ((_, sent),) = taken
        assert (sent["score"], sent.get("comment")) == (0.0, None)
        (found,) = feedback.feedback_on(recorder, ["i1"]).values()
        assert (found["right"], found["note"]) == (False, "")
        assert not [f for f in tmp_path.glob("calls.db*") if b"grimble" in f.read_bytes()]


def test_a_recorder_with_its_own_redaction_keeps_no_note(tmp_path):
    def redact(made):
        return {**made, "query": "keyed"}

    with closing(SQLInvocationRecorder.in_file(tmp_path / "calls.db", redact=redact)) as recorder:
        recorder.record(INVOCATION)
        feedback.give(recorder, "i1", right=True, note="grimble")
        assert feedback.feedback_on(recorder, ["i1"])["i1"]["note"] == ""


@pytest.mark.slow
def test_a_failing_trace_is_logged_and_the_feedback_kept(recorder, caplog):
    recorder.record({**INVOCATION, "run_id": RUN})
    client = Client(api_url="http://127.0.0.1:9", api_key="secret-of-ours")
    with tracing_context(enabled=True, client=client):
        feedback.give(recorder, "i1", right=True)
    assert feedback.judgments(recorder) == {"i1": True}
    assert "LangSmith did not take the feedback: " in caplog.text
    assert "secret-of-ours" not in caplog.text


def test_a_knowledge_base_takes_feedback(kb, ask):
    with pytest.raises(ValueError, match="no lookup is recorded in"):
        kb.feedback("i1", right=True)
    result = ask("install the vpn")
    kb.feedback(result["invocation_id"], right=True, note="as it should be")
    assert feedback.questions_in_folder(kb.data_folder) == [
        {"id": "feedback-1", "query": "install the vpn", "relevant": ["it/vpn.md"]}
    ]


def test_feedback_is_given_and_used_on_the_command_line(folder, capsys):
    assert main(["feedback", str(folder)]) == 1
    with KnowledgeBase.open(folder):
        pass
    assert main(["ask", str(folder), "install the vpn", "--explain"]) == 0
    invocation_id = capsys.readouterr().out.rpartition(", as ")[2].strip()
    assert main(["eval", str(folder), "--from-feedback"]) == 2
    assert "no answer recorded for the folder" in capsys.readouterr().err
    assert main(["eval", str(folder)]) == 2
    assert main(["feedback", str(folder), invocation_id]) == 2
    assert main(["feedback", str(folder), "--right"]) == 2
    assert main(["feedback", str(folder), "nothing", "--right"]) == 2
    assert main(["feedback", str(folder), invocation_id, "--right"]) == 0
    capsys.readouterr()
    assert main(["feedback", str(folder)]) == 0
    assert '"query": "install the vpn", "relevant": ["it/vpn.md"]' in capsys.readouterr().out
    assert main(["eval", str(folder), "--from-feedback"]) == 0
    assert "1 answerable questions" in capsys.readouterr().out
