"""The inspector over HTTP, as its users start it: who may read it, what it shows, and that what was recorded is only text."""

import hashlib
import html
import http.client
import json
import os
import re
import signal
import subprocess
import sys
from base64 import b64encode
from contextlib import contextmanager
from datetime import UTC, datetime
from html.parser import HTMLParser
from urllib.parse import quote, urlsplit

import pytest
import sqlalchemy as sa
from conftest import FILES, WordEmbeddings, write_files
from test_history import invocation

from langchain_lookup_knowledge import (
    KnowledgeBase,
    LookupOptions,
    SQLInvocationRecorder,
    create_lookup_knowledge_graph,
)
from langchain_lookup_knowledge.cli import main
from langchain_lookup_knowledge.history import History
from langchain_lookup_knowledge.inspector import Inspector, by_shared_terms, marked, shown
from langchain_lookup_knowledge.records import tool_invocation

HOSTILE = (
    "<script>alert(1)</script><img src=x onerror=alert(2)>\"'{{ 7*7 }} \u202egpj.exe \x1b[31m\u0007 </title></style>"
)
SHOWN = "[U+202E]gpj.exe [U+001B][31m[U+0007]"


@contextmanager
def served(*arguments):
    """Start `lookup-knowledge inspect` and give the address it prints; stop it as a person would."""
    command = [sys.executable, "-m", "langchain_lookup_knowledge.cli", "inspect", *map(str, arguments), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process.stdout.readline().removeprefix("serving ").strip()
        finally:
            process.send_signal(signal.SIGINT)
            _, errors = process.communicate(timeout=30)
        assert errors == "lookup-knowledge: stopped\n"
        assert process.returncode == 130


class Browser:
    """What a browser does, without one: keeps headers, follows nothing."""

    def __init__(self, address, **headers):
        self.place = urlsplit(address)
        self.headers = headers

    def get(self, path, **headers):
        connection = http.client.HTTPConnection(self.place.hostname, self.place.port, timeout=30)
        connection.request("GET", path, headers=self.headers | {k.replace("_", "-"): v for k, v in headers.items()})
        response = connection.getresponse()
        body = response.read().decode()
        connection.close()
        return response.status, body, response.headers

    def text(self, path):
        """Return a page as its reader sees it."""
        status, body, _ = self.get(path)
        assert status == 200, body
        return visible(body)


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
    assert not re.search("[\u202e\x1b\x07]", re.sub(r"<input[^>]*>", "", page))  # what is typed stays as it is


def visible(page):
    return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", page.partition("<main")[2])).split())


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    """A knowledge folder with recorded lookups: of all outcomes, hostile ones, and one in a scope."""
    never = {f"never/{number}.md": "---\ntitle: <i>gardens</i>\n---\nRoses.\n" for number in range(5)}
    folder = write_files(tmp_path_factory.mktemp("base") / "kb", {**FILES, **never})
    for thread, arguments in {"fine": {}, "failing": {"embedding": WordEmbeddings(), "sync": False}}.items():
        with KnowledgeBase.open(folder, **arguments) as kb:
            graph = create_lookup_knowledge_graph(kb, options=LookupOptions(k=2))
            for query in ("install the vpn", "refund and parental leave", "zebra", "", HOSTILE):
                graph.invoke({"query": query}, {"configurable": {"thread_id": thread}})
    recorder = SQLInvocationRecorder.in_file(folder / ".lookup-knowledge/invocations.db")
    title = HOSTILE + "x" * 1_000_000
    term = {"text": title, "field": "keywords", "span": [0, 8], "kind": "exact", "files": 9, "specific": False}
    hint = {"entry_id": HOSTILE, "title": title, "domains": [HOSTILE], "keywords": [], "entities": [], "score": 1.0}
    hints = {"terms": [term | {"domains": [HOSTILE], "reason": "common: " + HOSTILE}], "entries": [hint]}
    match = {"entry_id": HOSTILE, "score": 1.0, "similarity": None, "layers": ["L0"]}
    hostile = {"l0_hints": hints, "matches": [match], "candidates": [match], "filter": {"category": HOSTILE}}
    recorder._store(
        [invocation(1, query=HOSTILE, thread_id=HOSTILE, primary_entry_id=HOSTILE, **hostile)], 5
    )  # uncapped
    recorder.record(invocation(2, query="of the north", scope={"tenant": "north"}))
    recorder.record(invocation(3, query="without details") | {"retrieval_details": {"truncated": True}})
    recorder.record(invocation(4, id="../<b>", query="an odd id"))
    recorder.close()
    return folder


@pytest.fixture(scope="module")
def browser(base):
    with served(base) as address:
        yield Browser(address)


def lookup(browser, text, **filters):
    """Return the address of the newest lookup with a text."""
    query = "&".join(f"{name}={quote(value)}" for name, value in {"text": text, **filters}.items())
    return re.search(r'href="(/lookup\?[^"]+)"><bdi>', browser.get(f"/lookups?{query}")[1])[1]


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "example.org"])
def test_another_host_without_a_token_is_refused(base, capsys, host):
    assert main(["inspect", str(base), "--host", host, "--port", "0"]) == 2
    assert f"{host} can be reached from other machines: give a --token" in capsys.readouterr().err


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
            assert (status, body) == (401, "Open the link that the inspector printed when it started.")
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
    assert "Filter fired" in page
    assert "Lookups by layer and" in page
    assert "No lookup was recorded in this time." in browser.text("/?until=2020-01-01")


