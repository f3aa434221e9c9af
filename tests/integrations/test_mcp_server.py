"""The MCP server, through a real client in this process, of either version of the SDK."""

import asyncio
import json
import random
import re
import socket
import sys
import threading

import pytest
from conftest import write_files
from parts.cases import read_cases, write_case
from parts.hostile import document
from parts.mcp_client import ERROR, connected

from langchain_lookup_knowledge import (
    DocumentError,
    KnowledgeBase,
    LookupOptions,
    SQLInvocationRecorder,
    integrations,
)
from langchain_lookup_knowledge.integrations import cli, mcp_answers, mcp_server
from langchain_lookup_knowledge.integrations.mcp_answers import KnowledgeServer, entry_uri
from langchain_lookup_knowledge.integrations.mcp_server import create_mcp_server
from langchain_lookup_knowledge.types import STEPS

HELLO = {
    "protocolVersion": "2025-06-18",
    "capabilities": {},
    "clientInfo": {"name": "test", "version": "1"},
}


async def ask(server, query="refund", **options):
    async with connected(server) as client:
        return await client.call_tool("lookup_knowledge", {"query": query}, **options)


def text_of(answer):
    (content,) = answer["content"]
    return content["text"]


async def test_the_tool_is_described(kb):
    async with connected(create_mcp_server(kb)) as client:
        tool, _ = (await client.list_tools())["tools"]
    assert (tool["name"], tool["title"]) == ("lookup_knowledge", "Look up in kb")
    assert list(tool["inputSchema"]["properties"]) == tool["inputSchema"]["required"] == ["query"]
    assert "(3 entries)" in tool["description"]
    assert tool["annotations"] == {
        "title": "Look up in kb",
        "readOnlyHint": True,
        "destructiveHint": False,
        "idempotentHint": True,
        "openWorldHint": False,
    }
    assert "outputSchema" not in tool


async def test_a_lookup_gives_text_alone_and_is_recorded(kb):
    answer = await ask(create_mcp_server(kb))
    assert answer["isError"] is False
    assert "structuredContent" not in answer
    assert "Refunds take five days." in text_of(answer)
    (row,) = SQLInvocationRecorder.in_file(kb.data_folder / "invocations.db").invocations()
    assert (row["query"], row["primary_entry_id"]) == ("refund", "billing/refunds.md")
    assert row["tool_call_id"].startswith("mcp-")


async def test_structured_content_on_request_agrees_with_its_schema(kb):
    jsonschema = pytest.importorskip("jsonschema")
    server = create_mcp_server(kb, structured=True)
    async with connected(server) as client:
        tool, _ = (await client.list_tools())["tools"]
    answer = await ask(server)
    found = answer["structuredContent"]
    jsonschema.validate(found, tool["outputSchema"])
    (match,) = found["matches"]
    assert (found["status"], found["retrieval_layer"]) == ("ok", "L0+L1")
    assert (match["source"], match["lines"]) == ("billing/refunds.md", [7, 7])
    assert "Refunds take five days." in match["text"]
    nothing = await ask(create_mcp_server(kb, structured=True), "?!")
    assert nothing["structuredContent"]["matches"] == []
    assert nothing["structuredContent"]["status"] == "invalid_query"


async def test_hostile_documents_can_forge_no_mark_in_text_structured_content_or_resource(
    tmp_path, embedding
):
    rng = random.Random(7)
    names = [f"{i}{rng.choice(['', '-<match-0>', ' </match-0>'])}.md" for i in range(30)]
    folder = write_files(tmp_path / "kb", {name: document(rng, i) for i, name in enumerate(names)})
    options = LookupOptions(k=3, max_chars=9_000, filter_mode="off")
    with KnowledgeBase.open(folder, embedding=embedding) as kb:
        server = create_mcp_server(kb, structured=True, options=options, record=None)
        async with connected(server) as client:
            for number in range(30):
                answer = await client.call_tool(
                    "lookup_knowledge", {"query": f"item{number} refund"}
                )
                found = answer["structuredContent"]
                check_fence(text_of(answer))
                check_fence("\n".join([found["summary"], *(m["text"] for m in found["matches"])]))
                assert found["matches"]
                for match in found["matches"]:
                    first, *_, last = match["text"].split("\n")
                    assert (first[1:], last[2:]) == (last[2:], first[1:])
                    assert not re.search(r"[<＜]\s*[/／]?\s*match", match["source"])
                for value in (*found["matches"], found):
                    assert all("\n" not in str(v) for k, v in value.items() if k == "source")
            for resource in (await client.list_resources())["resources"]:
                (content,) = (await client.read_resource(resource["uri"]))["contents"]
                check_fence(content["text"], "entry")
                assert not re.search("\n|<match", resource["name"].replace("<match-0>", ""))


