"""Run given orders, letting actions overtake each other where memory allows: forwards or backwards in time.

Orders that keep to a memory limit stay within it: an action moves ahead only if what it holds fits beside
the most that the actions it overtakes will hold, so nothing can lock up. Run backwards, the same rule pushes
every action as late as possible; doing both in turn is the double justification of project scheduling
(Valls, Ballestín, Quintanilla 2005), and what the zero-bubble papers call squeezing.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from typing import NamedTuple

from pipesim.schedules.job import Job, Orders

_NEVER = float("inf")
_EPSILON = 1e-9
_FORWARD, _WEIGHT = 0, 2


@dataclass(frozen=True)
class Rule:
    """How freely actions overtake.

    window: how many actions of its order a rank looks at; 1 keeps the order.
    patience: a rank waits rather than run an action out of turn, if one of its turn starts within this
        part of that action's time.
    weight_patience: the same for weight gradients, which let all input gradients ahead.
    """

    window: int
    patience: float = 0.0
    weight_patience: float = 0.0


class Run(NamedTuple):
    """Orders, and how long they take: first start to last end, and the longest span of a rank."""

    makespan: float
    span: float
    orders: Orders


def squeeze(job: Job, orders: Orders, rule: Rule) -> Run:
    """Run orders forwards in time."""
    return _Pass(job, orders, rule, backward=False, free_at=[0.0] * len(orders)).run()


def push_back(job: Job, orders: Orders, rule: Rule, ends: list[float]) -> Orders:
    """Run orders backwards in time: every action as late as it can be.

    ends: by how much each rank must end before the last moment.
    """
    backwards = [order[::-1] for order in orders]
    run = _Pass(job, backwards, rule, backward=True, free_at=list(ends)).run()
    return [order[::-1] for order in run.orders]


class _Pass:
    """One run. Queues are reversed, so that the next action is the last."""

    def __init__(self, job: Job, orders: Orders, rule: Rule, *, backward: bool, free_at: list[float]) -> None:
        columns = job.columns
        needs, self.feeds = (columns.feeds, columns.needs) if backward else (columns.needs, columns.feeds)
        self.kind, self.rank, self.row, self.takes = columns.kind, columns.rank, columns.row, columns.takes
        self.holds = [-change for change in columns.holds] if backward else columns.holds
        self.rule, self.backward, self.limit = rule, backward, job.memory.limit + _EPSILON
        self.missing, self.ready_at = [len(edges) for edges in needs], [0.0] * len(needs)
        self.queue, self.done = [order[::-1] for order in orders], [list[int]() for _ in orders]
        self.held, self.free_at = [0.0] * len(orders), free_at
        self.first: list[float | None] = [None] * len(orders)
        self.agenda = [(free, rank) for rank, free in enumerate(free_at)]
        heapq.heapify(self.agenda)

    def run(self) -> Run:
        while self.agenda:
            now, rank = heapq.heappop(self.agenda)
            if self.free_at[rank] <= now + _EPSILON and self.queue[rank]:
                place = self._choose(rank, now)
                if place is not None:
                    self._start(rank, place, now)
        assert not any(self.queue), "orders that break the memory limit, or cannot be run at all"
        spans = [end - (first or 0.0) for end, first in zip(self.free_at, self.first, strict=True)]
        return Run(max(self.free_at), max(spans), self.done)

    def _choose(self, rank: int, now: float) -> int | None:
        """Place in the queue of what to run now; if there is nothing, be back when something may come."""
        queue, takes = self.queue[rank], self.takes
        place, weight, soonest = self._look(rank, now)
        if place is not None and weight is not None and self.kind[queue[place]] == _FORWARD:
            return weight
        if place is not None and (
            place == len(queue) - 1 or soonest >= now + self.rule.patience * takes[queue[place]] - _EPSILON
        ):
            return place
        if weight is not None and soonest >= now + self.rule.weight_patience * takes[queue[weight]] - _EPSILON:
            return weight
        if soonest < _NEVER:
            heapq.heappush(self.agenda, (soonest, rank))
        return None

    def _look(self, rank: int, now: float) -> tuple[int | None, int | None, float]:
        """The first action that may run now, the first weight gradient before it, and when the next is ready."""
        queue, holds, rows = self.queue[rank], self.holds, self.row
        missing, ready_at = self.missing, self.ready_at
        room = self.limit - self.held[rank]
        overtaken = most = 0.0
        weight, soonest, seen = None, _NEVER, 0
        for place in range(len(queue) - 1, max(-1, len(queue) - 1 - self.rule.window), -1):
            action = queue[place]
            change, row = holds[action], rows[action]
            if not seen & row:
                seen |= row
                if not missing[action] and (change <= 0 or change + most <= room):
                    if ready_at[action] > now + _EPSILON:
                        soonest = min(soonest, ready_at[action])
                    elif self.backward or self.kind[action] != _WEIGHT:
                        return place, weight, soonest
                    elif weight is None:
                        weight = place
            overtaken += change
            if overtaken > most:
                most = overtaken
        return None, weight, soonest

    def _start(self, rank: int, place: int, now: float) -> None:
        action = self.queue[rank].pop(place)
        end = now + self.takes[action]
        self.done[rank].append(action)
        self.held[rank] += self.holds[action]
        self.free_at[rank] = end
        if self.first[rank] is None:
            self.first[rank] = now
        for other, lag in self.feeds[action]:
            self.ready_at[other] = max(self.ready_at[other], end + lag)
            self.missing[other] -= 1
            if not self.missing[other]:
                heapq.heappush(self.agenda, (self.ready_at[other], self.rank[other]))
        heapq.heappush(self.agenda, (end, rank))
