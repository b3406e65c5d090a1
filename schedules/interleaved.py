"""Interleaved 1F1B (Narayanan et al. 2021, arXiv 2104.04473, section 2.2; warm-up as in Megatron-LM)."""

from __future__ import annotations

import numpy as np

from pipesim.ir.action import Kind
from pipesim.ir.atoms import Atoms, Ints
from pipesim.ir.placement import looped
from pipesim.ir.schedule import Schedule
from pipesim.schedules.constraints import Unsuitable


def interleaved(*, ranks: int, microbatches: int, virtual: int = 2, group: int | None = None) -> Schedule:
    """Each rank holds v stages p apart; groups of N microbatches go through a stage before the next stage runs.

    Thinner stages fill and drain the pipeline v times faster, for v times the messages and more
    activations in flight. N = p (the default where p divides m) is depth-first, N = m breadth-first.
    Raises Unsuitable where the last group would be smaller than p.
    """
    size = group_size(ranks, microbatches, group)
    chunk, microbatch = visits(microbatches, virtual, size)
    total = len(chunk)
    rows = []
    for rank in range(ranks):
        warmup = min(2 * (ranks - rank - 1) + (virtual - 1) * size, total)
        rows.append(_row(rank, ranks, warmup, chunk, virtual - 1 - chunk, microbatch))
    return Schedule.of_rows("interleaved", looped(ranks, virtual), microbatches, rows)


def group_size(ranks: int, microbatches: int, group: int | None) -> int:
    """The group size N asked for, or p where p divides m, or m cut into m // p equal groups.

    Raises Unsuitable with the nearest values that work.
    """
    rounds = max(1, microbatches // ranks)
    if group is None and microbatches % rounds == 0:
        return microbatches // rounds
    size = ranks if group is None else group
    if _fits(ranks, microbatches, size):
        return size
    sizes = [n for n in range(1, microbatches + 1) if _fits(ranks, microbatches, n)]
    nearest = sorted(sizes, key=lambda n: (abs(n - size), n))[:3]
    multiples = sorted({microbatches // ranks * ranks, (microbatches // ranks + 1) * ranks} - {0})
    raise Unsuitable(
        "interleaved",
        f"microbatches {microbatches} in groups of {size} on {ranks} ranks",
        f"every group, the last one too, must have at least {min(ranks, microbatches)} microbatches",
        f"a group size of {' or '.join(map(str, sorted(nearest)))}, "
        f"or {' or '.join(map(str, multiples))} microbatches",
    )


def _fits(ranks: int, microbatches: int, size: int) -> bool:
    least = min(ranks, microbatches)
    rest = microbatches % size if size > 0 else 0
    return least <= size <= microbatches and (rest == 0 or rest >= least)


def visits(microbatches: int, virtual: int, size: int) -> tuple[Ints, Ints]:
    """Chunk and microbatch of each forward a rank does, in order."""
    chunks, order = [], []
    for start in range(0, microbatches, size):
        members = np.arange(start, min(start + size, microbatches))
        chunks.append(np.repeat(np.arange(virtual), len(members)))
        order.append(np.tile(members, virtual))
    return np.concatenate(chunks), np.concatenate(order)


def _row(
    rank: int, ranks: int, warmup: int, forward_chunk: Ints, backward_chunk: Ints, microbatch: Ints
) -> Atoms:
    total = len(microbatch)
    steady = total - warmup
    is_forward = np.zeros(2 * total, np.bool_)
    is_forward[:warmup] = True
    is_forward[warmup : warmup + 2 * steady : 2] = True
    stage = np.empty(2 * total, np.int32)
    order = np.empty(2 * total, np.int32)
    for mine, chunk in ((is_forward, forward_chunk), (~is_forward, backward_chunk)):
        stage[mine] = rank + ranks * chunk
        order[mine] = microbatch
    return Atoms.of(np.where(is_forward, Kind.F, Kind.B), stage, order)
