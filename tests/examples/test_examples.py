"""Every example says what is written beside it; numbers may differ in the last digit."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.examples.said import numbers, words

EXAMPLES = Path(__file__).parents[2] / "examples"
SCRIPTS = sorted(EXAMPLES.glob("*.py"))
_SLOW = {"mixed_gpus.py", "own_schedule.py", "plan_70b.py", "slow_link.py"}


@pytest.mark.parametrize(
    "script", [pytest.param(one, id=one.name, marks=[pytest.mark.slow] if one.name in _SLOW else []) for one in SCRIPTS]
)
def test_an_example_says_what_is_written_beside_it(script: Path, tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, script], capture_output=True, text=True, timeout=250, cwd=tmp_path, check=False
    )
    assert ran.returncode == 0, ran.stderr
    expected = script.with_suffix(".txt").read_text()
    assert words(ran.stdout) == words(expected), ran.stdout
    assert numbers(ran.stdout) == pytest.approx(numbers(expected), rel=2e-3, abs=0.02)
    assert list(tmp_path.iterdir()) == []


def test_examples_are_short() -> None:
    assert {one.name: lines for one in SCRIPTS if (lines := len(one.read_text().splitlines())) > 80} == {}


@pytest.mark.slow
def test_a_slow_rank_is_found_in_traces_of_now(tmp_path: Path) -> None:
    """What the stored traces show, torch records today."""
    command = [
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node",
        "4",
        EXAMPLES / "traces" / "record.py",
        tmp_path,
    ]
    recorded = subprocess.run(
        [sys.executable, "-m", *command], capture_output=True, text=True, timeout=250, cwd=tmp_path, check=False
    )
    assert recorded.returncode == 0, recorded.stderr
    ran = subprocess.run(
        [sys.executable, EXAMPLES / "slow_run.py", tmp_path], capture_output=True, text=True, timeout=100, check=False
    )
    assert ran.returncode == 0, ran.stderr
    assert "Rank 2 works" in ran.stdout


def test_the_readme_shows_what_the_examples_say() -> None:
    """Its blocks of examples are not run by the test of its blocks, which has no folder of examples."""
    readme = EXAMPLES.parent.joinpath("README.md").read_text(encoding="utf-8")
    shown = re.findall(r"^\$ python examples/(\w+)\.py\n(.*?)^```$", readme, re.MULTILINE | re.DOTALL)
    assert len(shown) >= 2
    assert dict(shown) == {name: EXAMPLES.joinpath(f"{name}.txt").read_text() for name, _ in shown}
