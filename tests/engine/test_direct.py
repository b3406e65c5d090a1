"""Step times straight from a schedule against those of its program."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipesim.costs.plain import parse_costs
from pipesim.engine import event
from pipesim.engine.direct import can_walk, step
from pipesim.ir.lower import lower
from pipesim.ir.order import Deadlock
from pipesim.ir.placement import linear
from pipesim.ir.schedule import Schedule
from pipesim.metrics import summarize
from pipesim.schedules.catalogue import FAMILIES
from tests.engine.random_costs import random_costs
from tests.engine.test_fast import ASYNCHRONOUS, FUSED, MOVES, SLICED, built


@pytest.mark.parametrize("name", FAMILIES)
@settings(max_examples=8, deadline=None)
@given(ranks=st.integers(1, 4), microbatches=st.integers(1, 7), seed=st.integers(0, 2**32), reduce=st.booleans())
def test_equals_the_reference_engine(name, ranks, microbatches, seed, reduce):
    schedule = built(name, ranks, microbatches)
    if schedule is None:
        return
    costs = random_costs(schedule, seed, held=None)
    if not can_walk(schedule, costs):
        assert FAMILIES[name].synchronous is False or (schedule.atoms.kind > 3).any()
        return
    clip = seed % 2 == 0
    expected = event.simulate(lower(schedule, reduce=reduce, clip=clip), costs)
    found, figures = step(schedule, costs, reduce=reduce, clip=clip), summarize(expected)
    assert found.makespan_s == expected.makespan_s
    assert found.step_time_s == pytest.approx(expected.step_time_s, rel=1e-12)
    np.testing.assert_allclose(found.busy_s, figures.per_rank.busy_s)
    np.testing.assert_allclose(found.last_s - found.first_s, figures.per_rank.span_s)
    assert found.bubble_fraction == pytest.approx(figures.bubble_fraction, abs=1e-9)


def test_what_it_leaves_to_a_program():
    assert [can_walk(one, random_costs(one, 0)) for one in (FUSED, SLICED, MOVES, ASYNCHRONOUS)] == [
        True, True, False, False,
    ]  # fmt: skip


@pytest.mark.parametrize(
    "orders",
    [["0F1 0B1 0F0 0B0", "1F0 1B0 1F1 1B1"], ["0B0 0F0 0F1 0B1", "1F0 1B0 1F1 1B1"], ["0F0&0B0", "1F0 1B0"]],
    ids=["of two ranks", "of a rank with itself", "of a pair with itself"],
)
def test_deadlock(orders):
    schedule = Schedule.of_texts("locked", linear(2), 2, [order.split() for order in orders])
    costs = parse_costs("F=1s,B=1s").of(schedule)
    with pytest.raises(Deadlock) as expected:
        event.simulate(lower(schedule), costs)
    with pytest.raises(Deadlock) as found:
        step(schedule, costs)
    assert str(found.value) == str(expected.value)
