"""GEMS: two replicas that take turns, for models too big for more (Jain et al. 2020, SC20)."""

from __future__ import annotations

import numpy as np

from pipesim.ir.action import Kind
from pipesim.ir.atoms import Atoms
from pipesim.ir.placement import bidirectional
from pipesim.ir.schedule import Schedule
from pipesim.schedules.constraints import require_counts


def gems(*, ranks: int, microbatches: int) -> Schedule:
    """Start each microbatch where the one before turns around, in the other direction.

    Its forward follows the backward of the one before from rank to rank, into the memory that this one has
    just given back: no rank ever holds more than one microbatch. Little overlaps: it trades time for memory.
    """
    require_counts("gems", ranks=ranks, microbatches=microbatches)
    microbatch = np.repeat(np.arange(microbatches), 2)
    kind = np.tile([Kind.F, Kind.B], microbatches)
    up = microbatch % 2
    rows = [Atoms.of(kind, np.where(up, 2 * ranks - 1 - rank, rank), microbatch) for rank in range(ranks)]
    return Schedule.of_rows("gems", bidirectional(ranks), microbatches, rows)
