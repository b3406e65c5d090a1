"""The compiled sweep: walk fixed-order lanes, each as far as it can go, until all have ended.

No operation chooses between alternatives, so the order in which lanes are walked does not matter: each
operation starts at the latest of the ends it waits for, and every lane and every need is looked at once.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pipesim.engine.compiled import compiled, inlined

Ints = NDArray[np.integer]
Flags = NDArray[np.bool_]
Floats = NDArray[np.float64]

OWN, SEND, RECV = 0, 1, 2  # what an operation waits for: itself, the receive, the send
NONE = -1  # inside compiled code only
_STACKED, _ENDED = 0, 1


class Structure(NamedTuple):
    """What is fixed whatever the costs are.

    lane_offsets: (lanes + 1,) into the batches; batch_offsets: (batches + 1,) into `order`, which lists
    the operations batch by batch. piped: (lanes,) whether a lane has one edge to itself, which is free
    again when the first part of a transfer has passed. lane, role, match: of each operation. need: what
    operations need, those of operation i from need_offsets[i] to need_offsets[i + 1].
    """

    lane_offsets: Ints
    batch_offsets: Ints
    order: Ints
    piped: Flags
    lane: Ints
    role: Ints
    match: Ints
    need_offsets: Ints
    need: Ints


class Times(NamedTuple):
    """Seconds of each operation in two parts (of a transfer its send's), and what the sweep fills in.

    start, end: not a number before. cause: the operation whose end let each one start, itself for none;
    empty if nobody asks.
    """

    hold: Floats
    then: Floats
    start: Floats
    end: Floats
    cause: Ints


@compiled
def sweep(fixed: Structure, times: Times) -> int:
    """Fill in the times; the number of operations that could be run to their end."""
    # Taken apart here: compiled code counts references at each look into a tuple.
    lane_offsets, batch_offsets, order, piped, lane_of, role, match, need_offsets, need = fixed
    hold, then, start, end, cause = times
    lanes = len(lane_offsets) - 1
    cursor = lane_offsets[:-1].copy()  # the next batch of each lane,
    free = np.zeros(lanes)  # when the batches before it have ended,
    last = np.full(lanes, NONE, np.int32)  # the operation that decided this,
    left = np.zeros(lanes, np.int32)  # and operations of the batch before it that are still under way
    waiter = np.full(len(order), NONE, np.int32)  # first lane that waits for an operation,
    following = np.full(lanes, NONE, np.int32)  # and the next lane that waits for the same
    stack = np.arange(lanes).astype(np.int32)  # lanes that may go on
    count = np.array([lanes, 0])
    while count[_STACKED]:
        count[_STACKED] -= 1
        here = stack[count[_STACKED]]
        while left[here] == 0 and cursor[here] < lane_offsets[here + 1]:
            first, past = batch_offsets[cursor[here]], batch_offsets[cursor[here] + 1]
            ready, why, missing = _ready(order, first, past, need_offsets, need, end, free[here], last[here])
            if missing != NONE:
                following[here], waiter[missing] = waiter[missing], here
                break
            cursor[here] += 1
            op = order[first]
            if role[op] == OWN:
                finish = ready + hold[op] + then[op]
                free[here], last[here] = finish, op
                for place in range(first, past):
                    _begin(order[place], ready, why, start, cause)
                    end[order[place]] = finish
                    _end(order[place], waiter, following, stack, count)
                continue
            if not (role[op] == RECV and piped[here]):  # such a receive is posted ahead, its lane goes on
                left[here] = past - first
            for place in range(first, past):
                op = order[place]
                _begin(op, ready, why, start, cause)
                if not np.isnan(start[match[op]]):
                    send, receive = (op, match[op]) if role[op] == SEND else (match[op], op)
                    _meet(send, receive, hold, then, piped[lane_of[send]], start, end, cause)
                    for one in (send, receive):
                        lane = lane_of[one]
                        if _leave(one, end[one], lane, free, last, left) and lane != here:
                            _push(lane, stack, count)
                        _end(one, waiter, following, stack, count)
    return int(count[_ENDED])


@inlined
def _ready(
    order: Ints, first: int, past: int, need_offsets: Ints, need: Ints, end: Floats, free: float, last: int
) -> tuple[float, int, int]:
    """When a batch can begin, the operation that decides it, and one that it still waits for."""
    missing = NONE
    for place in range(first, past):
        for at in range(need_offsets[order[place]], need_offsets[order[place] + 1]):
            ended = end[need[at]]
            if np.isnan(ended):
                missing = need[at]
            elif ended > free or last == NONE:
                free, last = ended, need[at]
    return free, last, missing


@inlined
def _begin(op: int, ready: float, why: int, start: Floats, cause: Ints) -> None:
    start[op] = ready
    if len(cause):
        cause[op] = op if why == NONE else why


@inlined
def _meet(
    send: int, receive: int, hold: Floats, then: Floats, piped: bool, start: Floats, end: Floats, cause: Ints
) -> None:
    """Both sides of a transfer are there: it begins."""
    begun = max(start[send], start[receive])
    if len(cause):
        cause[send] = cause[receive] = cause[send if start[send] >= start[receive] else receive]
    sent = begun + hold[send]
    start[send] = start[receive] = begun
    end[receive] = sent + then[send]
    end[send] = sent if piped else end[receive]


@inlined
def _leave(op: int, ended: float, lane: int, free: Floats, last: Ints, left: Ints) -> bool:
    """Take a transfer off its lane; whether it was the last of its batch there."""
    if left[lane] == 0:
        return False
    left[lane] -= 1
    if ended > free[lane] or last[lane] == NONE:
        free[lane], last[lane] = ended, op
    return bool(left[lane] == 0)


@inlined
def _end(op: int, waiter: Ints, following: Ints, stack: Ints, count: Ints) -> None:
    """Count an operation, and let go on whoever waits for it."""
    count[_ENDED] += 1
    lane = waiter[op]
    while lane != NONE:
        _push(lane, stack, count)
        lane = following[lane]


@inlined
def _push(lane: int, stack: Ints, count: Ints) -> None:
    stack[count[_STACKED]] = lane
    count[_STACKED] += 1
