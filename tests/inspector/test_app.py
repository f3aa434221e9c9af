"""The inspector over HTTP, as its users start it: who may read it, what it shows, and that what was
recorded is only text.
"""

import hashlib
import html
import http.client
import json
import os
import re
import subprocess
import sys
from base64 import b64encode
from contextlib import closing
from datetime import UTC, datetime
from functools import partial
from html.parser import HTMLParser
from urllib.parse import quote, urlencode

import pytest
from conftest import WordEmbeddings, write_files
from parts.inspected import (  # noqa: F401  (two fixtures)
    HOSTILE,
    SHOWN,
    Browser,
    base,
    browser,
    served,
    served_by_a_process,
    visible,
)
from parts.invocations import invocation, read_call
from starlette.testclient import TestClient

from langchain_lookup_knowledge import (
    DocumentError,
    KnowledgeBase,
    LookupOptions,
    SQLInvocationRecorder,
    create_lookup_knowledge_graph,
    create_read_knowledge_tool,
)
from langchain_lookup_knowledge.inspector.app import Inspector, marked, shown
from langchain_lookup_knowledge.inspector.texts import by_shared_terms
from langchain_lookup_knowledge.integrations.cli import main
from langchain_lookup_knowledge.records.history import History
from langchain_lookup_knowledge.records.invocations import hash_of
from langchain_lookup_knowledge.records.selection import Selection


class Tags(HTMLParser):
    """The names of the elements and attributes of a page."""

    def __init__(self, page):
        super().__init__()
        self.elements, self.attributes = set(), set()
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        self.elements.add(tag)
        self.attributes.update(name for name, _ in attributes)


def assert_harmless(page):
    tags = Tags(page)
    assert not tags.elements & {"script", "img", "iframe", "object", "embed", "b", "i"}
    assert not any(name.startswith("on") or name in ("style", "src") for name in tags.attributes)
    assert not re.search("[\u202e\x1b\x07]", page)


def lookup(browser, text, **filters):
    """Return the address of the newest lookup with a text."""
    query = "&".join(f"{name}={quote(value)}" for name, value in {"text": text, **filters}.items())
    return re.search(r'href="(/lookup\?[^"]+)"><bdi>', browser.get(f"/lookups?{query}")[1])[1]


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "example.org"])
def test_another_host_without_a_token_is_refused(base, capsys, host):
    assert main(["inspect", str(base), "--host", host, "--port", "0"]) == 2
    assert f"{host} can be reached from other machines: give a --token" in capsys.readouterr().err


@pytest.mark.process
def test_it_is_started_and_stopped_as_a_person_does(base):
    with served_by_a_process(base) as address:
        assert "Lookups" in Browser(address).text("/")


def test_a_taken_port_is_told_in_one_line(base, browser, capsys):
    assert main(["inspect", str(base), "--port", str(browser.place.port)]) == 2
    assert "Address already in use" in capsys.readouterr().err


@pytest.mark.parametrize("port", ["x", "65536"])
def test_a_port_that_is_none_is_told(capsys, port):
    with pytest.raises(SystemExit):
        main(["inspect", "--port", port])
    assert "is not a port, 0 to 65535" in capsys.readouterr().err


def test_with_a_token_every_request_needs_it(base):
    with served(base, "--host", "0.0.0.0", "--token", "a secret&more") as link:
        browser = Browser(link.replace("0.0.0.0", "127.0.0.1"))
        assert link.endswith("/login?token=a+secret%26more")
        for path in (
            "/",
            "/lookups",
            "/lookup?id=i0001",
            "/lookup/json?id=i0001",
            "/lookup/again?id=i0001",
            "/gaps",
            "/style.css",
            "/x",
        ):
            status, body, headers = browser.get(path)
            assert (status, body) == (
                401,
                "Open the link that the inspector printed when it started.",
            )
            assert "frame-ancestors 'none'" in headers["Content-Security-Policy"]
        assert browser.get("/login?token=a+secret")[0] == 401
        assert browser.get("/login")[0] == 401
        status, _, headers = browser.get(f"/login?{browser.place.query}")
        assert (status, headers["Location"]) == (303, "/")
        cookie, *attributes = headers["Set-Cookie"].split("; ")
        assert {"HttpOnly", "SameSite=lax"} <= set(attributes)
        assert "secret" not in cookie
        assert browser.get("/", Cookie=cookie)[0] == 200
        assert browser.get("/", Cookie=cookie[:-1])[0] == 401
        assert browser.get("/", Authorization="Bearer a secret&more")[0] == 200
        assert browser.get("/", Authorization="Bearer a secret")[0] == 401


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "localhost.evil", "[", ""]
)
def test_a_name_of_another_host_is_refused(browser, host):
    assert browser.get("/", Host=host)[0] in (400, 421)


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1:1", "[::1]:80"])
def test_names_of_this_machine_are_answered(browser, host):
    assert browser.get("/", Host=host)[0] == 200


