"""`lookup-knowledge ask`: what a person reads, on a terminal and in a pipe."""

import json
import os
import pty
import re
import subprocess
from pathlib import Path

import pytest
from conftest import FILES, WordEmbeddings, write_files
from parts.command_line import COMMAND, run

from langchain_lookup_knowledge import KnowledgeBase, create_lookup_knowledge_graph
from langchain_lookup_knowledge.first_sight.answer import trust_of
from langchain_lookup_knowledge.integrations.command_line import ask as cli_ask
from langchain_lookup_knowledge.text.search_terms import search_terms, term_spans

BOLD = re.compile(r"\x1b\[1m(.*?)\x1b\[0m")


def test_a_person_gets_title_place_text_reason_and_how_far_to_trust_it(folder):
    done = run("ask", folder, "refund")
    assert done.returncode == 0
    title, place, text, why, gap, trust = done.stdout.splitlines()
    assert title == "Refunds"
    assert place == f"{folder}/billing/refunds.md:7"
    assert text == "  Refunds take five days."
    assert re.fullmatch(r"  why: keyword 'refund'; its text has 'refund'; similarity 0\.\d\d", why)
    assert gap == ""
    assert re.fullmatch(r"1 match, relevance \w+ \(similarity 0\.\d\d\)\.", trust)


def test_the_state_and_version_are_after_the_title_as_for_a_model(tmp_path):
    pages = {
        "deploy-v1.md": "---\ntitle: Deploy a Service\nversion: 1.8\nstatus: superseded\n"
        "superseded_by: deploy-v2.md\n---\nPush the image by hand.\n"
    }
    folder = write_files(tmp_path / "kb", pages)
    title = "Deploy a Service (superseded by deploy-v2.md; version 1.8)"
    shown = run("ask", folder, "deploy a service", "--no-l1").stdout
    assert shown.splitlines()[0] == title
    assert f"[1] {title} (" in run("ask", folder, "deploy a service", "--no-l1", "--text").stdout


def test_what_vector_search_notes_of_an_answer_is_told(folder):
    with KnowledgeBase.open(folder, embedding=WordEmbeddings()) as kb:
        result = create_lookup_knowledge_graph(kb, record=None).invoke({"query": "refund"})
    assert "Note" not in trust_of(result)
    noted = {**result, "l1": {**result["l1"], "reason": "the index is behind the folder"}}
    assert trust_of(noted).endswith(" Note: the index is behind the folder.")


def test_embedded_text_is_shown_with_its_own_place(tmp_path):
    files = {
        "contact.md": "# Reach us\n\nPhone 555, every\nworking day.\n",
        "host.md": "# Visit\n\nOpening hours.\n\n![[contact]]\n",
    }
    with KnowledgeBase.open(write_files(tmp_path, files), embedding=WordEmbeddings()) as kb:
        graph = create_lookup_knowledge_graph(kb, record=None)
        for query, place, origin in (
            ("visit phone working day", "host.md", "from contact.md:3-4"),
            ("visit opening hours", "host.md:3", None),
        ):
            lines = [*cli_ask.answer(graph.invoke({"query": query}), Path("kb"), marks=False)]
            at = lines.index("Visit")
            own = lines[at : lines.index("", at)]
            assert own[1] == f"kb/{place}"
            assert [line.strip() for line in own if line.startswith("  from ")] == [
                *filter(None, [origin])
            ]


def test_fewer_matches_than_asked_for_are_explained(folder):
    asked = "ask", folder, "set up the client"
    reason = "Weaker matches are left out, so there are fewer than 3."
    assert run(*asked, "-k", "3").stdout.splitlines()[-1] == reason
    for arguments in ((), ("-k", "1")):
        assert "left out" not in run(*asked, *arguments).stdout


