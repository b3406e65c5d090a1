"""Recomputation and moves to the host: within the limit, and faster than without."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from pipesim.costs.plain import parse_costs
from pipesim.engine.choose import simulate
from pipesim.ir.action import MOVES
from pipesim.ir.check import check
from pipesim.ir.lower import lower
from pipesim.ir.placement import linear, vee
from pipesim.plan.search.arrays import Layout
from pipesim.plan.search.bounds import lower_bounds
from pipesim.plan.search.candidates import Pool
from pipesim.plan.search.construct import constructions, one_at_a_time
from pipesim.plan.search.find import find_order
from pipesim.plan.search.limit import BadLimit, Limit
from pipesim.plan.search.offload import Offloading, find_with_offload
from pipesim.plan.search.orders import to_schedule
from pipesim.plan.search.problem import LimitTooSmall, Recompute
from pipesim.plan.search.recompute import Recomputing, by_microbatch
from pipesim.plan.search.search import Effort, search
from pipesim.plan.search.setting import Setting
from tests.plan.search.problems import Fixed, plain
from tests.plan.search.test_setting import GB, in_bytes

COSTS = parse_costs("F=10ms,I=12ms,W=8ms,C=1ms")
QUICK = Effort(climbs=40, rounds=3, moves=20_000, exact_s=0)


@pytest.mark.parametrize("placement", [linear(4), vee(4)], ids=["linear", "vee"])
@pytest.mark.parametrize("share", [0.25, 0.5, 1.0])
def test_recomputed_microbatches_hold_less_and_take_longer(placement, share):
    """Held along the orders, counted here anew: what is kept, and while a backward runs all of it."""
    ones = np.ones(placement.stages)
    problem = plain(placement, 8, (10, 12, 8, 1), 2.0).with_recompute(Recompute(share * ones, 0.1 * ones))
    found = search(problem, effort=QUICK)
    check(found.schedule)
    again = by_microbatch(problem)
    assert again.mean() == pytest.approx(share)
    for row in found.schedule.rows():
        held = 0.0
        for kind, stage, microbatch in zip(row.kind, row.stage, row.microbatch, strict=True):
            whole, kept = placement.share, placement.share * (0.1 if again[stage, microbatch] else 1.0)
            held += {0: kept, 2: whole - kept, 3: -whole}[int(kind)]
            assert held <= 2.0 + 1e-9
    assert problem.work_s[0] == pytest.approx(8 * (30 + 10 * share))
    assert lower_bounds(problem).best_s <= found.end_s * (1 + 1e-9)


def test_whole_backwards_can_be_recomputed():
    """There is no weight gradient that could follow at once: no order fitted, and the search had none to go on with."""
    setting = Setting(linear(3), 6, parse_costs("F=1s,B=2s"), Limit(1.5, "microbatches"), keep=0.1)
    result = find_order(setting, effort=QUICK)
    check(result.best.schedule)
    assert result.recomputed.any()
    assert result.best.step_time_s < 6 * 9  # one microbatch at a time


def test_the_engine_times_what_is_recomputed_alike():
    problem = plain(linear(3), 5, (0.010, 0.012, 0.008, 0.001), 2.0).with_recompute(
        Recompute(np.array([1.0, 0.5, 0.0]), np.full(3, 0.1))
    )
    layout, pool = Layout(problem), Pool()
    for made in (one_at_a_time(layout), *constructions(layout, climbs=10, seed=0)):
        pool.offer(made)
    schedule = to_schedule(layout, pool.best.order, "recomputing")
    costs = Recomputing(COSTS, by_microbatch(problem)).of(schedule)
    assert simulate(lower(schedule), costs).makespan_s == pytest.approx(pool.best.end_s)


@pytest.mark.slow
def test_recomputation_where_memory_is_short():
    with_it, without = (
        find_order(Setting(linear(4), 12, COSTS, Limit(2, "microbatches"), keep=keep), effort=QUICK)
        for keep in (0.05, None)
    )
    assert with_it.best.step_time_s < 0.8 * without.best.step_time_s
    assert with_it.recomputed.any()
    assert not without.recomputed.any()


def test_recomputation_meets_limits_that_nothing_else_does():
    setting = Setting(vee(4), 6, COSTS, Limit(0.6, "microbatches"), keep=0.1)
    assert find_order(setting, effort=QUICK).recomputed.all()
    with pytest.raises(LimitTooSmall, match=r"the smallest limit that can be met is 0.55mb"):
        find_order(Setting(vee(4), 6, COSTS, Limit(0.5, "microbatches"), keep=0.1), effort=QUICK)


def test_nothing_is_recomputed_where_memory_is_not_short():
    result = find_order(Setting(linear(4), 6, COSTS, Limit(8, "microbatches"), keep=0.1), effort=QUICK)
    assert not result.recomputed.any()
    assert result.gap == pytest.approx(0)


@pytest.mark.slow
def test_moves_to_the_host_where_memory_is_short():
    costs = in_bytes(4)
    setting = Setting(linear(4), 8, Fixed(costs), Limit(15 * GB, "bytes"))
    usual = find_order(setting, effort=QUICK)
    moved = find_with_offload(setting, 10 * GB, effort=QUICK)
    assert moved.best.fits
    assert moved.best.step_time_s < usual.best.step_time_s
    assert np.isin(moved.best.schedule.atoms.kind, MOVES).any()
    program = lower(moved.best.schedule)
    memory = simulate(program, Offloading(Fixed(costs), 10 * GB).of(moved.best.schedule)).memory
    assert memory is not None
    assert (memory.peak <= 15 * GB).all()


def test_moves_need_a_limit_in_bytes():
    with pytest.raises(BadLimit, match="a limit in bytes"):
        find_with_offload(Setting(linear(4), 8, COSTS, Limit(4, "microbatches")), GB, effort=QUICK)


@pytest.mark.slow
def test_bounds_hold_whatever_is_recomputed_or_moved():
    """They were those of the microbatches that were chosen, and of a larger limit: what is not proven looked so."""
    setting = Setting(linear(4), 8, Fixed(in_bytes(4)), Limit(12 * GB, "bytes"))
    alone = find_order(setting, effort=QUICK)
    recomputing = find_order(replace(setting, keep=0.1), effort=QUICK)
    moving = find_with_offload(setting, 10 * GB, effort=QUICK)
    for found in (recomputing, moving):
        assert found.found.bounds.best_s <= found.best.step_time_s <= alone.best.step_time_s
        assert found.found.bounds.best_s < alone.found.bounds.best_s
