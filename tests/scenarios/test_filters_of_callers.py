"""A caller's filters hold in both layers, in every answer and in the record; none is relaxed."""

import json

import pytest
from conftest import WordEmbeddings, write_files
from parts.cases import read_cases, write_case

from langchain_lookup_knowledge import (
    FrontmatterFields,
    KnowledgeBase,
    LookupKnowledgeRetriever,
    LookupOptions,
    SQLInvocationRecorder,
    create_lookup_knowledge_graph,
    create_lookup_knowledge_tool,
)
from langchain_lookup_knowledge.integrations import cli
from langchain_lookup_knowledge.replay import replay

PAGES = {
    f"{folder}/{version}.md": f"---\ntitle: Valve {folder} {version}\nkeywords: [valve]\n"
    f"category: {folder}\nversion: '{version}'\ndate: 2026-0{number}-15\nstate: {state}\n---\n"
    f"The valve of {folder} {version} is checked before each shift.\n"
    for folder in ("pumps", "boilers")
    for number, (version, state) in enumerate([("1.0", "old"), ("1.1", "old"), ("2.0", "new")], 1)
}
QUERY = "valve check before the shift"
FILTERS = [
    ({"category": ["Pumps"]}, {"pumps/1.0.md", "pumps/1.1.md", "pumps/2.0.md"}),
    ({"folder": "boilers/"}, {"boilers/1.0.md", "boilers/1.1.md", "boilers/2.0.md"}),
    ({"version": ["1.1"]}, {"pumps/1.1.md", "boilers/1.1.md"}),
    ({"version": ["1.1", "2.0"], "category": "boilers"}, {"boilers/1.1.md", "boilers/2.0.md"}),
    ({"state": "NEW", "folder": ["pumps", "x"]}, {"pumps/2.0.md"}),
    ({"date": {"from": "2026-02-01", "to": "2026-02-28"}}, {"pumps/1.1.md", "boilers/1.1.md"}),
    ({"date": {"from": "2026-03-15"}, "folder": "pumps"}, {"pumps/2.0.md"}),
]
NOTHING = [{"version": "9"}, {"folder": "nowhere"}, {"version": "1.0", "state": "new"}]


@pytest.fixture
def pages(tmp_path, embedding):
    with KnowledgeBase.open(write_files(tmp_path / "pages", PAGES), embedding=embedding) as kb:
        yield kb


def found(result):
    return {match["entry_id"] for match in result["matches"]}


@pytest.mark.parametrize(("filters", "expected"), FILTERS)
@pytest.mark.parametrize("layers", ["both", "L0 alone", "model fails"])
def test_filters_hold_in_every_layer(pages, embedding, filters, expected, layers):
    if layers == "model fails":
        embedding.failure = RuntimeError()
    options = LookupOptions(k=10, l1_enabled=layers != "L0 alone")
    graph = create_lookup_knowledge_graph(pages, record=None, options=options)
    result = graph.invoke({"query": QUERY, "filters": filters})
    assert found(result) == expected
    assert {entry["entry_id"] for entry in result["hints"]["entries"]} <= expected
    assert set(result["filters"]) == set(filters)
    assert json.loads(json.dumps(result["filters"])) == result["filters"]
    assert (result["l1"]["status"] == "ok") == (layers == "both")
    assert len(found(graph.invoke({"query": QUERY}))) == 6


@pytest.mark.parametrize("filters", NOTHING)
@pytest.mark.parametrize("mode", ["guarded", "off"])
def test_filters_that_nothing_meets_are_never_relaxed(pages, filters, mode):
    options = LookupOptions(filter_mode=mode)
    graph = create_lookup_knowledge_graph(pages, record=None, options=options)
    result = graph.invoke({"query": QUERY, "filters": filters})
    assert (result["status"], result["matches"]) == ("no_match", [])
    assert (result["l1"]["status"], result["l1"]["reason"]) == (
        "empty",
        "no entry is within the filters",
    )


def test_a_hint_may_still_narrow_within_the_filters(pages):
    result = create_lookup_knowledge_graph(pages, record=None).invoke(
        {"query": "valve pumps 1.0", "filters": {"version": "1.0"}}
    )
    assert result["primary"]["entry_id"] == "pumps/1.0.md"
    assert found(result) <= {"pumps/1.0.md", "boilers/1.0.md"}


@pytest.mark.parametrize("filters", [{"tenant": "x"}, "pumps", {"version": []}])
def test_what_is_no_filter_is_not_searched(pages, filters):
    graph = create_lookup_knowledge_graph(pages, record=None)
    result = graph.invoke({"query": QUERY, "filters": filters})
    assert (result["status"], result["matches"], result["filters"]) == ("invalid_query", [], None)
    assert "filter" in result["l1"]["reason"]
    assert result["relevance"]["reason"] == result["l1"]["reason"]