def test_the_overview_can_be_read_at_once(browser):
    page = browser.text("/")
    assert "Lookups 14 Answered 57 % Degraded 14 % Unanswered 29 %" in page.replace("\u202f", " ")
    assert "Median" in page
    assert "Category filter chosen" in page
    assert "Lookups by layer and" in page
    assert "Lookups by relevance and" in page
    assert browser.get("/")[1].count('href="/lookups?') >= 8
    assert "No lookup was recorded in this time." in browser.text("/?until=2020-01-01")


def test_the_list_is_filtered(browser):
    assert "of the north" in browser.text("/lookups?text=NORTH")
    assert "No lookup matches." in browser.text("/lookups?text=north&status=no_match")
    degraded = browser.text("/lookups?status=degraded&layer=L0&thread=failing")
    assert "install the vpn" in degraded
    assert "zebra" not in degraded
    status, body, _ = browser.get("/lookups?since=yesterday")
    assert status == 400
    assert "since takes a day such as 2026-01-31." in visible(body)


def test_a_lookup_is_a_picture(browser):
    _, body, _ = browser.get(lookup(browser, "install the vpn", layer="L0+L1"))
    page = visible(body)
    assert '<mark class="specific">vpn</mark>' in body
    assert "vpn title" in page.casefold()
    said = "Only the category “ IT ” was searched, because “ vpn ” names no other"
    assert said.casefold() in page.casefold()
    said = "Found in VPN , line 6, because it holds “ vpn ” , its title, which only one file"
    assert said in page
    assert '<mark class="hint">VPN</mark> client on your laptop.' in body
    assert 'href="vscode://file/' in body
    assert "it/vpn.md 1 " in page
    for step in (
        "l0_hints",
        "choose_filter",
        "l1_retrieve",
        "merge_with_fallback",
        "record_invocation",
    ):
        assert step in page


def test_a_failure_of_l1_is_told(browser):
    page = browser.text(lookup(browser, "install the vpn", layer="L0"))
    assert "L1 did not take part: failed , the index was built with another model" in page


def test_rows_that_lack_their_details_are_shown(browser):
    assert "Whether a category filter was set was not recorded." in browser.text("/lookup?id=i0003")
    assert "query 4" not in browser.text(lookup(browser, "an odd id"))


def test_the_json_is_what_was_recorded(browser):
    _, body, headers = browser.get("/lookup/json?id=i0002")
    assert headers["Content-Type"] == "application/json"
    assert json.loads(body)["retrieval_details"]["scope"] == {"tenant": "north"}


def test_a_lookup_run_again_shows_what_changed_and_is_not_recorded(base, browser):
    recorder = SQLInvocationRecorder.in_file(base / ".lookup-knowledge/invocations.db")
    count = len(recorder.invocations(limit=100))
    again = lookup(browser, "refund and parental leave", layer="L0+L1").replace("?", "/again?")
    assert "The answer is as it was." in browser.text(again)
    refunds = base / "billing/refunds.md"
    refunds.rename(base / "refunds.txt")
    assert "lost billing/refunds.md at" in browser.text(again)
    (base / "refunds.txt").rename(refunds)
    assert "The answer is as it was." in browser.text(again)
    assert len(recorder.invocations(limit=100)) == count
    recorder.close()


def test_what_cannot_be_compared_is_not_run_again(base, browser):
    recorder = SQLInvocationRecorder.in_file(base / ".lookup-knowledge/invocations.db")
    hashed = {"query": "sha256:" + 64 * "0"}
    refused = {"status": "refused", "l1_status": "skipped"}
    failed = {"status": "degraded", "l1_status": "failed"}
    for number, given in enumerate((hashed, refused, failed), start=90):
        recorder.record(invocation(number, created_at="2020-01-01T00:00:00+00:00", **given))
        assert "Run again" not in browser.text(f"/lookup?id=i00{number}")
        status, body, _ = browser.get(f"/lookup/again?id=i00{number}")
        assert (status, "This lookup cannot be run again" in body) == (400, True)
    recorder.prune(datetime(2021, 1, 1, tzinfo=UTC))
    recorder.close()


def test_gaps_say_what_to_write_next(browser):
    page = browser.text("/gaps")
    assert "zebra" in page
    assert "never/4.md roses < gardens" in page
    assert "it/vpn.md" not in page.partition("Entries never found")[2].partition("Terms that")[0]
    assert "add the keyword “ zebra ” to" in page
    assert "install the vpn" not in page
    assert "Terms that match too much They occur" in page


def test_an_unknown_lookup_is_not_found(browser):
    assert (
        browser.get("/lookup?id=nothing")[0]
        == browser.get("/lookup/again?id=nothing")[0]
        == browser.get("/x")[0]
        == 404
    )


