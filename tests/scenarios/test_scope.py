"""Scopes: a caller sees its own entries and public ones, and nothing of the others shows
anywhere.
"""

import asyncio
import json
import logging
import random
from dataclasses import dataclass
from enum import Enum, StrEnum
from uuid import UUID

import pytest
from conftest import WordEmbeddings, write_files
from langchain_core.documents import Document
from langchain_core.messages import HumanMessage
from parts.cases import read_cases, write_case

from langchain_lookup_knowledge import (
    KnowledgeBase,
    LookupKnowledgeRetriever,
    LookupOptions,
    ScopeError,
    SQLInvocationRecorder,
    create_lookup_knowledge_graph,
    create_lookup_knowledge_tool,
)
from langchain_lookup_knowledge.integrations.cli import main

ACME = (
    "---\ntitle: Acme refunds\nkeywords: [refund]\ntenant: acme\ncategory: billing\n---\n"
    "ACME-SECRET pays in five days.\n"
)
BETA = (
    "---\ntitle: Beta refunds\nkeywords: [refund, beta-only]\ntenant: beta\n"
    "category: finance\n---\nBETA-SECRET\n"
)
SHARED = "---\ntitle: Holidays\nkeywords: [refund holiday]\npublic: true\n---\nAll offices close.\n"
NOBODY = "---\ntitle: Drafts of refunds\nkeywords: [refund]\n---\nNOBODY-SECRET waits.\n"
BOTH = (
    "---\ntitle: Merger\nkeywords: [refund merger]\ntenant: [acme, beta]\n---\nBoth firms refund.\n"
)
FILES = {
    "acme/a.md": ACME,
    "beta/b.md": BETA,
    "holidays.md": SHARED,
    "drafts.md": NOBODY,
    "merger.md": BOTH,
}
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
    assert all(term["document_frequency"] <= 3 for term in result["hints"]["terms"])
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
    "given",
    [{}, {"tenant": ""}, {"tenant": " "}, {"tenant": None}, {"tenant": ["acme"]}, {"tenant": True}],
)
def test_without_a_scope_the_lookup_is_refused_and_recorded_as_refused(kb, given, tmp_path):
    recorder = SQLInvocationRecorder(f"sqlite:///{tmp_path / 'calls.db'}")
    tool = create_lookup_knowledge_tool(kb, record=recorder, options=SCOPED)
    text = tool.invoke({"query": "refund"}, {"configurable": given})
    assert text.startswith(
        "Not answered: the caller's scope is not known: set 'tenant' to a text in config="
    )
    (row,) = recorder.invocations()
    assert (row["status"], row["retrieval_layer"], row["l1_status"], row["result_count"]) == (
        "refused",
        "none",
        "skipped",
        0,
    )
    assert row["retrieval_details"]["l0_hints"]["entries"] == []
    assert row["retrieval_details"]["filter"]["reason"] == "skipped"


def test_the_model_cannot_set_the_scope(kb):
    tool = create_lookup_knowledge_tool(kb, record=None, options=SCOPED)
    assert set(tool.args) == {"query"}
    call = {
        "type": "tool_call",
        "name": tool.name,
        "id": "1",
        "args": {"query": "refund", "tenant": "beta", "scope": "beta"},
    }
    assert seen(tool.invoke(call, config("acme")).artifact) <= {
        "acme/a.md",
        "holidays.md",
        "merger.md",
    }
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
    create_lookup_knowledge_graph(kb, record=recorder, options=SCOPED).invoke(
        {"query": "refund"}, config("acme")
    )
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


def test_an_existing_collection_is_not_searched_within_a_scope(folder, embedding):
    from qdrant_client import QdrantClient

    from langchain_lookup_knowledge import QdrantIndex

    index = QdrantIndex.from_existing("", "kb", client=QdrantClient(":memory:"))
    with (
        KnowledgeBase.open(folder, index=index, embedding=embedding) as kb,
        pytest.raises(ValueError, match="cannot be searched within a scope"),
    ):
        create_lookup_knowledge_graph(kb, record=None, options=SCOPED)


@pytest.mark.parametrize("fields", ["tenant", (1,), ("",)])
def test_scope_fields_are_a_tuple_of_names(fields):
    with pytest.raises(ValueError, match="scope_fields takes a tuple of frontmatter keys"):
        LookupOptions(scope_fields=fields)


