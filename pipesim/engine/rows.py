"""The compiled walk along a program's rows, for programs with an edge to itself for every message.

There a rank's operations hardly ever wait for anything that stands behind them in its row, so each row can be
walked in its own order, which is the order in memory. Where one does (a reduction that waits for a rank that
waits for what follows the reduction), the walk ends early and the sweep over lanes has to do it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pipesim.engine.compiled import compiled, inlined
from pipesim.engine.sweep import NONE, RECV, SEND
from pipesim.ir.action import Kind
from pipesim.ir.atoms import Ints
from pipesim.ir.lanes import LaneKind, renumber
from pipesim.ir.needs import Flow
from pipesim.ir.program import Program

Floats = NDArray[np.float64]


def edge_lanes(program: Program) -> tuple[Ints, int]:
    """Lane of each operation but receives, numbered anyhow, and how many there are."""
    sends = np.flatnonzero(program.ops.kind == Kind.SEND)
    code = (program.rank[sends].astype(np.int64) * program.ranks + program.peer[sends]) * len(Flow)
    codes, place = renumber(code + program.flow[sends], program.ranks**2 * len(Flow))
    of_kind = np.zeros(len(Kind), np.int32)
    of_kind[[Kind.REDUCE, Kind.X, Kind.L]] = LaneKind.REDUCE, LaneKind.OUT, LaneKind.IN
    lane: Ints = of_kind[program.ops.kind] * np.int32(program.ranks) + program.rank + np.int32(len(codes))
    lane[sends] = place
    return lane, len(codes) + len(LaneKind) * program.ranks


@compiled
def walk_rows(
    offsets: Ints,
    role: Ints,
    fused: NDArray[np.bool_],
    lane: Ints,
    lanes: int,
    match: Ints,
    need_offsets: Ints,
    need: Ints,
    hold: Floats,
    then: Floats,
    start: Floats,
    end: Floats,
) -> int:
    """Fill in start and end (not a number before); the number of operations that ended, receives among them."""
    ranks = len(offsets) - 1
    cursor, free = offsets[:-1].copy(), np.zeros(lanes)
    waiter = np.full(len(role), NONE, np.int32)  # first rank that waits for an operation,
    following = np.full(ranks, NONE, np.int32)  # and the next rank that waits for the same
    stack = np.arange(ranks)
    top, ended = ranks, 0
    while top:
        top -= 1
        rank = stack[top]
        at, last = cursor[rank], offsets[rank + 1]
        while at < last:
            if role[at] == RECV:  # its send says when
                at += 1
                continue
            past = at + 1
            while past < last and fused[past]:
                past += 1
            ready, missing = _ready(at, past, need_offsets, need, end, free[lane[at]])
            if missing != NONE:
                following[rank], waiter[missing] = waiter[missing], rank
                break
            finish = ready + hold[at]
            if role[at] != SEND:
                finish += then[at]
            free[lane[at]] = finish
            for op in range(at, past):
                start[op], end[op] = ready, finish
                done = op
                ended += 1
                if role[op] == SEND:
                    done = match[op]
                    start[done], end[done] = ready, finish + then[op]
                    ended += 1
                next_rank = waiter[done]
                while next_rank != NONE:
                    stack[top] = next_rank
                    top += 1
                    next_rank = following[next_rank]
            at = past
        cursor[rank] = at
    return ended


@inlined
def _ready(at: int, past: int, need_offsets: Ints, need: Ints, end: Floats, free: float) -> tuple[float, int]:
    """When operations that run as one can begin, and one that they still wait for."""
    missing = NONE
    for place in range(need_offsets[at], need_offsets[past]):
        needed = need[place]
        if np.isnan(end[needed]):
            missing = needed
            break
        free = max(free, end[needed])
    return free, missing