def test_a_query_needs_no_quotes(folder):
    asked = json.loads(run("ask", folder, "how", "do", "I", "get", "a", "refund", "--json").stdout)
    assert asked["query"] == "how do I get a refund"
    options_first = run("ask", folder, "--no-l1", "-k", "1", "--json", "money", "back")
    assert json.loads(options_first.stdout)["query"] == "money back"
    dashed = run("ask", folder, "--no-l1", "--json", "--", "what", "is", "-k", "for")
    assert json.loads(dashed.stdout)["query"] == "what is -k for"


def test_the_models_text_on_request(folder):
    text = run("ask", folder, "refund", "--text").stdout
    assert text.startswith("Keyword hints and vector search answered (L0+L1): 1 match")
    assert re.search(r"^<match-\w{8}>$", text, re.MULTILINE)


def test_the_whole_decision_on_request(folder):
    shown = run("ask", folder, "refund", "--explain").stdout
    assert shown.startswith("Refunds\n")
    lines = iter(shown.splitlines())
    for wanted in (
        r"answered by: L0\+L1, status ok",
        "hints: 2 terms",
        r"  keywords 'refund' \(exact\), in 1 entry, specific: .+",
        r"filter: 'Billing' \(single domain\)",
        r"vector search: ok, \d candidates?, \d+ ms",
        r"match 1: score \d\.\d{3}, similarity \d\.\d{3}, found by L0 and L1, billing/refunds.md",
        r"relevance: \w+ \(.+\), with(out)? semantic support",
        r"recorded: stored, as [0-9a-f-]{36}",
    ):
        assert any(re.fullmatch(wanted, line) for line in lines), wanted


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (("zebra", "--no-l1"), "Nothing found. Vector search is off (there is no vector index by"),
        (("refund", "--scope", "tenant=north"), "Nothing found"),
    ],
)
def test_nothing_found_says_why(folder, arguments, line):
    done = run("ask", folder, *arguments)
    assert done.returncode == 1
    assert done.stdout.startswith(line)
    assert len(done.stdout.splitlines()) == 1


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (("?!",), "Not searched: the query is empty or has no letter, digit or emoji."),
        (("refund", "--scope", "tenant=a\u200bb"), "Not answered: the caller's 'tenant' has invis"),
    ],
)
def test_a_lookup_that_was_not_searched_for_is_a_usage_error(folder, arguments, line):
    done = run("ask", folder, "--no-l1", *arguments)
    assert done.returncode == 2
    assert done.stdout.startswith(line)
    assert len(done.stdout.splitlines()) == 1


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (("--filter", "stattus=draft"), "--filter cannot use 'stattus': use category, folder, "),
        (
            ("--filter", "date=a..b"),
            "--filter date takes days, such as date=2026-01-01..2026-12-31",
        ),
        (
            ("--filter", f"category={'x' * 201}"),
            "--filter category takes 1 to 100 values of at most 200 characters",
        ),
        (("--scope", "tenant="), "--scope needs a value: --scope tenant=NAME"),
        (("--scope", "tenant= "), "--scope needs a value: --scope tenant=NAME"),
        (("--scope", "tenant"), "--scope needs a value: --scope tenant=NAME"),
        (("--scope", "=north"), "--scope takes FIELD=VALUE, such as tenant=north"),
    ],
)
def test_a_filter_or_scope_that_cannot_be_used_is_one_line_in_the_words_of_the_command_line(
    folder, arguments, line
):
    done = run("ask", folder, "refund", "--no-l1", *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"lookup-knowledge: {line}")
    assert len(done.stderr.splitlines()) == 1


def test_an_answer_without_vector_search_says_so(folder, embedding):
    embedding.failure = RuntimeError("no model")
    with KnowledgeBase.open(folder, embedding=embedding) as kb:
        result = create_lookup_knowledge_graph(kb, record=None).invoke({"query": "refund"})
    *_, trust = cli_ask.answer(result, folder, marks=False)
    assert "Vector search did not take part: " in trust


def test_a_doubtful_answer_says_so(folder):
    shown = run("ask", folder, "refund", "of", "the", "quark-9000", "reactor").stdout
    assert "relevance low" in shown
    assert "The answer may not be in this folder." in shown


# Marks


