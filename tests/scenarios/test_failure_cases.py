"""The cases about Qdrant, through both engines where they need no server, and those about a tool
that fails.
"""

import asyncio
import json
import logging
import math
import shutil
import subprocess
import sys
import threading
import time

import pytest
import qdrant_server
from conftest import TESTS, WordEmbeddings, write_files
from langchain_core.messages import AIMessage
from langgraph.errors import NodeCancelledError
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from parts.cases import files_of, read_cases, write_case
from qdrant_server import QdrantServer

from langchain_lookup_knowledge import (
    FastEmbedModel,
    KnowledgeBase,
    LookupOptions,
    QdrantIndex,
    SQLInvocationRecorder,
    StoreError,
    create_lookup_knowledge_graph,
    create_lookup_knowledge_tool,
)
from langchain_lookup_knowledge.l1.requests import L1Request

CASES = read_cases("qdrant")
TOOL_CASES = read_cases("agents")


@pytest.fixture(params=["embedded", "server"])
def engine(request):
    return request.param


@pytest.fixture
def server():
    with QdrantServer(strict=True) as made:
        yield made


@pytest.fixture
def recorder(tmp_path):
    made = SQLInvocationRecorder.in_file(tmp_path / "calls.db")
    yield made
    made.close()


class Base:
    """A knowledge base of a case's files in one engine; `look_up` gives the result and its
    record.
    """

    def __init__(self, case, folder, recorder, index, embedding=None, sync=True):
        self.folder = write_case(folder, case)
        self.embedding = embedding or WordEmbeddings()
        self.kb = KnowledgeBase.open(self.folder, embedding=self.embedding, index=index, sync=False)
        self.recorder = recorder
        if sync:
            self.kb.sync()

    def look_up(self, query, **options):
        graph = create_lookup_knowledge_graph(
            self.kb, record=self.recorder, options=LookupOptions(**options)
        )
        result = graph.invoke({"query": query})
        (row,) = (
            row for row in self.recorder.invocations() if row["id"] == result["invocation_id"]
        )
        assert row["retrieval_details"]["l1"] == result["l1"]
        return result, row


@pytest.fixture
def base(request, tmp_path, recorder, server):
    """Make a `Base` of a case, on the server unless the test's engine is the embedded one."""
    made = []

    def make(case_id, *, collection="kb", **arguments):
        embedded = (
            "engine" in request.fixturenames and request.getfixturevalue("engine") == "embedded"
        )
        index = "from_settings" if embedded else QdrantIndex(server.url, collection)
        made.append(Base(CASES[case_id], tmp_path / f"kb{len(made)}", recorder, index, **arguments))
        return made[-1]

    yield make
    for each in made:
        each.kb.close()


def test_every_case_about_qdrant_has_a_test():
    named = {
        name.split("_")[1].upper().replace("Q", "Q-")
        for name in globals()
        if name.startswith("test_q")
    }
    assert named == set(CASES)


def test_q01_the_filter_names_the_field_that_was_written(base, engine, server):
    result, row = base("Q-01").look_up("refund time")
    assert result["filter"] == row["retrieval_details"]["filter"]
    assert result["filter"] == {"category": "Billing", "reason": "single_domain", "relaxed": False}
    assert result["primary"]["entry_id"] == "b.md"
    assert "L1" in result["primary"]["layers"]
    if engine == "server":
        (search,) = (
            body
            for line, body in zip(server.requests, server.bodies, strict=True)
            if "query" in line
        )
        filtered = [
            search["filter"] for search in json.loads(search)["searches"] if search.get("filter")
        ]
        assert {condition["key"] for sent in filtered for condition in sent["must"]} == {
            "metadata.categories_key"
        }


def test_q02_a_category_that_no_passage_has_finds_nothing_else(base, engine):
    made = base("Q-02")
    kb = made.kb
    outcome = kb.l1.search(L1Request("refund", kb.l0.entries, categories=("does-not-exist",)))
    assert (outcome.candidates, outcome.report["candidates"]) == (([],), 0)
    renamed = files_of(CASES["Q-02"])["b.md"].replace("Billing", "Ghost")
    (made.folder / "b.md").write_text(renamed)
    made.kb._syncing.read()
    result, _ = made.look_up("refund", filter_mode="strict")
    assert (result["filter"]["category"], result["l1"]["status"]) == ("Ghost", "empty")
    assert (result["retrieval_layer"], result["primary"]["entry_id"]) == ("L0", "b.md")
    for refused in (
        lambda: LookupOptions(filter="x"),
        lambda: create_lookup_knowledge_tool(made.kb, search_kwargs={}),
        lambda: create_lookup_knowledge_graph(made.kb, filter="x"),
        lambda: KnowledgeBase.open(made.folder, filter="x"),
        lambda: QdrantIndex("http://h", "c", filter="x"),
    ):
        with pytest.raises(TypeError):
            refused()


