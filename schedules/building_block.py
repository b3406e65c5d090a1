"""Schedules of the V shape made by repeating a building block and squeezing its ends.

"Pipeline Parallelism with Controllable Memory" (Qi et al. 2024, arXiv 2405.15362): one microbatch's passes get
fixed slots of unit time; the next microbatch's are six slots later. How far apart the passes are decides the
memory. Repeating the block leaves gaps while the pipeline fills and drains: there passes move to the first free
slot that their needs allow and that does not raise the peak.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from pipesim.ir.action import Kind
from pipesim.ir.atoms import Atoms, Ints
from pipesim.ir.placement import vee
from pipesim.ir.schedule import Schedule
from pipesim.schedules.weave import Passes, in_order

PERIOD = 6  # slots: F, I and W of two stages
_F_DOWN, _F_UP, _I_UP, _I_DOWN, _W = range(5)  # in the order in which a microbatch passes them

Block = Sequence[tuple[int, int, int, int]]  # per rank the slots of F down, F up, I up and I down
Row = list[Ints]  # of a rank, per kind of pass, the slots by microbatch


def from_block(name: str, ranks: int, microbatches: int, block: Callable[[int], Block]) -> Schedule:
    """The schedule of a building block; the middle of a long step is the block itself, repeated."""
    enough = 4 * ranks + 6
    rows = _split_weights(_squeezed(block(ranks), min(microbatches, enough)))
    if microbatches > enough:
        rows = [[stretched(slots, microbatches) for slots in row] for row in rows]
    return Schedule.of_rows(
        name, vee(ranks), microbatches, [_in_order(rank, ranks, row) for rank, row in enumerate(rows)]
    )


def _squeezed(block: Block, microbatches: int) -> list[Row]:
    repeats = PERIOD * np.arange(microbatches)
    rows: list[Row] = [[slot + repeats for slot in slots] for slots in block]
    rows = _closed_up(_Squeeze([[*row, _gaps(row)] for row in rows], warmup=True).run())
    rows = _Squeeze([row[:_W] for row in rows], warmup=False).run()
    return _closed_up([[*row, _gaps(row)] for row in rows])


def stretched(slots: Ints, microbatches: int) -> Ints:
    """Repeat what lies between two microbatches in the middle."""
    half, more = len(slots) // 2, microbatches - len(slots)
    assert slots[half] - slots[half - 1] == PERIOD
    middle = slots[half] + PERIOD * np.arange(more)
    return np.concatenate([slots[:half], middle, slots[half:] + PERIOD * more])


def _in_order(rank: int, ranks: int, row: Row) -> Atoms:
    down, up = rank, 2 * ranks - 1 - rank
    parts = zip((Kind.F, Kind.F, Kind.I, Kind.I, Kind.W, Kind.W), (down, up, up, down, up, down), row, strict=True)
    return in_order(
        *((kind, Passes(np.full(len(slots), stage), np.arange(len(slots))), slots) for kind, stage, slots in parts)
    )


def _gaps(row: Row) -> Ints:
    """Slots of the weight gradients: free ones, as soon as there is an input gradient before; the rest at the end."""
    taken, gradients = set(np.concatenate(row).tolist()), set(np.concatenate(row[_I_UP:]).tolist())
    found: list[int] = []
    waiting = slot = 0
    while len(found) < len(gradients):
        if slot in taken:
            waiting += slot in gradients
        elif waiting:
            found.append(slot)
            waiting -= 1
        slot += 1
    return np.array(found)


def _split_weights(rows: list[Row]) -> list[Row]:
    """Say which stage each weight gradient is of: the up stage's come first where both wait."""
    done = []
    for row in rows:
        gradients = [row[_I_UP].tolist(), row[_I_DOWN].tolist()]
        found: tuple[list[int], list[int]] = ([], [])
        for slot in _gaps(row[:_W]).tolist():
            up = len(found[0]) < len(gradients[0]) and gradients[0][len(found[0])] < slot
            found[0 if up else 1].append(slot)
        done.append([*row[:_W], np.array(found[0]), np.array(found[1])])
    return done