@pytest.mark.parametrize(
    ("text", "query", "marked"),
    [
        ("Refunds take five days.", "refund", ["Refunds"]),
        ("See E-4711, not E-4712.", "code E-4711", ["E-4711"]),
        ("Café and CAFE, coffee", "cafe", ["Café", "CAFE"]),
        ("a 2.14.3 release", "version v2.14.3", ["2.14.3"]),
        ("退款多久到账", "退款", ["退款"]),
        ("nothing of it", "refund", []),
        ("", "refund", []),
    ],
)
def test_the_words_of_the_query_are_marked(text, query, marked):
    terms = set(search_terms(query))
    assert [text[start:end] for start, end in term_spans(text, terms)] == marked
    shown = cli_ask._marked(text, terms, marks=True)
    assert BOLD.findall(shown) == marked
    assert BOLD.sub(r"\1", shown) == text
    assert cli_ask._marked(text, terms, marks=False) == text


HOSTILE = "refund \x1b]0;owned\x07 \x1b[31mred \x9b2J \u202egnp.exe \x08\x08 \r over \x7f\n\tTab"


def test_no_character_that_a_terminal_acts_upon_gets_through(tmp_path):
    """Not from a file, and, as files are cleaned when read, not from a result that was not."""
    folder = write_files(
        tmp_path / "kb", {"a\x1b[2Jb.md": f'---\ntitle: "A\\e[1m"\n---\n{HOSTILE}'}
    )
    with KnowledgeBase.open(folder, embedding=WordEmbeddings()) as kb:
        result = create_lookup_knowledge_graph(kb, record=None).invoke({"query": "refund"})
    (match,) = result["matches"]
    match |= {"title": HOSTILE, "source": HOSTILE, "snippet": HOSTILE, "passages": []}
    match["matched"] = [{"field": "keywords", "text": HOSTILE}]
    result["l1"]["reason"] = result["relevance"]["reason"] = result["query"] = HOSTILE
    result["hints"]["terms"] = [
        {
            "text": HOSTILE,
            "field": HOSTILE,
            "kind": "exact",
            "document_frequency": 1,
            "specific": True,
            "reason": HOSTILE,
        }
    ]
    result["filter"]["category"] = HOSTILE
    for status in ("ok", "failed"):
        result["l1"]["status"] = status
        shown = [*cli_ask.answer(result, folder, marks=False), *cli_ask.explanation(result)]
        assert all(character.isprintable() for line in shown for character in line)
        marked = "\n".join(cli_ask.answer(result, folder, marks=True))
        assert set(re.findall(r"\x1b[^a-z]*.", marked)) == {"\x1b[1m", "\x1b[0m"}
    for option in ("--text", "--explain"):
        out = run("ask", folder, "refund", "--no-l1", option).stdout
        assert all(c.isprintable() or c == "\n" for c in out)


def test_spaces_of_any_width_are_shown_as_they_are(tmp_path):
    written = "---\ntitle: 10\xa0km\u3000run\n---\nThe\u2009run is 10\xa0km\u3000long.\n"
    done = run("ask", write_files(tmp_path / "kb", {"a.md": written}), "run", "--no-l1")
    assert "10\xa0km\u3000long" in done.stdout
    assert "\ufffd" not in done.stdout


@pytest.mark.parametrize(
    "command",
    [("check", "KB"), ("index", "KB"), ("ask", "KB/\x1b[2J\x9b", "x"), ("ask", "KB", "?\x1b]0;")],
)
def test_neither_do_file_names_arguments_and_errors(tmp_path, command):
    folder = write_files(tmp_path / "kb", {"a\x1b[2Jb.md": "---\ntitle: a: b\n---\n\x1b[1mText\n"})
    done = run(*(part.replace("KB", str(folder)) for part in command))
    assert done.stdout + done.stderr
    assert all(c.isprintable() or c == "\n" for c in done.stdout + done.stderr)


