"""The reference engine: order, lanes, blocking, tail, memory, and what happens when nobody can go on."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

from pipesim.costs.costs import Costs, NoCost, StageBytes, WrongStages
from pipesim.costs.network import Link, Network, Route
from pipesim.costs.plain import parse_costs
from pipesim.engine.event import simulate
from pipesim.ir.action import Kind
from pipesim.ir.lower import lower
from pipesim.ir.needs import Flow
from pipesim.ir.order import Deadlock
from pipesim.ir.placement import linear
from pipesim.ir.schedule import Schedule
from pipesim.metrics import summarize
from pipesim.schedules.one_f_one_b import one_f_one_b


def test_blocking_transfers_take_longer_than_overlapped_ones() -> None:
    schedule = one_f_one_b(ranks=4, microbatches=8)
    costs = parse_costs("F=1,B=2,C=0.25").of(schedule)
    spans = {comm: simulate(lower(schedule, comm=comm), costs).makespan_s for comm in ("edge", "blocking")}
    assert spans["edge"] == 37.0  # 33 + [2m(p-1)/p + 2(p-2)]C
    assert spans["blocking"] == 37.75


def test_a_fused_pair_runs_once_and_overlaps_as_told() -> None:
    placement = linear(1)
    schedule = Schedule.of_texts("pair", placement, 2, [["0F0", "0F1&0B0", "0B1"]])
    for costs, makespan in (("F=3,B=6", 18.0), ("F=3,B=6,overlap=1", 15.0), ("F=3,B=6,FB=7", 16.0)):
        assert simulate(lower(schedule), parse_costs(costs).of(schedule)).makespan_s == makespan


def test_reduction_overlaps_the_cool_down_and_the_optimizer_waits_for_all_ranks() -> None:
    schedule = one_f_one_b(ranks=2, microbatches=2)
    costs = parse_costs("F=1,B=2,reduce=1.5,optimizer=0.5").of(schedule)
    made = simulate(lower(schedule, reduce=True, clip=True), costs)
    ends = {(int(made.program.rank[op]), made.program.text(op)): made.end[op] for op in range(len(made.program))}
    assert ends[1, "1REDUCE_GRAD"] == ends[1, "1B1"] + 1.5  # while rank 0 still computes
    assert ends[0, "0REDUCE_GRAD"] == 10.5
    assert ends[0, "STEP"] == ends[1, "STEP"] == made.step_time_s == 11.0
    assert made.makespan_s == 9.0


def test_memory_rises_at_the_forward_and_falls_at_input_and_weight_gradient() -> None:
    schedule = Schedule.of_texts("split", linear(1), 1, [["0F0", "0I0", "0W0"]])
    one = np.ones(1)
    held = StageBytes(100 * one, 50 * one, 25 * one, 10 * one, 0.4 * one, 0 * one, 5 * one, 1000 * one)
    costs = Costs(1, {Kind.F: one, Kind.I: one, Kind.W: one}, held=held)
    made = simulate(lower(schedule), costs)
    assert made.memory is not None
    times, levels = made.memory.curve(0)
    assert times.tolist() == [0.0, 0.0, 2.0, 3.0]
    assert levels.tolist() == [180.0, 190.0, 186.0, 180.0]
    assert made.memory.peak.tolist() == [190.0]
    assert made.memory.fits is True


def test_both_directions_of_one_wire_share_it() -> None:
    """Rank 0 sends its second activation while rank 1 sends the first gradient back: each gets half the wire."""
    schedule = one_f_one_b(ranks=2, microbatches=3)
    sizes = {flow: np.full(2, 4.0) for flow in (Flow.ACTIVATION, Flow.GRADIENT)}
    seconds = {Kind.F: np.full(2, 1.0), Kind.B: np.full(2, 1.0)}

    def makespan(links: tuple[Link, ...]) -> float:
        way = Route(0, 1.0, tuple(range(len(links))))
        network = Network(default=way, links=links)
        return simulate(lower(schedule), Costs(2, seconds, message_bytes=sizes, network=network)).makespan_s

    assert makespan(()) == 24.0
    assert makespan((Link("wire", 1.0),)) > makespan(())


def test_costs_must_fit_the_schedule() -> None:
    split = Schedule.of_texts("split", linear(1), 1, [["0F0", "0I0", "0W0"]])
    with pytest.raises(NoCost, match="the schedule has I actions, but costs give only F, B: give I and W"):
        simulate(lower(split), parse_costs("F=1,B=2").of(split))
    with pytest.raises(WrongStages, match="costs has 4 values for 1 stages"):
        simulate(lower(split), parse_costs("F=1,B=2").of(one_f_one_b(ranks=4, microbatches=1)))


def test_a_schedule_that_cannot_run_names_the_cycle_of_waits() -> None:
    schedule = Schedule.of_texts("stuck", linear(2), 2, [["0F0", "0B1", "0F1", "0B0"], ["1F0", "1F1", "1B1", "1B0"]])
    with pytest.raises(Deadlock) as caught:
        simulate(lower(schedule), parse_costs("F=1,B=1").of(schedule))
    waits = [(rank, what, other) for rank, what, _, other in caught.value.cycle]
    assert (0, "0F1", "0B1") in waits
    assert waits[0][1] == waits[-1][2]  # it closes
    assert str(caught.value).startswith("deadlock, a cycle of waits: rank ")


def test_the_same_input_gives_the_same_bytes(tmp_path: object) -> None:
    """Whatever the hash seed: nothing depends on the order of a dictionary or on the clock."""
    command = [sys.executable, "-m", "pipesim", "simulate", "interleaved", "-p", "4", "-m", "8", "--json",
               "--costs", "F=1.1,I=1.3,W=0.7,C=0.1", "--engine", "event"]  # fmt: skip
    outputs = {
        subprocess.run(command, env=os.environ | {"PYTHONHASHSEED": seed}, capture_output=True, check=True).stdout
        for seed in ("0", "1", "2")
    }
    assert len(outputs) == 1


def test_figures_add_up() -> None:
    """Busy and idle by cause make ranks × step time, under every lane policy."""
    schedule = one_f_one_b(ranks=4, microbatches=6)
    costs = parse_costs("F=1,B=2,C=0.4,reduce=1,optimizer=0.5").of(schedule)
    for comm in ("edge", "pair", "rank", "blocking"):
        found = summarize(simulate(lower(schedule, comm=comm, reduce=True, clip=True), costs), costs)
        total = sum(found.idle_s.values()) + found.per_rank.busy_s.sum()
        assert total == pytest.approx(4 * found.step_time_s)
