"""Moves of local search, compiled: which neighbouring actions of a rank to swap, one after the other."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pipesim.engine.compiled import compiled, inlined
from pipesim.plan.search.arrays import Actions

Ints = NDArray[np.integer]

_REACH = 6  # places an action is moved by at most


@compiled
def move(
    actions: Actions,
    random: np.random.Generator,
    order: Ints,
    segment: Ints,
    place: int,
    rank: int,
    stride: int,
    swaps: Ints,
) -> int:
    """A random move at a place: fill in which places to swap with the one before, one after the other; how many.

    The places grow or shrink from the first to the last.
    segment: by place; no action leaves its segment. stride: 0 for the move of one action, n for the same swap at every
    n-th microbatch.
    """
    if place == actions.offsets[rank]:
        return 0
    if stride:
        return _swap_alike(actions, random, order, place, rank, stride, swaps)
    return _shift(actions, random, order, segment, place, rank, swaps)


@compiled
def swap(order: Ints, swaps: Ints, first: int, past: int, step: int) -> None:
    """Swap each of these places, first … past in steps, with the one before it."""
    for turn in range(first, past, step):
        place = swaps[turn]
        order[place - 1], order[place] = order[place], order[place - 1]


@compiled
def _shift(
    actions: Actions, random: np.random.Generator, order: Ints, segment: Ints, place: int, rank: int, swaps: Ints
) -> int:
    """The action at a place goes ahead of some before it, or the one before it goes behind some."""
    begin, past = actions.offsets[rank], actions.offsets[rank + 1]
    ahead = random.random() < 0.5
    reach = 1 + random.integers(0, _REACH) if random.random() < 0.5 else 1
    moved, here, count = order[place] if ahead else order[place - 1], place, 0
    while begin < here < past and count < reach and segment[here - 1] == segment[here]:
        one, two = (order[here - 1], moved) if ahead else (moved, order[here])
        if not _may_swap(actions, one, two):
            break
        swaps[count] = here
        count += 1
        here += -1 if ahead else 1
    return count


@compiled
def _swap_alike(
    actions: Actions, random: np.random.Generator, order: Ints, place: int, rank: int, stride: int, swaps: Ints
) -> int:
    """A pair and all like it: the same kinds and stages, microbatches as far apart, every `stride` microbatches."""
    kind_stage, one, two = actions.kind_stage, order[place - 1], order[place]
    if not _may_swap(actions, one, two):
        return 0
    first, last, chance = actions.offsets[rank] + 1, actions.offsets[rank + 1], random.random()
    if chance < 0.2:
        first = place  # from here on
    elif chance < 0.4:
        last = place + 1  # up to here
    apart, count, here = two - one, 0, first
    while here < last:
        earlier, later = order[here - 1], order[here]
        alike = kind_stage[earlier] == kind_stage[one] and kind_stage[later] == kind_stage[two]
        if alike and later - earlier == apart and (earlier - one) % stride == 0:
            swaps[count] = here
            count += 1
            here += 1  # no action is in two pairs
        here += 1
    return count


@inlined
def _may_swap(actions: Actions, one: int, two: int) -> bool:
    """Whether `two`, which stands behind `one`, may stand before it: unless it needs it, or is of the same kind
    and stage."""
    apart = actions.kind_stage[one] != actions.kind_stage[two]
    return bool(apart and actions.own[two] != one and actions.local[two] != one)  # fmt: skip
