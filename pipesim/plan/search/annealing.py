"""Local search on orders, compiled: change the critical path, keep what is no worse, sometimes what is.

A move swaps neighbours on a rank (Van Laarhoven, Aarts and Lenstra 1992, on job shops), of one microbatch or of
every n-th alike, which keeps an order periodic. Only what starts after the first place of a move is timed again,
and that stops as soon as a rank cannot end in time.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pipesim.engine.compiled import compiled
from pipesim.plan.search.arrays import NONE, Actions
from pipesim.plan.search.moves import move, swap
from pipesim.plan.search.walking import Times, fits_part, no_times, walk

Ints = NDArray[np.integer]
Floats = NDArray[np.float64]

_AWAY = 0.1  # part of the moves that are not on the critical path
_SAME = 1e-12  # part of the last end by which equal times may differ


class Cooling(NamedTuple):
    """iterations at temperatures (seconds) from hot to cold; stride as for `move`."""

    stride: int
    iterations: int
    hot: float
    cold: float


class _Places(NamedTuple):
    """By place of the order its rank, what the rank holds before it, and the least time from its end to the last
    end; by action its place."""

    rank: Ints
    held: Floats
    rest: Floats
    of: Ints


@compiled
def anneal(
    actions: Actions, cooling: Cooling, random: np.random.Generator, order: Ints, best: Ints, segment: Ints
) -> float:
    """Anneal an order in place; `best` becomes the best order met, whose last end is returned.

    segment: by place of the order; no action leaves its segment.
    """
    offsets, limit = actions.offsets, actions.limit
    now, trial, places = no_times(actions), no_times(actions), _places(actions, order)
    end = walk(actions, order, now, offsets[:-1].copy(), places.rest, np.inf)
    lowest, temperature = end, cooling.hot
    best[:] = order
    for action in order:
        trial.arrival[action] = now.arrival[action]
    tight = np.empty(len(order), np.int64)
    count = _critical(actions, random, order, now, places, tight)
    cooled = (cooling.cold / cooling.hot) ** (1.0 / max(1, cooling.iterations))
    begun, cursor, swaps = offsets[:-1].copy(), offsets[:-1].copy(), np.empty(len(order), np.int64)
    for _ in range(cooling.iterations):
        temperature *= cooled
        away = count == 0 or random.random() < _AWAY
        place = random.integers(1, len(order)) if away else tight[random.integers(0, count)]
        rank = places.rank[place]
        moves = move(actions, random, order, segment, int(place), int(rank), cooling.stride, swaps)
        if moves == 0:
            continue
        first, last = min(swaps[0], swaps[moves - 1]) - 1, max(swaps[0], swaps[moves - 1])
        swap(order, swaps, 0, moves, 1)
        allowed, made = end - temperature * np.log(random.random()), np.inf
        before = max(first - 1, offsets[rank])
        if fits_part(actions, order, before, last + 1, places.held[before], limit[rank], offsets[rank + 1]):
            _restart(actions, order, now, trial, first, rank, begun)
            cursor[:] = begun
            made = _trial(actions, order, trial, places, cursor, first, last, allowed)
            _settle(offsets, order, now, trial, begun, made <= allowed)
        if made > allowed:
            swap(order, swaps, moves - 1, -1, -1)
            continue
        end = made
        now.clock[:] = trial.clock
        _replace(actions, order, places, first, last, rank)
        count = _critical(actions, random, order, now, places, tight)
        if end < lowest * (1.0 - _SAME):
            lowest = end
            best[:] = order
    return lowest


@compiled
def _places(actions: Actions, order: Ints) -> _Places:
    offsets, length = actions.offsets, len(order)
    places = _Places(
        np.zeros(length, np.int64), np.zeros(length), np.zeros(length), np.zeros(len(actions.own), np.int64)
    )
    for rank in range(len(actions.limit)):
        places.rank[offsets[rank] : offsets[rank + 1]] = rank
        if offsets[rank] < offsets[rank + 1]:
            _replace(actions, order, places, offsets[rank], offsets[rank + 1] - 1, rank)
    return places


@compiled
def _replace(actions: Actions, order: Ints, places: _Places, first: int, last: int, rank: int) -> None:
    """Make up what is known of the places first … last of a rank after they were changed."""
    held, rest, change, seconds = places.held, places.rest, actions.change, actions.seconds
    begin, past = actions.offsets[rank], actions.offsets[rank + 1]
    for place in range(first, last + 1):
        places.of[order[place]] = place
        held[place] = held[place - 1] + change[order[place - 1]] if place > begin else 0.0
    for place in range(last, first - 1, -1):
        rest[place] = rest[place + 1] + seconds[order[place + 1]] if place + 1 < past else actions.tail[rank]


@compiled
def _restart(actions: Actions, order: Ints, now: Times, trial: Times, first: int, rank: int, begun: Ints) -> None:
    """Set the trial to the moment before the change at place `first` of a rank: nothing before it can change."""
    offsets, channel, hold, latency = actions.offsets, actions.channel, actions.hold, actions.latency
    moment = now.end[order[first - 1]] if first > offsets[rank] else 0.0
    trial.free[:] = 0.0
    for one in range(len(offsets) - 1):
        low, high = offsets[one], first if one == rank else offsets[one + 1]
        while low < high:
            middle = (low + high) // 2
            if now.start[order[middle]] < moment:
                low = middle + 1
            else:
                high = middle
        begun[one] = low
        trial.clock[one] = now.end[order[low - 1]] if low > offsets[one] else 0.0
        for place in range(low, offsets[one + 1]):
            trial.arrival[order[place]] = np.inf
        left, place = actions.outgoing[one], low - 1
        while left and place >= offsets[one]:  # when the last message through each channel was sent
            action, place = order[place], place - 1
            way = channel[action]
            if way != NONE and hold[action] > 0.0 and trial.free[way] == 0.0:
                trial.free[way] = now.arrival[action] - latency[action]
                left -= 1


@compiled
def _trial(
    actions: Actions, order: Ints, trial: Times, places: _Places, cursor: Ints, first: int, last: int, allowed: float
) -> float:
    """Time the changed order from the cursors on."""
    rest = places.rest
    kept = rest[first : last + 1].copy()
    for place in range(first, last):
        rest[place] = rest[last]  # a bound whatever the order between
    made = walk(actions, order, trial, cursor, rest, allowed)
    for place in range(first, last):
        rest[place] = kept[place - first]
    return made


@compiled
def _settle(offsets: Ints, order: Ints, now: Times, trial: Times, begun: Ints, kept: bool) -> None:
    """Take over the times of the trial, or take its arrivals back."""
    for rank in range(len(begun)):
        for place in range(begun[rank], offsets[rank + 1]):
            action = order[place]
            if kept:
                now.start[action], now.end[action] = trial.start[action], trial.end[action]
                now.arrival[action] = trial.arrival[action]
            else:
                trial.arrival[action] = now.arrival[action]


@compiled
def _critical(
    actions: Actions, random: np.random.Generator, order: Ints, now: Times, places: _Places, tight: Ints
) -> int:
    """Places along one critical path whose action starts when the one before it on its rank ends; how many."""
    offsets, remote = actions.offsets, actions.remote
    last, count = now.clock + actions.tail, 0
    rank, ties = 0, 0
    for one in range(len(last)):
        if last[one] >= last.max() * (1.0 - _SAME) and offsets[one + 1] > offsets[one]:
            ties += 1
            if random.random() * ties < 1.0:
                rank = one
    same, place = last.max() * _SAME, offsets[rank + 1] - 1
    while True:
        action = order[place]
        follows = place > offsets[places.rank[place]] and now.end[order[place - 1]] >= now.start[action] - same
        needed = remote[action]
        waits = needed != NONE and now.arrival[needed] >= now.start[action] - same
        if follows and waits:
            follows = random.random() < 0.5
        if follows:
            tight[count] = place
            count += 1
            place -= 1
        elif waits:
            place = places.of[needed]
        else:
            return count
