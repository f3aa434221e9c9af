"""The notebooks run, and show what they were committed with."""

import nbformat
import pytest
from parts.pages import ROOT, load_script

pytestmark = [pytest.mark.docs, pytest.mark.timeout(600)]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_shows_again_what_it_shows(path):
    """If an output has changed on purpose, run `python docs/notebooks.py`."""
    written = nbformat.read(path, as_version=4)
    assert 10 <= len(written.cells) <= 20
    assert all(
        len(cell.source.splitlines()) <= 25 for cell in written.cells if cell.cell_type == "code"
    )
    notebooks = load_script("notebooks")
    shown = list(notebooks.stable(written))
    assert any(shown), "it is committed without its outputs"
    assert list(notebooks.stable(notebooks.run(path))) == shown


def test_no_notebook_shows_a_path_of_a_machine():
    for path in NOTEBOOKS:
        text = path.read_text("utf-8")
        assert "/tmp/" not in text, path
        assert "/home/" not in text, path