@pytest.mark.parametrize("l1", ["ok", "down", "empty", "relaxed"])
def test_case_r15_tenants(l1, tmp_path, embedding):
    case = read_cases("results")["R-15"]
    query = case["input"]["query"]
    recorder = SQLInvocationRecorder(f"sqlite:///{tmp_path / 'calls.db'}")
    threshold = 0.999 if l1 == "empty" else None
    options = LookupOptions(scope_fields=("tenant",), min_similarity=threshold)
    with KnowledgeBase.open(write_case(tmp_path / "kb", case), embedding=embedding) as kb:
        embedding.failure = RuntimeError("down") if l1 == "down" else None
        tool = create_lookup_knowledge_tool(kb, record=recorder, options=options)
        call = {"type": "tool_call", "name": tool.name, "id": "1", "args": {"query": query}}
        message = tool.invoke(call, {"configurable": case["input"]["runtime"]})
    assert message.artifact["hints"]["domains"] == ["billing"]
    written = (
        json.dumps([message.content, message.artifact, recorder.invocations()])
        .replace(query, "")
        .replace("no passage holds 'beta-only'", "")  # words of the query, and of no text
        .replace('"beta-only": 0', "")
        .lower()
    )
    assert not [
        word
        for word in ("beta refunds", "beta-secret", "beta/b.md", "finance", "beta-only")
        if word in written
    ]


WORDS = "refund invoice policy holiday printer access expense travel badge parking".split()


def tenant_files(rng):
    for tenant in ("north", "south", "west"):
        for number in range(12):
            keywords = ", ".join(rng.sample(WORDS, 3))
            canary, text = f"CANARY-{tenant}", " ".join(rng.choices(WORDS, k=20))
            yield (
                f"{tenant}-{number}/{canary}.md",
                f"---\ntitle: {rng.choice(WORDS)} {canary}\n"
                f"keywords: [{keywords}, {canary}]\ntenant: {tenant}\n"
                f"category: {canary} {rng.choice(WORDS)}\nentities: [{canary}]\n"
                f"---\n{text} {canary}\n",
            )


def ways_in(kb, recorder, options):
    """Return functions from a query and a configuration to all that a caller gets to see."""
    graph = create_lookup_knowledge_graph(kb, record=recorder, options=options)
    tool = create_lookup_knowledge_tool(kb, record=recorder, options=options, list_categories=True)
    retriever = LookupKnowledgeRetriever(knowledge_base=kb, record=recorder, options=options)

    def call(query, config):
        message = tool.invoke(
            {"type": "tool_call", "name": tool.name, "id": "1", "args": {"query": query}}, config
        )
        return [message.content, message.artifact, tool.description]

    def stream(query, config):
        return list(
            graph.stream(
                {"query": query},
                config,
                stream_mode=["updates", "custom", "values"],
                subgraphs=True,
            )
        )

    def awaited(query, config):
        return asyncio.run(graph.ainvoke({"query": query}, config))

    def retrieve(query, config):
        return [document.model_dump() for document in retriever.invoke(query, config)]

    def in_context(query, config):
        return graph.invoke({"query": query}, context=config["configurable"])

    return [
        lambda query, config: graph.invoke({"query": query}, config),
        in_context,
        call,
        stream,
        awaited,
        retrieve,
    ]


