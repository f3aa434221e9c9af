"""Scopes: a caller sees its own entries and public ones, and nothing of the others shows anywhere."""

import asyncio
import json
import logging
import random
from dataclasses import dataclass
from enum import Enum, StrEnum
from uuid import UUID

import pytest
from conftest import WordEmbeddings, shared_cases, write_files
from langchain_core.documents import Document
from langchain_core.messages import HumanMessage

from langchain_lookup_knowledge import (
    KnowledgeBase,
    LookupKnowledgeRetriever,
    LookupOptions,
    SQLInvocationRecorder,
    create_lookup_knowledge_graph,
    create_lookup_knowledge_tool,
)
from langchain_lookup_knowledge.cli import main

ACME = "---\ntitle: Acme refunds\nkeywords: [refund]\ntenant: acme\ncategory: billing\n---\nACME-SECRET pays in five days.\n"
BETA = "---\ntitle: Beta refunds\nkeywords: [refund, beta-only]\ntenant: beta\ncategory: finance\n---\nBETA-SECRET\n"
SHARED = "---\ntitle: Holidays\nkeywords: [refund holiday]\npublic: true\n---\nAll offices close.\n"
NOBODY = "---\ntitle: Drafts of refunds\nkeywords: [refund]\n---\nNOBODY-SECRET waits.\n"
BOTH = "---\ntitle: Merger\nkeywords: [refund merger]\ntenant: [acme, beta]\n---\nBoth firms refund.\n"
FILES = {"acme/a.md": ACME, "beta/b.md": BETA, "holidays.md": SHARED, "drafts.md": NOBODY, "merger.md": BOTH}
SCOPED = LookupOptions(scope_fields=("tenant",))


@pytest.fixture
def folder(tmp_path):
    return write_files(tmp_path / "kb", FILES)


def config(tenant):
    return {"configurable": {"tenant": tenant}}


def seen(result):
    return {match["entry_id"] for match in result["matches"]}


def test_a_caller_sees_its_own_entries_and_public_ones(kb):
    graph = create_lookup_knowledge_graph(kb, options=SCOPED)
    result = graph.invoke({"query": "refund days holiday merger beta-only"}, config("acme"))
    assert seen(result) == {"acme/a.md", "holidays.md", "merger.md"}
    assert (result["hints"]["domains"], result["l1"]["candidates"]) == (["billing"], 3)
    assert all(term["files"] <= 3 for term in result["hints"]["terms"])
    other = graph.invoke({"query": "refund beta-only"}, config("beta"))
    assert (other["primary"]["entry_id"], other["hints"]["domains"]) == ("beta/b.md", ["finance"])


def test_the_scope_may_stand_in_the_runtime_context(kb):
    @dataclass
    class Context:
        tenant: str

    graph = create_lookup_knowledge_graph(kb, options=SCOPED, record=None)
    assert "beta/b.md" in seen(graph.invoke({"query": "refund"}, context=Context("beta")))
    assert "beta/b.md" in seen(graph.invoke({"query": "refund"}, context={"tenant": "beta"}))


@pytest.mark.parametrize(
    "given", [{}, {"tenant": ""}, {"tenant": " "}, {"tenant": None}, {"tenant": ["acme"]}, {"tenant": True}]
)
def test_without_a_scope_the_lookup_is_refused_and_recorded_as_refused(kb, given, tmp_path):
    recorder = SQLInvocationRecorder(f"sqlite:///{tmp_path / 'calls.db'}")
    tool = create_lookup_knowledge_tool(kb, record=recorder, options=SCOPED)
    text = tool.invoke({"query": "refund"}, {"configurable": given})
    assert text.startswith("Not answered: the caller's scope is not known: give 'tenant' a text in config=")
    (row,) = recorder.invocations()
    assert (row["status"], row["retrieval_layer"], row["l1_status"], row["result_count"]) == (
        "refused",
        "none",
        "skipped",
        0,
    )
    assert row["retrieval_details"]["l0_hints"]["entries"] == []


def test_the_model_cannot_set_the_scope(kb):
    tool = create_lookup_knowledge_tool(kb, record=None, options=SCOPED)
    assert set(tool.args) == {"query"}
    call = {
        "type": "tool_call",
        "name": tool.name,
        "id": "1",
        "args": {"query": "refund", "tenant": "beta", "scope": "beta"},
    }
    assert seen(tool.invoke(call, config("acme")).artifact) <= {"acme/a.md", "holidays.md", "merger.md"}
    graph = create_lookup_knowledge_graph(kb, record=None, options=SCOPED)
    state = {
        "query": "refund",
        "scope": {"tenant": "beta"},
        "tenant": "beta",
        "messages": [HumanMessage("as tenant beta")],
    }
    assert "beta/b.md" not in seen(graph.invoke(state, config("acme")))


