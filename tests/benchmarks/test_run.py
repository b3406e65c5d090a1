"""`make bench` finds its numbers in what the benchmarks print, and writes one table."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.claims import BENCHMARKS

ROOT = Path(__file__).parents[2]
# What a benchmark printed when it was last run as a whole, where it is kept.
STORED = {
    "charts": "charts/results.txt",
    "collectives": "collectives/results.txt",
    "engine": "engine/results.txt",
    "found_schedule": "search/emulated.txt",
    "heuristics": "heuristics/results.txt",
    "kernels": "kernels/results.txt",
    "overhead": "overhead/results.txt",
    "schedules": "schedules/results.txt",
    "search": "search/bars.txt",
    "split_backward": "split_backward/results.txt",
    "validation": "validation/results.txt",
}


@pytest.mark.parametrize("name", STORED)
def test_the_stored_results_hold_what_is_claimed(name: str) -> None:
    text = ROOT.joinpath("benchmarks", STORED[name]).read_text(encoding="utf-8")
    missed = {claim.text: value for claim in BENCHMARKS[name].claims if (value := claim.measure(text)) > claim.at_most}
    assert missed == {}


def test_every_benchmark_is_there() -> None:
    paths = {ROOT.joinpath("benchmarks", *one.module.split(".")).with_suffix(".py") for one in BENCHMARKS.values()}
    assert {path for path in paths if not path.is_file()} == set()


def test_a_table_is_written(tmp_path: Path) -> None:
    out = tmp_path / "table.md"
    command = [sys.executable, "-m", "benchmarks.run", "--only", "kernels", "--out", str(out)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=250, cwd=ROOT, check=False)
    assert ran.returncode == 0, ran.stderr
    lines = out.read_text(encoding="utf-8").splitlines()
    assert lines[0] == "# Benchmarks"
    assert "cores" in lines[6]
    assert lines[-1].startswith("| `kernels` | error of interpolated matrix products: median | 2.7% | 5.0% | yes |")
