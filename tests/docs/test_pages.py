"""Every command and program of the README and the documentation runs, and prints what the page shows."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.docs.blocks import RUNNABLE, blocks
from tests.docs.runner import ROOT, WIDTH, run_page

PAGES = ["README.md", *sorted(f"docs/{path.name}" for path in ROOT.joinpath("docs").glob("*.md"))]
# These start processes, or search for more than some seconds.
SLOW = {
    "README.md",
    "docs/adding-a-schedule.md",
    "docs/charts.md",
    "docs/engines.md",
    "docs/execution.md",
    "docs/getting-started.md",
    "docs/layouts.md",
    "docs/planning.md",
    "docs/running-on-a-cluster.md",
    "docs/schedules.md",
    "docs/search.md",
    "docs/serving.md",
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty current folder, an output of fixed width, and afterwards a path of imports as before."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    for name, value in {"COLUMNS": WIDTH, "TERM": "dumb", "NO_COLOR": "1"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep))
    return tmp_path


@pytest.mark.timeout(900)
@pytest.mark.parametrize("page", [pytest.param(page, marks=pytest.mark.slow if page in SLOW else ()) for page in PAGES])
def test_a_page_does_what_it_says(page: str, folder: Path) -> None:
    run_page(ROOT.joinpath(page).read_text(encoding="utf-8"), folder)


@pytest.mark.parametrize("page", PAGES)
def test_every_block_is_run_or_says_why_not(page: str) -> None:
    """A block without a language cannot be told from a program that nobody runs."""
    for block in blocks(ROOT.joinpath(page).read_text(encoding="utf-8")):
        assert block.language, f"line {block.line}: a block needs a language; {', '.join(RUNNABLE)} are run"
        reason = block.notes.get("not run")
        assert reason is None or len(reason.split()) >= 2, f"line {block.line}: why is it not run?"
        looks_run = block.text.lstrip("$ ").startswith(("pipesim ", "python ", "import "))
        assert not looks_run or block.language in RUNNABLE, f"line {block.line}: {block.language} is not run"