@pytest.mark.parametrize(
    "path", ["/", "/lookups", "/lookup?id=i0001", "/gaps", "/lookups?text=" + quote(HOSTILE)]
)
def test_what_was_recorded_is_text(browser, path):
    _, body, headers = browser.get(path)
    assert_harmless(body)
    assert len(body) < 100_000
    policy = headers["Content-Security-Policy"]
    assert "default-src 'none'; style-src 'self';" in policy
    assert "unsafe" not in policy
    if path != "/":
        assert SHOWN in visible(body)
        assert "<script>alert(1)</script>" in visible(body)


def test_a_scope_sees_its_lookups_alone(base):
    with served(base, "--scope", "tenant=north") as address:
        browser = Browser(address)
        assert "Lookups 1 Answered 100 %" in browser.text("/").replace("\u202f", " ")
        assert "install the vpn" not in browser.text("/lookups")
        assert "Run again" not in browser.text("/lookup?id=i0002")
        assert "never/" not in browser.text("/gaps")
        for path in ("/lookup?id=i0001", "/lookup/json?id=i0001", "/lookup/again?id=i0001"):
            assert browser.get(path)[0] == 404
        assert browser.get("/lookup/again?id=i0002")[0] == 400


def test_without_a_knowledge_base_nothing_is_run_again(base):
    with served("--db", f"sqlite:///{base}/.lookup-knowledge/invocations.db") as address:
        browser = Browser(address)
        assert "Run again" not in browser.text("/lookup?id=i0001")
        assert browser.get("/lookup/again?id=i0001")[0] == 400
        assert "with a knowledge folder" in browser.text("/gaps")


@pytest.fixture
def reads(tmp_path):
    """Calls of the read tool in a folder with scopes, and a lookup that found nothing, with a
    client of the inspector and the address of each.
    """
    text = "---\ntitle: {title}\ntenant: {tenant}\n---\n# {title}\n\nFirst.\n\nSecond.\n"
    entries = {
        "guide.md": text.format(title="Refund Policy", tenant="north"),
        "secret.md": text.format(title="Secret", tenant="south"),
    }
    folder = write_files(tmp_path / "kb", entries)
    recorder = SQLInvocationRecorder.in_file(folder / ".lookup-knowledge/invocations.db")
    with KnowledgeBase.open(folder, embedding=WordEmbeddings()) as kb:
        options = LookupOptions(scope_fields=("tenant",))
        tool = create_read_knowledge_tool(kb, record=recorder, options=options, name="read_vault")
        for arguments in (
            {"source": "guide.md", "lines": "5-7"},
            {"source": "secret.md"},
            {"source": "guide.md", "lines": "\x1bsoon"},
        ):
            tool.invoke(arguments, {"configurable": {"tenant": "north"}})
    missed = {"status": "no_match", "retrieval_layer": "none", "l1_status": "timeout"}
    recorder.record(
        invocation(
            1,
            **missed,
            l1={"status": "timeout", "reason": "too slow"},
            matches=[],
            relevance={"level": "none"},
        )
    )
    look = partial(KnowledgeBase.open_read_only, folder, index=None, data_dir=None)
    inspector = Inspector(History(recorder), look, look)
    client = TestClient(inspector.app(), base_url="http://127.0.0.1")
    rows = recorder.invocations(limit=10)
    addresses = {row["status"]: "/lookup?id=" + row["id"] for row in rows if row["id"] != "i0001"}
    yield folder, client, addresses
    inspector.close()
    recorder.close()


def test_calls_of_the_read_tool_are_no_lookups(reads):
    _, client, addresses = reads
    overview = client.get("/").text
    assert re.search(r"<dt>Lookups</dt><dd><a[^>]*>1</a>", overview)
    link = re.search(r'Not counted: <a href="([^"]+)">3 calls of the read tool</a>', overview)[1]
    listed = client.get(html.unescape(link)).text
    assert {html.unescape(a) for a in re.findall(r'href="(/lookup\?id=[^"]+)"', listed)} == {
        *addresses.values()
    }
    assert "Relevance</th>" not in listed
    assert "[U+001B]" not in listed  # the tool records one line of text
    assert "query 1" in visible(client.get("/lookups").text)
    assert "guide.md" not in visible(client.get("/lookups").text)
    gaps = visible(client.get("/gaps").text)
    assert "What to write next Queries" in gaps
    assert "None." in gaps.split("Entries never found")[0]
    assert "guide.md" in gaps.split("Entries never found")[1]


def test_the_page_of_a_read_says_what_was_read_and_shows_it_as_it_is_today(reads):
    folder, client, addresses = reads
    page = client.get(addresses["ok"]).text
    seen = visible(page)
    assert "Read Refund Policy , lines 5 to 7." in seen
    assert "First." in seen
    assert "Second." not in seen
    for wrong in ("Relevance", "filter", "candidates", "Changed", "gone", "What the model got"):
        assert wrong not in seen
    assert 'class="bar"' not in page
    guide = folder / "guide.md"
    guide.write_text(guide.read_text().replace("First.", "Other."))
    assert "Changed since: these lines as they are now." in visible(
        client.get(addresses["ok"]).text
    )
    assert "Other." in visible(client.get(addresses["ok"]).text)
    guide.write_text(guide.read_text().replace("tenant: north", "tenant: south"))
    seen = visible(client.get(addresses["ok"]).text)
    assert "no longer there for this caller" in seen
    assert "Other." not in seen
    guide.unlink()
    assert "no longer there" in visible(client.get(addresses["ok"]).text)


