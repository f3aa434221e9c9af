"""The README's Python blocks and the notebooks run, and print what they say they print."""

import contextlib
import io
import re
import shutil
from itertools import pairwise
from pathlib import Path

import nbformat
import pytest
from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import AIMessage
from nbclient import NotebookClient

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"```(\w+)\n(.*?)```", re.DOTALL)


class ScriptedChatModel(GenericFakeChatModel):
    """Says what it is told to; takes tools as every chat model does."""

    def bind_tools(self, tools, **kwargs):
        return self


@pytest.fixture
def copy(tmp_path, monkeypatch):
    """A copy of the notebooks folder, so that no index is left in the tree."""
    ignore = shutil.ignore_patterns(".lookup-knowledge", ".ipynb_checkpoints")
    shutil.copytree(ROOT / "notebooks", tmp_path / "notebooks", ignore=ignore)
    monkeypatch.chdir(tmp_path)
    return tmp_path / "notebooks"


def test_readme_blocks_print_what_stands_below_them(copy):
    blocks = BLOCK.findall((ROOT / "README.md").read_text("utf-8"))
    scope = {}
    checked = 0
    for (language, code), (next_language, expected) in pairwise(blocks):
        if language != "python":
            continue
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(code, "README.md", "exec"), scope)
        assert next_language == "text"
        assert printed.getvalue().strip() == expected.strip()
        checked += 1
    assert checked == sum(language == "python" for language, _ in blocks)


def test_the_agent_of_the_readme_answers_in_ten_lines(copy):
    (code,) = (code for language, code in BLOCK.findall((ROOT / "README.md").read_text("utf-8")) if language == "py")
    assert sum(bool(line.strip()) for line in code.splitlines()) <= 10
    call = {"name": "lookup_knowledge", "args": {"query": "E-4711"}, "id": "c"}
    messages = iter([AIMessage("", tool_calls=[call]), AIMessage("Try a private window.")])
    scope = {"model": ScriptedChatModel(messages=messages)}
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code.replace('"openai:gpt-5-mini"', "model"), "README.md", "exec"), scope)
    assert printed.getvalue() == "Try a private window.\n"
    assert scope["state"]["messages"][2].artifact["primary"]["source"] == "billing/payment-error-e-4711.md"


@pytest.mark.parametrize("notebook", sorted((ROOT / "notebooks").glob("*.ipynb")), ids=lambda path: path.stem)
def test_notebook_runs(copy, notebook):
    written = nbformat.read(notebook, as_version=4)
    assert 10 <= len(written.cells) <= 20
    assert all(len(cell.source.splitlines()) <= 25 for cell in written.cells if cell.cell_type == "code")
    NotebookClient(written, timeout=120, resources={"metadata": {"path": str(copy)}}).execute()