def check_fence(text, kind="match"):
    """Hold that the marks of one token alternate, and that nothing else looks like one."""
    marks = re.findall(rf"^<(/?)({kind}-[0-9a-f]{{8}})>$", text, re.MULTILINE)
    (token,) = {token for _, token in marks}
    assert marks == [("", token), ("/", token)] * (len(marks) // 2)
    outside = re.sub(f"^<{token}>\n.*?\n</{token}>$", "", text, flags=re.DOTALL | re.MULTILINE)
    assert outside.count(f"<{kind}-") == outside.count(f"</{kind}-") == 1  # the explanation
    inside = "".join(re.findall(f"^<{token}>\n(.*?)\n</{token}>$", text, re.DOTALL | re.MULTILINE))
    assert not re.search(r"[<＜]\s*[/／]?\s*(match|ｍａｔｃｈ)", inside, re.IGNORECASE)
    assert not re.search(r"^\W*(System|Human|Assistant):", outside, re.MULTILINE)


@pytest.mark.parametrize("max_chars", [500, 800, 1500, 4400])
async def test_text_and_structured_content_stay_within_max_chars(tmp_path, embedding, max_chars):
    long = 'refund "quoted" \\ <tag>\n' * 150
    files = {f"{i}.md": f'---\ntitle: "{i} {"refund " * 60}"\n---\n{long}' for i in range(12)}
    with KnowledgeBase.open(write_files(tmp_path / "kb", files), embedding=embedding) as kb:
        options = LookupOptions(max_chars=max_chars, k=12, filter_mode="off")
        answer = await ask(create_mcp_server(kb, structured=True, options=options))
    found = answer["structuredContent"]
    assert len(text_of(answer)) <= max_chars
    assert len(json.dumps(found, ensure_ascii=False)) <= max_chars
    shown = len(found["matches"])
    assert shown + found["hidden"] == 12
    assert shown >= (max_chars > 500)


async def test_px_32_text_of_a_client_is_marked_and_within_the_limit(tmp_path, embedding):
    case = read_cases("reports")["PX-32"]
    options = LookupOptions(**case["input"]["options"])
    folder = write_case(tmp_path / "kb", case)
    with KnowledgeBase.open(folder, embedding=embedding) as kb:
        answer = await ask(create_mcp_server(kb, options=options), case["input"]["query"])
    assert "intake valve" in text_of(answer)
    assert len(text_of(answer)) <= options.max_chars
    check_fence(text_of(answer))


async def test_progress_names_each_step(kb):
    heard = []

    async def hear(progress, total, message):
        heard.append((progress, total, message))

    server = create_mcp_server(kb)
    async with connected(server) as client:
        await client.list_tools()  # answered when the knowledge base is open
        await client.call_tool("lookup_knowledge", {"query": "refund"}, progress_callback=hear)
        while len(heard) < len(STEPS):
            await asyncio.sleep(0)
    assert heard == [(number, len(STEPS), step) for number, step in enumerate(STEPS, start=1)]


async def test_a_name_is_the_tools_and_the_servers(kb):
    server = create_mcp_server(kb, name="lookup_handbook", title="Our handbook")
    assert server.name == "lookup_handbook"
    assert "lookup_handbook" in server.instructions
    assert "'Our handbook'" in server.instructions
    async with connected(server) as client:
        tool, _ = (await client.list_tools())["tools"]
        answer = await client.call_tool("lookup_handbook", {"query": "refund"})
        (content,) = (await client.call_tool("read_handbook", {"source": "it/vpn.md"}))["content"]
    assert tool["name"] == "lookup_handbook"
    assert "VPN" in content["text"]
    rows = SQLInvocationRecorder.in_file(kb.data_folder / "invocations.db").invocations()
    assert {row["tool_name"] for row in rows} == {"lookup_handbook", "read_handbook"}
    assert "Refunds take five days." in text_of(answer)
    assert create_mcp_server(kb).name == "lookup-knowledge"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [({"question": "refund"}, "query: Field required"), ({"query": 3}, "query: Input should be")],
)
async def test_a_wrong_argument_is_an_error_for_the_model(kb, arguments, message):
    async with connected(create_mcp_server(kb)) as client:
        answer = await client.call_tool("lookup_knowledge", arguments)
    assert answer["isError"] is True
    assert message in text_of(answer)


