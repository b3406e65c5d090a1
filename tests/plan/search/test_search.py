"""The whole search: better than what it starts from, the same every time, and never without an answer."""

from __future__ import annotations

import numpy as np
import pytest

from pipesim.costs.plain import parse_costs
from pipesim.ir.check import check
from pipesim.ir.memory import peak_activations
from pipesim.ir.placement import bidirectional, linear, looped, vee
from pipesim.plan.search.find import find_order
from pipesim.plan.search.limit import Limit
from pipesim.plan.search.rivals import rivals
from pipesim.plan.search.search import Effort, Progress, search
from pipesim.plan.search.setting import Setting
from pipesim.schedules.lookup import build
from tests.plan.search.problems import plain

QUICK = Effort(climbs=40, rounds=3, moves=20_000, exact_s=0)


@pytest.mark.slow
@pytest.mark.parametrize("placement", [linear(4), vee(4), looped(4, 2), bidirectional(4)], ids=lambda one: one.kind())
@pytest.mark.parametrize("limit", [2.0, 3.0, 4.0])
def test_never_worse_than_a_published_family_that_fits(placement, limit):
    costs = parse_costs("F=10ms,I=12ms,W=8ms,C=1ms")
    setting = Setting(placement, 6, costs, Limit(limit, "microbatches"))
    times = {"forward": 0.010, "input_grad": 0.012, "weight_grad": 0.008, "latency": 0.001}
    result = find_order(setting, others=rivals(setting, times), effort=QUICK)
    check(result.best.schedule, max_activations=limit)
    assert result.best.fits
    if result.best_rival is not None:
        assert result.best.step_time_s <= result.best_rival.step_time_s
    assert result.best.step_time_s >= result.found.bounds.best_s * (1 - 1e-9)


def test_starts_from_the_order_it_is_given():
    start = build("v-half", ranks=4, microbatches=8)
    problem = plain(vee(4), 8, (10, 12, 8, 1), float(peak_activations(start).max()))
    found = search(problem, starts=[lambda microbatches: start], effort=Effort(climbs=0, rounds=0, exact_s=0))
    assert found.end_s <= 298.0  # V-Half by the independent evaluation of tests/data/schedules/bars.json


def test_the_same_seed_finds_the_same_order():
    problem = plain(vee(4), 7, (10, 12, 8, 1), 3)
    one, two, other = (search(problem, effort=QUICK, seed=seed).schedule for seed in (5, 5, 6))
    assert one == two
    assert one != other


def test_an_interrupt_keeps_the_best_so_far():
    seen: list[Progress] = []

    def interrupt(progress: Progress) -> bool:
        seen.append(progress)
        if progress.phase == "improving":
            raise KeyboardInterrupt
        return True

    found = search(plain(vee(4), 9, (10, 12, 8, 1), 2), effort=QUICK, report=interrupt)
    assert found.interrupted
    assert found.end_s == seen[-1].best_s
    check(found.schedule, max_activations=2)


def test_whoever_reads_the_reports_can_end_it():
    found = search(plain(vee(4), 9, (10, 12, 8, 1), 2), effort=QUICK, report=lambda progress: False)
    assert not found.interrupted
    check(found.schedule, max_activations=2)


def test_reports_never_get_worse():
    seen: list[Progress] = []
    search(plain(vee(4), 9, (10, 12, 8, 1), 2), effort=QUICK, report=lambda one: seen.append(one) is None)
    assert [one.best_s for one in seen] == sorted((one.best_s for one in seen), reverse=True)
    assert {one.phase for one in seen} == {"constructing", "improving"}
    assert all(one.bound_s <= one.best_s for one in seen)


def test_backwards_that_are_not_split():
    setting = Setting(linear(4), 8, parse_costs("F=1s,B=2s"), Limit(4, "microbatches"))
    found = search(setting.problem(), effort=QUICK)
    assert {action for row in found.schedule.orders for action in row} >= {"0F0", "3B7"}
    assert found.end_s == 11 * 3  # (m + p - 1)(F + B), as 1F1B


def test_uneven_stages_gain_over_the_best_family():
    """Twice the work on the last stage: families wait for it in vain, as their orders are for equal stages."""
    costs = parse_costs("F=1s:1s:1s:1.5s,I=1s:1s:1s:1.5s,W=1s:1s:1s:1.5s")
    setting = Setting(linear(4), 8, costs, Limit(4, "microbatches"))
    result = find_order(setting, others=rivals(setting, {}), effort=QUICK)
    assert result.best_rival is not None
    assert result.best.step_time_s <= result.best_rival.step_time_s
    assert result.best.step_time_s == pytest.approx(result.found.bounds.best_s)
    assert np.isclose(result.gap, 0)