def test_the_command_line_and_the_report_tell_reads_from_lookups(reads, tmp_path, capsys):
    folder, _, _ = reads
    assert main(["invocations", str(folder)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [" read  L1 - " in line for line in lines if "read_vault" in line] == [True] * 3
    assert [" none  L1 timeout " in line for line in lines if "read_vault" not in line] == [True]
    out = tmp_path / "report.html"
    assert (
        main(
            [
                "report",
                "--db",
                f"sqlite:///{folder}/.lookup-knowledge/invocations.db",
                "--out",
                str(out),
            ]
        )
        == 0
    )
    report = out.read_text()
    assert "Not counted: 3 calls of the read tool." in visible(report)
    assert report.count('class="picture"') == 1


@pytest.mark.parametrize("scope", [{"tenant": 5}, "north"])
def test_a_read_in_a_scope_that_cannot_be_read_shows_no_text(reads, scope):
    folder, client, _ = reads
    match = {"entry_id": "guide.md", "heading": "", "lines": [5, 7], "layers": []}
    recorder = SQLInvocationRecorder.in_file(folder / ".lookup-knowledge/invocations.db")
    details = {"matches": [match], "scope": scope}
    recorder.record(read_call(7, id="odd", retrieval_details=details))
    recorder.close()
    seen = visible(client.get("/lookup?id=odd").text)
    assert "The scope of the caller cannot be read, so the text is not shown." in seen
    assert "First." not in seen


def test_the_page_of_a_read_that_failed_says_why(reads):
    _, client, addresses = reads
    seen = visible(client.get(addresses["no_match"]).text)
    assert "Not found: there is no entry 'secret.md'" in seen
    assert "Second." not in seen
    assert "Is it right" not in seen
    assert "Not read: lines takes" in visible(client.get(addresses["invalid_query"]).text)
    assert client.get(addresses["ok"].replace("lookup?", "lookup/json?")).json()["status"] == "ok"


def test_nothing_found_without_vector_search_says_that_half_of_the_search_is_missing(reads):
    _, client, _ = reads
    half = "half of the search did not take part in 1 (L1 timeout)"
    assert half in visible(client.get("/").text)
    assert "Half of the search did not take part" in visible(client.get("/lookup?id=i0001").text)


def test_fields_of_the_filters_show_control_characters_as_code_points(browser):
    page = browser.get("/lookups?" + urlencode({"text": HOSTILE, "thread": HOSTILE}))[1]
    assert not re.search("[\u202e\x1b\x07]", page)
    fields = [field for field in re.findall("<input[^>]*>", page) if "[U+001B]" in field]
    assert [re.search(' name="([^"]*)"', field)[1] for field in fields] == ["text", "thread"]


class FaultyHistory(History):
    """A history with a fault that nobody foresaw."""

    def lookups(self, selection, **named):
        raise ZeroDivisionError("a detail of ours")


def test_a_fault_is_told_without_a_traceback(base, caplog):
    recorder = SQLInvocationRecorder.in_file(base / ".lookup-knowledge/invocations.db")
    app = Inspector(FaultyHistory(recorder)).app()
    client = TestClient(app, base_url="http://127.0.0.1", raise_server_exceptions=False)
    with caplog.at_level("DEBUG", "langchain_lookup_knowledge"):
        answer = client.get("/lookups")
    assert answer.status_code == 500
    assert "Unexpected ZeroDivisionError: start the inspector with --traceback." in answer.text
    assert "a detail of ours" not in answer.text
    assert answer.headers["Cache-Control"] == "no-store"
    assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
    assert any(record.exc_info for record in caplog.records)
    assert client.get("/lookup?id=i0002").status_code == 200
    recorder.close()


def test_the_health_page_shows_more_than_the_status_only_to_those_with_the_token(base):
    recorder = SQLInvocationRecorder.in_file(base / ".lookup-knowledge/invocations.db")
    look = partial(KnowledgeBase.open_read_only, base, index="from_settings", data_dir=None)
    inspector = Inspector(History(recorder), look_kb=look)
    client = TestClient(inspector.app(token="a secret"), base_url="http://127.0.0.1")
    answer = client.get("/healthz")
    status = answer.json()["status"]
    assert (answer.status_code, list(answer.json())) == ({"ok": 200}.get(status, 503), ["status"])
    told = client.get("/healthz", headers={"authorization": "Bearer a secret"}).json()
    assert told["status"] == status
    assert told["entries"] == len(list(base.rglob("*.md")))
    assert client.get("/lookups").status_code == 401
    recorder.close()


@pytest.mark.parametrize("error", [None, DocumentError, ValueError, PermissionError, KeyError])
def test_the_health_page_without_a_knowledge_base(base, error):
    opened = []

    def refused():
        opened.append(1)
        raise error("a path that is nobody's business")

    recorder = SQLInvocationRecorder.in_file(base / ".lookup-knowledge/invocations.db")
    inspector = Inspector(History(recorder), look_kb=refused if error else None, name="secret")
    client = TestClient(inspector.app(), base_url="http://127.0.0.1")
    expected = (503, {"status": "degraded"}) if error else (200, {"status": "ok"})
    for _ in range(20):
        answer = client.get("/healthz")
        assert (answer.status_code, answer.json()) == expected
    assert len(opened) <= bool(error) * 3  # not at each request
    recorder.close()


def test_only_reading_the_health_page_and_the_login_needs_no_token(base):
    recorder = SQLInvocationRecorder.in_file(base / ".lookup-knowledge/invocations.db")
    app = Inspector(History(recorder, {"tenant": "acme"}), name="secret").app(token="a secret")
    client = TestClient(app, base_url="http://127.0.0.1")
    refused = ("POST", "/healthz"), ("TRACE", "/healthz"), ("GET", "/healthz/"), ("POST", "/login")
    for method, path in refused:
        answer = client.request(method, path)
        assert (answer.status_code, "acme" in answer.text) == (401, False)
        answer = client.request(method, path, headers={"host": "evil.example"})
        assert (answer.status_code, "acme" in answer.text) == (421, False)
    for host in ("127.0.0.1/healthz?", "127.0.0.1/login?", "127.0.0.1/healthz#"):
        assert client.get("/lookups", headers={"host": host}).status_code == 401
    head = client.head("/healthz")
    assert (head.status_code, head.content) == (200, b"")
    recorder.close()


def test_the_report_is_one_file_with_all_of_it(base, tmp_path, capsys):
    out = tmp_path / "report.html"
    assert main(["report", str(base), "--out", str(out), "--limit", "100"]) == 0
    page = out.read_text("utf-8")
    style = re.search(r"<style>(.*?)</style>", page, re.DOTALL)[1]
    assert (
        f"'sha256-{b64encode(hashlib.sha256(style.encode()).digest()).decode()}'"
        in html.unescape(page)
    )
    assert_harmless(page)
    ids = re.findall(r' id="([^"]+)"', page)
    assert len(ids) == len(set(ids))
    assert set(re.findall(r'href="(.*?)"', page)) <= {"data:,", *(f"#{name}" for name in ids)}
    assert visible(page).count("How it went") == 14
    assert "Install the" in visible(page)
    assert "<form" not in page
    assert main(["report", str(tmp_path), "--out", str(out)]) == 1
    assert main(["report", str(base), "--out", str(tmp_path / "no/folder.html")]) == 2
    assert "No such file or directory" in capsys.readouterr().err


@pytest.mark.process
def test_a_missing_extra_is_named():
    script = (
        "import sys; sys.modules['starlette'] = None\n"
        "from langchain_lookup_knowledge.integrations.cli import main\n"
        "sys.exit(main(['inspect', '.']))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False, env=os.environ
    )
    assert done.returncode == 2
    assert 'pip install "langchain-lookup-knowledge[inspect]"' in done.stderr


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a\tb\nc", "a b c"),
        ("a\u202eb\u2066c\x00d", "a[U+202E]b[U+2066]c[U+0000]d"),
        ("👩\u200d💻 नि\u200dष", "👩\u200d💻 नि\u200dष"),
        ("word " * 100, "word word…"),
        ("\ud800", "[U+D800]"),
    ],
)
def test_texts_are_shown_harmlessly(text, expected):
    assert shown(text, 12 if text.startswith("word") else 200) == expected