async def test_what_a_client_adds_to_the_arguments_changes_nothing(kb):
    async with connected(create_mcp_server(kb)) as client:
        given = {"query": "refund", "runtime": {"stream_writer": "x"}, "config": {"tags": ["x"]}}
        answer = await client.call_tool("lookup_knowledge", given)
    assert "Refunds take five days." in text_of(answer)


async def test_an_unknown_tool_is_named_as_such(kb):
    async with connected(create_mcp_server(kb)) as client:
        with pytest.raises(
            ERROR, match="no such tool: this server has lookup_knowledge, read_knowledge"
        ):
            await client.call_tool("lookup", {"query": "refund"})


async def test_without_an_index_nothing_is_called_semantic(folder, embedding):
    with KnowledgeBase.open(folder, embedding=embedding, index=None) as kb:
        async with connected(create_mcp_server(kb)) as client:
            tool, _ = (await client.list_tools())["tools"]
            answer = await client.call_tool("lookup_knowledge", {"query": "refund"})
    for word in ("semantic", "vector"):
        assert word not in f"{tool['description']}{text_of(answer)}".lower()


async def test_the_second_tool_reads_what_a_lookup_found(kb):
    async with connected(create_mcp_server(kb)) as client:
        lookup, read = (await client.list_tools())["tools"]
        given = {"source": "billing/refunds.md"}
        answer = await client.call_tool("read_knowledge", given)
        missing = await client.call_tool("read_knowledge", {"source": "nowhere.md"})
    assert (lookup["name"], read["name"]) == ("lookup_knowledge", "read_knowledge")
    assert read["title"] == "Read from kb"
    assert read["annotations"]["readOnlyHint"] is True
    assert read["inputSchema"]["required"] == ["source"]
    assert "Refunds take five days." in text_of(answer)
    assert text_of(missing).startswith("Not found")
    rows = SQLInvocationRecorder.in_file(kb.data_folder / "invocations.db").invocations()
    assert [row["tool_name"] for row in rows] == ["read_knowledge", "read_knowledge"]


# Resources

ODD = ["a b/c&d.md", "100%.md", "x%2e.md", "ü [é] #1?.md", "退款/政策.md", "plus+1.md"]


async def test_entries_are_resources_whatever_their_names(tmp_path, embedding):
    files = {name: f"# T\n\nText of {number}.\n" for number, name in enumerate(ODD)}
    with KnowledgeBase.open(write_files(tmp_path / "kb", files), embedding=embedding) as kb:
        async with connected(create_mcp_server(kb)) as client:
            listed = (await client.list_resources())["resources"]
            (template,) = (await client.list_resource_templates())["resourceTemplates"]
            assert template["uriTemplate"] == "knowledge://entries/{+path}"
            assert sorted(resource["name"] for resource in listed) == sorted(kb.l0.entries)
            for resource in listed:
                (content,) = (await client.read_resource(resource["uri"]))["contents"]
                assert f"source: {resource['name']}\n" in content["text"]
                assert f"Text of {ODD.index(resource['name'])}." in content["text"]


async def test_resources_come_in_pages(kb, monkeypatch):
    monkeypatch.setattr(mcp_answers, "PAGE", 2)
    server = KnowledgeServer(kb)
    first = await server.list_resources({})
    second = await server.list_resources({"cursor": first["nextCursor"]})
    assert [len(page["resources"]) for page in (first, second)] == [2, 1]
    assert "nextCursor" not in second
    with pytest.raises(mcp_answers.ProtocolError, match="does not come from this server"):
        await server.list_resources({"cursor": "x"})


async def test_a_long_entry_is_cut_and_says_so(tmp_path, embedding, monkeypatch):
    monkeypatch.setattr(mcp_answers, "MAX_RESOURCE_CHARS", 1000)
    folder = write_files(tmp_path / "kb", {"long.md": "word " * 1000})
    with KnowledgeBase.open(folder, embedding=embedding) as kb:
        answer = await KnowledgeServer(kb).read_resource({"uri": entry_uri("long.md")})
    text = answer["contents"][0]["text"]
    assert len(text) <= 1000
    assert text.startswith(
        "An entry of the knowledge base, 5000 characters. The rest is not shown."
    )


