"""Recorded queries run again: quiet where nothing changed, and telling what did."""

import json
import shutil

import pytest
from conftest import FILES, VPN, WordEmbeddings, write_files

from langchain_lookup_knowledge import (
    KnowledgeBase,
    LookupOptions,
    SQLInvocationRecorder,
    create_lookup_knowledge_graph,
    create_lookup_knowledge_tool,
    create_read_knowledge_tool,
)
from langchain_lookup_knowledge.integrations.cli import main
from langchain_lookup_knowledge.records.history import History
from langchain_lookup_knowledge.replay import changes, format_changes, replay

QUERIES = ("refunds take five days", "how long is parental leave?", "install the vpn", "zebra")


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    """A folder with the records of lookups in it, with different options."""
    folder = write_files(tmp_path_factory.mktemp("base"), FILES)
    with KnowledgeBase.open(folder, embedding=WordEmbeddings()) as kb:
        for options in (
            LookupOptions(),
            LookupOptions(k=1),
            LookupOptions(filter_mode="off"),
            LookupOptions(l1_enabled=False),
        ):
            graph = create_lookup_knowledge_graph(kb, options=options)
            for query in QUERIES:
                graph.invoke(
                    {"query": f"{query} {options.k} {options.filter_mode} {options.l1_enabled}"}
                )
    return folder


@pytest.fixture
def folder(base, tmp_path):
    return shutil.copytree(base, tmp_path / "kb")


@pytest.fixture
def recorded(folder):
    recorder = SQLInvocationRecorder.in_file(folder / ".lookup-knowledge/invocations.db")
    rows, left_out = History(recorder).newest_answers(100)
    recorder.close()
    assert (len(rows), left_out) == (16, 0)
    return rows


def run(folder, rows, **arguments):
    with KnowledgeBase.open(folder, **{"embedding": WordEmbeddings()} | arguments) as kb:
        return {row["query"]: found for row, found in replay(kb, rows) if found}


def count(folder):
    recorder = SQLInvocationRecorder.in_file(folder / ".lookup-knowledge/invocations.db")
    rows = recorder.invocations(limit=1000)
    recorder.close()
    return len(rows)


def test_an_unchanged_base_is_quiet_with_the_options_of_each_lookup_and_nothing_is_recorded(
    folder, recorded
):
    before = count(folder)
    assert run(folder, recorded) == {}
    assert count(folder) == before


def test_rows_without_options_are_run_as_their_answers_show(folder, recorded):
    for row in recorded:
        if row["result_count"] != 1:  # a k of 1 cannot be told from one match
            del row["retrieval_details"]["options"]
    assert run(folder, recorded) == {}


def test_a_renamed_category_is_found(folder, recorded):
    write_files(folder, {"it/vpn.md": VPN.replace("category: IT", "category: Infrastructure")})
    found = run(folder, recorded)
    assert found["install the vpn 5 guarded True"] == {
        "filter": {"was": "IT", "is": "Infrastructure"},
        "categories": {"was": ["IT"], "is": ["Infrastructure"]},
    }
    assert found["install the vpn 5 off True"] == {
        "categories": {"was": ["IT"], "is": ["Infrastructure"]}
    }
    assert not any(query.startswith(("refund", "zebra")) for query in found)


def test_a_deleted_file_is_found(folder, recorded):
    (folder / "billing/refunds.md").unlink()
    found = run(folder, recorded)
    first = found["refunds take five days 1 guarded True"]
    assert first["lost"] == [{"entry_id": "billing/refunds.md", "rank": 1}]
    assert first["gained"][0]["rank"] == 1
    assert first["layer"] == {"was": "L0+L1", "is": "L1"}
    assert found["refunds take five days 5 guarded False"]["status"] == {
        "was": "ok",
        "is": "no_match",
    }


def test_an_index_that_fails_is_a_change(folder, recorded):
    failing = WordEmbeddings()
    failing.failure = RuntimeError("no model")
    found = run(folder, recorded, embedding=failing, sync=False)
    assert found["install the vpn 5 guarded True"]["status"] == {"was": "ok", "is": "degraded"}
    assert found["zebra 5 guarded True"]["l1"] in [
        {"was": "ok", "is": how} for how in ("failed", "unavailable")
    ]
    assert not any(query.endswith("False") for query in found)


def answer(*entry_ids, status="ok"):
    return {
        "status": status,
        "retrieval_layer": "L1",
        "matches": [{"entry_id": entry_id} for entry_id in entry_ids],
        "relevance": {"level": "low"},
        "filter": {"category": None, "reason": "no_domain", "relaxed": False},
        "hints": {"entries": []},
        "l1": {"status": "ok"},
    }


def before(*entry_ids):
    made = answer(*entry_ids)
    return {**made, "l1_status": "ok", "retrieval_details": {**made, "l0_hints": made["hints"]}}


@pytest.mark.parametrize(
    ("was", "now", "lines"),
    [
        ("abc", "abc", []),
        ("abc", "bc", ["lost a at 1"]),
        ("abc", "xabc", ["gained x at 1"]),
        ("abc", "bac", ["moved b from 2 to 1", "moved a from 1 to 2"]),
        (
            "abc",
            "xcb",
            ["lost a at 1", "gained x at 1", "moved c from 3 to 2", "moved b from 2 to 3"],
        ),
        ("", "", []),
    ],
)
def test_what_is_told_of_two_rankings(was, now, lines):
    assert list(format_changes(changes(before(*was), answer(*now)))) == lines


