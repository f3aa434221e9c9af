"""Secrets planted wherever one can be given, and looked for wherever the package writes."""

import json
import logging
import traceback
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import ClassVar

import pytest
from langchain_core.tracers.base import BaseTracer
from pydantic import SecretStr

from langchain_lookup_knowledge import (
    KnowledgeBase,
    LookupKnowledgeError,
    QdrantIndex,
    SQLInvocationRecorder,
    create_lookup_knowledge_tool,
)

CANARY = "canary-4f1d"
KEY, PASSWORD, TOKEN = (f"{CANARY}-{name}" for name in ("key", "password", "token"))


class Echo(BaseHTTPRequestHandler):
    """A server that refuses, and says in its answer all that it was sent."""

    received: ClassVar[list[str]] = []

    def do_GET(self):
        self.received.append(str(self.headers))
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        sent = json.dumps({"status": {"error": f"{self.path} {dict(self.headers)}"}}).encode()
        self.send_response(401)
        self.send_header("Content-Length", str(len(sent)))
        self.end_headers()
        self.wfile.write(sent)

    do_POST = do_PUT = do_GET

    def log_message(self, *arguments):
        pass


@pytest.fixture
def server():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Echo)
    Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    yield f"127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


class Traces(BaseTracer):
    def __init__(self):
        super().__init__()
        self.runs = []

    def _persist_run(self, run):
        self.runs.append(
            run.model_dump_json(exclude={"parent_run", "child_runs"}) + repr(run.child_runs)
        )


def test_no_secret_is_written_anywhere(folder, embedding, server, caplog, capfd):
    caplog.set_level(logging.DEBUG)
    written = []
    for url in (
        f"http://user:{PASSWORD}@{server}/?token={TOKEN}",
        f"http://user:{PASSWORD}@127.0.0.1:bad",
    ):
        with pytest.raises(ValueError, match="holds no user, password or query") as refused:
            QdrantIndex(url, "c")
        written.append(str(refused.value))
    for url in (f"http://{server}", "http://127.0.0.1:9"):
        index = QdrantIndex(url, "c", api_key=KEY)
        with KnowledgeBase.open(folder, embedding=embedding, index=index) as kb:
            traces = Traces()
            message = create_lookup_knowledge_tool(kb).invoke(
                {
                    "type": "tool_call",
                    "name": "lookup_knowledge",
                    "args": {"query": "refund"},
                    "id": "1",
                },
                {"callbacks": [traces]},
            )
            assert message.artifact["status"] == "degraded"
            kb.save_settings()
            rows = SQLInvocationRecorder.in_file(kb.data_folder / "invocations.db").invocations()
            written += [
                message.model_dump_json(),
                json.dumps(rows),
                *traces.runs,
                repr(index),
                repr(kb),
                str(kb.problems),
            ]
            written += [problem.message for problem in kb.suggestions()]
            with pytest.raises(LookupKnowledgeError) as raised:
                kb.sync()
            written.append("".join(traceback.format_exception(raised.value)))
            written += [path.read_text("utf-8") for path in kb.data_folder.rglob("*.json")]
            written.append((kb.data_folder / "invocations.db").read_bytes().decode("latin-1"))
    written += [caplog.text, *capfd.readouterr()]
    assert traces.runs
    assert any(KEY in headers for headers in Echo.received)
    assert [text for text in written if CANARY in text] == []


@pytest.mark.parametrize(
    "url",
    [
        f"postgresql+psycopg://user:{PASSWORD}@127.0.0.1:9/x",
        f"nosuch://user:{PASSWORD}@host/x",
        f"sqlite://user:p@ss:{PASSWORD}/x",
        f"sqlite:////nowhere/{PASSWORD}/x.db",
    ],
)
def test_a_record_url_that_cannot_be_used_does_not_show_its_password(url, caplog):
    caplog.set_level(logging.DEBUG)
    with pytest.raises(LookupKnowledgeError) as raised:
        SQLInvocationRecorder(url).invocations()
    assert CANARY not in "".join(traceback.format_exception(raised.value)) + caplog.text


def test_an_api_key_is_held_as_a_secret():
    for key in (KEY, SecretStr(KEY)):
        index = QdrantIndex("https://127.0.0.1:9", "c", api_key=key)
        assert CANARY not in repr(vars(index))
        assert index.client._client._rest_headers["api-key"] == KEY
        index.close()
