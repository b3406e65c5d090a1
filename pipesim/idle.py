"""Why a rank's compute lane stands idle, and which operations decide the step time.

warm_up        before its first action          cool_down      after its last, while others still work
producer       another rank had not yet computed what it needs
message        it was computed, but still on its way (or queued behind other messages)
send           blocked in its own send (blocking communication)
gradient_sync  waiting for gradient reduction    optimizer      the optimizer step itself
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from pipesim.ir.action import Kind
from pipesim.timeline import Timeline

Floats = NDArray[np.float64]
Ints = NDArray[np.integer]
CAUSES = ("warm_up", "producer", "message", "send", "cool_down", "gradient_sync", "optimizer")


@dataclass(frozen=True, eq=False)
class IdleSpans:
    """Idle spans of compute lanes, rank by rank in the order of time. cause: index into CAUSES."""

    rank: Ints
    begin: Floats
    end: Floats
    cause: Ints

    def __len__(self) -> int:
        return len(self.rank)


def attribute_idle(timeline: Timeline, busy_s: Floats) -> dict[str, Floats]:
    """Seconds of each rank by cause; with its busy time they add up to the step time."""
    spans = idle_spans(timeline)
    code = spans.cause * timeline.ranks + spans.rank
    seconds = np.bincount(code, spans.end - spans.begin, minlength=len(CAUSES) * timeline.ranks)
    seconds = seconds.astype(np.float64)  # of no spans at all it makes whole numbers
    return dict(zip(CAUSES, seconds.reshape(len(CAUSES), timeline.ranks), strict=True))


@lru_cache(maxsize=2)  # figures and a chart of one timeline both ask
def idle_spans(timeline: Timeline) -> IdleSpans:
    """Every idle span of every compute lane."""
    box, now = _waits(timeline)
    rank, start = timeline.program.rank, timeline.start
    stepped = _after_step(timeline, box)
    turn, before, after = _causes(timeline, box, now)
    plain = np.flatnonzero(~stepped)
    parts = [
        (rank[box[plain]], now[plain], turn[plain], before[plain]),
        (rank[box[plain]], turn[plain], start[box[plain]], after[plain]),
    ]
    for at in np.flatnonzero(stepped).tolist():
        begin, finish = float(now[at]), float(start[box[at]])
        steps = _steps_between(timeline, int(box[at]), begin, finish) or [(begin, finish, "producer")]
        parts += [_single(int(rank[box[at]]), *part) for part in steps]
    for one in range(timeline.ranks):
        parts += [_single(one, *part) for part in _after_last(timeline, one)]
    columns = [np.concatenate(column) for column in zip(*parts, strict=True)]
    some = columns[2] > columns[1]
    columns = [column[some] for column in columns]
    order = np.lexsort((columns[1], columns[0]))
    return IdleSpans(*(column[order] for column in columns))


def _single(rank: int, begin: float, finish: float, cause: str) -> tuple[Ints, Floats, Floats, Ints]:
    return np.array([rank]), np.array([begin]), np.array([finish]), np.array([CAUSES.index(cause)])


def _waits(timeline: Timeline) -> tuple[Ints, Floats]:
    """The boxes that begin later than their rank was free, and since when it was."""
    boxes, rank = timeline.boxes, timeline.program.rank[timeline.boxes]
    free = np.zeros(len(boxes))
    for one in range(timeline.ranks):
        low, high = np.searchsorted(rank, [one, one + 1])
        free[low + 1 : high] = np.maximum.accumulate(timeline.end[boxes[low:high]])[:-1]
    waited = timeline.start[boxes] > free
    return boxes[waited], free[waited]


def _causes(timeline: Timeline, box: Ints, now: Floats) -> tuple[Floats, Ints, Ints]:
    """When each wait turns from one cause to another, and the two: first the producer, then the message."""
    program, start, count = timeline.program, timeline.start[box], len(timeline.program)
    owner = np.arange(count) - program.ops.fused  # both of a fused pair wait together
    needing = owner[np.repeat(np.arange(count), np.diff(program.need_offsets))]
    order = np.lexsort((-timeline.end[program.need], needing))
    first = np.unique(needing[order], return_index=True)
    last = np.full(count, -1)
    last[first[0]] = program.need[order][first[1]]
    last = last[box]
    produced = np.zeros(count)
    np.maximum.at(produced, needing, timeline.end[program.need])  # of a send: when what it carries was there
    came = (last >= 0) & (program.ops.kind[last] == Kind.RECV)
    turn = np.where(came, np.clip(produced[program.match[last]], now, start), start)
    before = np.full(len(box), CAUSES.index("producer"))
    opens = np.ones(len(box), np.bool_)
    opens[1:] = program.rank[box[1:]] != program.rank[box[:-1]]
    opens &= now == 0.0
    if program.comm == "blocking":
        blocked = _blocked_by_send(timeline)[box] > np.where(last >= 0, timeline.end[last], 0.0)
        before[blocked], turn[blocked] = CAUSES.index("send"), start[blocked]
    before[opens], turn[opens] = CAUSES.index("warm_up"), start[opens]
    return turn, before, np.full(len(box), CAUSES.index("message"))


def _blocked_by_send(timeline: Timeline) -> Floats:
    """For each operation the latest end of the sends right before it in its rank; 0 where there is none."""
    program = timeline.program
    sends = np.flatnonzero(program.ops.kind == Kind.SEND)
    transfers = (program.ops.kind == Kind.SEND) | (program.ops.kind == Kind.RECV)
    group = np.cumsum(~transfers)  # transfers have the group of the operation before them
    latest = np.zeros(len(program) + 2)
    np.maximum.at(latest, group[sends], timeline.end[sends])
    found: Floats = latest[group - 1]
    return found


def _after_step(timeline: Timeline, box: Ints) -> NDArray[np.bool_]:
    """Whether there are optimizer steps between a box and the action before it (asynchronous schedules)."""
    kind = timeline.program.ops.kind
    steps = np.cumsum(kind == Kind.STEP)
    action = np.maximum.accumulate(np.where(kind <= Kind.L, np.arange(len(kind)), 0))
    before = action[np.maximum(box - 1, 0)]
    same = timeline.program.rank[before] == timeline.program.rank[box]
    found: NDArray[np.bool_] = same & (steps[box] > steps[before])
    return found


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


def _after_last(timeline: Timeline, rank: int) -> list[tuple[float, float, str]]:
    """Divide what follows a rank's last action: reduction, waiting, optimizer step."""
    program, finish = timeline.program, timeline.step_time_s
    mine = np.asarray(program.row(rank))
    kind = program.ops.kind[mine]
    now = float(timeline.end[mine[kind <= Kind.W]].max(initial=0.0))
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
            candidates += [int(n) for mate in lanes.members[int(lanes.batch[op])] for n in program.needs_of(mate)]
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