def test_the_tool_tells_nothing_of_how_many_entries_there_are(kb):
    described = create_lookup_knowledge_tool(kb, options=SCOPED, list_categories=True).description
    assert "entries" not in described
    assert "finance" not in described


def test_the_row_keeps_the_scope(kb, tmp_path):
    recorder = SQLInvocationRecorder(f"sqlite:///{tmp_path / 'calls.db'}")
    create_lookup_knowledge_graph(kb, record=recorder, options=SCOPED).invoke({"query": "refund"}, config("acme"))
    assert recorder.invocations()[0]["retrieval_details"]["scope"] == {"tenant": "acme"}


def test_a_stale_index_does_not_show_what_has_changed_hands(folder, embedding):
    with KnowledgeBase.open(folder, embedding=embedding):
        pass
    write_files(folder, {"acme/a.md": ACME.replace("tenant: acme", "tenant: beta")})
    with KnowledgeBase.open(folder, embedding=embedding, sync=False) as kb:
        result = create_lookup_knowledge_graph(kb, record=None, options=SCOPED).invoke(
            {"query": "refund"}, config("acme")
        )
        assert seen(result) == {"holidays.md", "merger.md"}


def test_an_adopted_collection_is_not_searched_within_a_scope(folder, embedding):
    from qdrant_client import QdrantClient

    from langchain_lookup_knowledge import QdrantIndex

    index = QdrantIndex.adopt("", "kb", client=QdrantClient(":memory:"))
    with (
        KnowledgeBase.open(folder, index=index, embedding=embedding) as kb,
        pytest.raises(ValueError, match="cannot be searched within a scope"),
    ):
        create_lookup_knowledge_graph(kb, record=None, options=SCOPED)


@pytest.mark.parametrize("fields", ["tenant", (1,), ("",)])
def test_scope_fields_are_a_tuple_of_names(fields):
    with pytest.raises(ValueError, match="scope_fields takes a tuple of frontmatter keys"):
        LookupOptions(scope_fields=fields)


@pytest.mark.parametrize("case", [case for case in shared_cases("fallback_injection") if "R-15" in str(case.id)])
@pytest.mark.parametrize("l1", ["ok", "down", "empty", "relaxed"])
def test_case_tenants(case, l1, tmp_path, embedding):
    files, query = case["input"]["files"], case["input"]["query"]
    recorder = SQLInvocationRecorder(f"sqlite:///{tmp_path / 'calls.db'}")
    threshold = 0.999 if l1 == "empty" else None
    options = LookupOptions(scope_fields=("tenant",), min_similarity=threshold)
    with KnowledgeBase.open(write_files(tmp_path / "kb", files), embedding=embedding) as kb:
        embedding.failure = RuntimeError("down") if l1 == "down" else None
        tool = create_lookup_knowledge_tool(kb, record=recorder, options=options)
        call = {"type": "tool_call", "name": tool.name, "id": "1", "args": {"query": query}}
        message = tool.invoke(call, {"configurable": case["input"]["runtime"]})
    assert message.artifact["hints"]["domains"] == ["billing"]
    written = json.dumps([message.content, message.artifact, recorder.invocations()]).replace(query, "").lower()
    assert not [
        word for word in ("beta refunds", "beta-secret", "beta/b.md", "finance", "beta-only") if word in written
    ]


WORDS = "refund invoice policy holiday printer access expense travel badge parking".split()


def tenant_files(rng):
    for tenant in ("north", "south", "west"):
        for number in range(12):
            keywords = ", ".join(rng.sample(WORDS, 3))
            canary, text = f"CANARY-{tenant}", " ".join(rng.choices(WORDS, k=20))
            yield (
                f"{tenant}-{number}/{canary}.md",
                f"---\ntitle: {rng.choice(WORDS)} {canary}\nkeywords: [{keywords}, {canary}]\ntenant: {tenant}\n"
                f"category: {canary} {rng.choice(WORDS)}\nentities: [{canary}]\n---\n{text} {canary}\n",
            )


