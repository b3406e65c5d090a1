"""Sequence slices: TeraPipe (Li et al. 2021, arXiv 2102.07988) and Seq1F1B (Sun et al. 2024, arXiv 2406.03488)."""

from __future__ import annotations

import numpy as np

from pipesim.ir.action import Kind
from pipesim.ir.atoms import Atoms
from pipesim.ir.placement import linear
from pipesim.ir.schedule import Schedule
from pipesim.schedules.constraints import require_counts


def terapipe(*, ranks: int, microbatches: int, slices: int = 4) -> Schedule:
    """GPipe with slices of a sequence in place of microbatches.

    A slice of tokens needs only the keys and values of those before it, so slices of one sequence follow
    each other through the pipeline, and the fill is s times shorter even with one microbatch. Backwards
    go from the last slice to the first, as gradients of keys and values come from later tokens.
    """
    require_counts("terapipe", ranks=ranks, microbatches=microbatches, slices=slices)
    return _sliced("terapipe", ranks, microbatches, slices, [microbatches * slices] * ranks)


def seq1f1b(*, ranks: int, microbatches: int, slices: int = 4) -> Schedule:
    """1F1B over slices: warm up, then pair each forward of a slice with the oldest backward of one.

    The first backward is that of the last slice of the first sequence, so each rank warms up with s-1
    forwards more than in 1F1B; the activations of a slice are s times smaller, so less is held, and the
    pipeline fills s times faster.
    """
    require_counts("seq1f1b", ranks=ranks, microbatches=microbatches, slices=slices)
    total = microbatches * slices
    warmups = [min(ranks - rank - 1 + slices - 1, total) for rank in range(ranks)]
    return _sliced("seq1f1b", ranks, microbatches, slices, warmups)


def _sliced(name: str, ranks: int, microbatches: int, slices: int, warmups: list[int]) -> Schedule:
    """Per rank `warmup` forwards, a forward and a backward in turn, then the backwards that are left."""
    turn = np.arange(microbatches * slices)
    microbatch, slice_ = np.divmod(turn, slices)
    rows = []
    for rank, warmup in enumerate(warmups):
        order = np.argsort(np.concatenate([2 * turn, 2 * (turn + warmup) + 1]))
        kind = np.repeat([Kind.F, Kind.B], len(turn))
        both = np.concatenate([slice_, slices - 1 - slice_])
        rows.append(Atoms.of(kind[order], rank, np.tile(microbatch, 2)[order], both[order]))
    return Schedule.of_rows(name, linear(ranks), microbatches, rows, slices=slices)
