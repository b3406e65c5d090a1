"""Stages change places where that helps."""

from __future__ import annotations

import pytest

from pipesim.costs.plain import parse_costs
from pipesim.ir.placement import linear, vee
from pipesim.plan.search.arrange import arranged
from pipesim.plan.search.find import find_order
from pipesim.plan.search.search import Effort
from pipesim.plan.search.setting import Setting


@pytest.mark.slow
def test_the_long_stages_part():
    """The V puts the first and the last stage on one rank; here these are the longest."""
    times = ":".join(["2s", "1s", "1s", "1s", "1s", "2s"])
    setting = Setting(vee(3), 6, parse_costs(f"F={times},I={times},W={times}"))
    effort = Effort(climbs=20, rounds=2, moves=15_000, exact_s=0)
    before = find_order(setting, effort=effort)
    after = find_order(arranged(setting, seed=0, report=lambda one: True)[0], effort=effort)
    assert before.best.step_time_s >= 6 * 3 * 4
    assert after.best.step_time_s < 0.95 * before.best.step_time_s
    ranks = after.setting.placement.ranks_of_stages
    assert sorted(ranks) == [0, 0, 1, 1, 2, 2]
    assert ranks[0] != ranks[-1]


@pytest.mark.slow
def test_equal_stages_stay(capsys: pytest.CaptureFixture[str]):
    setting = Setting(linear(3), 4, parse_costs("F=1s,I=1s,W=1s"))
    found, start = arranged(setting, seed=0, report=lambda one: True)
    assert found.placement == start(4).placement == linear(3)