async def test_resources_and_tools_stay_within_the_scope(tmp_path, embedding):
    files = {
        f"{tenant}.md": f"---\ntenant: {tenant}\n---\nA refund at {tenant}.\n"
        for tenant in ("north", "south")
    }
    with KnowledgeBase.open(write_files(tmp_path / "kb", files), embedding=embedding) as kb:
        options = LookupOptions(scope_fields=("tenant",))
        scoped = create_mcp_server(kb, options=options, scope={"tenant": "north"})
        async with connected(scoped) as client:
            (resource,) = (await client.list_resources())["resources"]
            answer = await client.call_tool("lookup_knowledge", {"query": "refund"})
            assert resource["name"] == "north.md"
            for path in ("south.md", "nowhere.md"):
                with pytest.raises(ERROR, match="no such entry: resources/list names them"):
                    await client.read_resource(entry_uri(path))
        async with connected(create_mcp_server(kb, options=options)) as client:
            with pytest.raises(ERROR, match="scope is not known"):
                await client.list_resources()
    assert "south" not in text_of(answer)


# Opening in the background


async def test_initialize_is_answered_while_the_knowledge_base_is_being_opened(folder, embedding):
    may_open, heard = threading.Event(), []

    def open_later():
        assert may_open.wait(60)
        return KnowledgeBase.open(folder, embedding=embedding)

    async def hear(progress, total, message):
        heard.append(message)
        may_open.set()

    knowledge = KnowledgeServer(open_later)
    async with connected(mcp_server.sdk_server(knowledge)) as client:
        assert not may_open.is_set()  # on entry, `initialize` has been answered
        answer = await client.call_tool(
            "lookup_knowledge", {"query": "refund"}, progress_callback=hear
        )
    assert heard[0] == "the knowledge base is being opened"
    assert "Refunds take five days." in text_of(answer)
    assert knowledge.failure() is None
    knowledge.close()


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (DocumentError("kb is not a folder"), "kb is not a folder"),
        (RuntimeError("password=SECRET"), "unexpected RuntimeError"),
    ],
)
async def test_a_knowledge_base_that_cannot_be_opened_is_named_in_each_answer(
    error, message, caplog
):
    def fail():
        raise error

    knowledge = KnowledgeServer(fail)
    async with connected(mcp_server.sdk_server(knowledge)) as client:
        for request in (
            client.list_tools(),
            client.call_tool("lookup_knowledge", {"query": "refund"}),
            client.list_resources(),
        ):
            with pytest.raises(ERROR, match=message):
                await request
    knowledge.close()
    assert message in knowledge.failure()
    assert f"the knowledge base cannot be opened: {message}" in caplog.text
    assert "SECRET" not in caplog.text


# Over HTTP


@pytest.fixture
def post(kb):
    """Send `initialize` over HTTP; return the status."""
    testclient = pytest.importorskip("starlette.testclient")

    def send(token=None, listen="127.0.0.1", allowed_hosts=(), **headers):
        app = mcp_server.http_app(KnowledgeServer(kb), listen, token, allowed_hosts)
        hello = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": HELLO}
        sent = {"accept": "application/json, text/event-stream", **headers}
        with testclient.TestClient(app, base_url="http://127.0.0.1:8000") as client:
            return client.post("/mcp", json=hello, headers=sent)

    return send


@pytest.mark.parametrize(
    ("authorization", "status"),
    [
        (None, 401),
        ("Bearer wrong", 401),
        ("Bearer ", 401),
        ("Basic a secret", 401),
        ("Bearer a sécret", 401),
        ("Bearer a secret", 200),
        ("bearer a secret", 200),
    ],
)
def test_with_a_token_every_request_bears_it(post, authorization, status):
    headers = {"authorization": authorization.encode()} if authorization else {}
    answer = post(token="a secret", **headers)
    assert answer.status_code == status
    if status == 401:
        assert answer.headers["www-authenticate"] == "Bearer"


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"host": "localhost:8000"}, 200),
        ({"host": "evil.example"}, 421),
        ({"origin": "http://evil.example"}, 403),
        ({"origin": "http://localhost:8000"}, 200),
    ],
)
def test_on_loopback_other_sites_are_refused(post, headers, status):
    assert post(**headers).status_code == status


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"host": "127.0.0.1:8000"}, 200),  # the address that the request has reached
        ({"host": "kb.example"}, 200),
        ({"host": "KB.example:443", "origin": "https://kb.example"}, 200),
        ({"host": socket.gethostname()}, 200),
        ({"host": "evil.example"}, 421),
        ({"host": "[::1"}, 421),
        ({"host": ""}, 421),
        ({"host": "kb.example", "origin": "https://evil.example"}, 403),
        ({"host": "kb.example", "origin": "null"}, 403),
    ],
)
def test_on_another_address_unknown_hosts_and_origins_are_refused(post, headers, status):
    bearer = {"authorization": "Bearer t"}
    answer = post(token="t", listen="0.0.0.0", allowed_hosts=["kb.example"], **bearer, **headers)
    assert answer.status_code == status


