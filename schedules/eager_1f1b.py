"""Eager 1F1B (alpa; Zhuang et al. 2022, arXiv 2211.05322, section 4)."""

from __future__ import annotations

from pipesim.ir.placement import linear
from pipesim.ir.schedule import Schedule
from pipesim.schedules.one_f_one_b import alternate


def eager_1f1b(*, ranks: int, microbatches: int) -> Schedule:
    """1F1B with twice the warm-up, so that a message on its way stops nobody.

    In 1F1B a rank waits for each gradient exactly as long as its forward's activation and that gradient
    travel. Two forwards more per rank below it, instead of one, give it work for that time; the price is
    2(p-r)-1 microbatches in flight.
    """
    rows = [alternate(rank, 2 * (ranks - rank - 1), microbatches) for rank in range(ranks)]
    return Schedule.of_rows("eager-1f1b", linear(ranks), microbatches, rows)
