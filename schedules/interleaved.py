"""Interleaved 1F1B (Narayanan et al. 2021, arXiv 2104.04473, section 2.2; warm-up as in Megatron-LM)."""

from __future__ import annotations

import numpy as np

from pipesim.ir.placement import looped
from pipesim.ir.schedule import Schedule
from pipesim.schedules.constraints import Unsuitable
from pipesim.schedules.weave import Passes, weave


def interleaved(
    *, ranks: int, microbatches: int, virtual: int = 2, group: int | None = None, overlap: bool = False
) -> Schedule:
    """Each rank holds v stages p apart; groups of N microbatches go through a stage before the next stage runs.

    Thinner stages fill and drain the pipeline v times faster, for v times the messages and more
    activations in flight. N = p (the default where p divides m) is depth-first, N = m breadth-first.
    overlap: one forward more before the first backward, so that the backward and the forward that follows it
        are of different microbatches and their communication can hide behind each other (Megatron-LM's
        overlap of expert-parallel communication).
    Raises Unsuitable where the last group would be smaller than p.
    """
    size = group_size("interleaved", ranks, microbatches, group)
    rows = []
    for rank in range(ranks):
        forwards, backwards = visits(rank, ranks, microbatches, virtual, size)
        warmup = 2 * (ranks - rank - 1) + (virtual - 1) * size + (1 if overlap else 0)
        rows.append(weave(forwards, backwards, min(warmup, len(forwards))))
    return Schedule.of_rows("interleaved", looped(ranks, virtual), microbatches, rows)


def group_size(family: str, ranks: int, microbatches: int, group: int | None) -> int:
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
        family,
        f"microbatches {microbatches} in groups of {size} on {ranks} ranks",
        f"every group, the last one too, must have at least {min(ranks, microbatches)} microbatches",
        f"a group size of {' or '.join(map(str, sorted(nearest)))}, or {' or '.join(map(str, multiples))} microbatches",
    )


def _fits(ranks: int, microbatches: int, size: int) -> bool:
    least = min(ranks, microbatches)
    rest = microbatches % size if size > 0 else 0
    return least <= size <= microbatches and (rest == 0 or rest >= least)


def visits(rank: int, ranks: int, microbatches: int, virtual: int, size: int) -> tuple[Passes, Passes]:
    """Forwards and backwards of a rank, each in order: group by group, all its stages for each group."""
    full, rest = divmod(microbatches, size)
    whole = np.arange(full * size).reshape(full, 1, size).repeat(virtual, axis=1).ravel()
    chunk = np.tile(np.repeat(np.arange(virtual), size), full)
    microbatch = np.concatenate([whole, np.tile(np.arange(full * size, microbatches), virtual)])
    chunk = np.concatenate([chunk, np.repeat(np.arange(virtual), rest)])
    last = virtual - 1
    return Passes(rank + ranks * chunk, microbatch), Passes(rank + ranks * (last - chunk), microbatch)