def _passes(rows: list[Row]) -> list[tuple[int, int, int, int]]:
    """(slot, rank, kind, microbatch) of all passes, by time."""
    return sorted(
        (slot, rank, kind, microbatch)
        for rank, row in enumerate(rows)
        for kind, slots in enumerate(row)
        for microbatch, slot in enumerate(slots.tolist())
    )


def _closed_up(rows: list[Row]) -> list[Row]:
    """The same orders without needless gaps, every pass taking one slot."""
    closed = [[np.full_like(slots, -1) for slots in row] for row in rows]
    free = [0] * len(rows)
    for _, rank, kind, microbatch in _passes(rows):
        slot = max(free[rank], _after_needs(closed, rank, kind, microbatch))
        closed[rank][kind][microbatch] = slot
        free[rank] = slot + 1
    return closed


def _after_needs(rows: list[Row], rank: int, kind: int, microbatch: int) -> int:
    """The first slot after what a pass needs, and after the same pass of the microbatch before."""
    row, needs = rows[rank], [-1]
    if kind == _W:
        needs.append(int(np.partition(np.concatenate(row[_I_UP:_W]), microbatch)[microbatch]))
    elif kind > 0:
        needs.append(int(row[kind - 1][microbatch]))
    neighbour = rank - 1 if kind in (_F_DOWN, _I_UP) else rank + 1
    if kind != _W and 0 <= neighbour < len(rows):
        needs.append(int(rows[neighbour][kind][microbatch]))
    if microbatch:
        needs.append(int(row[kind][microbatch - 1]))
    return max(needs) + 1


def _peak(row: Row) -> int:
    """Most activations held, in stages; weight gradients that have no slots yet run in the gaps."""
    slots = max(int(slots.max()) for slots in row) + 2
    held = _running_count(row[:_I_UP], slots)
    if len(row) > _W:
        return int((held - _running_count(row[_W:], slots)).max())
    gradients = _running_count(row[_I_UP:], slots)
    busy = np.zeros(slots, np.bool_)
    busy[np.concatenate(row)] = True
    gaps = np.cumsum(~busy)
    unused = np.maximum.accumulate(np.maximum(0, gaps - gradients))
    return int((held - (gaps - unused)).max())


def _running_count(kinds: list[Ints], slots: int) -> Ints:
    """How many passes have begun by each slot."""
    return np.cumsum(np.bincount(np.concatenate(kinds), minlength=slots))


class _Squeeze:
    """Move passes to earlier slots, from the first to the last, without a higher peak than before.

    Only while the pipeline fills (until rank 0's first input gradient of its down stage; if `warmup`) and
    drains (after the last forward has started): between, the repeated block is as dense as it can be.
    """

    def __init__(self, rows: list[Row], *, warmup: bool) -> None:
        self.rows, self.passes = rows, _passes(rows)
        self.peak = max(map(_peak, rows))
        self.taken = [set[int]() for _ in rows]
        count = len(self.passes)
        last = len(rows[0][_F_DOWN]) - 1
        self.steady = next(i for i, (_, rank, kind, _) in enumerate(self.passes) if (rank, kind) == (0, _I_DOWN))
        self.drain = next((i for i in range(self.steady, count) if self.passes[i][2:] == (_F_DOWN, last)), count)
        self.steady = self.steady if warmup else 0

    def run(self) -> list[Row]:
        for index, (slot, rank, kind, microbatch) in enumerate(self.passes):
            if index < self.steady or index > self.drain:
                slot = self._earlier(slot, rank, kind, microbatch)
            self.taken[rank].add(slot)
        return self.rows

    def _earlier(self, slot: int, rank: int, kind: int, microbatch: int) -> int:
        row = self.rows[rank]
        for better in range(_after_needs(self.rows, rank, kind, microbatch), slot):
            if better not in self.taken[rank]:
                row[kind][microbatch] = better
                if _peak(row) <= self.peak:
                    return better
        row[kind][microbatch] = slot
        return slot
