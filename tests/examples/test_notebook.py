"""The notebook runs from top to bottom and says what is stored in it."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

from tests.examples.said import numbers, words

NOTEBOOK = Path(__file__).parents[2] / "examples" / "tour.ipynb"
_BROWSERS = ("chromium", "chromium-browser", "google-chrome")


def said(cell: Any) -> str:
    """What a cell has printed, and in which forms its value shows itself."""
    texts = [
        one["text"] if one["output_type"] == "stream" else " ".join(sorted(one["data"])) for one in cell["outputs"]
    ]
    return "\n".join(texts)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # jupyter's own
def test_the_notebook_says_what_is_stored_in_it(tmp_path: Path) -> None:
    stored = nbformat.read(NOTEBOOK, as_version=4)
    if not any(map(shutil.which, _BROWSERS)):
        stored["cells"] = [cell for cell in stored["cells"] if "write_figure" not in cell["source"]]
    expected = [said(cell) for cell in stored["cells"] if cell["cell_type"] == "code"]
    client = NotebookClient(
        stored, timeout=200, startup_timeout=120, kernel_name="python3", resources={"metadata": {"path": tmp_path}}
    )
    client.execute()
    actual = [said(cell) for cell in stored["cells"] if cell["cell_type"] == "code"]
    assert [words(text) for text in actual] == [words(text) for text in expected]
    for one, other in zip(actual, expected, strict=True):
        assert numbers(one) == pytest.approx(numbers(other), rel=2e-3, abs=0.02)


def test_the_notebook_is_light() -> None:
    assert NOTEBOOK.stat().st_size < 200_000