def test_marks_may_lie_in_each_other_and_beyond_a_cut():
    def term(start, end, specific):
        return {"span": [start, end], "specific": specific}

    assert marked("a <b> c", [term(2, 5, True)]) == 'a <mark class="specific">&lt;b&gt;</mark> c'
    nested = marked("new york city", [term(0, 13, True), term(4, 8, False)])
    assert re.sub(r"<[^>]*>", "", nested) == "new york city"
    assert re.findall(">([^<>]+)</mark>", nested) == ["new ", "york", " city"]
    assert marked("x" * 30, [term(20, 25, True)], limit=10) == "x" * 9 + "…"


def test_queries_are_grouped_by_the_words_they_share():
    groups = by_shared_terms(
        [
            ("is parental leave paid", 5),
            ("who approves Parental Leave", 2),
            ("vpn on linux", 4),
            ("vpn on windows", 1),
            ("zebra", 9),
        ]
    )
    assert [(group["terms"], group["times"]) for group in groups] == [
        (["parental", "leave"], 7),
        (["vpn"], 5),
        ([], 9),
    ]
    (chinese, _) = by_shared_terms([("如何申请退款", 1), ("退款要多久", 1), ("发票", 1)])
    assert chinese["terms"] == ["退款"]
    assert by_shared_terms([]) == []