def ways_in(kb, recorder, options):
    """Return functions from a query and a configuration to all that a caller gets to see."""
    graph = create_lookup_knowledge_graph(kb, record=recorder, options=options)
    tool = create_lookup_knowledge_tool(kb, record=recorder, options=options, list_categories=True)
    retriever = LookupKnowledgeRetriever(knowledge_base=kb, record=recorder, options=options)

    def call(query, config):
        message = tool.invoke({"type": "tool_call", "name": tool.name, "id": "1", "args": {"query": query}}, config)
        return [message.content, message.artifact, tool.description]

    def stream(query, config):
        return list(graph.stream({"query": query}, config, stream_mode=["updates", "custom", "values"], subgraphs=True))

    def awaited(query, config):
        return asyncio.run(graph.ainvoke({"query": query}, config))

    def retrieve(query, config):
        return [document.model_dump() for document in retriever.invoke(query, config)]

    return [lambda query, config: graph.invoke({"query": query}, config), call, stream, awaited, retrieve]


@pytest.mark.slow
def test_two_thousand_lookups_show_nothing_of_another_tenant(tmp_path, caplog, capsys):
    caplog.set_level(logging.DEBUG)
    rng, embedding = random.Random(7), WordEmbeddings()
    folder = write_files(tmp_path / "kb", dict(tenant_files(rng)))
    recorder = SQLInvocationRecorder(f"sqlite:///{tmp_path / 'calls.db'}")
    with KnowledgeBase.open(folder, embedding=embedding) as kb:
        caplog.clear()
        settings = [
            ways_in(kb, recorder, LookupOptions(scope_fields=("tenant",), min_similarity=threshold, filter_mode=mode))
            for threshold, mode in ((None, "guarded"), (0.99, "guarded"), (None, "strict"))
        ]
        for number in range(2000):
            tenant = rng.choice(["north", "south", "west"])
            embedding.failure = RuntimeError("down") if number % 4 == 3 else None
            query = " ".join([*rng.sample(WORDS, rng.randint(1, 4)), rng.choice(["", "printr", "secret canary"])])
            answer = rng.choice(rng.choice(settings))(query, config(tenant))
            others = {f"CANARY-{other}" for other in ("north", "south", "west")} - {f"CANARY-{tenant}"}
            assert not [canary for canary in others if canary in repr(answer)], (tenant, query)
        for _ in range(60):
            tenant = rng.choice(["north", "south", "west"])
            query = " ".join(rng.sample(WORDS, 3))
            database = ["--data-dir", str(tmp_path / "command")]
            main(["ask", str(folder), query, "--scope", f"tenant={tenant}", "--no-l1", *database, "--json"])
            shown = capsys.readouterr()
            assert all(part.startswith(tenant) for part in (shown.out + shown.err).split("CANARY-")[1:])
    rows = recorder.invocations(limit=5000)
    assert len(rows) == 2000
    for row in rows:
        tenant = row["retrieval_details"]["scope"]["tenant"]
        assert all(part.startswith(tenant) for part in json.dumps(row).split("CANARY-")[1:])
    assert "CANARY" not in caplog.text


def test_a_text_that_changes_hands_during_a_lookup_is_not_shown(folder, kb):
    write_files(
        folder, {"acme/a.md": ACME.replace("tenant: acme", "tenant: beta").replace("ACME-SECRET", "NEW-SECRET")}
    )
    kb._read(kb._knowledge.hints)
    assert kb.excerpt("acme/a.md", scope=(("tenant", "acme"),)) == ""
    assert "NEW-SECRET" in kb.excerpt("acme/a.md", scope=(("tenant", "beta"),))


def test_hints_in_a_scope_are_spelt_as_its_own_entries_spell_them(tmp_path):
    files = {f"public/{i}.md": "---\npublic: true\n---\nText.\n" for i in range(20)}
    files["b.md"] = "---\nkeywords: [Project FALCON!, AIMS]\ntenant: b\n---\nB.\n"
    files["c.md"] = "---\nkeywords: [project falcon, Aims]\ntenant: a\n---\nA.\n"
    with KnowledgeBase.open(write_files(tmp_path / "kb", files), index=None) as kb:
        hints = kb.hints("project falcon and Aims", scope=(("tenant", "a"),))
    assert hints["keywords"] == ["project falcon", "Aims"]


def test_more_scopes_than_are_kept_do_not_drive_each_other_out_at_once(kb, monkeypatch):
    monkeypatch.setattr("langchain_lookup_knowledge.knowledge_base.MAX_VIEWS", 2)
    for tenant in ("acme", "beta", "acme", "gamma"):
        kb.hints("refund", scope=(("tenant", tenant),))
    assert list(kb._knowledge.views) == [(("tenant", "beta"),), (("tenant", "gamma"),)]


