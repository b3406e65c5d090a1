"""1F1B-V (Qi et al. 2024, arXiv 2405.15362): the V shape without splitting the backward."""

from __future__ import annotations

import numpy as np

from pipesim.ir.action import Kind
from pipesim.ir.placement import vee
from pipesim.ir.schedule import Schedule
from pipesim.schedules.building_block import PERIOD, stretched
from pipesim.schedules.constraints import require_counts
from pipesim.schedules.weave import Passes, in_order

_F_DOWN, _F_UP, _B_UP, _B_DOWN = range(4)  # in the order in which a microbatch passes them
_TAKES = (1, 1, 2, 2)  # slots


def one_f_one_b_v(*, ranks: int, microbatches: int) -> Schedule:
    """Two stages a rank in a V, whole backwards: about two thirds of the activations of 1F1B.

    A block of one microbatch's passes, each directly after the one before wherever its rank is free, is
    repeated every six slots; passes then move to earlier slots, as far as memory allows. Built for F = 1 and
    B = 2.
    """
    require_counts("1f1b-v", ranks=ranks, microbatches=microbatches)
    enough = 6 * ranks + 6
    squeeze = _Squeeze(_block(ranks), min(microbatches, enough))
    squeeze.run()
    rows = []
    for rank, row in enumerate(squeeze.slots):
        slots = [np.array(of_kind) for of_kind in row]
        if microbatches > enough:
            slots = [stretched(of_kind, microbatches) for of_kind in slots]
        up = 2 * ranks - 1 - rank
        rows.append(
            in_order(
                *(
                    (kind, Passes(np.full(microbatches, stage), np.arange(microbatches)), of_kind)
                    for kind, stage, of_kind in zip(
                        (Kind.F, Kind.F, Kind.B, Kind.B), (rank, up, up, rank), slots, strict=True
                    )
                )
            )
        )
    return Schedule.of_rows("1f1b-v", vee(ranks), microbatches, rows)


def _block(ranks: int) -> list[list[int]]:
    """Per rank the slots of F down, F up, B up and B down; backwards jump over the slots that forwards take."""
    slots = [[0] * len(_TAKES) for _ in range(ranks)]
    down, up = range(ranks), range(ranks - 1, -1, -1)
    slot = PERIOD + 1  # room for forwards to move to
    for kind, order in ((_F_DOWN, down), (_F_UP, up)):
        for rank in order:
            slots[rank][kind] = slot
            slot += 1
    slot += 4 if ranks % 3 == 0 else 1
    since_jump = -(ranks + 2) % 3
    for kind, order in ((_B_UP, down), (_B_DOWN, up)):
        for rank in order:
            slots[rank][kind] = slot
            since_jump = (since_jump + 1) % 3
            slot += 5 if since_jump == 0 else 2
    return slots


class _Squeeze:
    """Move passes to earlier slots, from the first to the last, so that no rank holds more than one did before."""

    def __init__(self, block: list[list[int]], microbatches: int) -> None:
        repeats = range(0, PERIOD * microbatches, PERIOD)
        self.slots = [[[first + later for later in repeats] for first in row] for row in block]
        length = max(map(max, block)) + PERIOD * microbatches + 2
        self.taken = [[False] * length for _ in block]
        self.held = [self._occupy(rank, length) for rank in range(len(block))]
        self.peak = max(map(max, self.held))

    def _occupy(self, rank: int, length: int) -> list[int]:
        """Mark the slots a rank uses; the activations it holds after each slot, in stages."""
        change = np.zeros(length, np.int64)
        for kind, slots in enumerate(self.slots[rank]):
            for slot in slots:
                self.taken[rank][slot] = self.taken[rank][slot + _TAKES[kind] - 1] = True
                change[slot + _TAKES[kind] - 1] += 1 if kind <= _F_UP else -1
        return np.cumsum(change).tolist()  # type: ignore[no-any-return]

    def run(self) -> None:
        passes = [
            (slot, rank, kind, microbatch)
            for rank, row in enumerate(self.slots)
            for kind, slots in enumerate(row)
            for microbatch, slot in enumerate(slots)
        ]
        for slot, rank, kind, microbatch in sorted(passes):
            earliest = self._after_needs(rank, kind, microbatch)
            if kind <= _F_UP:
                self._move_forward(rank, kind, microbatch, slot, earliest)
            else:
                self._move_backward(rank, kind, microbatch, slot, earliest)

    def _after_needs(self, rank: int, kind: int, microbatch: int) -> int:
        """The first slot after what a pass needs, and after the same pass of the microbatch before."""
        needs = []
        if kind > _F_DOWN:
            needs.append((rank, kind - 1, microbatch))
        neighbour = rank - 1 if kind in (_F_DOWN, _B_UP) else rank + 1
        if 0 <= neighbour < len(self.slots):
            needs.append((neighbour, kind, microbatch))
        if microbatch:
            needs.append((rank, kind, microbatch - 1))
        return max((self.slots[r][k][m] + _TAKES[k] for r, k, m in needs), default=0)

    def _move_forward(self, rank: int, kind: int, microbatch: int, slot: int, earliest: int) -> None:
        held, better = self.held[rank], slot
        while better > earliest and held[better - 1] < self.peak:
            better -= 1
        better = next((at for at in range(better, slot) if not self.taken[rank][at]), slot)
        self.taken[rank][slot], self.taken[rank][better] = False, True
        self.slots[rank][kind][microbatch] = better
        for between in range(better, slot):
            held[between] += 1

    def _move_backward(self, rank: int, kind: int, microbatch: int, slot: int, earliest: int) -> None:
        taken = self.taken[rank]
        better = next((at for at in range(earliest, slot) if not taken[at] and not taken[at + 1]), slot)
        taken[slot] = taken[slot + 1] = False
        taken[better] = taken[better + 1] = True
        self.slots[rank][kind][microbatch] = better
        for between in range(better + 1, slot + 1):
            self.held[rank][between] -= 1