def test_filters_are_recorded_and_replayed(pages, tmp_path):
    recorder = SQLInvocationRecorder(f"sqlite:///{tmp_path / 'calls.db'}")
    graph = create_lookup_knowledge_graph(pages, record=recorder)
    graph.invoke({"query": QUERY, "filters": {"version": "2.0"}})
    (row,) = recorder.invocations()
    assert row["retrieval_details"]["filters"] == {"version": ["2.0"]}
    assert [changed for _, changed in replay(pages, [row])] == [{}]
    recorder.close()


async def test_the_retriever_takes_filters_and_each_call_its_own(pages):
    retriever = LookupKnowledgeRetriever(knowledge_base=pages, filters={"version": "2.0"})
    sources = {document.metadata["source"] for document in retriever.invoke(QUERY)}
    assert sources == {"pumps/2.0.md", "boilers/2.0.md"}
    documents = await retriever.ainvoke(QUERY, filters={"folder": "pumps", "version": "1.0"})
    assert [document.metadata["source"] for document in documents] == ["pumps/1.0.md"]


def test_a_model_sets_only_the_filters_that_it_is_shown(pages):
    assert list(create_lookup_knowledge_tool(pages).args) == ["query"]
    options = LookupOptions(k=10, model_filters=("category", "date", "folder", "version"))
    tool = create_lookup_knowledge_tool(pages, record=None, options=options)
    assert list(tool.args) == ["query", "category", "date", "folder", "version"]
    assert tool.tool_call_schema.model_json_schema()["required"] == ["query"]

    def look_up(**filters):
        args = {"query": QUERY, **filters}
        return tool.invoke({"type": "tool_call", "name": tool.name, "args": args, "id": "1"})

    message = look_up(category=["pumps"], date={"from": "2026-02-01"}, version=[], state=["old"])
    assert found(message.artifact) == {"pumps/1.1.md", "pumps/2.0.md"}
    assert message.artifact["filters"] == {"category": ["pumps"], "date": {"from": "2026-02-01"}}
    assert "Only entries with these were searched: category 'pumps'; date from 2026-02-01." in (
        message.content
    )
    nothing = look_up(folder="nowhere").content
    assert "Only entries with these were searched: folder 'nowhere/'." in nothing
    assert look_up().artifact["l1"]["candidates"] == 6
    with pytest.raises(ValueError, match="filters cannot use 'tenant'"):
        create_lookup_knowledge_tool(pages, options=LookupOptions(model_filters=("tenant",)))


def test_filters_hold_within_a_scope(tmp_path, embedding):
    files = {
        f"{tenant}/{version}.md": f"---\ntenant: {tenant}\nversion: '{version}'\n---\nValve.\n"
        for tenant in ("acme", "beta")
        for version in ("1", "2")
    }
    options = LookupOptions(scope_fields=("tenant",))
    with KnowledgeBase.open(write_files(tmp_path / "kb", files), embedding=embedding) as kb:
        graph = create_lookup_knowledge_graph(kb, record=None, options=options)
        config = {"configurable": {"tenant": "acme"}}
        given = {"query": "valve", "filters": {"version": "2"}}
        assert found(graph.invoke(given, config)) == {"acme/2.md"}
        given["filters"] = {"folder": "beta"}
        assert found(graph.invoke(given, config)) == set()


def test_the_command_line(pages, capsys):
    pages.close()
    arguments = ["ask", str(pages.folder), QUERY, "--json", "--filter"]
    assert cli.main([*arguments, "version=1.1", "--filter", "folder=pumps"]) == 0
    assert found(json.loads(capsys.readouterr().out)) == {"pumps/1.1.md"}
    assert cli.main([*arguments, "date=2026-03-01..2026-03-31", "--filter", "category=pumps"]) == 0
    assert found(json.loads(capsys.readouterr().out)) == {"pumps/2.0.md"}
    for wrong in ("version", "=1", "version="):
        assert cli.main([*arguments, wrong]) == 2
        assert "--filter takes FIELD=VALUE" in capsys.readouterr().err


def test_px_36_a_lookup_is_limited_to_a_folder(tmp_path):
    case = read_cases("reports")["PX-36"]
    fields = FrontmatterFields(filterable=())
    with KnowledgeBase.open(
        write_case(tmp_path / "kb", case), embedding=WordEmbeddings(), fields=fields
    ) as kb:
        graph = create_lookup_knowledge_graph(kb, record=None)
        for folder in ("versioned_docs/version-1.2/", "docs/"):
            result = graph.invoke({"query": case["input"]["query"], "filters": {"folder": folder}})
            assert result["matches"]
            assert all(entry_id.startswith(folder) for entry_id in found(result))


PARTS = {
    "guides/host.md": "---\ncategory: guide\ntenant: acme\nstate: new\npublic: false\n---\n"
    "# Host\n\nThe page on gardening.\n\n![[part]]\n\n![[hidden]]\n",
    "parts/part.md": "---\ncategory: other\ntenant: acme\nstate: old\n---\n"
    "The flux capacitor needs 1.21 gigawatts.\n",
    "parts/hidden.md": "---\ntenant: beta\nstate: new\n---\nThe flux capacitor of beta.\n",
}
OF_THE_HOST = [
    {"category": "guide"},
    {"folder": "guides"},
    {"state": "NEW"},
    {"public": "false"},
    {"state": "new", "folder": "guides", "category": "guide"},
]