class ScoreEmbeddings(WordEmbeddings):
    """Vectors whose cosine with any query is what the case says, by the title that each passage
    starts with.
    """

    def embed_documents(self, texts):
        return [
            [
                s := {"Invoices": 0.31, "Printer": 0.83}[text.split("\n")[0]],
                math.sqrt(1 - s * s),
                0.0,
            ]
            for text in texts
        ]

    def embed_query(self, text):
        return [1.0, 0.0, 0.0]


def test_q07_a_filter_that_hides_the_only_answer_is_relaxed_once(base, engine):
    made, query = base("Q-07", embedding=ScoreEmbeddings()), CASES["Q-07"]["input"]["query"]
    result, row = made.look_up(query, min_similarity=0.5)
    assert result["filter"] == row["retrieval_details"]["filter"]
    assert result["filter"] == {"category": "Billing", "reason": "single_domain", "relaxed": True}
    assert "i.md" in {match["entry_id"] for match in result["matches"]}
    assert result["matches"][0]["similarity"] == pytest.approx(0.83, abs=1e-3)
    strict = LookupOptions(filter_mode="strict", min_similarity=0.5)
    text = create_lookup_knowledge_tool(made.kb, record=None, options=strict).invoke(
        {"query": query}
    )
    assert "Printer" not in text
    assert (
        "best similarity 0.310 is under min_similarity 0.5, in the category 'Billing' only" in text
    )


def test_q10_another_model_of_the_same_size_is_refused_with_the_command(base, engine):
    made = base("Q-10")
    other = WordEmbeddings()
    other.model = "m2"
    made.kb.l1.embedding = other
    result, row = made.look_up("refund")
    assert (result["l1"]["status"], result["primary"]["entry_id"]) == ("failed", "b.md")
    for named in ("words-64", "m2", "lookup-knowledge index --rebuild"):
        assert named in row["retrieval_details"]["l1"]["reason"]


ASK = """
import sys
sys.path.insert(0, sys.argv[2])
from conftest import WordEmbeddings
from langchain_lookup_knowledge import KnowledgeBase, StoreError, create_lookup_knowledge_graph
with KnowledgeBase.open(sys.argv[1], embedding=WordEmbeddings(), sync=False) as kb:
    graph = create_lookup_knowledge_graph(kb, record=None)
    print(graph.invoke({"query": "refund"})["retrieval_layer"])
    print(kb.sync().written)
    try:
        kb.sync(rebuild=True)
    except StoreError as error:
        print(error)
"""


