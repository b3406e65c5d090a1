"""Why a rank's compute lane stands idle, and which operations decide the step time.

warm_up        before its first action          cool_down      after its last, while others still work
producer       another rank had not yet computed what it needs
message        it was computed, but still on its way (or queued behind other messages)
send           blocked in its own send (blocking communication)
gradient_sync  waiting for gradient reduction    optimizer      the optimizer step itself
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from pipesim.ir.action import Kind
from pipesim.timeline import Timeline

Floats = NDArray[np.float64]
CAUSES = ("warm_up", "producer", "message", "send", "cool_down", "gradient_sync", "optimizer")


def attribute_idle(timeline: Timeline, busy_s: Floats) -> dict[str, Floats]:
    """Seconds of each rank by cause; with its busy time they add up to the step time."""
    found = {cause: np.zeros(timeline.ranks) for cause in CAUSES}
    for rank, begin, finish, cause in idle_spans(timeline):
        found[cause][rank] += finish - begin
    return found


def idle_spans(timeline: Timeline) -> list[tuple[int, float, float, str]]:
    """Every idle span of every compute lane as (rank, begin, end, cause), in order."""
    spans = []
    for rank in range(timeline.ranks):
        boxes = timeline.boxes[timeline.program.rank[timeline.boxes] == rank]
        now = 0.0
        for place, box in enumerate(boxes.tolist()):
            start = float(timeline.start[box])
            if start > now:
                parts = [(now, start, "warm_up")] if place == 0 else _split(timeline, box, now, start)
                spans += [(rank, begin, finish, cause) for begin, finish, cause in parts if finish > begin]
            now = max(now, float(timeline.end[box]))
        spans += [(rank, *part) for part in _after_last(timeline, rank, now)]
    return spans


def _split(timeline: Timeline, box: int, now: float, start: float) -> list[tuple[float, float, str]]:
    """Divide the wait before one action: until its producer ended, then until the message was there."""
    steps = _steps_between(timeline, box, now, start)
    if steps:
        return steps
    program, after = timeline.program, box + 1
    members = [box, after] if after < len(program) and program.ops.fused[after] else [box]
    needs = [int(need) for member in members for need in program.needs_of(member)]
    if program.comm == "blocking":
        last_send = _blocked_by_send(timeline, box, needs)
        if last_send:
            return [(now, start, "send")]
    if not needs:
        return [(now, start, "producer")]
    last = max(needs, key=lambda need: timeline.end[need])
    if program.ops.kind[last] != Kind.RECV:
        return [(now, start, "producer")]
    sent = int(program.match[last])
    produced = max(float(timeline.end[need]) for need in program.needs_of(sent))
    turn = min(max(produced, now), start)
    return [(now, turn, "producer"), (turn, start, "message")]


def _steps_between(timeline: Timeline, box: int, now: float, start: float) -> list[tuple[float, float, str]]:
    """Optimizer steps between actions, of asynchronous schedules."""
    kind = timeline.program.ops.kind
    op, steps = box - 1, []
    while op >= 0 and kind[op] > Kind.L:
        if kind[op] == Kind.STEP and timeline.end[op] > now:
            steps.append((max(now, float(timeline.start[op])), min(start, float(timeline.end[op]))))
        op -= 1
    parts, cursor = [], now
    for begin, finish in reversed(steps):
        parts += [(cursor, begin, "producer"), (begin, finish, "optimizer")]
        cursor = finish
    return [*parts, (cursor, start, "producer")] if steps else []


def _blocked_by_send(timeline: Timeline, box: int, needs: list[int]) -> bool:
    """Whether the last thing to end before a blocking action was a send of its own rank."""
    kind, op = timeline.program.ops.kind, box - 1
    sends = []
    while op >= 0 and kind[op] in (Kind.SEND, Kind.RECV):
        if kind[op] == Kind.SEND:
            sends.append(float(timeline.end[op]))
        op -= 1
    return bool(sends) and max(sends) > max((float(timeline.end[need]) for need in needs), default=0.0)


def _after_last(timeline: Timeline, rank: int, now: float) -> list[tuple[float, float, str]]:
    """Divide what follows a rank's last action: reduction, waiting, optimizer step."""
    program, finish = timeline.program, timeline.step_time_s
    mine = np.asarray(program.row(rank))
    kind = program.ops.kind[mine]
    steps = [op for op in mine[kind == Kind.STEP].tolist() if timeline.end[op] > now]
    reductions = mine[kind == Kind.REDUCE]
    reduced = float(timeline.end[reductions].max(initial=now))
    begin = float(timeline.start[steps[0]]) if steps else finish
    end = float(timeline.end[steps[-1]]) if steps else finish
    parts = [(now, min(reduced, begin), "gradient_sync"), (max(now, min(reduced, begin)), begin, "cool_down")]
    parts += [(begin, end, "optimizer"), (end, finish, "cool_down")]
    return [(one, other, cause) for one, other, cause in parts if other > one]


def critical_path(timeline: Timeline) -> list[int]:
    """Operations, first to last, each of which began when the one before it ended, up to the last end.

    Walks back from the operation that ends last to the need, lane neighbour or far side that ended last.
    """
    program, lanes = timeline.program, timeline.lanes
    before = _lane_neighbours(timeline)
    op, path = int(np.argmax(timeline.end)), []
    seen: set[int] = set()
    while op not in seen:
        seen.add(op)
        path.append(op)
        candidates = [int(need) for need in program.needs_of(op)]
        other = int(program.match[op])
        for end in {op, other}:
            candidates += [int(need) for need in program.needs_of(end)]
            candidates += before.get(int(lanes.batch[end]), [])
        if program.is_compute[op]:
            candidates += [
                int(n) for mate in lanes.members[int(lanes.batch[op])] for n in program.needs_of(mate)
            ]
        earlier = [one for one in candidates if one not in seen and one != other]
        if not earlier:
            break
        op = max(earlier, key=lambda one: (timeline.end[one], one))
    return path[::-1]


def _lane_neighbours(timeline: Timeline) -> dict[int, list[int]]:
    """For each batch the operations of the batch before it in its lane."""
    lanes = timeline.lanes
    found = {}
    for sequence in lanes.batches:
        for earlier, later in pairwise(sequence):
            found[later] = lanes.members[earlier]
    return found
