"""Run the notebooks and keep their outputs: `python docs/notebooks.py [NAME ...]`.

A test runs them again and compares what is stable.
"""

import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

NOTEBOOKS = Path(__file__).parents[1] / "notebooks"
_CHANGING = [
    (re.compile(r"match-[0-9a-f]+"), "match-TOKEN"),
    (re.compile(r"\b\d+(?:\.\d+)? ms\b"), "N ms"),
    (re.compile(r"\d{4}-\d\d-\d\dT[\d:.+]+"), "TIME"),
    (re.compile(r"[0-9a-f]{8}-[0-9a-f-]{27}"), "ID"),
    (re.compile(r"(/[\w.-]+)+/notebooks"), "notebooks"),
]
"""What differs from run to run."""


def run(path: Path) -> Any:
    """Return a notebook as it is after a run, in a copy of its folder."""
    notebook = nbformat.read(path, as_version=4)
    with tempfile.TemporaryDirectory() as place:
        ignore = shutil.ignore_patterns(".lookup-knowledge", ".ipynb_checkpoints")
        copy = Path(shutil.copytree(NOTEBOOKS, Path(place) / "notebooks", ignore=ignore))
        resources = {"metadata": {"path": str(copy)}}
        os.environ["PYTHONWARNINGS"] = "ignore:IProgress not found"  # of tqdm, about widgets
        NotebookClient(notebook, timeout=300, iopub_timeout=60, resources=resources).execute()
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)
        if cell.cell_type == "code":
            cell.outputs = list(_joined(cell.outputs))
    notebook.metadata = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    return notebook


def _joined(outputs: list[Any]) -> Iterator[Any]:
    """Yield the outputs of a cell; how a stream was cut depends on the moment."""
    streams: dict[str, Any] = {}
    for output in outputs:
        name = output.get("name", "")
        if name in streams:
            streams[name]["text"] += output["text"]
        else:
            streams.update({name: output} if name else {})
            yield output


def stable(notebook: Any) -> Iterator[list[str]]:
    """Yield the texts that each code cell shows, without what differs from run to run."""
    for cell in notebook.cells:
        if cell.cell_type == "code":
            shown = []
            for output in cell.outputs:
                data = output.get("data", {})
                text = output.get("text") or data.get("text/html") or data.get("text/plain", "")
                if "image/png" in data:
                    text = "a picture"
                for pattern, replacement in _CHANGING:
                    text = pattern.sub(replacement, text)
                shown.append(text)
            yield shown


def main(names: list[str]) -> None:
    """Run the notebooks and write them back."""
    for path in sorted(NOTEBOOKS.glob("*.ipynb")):
        if not names or path.stem in names:
            nbformat.write(run(path), path)
            print(f"{path.name}: run")


if __name__ == "__main__":
    main(sys.argv[1:])
