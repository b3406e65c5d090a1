"""Times a schedule under given costs, quickly: orders are prepared once, and long ones are extended.

After a while every microbatch takes as long as the one before it, so beyond some number of microbatches the step
grows by a straight line, which two shorter runs give.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from pipesim.costs.costs import Costs, Floats
from pipesim.engine.durations import durations
from pipesim.engine.fast import Sweeper, holds
from pipesim.engine.held import memory_trace
from pipesim.ir.action import Kind
from pipesim.ir.lower import lower
from pipesim.ir.program import Program
from pipesim.plan.row_schedule import RowSchedule

_ROUNDS = 6  # microbatches for each rank after which runs are extended


@dataclass(frozen=True)
class Timed:
    """Seconds of one step, from its start to the next one's where steps follow each other.

    messages_s: how much sooner it would end without messages; sync_s: reduction that compute cannot hide.
    busy_s, peak_bytes: (ranks,).
    """

    step_s: float
    makespan_s: float
    messages_s: float
    sync_s: float
    busy_s: Floats
    peak_bytes: Floats


def timed(plan: RowSchedule, costs: Costs, *, reduce: bool) -> Timed:
    """Time the schedule; of more than 6 microbatches a rank, from two runs of about as many."""
    most = _ROUNDS * plan.ranks
    if plan.microbatches <= most + plan.ranks:
        return _timed(plan, plan.microbatches, costs, reduce)
    long = most + plan.microbatches % plan.ranks
    one, two = (_timed(plan, count, costs, reduce) for count in (long - plan.ranks, long))
    more = (plan.microbatches - long) / plan.ranks

    def extended(first: float, second: float) -> float:
        return second + more * (second - first)

    return Timed(
        extended(one.step_s, two.step_s),
        extended(one.makespan_s, two.makespan_s),
        extended(one.messages_s, two.messages_s),
        two.sync_s,
        two.busy_s + more * (two.busy_s - one.busy_s),
        two.peak_bytes + (more if plan.holds_all else 0.0) * (two.peak_bytes - one.peak_bytes),
    )


def _timed(plan: RowSchedule, microbatches: int, costs: Costs, reduce: bool) -> Timed:
    ready = _sweeper(plan.family, plan.ranks, microbatches, plan.virtual, plan.comm, reduce)
    program = ready.program
    timing = durations(program, costs)
    hold, then = holds(program, timing, costs)
    start, end = ready.run(hold, then)
    compute = program.is_compute
    makespan, steps = float(end[compute].max()), program.ops.kind == Kind.STEP
    skew = 0.0 if plan.flushes else makespan - _longest_span(program, start, end)
    without = makespan
    if plan.ranks > 1:
        _, sooner = ready.run(np.where(compute, hold, 0.0), np.where(compute, then, 0.0))
        without = float(sooner[compute].max())
    trace = memory_trace(program, costs, start, end)
    assert trace is not None
    boxes = compute & ~program.ops.fused
    busy: Floats = np.bincount(program.rank[boxes], weights=(end - start)[boxes], minlength=program.ranks).astype(
        np.float64
    )
    return Timed(
        float(end.max()) - skew,
        makespan,
        makespan - without,
        max(0.0, float(start[steps].max()) - makespan) if steps.any() else 0.0,
        busy,
        trace.peak,
    )


def _longest_span(program: Program, start: Floats, end: Floats) -> float:
    """Most seconds of a rank from its first compute action to its last."""
    compute = np.flatnonzero(program.is_compute)
    rank = program.rank[compute]
    first, last = np.full(program.ranks, np.inf), np.zeros(program.ranks)
    np.minimum.at(first, rank, start[compute])
    np.maximum.at(last, rank, end[compute])
    return float((last - first).max())


@lru_cache(maxsize=128)
def _sweeper(family: str, ranks: int, microbatches: int, virtual: int, comm: str, reduce: bool) -> Sweeper:
    plan = RowSchedule(family, ranks, microbatches, virtual, comm)  # type: ignore[arg-type]
    return Sweeper(lower(plan.build(microbatches), comm=plan.comm, reduce=reduce, clip=True))
