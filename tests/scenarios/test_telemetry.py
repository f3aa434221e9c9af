"""Nothing leaves: no dependency opens a connection, or writes outside the folders for it."""

import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from conftest import FILES, write_files

STRACE = shutil.which("strace")
pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(STRACE is None, reason="needs strace"),
]

SCRIPT = """
import sys, time
from langchain_lookup_knowledge import KnowledgeBase, create_lookup_knowledge_tool
import qdrant_client
with KnowledgeBase.open(sys.argv[1]) as kb:
    tool = create_lookup_knowledge_tool(kb)
    for query in ("refund", "how long is parental leave", "zebra"):
        assert tool.invoke(query)
    assert kb.health()["index"] == "current"
    time.sleep(float(sys.argv[2]))
"""
WRITES = r"O_WRONLY|O_RDWR|O_CREAT"
CALL = re.compile(r'^(?:\d+ +)?(\w+)\(.*?"((?:[^"\\]|\\.)*)"')
ELSEWHERE = ("/dev/", "/proc/", "/sys/")


def traced(folder: Path, home: Path, seconds: float, **environment: str) -> list[str]:
    """Return what the script above does, as `calls_of` does."""
    return calls_of([sys.executable, "-c", SCRIPT, folder, seconds], home, **environment)


def calls_of(
    command: Sequence[object], home: Path, network: bool = True, **environment: str
) -> list[str]:
    """Return the system calls by which a process connects, sends, or opens a file to write."""
    log = home.parent / "strace.log"
    calls = "connect,sendto,sendmsg,sendmmsg,openat,open,creat,mkdir,mkdirat,rename,renameat"
    alone = [] if network else ["unshare", "--net", "--map-root-user"]
    strace = [*alone, STRACE, "-f", "-s", "300", "-o", log, "-e", f"trace={calls}"]
    variables = {
        "HOME": str(home),
        "PATH": "/usr/bin:/bin",
        "PYTHONPATH": str(Path(__file__).parents[2]),
        "PYTHONDONTWRITEBYTECODE": "1",
        "TMPDIR": str(home.parent / "temporary"),
        "HTTPS_PROXY": "http://127.0.0.1:9",
        **environment,
    }
    done = subprocess.run(
        [*map(str, strace), *map(str, command)],
        cwd=home.parent,
        stdin=subprocess.DEVNULL,
        env=variables,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return log.read_text("utf-8", "replace").splitlines()


def connections(calls: list[str]) -> list[str]:
    reached = ("AF_INET", "sun_path=")
    return [call for call in calls if "connect(" in call and any(word in call for word in reached)]


def written(calls: list[str]) -> set[str]:
    """Return the absolute paths that were opened to write, or made."""
    found = set()
    for call in calls:
        match = CALL.match(call)
        opened = "open" not in call.partition("(")[0] or re.search(WRITES, call)
        if match and opened and "connect" not in match[1] and " = -1 " not in call:
            found.update(re.findall(r'"(/[^"]*)"', call))
    return {path for path in found if not path.startswith(ELSEWHERE)}


def check(folder: Path, home: Path, seconds: float) -> None:
    write_files(folder, FILES)
    home.mkdir()
    temporary = home.parent / "temporary"
    temporary.mkdir()
    calls = traced(folder, home, seconds)
    assert connections(calls) == []
    state = home / ".local/state/lookup-knowledge"
    allowed = (str(folder), str(state), str(temporary))
    assert [path for path in sorted(written(calls)) if not path.startswith(allowed)] == []
    assert [path for path in home.rglob("*") if path.is_file()] == [state / "settings.key"]
    assert [path for path in temporary.rglob("*") if path.is_file()] == []


def test_index_and_lookups_open_no_connection_and_write_nothing_elsewhere(tmp_path):
    check(tmp_path / "kb", tmp_path / "home", 15)


@pytest.mark.nightly
def test_forty_idle_seconds_open_no_connection_either(tmp_path):
    check(tmp_path / "kb", tmp_path / "home", 40)


@pytest.mark.nightly
def test_what_the_tests_above_look_for_is_seen_where_it_is_allowed(tmp_path):
    folder, home = write_files(tmp_path / "kb", FILES), tmp_path / "home"
    home.mkdir()
    (tmp_path / "temporary").mkdir()
    calls = traced(folder, home, 40, ORT_DISABLE_TELEMETRY="0")
    assert connections(calls)
    assert [path for path in home.rglob("*") if path.is_file() and path.name != "settings.key"]


def test_what_the_user_set_counts(tmp_path):
    command = "import langchain_lookup_knowledge.l1, os; print(os.environ['ORT_DISABLE_TELEMETRY'])"
    for given, expected in (({}, "1"), ({"ORT_DISABLE_TELEMETRY": "0"}, "0")):
        variables = {"PYTHONPATH": str(Path(__file__).parents[2]), **given}
        done = subprocess.run(
            [sys.executable, "-c", command],
            env=variables,
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout.strip() == expected


ROOT = Path(__file__).parents[2]
COMMANDS = [  # those of the README; `inspect` serves pages until it is stopped
    "index KB",
    "ask KB my card was declined with E-4711",
    "ask KB refund --explain",
    "check KB --verbose",
    "eval KB QUESTIONS --json",
    "invocations KB --json",
    "report KB --out KB/report.html",
    "replay KB --json",
    "mcp KB",
]


@pytest.mark.nightly
def test_the_commands_of_the_readme_run_without_a_network_and_write_nothing_elsewhere(tmp_path):
    named = set(re.findall(r"lookup-knowledge ([a-z]+)", (ROOT / "README.md").read_text("utf-8")))
    assert named - {"inspect"} == {command.split()[0] for command in COMMANDS}
    folder, home = tmp_path / "handbook", tmp_path / "home"
    ignored = shutil.ignore_patterns(".lookup-knowledge")
    shutil.copytree(ROOT / "notebooks" / "handbook", folder, ignore=ignored)
    shutil.copy(ROOT / "notebooks" / "handbook_questions.jsonl", tmp_path / "questions.jsonl")
    (tmp_path / "temporary").mkdir()
    home.mkdir()
    state = home / ".local/state/lookup-knowledge"
    allowed = (f"{folder}/", str(state), f"{tmp_path}/temporary/")
    program = [sys.executable, "-m", "langchain_lookup_knowledge.integrations.cli"]
    for command in COMMANDS:
        arguments = command.replace("QUESTIONS", "questions.jsonl").replace("KB", "handbook")
        calls = calls_of([*program, *arguments.split()], home, network=False)
        assert connections(calls) == [], command
        foreign = [path for path in written(calls) if not path.startswith(allowed)]
        assert foreign == [], command
    assert set(tmp_path.iterdir()) == {
        folder, home, tmp_path / "questions.jsonl", tmp_path / "temporary", tmp_path / "strace.log",
    }  # fmt: skip
    assert [path for path in home.rglob("*") if path.is_file()] == [state / "settings.key"]
    assert [path for path in (tmp_path / "temporary").rglob("*") if path.is_file()] == []
