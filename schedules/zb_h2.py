"""ZB-H2 (Qi et al. 2023, arXiv 2401.10241, section 2.2)."""

from __future__ import annotations

from pipesim.ir.placement import linear
from pipesim.ir.schedule import Schedule
from pipesim.schedules.weave import each_microbatch, weave


def zb_h2(*, ranks: int, microbatches: int) -> Schedule:
    """No rank stands idle between its first and its last action, if F, I and W take equal time.

    The time until the first gradient comes back is filled with forwards (2(p-r)-1 of them), the time after
    the last input gradient with the weight gradients of 2r microbatches. Ranks end as they began, one after
    the other: the optimizer must not wait for all of them (the paper validates the step afterwards).
    """
    rows = []
    for rank in range(ranks):
        passes = each_microbatch(rank, microbatches)
        rows.append(weave(passes, passes, warmup=2 * (ranks - rank - 1), weight_delay=2 * rank))
    return Schedule.of_rows("zb-h2", linear(ranks), microbatches, rows)
