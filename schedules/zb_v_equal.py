"""The order of ZB-V for equal times (Qi et al. 2023, arXiv 2401.10241, section 6; as in torch)."""

from __future__ import annotations

import numpy as np

from pipesim.ir.action import Kind
from pipesim.ir.atoms import Atoms, Ints
from pipesim.ir.placement import vee
from pipesim.ir.schedule import Schedule
from pipesim.schedules.weave import Passes, in_order


def zb_v_equal(*, ranks: int, microbatches: int) -> Schedule:
    """Once warm, each rank runs F I W of its down stage and F I W of its up stage in turn."""
    rows = [_row(rank, ranks, microbatches) for rank in range(ranks)]
    return Schedule.of_rows("zb-v", vee(ranks), microbatches, rows)


def _row(rank: int, ranks: int, microbatches: int) -> Atoms:
    """Keys count the half places of turns of six actions: F I W down, F I W up; turn 0 is the first whole one.

    Fewer than 2p-1 microbatches leave out the actions of those that are missing.
    """
    total = max(microbatches, 2 * ranks - 1)
    n = np.arange(total)
    down, up = Passes(np.full(total, rank), n), Passes(np.full(total, 2 * ranks - 1 - rank), n)
    turn = n - (ranks - rank)  # in which the n-th gradient of the up stage is made
    ends = total - ranks  # turns there are; after them weight gradients wait for input gradients
    row = in_order(
        (Kind.F, down, _down_forwards(rank, ranks, n)),
        (Kind.I, down, _place(n, 1)),
        (
            Kind.W,
            down,
            np.where(
                n < ends, _place(n, 2), np.where(n < ends + ranks - rank, _place(n + rank, 2), _place(n + 3 * ranks, 2))
            ),
        ),
        (Kind.F, up, _place(n - ranks, 3)),
        (Kind.I, up, _place(turn, 4)),
        (Kind.W, up, np.where(turn < ends, _place(turn, 5), _place(n + 2 * ranks, 5))),
    )
    return row.take(np.flatnonzero(row.microbatch < microbatches))


def _down_forwards(rank: int, ranks: int, n: Ints) -> Ints:
    """2(p-r)-1 at once, then one after each of the first r forwards of the up stage, then one a turn."""
    at_once, warmup = 2 * (ranks - rank) - 1, 2 * ranks - 1 - rank
    return np.where(n < warmup, _place(n - at_once - ranks, 3) + 1, _place(n - warmup, 0))


def _place(turn: Ints, place: int) -> Ints:
    return 12 * turn + 2 * place