@pytest.mark.process
def test_q15_an_index_in_use_is_read_by_another_process_and_its_writer_is_told(tmp_path, recorder):
    made = Base(CASES["Q-15"], tmp_path / "kb", recorder, "from_settings")
    assert made.look_up("refund")[0]["l1"]["status"] == "ok"
    with made.kb.index.lock():
        command = [sys.executable, "-c", ASK, str(made.folder), str(TESTS)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    refusal = "another process is writing the index: wait until it is done"
    assert done.stdout == f"L0+L1\nFalse\n{refusal}\n"
    made.kb.close()


@pytest.mark.slow
def test_q16_lookups_in_threads_while_files_are_indexed_fail_nowhere(base, engine):
    made, stop, failures = base("Q-16"), threading.Event(), []
    graph = create_lookup_knowledge_graph(
        made.kb, record=None, options=LookupOptions(l1_timeout=60)
    )

    def look_up():
        while not stop.is_set():
            l1 = graph.invoke({"query": "refund"})["l1"]
            if l1["status"] != "ok":
                failures.append(l1)

    threads = [threading.Thread(target=look_up) for _ in range(3)]
    for thread in threads:
        thread.start()
    for number in range(5):
        write_files(
            made.folder,
            {f"new{number}.md": f"---\ntitle: New {number}\n---\nA new page, number {number}.\n"},
        )
        made.kb.sync()
    stop.set()
    for thread in threads:
        thread.join(60)
    assert failures == []
    assert set(made.kb.index.contents().digests) == {entry.entry_id for entry in made.kb.entries}
    assert len(made.kb.entries) == 8


class NanEmbeddings(WordEmbeddings):
    """Gives NaN for texts about the VPN and for the query `nan please`."""

    def embed_documents(self, texts):
        return [
            [math.nan] * 64 if "VPN" in text else super(NanEmbeddings, self).embed_query(text)
            for text in texts
        ]

    def embed_query(self, text):
        return [math.nan] * 64 if text == "nan please" else super().embed_query(text)


def test_q17_a_vector_of_nan_costs_its_passage_the_similarity_and_nothing_else(
    base, engine, caplog
):
    made = base("Q-17", embedding=NanEmbeddings())
    told = "the embedding model gave no usable vector for a passage: it is found by its words alone"
    assert [str(problem) for problem in made.kb.problems] == [f"i.md: {told}"]
    assert f"i.md: {told}" in caplog.text
    assert made.look_up("refund")[0]["primary"]["similarity"] > 0
    (vpn,) = (
        match for match in made.look_up("client")[0]["matches"] if match["entry_id"] == "i.md"
    )
    assert (vpn["similarity"], vpn["layers"]) == (None, ["L1"])
    result, row = made.look_up("nan please")
    assert (result["l1"]["status"], "not finite" in result["l1"]["reason"]) == ("failed", True)
    json.dumps(row, allow_nan=False)
    assert made.kb.sync().embedded == 0


def test_q20_a_server_that_never_answers_costs_three_time_limits_and_then_nothing(base, server):
    made = base("Q-20")
    server.misbehave(qdrant_server.hang)
    for _ in range(3):
        result, _ = made.look_up("refund", l1_timeout=0.3)
        assert (result["l1"]["status"], result["primary"]["entry_id"]) == ("timeout", "b.md")
    asked = len(server.requests)
    for _ in range(3):
        result, _ = made.look_up("refund", l1_timeout=0.3)
        assert (result["l1"]["status"], result["l1"]["elapsed_ms"]) == ("unavailable", 0)
        assert "tried again in" in result["l1"]["reason"]
    assert len(server.requests) == asked


def test_q21_a_missing_collection_and_an_empty_one_name_the_command(base, server):
    missing, row = base("Q-21", sync=False).look_up("refund")
    assert (missing["l1"]["status"], missing["primary"]["entry_id"]) == ("unavailable", "b.md")
    assert (
        'collection "kb" does not exist: run `lookup-knowledge index`'
        in row["retrieval_details"]["l1"]["reason"]
    )
    assert not any(line.startswith(("PUT", "DELETE")) for line in server.requests)
    emptied = base("Q-21", collection="emptied")
    emptied.kb.index.client.delete("emptied", _everything(), wait=True)
    empty, row = emptied.look_up("refund")
    assert (empty["l1"]["status"], empty["retrieval_layer"]) == ("empty", "L0")
    assert (
        "the index holds no passage: run `lookup-knowledge index`"
        in row["retrieval_details"]["l1"]["reason"]
    )


def _everything():
    from qdrant_client import models

    return models.FilterSelector(filter=models.Filter(must=[]))


def test_q22_a_wrong_api_key_is_told_once_and_shown_nowhere(base, server, caplog):
    secret = CASES["Q-22"]["input"]["config"]["api_key"]
    made = base("Q-22")
    server.api_key = "another"
    server.requests.clear()
    made.kb.l1.index = QdrantIndex(server.url, "kb", api_key=secret)
    caplog.set_level(logging.DEBUG, "langchain_lookup_knowledge")
    result, row = made.look_up("refund")
    assert (result["l1"]["status"], result["primary"]["entry_id"]) == ("failed", "b.md")
    assert "refuses the API key (HTTP 401): check api_key" in result["l1"]["reason"]
    assert len(server.requests) == 1
    assert secret not in f"{result}{row}{caplog.text}{made.kb.index!r}{made.kb.health()}"


def test_q24_a_server_too_old_for_the_client_is_named_with_both_versions(base, server):
    made = base("Q-24")
    server.misbehave(qdrant_server.raw(404, b""), where="/points/query")
    result, _ = made.look_up("refund")
    assert result["l1"]["status"] == "failed"
    assert (
        "the Qdrant server 1.9.0 does not support a request of qdrant-client 1."
        in result["l1"]["reason"]
    )
    text = create_lookup_knowledge_tool(made.kb, record=None).invoke({"query": "refund"})
    assert "Warning" not in text


def test_q25_a_collection_of_somebody_elses_is_never_written_nor_recreated(base, server):
    from qdrant_client import QdrantClient, models

    theirs = QdrantClient(server.url, check_compatibility=False)
    theirs.create_collection(
        "kb", vectors_config=models.VectorParams(size=2, distance=models.Distance.DOT)
    )
    theirs.upsert("kb", [models.PointStruct(id=i, vector=[1, i], payload={}) for i in range(5)])
    made = base("Q-25", sync=False)
    for rebuild in (False, True):
        with pytest.raises(StoreError, match="was not made by this package"):
            made.kb.sync(rebuild=rebuild)
    assert theirs.count("kb").count == 5
    theirs.close()


def test_q26_every_passage_fits_the_model_and_the_end_is_found(base, engine):
    made = base("Q-26", embedding=WordEmbeddings())
    model = FastEmbedModel()
    assert len(made.embedding.embedded) > 5
    assert max(model.count_tokens(text) for text in made.embedding.embedded) <= 254
    result, _ = made.look_up("zebras")
    assert "zebras" in result["matches"][0]["snippet"]


def agent_graph(tool, **options):
    graph = StateGraph(MessagesState)
    graph.add_node("tools", ToolNode([tool], **options))
    graph.add_edge(START, "tools")
    return graph.compile()


CALL = AIMessage(
    "", tool_calls=[{"name": "lookup_knowledge", "args": {"query": "refund"}, "id": "call_1"}]
)
TOOL_FAULTS = {
    "embedder raises RuntimeError": lambda base: setattr(
        base.embedding, "failure", RuntimeError("boom")
    ),
    "qdrant ConnectionError": lambda base: setattr(
        base.kb.l1, "index", QdrantIndex("http://127.0.0.1:9", "kb")
    ),
    "knowledge folder deleted": lambda base: shutil.rmtree(base.folder),
}


@pytest.fixture
def tool_base(tmp_path, recorder):
    def make(case_id):
        return Base(TOOL_CASES[case_id], tmp_path / "kb", recorder, "from_settings")

    return make


@pytest.mark.parametrize("way", ["sync", "async"])
@pytest.mark.parametrize("fault", TOOL_FAULTS)
def test_l08_a_fault_never_ends_the_agent(tool_base, recorder, fault, way):
    assert fault in TOOL_CASES["L-08"]["input"]["faults"]
    base = tool_base("L-08")
    TOOL_FAULTS[fault](base)
    graph = agent_graph(create_lookup_knowledge_tool(base.kb, record=recorder))
    state = (
        asyncio.run(graph.ainvoke({"messages": [CALL]}))
        if way == "async"
        else graph.invoke({"messages": [CALL]})
    )
    (message,) = state["messages"][1:]
    assert message.status == "success"
    assert (message.artifact["status"], message.artifact["retrieval_layer"]) == ("degraded", "L0")
    assert message.content.splitlines()[0].startswith("Keyword matching alone answered (L0)")
    assert message.artifact["l1"]["reason"] in message.content


@pytest.mark.parametrize("stop", [KeyboardInterrupt, asyncio.CancelledError])
def test_l08_what_is_meant_to_stop_the_agent_is_not_swallowed(tool_base, recorder, stop):
    base = tool_base("L-08")
    base.embedding.failure = stop()
    with pytest.raises((stop, NodeCancelledError)):
        agent_graph(create_lookup_knowledge_tool(base.kb, record=recorder)).invoke(
            {"messages": [CALL]}
        )


@pytest.mark.parametrize("way", ["sync", "async"])
def test_l09_a_secret_in_an_exception_reaches_nobody(tool_base, recorder, caplog, way):
    base = tool_base("L-09")
    caplog.set_level(logging.INFO)
    (fault,) = TOOL_CASES["L-09"]["input"]["faults"]
    assert "sk-SECRET" in fault
    base.embedding.failure = RuntimeError(fault)
    graph = agent_graph(
        create_lookup_knowledge_tool(base.kb, record=recorder), handle_tool_errors=True
    )
    state = (
        asyncio.run(graph.ainvoke({"messages": [CALL]}))
        if way == "async"
        else graph.invoke({"messages": [CALL]})
    )
    assert state["messages"][-1].artifact["l1"]["status"] == "failed"
    assert (
        "sk-SECRET"
        not in f"{state['messages'][-1]!r}{recorder.invocations()}{caplog.text}{base.kb.health()}"
    )


def test_l11_one_tool_serves_one_event_loop_after_another(tool_base, recorder, caplog):
    tool = create_lookup_knowledge_tool(tool_base("L-11").kb, record=recorder)
    for _ in range(3):
        assert "L0+L1" in asyncio.run(tool.ainvoke({"query": "refund"}))
    time.sleep(0.05)
    assert caplog.records == []
