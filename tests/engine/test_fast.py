"""The fast engine against the reference engine: the same timeline, or a plain no."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipesim.costs.costs import Costs
from pipesim.costs.network import Link, Network, Route
from pipesim.costs.plain import parse_costs
from pipesim.engine import choose, event, fast
from pipesim.engine.contention import SharedLinks
from pipesim.errors import PipesimError
from pipesim.ir.atoms import Atoms
from pipesim.ir.lower import lower
from pipesim.ir.order import Deadlock
from pipesim.ir.placement import linear
from pipesim.ir.program import COMM_POLICIES, Program
from pipesim.ir.schedule import Schedule
from pipesim.schedules.catalogue import FAMILIES
from tests.engine.random_costs import random_costs


def assert_same(program: Program, costs: Costs) -> None:
    """Every start, end and byte held, to the last bit: both engines add the same numbers in the same order."""
    expected, found = event.simulate(program, costs), fast.simulate(program, costs)
    assert found.start.tolist() == expected.start.tolist()
    assert found.end.tolist() == expected.end.tolist()
    if expected.memory is not None:
        assert found.memory is not None
        assert found.memory.peak.tolist() == expected.memory.peak.tolist()


def built(name: str, ranks: int, microbatches: int) -> Schedule | None:
    """A family's schedule, or nothing where its rule forbids the numbers."""
    try:
        return FAMILIES[name].build(ranks=ranks, microbatches=microbatches)
    except PipesimError:
        return None


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("comm", COMM_POLICIES)
@settings(max_examples=5, deadline=None)
@given(ranks=st.integers(1, 4), microbatches=st.integers(1, 7), seed=st.integers(0, 2**32), reduce=st.booleans())
def test_equals_the_reference_engine(name, comm, ranks, microbatches, seed, reduce):
    schedule = built(name, ranks, microbatches)
    if schedule is not None:
        program = lower(schedule, comm=comm, reduce=reduce, clip=seed % 2 == 0)
        assert_same(program, random_costs(schedule, seed))


def written(name: str, microbatches: int, *orders: str, **more: Any) -> Schedule:
    return Schedule.of_texts(name, linear(2), microbatches, [order.split() for order in orders], **more)


MOVES = written("moves", 3, "0F0 0X0 0F1 0F2 0L0 0B0 0B1 0B2", "1F0 1F1 1X1 1B0 1L1 1F2 1B1 1B2")
FUSED = written("fused", 3, "0F0 0F1 0F2&0B0 0B1 0B2", "1F0 1B0&1F1 1F2&1B1 1I2 1W2")
SLICED = written("tokens", 2, "0F0 0F1 0F0.1 0F1.1", "1F0 1F1 1F0.1 1F1.1", slices=2, slicing="autoregressive")
ASYNCHRONOUS = written("asynchronous", 3, "0F0 0F1 0B0 0F2 0B1 0B2", "1F0 1B0 1F1 1B1 1F2 1B2", update_every=1)


@pytest.mark.parametrize("schedule", [MOVES, FUSED, SLICED, ASYNCHRONOUS], ids=lambda one: one.name)
@pytest.mark.parametrize("comm", COMM_POLICIES)
@settings(max_examples=8, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_moves_pairs_slices_and_asynchronous_steps(schedule, comm, seed):
    assert_same(lower(schedule, comm=comm, reduce=seed % 2 == 0), random_costs(schedule, seed))


def test_makespan_of_many_microbatches_is_the_closed_form():
    schedule = FAMILIES["1f1b"].build(ranks=8, microbatches=4000)
    timeline = fast.simulate(lower(schedule), parse_costs("F=1s,I=1s,W=1s").of(schedule))
    assert timeline.makespan_s == 3 * (4000 + 8 - 1)


def test_deadlock_is_told_as_the_reference_engine_tells_it():
    """Rank 1 waits in its first action for a forward that rank 0 only does after that action's gradient."""
    schedule = written("locked", 2, "0F1 0B1 0F0 0B0", "1F0 1B0 1F1 1B1")
    program, costs = lower(schedule), parse_costs("F=1s,B=1s").of(schedule)
    with pytest.raises(Deadlock) as expected:
        event.simulate(program, costs)
    with pytest.raises(Deadlock) as found:
        fast.simulate(program, costs)
    assert str(found.value) == str(expected.value)


def crossing(bytes_per_s: float) -> Network:
    """Both directions between two ranks over one half-duplex link."""
    routes = {(0, 1): Route(0.1, 1.0, (0,)), (1, 0): Route(0.1, 1.0, (0,))}
    return Network(routes=routes, links=(Link("cable", bytes_per_s),))


def test_shared_link_with_room_for_all_is_the_reference_engine_s():
    schedule = FAMILIES["1f1b"].build(ranks=2, microbatches=6)
    for bytes_per_s in (2.0, 0.5):  # the narrow one carries one message at a time here
        costs = random_costs(schedule, 1, network=crossing(bytes_per_s))
        program = lower(schedule, comm="pair")
        expected, found = event.simulate(program, costs), fast.simulate(program, costs)
        np.testing.assert_allclose(found.end, expected.end, rtol=1e-9)


def test_links_that_transfers_must_share_are_left_to_the_reference_engine(monkeypatch):
    schedule = FAMILIES["1f1b"].build(ranks=2, microbatches=6)
    costs = random_costs(schedule, 1, network=crossing(1.0))
    program = lower(schedule)
    with pytest.raises(SharedLinks, match=r"transfers share link cable: at .* s they want 2 of its 1 bytes/s"):
        fast.simulate(program, costs)
    monkeypatch.setattr(choose, "_SMALL", 0)
    expected = event.simulate(program, costs)
    assert choose.simulate(program, costs).end.tolist() == expected.end.tolist()
    with pytest.raises(SharedLinks):
        choose.simulate(program, costs, engine="fast")


@settings(max_examples=25, deadline=None)
@given(ranks=st.integers(2, 4), seed=st.integers(0, 2**32), comm=st.sampled_from(COMM_POLICIES))
def test_auto_is_right_over_any_links(ranks, seed, comm):
    schedule = FAMILIES["interleaved"].build(ranks=ranks, microbatches=2 * ranks)
    links = (Link("left", 1.0), Link("right", 5.0))
    costs, program = random_costs(schedule, seed, links=links), lower(schedule, comm=comm)
    expected = event.simulate(program, costs)
    try:
        found = fast.simulate(program, costs)
    except SharedLinks:
        return
    np.testing.assert_allclose(found.end, expected.end, rtol=1e-9, atol=1e-7)


def test_nothing_at_all():
    schedule = Schedule("nothing", linear(1), 1, Atoms.of([], [], []), np.zeros(2, np.int64))
    assert_same(lower(schedule), parse_costs("F=2s,B=1s").of(schedule))
