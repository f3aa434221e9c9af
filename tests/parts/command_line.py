"""The command line, in this process or in one of its own."""

import io
import os
import subprocess
import sys
from collections.abc import Mapping
from contextlib import redirect_stderr, redirect_stdout
from unittest.mock import patch

from langchain_lookup_knowledge.integrations.cli import main

COMMAND = [sys.executable, "-m", "langchain_lookup_knowledge.integrations.cli"]


def run_process(
    *arguments: object, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run the command line in a process of its own."""
    return subprocess.run(
        [*COMMAND, *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **(env or {})},
    )


def run(
    *arguments: object, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run the command line in this process, with pipes of its own; return what a process would
    give.
    """
    encoding = (env or {}).get("PYTHONIOENCODING", "utf-8")
    out, errors = (io.TextIOWrapper(io.BytesIO(), encoding) for _ in range(2))
    given = [*map(str, arguments)]
    with patch.dict(os.environ, env or {}), redirect_stdout(out), redirect_stderr(errors):
        try:
            status = main(given)
        except SystemExit as stop:  # argparse
            status = int(stop.code or 0)
    texts = []
    for stream in (out, errors):
        stream.flush()
        texts.append(stream.buffer.getvalue().decode(encoding))  # type: ignore[attr-defined]
    return subprocess.CompletedProcess(given, status, *texts)
