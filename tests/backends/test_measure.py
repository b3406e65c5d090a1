"""Clocks, links, host times and timelines: what measurements are turned into."""

from __future__ import annotations

import time

import numpy as np
import pytest
import torch
import torch.distributed as dist

from pipesim.agreement import agree, same_order
from pipesim.backends.measure.clocks import clock_offset_ns, estimate_offset
from pipesim.backends.measure.links import fit_line, measure_links
from pipesim.backends.measure.profile import host_times
from pipesim.backends.measure.timelines import RankRecord, assemble
from pipesim.backends.memory import HeldBytes
from pipesim.costs.costs import Costs
from pipesim.costs.network import Network, Route
from pipesim.costs.plain import plain_costs
from pipesim.engine.event import simulate
from pipesim.ir.action import Kind
from pipesim.ir.lower import lower
from pipesim.ir.program import Program
from pipesim.schedules.lookup import build
from tests.backends.group import run_group

AHEAD_NS = 5_000_000_000


def test_offset_is_that_of_the_quickest_answer() -> None:
    slow, quick = (0, 1_500, 2_000), (10_000, 11_100, 10_200)
    assert estimate_offset([slow, quick]) == 1_000


def shifted_offset() -> int:
    """Rank r's clock is 5r seconds ahead, and pretends to be on a host of its own."""
    rank = dist.get_rank()
    return clock_offset_ns(clock=lambda: time.perf_counter_ns() + rank * AHEAD_NS, same_host=False)


def test_offsets_between_hosts_are_measured_and_on_one_host_nothing() -> None:
    found = run_group(3, shifted_offset)
    assert found[0] == 0
    for rank in (1, 2):
        assert found[rank] == pytest.approx(-rank * AHEAD_NS, abs=5_000_000)
    assert run_group(2, clock_offset_ns) == [0, 0]


def test_a_line_through_messages_gives_latency_and_bandwidth() -> None:
    sizes = [1e3, 1e5, 1e7]
    latency, rate = fit_line(sizes, [20e-6 + size / 5e9 for size in sizes])
    assert latency == pytest.approx(20e-6)
    assert rate == pytest.approx(5e9)


def links() -> tuple[float, float, int]:
    found = measure_links(torch.device("cpu"))
    return (*found.line(), len(found.all_reduce_s))


@pytest.mark.slow
def test_links_are_measured_alike_on_all_ranks() -> None:
    first, second = run_group(2, links)
    assert first == second
    latency, rate, sizes = first
    assert 0 <= latency < 0.1
    assert 1e6 < rate < 1e13
    assert sizes == 5


def test_host_times_are_those_that_a_simulated_run_was_given() -> None:
    """The gap after compute is the action's, the rest of the gap after a message is the message's."""
    program = lower(build("1f1b", ranks=4, microbatches=8))
    made = plain_costs({"F": 10e-3, "B": 20e-3}).of(program.schedule)
    costs = Costs(4, made.seconds, network=Network(default=Route(latency_s=0.2e-3)), host_s=0.3e-3)
    timeline = simulate(program, costs)
    late = np.where(program.is_compute, 0.3e-3, 0.0)  # the engine counts it in the action, a run before it
    timeline.start[:] += late
    found = host_times(timeline)
    assert found.action_s == pytest.approx(0.3e-3)
    assert found.message_s == pytest.approx(0.2e-3)


def two_ranks() -> tuple[Program, list[RankRecord]]:
    """One microbatch through two ranks; rank 1's receive is posted late, rank 0's clock began at 1000 ns."""
    program = lower(build("1f1b", ranks=2, microbatches=1))
    at = {program.text(op): op for op in range(len(program)) if program.ops.kind[op] != Kind.STEP}
    steps = [op for op in range(len(program)) if program.ops.kind[op] == Kind.STEP]
    first = RankRecord(
        1000,
        {at["0F0"]: 2000, at["0B0"]: 9000, steps[0]: 9600},
        {at["0F0"]: 3000, at["0B0"]: 9500, steps[0]: 9700},
        {at["0SEND_F0"]: 3100, at["0RECV_B0"]: 1100},
        {at["0SEND_F0"]: 4500, at["0RECV_B0"]: 8900},
        held={at["0F0"]: HeldBytes(100, 0), at["0B0"]: HeldBytes(0, 30)},
        base_bytes=7,
    )
    second = RankRecord(
        1200,
        {at["1F0"]: 5000, at["1B0"]: 6000, steps[1]: 8000},
        {at["1F0"]: 6000, at["1B0"]: 8000, steps[1]: 8100},
        {at["1RECV_F0"]: 4000, at["1SEND_B0"]: 8050},
        {at["1RECV_F0"]: 4800},
        held={at["1F0"]: HeldBytes(50, 0), at["1B0"]: HeldBytes(0, 0)},
        base_bytes=9,
    )
    return program, [first, second]


def test_a_timeline_from_records_of_both_ends() -> None:
    program, records = two_ranks()
    timeline = assemble(program, records)
    at = {program.text(op): op for op in range(len(program))}
    spans = {text: (round(timeline.start[op] * 1e9), round(timeline.end[op] * 1e9)) for text, op in at.items()}
    del spans["STEP"]
    assert spans == {
        "0F0": (1000, 2000),
        "0SEND_F0": (3000, 3500),  # both ends were ready at 4000
        "1RECV_F0": (3000, 3800),
        "1F0": (4000, 5000),
        "1B0": (5000, 7000),
        "1SEND_B0": (7050, 7900),  # nobody noted when it left: when it had arrived
        "0RECV_B0": (7050, 7900),
        "0B0": (8000, 8500),
    }
    assert timeline.memory is not None
    assert timeline.memory.base.tolist() == [7, 9]
    assert timeline.memory.peak.tolist() == [107, 59]


def test_agreement_of_a_timeline_with_itself_and_a_slower_one() -> None:
    program = lower(build("zb-h1", ranks=4, microbatches=8))
    one = simulate(program, plain_costs({"F": 1.0, "I": 1.0, "W": 1.0}).of(program.schedule))
    other = simulate(program, plain_costs({"F": 2.0, "I": 2.0, "W": 2.0}).of(program.schedule))
    same, half = agree(one, one), agree(one, other)
    assert (same.step_time_error, same.same_order, same.end_error_s) == (0, 1, 0)
    assert half.step_time_error == pytest.approx(-0.5)
    assert half.same_order == 1
    assert half.kinds == {"F": (1, 2), "I": (1, 2), "W": (1, 2)}
    assert half.predicted_bubble == pytest.approx(half.measured_bubble)


def test_order_counts_pairs_that_differ() -> None:
    assert same_order(np.array([0.0, 1.0, 2.0]), np.array([0.0, 2.0, 1.0])) == pytest.approx(2 / 3)
