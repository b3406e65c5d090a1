"""Timelines for the tests of this folder."""

from dataclasses import replace
from functools import lru_cache

import numpy as np

from pipesim.costs.costs import Costs, StageBytes
from pipesim.costs.plain import parse_costs
from pipesim.engine.choose import simulate
from pipesim.ir.action import Kind
from pipesim.ir.lower import lower
from pipesim.ir.program import Comm
from pipesim.ir.schedule import Schedule
from pipesim.schedules.catalogue import FAMILIES
from pipesim.timeline import Timeline

TIMES = "F=10ms,I=11ms,W=9ms,C=0.5ms,optimizer=5ms,reduce=8ms"


@lru_cache
def timeline(
    name: str, ranks: int, microbatches: int, *, times: str = TIMES, comm: Comm = "edge", memory: bool = False,
    jitter: float = 0.0,
) -> Timeline:  # fmt: skip
    """A simulated step. memory: with bytes and a limit; jitter: random durations, relative deviation."""
    schedule = FAMILIES[name].build(ranks=ranks, microbatches=microbatches)
    costs = parse_costs(times).of(schedule)
    if memory:
        costs = replace(costs, held=_held(schedule))
    if jitter:
        costs = replace(costs, seconds=_jittered(costs, schedule, jitter))
    return simulate(lower(schedule, comm=comm, reduce=True), costs)


def _held(schedule: Schedule) -> StageBytes:
    stages, ranks = schedule.placement.stages, schedule.ranks
    each = np.full(stages, 1e9)
    return StageBytes(
        weights=2 * each, gradients=2 * each, optimizer=4 * each, activation=each, released_at_input=0.5 * each / 1e9,
        workspace=0.1 * each, overhead=np.full(ranks, 1e9), limit=np.full(ranks, 60e9),
    )  # fmt: skip


def _jittered(costs: Costs, schedule: Schedule, jitter: float) -> dict[Kind, np.ndarray]:
    random = np.random.default_rng(0)
    shape = (schedule.placement.stages, schedule.microbatches)
    return {kind: each[:, None] * random.normal(1, jitter, shape) for kind, each in costs.seconds.items()}
