"""Many schedules on emulated stages in one job, each beside its prediction."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from pipesim.agreement import same_order
from pipesim.backends.job.local import JobOptions, run_local
from pipesim.backends.job.profile import calibrate, calibration_costs, calibration_program
from pipesim.backends.job.train import Job, Outcome, Task
from pipesim.backends.job.worker import Context
from pipesim.backends.measure.profile import HostTimes, host_times
from pipesim.backends.measure.timelines import assemble
from pipesim.costs.costs import Costs
from pipesim.costs.network import Network, Route
from pipesim.engine.durations import durations
from pipesim.engine.event import simulate
from pipesim.ir.lower import lower
from pipesim.ir.program import Comm, Program
from pipesim.ir.schedule import Schedule


@dataclass(frozen=True)
class Compared:
    """One schedule: seconds of its step, and the part of pairs of actions that start in the same order."""

    name: str
    predicted_s: float
    measured_s: float
    same_order: float

    @property
    def error(self) -> float:
        """Predicted / measured - 1."""
        return self.predicted_s / self.measured_s - 1


def compare_emulated(
    schedules: Sequence[Schedule], costs: Sequence[Costs], *, steps: int = 3, comm: Comm = "edge"
) -> tuple[list[Compared], HostTimes]:
    """Run schedules of equally many ranks, and predict each from `costs` and what the host was seen to add."""
    programs = [lower(schedule, comm=comm) for schedule in schedules]
    tasks = [
        Task(program, emulate=one, steps=steps, weigh_memory=False)
        for program, one in zip(programs, costs, strict=True)
    ]
    ranks = programs[0].ranks
    before, outcomes, after = run_local(ranks, run_all, tasks, options=JobOptions())[0]
    host = _mean([_host(ranks, one) for one in (before, after)])
    found = []
    for program, one, outcome in zip(programs, costs, outcomes, strict=True):
        found.append(_compare(program, with_host(one, host), outcome))
    return found, host


def run_all(context: Context, tasks: Sequence[Task]) -> tuple[Outcome | None, list[Outcome | None], Outcome | None]:
    """The work of one process: a calibration, every task, a calibration."""
    before = calibrate(context, tasks[0])
    outcomes: list[Outcome | None] = []
    for task in tasks:
        job = Job(context, task)
        job.step(0)
        outcomes.append(job.outcome([job.timed(step) for step in range(1, task.steps + 1)]))
    return before, outcomes, calibrate(context, tasks[0])


def with_host(costs: Costs, host: HostTimes) -> Costs:
    """The costs with what the host adds to actions and messages."""
    return replace(costs, host_s=host.action_s, network=Network(default=Route(latency_s=host.message_s)))


def _host(ranks: int, calibration: Outcome) -> HostTimes:
    """With what an action takes longer than it was told to wait."""
    program = calibration_program(ranks)
    timeline = assemble(program, calibration.records)
    found = host_times(timeline)
    acts = np.flatnonzero(program.is_compute)
    told = durations(program, calibration_costs(ranks)).seconds[acts]
    late = float(np.median(timeline.end[acts] - timeline.start[acts] - told))
    return HostTimes(found.action_s + max(late, 0.0), found.message_s)


def _mean(times: Sequence[HostTimes]) -> HostTimes:
    return HostTimes(statistics.fmean(one.action_s for one in times), statistics.fmean(one.message_s for one in times))


def _compare(program: Program, costs: Costs, outcome: Outcome) -> Compared:
    predicted = simulate(program, costs)
    measured = assemble(program, outcome.records, source="emulated")
    boxes = measured.boxes
    return Compared(
        program.schedule.name,
        predicted.step_time_s,
        statistics.median(outcome.step_s),
        same_order(predicted.start[boxes], measured.start[boxes]),
    )
