"""List scheduling never locks up, keeps to its limit, and means what the engine means."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipesim.engine.direct import can_walk, step
from pipesim.ir.check import check
from pipesim.plan.search.arrays import Layout
from pipesim.plan.search.construct import one_at_a_time
from pipesim.plan.search.listing import Rules, list_schedule
from pipesim.plan.search.orders import to_schedule
from pipesim.plan.search.walking import fits, time_order
from tests.plan.search.problems import random_problem


@given(
    seed=st.integers(0, 2**32),
    patience=st.sampled_from([0.0, 0.3, 1.0]),
    promote=st.booleans(),
    chance=st.integers(0, 2**32),
)
def test_any_priorities_give_a_valid_order_within_the_limit(seed, patience, promote, chance):
    problem, costs = random_problem(seed)
    layout = Layout(problem)
    priority = np.random.default_rng(chance).random(layout.shape)
    starts, order = np.zeros(layout.shape), np.zeros(layout.offsets[-1], np.int64)
    end = list_schedule(layout.stages, Rules(priority, patience, promote), starts, order, layout.offsets)
    if np.isinf(end):  # room for one microbatch, but not for one of each direction
        assert problem.placement.chains == 2
        return
    schedule = to_schedule(layout, order, "listed")
    check(schedule)
    assert fits(layout.actions, order)
    assert time_order(layout.actions, order)[0] == pytest.approx(end)
    if can_walk(schedule, costs):
        found = step(schedule, costs)
        assert found.makespan_s + problem.tail_s.min() <= end * (1 + 1e-12)
        if problem.placement.chains == 1:  # else optimizers wait for the replicas of their stages, too
            assert found.step_time_s == pytest.approx(end)


@given(seed=st.integers(0, 2**32))
def test_one_at_a_time_meets_the_smallest_limit(seed):
    problem, _ = random_problem(seed)
    assert one_at_a_time(Layout(problem.with_limit(problem.smallest_limit))) is not None
    less = problem.smallest_limit - 0.01
    assert one_at_a_time(Layout(problem.with_limit(less))) is None
