"""GPipe: all forwards, then all backwards (Huang et al. 2019, arXiv 1811.06965)."""

from __future__ import annotations

import numpy as np

from pipesim.ir.action import Kind
from pipesim.ir.atoms import Atoms
from pipesim.ir.placement import linear
from pipesim.ir.schedule import Schedule


def gpipe(*, ranks: int, microbatches: int, reverse_backward: bool = False) -> Schedule:
    """All forwards, then all backwards in the same order.

    Every rank holds all m microbatches at the turn, which is why later schedules start backwards early;
    in return nothing but the fill and the drain of the pipeline waits for messages.
    reverse_backward: newest microbatch first, as autograd undoes the forwards (torchgpipe).
    """
    order = np.arange(microbatches)
    kinds = np.repeat([Kind.F, Kind.B], microbatches)
    both = np.concatenate([order, order[::-1] if reverse_backward else order])
    rows = [Atoms.of(kinds, rank, both) for rank in range(ranks)]
    return Schedule.of_rows("gpipe", linear(ranks), microbatches, rows)