@pytest.mark.parametrize("lookups", [300, pytest.param(5000, marks=pytest.mark.nightly)])
@pytest.mark.slow
def test_lookups_through_every_door_show_nothing_of_another_tenant(
    tmp_path, caplog, capsys, lookups
):
    caplog.set_level(logging.DEBUG)
    rng, embedding = random.Random(7), WordEmbeddings()
    folder = write_files(tmp_path / "kb", dict(tenant_files(rng)))
    recorder = SQLInvocationRecorder(f"sqlite:///{tmp_path / 'calls.db'}")
    with KnowledgeBase.open(folder, embedding=embedding, scope_fields=("tenant",)) as kb:
        caplog.clear()
        settings = [
            ways_in(
                kb,
                recorder,
                LookupOptions(min_similarity=threshold, filter_mode=mode),
            )
            for threshold, mode in ((None, "guarded"), (0.99, "guarded"), (None, "strict"))
        ]
        for number in range(lookups):
            tenant = rng.choice(["north", "south", "west"])
            embedding.failure = RuntimeError("down") if number % 4 == 3 else None
            query = " ".join(
                [*rng.sample(WORDS, rng.randint(1, 4)), rng.choice(["", "printr", "secret canary"])]
            )
            answer = rng.choice(rng.choice(settings))(query, config(tenant))
            others = {f"CANARY-{other}" for other in ("north", "south", "west")} - {
                f"CANARY-{tenant}"
            }
            hints = kb.hints(query, scope={"tenant": tenant})
            answer = (answer, hints)
            assert not [canary for canary in others if canary in repr(answer)], (tenant, query)
        for _ in range(lookups // 30):
            tenant = rng.choice(["north", "south", "west"])
            query = " ".join(rng.sample(WORDS, 3))
            database = ["--data-dir", str(tmp_path / "command")]
            main(
                [
                    "ask",
                    str(folder),
                    query,
                    "--scope",
                    f"tenant={tenant}",
                    "--no-l1",
                    *database,
                    "--json",
                ]
            )
            shown = capsys.readouterr()
            assert all(
                part.startswith(tenant) for part in (shown.out + shown.err).split("CANARY-")[1:]
            )
    rows = recorder.invocations(limit=10_000)
    assert len(rows) == lookups
    for row in rows:
        tenant = row["retrieval_details"]["scope"]["tenant"]
        assert all(part.startswith(tenant) for part in json.dumps(row).split("CANARY-")[1:])
    assert "CANARY" not in caplog.text


CONFLICTS = [
    ({"tenant": "acme"}, {"tenant": "beta"}),
    ({"tenant": "acme"}, {"tenant": ""}),
    ({"tenant": "acme"}, {"tenant": ["acme"]}),
    ({"tenant": ["acme"]}, {"tenant": "acme"}),
    ({"tenant": "Acme"}, {"tenant": "acme"}),
]


@pytest.mark.parametrize(("configurable", "context"), CONFLICTS)
def test_scopes_that_disagree_are_refused(kb, configurable, context):
    graph = create_lookup_knowledge_graph(kb, options=SCOPED, record=None)
    result = graph.invoke({"query": "refund"}, {"configurable": configurable}, context=context)
    assert (result["status"], result["matches"]) == ("refused", [])


@pytest.mark.parametrize("context", [{"tenant": "acme"}, {"tenant": " acme "}, {}, None])
def test_scopes_that_agree_are_one(kb, context):
    graph = create_lookup_knowledge_graph(kb, options=SCOPED, record=None)
    result = graph.invoke({"query": "refund"}, config("acme"), context=context)
    assert "acme/a.md" in seen(result)


def of_user(config, runtime):
    return {"tenant": config["configurable"]["langgraph_auth_user"]["org"]}


def test_the_scope_may_be_that_of_the_authenticated_user(kb):
    options = LookupOptions(scope_fields=("tenant",), scope=of_user)
    doors = ways_in(kb, None, options)
    sent = {"tenant": "beta", "langgraph_auth_user": {"identity": "u", "org": "acme"}}
    for door in (doors[0], *doors[2:]):
        answer = repr(door("refund beta-only", {"configurable": sent}))
        assert "acme/a.md" in answer
        assert "beta/b.md" not in answer


def raising(config, runtime):
    raise RuntimeError("sk-SECRET")


async def awaited(config, runtime):
    return {"tenant": "acme"}


@pytest.mark.parametrize(
    ("scope", "says"),
    [
        (raising, "the scope function failed with RuntimeError"),
        (of_user, "the scope function failed with KeyError"),
        (awaited, "must return a mapping of fields to values, not coroutine"),
        (lambda config, runtime: None, "must return a mapping"),
        (lambda config, runtime: {}, "the caller's scope is not known"),
        (lambda config, runtime: {"tenant": ["acme"]}, "the caller's scope is not known"),
    ],
)
def test_a_scope_function_that_fails_refuses(kb, scope, says):
    options = LookupOptions(scope_fields=("tenant",), scope=scope)
    graph = create_lookup_knowledge_graph(kb, options=options, record=None)
    result = graph.invoke({"query": "refund"}, config("acme"), context={"tenant": "acme"})
    assert (result["status"], says in result["relevance"]["reason"]) == ("refused", True)


@pytest.mark.parametrize("options", [{"scope": of_user}, {"scope": "x", "scope_fields": ("a",)}])
def test_a_scope_is_a_function_with_its_fields(options):
    with pytest.raises(ValueError, match="scope takes a function of config and runtime"):
        LookupOptions(**options)


def test_the_context_schema_shows_the_scope_fields(kb):
    graph = create_lookup_knowledge_graph(kb, options=SCOPED, record=None)
    assert list(graph.get_context_jsonschema()["properties"]) == ["tenant"]
    assert create_lookup_knowledge_graph(kb, record=None).get_context_jsonschema() is None


@pytest.fixture
def scoped_kb(folder, embedding):
    with KnowledgeBase.open(folder, embedding=embedding, scope_fields=("tenant",)) as opened:
        yield opened


def test_scope_fields_of_a_knowledge_base_hold_for_every_door(scoped_kb):
    doors = ways_in(scoped_kb, None, LookupOptions())
    for door in doors:
        answer = repr(door("refund beta-only", config("acme")))
        assert "acme/a.md" in answer
        assert "beta/b.md" not in answer
    nobody = {"configurable": {}}
    for door in doors[:-1]:
        assert "SECRET" not in repr(door("refund", nobody))
    with pytest.raises(ScopeError):
        doors[-1]("refund", nobody)


@pytest.mark.parametrize("scope", [(), {}, {"tenant": ""}, {"other": "acme"}, {"tenant": None}])
def test_methods_that_answer_questions_refuse_without_a_scope(scoped_kb, scope):
    acme = {"tenant": "acme"}
    (match, *_) = create_lookup_knowledge_graph(scoped_kb, record=None).invoke(
        {"query": "refund"}, config("acme")
    )["matches"]
    for call in (
        lambda given: scoped_kb.hints("refund", scope=given),
        lambda given: scoped_kb.surrounding_passages(match, scope=given),
        lambda given: scoped_kb.seen_by(given).entries,
    ):
        assert call(acme)
        with pytest.raises(ScopeError, match="the caller's scope is not known"):
            call(scope)
    assert len(scoped_kb.entries) == len(FILES)


def test_options_may_add_scope_fields_to_those_of_the_knowledge_base(scoped_kb):
    options = LookupOptions(scope_fields=("team",))
    graph = create_lookup_knowledge_graph(scoped_kb, options=options, record=None)
    assert graph.invoke({"query": "refund"}, config("acme"))["status"] == "refused"


def test_a_text_that_changes_hands_during_a_lookup_is_not_shown(folder, kb):
    write_files(
        folder,
        {
            "acme/a.md": ACME.replace("tenant: acme", "tenant: beta").replace(
                "ACME-SECRET", "NEW-SECRET"
            )
        },
    )
    kb._syncing.read()
    assert kb.l0.seen_by((("tenant", "acme"),)).excerpt("acme/a.md", ["refund"]) == []
    (shown,) = kb.l0.seen_by((("tenant", "beta"),)).excerpt("acme/a.md", ["refund"])
    assert "NEW-SECRET" in shown["text"]


def test_hints_in_a_scope_are_spelt_as_its_own_entries_spell_them(tmp_path):
    files = {f"public/{i}.md": "---\npublic: true\n---\nText.\n" for i in range(20)}
    files["b.md"] = "---\nkeywords: [Project FALCON!, AIMS]\ntenant: b\n---\nB.\n"
    files["c.md"] = "---\nkeywords: [project falcon, Aims]\ntenant: a\n---\nA.\n"
    with KnowledgeBase.open(write_files(tmp_path / "kb", files), index=None) as kb:
        hints = kb.hints("project falcon and Aims", scope=(("tenant", "a"),))
    assert hints["keywords"] == ["project falcon", "Aims"]


def test_more_scopes_than_are_kept_do_not_drive_each_other_out_at_once(kb, monkeypatch):
    monkeypatch.setattr("langchain_lookup_knowledge.knowledge.MAX_VIEWS", 2)
    for tenant in ("acme", "beta", "acme", "gamma"):
        kb.hints("refund", scope=(("tenant", tenant),))
    assert list(kb.l0.views) == [(("tenant", "beta"),), (("tenant", "gamma"),)]


class Plan(Enum):
    FREE = "free"


@pytest.mark.parametrize(
    "tenant", ["beta", ["beta"], None, UUID(int=1), Plan.FREE, {"beta"}, object(), 7]
)
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
    documents = [
        Document(
            f"---\n{header}\n---\nBETA-SECRET refund.\n", metadata={"source": "a", "tenant": tenant}
        )
    ]
    with KnowledgeBase.from_documents(documents, data_dir=tmp_path / "data", index=None) as kb:
        assert kb.l0.seen_by((("tenant", "acme"),)).excerpt("a", ["refund"]) == []
        told = [str(problem) for problem in kb.problems if "type object" in str(problem)]
    assert len(told) == (type(tenant) is object)


@pytest.mark.parametrize(
    ("tenant", "written"),
    [
        ("beta", "beta"),
        (UUID(int=1), str(UUID(int=1))),
        (Plan.FREE, "free"),
        ({"x", "beta"}, "beta"),
        (7, "7"),
    ],
)
def test_a_document_is_seen_by_the_tenant_of_its_metadata(tmp_path, tenant, written):
    documents = [Document("BETA-SECRET refund.", metadata={"source": "a", "tenant": tenant})]
    with KnowledgeBase.from_documents(documents, data_dir=tmp_path / "data", index=None) as kb:
        (shown,) = kb.l0.seen_by((("tenant", written),)).excerpt("a", ["refund"])
        assert shown["text"] == "BETA-SECRET refund."


def test_a_document_whose_metadata_cannot_be_read_is_skipped(tmp_path):
    deep = []
    for _ in range(5000):
        deep = [deep]
    documents = [
        Document(
            "---\npublic: true\n---\nBETA-SECRET",
            metadata={"source": "a", "tenant": "beta", "x": deep},
        )
    ]
    with KnowledgeBase.from_documents(documents, data_dir=tmp_path / "data", index=None) as kb:
        assert kb.entries == []
        assert "its metadata cannot be read" in str(kb.problems[0])


@pytest.mark.parametrize(
    ("public", "shown"),
    [("true", True), ("TRUE", True), ("[true]", False), ("[false, 'true']", False)],
)
def test_only_one_plain_value_makes_an_entry_public(tmp_path, public, shown):
    folder = write_files(tmp_path / "kb", {"a.md": f"---\npublic: {public}\n---\nRefunds.\n"})
    with KnowledgeBase.open(folder, index=None) as kb:
        assert bool(kb.l0.seen_by((("tenant", "acme"),)).excerpt("a.md", ["refund"])) is shown
        assert bool(kb.problems) is not shown


PUBLIC = ["public: yes", "Public: Yes", "PUBLIC: on", 'public: "true"', "public: 'ON'"]
NOT_PUBLIC = ["public: no", "public: 1", "public: y", "public:", "published: yes"]


@pytest.mark.parametrize("line", PUBLIC + NOT_PUBLIC)
def test_what_yaml_reads_as_true_makes_an_entry_public_to_both_layers(tmp_path, embedding, line):
    files = {"a.md": f"---\n{line}\n---\nRefunds.\n", "b.md": BETA}
    with KnowledgeBase.open(
        write_files(tmp_path / "kb", files), embedding=embedding, scope_fields=("tenant",)
    ) as kb:
        result = create_lookup_knowledge_graph(kb, record=None).invoke(
            {"query": "refunds"}, config("acme")
        )
        shown = line in PUBLIC
        assert seen(result) == ({"a.md"} if shown else set())
        assert result["l1"]["candidates"] == int(shown)
        assert [str(problem) for problem in kb.problems] == (
            []
            if shown
            else [
                ".: callers limited by 'tenant' do not see 1 entry without it (a.md): add it to "
                "the frontmatter, or `public: true` if every caller may see them"
            ]
        )


@pytest.mark.parametrize(
    ("field", "says"),
    [
        ("tenat", "did you mean 'tenant'?"),
        ("Tenannt", "did you mean 'tenant'?"),
        ("region", "add it to the frontmatter"),
    ],
)
def test_a_scope_field_that_no_entry_has_is_told_with_the_keys_that_are_near(folder, field, says):
    with KnowledgeBase.open(folder, index=None, scope_fields=(field,)) as kb:
        seen = "so callers limited by it see only public entries"
        what = f"no entry has the scope field {field!r}, {seen}"
        assert [str(problem) for problem in kb.problems] == [f".: {what}: {says}"]


def test_a_scope_of_the_command_line_that_no_entry_has_is_noted(folder, capsys):
    assert main(["ask", str(folder), "refund", "--no-l1", "--scope", "tenat=acme"]) == 0
    said = capsys.readouterr().err
    assert "note: no entry has the scope field 'tenat', so callers limited by it" in said
    assert "did you mean 'tenant'?" in said


def test_entries_that_no_caller_sees_are_counted_with_examples(folder):
    said = (
        ".: callers limited by 'tenant' do not see {} without it ({}): add it to the frontmatter, "
        "or `public: true` if every caller may see them"
    )
    with KnowledgeBase.open(folder, index=None) as kb:
        assert kb.problems == []  # no scope fields
        create_lookup_knowledge_graph(kb, record=None, options=SCOPED)
        assert [str(problem) for problem in kb.problems] == [said.format("1 entry", "drafts.md")]
    write_files(folder, {f"{name}.md": NOBODY for name in ("e", "f", "g")})
    with KnowledgeBase.open(folder, index=None, scope_fields=("TENANT",)) as kb:
        told = said.format("4 entries", "drafts.md, e.md, f.md, ...")
        assert [str(problem) for problem in kb.problems] == [told]


def test_an_entry_that_lacks_one_of_two_fields_of_the_base_is_seen_by_nobody(tmp_path):
    files = {
        "a.md": "---\ntenant: acme\n---\nRefunds.\n",
        "b.md": "---\ntenant: acme\nregion: north\n---\nRefunds.\n",
    }
    folder = write_files(tmp_path / "kb", files)
    with KnowledgeBase.open(folder, index=None, scope_fields=("tenant", "region")) as kb:
        assert "by 'tenant' or 'region' do not see 1 entry without it (a.md)" in str(kb.problems)
    with KnowledgeBase.open(folder, index=None) as kb:  # a graph of each field sees it
        for name in ("tenant", "region"):
            options = LookupOptions(scope_fields=(name,))
            create_lookup_knowledge_graph(kb, record=None, options=options)
        assert kb.problems == []


@pytest.mark.parametrize("tenant", ["ac\u200bme", "ac\x00me", "ac\xadme", "ac  me", "ac\nme"])
def test_a_scope_that_cannot_be_told_from_another_by_eye_is_refused(kb, tenant):
    result = create_lookup_knowledge_graph(kb, options=SCOPED).invoke(
        {"query": "refund"}, config(tenant)
    )
    assert (result["status"], result["matches"]) == ("refused", [])
    assert "invisible characters" in result["relevance"]["reason"]


def test_a_number_that_is_too_long_is_refused(kb):
    result = create_lookup_knowledge_graph(kb, options=SCOPED).invoke(
        {"query": "refund"}, config(10**5000)
    )
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
    sources = {document.metadata["source"] for document in retriever.invoke("beta-only refund")}
    assert "beta/b.md" in sources
    scoped = retriever.model_copy(update={"options": SCOPED})
    with pytest.raises(ScopeError, match="the caller's scope is not known"):
        scoped.invoke("beta-only refund")
    assert "beta/b.md" not in {
        document.metadata["source"]
        for document in scoped.invoke("beta-only refund", config("acme"))
    }


@pytest.mark.parametrize(
    ("field", "value"), [("category", "Field Notes"), ("state", "Obsolete"), ("folder", "North")]
)
def test_a_scope_compares_values_as_written_under_any_name(tmp_path, embedding, field, value):
    pages = {"a.md": f"---\n{field}: {value}\n---\nRefunds.\n", "b.md": "Refunds of others.\n"}
    folder = write_files(tmp_path / "kb", pages)
    with KnowledgeBase.open(folder, embedding=embedding, index=None) as kb:
        assert set(kb.seen_by({field: value}).entries) == {"a.md"}
        assert set(kb.seen_by({field: value.lower()}).entries) == set()
