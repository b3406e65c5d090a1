"""ZB-V (Qi et al. 2023, arXiv 2401.10241, section 6)."""

from __future__ import annotations

from pipesim.ir.placement import vee
from pipesim.ir.schedule import Schedule
from pipesim.schedules.constraints import require_counts
from pipesim.schedules.job import Job
from pipesim.schedules.search import OBJECTIVES
from pipesim.schedules.squeeze import Run
from pipesim.schedules.times import Memory, Seconds, stage_times
from pipesim.schedules.v_auto import shortest_vee
from pipesim.schedules.zb_v_equal import zb_v_equal


def zb_v(
    *,
    ranks: int,
    microbatches: int,
    forward: Seconds | None = None,
    input_grad: Seconds | None = None,
    weight_grad: Seconds | None = None,
    latency: float | None = None,
) -> Schedule:
    """Two stages a rank in a V: hardly any bubble, with the activations of 1F1B.

    The V puts first and last stage on rank 0, so gradients start back from there at once and every rank
    keeps a microbatch's two activations for about the same time: p microbatches in all, on every rank.
    forward, input_grad, weight_grad, latency: as for `zb-auto`. Without them the order for equal times, which
    has no bubble at all there; with them the one that a search as of `v-auto` finds.
    Raises Unsuitable for times that are none.
    """
    require_counts("zb-v", ranks=ranks, microbatches=microbatches)
    given = [forward, input_grad, weight_grad, latency]
    if all(value is None for value in given):
        return zb_v_equal(ranks=ranks, microbatches=microbatches)
    forward, input_grad, weight_grad = (1.0 if value is None else value for value in given[:3])
    times = stage_times("zb-v", vee(ranks), forward, input_grad, weight_grad, latency or 0.0)
    if times == stage_times("zb-v", vee(ranks), 1.0, 1.0, 1.0, 0.0) and microbatches >= 2 * ranks - 1:
        return zb_v_equal(ranks=ranks, microbatches=microbatches)
    job = Job(vee(ranks), microbatches, times, Memory(float(ranks)))
    return job.schedule("zb-v", _weighed([shortest_vee(job, objective) for objective in OBJECTIVES]).orders)


def _weighed(runs: list[Run]) -> Run:
    """The run with the best span, the paper's measure, and makespan; the span counts twice."""
    span, makespan = min(run.span for run in runs), min(run.makespan for run in runs)
    return min(runs, key=lambda run: 2 * run.span / span + run.makespan / makespan)
