"""The pages of the documentation: their code blocks, and how each kind is run."""

import ast
import asyncio
import contextlib
import importlib.util
import inspect
import io
import json
import re
import shlex
import sqlite3
import textwrap
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise, takewhile
from pathlib import Path
from typing import Any

import yaml

from langchain_lookup_knowledge.integrations.cli import _parser
from parts.command_line import run

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
SERVER = "http://localhost:6333"
"""The address that pages use for a Qdrant server."""
ENDLESS = {"inspect", "mcp"}
"""Commands that run until they are stopped."""
UNTRIED = {"docker", "download"}
"""Marks of blocks that need more than a test has: they are only parsed."""
_SETTING = re.compile("[A-Z_]+=")
_VARYING = re.compile(r"(?<=match-)\d{8}\b|\b\d{4}-\d\d-\d\dT[\d:]+Z| +\d+\.\d ms\b")
_FENCE = re.compile(
    r"(?:^<!-- (?P<mark>\w+)(?:: (?P<path>[^\n]+))? -->\n)?"
    r"^(?P<indent> *)```(?P<language>\w+)[^\n]*\n(?P<code>.*?)^ *```$",
    re.DOTALL | re.MULTILINE,
)


@dataclass(frozen=True)
class Block:
    """A code block of a page.

    `mark` is what a comment above it says: "server" (runs against a Qdrant server), "docker" or
    "download" (is only parsed), "file" (is the text of the file `path`). `printed` is the block of
    text right below: what it prints.
    """

    language: str
    code: str
    mark: str
    path: str
    line: int
    printed: str | None


def load_script(name: str) -> Any:
    """Import a script of the docs folder."""
    spec = importlib.util.spec_from_file_location(f"docs_{name}", ROOT / f"docs/{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def blocks(page: Path) -> Iterator[Block]:
    """Yield the blocks of a page."""
    text = page.read_text("utf-8")
    for fence, following in pairwise([*_FENCE.finditer(text), None]):
        printed = None
        if (
            following
            and following["language"] == "text"
            and not text[fence.end() : following.start()].strip()
        ):
            printed = following["code"]
        yield Block(
            fence["language"],
            textwrap.dedent(fence["code"]),
            fence["mark"] or "",
            fence["path"] or "",
            text.count("\n", 0, fence.start("code")) + 1,
            printed,
        )


def run_page(page: Path, server: Callable[[], str]) -> None:
    """Run the blocks of a page, in order, in the current folder; `server` starts a Qdrant server
    and returns its address.
    """
    scope: dict[str, Any] = {"__name__": "page"}
    for block in blocks(page):
        code = block.code
        if block.mark == "server":
            code = code.replace(SERVER, server())
        place = f"{page.relative_to(ROOT)}:{block.line}"
        if block.mark == "file":
            Path(block.path).parent.mkdir(parents=True, exist_ok=True)
            Path(block.path).write_text(code, "utf-8")
        printed = RUN[block.language](code, block.mark, scope, place)
        if block.printed is not None and not prints(printed, block.printed):
            raise AssertionError(f"{place} prints\n{printed}")


def prints(printed: str, shown: str) -> bool:
    """Return whether a page shows what its block printed.

    Random marks, times and durations may differ. A last line `...` stands for the rest.
    """
    printed, shown = (_stable(text.strip()) for text in (printed, shown))
    head = shown.removesuffix("\n...")
    return printed.startswith(f"{head}\n") if head != shown else printed == shown


def _stable(text: str) -> str:
    return _VARYING.sub("#", text)


def _python(code: str, mark: str, scope: dict[str, Any], place: str) -> str:
    printed = io.StringIO()
    compiled = compile(code, place, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    with contextlib.redirect_stdout(printed):
        running = eval(compiled, scope)
        if inspect.iscoroutine(running):
            asyncio.run(running)
    return printed.getvalue()


def _syntax(code: str, mark: str, scope: dict[str, Any], place: str) -> str:
    compile(code, place, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    return ""


def _shell(code: str, mark: str, scope: dict[str, Any], place: str) -> str:
    printed = []
    for line in code.splitlines():
        for part in line.split(" && "):
            words = shlex.split(part, comments=True)
            if words:
                printed.append(_command(words, mark, place))
    return "".join(printed)


def _command(words: list[str], mark: str, place: str) -> str:
    settings = list(takewhile(_SETTING.match, words))
    match words[len(settings) :]:
        case ["lookup-knowledge", command, *rest]:
            arguments = _parser().parse_args([command, *rest])
            is_endless = command in ENDLESS or getattr(arguments, "watch", False)
            if mark in UNTRIED or is_endless:
                return ""
            done = run(command, *rest, env=dict(word.split("=", 1) for word in settings))
            assert done.returncode in (0, 1), f"{place}: {done.stderr}"
            return done.stdout
        case ["claude", "mcp", "add", _, "--", "lookup-knowledge", *rest]:
            _parser().parse_args(rest)
        case ["python3", "-m", "pip", "install", *packages] | ["pip", "install", *packages]:
            declared = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
            for extra in re.findall(r"(?:\.|lookup-knowledge)\[(\w+)\]", " ".join(packages)):
                assert extra in declared["optional-dependencies"], place
        case ["python3", "-m", "pytest", *_] | ["docker", *_] | ["export", *_] | []:
            pass
        case _ if mark not in UNTRIED:
            raise AssertionError(f"{place}: nothing knows how to try {words}")
    return ""


def _json(code: str, mark: str, scope: dict[str, Any], place: str) -> str:
    try:
        json.loads(code)
    except ValueError:
        assert all(json.loads(line) for line in code.splitlines()), place
    return ""


def _yaml(code: str, mark: str, scope: dict[str, Any], place: str) -> str:
    assert list(yaml.safe_load_all(code)), place
    return ""


def _toml(code: str, mark: str, scope: dict[str, Any], place: str) -> str:
    assert tomllib.loads(code), place
    return ""


def _sql(code: str, mark: str, scope: dict[str, Any], place: str) -> str:
    with contextlib.closing(sqlite3.connect("handbook/.lookup-knowledge/invocations.db")) as found:
        rows = found.execute(code).fetchall()
    assert rows, place
    return "\n".join("|".join(map(str, row)) for row in rows)


def _text(code: str, mark: str, scope: dict[str, Any], place: str) -> str:
    return ""


RUN: dict[str, Callable[[str, str, dict[str, Any], str], str]] = {
    "python": _python,
    "py": _syntax,
    "sh": _shell,
    "json": _json,
    "yaml": _yaml,
    "toml": _toml,
    "sql": _sql,
    "markdown": _text,
    "text": _text,
}
"""How a block of each language is tried; any other language is an error."""
