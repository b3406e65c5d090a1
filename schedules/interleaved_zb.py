"""Interleaved 1F1B with split backward (ZB-1P over several stages a rank, as in torch's
ScheduleInterleavedZeroBubble; Qi et al. 2023, arXiv 2401.10241)."""

from __future__ import annotations

from pipesim.ir.placement import looped
from pipesim.ir.schedule import Schedule
from pipesim.schedules.interleaved import group_size, visits
from pipesim.schedules.weave import weave


def interleaved_zb(*, ranks: int, microbatches: int, virtual: int = 2, group: int | None = None) -> Schedule:
    """Interleaved 1F1B whose weight gradients wait: rank r puts those of its last r backwards at the end.

    As in ZB-H1 the way back is shorter without weight gradients, so one forward of warm-up per rank below
    is enough where interleaved 1F1B needs two, and the weight gradients put off fill the drain.
    Raises Unsuitable where the last group would be smaller than p.
    """
    size = group_size("interleaved-zb", ranks, microbatches, group)
    rows = []
    for rank in range(ranks):
        forwards, backwards = visits(rank, ranks, microbatches, virtual, size)
        warmup = ranks - rank - 1 + (virtual - 1) * size
        rows.append(weave(forwards, backwards, min(warmup, len(forwards)), weight_delay=rank))
    return Schedule.of_rows("interleaved-zb", looped(ranks, virtual), microbatches, rows)
