"""ZB-H1 (Qi et al. 2023, arXiv 2401.10241, section 2.1)."""

from __future__ import annotations

from pipesim.ir.placement import linear
from pipesim.ir.schedule import Schedule
from pipesim.schedules.weave import each_microbatch, weave


def zb_h1(*, ranks: int, microbatches: int) -> Schedule:
    """1F1B whose weight gradients wait: later ranks put them where they would stand idle at the end.

    Only the input gradient is needed by the rank above, so splitting the backward shortens the way back.
    Rank r keeps the weight gradients of r microbatches for the drain, and as it is r forwards behind in
    the warm-up, every rank holds p microbatches: what rank 0 of 1F1B holds.
    """
    rows = []
    for rank in range(ranks):
        passes = each_microbatch(rank, microbatches)
        rows.append(weave(passes, passes, warmup=ranks - rank - 1, weight_delay=rank))
    return Schedule.of_rows("zb-h1", linear(ranks), microbatches, rows)
