"""GIS and GIS-H: group-interleaved 1F1B (Wan et al. 2025, PipeOffload, arXiv 2503.01328, section 3)."""

from __future__ import annotations

import numpy as np

from pipesim.ir.placement import looped
from pipesim.ir.schedule import Schedule
from pipesim.schedules.constraints import Unsuitable, require_counts
from pipesim.schedules.interleaved import visits
from pipesim.schedules.weave import weave


def gis(*, ranks: int, microbatches: int, virtual: int = 2, group: int | None = None) -> Schedule:
    """Interleaved 1F1B in groups of N with the least warm-up that keeps it running (N = p by default).

    An activation lives from its forward to its backward: between a group's forward on a stage and its next
    stage there are as few other microbatches as can be, and one forward per rank below is warm-up enough
    because the way back carries input gradients only. Peak activations fall to about two thirds of interleaved 1F1B's.
    A last group that is not full runs as if it were, without the microbatches that are missing.
    Raises Unsuitable for groups under half the ranks: their next forwards would be due before they are back.
    """
    return _grouped("gis", ranks, microbatches, virtual, ranks if group is None else group)


def gis_h(*, ranks: int, microbatches: int, virtual: int = 2) -> Schedule:
    """GIS with groups of p/2 (rounded up): half the activations for a longer pipeline bubble.

    With fewer than p microbatches in a group the next stage's input is not back yet when the group is done,
    and ranks stand idle in between, once a group in the warm-up and the drain.
    """
    return _grouped("gis-h", ranks, microbatches, virtual, (ranks + 1) // 2)


def _grouped(name: str, ranks: int, microbatches: int, virtual: int, size: int) -> Schedule:
    require_counts(name, ranks=ranks, microbatches=microbatches, virtual=virtual, group=size)
    if size < ranks // 2:
        least = ranks // 2
        raise Unsuitable(
            name, f"groups of {size} on {ranks} ranks", f"they need at least {least}", f"a group of {least}"
        )
    padded = -(-microbatches // size) * size
    rows = []
    for rank in range(ranks):
        forwards, backwards = visits(rank, ranks, padded, virtual, size)
        row = weave(forwards, backwards, warmup=(virtual - 1) * size + ranks - 1 - rank, weight_delay=0)
        rows.append(row.take(np.flatnonzero(row.microbatch < microbatches)))
    return Schedule.of_rows(name, looped(ranks, virtual), microbatches, rows)
