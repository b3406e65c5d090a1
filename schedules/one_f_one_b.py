"""1F1B with flush (PipeDream-flush, DAPPLE; Narayanan et al. 2021, arXiv 2104.04473, section 2.2)."""

from __future__ import annotations

import numpy as np

from pipesim.ir.action import Kind
from pipesim.ir.atoms import Atoms
from pipesim.ir.placement import linear
from pipesim.ir.schedule import Schedule


def one_f_one_b(*, ranks: int, microbatches: int) -> Schedule:
    """Warm up with forwards, then pair each new forward with the oldest backward.

    Rank r may be at most p-r microbatches ahead of its own backwards: no more are needed to keep the
    ranks after it busy, so activations stay at p-r microbatches however large m is.
    """
    rows = []
    for rank in range(ranks):
        warmup = min(ranks - rank - 1, microbatches)  # never more forwards than there are microbatches
        rows.append(alternate(rank, warmup, microbatches))
    return Schedule.of_rows("1f1b", linear(ranks), microbatches, rows)


def alternate(stage: int, warmup: int, microbatches: int) -> Atoms:
    """`warmup` forwards, then a forward and a backward in turn, then the backwards that are left."""
    steady = microbatches - warmup
    kind = np.full(2 * microbatches, Kind.B)
    microbatch = np.empty(2 * microbatches, np.int32)
    forwards = np.concatenate([np.arange(warmup), warmup + 2 * np.arange(steady)])
    kind[forwards] = Kind.F
    microbatch[kind == Kind.F] = np.arange(microbatches)
    microbatch[kind == Kind.B] = np.arange(microbatches)
    return Atoms.of(kind, stage, microbatch)