def test_the_list_is_filtered(browser):
    assert "of the north" in browser.text("/lookups?text=NORTH")
    assert "No lookup fits." in browser.text("/lookups?text=north&status=no_match")
    degraded = browser.text("/lookups?status=degraded&layer=L0&thread=failing")
    assert "install the vpn" in degraded
    assert "zebra" not in degraded
    status, body, _ = browser.get("/lookups?since=yesterday")
    assert status == 400
    assert "since takes a day such as 2026-01-31." in visible(body)


def test_a_lookup_is_a_picture(browser):
    _, body, _ = browser.get(lookup(browser, "install the vpn", layer="L0+L1"))
    page = visible(body)
    assert '<mark class="specific">vpn<sup>' in body
    assert "VPN title exact yes IT" in page
    assert "L1 was narrowed to the category IT" in page
    assert "it/vpn.md 1 " in page
    assert body.count('class="slope') >= 1
    for step in ("l0_hints", "choose_filter", "l1_retrieve", "merge_with_fallback", "record_invocation"):
        assert step in page


def test_a_failure_of_l1_is_told(browser):
    page = browser.text(lookup(browser, "install the vpn", layer="L0"))
    assert "L1 did not take part: failed , the index was built with another model" in page


def test_rows_that_lack_their_details_are_shown(browser):
    assert "Filter Not recorded." in browser.text("/lookup?id=i0003")
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
    assert "never/4.md <i>gardens</i>" in page
    assert "it/vpn.md" not in page
    assert "Terms that match too much They stand" in page


def test_an_unknown_lookup_is_not_found(browser):
    assert (
        browser.get("/lookup?id=nothing")[0]
        == browser.get("/lookup/again?id=nothing")[0]
        == browser.get("/x")[0]
        == 404
    )


@pytest.mark.parametrize("path", ["/", "/lookups", "/lookup?id=i0001", "/gaps", "/lookups?text=" + quote(HOSTILE)])
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
        assert "Give a knowledge folder" in browser.text("/gaps")


def test_a_fault_is_told_without_a_traceback(base):
    recorder = SQLInvocationRecorder.in_file(base / ".lookup-knowledge/invocations.db")
    recorder.record(invocation(9, created_at="2020-01-01T00:00:00+00:00", candidates=["not a candidate"]))
    recorder.close()
    with served("--db", f"sqlite:///{base}/.lookup-knowledge/invocations.db") as address:
        status, body, headers = Browser(address).get("/lookup?id=i0009")
        assert (headers["Cache-Control"], "default-src 'none'" in headers["Content-Security-Policy"]) == (
            "no-store",
            True,
        )
        assert (status, "unexpected TypeError: please report" in body) == (500, True)
        assert Browser(address).get("/lookup?id=i0002")[0] == 200
    recorder.read(
        lambda connection: connection.execute(sa.delete(tool_invocation).where(tool_invocation.c.id == "i0009"))
    )
    recorder.close()


def test_the_report_is_one_file_with_all_of_it(base, tmp_path, capsys):
    out = tmp_path / "report.html"
    assert main(["report", str(base), "--out", str(out), "--limit", "100"]) == 0
    page = out.read_text("utf-8")
    style = re.search(r"<style>(.*?)</style>", page, re.DOTALL)[1]
    assert f"'sha256-{b64encode(hashlib.sha256(style.encode()).digest()).decode()}'" in html.unescape(page)
    assert_harmless(page)
    ids = re.findall(r' id="([^"]+)"', page)
    assert len(ids) == len(set(ids))
    assert set(re.findall(r'href="(.*?)"', page)) <= {"data:,", *(f"#{name}" for name in ids)}
    assert visible(page).count("From candidates to the answer") == 14
    assert main(["report", str(tmp_path), "--out", str(out)]) == 1
    assert main(["report", str(base), "--out", str(tmp_path / "no/folder.html")]) == 2
    assert "No such file or directory" in capsys.readouterr().err


def test_a_missing_extra_is_named():
    script = (
        "import sys; sys.modules['starlette'] = None\n"
        "from langchain_lookup_knowledge.cli import main\n"
        "sys.exit(main(['inspect', '.']))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, env=os.environ)
    assert done.returncode == 2
    assert "pip install 'langchain-lookup-knowledge[inspect]'" in done.stderr


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

    assert marked("a <b> c", [term(2, 5, True)]) == 'a <mark class="specific">&lt;b&gt;<sup>1</sup></mark> c'
    nested = marked("new york city", [term(0, 13, True), term(4, 8, False)])
    assert re.sub(r"<sup>.*?</sup>|<[^>]*>", "", nested) == "new york city"
    assert re.findall(r"<sup>(.*?)</sup>", nested) == ["2", "1"]
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
