"""The notebooks of `examples/` run, and show what is stored in them."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

NOTEBOOKS = sorted((Path(__file__).parents[2] / "examples").glob("*.ipynb"))


def shown(notebook):
    """Return what each cell prints, and the kinds it shows things in; text where it is all."""
    found = []
    for cell in (cell for cell in notebook.cells if cell.cell_type == "code"):
        for output in cell.outputs:
            data = output.get("data", {})
            text = output.get("text") or data["text/plain"]
            found.append((None if len(data) > 1 else text, sorted(data)))
    return found


def test_there_are_three_notebooks():
    assert [path.stem for path in NOTEBOOKS] == [
        "audit_and_discover",
        "compare_and_recalibrate",
        "watch_a_stream",
    ]


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_shows_what_is_stored_in_it(path, tmp_path):
    stored = nbformat.read(path, as_version=4)
    fresh = nbformat.read(path, as_version=4)
    NotebookClient(fresh, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()
    assert shown(fresh) == shown(stored)
    kinds = {kind for _, found in shown(stored) for kind in found}
    assert {"text/html", "image/svg+xml"} & kinds
    text = path.read_text("utf-8")
    assert str(Path.home().anchor + "tmp/") not in text, "no path of whoever ran it"
    assert len(text) < 120_000