def test_what_pages_need_is_closed(base):
    recorder = SQLInvocationRecorder.in_file(base / ".lookup-knowledge/invocations.db")
    inspector = Inspector(History(recorder))
    assert "Overview" in inspector.report(1)
    inspector.close()
    recorder.close()


class OtherEmbeddings(WordEmbeddings):
    model = "another"


def test_a_lookup_run_again_says_why_the_index_does_not_fit_the_model(folder, tmp_path):
    with KnowledgeBase.open(folder, embedding=WordEmbeddings()) as kb:
        create_lookup_knowledge_graph(kb).invoke({"query": "refund"})
    recorder = SQLInvocationRecorder.in_file(folder / ".lookup-knowledge/invocations.db")
    inspector = Inspector(
        History(recorder), lambda: KnowledgeBase.open(folder, embedding=OtherEmbeddings())
    )
    client = TestClient(inspector.app(), base_url="http://127.0.0.1")
    (row,) = recorder.invocations()
    for _ in range(2):  # the knowledge base is opened, then synced
        page = client.get("/lookup/again", params={"id": row["id"]})
        assert page.status_code == 200
        assert "The index is behind: the index was built with" in visible(page.text)
    inspector.close()
    recorder.close()


def posted(browser, path, **fields):
    """Send a form as the pages have it; return the status and the headers."""
    connection = http.client.HTTPConnection(browser.place.hostname, browser.place.port, timeout=30)
    headers = {"Content-Type": "application/x-www-form-urlencoded", **fields.pop("headers", {})}
    connection.request("POST", path, body=urlencode(fields), headers=headers)
    response = connection.getresponse()
    response.read()
    connection.close()
    return response.status, response.headers


def form_token(browser, path="/lookup?id=i0002"):
    return re.search(r'name="form_token" value="([^"]+)"', browser.get(path)[1])[1]


def test_an_answer_is_called_right_or_wrong(browser):
    place = lookup(browser, "install the vpn", layer="L0+L1")
    assert "Is the first match right?" in browser.text(place)
    token, invocation_id = form_token(browser, place), place.partition("=")[2]
    for right, said in (("yes", "right"), ("no", "wrong")):
        status, headers = posted(
            browser,
            "/feedback",
            form_token=token,
            id=invocation_id,
            right=right,
            note="because <b>",
        )
        assert (status, headers["Location"]) == (303, place)
        assert f"Called {said} on" in browser.text(place)
    assert 'value="because &lt;b&gt;"' in browser.get(place)[1]
    assert "install the vpn Asked 1 time. Called wrong." in browser.text("/gaps")
    posted(browser, "/feedback", form_token=token, id=invocation_id, right="yes")
    assert "install the vpn" not in browser.text("/gaps")
    assert "Called right 100 %" in browser.text("/").replace("\u202f", " ")


@pytest.mark.parametrize(
    ("given", "status"),
    [
        ({"form_token": ""}, 403),
        ({"form_token": "é"}, 403),
        ({"headers": {"Sec-Fetch-Site": "cross-site"}}, 403),
        ({"headers": {"Sec-Fetch-Site": "same-site"}}, 403),
        ({"headers": {"Host": "evil.example"}}, 421),
        ({"right": "maybe"}, 400),
        ({"id": "nothing"}, 404),
        ({"note": "x" * 20_000}, 413),
    ],
)
def test_a_form_that_is_not_of_these_pages_changes_nothing(browser, given, status):
    fields = {"form_token": form_token(browser), "id": "i0002", "right": "yes", **given}
    assert posted(browser, "/feedback", **fields)[0] == status
    assert "Is the first match right?" in browser.text("/lookup?id=i0002")
    assert browser.get("/feedback?id=i0002&right=yes")[0] == 405


def test_a_gap_is_marked_as_done_and_opened_again(browser):
    def gap():
        return re.search(r'value="(sha256:\w+)"><button class="quiet" name="done"', page())[1]

    def page():
        return browser.get("/gaps")[1]

    before = page().count('<li class="gap">')
    key, token = gap(), form_token(browser, "/gaps")
    assert posted(browser, "/gaps/done", form_token=token, keys=key, done="yes")[0] == 303
    assert page().count('<li class="gap">') == before - 1
    assert "marked as done" in visible(page())
    assert posted(browser, "/gaps/done", form_token=token, keys=key, done="no")[0] == 303
    assert page().count('<li class="gap">') == before
    assert posted(browser, "/gaps/done", form_token="", keys=key, done="yes")[0] == 403


