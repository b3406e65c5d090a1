"""1F1B with flush (PipeDream-flush, DAPPLE; Narayanan et al. 2021, arXiv 2104.04473, section 2.2)."""

from __future__ import annotations

from pipesim.ir.atoms import Atoms
from pipesim.ir.placement import linear
from pipesim.ir.schedule import Schedule
from pipesim.schedules.weave import each_microbatch, weave


def one_f_one_b(*, ranks: int, microbatches: int) -> Schedule:
    """Warm up with forwards, then pair each new forward with the oldest backward.

    Rank r may be at most p-r microbatches ahead of its own backwards: no more are needed to keep the
    ranks after it busy, so activations stay at p-r microbatches however large m is.
    """
    rows = [alternate(rank, ranks - rank - 1, microbatches) for rank in range(ranks)]
    return Schedule.of_rows("1f1b", linear(ranks), microbatches, rows)


def alternate(stage: int, warmup: int, microbatches: int) -> Atoms:
    """`warmup` forwards, then a forward and a backward in turn, then the backwards that are left."""
    passes = each_microbatch(stage, microbatches)
    return weave(passes, passes, warmup)
