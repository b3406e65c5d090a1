"""The compiled walk over a schedule's actions, rank by rank, each as far as it can go."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pipesim.engine.compiled import compiled

Ints = NDArray[np.integer]
Floats = NDArray[np.float64]

NONE = -1  # inside compiled code only


@compiled
def walk(
    offsets: Ints,
    fused: NDArray[np.bool_],
    seconds: Floats,
    remote: Ints,
    channel: Ints,
    hold: Floats,
    latency: Floats,
    end: Floats,
    arrival: Floats,
    clock: Floats,
    first: Floats,
) -> int:
    """Fill in the end of each action, the arrival of its message, and the last end and first start of each rank.

    Of each action: `remote`, the action whose message it needs; `channel` of its own message, which that
    holds for `hold` seconds and then is `latency` (of the channel) on its way. Returns how many actions ended.
    `arrival` is infinite before; where a rank waits for it, it is -1 - rank meanwhile.
    """
    ranks = len(offsets) - 1
    cursor, free = offsets[:-1].copy(), np.zeros(len(latency))
    stack, top, ended = np.arange(ranks), ranks, 0
    while top:
        top -= 1
        rank = stack[top]
        now, at, last = clock[rank], cursor[rank], offsets[rank + 1]
        while at < last:
            past = at + 1
            while past < last and fused[past]:
                past += 1
            ready, blocked = now, False
            for action in range(at, past):
                if remote[action] != NONE:
                    came = arrival[remote[action]]
                    if came < 0 or came == np.inf:
                        arrival[remote[action]] = -1 - rank
                        blocked = True
                        break
                    ready = max(ready, came)
            if blocked:
                break
            if at == offsets[rank]:
                first[rank] = ready
            now = ready + seconds[at]
            for action in range(at, past):
                end[action] = now
                if channel[action] != NONE:
                    waiting = arrival[action]
                    sent = max(now, free[channel[action]]) + hold[action]
                    free[channel[action]] = sent
                    arrival[action] = sent + latency[channel[action]]
                    if waiting < 0:
                        stack[top] = -1 - int(waiting)
                        top += 1
            ended += past - at
            at = past
        cursor[rank], clock[rank] = at, now
    return ended
