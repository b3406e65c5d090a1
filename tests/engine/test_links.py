"""Transfers that share links: fair, and no byte is lost or carried faster than a link can."""

from __future__ import annotations

import math

import pytest
import simpy
from hypothesis import given
from hypothesis import strategies as st

from pipesim.costs.network import Link, Route
from pipesim.engine.links import FairLinks, fair_rates


def transfer_times(
    links: list[Link], starts: list[tuple[float, float, tuple[int, ...]]]
) -> tuple[list[float], FairLinks]:
    """End of each transfer given as (start, bytes, links), and the links with their log."""
    env = simpy.Environment()
    network = FairLinks(env, links, log=[])
    ends = [math.nan] * len(starts)

    def one(index: int, start: float, size: float, crossing: tuple[int, ...]):  # type: ignore[no-untyped-def]
        yield env.timeout(start)
        yield network.transfer(Route(links=crossing), size)
        ends[index] = env.now

    for index, (start, size, crossing) in enumerate(starts):
        env.process(one(index, start, size, crossing))
    env.run()
    return ends, network


def test_two_equal_transfers_on_one_link_take_twice_as_long() -> None:
    link = [Link("port", 100.0)]
    assert transfer_times(link, [(0, 1000, (0,))])[0] == [10.0]
    assert transfer_times(link, [(0, 1000, (0,)), (0, 1000, (0,))])[0] == [20.0, 20.0]


def test_a_late_transfer_slows_the_first_from_then_on() -> None:
    """500 bytes alone take 5 s; then both get half: the first's other 500 take 10 s, the second's rest 5 s more."""
    assert transfer_times([Link("port", 100.0)], [(0, 1000, (0,)), (5, 1000, (0,))])[0] == [15.0, 20.0]


def test_max_min_fairness_gives_the_rest_to_who_can_use_it() -> None:
    """One flow crosses both links, two others one each: the narrow link is shared, the wide one's rest is not lost."""
    links = [Link("narrow", 10.0), Link("wide", 100.0)]
    assert fair_rates([Route(links=(0, 1)), Route(links=(0,)), Route(links=(1,))], links) == [5.0, 5.0, 95.0]


def test_a_route_is_never_faster_than_its_own_limit() -> None:
    assert fair_rates([Route(bytes_per_s=3.0, links=(0,)), Route(links=(0,))], [Link("a", 10.0)]) == [3.0, 7.0]


def test_a_transfer_shorter_than_the_clock_can_tell_ends() -> None:
    """After 3 · 10⁹ seconds the clock's steps are half a microsecond long: what rounding left never got done."""
    link, late = [Link("port", 1e12)], 3e9 + 0.1
    ends, _ = transfer_times(link, [(late, 1e5 / 3, (0,)), (late, 1e7 / 7, (0,))])
    assert ends == pytest.approx([late, late])


@given(
    st.lists(
        st.tuples(
            st.floats(0, 10),
            st.floats(1, 1000),
            st.sampled_from([(0,), (1,), (0, 1)]),
        ),
        min_size=1,
        max_size=8,
    )
)
def test_bytes_are_conserved(starts: list[tuple[float, float, tuple[int, ...]]]) -> None:
    links = [Link("a", 50.0), Link("b", 80.0)]
    ends, network = transfer_times(links, starts)
    assert not any(math.isnan(end) for end in ends)
    assert network.log is not None
    carried = [0.0, 0.0]
    for (time, use), (later, _) in zip(network.log, network.log[1:], strict=False):
        for link in (0, 1):
            assert use[link] <= links[link].bytes_per_s * (1 + 1e-9)
            carried[link] += use[link] * (later - time)
    for link in (0, 1):
        sent = sum(size for _, size, crossing in starts if link in crossing)
        assert carried[link] == pytest.approx(sent, rel=1e-6, abs=1e-6)
