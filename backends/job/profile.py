"""What every process of `pipesim profile` does: each stage alone, the links, and a short emulated run."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from pipesim.backends.job.train import Job, Outcome, Task, all_ranks, train
from pipesim.backends.job.worker import Context
from pipesim.backends.measure.links import LinkTimes, measure_links
from pipesim.backends.measure.profile import (
    Captured,
    StageProfile,
    costs_lists,
    costs_numbers,
    host_times,
    profiles,
    time_stages,
)
from pipesim.backends.measure.timelines import assemble
from pipesim.costs.costs import Costs
from pipesim.costs.plain import plain_costs
from pipesim.ir.action import Kind
from pipesim.ir.lower import lower
from pipesim.ir.placement import linear
from pipesim.ir.program import Program
from pipesim.ir.schedule import Schedule

CALIBRATION = {"F": 0.01, "I": 0.01, "W": 0.005}  # seconds of the emulated actions


@dataclass(frozen=True)
class Profiled:
    """What rank 0 knows after a profile; `outcome`: of the steps that were run in between, if any."""

    stages: list[dict[int, StageProfile]]
    links: LinkTimes
    calibration: Outcome
    message_bytes: dict[int, int]
    outcome: Outcome | None = None


def profile(context: Context, task: Task, *, repeats: int = 9, run: bool = False) -> Profiled | None:
    """Measure; the result, on rank 0.

    run: also run the task's steps, some after each few measurements, so that whatever slows the machine down
    for a while slows both.
    """
    job = Job(context, task)
    plain = job.runner.stages
    captured = {number: Captured(stage) for number, stage in plain.items()}
    job.runner.stages = captured
    job.step(0)
    job.runner.stages = plain
    split = task.emulate is None or Kind.I in task.emulate.seconds
    samples, steps = [], []
    for turn in range(repeats):
        samples.append(time_stages(captured, job.runner.timer, repeats=1, split=split))
        for step in range(turn * task.steps // repeats, (turn + 1) * task.steps // repeats if run else 0):
            steps.append(job.timed(step + 1))
    links = measure_links(context.device)
    calibration = calibrate(context, task)
    outcome = job.outcome(steps) if run else None
    found = all_ranks(profiles(captured, samples))
    sizes = job.all_message_bytes()
    return None if calibration is None else Profiled(found, links, calibration, sizes, outcome)


def calibrate(context: Context, task: Task) -> Outcome | None:
    """A short 1F1B on emulated stages: what is between its actions is the host's; on rank 0."""
    program, costs = calibration_program(context.ranks), calibration_costs(context.ranks)
    return train(
        context, replace(task, program=program, source=None, emulate=costs, steps=3, weigh_memory=False, strict=False)
    )


def calibration_costs(ranks: int) -> Costs:
    """What the stages of the calibration run were told to wait."""
    return plain_costs(CALIBRATION).of(calibration_program(ranks).schedule)


def calibration_program(ranks: int) -> Program:
    """The program of the calibration run: as many forwards ahead as there are ranks below, then in turn."""
    count = 2 * ranks
    orders = []
    for rank in range(ranks):
        ahead = ranks - rank
        texts = [f"{rank}F{one}" for one in range(ahead)]
        for one in range(count):
            texts += [f"{rank}B{one}", *([f"{rank}F{one + ahead}"] if one + ahead < count else [])]
        orders.append(texts)
    return lower(Schedule.of_texts("calibration", linear(ranks), count, orders))


def to_costs_file(program: Program, found: Profiled) -> tuple[dict[str, list[float]], dict[str, float], dict[str, Any]]:
    """Columns, numbers and facts of a costs file."""
    placement = program.schedule.placement
    lists = costs_lists(placement, found.stages, found.message_bytes, program)
    host = host_times(assemble(calibration_program(program.ranks), found.calibration.records))
    latency, rate = found.links.line() if found.links.send_s else (0.0, 0.0)
    facts = {
        "measured_on": "stages one by one on all ranks at once; host and latency on an emulated 1F1B",
        "send_s": {str(size): seconds for size, seconds in found.links.send_s.items()},
        "all_reduce_s": {str(size): seconds for size, seconds in found.links.all_reduce_s.items()},
        "ping_pong": {"latency_s": latency, "bytes_per_s": rate},
    }
    return lists, costs_numbers(host, found.links), facts
