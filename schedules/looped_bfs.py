"""Looped breadth-first (Lamy-Poirier 2022, arXiv 2211.05953)."""

from __future__ import annotations

import numpy as np

from pipesim.ir.action import Kind
from pipesim.ir.atoms import Atoms
from pipesim.ir.placement import looped
from pipesim.ir.schedule import Schedule


def looped_bfs(*, ranks: int, microbatches: int, virtual: int = 2) -> Schedule:
    """All microbatches pass a rank's first stage, then its second, and so on; then all backwards undo that.

    Fill and drain are as short as in interleaved 1F1B, and with m > p a message has the whole rest of the
    pass to arrive. A stage's weights are needed once forward and once backward, which suits fully sharded
    weights. All m microbatches are held, as in GPipe.
    """
    chunk = np.repeat(np.arange(virtual), microbatches)
    order = np.tile(np.arange(microbatches), virtual)
    kinds = np.repeat([Kind.F, Kind.B], virtual * microbatches)
    chunks, both = np.concatenate([chunk, chunk[::-1]]), np.concatenate([order, order[::-1]])
    rows = [Atoms.of(kinds, rank + ranks * chunks, both) for rank in range(ranks)]
    return Schedule.of_rows("looped-bfs", looped(ranks, virtual), microbatches, rows)
