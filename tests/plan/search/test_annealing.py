"""Local search keeps orders valid, within their limit, and its times right."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipesim.ir.check import check
from pipesim.ir.placement import vee
from pipesim.plan.search.annealing import Cooling, anneal
from pipesim.plan.search.arrays import Layout
from pipesim.plan.search.candidates import Candidate, candidate
from pipesim.plan.search.construct import one_at_a_time
from pipesim.plan.search.improve import annealed
from pipesim.plan.search.orders import from_schedule, to_schedule
from tests.plan.search.problems import plain, random_problem


def _annealed(layout: Layout, start: Candidate, *, stride: int, iterations: int) -> tuple[float, Candidate | None]:
    order, best = start.order.copy(), start.order.copy()
    cooling = Cooling(stride, iterations, layout.problem.period_s or 1.0, 0.1)
    random, segment = np.random.default_rng(0), np.zeros(len(order), np.int64)
    end = anneal(layout.actions, cooling, random, order, best, segment)
    assert sorted(best.tolist()) == sorted(order.tolist()) == sorted(start.order.tolist())
    assert candidate(layout, order, "last") is not None
    return end, candidate(layout, best, "best")


@pytest.mark.slow
@settings(max_examples=100)
@given(seed=st.integers(0, 2**32), stride=st.sampled_from([0, 0, 1, 2]))
def test_every_order_it_takes_can_be_run_and_ends_when_it_says(seed, stride):
    problem, _ = random_problem(seed)
    layout = Layout(problem)
    start = one_at_a_time(layout)
    assert start is not None
    if len(start.order) < 2:
        return
    end, best = _annealed(layout, start, stride=stride, iterations=2000)
    assert best is not None
    assert best.end_s == pytest.approx(end)
    assert best.end_s <= start.end_s
    schedule = to_schedule(layout, best.order, "annealed")
    check(schedule)
    again = from_schedule(layout, schedule)
    assert again is not None
    assert again.tolist() == best.order.tolist()


def test_it_finds_the_optimum_from_the_worst_order():
    """ZB-V's closed form: nothing but the way to the turn is lost."""
    layout = Layout(plain(vee(4), 8, limit=4))
    start = one_at_a_time(layout)
    assert start is not None
    *_, last = annealed(layout, start, hot=0.1, iterations=60_000, seed=1)
    assert last.end_s == 3 * 8 + 3 / 2
