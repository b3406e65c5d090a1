"""ZB-auto: a zero-bubble order for the actual times (Qi et al. 2023, arXiv 2401.10241, section 3)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial

from pipesim.ir.placement import linear
from pipesim.ir.schedule import Schedule
from pipesim.schedules.constraints import require_counts
from pipesim.schedules.job import Job, Orders
from pipesim.schedules.search import First, Objective, objective_of, orders_of, shortest
from pipesim.schedules.times import Seconds, Times, memory_of, stage_times
from pipesim.schedules.weave import each_microbatch, weave
from pipesim.schedules.zb_h1 import zb_h1
from pipesim.schedules.zb_h2 import zb_h2


def zb_auto(
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
    """The shortest order found for these times, with at most `memory_limit` microbatches on a rank.

    As in the paper, first orders warm up with as many forwards as fill the wait for the first gradient, and put
    weight gradients off to fill the drain; they are then squeezed, actions overtaking each other into gaps,
    forwards and backwards in time in turn. From a limit of p up that is at least as good as ZB-H1, from 2p
    nearly without bubble; below p the limit itself makes ranks wait.
    memory_limit: 2p by default. forward, input_grad, weight_grad: seconds of a rank's whole share of a
        microbatch, or of each stage; latency: seconds of a message.
    input_release: part of an activation that its input gradient frees; at 0 its weight gradient frees it all, at 0.5
        half (what the paper's own search counts).
    objective: `span`, the longest time of a rank from its first start to its last end, where ranks need not
        wait for each other before the next step (the paper's bubble rate).
    Raises Unsuitable for a limit under 1 and for times that are none.
    """
    require_counts("zb-auto", ranks=ranks, microbatches=microbatches)
    times = stage_times("zb-auto", linear(ranks), forward, input_grad, weight_grad, latency)
    memory = memory_of("zb-auto", 2.0 * ranks if memory_limit is None else memory_limit, input_release)
    job = Job(linear(ranks), microbatches, times, memory)
    known = [orders_of(zb_h1), orders_of(zb_h2)]
    run = shortest(job, known, _first_orders(times), objective_of("zb-auto", objective))
    return job.schedule("zb-auto", run.orders)


def _first_orders(times: Times) -> Iterator[First]:
    """1F1B orders with more warm-up the further a rank is from the last, and weight gradients put off."""
    forward = max(times.forward)
    there_and_back = forward + max(times.input_grad) + 2 * times.latency  # what each further rank adds to the wait
    fills = there_and_back / forward
    drains = there_and_back / max(*times.weight_grad, forward / 8)
    warmups = [(1, 0), (fills, 0.999), (2, 0), (1.5, 0), (there_and_back, 0), (2, 1), (fills, 0), (1, 1), (3, 0)]
    warmups += [(2, -1), (fills, 1.5), (fills, 0.5)]
    warmups += [(slope, more) for slope in (there_and_back, 0.75 * fills) for more in (0, 0.5, 0.999)][1:]
    for delay in (drains, math.inf, 1.0, drains / 2):
        for warmup in warmups:
            yield partial(_woven, warmup=warmup, delay=delay)


def _woven(job: Job, *, warmup: tuple[float, float], delay: float) -> Orders:
    """One such order, as far as the memory limit allows.

    warmup: forwards for each rank below, and in any case. delay: weight gradients put off for each rank above.
    """
    count, memory, rows = job.microbatches, job.memory, []
    limit = min(memory.limit, 2 * count + 1)  # more than any order fills; the limit itself may be infinite
    for rank in range(job.placement.ranks):
        passes = each_microbatch(rank, count)
        wanted = math.floor(warmup[0] * (job.placement.ranks - 1 - rank) + warmup[1] + 1e-9)
        ahead = min(count, max(0, wanted), math.floor(limit) - 1)
        kept = 1 - memory.input_release
        most = math.floor((limit - 1 - ahead) / kept + 1e-9) if kept else count
        put_off = min(count, most, count if math.isinf(delay) else math.floor(delay * rank + 1e-9))
        rows.append(weave(passes, passes, ahead, weight_delay=put_off))
    return job.numbers(Schedule.of_rows("", job.placement, count, rows))