@pytest.mark.slow
def test_the_command_tells_changes_by_its_exit_status(tmp_path, capsys):
    folder = write_files(tmp_path / "kb", FILES)
    for query in ("install the vpn", "parental leave"):
        assert main(["ask", str(folder), query]) == 0
    capsys.readouterr()
    assert main(["replay", str(folder)]) == 0
    assert capsys.readouterr().out == "2 queries run again: 0 changed\n"

    (folder / "it/vpn.md").unlink()
    database = f"sqlite:///{folder}/.lookup-knowledge/invocations.db"
    assert main(["replay", "--db", database, "--kb", str(folder)]) == 1
    assert "'install the vpn'\n  lost it/vpn.md at 1\n" in capsys.readouterr().out
    assert main(["replay", str(folder), "--limit", "1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "queries": 1,
        "changed": 0,
        "left_out": 0,
        "changes": [],
    }
    assert main(["replay", str(folder), "--json"]) == 1
    (change,) = json.loads(capsys.readouterr().out)["changes"]
    assert change["query"] == "install the vpn"
    assert change["changes"]["lost"] == [{"entry_id": "it/vpn.md", "rank": 1}]
    assert main(["replay", str(folder), "--scope", "tenant=north"]) == 2
    assert "there is no recorded query to run again" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["EMPTY"], "no lookup has been recorded"),
        (["KB", "--kb", "KB"], "give one of them"),
        (["--db", "sqlite:///DB"], "give its folder with --kb"),
        (["KB", "--db", "sqlite:///DB"], "there is no recorded query"),
        (["KB", "--db", "sqlite:///DB", "--scope", "tenant"], "--scope needs a value"),
        (["KB", "--db", "sqlite:///DB", "--scope", "a=b", "--scope", "a=c"], "names a field twice"),
    ],
)
def test_replay_of_nothing_is_a_usage_error(folder, capsys, arguments, message):
    (folder / "empty").mkdir()
    (folder / "calls.db").touch()
    places = {
        "KB": folder,
        "EMPTY": folder / "empty",
        "sqlite:///DB": f"sqlite:///{folder}/calls.db",
    }
    given = [str(places.get(argument, argument)) for argument in arguments]
    assert main(["replay", *given]) == 2
    assert message in capsys.readouterr().err


WEAK = {
    f"{name}.md": f"---\ntitle: {name}\n---\n{text}\n"
    for name, text in {
        "pump": "The red pump starts slowly when the valve is cold.",
        "valve": "A valve is closed by hand.",
        "boiler": "The boiler has a cold start.",
        "lamp": "A red lamp is on the wall.",
        "door": "The door opens slowly.",
    }.items()
}


def weak_matches_asked(folder, query="why does the red pump start slowly"):
    """Ask as the command line and the tool do, both without weak matches; return the rows."""
    embedding = WordEmbeddings()
    with KnowledgeBase.open(write_files(folder, WEAK), embedding=embedding) as kb:
        whole = create_lookup_knowledge_graph(kb).invoke({"query": f"{query} whole"})
        shown = create_lookup_knowledge_graph(kb, drop_weak=True).invoke({"query": query})
        create_lookup_knowledge_tool(kb).invoke({"query": f"{query} tool"})
    assert len(shown["matches"]) < len(whole["matches"])
    recorder = SQLInvocationRecorder.in_file(folder / ".lookup-knowledge/invocations.db")
    rows, _ = History(recorder).newest_answers(100)
    recorder.close()
    assert [row["retrieval_details"]["options"]["drop_weak"] for row in rows] == [True, True, False]
    return rows


def test_weak_matches_that_were_left_out_are_no_change(tmp_path):
    rows = weak_matches_asked(tmp_path / "kb")
    assert run(tmp_path / "kb", rows) == {}


@pytest.mark.parametrize("kept", [None, "yes"])
def test_older_rows_compare_as_many_places_as_were_recorded(tmp_path, kept):
    rows = weak_matches_asked(tmp_path / "kb")
    for row in rows:
        row["retrieval_details"]["options"]["drop_weak"] = kept
        del row["retrieval_details"]["matches"][1:]
    assert run(tmp_path / "kb", rows) == {}
    (tmp_path / "kb/pump.md").unlink()
    assert len(run(tmp_path / "kb", rows)) == 3


def test_asked_twice_and_replayed_nothing_changed(tmp_path, capsys):
    folder = write_files(tmp_path / "kb", WEAK)
    for _ in range(2):
        assert main(["ask", str(folder), "why does the red pump start slowly"]) == 0
    with KnowledgeBase.open(folder, sync=False) as kb:
        create_read_knowledge_tool(kb).invoke({"source": "pump.md"})
    assert main(["replay", str(folder)]) == 0
    out, errors = capsys.readouterr()
    assert out.endswith("1 query run again: 0 changed\n")
    assert errors == ""


def test_a_row_without_a_count_of_results_is_run(folder, recorded):
    row = recorded[0]
    del row["retrieval_details"]["options"]
    with KnowledgeBase.open(folder, embedding=WordEmbeddings()) as kb:
        assert list(replay(kb, [row | {"result_count": None}])) == [
            (row | {"result_count": None}, {})
        ]
