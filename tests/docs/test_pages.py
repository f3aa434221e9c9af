"""The code blocks of README and docs run, and print what they say they print."""

import re
import shutil
from contextlib import ExitStack
from unittest.mock import patch

import pytest
from parts.asking_model import AskingModel
from parts.pages import PAGES, ROOT, _parser, blocks, run_page
from qdrant_server import QdrantServer

from langchain_lookup_knowledge import KnowledgeBase

pytestmark = [pytest.mark.docs, pytest.mark.timeout(600)]
COMMAND = re.compile(r"`(?:[^`]*\s)?lookup-knowledge ([a-z]+)([^`]*)`")


def named(page):
    return page.relative_to(ROOT).as_posix()


@pytest.fixture(scope="module")
def indexed_handbook(tmp_path_factory):
    """The sample handbook with its index, made once."""
    folder = tmp_path_factory.mktemp("indexed") / "handbook"
    ignore = shutil.ignore_patterns(".lookup-knowledge")
    shutil.copytree(ROOT / "notebooks/handbook", folder, ignore=ignore)
    KnowledgeBase.open(folder, progress=False).close()
    (folder / ".lookup-knowledge" / "settings.json").unlink()
    return folder


@pytest.fixture
def place(tmp_path, monkeypatch, indexed_handbook):
    """The folder in which a page runs: the sample handbook is in it, and in `notebooks/`."""
    for copy in ("handbook", "notebooks/handbook"):
        shutil.copytree(indexed_handbook, tmp_path / copy)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NO_COLOR", "1")
    return tmp_path


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_the_blocks_of_a_page_run(page, place):
    with ExitStack() as stack:
        stack.enter_context(
            patch("langchain.agents.factory.init_chat_model", lambda *_, **__: AskingModel())
        )
        started = []

        def server():
            if not started:
                started.append(stack.enter_context(QdrantServer()).url)
            return started[0]

        run_page(page, server)


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_commands_within_sentences_exist(page):
    commands = next(
        action.choices for action in _parser()._actions if isinstance(action.choices, dict)
    )
    for command, arguments in COMMAND.findall(page.read_text("utf-8")):
        offered = commands[command].format_help()
        for option in re.findall(r"--[a-z][a-z0-9-]*", arguments):
            assert re.search(rf"{option}\b", offered), f"{command} {option}"


def test_the_first_two_commands_of_the_readme_are_those_that_ci_runs():
    """`.ci/run` takes them by their place; the first prints what stands below it."""
    commands = [block for block in blocks(ROOT / "README.md") if block.language == "sh"]
    assert [command.code.split(" && ")[1].split()[0] for command in commands[:2]] == [
        "lookup-knowledge",
        "python3",
    ]
    assert commands[0].printed.startswith("Checkout Payment Error E-4711\n")


def test_the_agent_of_the_readme_is_written_in_ten_lines():
    (agent,) = (block.code for block in blocks(ROOT / "README.md") if "create_agent" in block.code)
    assert sum(bool(line.strip()) for line in agent.splitlines()) <= 10