@pytest.mark.parametrize("filters", OF_THE_HOST)
@pytest.mark.parametrize("is_scoped", [False, True])
@pytest.mark.parametrize("l1_enabled", [False, True])
def test_filters_ask_the_host_of_an_embedded_part(tmp_path, filters, is_scoped, l1_enabled):
    fields = FrontmatterFields(filterable=("state", "public"))
    scope_fields = ("tenant",) if is_scoped else ()
    options = LookupOptions(scope_fields=scope_fields, l1_enabled=l1_enabled)
    given = {"query": "host gardening flux capacitor gigawatts", "filters": filters}
    folder = write_files(tmp_path / "kb", PARTS)
    with KnowledgeBase.open(folder, embedding=WordEmbeddings(), fields=fields) as kb:
        graph = create_lookup_knowledge_graph(kb, record=None, options=options)
        result = graph.invoke(given, {"configurable": {"tenant": "acme"}})
    (host,) = (match for match in result["matches"] if match["entry_id"] == "guides/host.md")
    paths = {passage.get("path") for passage in host["passages"]}
    assert paths == {None, "parts/part.md", *([] if is_scoped else ["parts/hidden.md"])}
    assert "parts/part.md" not in found(result)


def test_the_glossary_holds_where_a_filter_leaves_it_out(tmp_path):
    files = {
        "glossary.md": "---\ntenant: acme\n---\n"
        "| w | f |\n|---|---|\n| ZQX | zebra quality exam |\n",
        "hr/exam.md": "---\npublic: true\n---\nThe zebra quality exam takes two hours.\n",
        "expanded.md": "---\ntenant: acme\n---\nA paid time off (PTO) request. PTO counts.\n",
    }
    folder = write_files(tmp_path / "kb", files)
    with KnowledgeBase.open(folder, index=None, glossary="glossary.md") as kb:
        options = LookupOptions(scope_fields=("tenant",))
        graph = create_lookup_knowledge_graph(kb, record=None, options=options)
        for tenant, words in (("acme", ["ZQX", "PTO"]), ("beta", [])):
            for filters in (None, {"folder": "hr"}):
                given = {"query": "ZQX or PTO", "filters": filters}
                result = graph.invoke(given, {"configurable": {"tenant": tenant}})
                assert [one["text"] for one in result["hints"].get("glossary", [])] == words


STATES = {
    "a.md": "status: Superseded by [[b]]",
    "b.md": "state: current",
    "c.md": "deprecated: true",
    "d.md": "status: Obsolete",
    "e.md": "replaced-by: b.md",
    "f.md": "archived: no",
}


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        ("superseded", {"a.md", "e.md"}),
        ("Replaced", {"a.md", "e.md"}),
        (["DEPRECATED"], {"c.md", "d.md"}),
        (["obsolete", "Current"], {"b.md", "c.md", "d.md"}),
        ("archive", set()),
    ],
)
@pytest.mark.parametrize("l1", [True, False])
def test_a_state_is_what_the_entries_are_in_however_they_say_so(tmp_path, state, expected, l1):
    text = "The valve is checked before each shift.\n"
    files = {
        name: f"---\ntitle: Valve {name[0]}\nkeywords: [valve]\n{line}\n---\n{text}{name}\n"
        for name, line in STATES.items()
    }
    fields = FrontmatterFields(filterable=("state",))
    folder = write_files(tmp_path / "kb", files)
    with KnowledgeBase.open(folder, embedding=WordEmbeddings(), fields=fields) as kb:
        graph = create_lookup_knowledge_graph(
            kb, record=None, options=LookupOptions(k=10, l1_enabled=l1)
        )
        result = graph.invoke({"query": "valve", "filters": {"state": state}})
    assert {match["entry_id"] for match in result["matches"]} == expected
    if l1 and expected:
        assert result["l1"]["candidates"] == len(expected)


def test_the_version_of_a_folder_is_a_filter_as_that_of_a_field_is(tmp_path):
    files = {
        "v1.4/valve.md": "# Valve\n\nThe valve is oiled.\n",
        "v2.0/valve.md": "# Valve\n\nThe valve is sealed.\n",
        "v2.0/pump.md": "---\nversion: '1.4'\n---\n# Pump\n\nThe valve of the pump.\n",
    }
    folder = write_files(tmp_path / "kb", files)
    with KnowledgeBase.open(folder, embedding=WordEmbeddings()) as kb:
        graph = create_lookup_knowledge_graph(kb, record=None)
        found = graph.invoke({"query": "valve", "filters": {"version": "1.4"}})
        assert {one["source"] for one in found["matches"]} == {"v1.4/valve.md", "v2.0/pump.md"}