def test_only_listed_gaps_are_marked(browser):
    token = form_token(browser, "/gaps")
    for unknown in (hash_of("never asked"), "zebra", ""):
        assert posted(browser, "/gaps/done", form_token=token, keys=unknown, done="yes")[0] == 400
    fields = {"form_token": token, "keys": hash_of("zebra"), "done": "yes"}
    assert posted(browser, "/gaps/done?until=2020-01-01", **fields)[0] == 400
    status, headers = posted(browser, "/gaps/done?since=2020-01-01", **fields)
    assert (status, headers["Location"]) == (303, "/gaps?since=2020-01-01")
    page = browser.get("/gaps?since=2020-01-01")[1]
    assert 'action="/gaps/done?since=2020-01-01"' in page
    assert "zebra : marked as done" in visible(page)
    posted(browser, "/gaps/done", **{**fields, "done": "no"})


def test_a_gap_is_marked_in_its_scope_alone(tmp_path):
    with closing(SQLInvocationRecorder.in_file(tmp_path / "calls.db")) as recorder:
        weak = {"query": "zebra", "relevance": {"level": "low"}, "matches": []}
        recorder.record(invocation(1, scope={"tenant": "north", "team": "a"}, **weak))
        recorder.record(invocation(2, scope={"tenant": "south"}, **weak))
        recorder.record(invocation(3, scope={"tenant": "south"}, **{**weak, "query": "lion"}))
        scopes = ({"team": "a", "tenant": "north"}, {"tenant": "south"}, None)
        north, south, everything = (Inspector(History(recorder, scope)) for scope in scopes)

        def is_done(inspector):
            return [gap.query for gap in inspector.gaps(Selection())["closed"]]

        def keys_of(inspector):
            groups = inspector.gaps(Selection())["groups"]
            return [gap.key for group in groups for gap in group]

        for key in keys_of(south):
            with pytest.raises(ValueError, match="No such gap is listed"):
                north.mark_gap([key], Selection(), done=True)
        (key,) = keys_of(north)
        north.mark_gap([key, *keys_of(south)], Selection(), done=True)
        inspectors = (north, south, everything)
        assert [is_done(one) for one in inspectors] == [["zebra"], [], ["zebra"]]
        with pytest.raises(ValueError, match="No such gap is listed"):
            everything.mark_gap([hash_of("zebra")], Selection(), done=True)
        everything.mark_gap([key], Selection(), done=False)
        assert [is_done(one) for one in inspectors] == [[], [], []]


@pytest.fixture
def tenants(tmp_path):
    """A folder with a public note, a note of alder's and one of birch's, and lookups of both; a
    client of its inspector.
    """
    entries = {
        "shared/invoice.md": "---\npublic: true\n---\n# Invoice\n\nInvoices are sent monthly.\n",
        "alder/fees.md": "---\ncustomer: alder\n---\n# Fees\n\nFees of the alder contract.\n",
    }
    folder = write_files(tmp_path / "kb", entries)
    (folder / ".lookup-knowledge").mkdir()
    recorder = SQLInvocationRecorder.in_file(folder / ".lookup-knowledge/invocations.db")
    code = {"query": "what is BIR-9100", "rare": {"bir-9100": 0}}
    weak = {"relevance": {"level": "low"}}

    def match(entry_id):
        return [{"entry_id": entry_id, "score": 0.8, "similarity": 0.5, "layers": ["L1"]}]

    def put(number, scope, entry_id, **changes):
        made = invocation(number, matches=match(entry_id), scope=scope, **changes)
        made["retrieval_details"]["rare"] = changes.get("rare", {})
        recorder.record(made)

    put(1, {"customer": "alder"}, "shared/invoice.md", **weak, **code)
    put(2, {"customer": "birch"}, "birch/codes.md", **code)
    fee = {"query": "fee ALD-7 \x1b", "rare": {"ald-7": 0}}
    put(3, {"customer": "alder\u202e"}, "alder/fees.md", **weak, **fee)
    put(4, {"customer": "alder"}, "alder/fees.md", **weak, **fee)
    put(5, {}, "shared/invoice.md", query="when", thread_id="plain")

    look = partial(KnowledgeBase.open_read_only, folder, index=None, data_dir=None)
    with closing(recorder), closing(Inspector(History(recorder), None, look)) as inspector:
        yield folder, TestClient(inspector.app(), base_url="http://127.0.0.1")


def test_the_gaps_of_a_tenant_give_no_words_away_to_others(tenants):
    _, client = tenants
    page = visible(client.get("/gaps").text)
    asked = page.partition("Entries never found")[0]
    assert "what is BIR-9100 Asked 1 time for customer=alder ." in asked
    assert "No answer for customer=alder : write an entry on “ BIR-9100 ”" in asked
    assert "to shared/invoice.md" not in asked
    assert "later lookup found it" not in asked
    assert asked.count("to alder/fees.md") == 1  # alder's alone, for alder's question
    assert "No answer for customer=alder[U+202E] : write" in asked