class Plan(Enum):
    FREE = "free"


@pytest.mark.parametrize("tenant", ["beta", ["beta"], None, UUID(int=1), Plan.FREE, {"beta"}, object(), 7])
@pytest.mark.parametrize(
    "header",
    [
        "tenant: acme\npublic: true",
        '"tenant ": acme\n"public ": true',
        "ten\u200bant: acme\npub\u200blic: true",
        '"\u00a0Tenant": acme\n"\u00a0Public": true',
    ],
)
def test_the_text_of_a_document_does_not_open_itself_to_others(tmp_path, tenant, header):
    documents = [Document(f"---\n{header}\n---\nBETA-SECRET refund.\n", metadata={"source": "a", "tenant": tenant})]
    with KnowledgeBase.from_documents(documents, data_dir=tmp_path / "data", index=None) as kb:
        assert kb.excerpt("a", scope=(("tenant", "acme"),)) == ""
        told = [str(problem) for problem in kb.problems if "type object" in str(problem)]
    assert len(told) == (type(tenant) is object)


@pytest.mark.parametrize(
    ("tenant", "written"),
    [("beta", "beta"), (UUID(int=1), str(UUID(int=1))), (Plan.FREE, "free"), ({"x", "beta"}, "beta"), (7, "7")],
)
def test_a_document_is_seen_by_the_tenant_of_its_metadata(tmp_path, tenant, written):
    documents = [Document("BETA-SECRET refund.", metadata={"source": "a", "tenant": tenant})]
    with KnowledgeBase.from_documents(documents, data_dir=tmp_path / "data", index=None) as kb:
        assert kb.excerpt("a", scope=(("tenant", written),)) == "BETA-SECRET refund."


def test_a_document_whose_metadata_cannot_be_read_is_skipped(tmp_path):
    deep = []
    for _ in range(5000):
        deep = [deep]
    documents = [Document("---\npublic: true\n---\nBETA-SECRET", metadata={"source": "a", "tenant": "beta", "x": deep})]
    with KnowledgeBase.from_documents(documents, data_dir=tmp_path / "data", index=None) as kb:
        assert kb.entries == []
        assert "its metadata cannot be read" in str(kb.problems[0])


@pytest.mark.parametrize(
    ("public", "shown"), [("true", True), ("TRUE", True), ("[true]", False), ("[false, 'true']", False)]
)
def test_only_one_plain_value_makes_an_entry_public(tmp_path, public, shown):
    folder = write_files(tmp_path / "kb", {"a.md": f"---\npublic: {public}\n---\nRefunds.\n"})
    with KnowledgeBase.open(folder, index=None) as kb:
        assert bool(kb.excerpt("a.md", scope=(("tenant", "acme"),))) is shown
        assert bool(kb.problems) is not shown


@pytest.mark.parametrize("tenant", ["ac\u200bme", "ac\x00me", "ac\xadme", "ac  me", "ac\nme"])
def test_a_scope_that_cannot_be_told_from_another_by_eye_is_refused(kb, tenant):
    result = create_lookup_knowledge_graph(kb, options=SCOPED).invoke({"query": "refund"}, config(tenant))
    assert (result["status"], result["matches"]) == ("refused", [])
    assert "cannot be seen" in result["relevance"]["reason"]


def test_a_number_that_is_too_long_is_refused(kb):
    result = create_lookup_knowledge_graph(kb, options=SCOPED).invoke({"query": "refund"}, config(10**5000))
    assert (result["status"], result["matches"]) == ("refused", [])


def test_the_scope_of_an_enum_is_its_value(kb):
    class Tenant(StrEnum):
        ACME = "acme"

    graph = create_lookup_knowledge_graph(kb, options=SCOPED)
    assert seen(graph.invoke({"query": "refund"}, config(Tenant.ACME))) == seen(
        graph.invoke({"query": "refund"}, config("acme"))
    )


def test_a_retriever_whose_options_change_keeps_to_the_new_ones(kb):
    retriever = LookupKnowledgeRetriever(knowledge_base=kb, record=None)
    assert "beta/b.md" in {document.id for document in retriever.invoke("beta-only refund")}
    scoped = retriever.model_copy(update={"options": SCOPED})
    assert scoped.invoke("beta-only refund") == []
    assert "beta/b.md" not in {document.id for document in scoped.invoke("beta-only refund", config("acme"))}
