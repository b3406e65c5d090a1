"""V-auto: a schedule of the V shape for the actual times (after Qi et al. 2024, arXiv 2405.15362)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from pipesim.ir.placement import vee
from pipesim.ir.schedule import Schedule
from pipesim.schedules.constraints import require_counts
from pipesim.schedules.job import Job, Orders
from pipesim.schedules.periodic import layouts
from pipesim.schedules.search import First, Objective, objective_of, orders_of, shortest
from pipesim.schedules.squeeze import Run
from pipesim.schedules.times import Seconds, memory_of, stage_times
from pipesim.schedules.v_half import v_half
from pipesim.schedules.v_min import v_min
from pipesim.schedules.zb_v_equal import zb_v_equal


def v_auto(
    *,
    ranks: int,
    microbatches: int,
    memory_limit: float | None = None,
    forward: Seconds = 1.0,
    input_grad: Seconds = 1.0,
    weight_grad: Seconds = 1.0,
    latency: float = 0.0,
    input_release: float = 0.0,
    objective: Objective = "makespan",
) -> Schedule:
    """The shortest order of a V found for these times, with at most `memory_limit` microbatches on a rank.

    First come steady states: a microbatch's actions laid out for these times, so that one fits in every period
    and activations live no longer than the limit allows. Repeated, and beside ZB-V, V-Half and V-Min where they
    keep the limit, they are squeezed, actions overtaking each other into gaps, forwards and backwards in time in
    turn. Between the limits of V-Min (a third of p) and ZB-V (p) more memory buys a shorter bubble.
    Options as for `zb-auto`; memory_limit: p by default.
    Raises Unsuitable for a limit under 1 and for times that are none.
    """
    require_counts("v-auto", ranks=ranks, microbatches=microbatches)
    placement = vee(ranks)
    times = stage_times("v-auto", placement, forward, input_grad, weight_grad, latency)
    memory = memory_of("v-auto", float(ranks) if memory_limit is None else memory_limit, input_release)
    job = Job(placement, microbatches, times, memory)
    return job.schedule("v-auto", shortest_vee(job, objective_of("v-auto", objective)).orders)


def shortest_vee(job: Job, objective: Objective) -> Run:
    """The best run found of a job whose stages are placed in a V."""
    known = [orders_of(zb_v_equal), orders_of(v_half), orders_of(v_min), _one_by_one]
    return shortest(job, known, _steady(job), objective)


def _steady(job: Job) -> Iterator[First]:
    """Layouts for the actual times, and for equal ones: they leave gaps that fit better where times differ little."""
    if job.microbatches == 1:
        return
    equal = [stage_times("v-auto", job.placement, 1, 1, 1, latency) for latency in (0.0, 0.25)]
    for times in (job.times, *equal):
        for layout in layouts(replace(job, times=times)):
            yield layout.orders


def _one_by_one(job: Job) -> Orders:
    """Each microbatch on its own, in any rank's memory."""
    stages, ranks = job.placement.stages, job.placement.ranks_of_stages
    rows: Orders = [[] for _ in range(job.placement.ranks)]
    for microbatch in range(job.microbatches):
        for stage in range(stages):
            rows[ranks[stage]].append(job.number(0, stage, microbatch))
        for stage in reversed(range(stages)):
            rows[ranks[stage]] += [job.number(1, stage, microbatch), job.number(2, stage, microbatch)]
    return rows
