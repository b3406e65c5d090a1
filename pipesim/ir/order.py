"""Whether orders can be run at all: an untimed run of a program, and a unit-time run of a schedule."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pipesim.errors import PipesimError
from pipesim.ir.action import Kind
from pipesim.ir.atoms import Ints
from pipesim.ir.lanes import Lanes
from pipesim.ir.program import Program
from pipesim.ir.schedule import Schedule


@dataclass(eq=False)
class Deadlock(PipesimError):
    """No rank can go on: the cycle of who waits for whom, as (rank, what it cannot start, whom it waits for)."""

    cycle: tuple[tuple[int, str, int, str], ...]

    def __str__(self) -> str:
        waits = "; ".join(
            f"rank {rank} cannot start {what} before {other} on rank {other_rank} ends"
            for rank, what, other_rank, other in self.cycle
        )
        return f"deadlock, a cycle of waits: {waits}"


@dataclass(frozen=True)
class Progress:
    """How far an untimed run came: operations in an order that can be run, and those never reached."""

    order: list[int]
    stuck: list[int]


def progress(lanes: Lanes, program: Program) -> Progress:
    """Run a program without time, under rendezvous: a transfer ends when both sides have reached it.

    No operation chooses between alternatives, so a program that ends here ends under any durations.
    """
    run = _Run(lanes, program)
    run.to_the_end()
    return Progress(run.order, [op for op in range(len(program)) if not run.ended[op]])


def require_progress(lanes: Lanes, program: Program) -> list[int]:
    """An order in which the program can be run. Raises Deadlock with the cycle of waits."""
    run = _Run(lanes, program)
    run.to_the_end()
    if len(run.order) < len(program):
        raise Deadlock(run.cycle())
    return run.order


class _Run:
    def __init__(self, lanes: Lanes, program: Program) -> None:
        self.program = program
        self.members, self.batch = lanes.members, lanes.batch.tolist()
        self.match = program.match.tolist()
        self.ended = [False] * len(program)
        self.posted = [False] * len(self.members)
        self.before: list[int | None] = [None] * len(self.members)
        self.after: list[int | None] = [None] * len(self.members)
        self.pending = [0] * len(self.members)
        for sequence in lanes.batches:
            for earlier, later in zip(sequence, sequence[1:], strict=False):
                self.before[later], self.after[earlier] = earlier, later
                self.pending[later] = len(self.members[earlier])
        self._index_needs()
        self.order: list[int] = []
        self.ready = [batch for batch, count in enumerate(self.pending) if count == 0]

    def _index_needs(self) -> None:
        program = self.program
        needing = np.repeat(np.arange(len(program)), np.diff(program.need_offsets))
        for op in needing.tolist():
            self.pending[self.batch[op]] += 1
        order = np.argsort(program.need, kind="stable")
        self.needing = needing[order].tolist()
        self.needing_at = np.concatenate([[0], np.cumsum(np.bincount(program.need, minlength=len(program)))]).tolist()

    def to_the_end(self) -> None:
        while self.ready:
            batch = self.ready.pop()
            self.posted[batch] = True
            for op in self.members[batch]:
                partner = self.match[op]
                if partner == op:
                    self._end(op)
                elif self.posted[self.batch[partner]] and not self.ended[op]:
                    self._end(op)
                    self._end(partner)

    def _end(self, op: int) -> None:
        self.ended[op] = True
        self.order.append(op)
        for needing in self.needing[self.needing_at[op] : self.needing_at[op + 1]]:
            self._count_down(self.batch[needing])
        after = self.after[self.batch[op]]
        if after is not None:
            self._count_down(after)

    def _count_down(self, batch: int) -> None:
        self.pending[batch] -= 1
        if self.pending[batch] == 0:
            self.ready.append(batch)

    def cycle(self) -> tuple[tuple[int, str, int, str], ...]:
        """Follow the waits from any operation that never ended until one comes up again."""
        at = next(op for op, ended in enumerate(self.ended) if not ended)
        seen: dict[int, int] = {}
        path: list[int] = []
        while at not in seen:
            seen[at] = len(path)
            path.append(at)
            at = self._waits_for(at)
        loop = [*path[seen[at] :], at]
        rank, text = self.program.rank, self.program.text
        return tuple(
            (int(rank[one]), text(one), int(rank[other]), text(other))
            for one, other in zip(loop, loop[1:], strict=False)
        )

    def _waits_for(self, op: int) -> int:
        """An operation that has not ended and that `op` waits for."""
        batch = self.batch[op]
        if self.posted[batch]:
            return self.match[op]
        before = self.before[batch]
        earlier = [] if before is None else self.members[before]
        needs = [int(need) for mate in self.members[batch] for need in self.program.needs_of(mate)]
        return next(other for other in [*needs, *earlier] if not self.ended[other])


def unit_starts(schedule: Schedule) -> Ints:
    """Start of each action when every action (a fused pair as one) takes one unit and messages take none.

    Activation moves take no time of the rank. Raises Deadlock if the orders cannot be run.
    """
    kind, fused = schedule.atoms.kind.tolist(), schedule.atoms.fused.tolist()
    needs = schedule.dependencies
    order = np.argsort(needs.consumer, kind="stable")
    producer = needs.producer[order].tolist()
    at = np.concatenate([[0], np.cumsum(np.bincount(needs.consumer, minlength=len(schedule)))]).tolist()
    starts: list[int | None] = [None] * len(schedule)
    ends = [0] * len(schedule)
    offsets = schedule.offsets.tolist()
    cursor, clock = offsets[:-1], [0] * schedule.ranks
    rank_of = schedule.rank.tolist()
    waiting: dict[int, list[int]] = {}
    ready = list(range(schedule.ranks))
    while ready:
        rank = ready.pop()
        while cursor[rank] < offsets[rank + 1]:
            first = last = cursor[rank]
            while last + 1 < offsets[rank + 1] and fused[last + 1]:
                last += 1
            wanted = [p for action in range(first, last + 1) for p in producer[at[action] : at[action + 1]]]
            missing = next((p for p in wanted if starts[p] is None), None)
            if missing is not None:
                waiting.setdefault(missing, []).append(rank)
                break
            start = max([clock[rank], *(ends[p] for p in wanted)])
            takes = 0 if kind[first] in (Kind.X, Kind.L) else 1
            clock[rank] = start + takes
            for action in range(first, last + 1):
                starts[action], ends[action] = start, start + takes
                ready += waiting.pop(action, [])
            cursor[rank] = last + 1
    if any(start is None for start in starts):
        raise Deadlock(_waits(schedule, cursor, offsets, starts, producer, at, rank_of))
    return np.array(starts, np.int64)


def _waits(
    schedule: Schedule, cursor: list[int], offsets: list[int], starts: list[int | None], producer: list[int],
    at: list[int], rank_of: list[int],
) -> tuple[tuple[int, str, int, str], ...]:
    blocked = {}
    for rank in range(schedule.ranks):
        if cursor[rank] < offsets[rank + 1]:
            last = cursor[rank]
            while last + 1 < offsets[rank + 1] and schedule.atoms.fused[last + 1]:
                last += 1
            for action in range(cursor[rank], last + 1):
                for needed in producer[at[action] : at[action + 1]]:
                    if starts[needed] is None and rank not in blocked:
                        blocked[rank] = (action, needed)
    rank, seen = next(iter(blocked)), []
    while rank not in seen:
        seen.append(rank)
        rank = rank_of[blocked[rank][1]]
    loop = seen[seen.index(rank) :]
    text = schedule.atoms.action
    return tuple(
        (rank, str(text(blocked[rank][0])), rank_of[blocked[rank][1]], str(text(blocked[rank][1]))) for rank in loop
    )
