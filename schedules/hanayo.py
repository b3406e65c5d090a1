"""Hanayo: waves instead of replicas (Liu et al. 2023, arXiv 2308.15762)."""

from __future__ import annotations

import numpy as np

from pipesim.ir.placement import wave
from pipesim.ir.schedule import Schedule
from pipesim.schedules.constraints import Unsuitable, require_counts
from pipesim.schedules.slots import there_and_back


def hanayo(*, ranks: int, microbatches: int, virtual: int = 2) -> Schedule:
    """Fold the model down and up the ranks v/2 times, so that one copy of it does what Chimera does with two.

    The way up of a wave takes the place of Chimera's second replica: a microbatch enters at every second
    slot, a rank sees stages going down and up in slots of different parity, and backwards fit in between
    in the same way. More waves make thinner stages and a shorter fill, for more messages; where a wave
    turns, the next stage is on the same rank and needs none.
    virtual: stages a rank, two for each wave.
    Raises Unsuitable for an odd number of stages a rank.
    """
    require_counts("hanayo", ranks=ranks, microbatches=microbatches, virtual=virtual)
    if virtual % 2:
        works = " or ".join(str(even) for even in (virtual - 1, virtual + 1) if even)
        raise Unsuitable("hanayo", f"{virtual} stages a rank", "a wave goes down and up", works)
    stages = ranks * virtual
    microbatch, stage = (axis.ravel() for axis in np.mgrid[:microbatches, :stages])
    enters = 2 * stages * (microbatch // ranks) + microbatch % ranks * 2
    placement = wave(ranks, virtual)
    rows = there_and_back(placement, stage, microbatch, enters + stage, enters + 2 * stages - 1 - stage)
    return Schedule.of_rows("hanayo", placement, microbatches, rows)