def on_a_terminal(folder, **environment):
    """Run `ask` with a terminal as its standard output; return what it shows."""
    main, child = pty.openpty()
    clean = {key: value for key, value in os.environ.items() if key != "NO_COLOR"}
    command = [*COMMAND, "ask", str(folder), "refund", "--no-l1"]
    subprocess.run(command, stdout=child, check=True, env={**clean, "TERM": "xterm", **environment})
    os.close(child)
    shown = os.read(main, 65_536).decode()
    os.close(main)
    return shown


@pytest.mark.process
def test_words_are_bold_on_a_terminal_unless_it_may_not_be(folder):
    assert BOLD.findall(on_a_terminal(folder)) == ["Refunds", "Refunds"]
    for plain in ({"NO_COLOR": "1"}, {"TERM": "dumb"}):
        assert "\x1b" not in on_a_terminal(folder, **plain)
    assert BOLD.findall(on_a_terminal(folder, NO_COLOR="")) == ["Refunds", "Refunds"]


# Folders


@pytest.mark.parametrize(
    "command", [("ask", "KB", "x"), ("index", "KB"), ("eval", "KB", "questions.jsonl")]
)
def test_an_empty_folder_is_reported_and_left_as_it_was(tmp_path, monkeypatch, command):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    questions = tmp_path / "questions.jsonl"
    questions.write_text('{"query": "x", "relevant": ["a.md"]}')
    folder = tmp_path / "kb"
    (folder / "only" / ".hidden").mkdir(parents=True)
    (folder / "only/notes.txt").write_text("no Markdown")
    (folder / "only/.hidden/a.md").write_text("hidden")
    before = sorted(folder.rglob("*"))
    places = {"KB": folder, "questions.jsonl": questions}
    done = run(*(places.get(argument, argument) for argument in command))
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        f"lookup-knowledge: {folder}: no Markdown file in this folder: "
        "give the folder that holds the files\n"
    )
    assert sorted(folder.rglob("*")) == before
    assert not (tmp_path / "cache").exists()


@pytest.mark.slow
def test_a_folder_that_was_indexed_and_is_now_empty_keeps_its_index(folder):
    run("index", folder)
    for name in FILES:
        (folder / name).unlink()
    assert "use --allow-empty" in run("index", folder).stderr
    asked = run("ask", folder, "refund")
    assert "note: no Markdown file" in asked.stderr
    assert (
        "note: the index is behind the folder: the folder has no entries any more" in asked.stderr
    )
    assert asked.stdout.startswith("Refunds\n")
    write_files(folder, FILES)
    assert run("ask", folder, "refund").stdout.startswith("Refunds\n")
    for name in FILES:
        (folder / name).unlink()
    assert run("index", folder, "--allow-empty").returncode == 0


def test_problems_of_the_whole_folder_are_printed_and_those_of_files_counted(
    folder, tmp_path, monkeypatch
):
    monkeypatch.setenv("FASTEMBED_CACHE_PATH", str(tmp_path / "models"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("fastembed.common.model_management.time.sleep", lambda seconds: None)
    settings = {"embedding": "BAAI/bge-small-en"}
    write_files(
        folder,
        {
            "bad.md": "---\ntitle: x: y\n---\n",
            ".lookup-knowledge/settings.json": json.dumps(settings),
        },
    )
    asked = run("ask", folder, "refund", "--trust")
    notes = [line for line in asked.stderr.splitlines() if line.startswith("note: ")]
    assert len(notes) == 2
    assert "the index is behind the folder: cannot load the model 'BAAI/bge-small-en'" in notes[0]
    assert notes[1].startswith("note: 1 file or field was not used as written: see")
    assert notes[1].endswith(f"`lookup-knowledge check {folder}`")
    assert "Vector search did not take part" in asked.stdout
    assert Path(asked.stdout.splitlines()[1]).name.startswith("refunds.md")


def test_the_command_that_lists_problems_can_be_copied(tmp_path):
    folder = write_files(tmp_path / "my notes", {"bad.md": "---\ntitle: x: y\n---\nRefunds.\n"})
    noted = run("ask", folder, "refunds", "--no-l1").stderr
    assert f"see `lookup-knowledge check '{folder}'`" in noted
