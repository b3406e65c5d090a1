"""When a send is known to have arrived, without asking: from the order of the program alone."""

from __future__ import annotations

import numpy as np

from pipesim.ir.action import Kind
from pipesim.ir.lanes import lanes
from pipesim.ir.order import require_progress
from pipesim.ir.program import Program


def settled_sends(program: Program, rank: int) -> dict[int, list[int]]:
    """Sends of a rank by the first computation of it that can only run after their receiver has used them.

    Found by following who must have run before whom (vector clocks), so that a send can be let go without
    waiting for it, and the memory of sent tensors does not grow with the number of microbatches.
    """
    count = len(program)
    rank_of, match, kind = program.rank, program.match, program.ops.kind
    before = np.full((count, program.ranks), -1, np.int64)  # latest compute operation known to have started
    latest = np.full((program.ranks, program.ranks), -1, np.int64)
    for op in require_progress(lanes(program), program):
        clock = before[op]
        source = match[op] if kind[op] == Kind.RECV else op
        for needed in program.needs_of(source).tolist():
            np.maximum(clock, before[needed], out=clock)
        if kind[op] <= Kind.W:
            own = int(rank_of[op])
            np.maximum(clock, latest[own], out=clock)
            clock[own] = op
            latest[own] = clock
    consumer = _consumers(program)
    computes = [op for op in program.row(rank) if kind[op] <= Kind.W and not program.ops.fused[op]]
    clocks = before[computes]
    settled: dict[int, list[int]] = {}
    for op in program.row(rank):
        if kind[op] == Kind.SEND and consumer[match[op]] >= 0:
            at = int(np.searchsorted(clocks[:, int(program.peer[op])], consumer[match[op]]))
            if at < len(computes):
                settled.setdefault(computes[at], []).append(op)
    return settled


def _consumers(program: Program) -> np.ndarray:
    """For each operation one that needs it."""
    consumer = np.full(len(program), -1, np.int64)
    consumer[program.need] = np.repeat(np.arange(len(program)), np.diff(program.need_offsets))
    return consumer