def test_names_of_this_machine_are_known_without_dns(kb, monkeypatch):
    def blocks(*_):
        raise AssertionError("a name server may not answer")

    monkeypatch.setattr(socket, "gethostbyaddr", blocks)
    monkeypatch.setattr(socket, "getaddrinfo", blocks)
    mcp_server.http_app(KnowledgeServer(kb), "0.0.0.0", "t")


@pytest.mark.parametrize("host", ["0.0.0.0", "192.168.1.5", "::"])
def test_another_host_without_a_token_is_refused(folder, capsys, host):
    assert cli.main(["mcp", str(folder), "--no-l1", "--http", f"[{host}]:8000"]) == 2
    assert f"{host} can be reached from other machines: give a --token" in capsys.readouterr().err


# The command line


@pytest.mark.parametrize(
    ("options", "message"),
    [
        *(
            (("--http", address), "is not [HOST:]PORT")
            for address in ("x", "0", "host:", "1:99999")
        ),
        (("--name", "look up"), "'look up' is not a tool name: use up to 40 ASCII letters"),
        (("--name", "n" * 41), "is not a tool name"),
        (("--token", "x"), "--token is for HTTP: give --http too"),
        (("--allowed-host", "x"), "--allowed-host is for HTTP: give --http too"),
        (("--max-chars", "10"), "max_chars must be at least 500"),
        (("-k", "0"), "k must be 1 to 100"),
        (("--scope", "tenant"), "--scope needs a value"),
    ],
)
def test_a_wrong_option_is_named(folder, capsys, options, message):
    try:
        status = cli.main(["mcp", str(folder), *options])
    except SystemExit as stop:
        status = stop.code
    assert status == 2
    assert message in capsys.readouterr().err


def test_an_address_in_use_is_told_in_a_line(folder, capsys):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert cli.main(["mcp", str(folder), "--no-l1", "--http", str(port)]) == 2
    told = capsys.readouterr().err
    assert "Address already in use" in told
    assert "serving" not in told


def test_an_empty_folder_is_reported_and_left_as_it_was(tmp_path, capsys):
    assert cli.main(["mcp", str(tmp_path)]) == 1
    assert "no Markdown file in this folder" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_missing_extra_is_named(folder, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "mcp", None)
    monkeypatch.delitem(sys.modules, "langchain_lookup_knowledge.integrations.mcp_server")
    monkeypatch.delattr(integrations, "mcp_server")
    assert cli.main(["mcp", str(folder), "--no-l1"]) == 2
    assert 'pip install "langchain-lookup-knowledge[mcp]"' in capsys.readouterr().err


@pytest.mark.parametrize(
    ("headers", "whole"),
    [
        ({}, False),
        ({"authorization": "Bearer wrong"}, False),
        ({"authorization": "Bearer a secret"}, True),
        ({"authorization": "Bearer a secret", "host": "evil.example"}, False),
    ],
)
def test_health_over_http_needs_the_token_for_more_than_the_status(kb, headers, whole):
    testclient = pytest.importorskip("starlette.testclient")
    server = KnowledgeServer(kb)
    server._opener.join()
    app = mcp_server.http_app(server, token="a secret")
    with testclient.TestClient(app, base_url="http://127.0.0.1:8000") as client:
        answer = client.get("/healthz", headers=headers)
        assert answer.status_code == 200
        assert answer.json() == {"status": "ok", **(kb.health() if whole else {})}
        for _ in range(10):
            kb.l1.breaker.within(2.0).record_failure("unavailable", "out of order", counts=True)
        answer = client.get("/healthz", headers=headers)
        assert answer.status_code == 503
        assert answer.json()["status"] == "degraded"
        assert ("out of order" in answer.text) == whole


def test_health_over_http_while_the_folder_is_opened():
    testclient = pytest.importorskip("starlette.testclient")
    opened = threading.Event()

    def open_kb():
        opened.wait(60)
        raise DocumentError("no such folder")

    app = mcp_server.http_app(KnowledgeServer(open_kb))
    with testclient.TestClient(app, base_url="http://127.0.0.1:8000") as client:
        for _ in range(2):
            answer = client.get("/healthz")
            assert (answer.status_code, answer.json()) == (503, {"status": "opening"})
            opened.set()
