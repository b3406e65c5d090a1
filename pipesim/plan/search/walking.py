"""Times of a given order of actions, compiled: each rank as far as it can go, from any moment on.

The meaning is that of `pipesim.engine.walk`, over action numbers instead of a schedule's columns.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pipesim.engine.compiled import compiled
from pipesim.plan.search.arrays import NONE, Actions
from pipesim.plan.search.problem import FIT

Ints = NDArray[np.integer]
Floats = NDArray[np.float64]

_ROUNDING = 1.0 + 1e-12  # a bound on the end may be off by the rounding of sums


class Times(NamedTuple):
    """By action its start, its end and when its message arrives; by rank and channel when each is free."""

    start: Floats
    end: Floats
    arrival: Floats
    clock: Floats
    free: Floats


@compiled
def no_times(actions: Actions) -> Times:
    """Times of an order of which nothing has been timed."""
    size, ranks = len(actions.remote), len(actions.limit)
    return Times(
        np.zeros(size), np.zeros(size), np.full(size, np.inf), np.zeros(ranks), np.zeros(actions.channels)
    )  # fmt: skip


@compiled
def walk(actions: Actions, order: Ints, times: Times, cursor: Ints, rest: Floats, allowed: float) -> float:
    """Fill in the times of all actions from `cursor` (by rank) on; the last end with its tail.

    Before: arrivals of these actions are infinite, clocks and channels as the actions before them left them.
    rest: by place the least time from the end of its action to the last end; empty to look at nothing.
    Infinite where the order cannot be run, or where the end is later than `allowed` for sure.
    """
    offsets, remote, _, _, seconds, channel, _, hold, latency = actions[:9]
    start, end, arrival, clock, free = times
    ranks, left, bounded = len(cursor), 0, len(rest) > 0
    stack, top = np.arange(ranks), ranks
    for rank in range(ranks):
        left += offsets[rank + 1] - cursor[rank]
    while top:
        top -= 1
        rank = stack[top]
        now, place, last = clock[rank], cursor[rank], offsets[rank + 1]
        left -= last - place
        while place < last:
            action = order[place]
            needed, begin = remote[action], now
            if needed != NONE:
                came = arrival[needed]
                if came < 0 or came == np.inf:
                    arrival[needed] = -1.0 - rank  # who waits for it
                    break
                begin = max(begin, came)
            now = begin + seconds[action]
            if bounded and now + rest[place] > allowed * _ROUNDING:
                return np.inf
            start[action], end[action] = begin, now
            way = channel[action]
            if way != NONE:
                waiting = arrival[action]
                free[way] = max(now, free[way]) + hold[action]
                arrival[action] = free[way] + latency[action]
                if waiting < 0:
                    stack[top] = -1 - int(waiting)
                    top += 1
            place += 1
        left += last - place
        cursor[rank], clock[rank] = place, now
    return (clock + actions.tail).max() if left == 0 else np.inf


@compiled
def time_order(actions: Actions, order: Ints) -> tuple[float, Times]:
    """Times of a whole order and its last end with tail, infinite where it cannot be run."""
    times = no_times(actions)
    return walk(actions, order, times, actions.offsets[:-1].copy(), np.zeros(0), np.inf), times


@compiled
def fits(actions: Actions, order: Ints) -> bool:
    """Whether an order stays within the limit of every rank, lets no recomputed backward wait for its W, and has
    what an action needs of its own rank before it."""
    offsets, limit = actions.offsets, actions.limit
    done = np.zeros(len(actions.own), np.bool_)
    for action in order:
        own, local = actions.own[action], actions.local[action]
        if (own != NONE and not done[own]) or (local != NONE and not done[local]):
            return False
        done[action] = True
    for rank in range(len(limit)):
        if not fits_part(actions, order, offsets[rank], offsets[rank + 1], 0.0, limit[rank], offsets[rank + 1]):
            return False
    return True


@compiled
def fits_part(actions: Actions, order: Ints, first: int, last: int, held: float, limit: float, past: int) -> bool:
    """The same for the places first … last-1 of a rank that holds `held` before and ends at `past`."""
    change, kind_stage, at_once = actions.change, actions.kind_stage, actions.at_once
    stages = 2 * (kind_stage[-1] + 1) // 3  # numbers of W kinds begin here, those of I at half of it
    for place in range(first, last):
        action = order[place]
        held += change[action]
        if held > limit * FIT:
            return False
        if at_once[action] and stages // 2 <= kind_stage[action] < stages:
            size = len(kind_stage) // 3
            if place + 1 == past or order[place + 1] != action + size:
                return False
    return True
