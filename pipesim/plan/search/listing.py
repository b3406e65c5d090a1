"""List scheduling, compiled: one action after the other, the most urgent of those that nothing can overtake.

Memory cannot lock it up. A forward goes ahead only if its rank can still take one microbatch through each of
its deeper stages (`_leaves_room`). Suppose nothing can go ahead and something is left. Then no gradient is on its
way, or the action that it waits for could run; so every microbatch that has begun waits for a forward. Take the
deepest such stage: nothing is held for a microbatch that has passed it, and what its rank holds for the others
was let in with room left for this stage. So this forward can go ahead.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pipesim.engine.compiled import compiled, inlined
from pipesim.plan.search.arrays import NONE, Stages
from pipesim.plan.search.problem import FIT, F, I, W

Ints = NDArray[np.integer]
Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]


class Rules(NamedTuple):
    """How to choose.

    Of the actions of a rank that can start before a part `patience` of the way to the first end, the one of
    lowest `priority` (3, stages, most) is next: 0 never lets a rank wait that has something to do, 1 makes active
    schedules (Giffler and Thompson 1960). promote: a weight gradient is as urgent as a forward that waits for room.
    """

    priority: Floats
    patience: float
    promote: bool


@compiled
def list_schedule(fixed: Stages, rules: Rules, start: Floats, order: Ints, offsets: Ints) -> float:
    """Fill in starts (3, stages, most) and the order of each rank; the last end with its tail.

    Infinite where the limit is too small for one microbatch.
    """
    # Taken apart here: compiled code counts references at each look into a tuple.
    length, kinds, counts, rank_of, at, stages, place_of, seconds, latency, hold, channel, channels = fixed[:12]
    take, taken, part, reserve, limit, tail, at_once = fixed[12:]
    priority, patience, promote = rules
    ranks, every, most = len(at) - 1, len(counts), seconds.shape[2]
    done, chosen = np.zeros((3, every), np.int64), np.zeros(ranks, np.int64)
    arrival, ready, begin = np.full((2, every, most), np.inf), np.full((3, every), np.inf), np.zeros((3, every))
    clock, held, ending, free = np.zeros(ranks), np.zeros(ranks), np.zeros(ranks), np.zeros(channels)
    stale = np.ones(ranks, np.bool_)  # whose choice must be made again
    cursor = offsets[:-1].copy()
    for stage in range(0, every, length):
        arrival[F, stage] = 0.0
        ready[F, stage] = 0.0 if counts[stage] else np.inf
    for _ in range(offsets[-1]):
        best, soonest = NONE, np.inf
        for rank in range(ranks):
            if stale[rank]:
                stale[rank] = False
                ending[rank], chosen[rank] = _choose(
                    rank, begin, ready, done, clock[rank], held[rank], priority, patience, promote,
                    kinds, at, stages, place_of, seconds, take, at_once, length, taken, reserve, limit,
                )  # fmt: skip
            if ending[rank] < soonest:
                best, soonest = rank, ending[rank]
        if best == NONE:
            return np.inf
        kind, stage = chosen[best] // every, chosen[best] % every
        place = done[kind, stage]
        order[cursor[best]] = (kind * every + stage) * most + place
        cursor[best] += 1
        done[kind, stage] += 1
        start[kind, stage, place] = begin[kind, stage]
        clock[best] = end = begin[kind, stage] + seconds[kind, stage, place]
        given = -1.0 if kind == F else part[stage] if kind == I else 1.0 - part[stage]
        held[best] -= given * take[stage, place]
        to = NONE
        if kind == F:
            ready[F, stage] = arrival[F, stage, place + 1] if place + 1 < counts[stage] else np.inf
            to = stage + 1 if (stage + 1) % length else NONE
            if to == NONE:
                arrival[I, stage, place] = end
            _refresh(I, stage, ready, done, arrival)
        elif kind == I:
            _refresh(I, stage, ready, done, arrival)
            ready[W, stage] = 0.0
            to = stage - 1 if stage % length else NONE
        elif place + 1 == done[I, stage]:
            ready[W, stage] = np.inf
        if to != NONE:
            _hand_on(kind, stage, to, place, end, ready, done, arrival, free, channel, hold, latency)
            stale[rank_of[to]] = True
        stale[best] = True
        if every > length:
            stale[:] = True  # a forward elsewhere may make room for one of the other direction
    return float((clock + tail).max())


@inlined
def _refresh(kind: int, stage: int, ready: Floats, done: Ints, arrival: Floats) -> None:
    """When the gradient of the next input gradient of a stage is there, whose forward must be done."""
    place = done[kind, stage]
    ready[kind, stage] = arrival[kind, stage, place] if place < done[F, stage] else np.inf


@inlined
def _hand_on(
    kind: int, stage: int, to: int, place: int, moment: float, ready: Floats, done: Ints, arrival: Floats,
    free: Floats, channel: Ints, hold: Floats, latency: Floats,
) -> None:  # fmt: skip
    """An activation or a gradient that a stage has made for another one, and when it is there."""
    way = channel[kind, stage]
    if way != NONE:
        free[way] = max(free[way], moment) + hold[kind, stage]
        moment = free[way] + latency[kind, stage]
    arrival[kind, to, place] = moment
    if kind == F and done[F, to] == place:
        ready[F, to] = moment
    elif kind == I:
        _refresh(I, to, ready, done, arrival)


@inlined
def _choose(
    rank: int, begin: Floats, ready: Floats, done: Ints, clock: float, held: float, priority: Floats, patience: float,
    promote: bool, kinds: int, at: Ints, stages: Ints, place_of: Ints, seconds: Floats, take: Floats, at_once: Flags,
    length: int, taken: Floats, reserve: Floats, limit: Floats,
) -> tuple[float, int]:  # fmt: skip
    """The first end of an action that a rank can do next, and what it does; `begin` says when each can start."""
    room, earliest, ending, urgent = limit[rank] * FIT - held, np.inf, np.inf, np.inf
    for where in range(at[rank], at[rank + 1]):
        stage = stages[where]
        for kind in range(kinds):
            place = done[kind, stage]
            begin[kind, stage] = np.inf
            if ready[kind, stage] < np.inf:
                fits = True
                if kind == F and take[stage, place] > room:
                    fits, urgent = False, min(urgent, priority[F, stage, place])
                elif kind == F:
                    fits = _leaves_room(
                        stage, place, rank, done, at, stages, place_of, length, take, taken, reserve, limit
                    )  # fmt: skip
                if fits:
                    first = max(clock, ready[kind, stage])
                    begin[kind, stage] = first
                    earliest, ending = min(earliest, first), min(ending, first + seconds[kind, stage, place])
    until, lowest, chosen = earliest + patience * (ending - earliest), np.inf, NONE
    for where in range(at[rank], at[rank + 1]):
        stage = stages[where]
        for kind in range(kinds):
            if begin[kind, stage] < np.inf and begin[kind, stage] <= until:
                place = done[kind, stage]
                value = priority[kind, stage, place]
                if kind == W and promote:
                    value = min(value, urgent)
                if kind == W and at_once[stage, place]:
                    value = -np.inf
                if chosen == NONE or value < lowest:
                    lowest, chosen = value, kind * done.shape[1] + stage
    return ending, chosen


@inlined
def _leaves_room(
    stage: int, place: int, rank: int, done: Ints, at: Ints, stages: Ints, place_of: Ints, length: int,
    take: Floats, taken: Floats, reserve: Floats, limit: Floats,
) -> bool:  # fmt: skip
    """Whether a forward leaves room for one microbatch in each deeper stage of its rank.

    For each deeper stage, what is held for microbatches that have yet to pass it and one more activation of that
    stage and each beyond must fit.
    """
    leaves = True
    for deeper in range(at[rank] + place_of[stage] + 1, at[rank + 1]):
        depth, outbound = stages[deeper] % length, take[stage, place]
        for where in range(at[rank], deeper):
            other = stages[where]
            passed = done[F, other - other % length + depth]
            if done[F, other] > passed:
                outbound += taken[other, done[F, other]] - taken[other, passed]
        leaves = leaves and outbound + reserve[deeper] <= limit[rank] * FIT
    return leaves
