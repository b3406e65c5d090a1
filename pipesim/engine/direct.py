"""Step times straight from a schedule, for searches: no program is made of it.

Where every message has an edge to itself (`edge`), a rank waits in its own order for one thing only, the
message its next action needs. So one walk over the actions gives what the sweep over a program's lanes gives.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pipesim.costs.costs import Costs, Floats
from pipesim.costs.network import Route
from pipesim.engine.contention import bandwidths
from pipesim.engine.durations import action_seconds, message_sizes, require_stages, tail_seconds
from pipesim.engine.walk import NONE, walk
from pipesim.ir.action import Kind
from pipesim.ir.atoms import Ints
from pipesim.ir.lanes import lanes, renumber
from pipesim.ir.lower import lower
from pipesim.ir.needs import Flow
from pipesim.ir.order import require_progress
from pipesim.ir.schedule import Schedule
from pipesim.ir.tail import Tail, tail

Messages = tuple[Ints, Ints, Floats, Floats]


@dataclass(frozen=True, eq=False)
class Step:
    """One step in short. Per rank, each array (ranks,): seconds of compute, and its first start and last end.

    makespan_s ends with the last compute action, step_time_s with reduction and optimizer.
    """

    makespan_s: float
    step_time_s: float
    busy_s: Floats
    first_s: Floats
    last_s: Floats

    @property
    def bubble_fraction(self) -> float:
        """Idle compute time / (ranks × makespan)."""
        whole = len(self.busy_s) * self.makespan_s
        return 1.0 - float(self.busy_s.sum()) / whole if whole else 0.0


def can_walk(schedule: Schedule, costs: Costs) -> bool:
    """Whether a schedule's step time can be had here: messages share no links, actions move no activations
    aside, the optimizer steps once, and no action waits for two messages or sends two."""
    if costs.network.shares_links or schedule.update_every is not None:
        return False
    if len(schedule) == 0 or int(schedule.atoms.kind.max()) > Kind.W:
        return False
    crossing = _crossing(schedule)
    needs = schedule.dependencies
    return not (_repeats(needs.consumer[crossing], len(schedule)) or _repeats(needs.producer[crossing], len(schedule)))


def step(schedule: Schedule, costs: Costs, *, reduce: bool = False, clip: bool = False) -> Step:
    """The step time with an edge to itself for every message, of a schedule that `can_walk`.

    reduce, clip: as for `lower`. Raises Deadlock, NoCost, WrongStages.
    """
    require_stages(schedule, costs)
    seconds = action_seconds(schedule.atoms, costs)
    ended, end, clock, first = walked(schedule, seconds, messages_of(schedule, costs))
    if ended < len(schedule) or not _in_order(schedule):
        program = lower(schedule)
        require_progress(lanes(program), program)  # says who waits for whom
    alone = np.where(schedule.atoms.fused, 0.0, seconds)
    busy = np.bincount(schedule.rank, weights=alone, minlength=schedule.ranks).astype(np.float64)
    whole = _whole(schedule, costs, tail(schedule, reduce=reduce, clip=clip), end, clock)
    return Step(float(clock.max()), max(float(clock.max()), whole), busy, first, clock)


def walked(schedule: Schedule, seconds: Floats, messages: Messages) -> tuple[int, Floats, Floats, Floats]:
    """How many actions ended, the end of each, and each rank's last end and first start."""
    end, arrival = np.zeros(len(schedule)), np.full(len(schedule), np.inf)
    clock, first = np.zeros(schedule.ranks), np.zeros(schedule.ranks)
    ended = walk(schedule.offsets, schedule.atoms.fused, seconds, *messages, end, arrival, clock, first)
    return ended, end, clock, first


def _crossing(schedule: Schedule) -> Ints:
    """Needs that are met by messages, as places in the schedule's dependencies."""
    needs, rank = schedule.dependencies, schedule.rank
    return np.flatnonzero((needs.flow != Flow.LOCAL) & (rank[needs.producer] != rank[needs.consumer]))


def _repeats(index: Ints, below: int) -> bool:
    seen = np.zeros(below, np.bool_)
    seen[index] = True
    return int(seen.sum()) < len(index)


def _in_order(schedule: Schedule) -> bool:
    """Whether what an action needs of its own rank stands before it."""
    needs, rank = schedule.dependencies, schedule.rank
    group = np.cumsum(~schedule.atoms.fused, dtype=np.int32)
    return not ((group[needs.producer] >= group[needs.consumer]) & (rank[needs.producer] == rank[needs.consumer])).any()


def messages_of(schedule: Schedule, costs: Costs) -> Messages:
    """Of each action the one whose message it needs, the channel its own message goes through and the seconds
    it holds that; of each channel its latency."""
    needs, rank, ranks = schedule.dependencies, schedule.rank, schedule.ranks
    crossing = _crossing(schedule)
    producer, consumer, flow = needs.producer[crossing], needs.consumer[crossing], needs.flow[crossing]
    code = (rank[producer].astype(np.int64) * ranks + rank[consumer]) * len(Flow) + flow
    codes, place = renumber(code, ranks**2 * len(Flow))
    routes = [costs.network.route(pair // ranks, pair % ranks) for pair in (codes // len(Flow)).tolist()]
    remote, channel = np.full(len(schedule), NONE, np.int32), np.full(len(schedule), NONE, np.int32)
    remote[consumer], channel[producer] = producer, place
    hold = np.zeros(len(schedule))
    hold[producer] = (
        message_sizes(schedule.atoms.take(producer), flow, costs) / bandwidths(routes, costs.network)[place]
    )
    return remote, channel, hold, np.asarray([route.latency_s for route in routes])


def _whole(schedule: Schedule, costs: Costs, after: Tail, end: Floats, clock: Floats) -> float:
    """End of the last reduction or optimizer step. Reductions of a rank follow each other beside compute."""
    fixed = tail_seconds(after.ops, after.rank, schedule, costs)
    ready = np.zeros(len(after.ops))
    np.maximum.at(ready, after.waits[1], end[after.waits[0]])
    reducing, free = np.zeros(len(after.ops)), np.zeros(schedule.ranks)
    count = after.reductions
    for op in np.lexsort((np.arange(count), after.behind[:count])).tolist():
        rank = int(after.rank[op])
        route = costs.network.reduce.get(rank, Route())
        size = 0.0 if costs.reduce_bytes is None else float(costs.reduce_bytes[after.ops.stage[op]])
        free[rank] = max(free[rank], ready[op]) + (fixed[op] + route.latency_s) + size / route.bytes_per_s
        reducing[op] = free[rank]
    np.maximum.at(ready, after.chained[1], reducing[after.chained[0]])
    done = np.maximum(ready, clock[after.rank])[count:] + fixed[count:]
    return float(np.concatenate([reducing, done]).max(initial=0.0))
