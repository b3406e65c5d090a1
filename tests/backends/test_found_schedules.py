"""Schedules that a search has found run for real: right gradients, and the gain that was predicted."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pipesim.ir.formats import write_schedule
from pipesim.ir.placement import linear, vee
from pipesim.plan.search.search import Effort, search
from tests.backends.group import run_group
from tests.backends.test_accuracy import attempts, measured
from tests.backends.test_gradients import train
from tests.plan.search.problems import plain

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(("placement", "limit"), [(linear(4), 3.0), (vee(4), 2.5)], ids=["linear", "vee"])
def test_weights_after_a_few_steps_equal_those_of_one_process(tmp_path: Path, placement, limit: float) -> None:
    problem = plain(placement, 6, (10, 12, 8, 1), limit)
    found = search(problem, effort=Effort(climbs=50, rounds=3, exact_s=0))
    file = tmp_path / "found.json"
    write_schedule(found.schedule, file)
    assert max(run_group(4, train, str(file), 4, 6, {}, "edge")) <= 1e-9


def test_the_emulated_gain_over_1f1b_is_the_predicted_one() -> None:
    """Within 3 points. The table: benchmarks/search/emulated.txt."""

    def once() -> str:
        done = measured("benchmarks/search/emulated.py", "--json")
        assert done.returncode == 0, done.stderr
        gains = json.loads(done.stdout)
        assert gains["predicted_gain"] > 0.05
        wrong = abs(gains["measured_gain"] - gains["predicted_gain"]) > 0.03
        return str(gains) if wrong else ""

    attempts(once)