def test_the_scope_of_a_lookup_is_shown(tenants, tmp_path, capsys):
    folder, client = tenants
    listed = visible(client.get("/lookups").text)
    assert "Scope Thread" in listed
    assert "customer=birch" in listed
    assert "customer=alder[U+202E]" in listed
    assert "Scope Thread" not in visible(client.get("/lookups?thread=plain").text)
    assert "Scope customer=alder" in visible(client.get("/lookup?id=i0001").text)
    assert "Scope customer" not in visible(client.get("/lookup?id=i0005").text)
    assert main(["report", str(folder), "--out", str(tmp_path / "report.html")]) == 0
    report = visible((tmp_path / "report.html").read_text("utf-8"))
    assert report.count("Scope customer=alder") == 3
    assert report.count("Scope customer=birch") == 1
    capsys.readouterr()
    assert main(["invocations", str(folder)]) == 0
    lines = capsys.readouterr().out.splitlines()
    ends = [line.partition(" -> a.md")[2] for line in lines]
    alder, odd, birch = (f" [customer={name}]" for name in ("alder", "alder\ufffd", "birch"))
    assert ends == ["", alder, odd, birch, alder]


def test_a_query_is_tried_without_a_record(base, browser):
    recorder = SQLInvocationRecorder.in_file(base / ".lookup-knowledge/invocations.db")
    count = len(recorder.invocations(limit=100))
    assert "Found in VPN" in browser.text("/try?query=vpn")
    assert "by keywords alone" in browser.text("/try?query=vpn&l1=off")
    assert "only for: category Billing" in browser.text("/try?query=vpn&filters=category%3DBilling")
    page = browser.text("/try?query=vpn&scope_given=tenant%3Dnorth")
    assert "Nothing found" in page
    assert "Is the first match right?" not in page
    for field in ("query", "k", "filters_2", "scope_given"):
        page = browser.get(f"/try?{field}={quote(HOSTILE)}")[1]
        assert_harmless(page)
        assert not re.search("[\u202e\x1b\x07]", page)
    for bad in ("filters=x", "filter_mode=odd", "scope_given=%3D"):
        assert browser.get(f"/try?query=vpn&{bad}")[0] == 400
    assert len(recorder.invocations(limit=100)) == count
    recorder.close()


def test_two_settings_are_compared(browser):
    def compared(**fields):
        fields = {"query": "install the vpn, and refunds", "compare": "yes", **fields}
        return browser.text("/try?" + urlencode(fields))

    page = compared(k_2="1")
    assert "First settings At most 5 matches, filter mode guarded, vector search on;" in page
    assert "Other settings At most 1 match," in page
    assert "is first with both; what follows differs." in page
    assert "not found" in page
    assert "in the same order" in compared()
    page = compared(filters_2="category=Billing")
    assert "First is VPN ; with the other settings, it is Refunds ." in page
    assert page.count("Found in") == 2
    assert "Found by keywords alone" in compared(l1_2="off")
    assert "Nothing was found with either." in compared(query="?!")
    assert browser.get("/try?query=vpn&compare=yes&filters_2=x")[0] == 400


def test_a_passage_that_changed_since_is_marked(base, browser):
    place = lookup(browser, "install the vpn", layer="L0+L1")
    file = base / "it/vpn.md"
    text = file.read_text("utf-8")
    assert "Changed since" not in browser.text(place)
    file.write_text("\n\n" + text.replace("---\nInstall", "---\n\n\nInstall"), "utf-8")
    file.write_text(text.replace("Install the", "Remove the"), "utf-8")
    assert "Changed since: these lines as they are now. Remove the" in browser.text(place)
    file.rename(base / "vpn.txt")
    assert "These lines are no longer there." in browser.text(place)
    (base / "vpn.txt").rename(file)
    file.write_text(text.replace("Install", "New first line.\n\nInstall"), "utf-8")
    assert "Changed since" not in browser.text(place)  # the same text, further down
    file.write_text(text, "utf-8")


def test_in_a_scope_the_record_alone_is_shown(base):
    with served(base, "--scope", "tenant=north") as address:
        page = Browser(address).text("/lookup?id=i0002")
        assert "Start the inspector with the knowledge folder, and without a scope" in page
        assert "vscode:" not in Browser(address).get("/lookup?id=i0002")[1]
        token = form_token(Browser(address))
        fields = {"form_token": token, "right": "yes"}
        assert posted(Browser(address), "/feedback", id="i0001", **fields)[0] == 404


@pytest.mark.parametrize(("opener", "link"), [("file", "file:///"), ("none", None)])
def test_links_open_files_as_chosen(base, opener, link):
    with served(base, "--open-with", opener) as address:
        browser = Browser(address)
        body = browser.get(lookup(browser, "install the vpn", layer="L0+L1"))[1]
        assert (f'href="{link}' in body) == (link is not None)
        assert "vscode:" not in body
