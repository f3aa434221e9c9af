"""Processes that build a collection on a server are killed at each of their requests, while a
reader looks up all the time.
"""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from conftest import WordEmbeddings, write_files
from qdrant_server import QdrantServer

from langchain_lookup_knowledge import (
    KnowledgeBase,
    LookupOptions,
    QdrantIndex,
    create_lookup_knowledge_graph,
)

pytestmark = [pytest.mark.nightly, pytest.mark.skipif(os.name == "nt", reason="no SIGKILL here")]

PAGES = 90
BUILD = """
import sys
from conftest import WordEmbeddings
from langchain_lookup_knowledge import KnowledgeBase, QdrantIndex
folder, url, rebuild = sys.argv[1:]
index = QdrantIndex(url, "kb")
with KnowledgeBase.open(
    folder, embedding=WordEmbeddings(), index=index, data_dir=f"{folder}-builder"
) as kb:
    kb.sync(rebuild=rebuild == "True")
"""


def base(folder, server):
    index = QdrantIndex(server.url, "kb")
    data = f"{folder}-reader"
    return KnowledgeBase.open(folder, embedding=WordEmbeddings(), index=index, data_dir=data)


def build_until_killed(folder, server, rebuild, at):
    """Build in a process that is killed when it sends its request number `at`."""
    sent = []

    def kill(handler):
        if handler.headers["user-agent"] == "reader":
            return False
        sent.append(handler.path)
        if len(sent) == at:
            os.kill(process.pid, signal.SIGKILL)
            handler.close_connection = True
            return True
        return False

    paths = os.pathsep.join((str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")))
    process = subprocess.Popen(
        [sys.executable, "-c", BUILD, str(folder), server.url, str(rebuild)],
        env={**os.environ, "PYTHONPATH": paths},
    )
    server.misbehave(kill)
    process.wait()
    server.misbehave(None)
    return process.returncode


@pytest.mark.parametrize("at", range(1, 16))
@pytest.mark.parametrize("rebuild", [False, True], ids=["first build", "rebuild"])
def test_a_reader_sees_no_part_of_a_build_that_is_killed(rebuild, at, tmp_path):
    texts = {f"{number}.md": f"# Page {number}\n\nA common word.\n" for number in range(PAGES)}
    folder = write_files(tmp_path / "kb", texts)
    with QdrantServer() as server, base(folder, server) as reader:
        reader.index.client.http.client._client.headers["user-agent"] = "reader"
        if rebuild:
            reader.sync()
        options = LookupOptions(l1_timeout=60)
        graph = create_lookup_knowledge_graph(reader, record=None, options=options)
        ended, seen = threading.Event(), []

        def look_up():
            while not ended.is_set():
                seen.append(graph.invoke({"query": "common word"})["l1"])

        looking = threading.Thread(target=look_up)
        looking.start()
        returned = build_until_killed(folder, server, rebuild, 2 * at)
        ended.set()
        looking.join()
        assert returned in (-signal.SIGKILL, 0)
        for l1 in seen:
            assert l1["candidates"] == PAGES or l1["reason"], l1
        if rebuild:
            assert {l1["candidates"] for l1 in seen} == {PAGES}
        reader.sync()
        assert len(server.collections()) == 1
        assert server.target("kb") == server.collections()[0] != "kb"
        l1 = graph.invoke({"query": "common word"})["l1"]
        assert (l1["candidates"], l1["reason"]) == (PAGES, None)
