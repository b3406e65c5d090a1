"""Whether orders can be run at all: an untimed run of a program, and a unit-time run of a schedule."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

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
        self.members = lanes.members
        self.batch: list[int] = lanes.batch.tolist()
        self.match: list[int] = program.match.tolist()
        self.ended = [False] * len(program)
        self.posted = [False] * len(self.members)
        self.before: list[int | None] = [None] * len(self.members)
        self.after: list[int | None] = [None] * len(self.members)
        self.pending = [0] * len(self.members)
        for sequence in lanes.batches:
            for earlier, later in pairwise(sequence):
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
        return tuple((int(rank[one]), text(one), int(rank[other]), text(other)) for one, other in pairwise(loop))

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
    run = _UnitRun(schedule)
    run.to_the_end()
    if run.stopped:
        raise Deadlock(run.cycle())
    return np.array(run.starts, np.int64)


class _UnitRun:
    """Ranks run their groups of actions (mostly of one) as far as they can; who waits is told when it may go on."""

    def __init__(self, schedule: Schedule) -> None:
        self.schedule, needs = schedule, schedule.dependencies
        order = np.argsort(needs.consumer, kind="stable")
        self.producer: list[int] = needs.producer[order].tolist()
        self.at = np.concatenate([[0], np.cumsum(np.bincount(needs.consumer, minlength=len(schedule)))]).tolist()
        self.after = _ends_of_groups(schedule)
        self.takes = (schedule.atoms.kind <= Kind.W).astype(int).tolist()
        self.starts = [0] * len(schedule)
        self.ends: list[int | None] = [None] * len(schedule)
        self.offsets = schedule.offsets.tolist()
        self.cursor, self.clock = self.offsets[:-1], [0] * schedule.ranks
        self.waiting: dict[int, list[int]] = {}
        self.stopped: dict[int, int] = {}  # rank -> the action it waits for

    def to_the_end(self) -> None:
        ready = list(range(self.schedule.ranks))
        while ready:
            rank = ready.pop()
            self.stopped.pop(rank, None)
            missing = self._go_on(rank, ready)
            if missing is not None:
                self.waiting.setdefault(missing, []).append(rank)
                self.stopped[rank] = missing

    def _go_on(self, rank: int, ready: list[int]) -> int | None:
        """Run a rank until it needs an action that has not ended, and say which."""
        ends, at, producer, waiting = self.ends, self.at, self.producer, self.waiting
        action, clock = self.cursor[rank], self.clock[rank]
        while action < self.offsets[rank + 1]:
            after, start = self.after[action], clock
            for needed in producer[at[action] : at[after]]:
                end = ends[needed]
                if end is None:
                    self.cursor[rank], self.clock[rank] = action, clock
                    return needed
                if end > start:
                    start = end
            clock = start + self.takes[action]
            for one in range(action, after):
                self.starts[one], ends[one] = start, clock
                if one in waiting:
                    ready += waiting.pop(one)
            action = after
        self.cursor[rank] = action
        return None

    def cycle(self) -> tuple[tuple[int, str, int, str], ...]:
        """Follow the waits from any rank that stopped until one comes up again."""
        rank_of, text = self.schedule.rank, self.schedule.atoms.action
        rank, seen = next(iter(self.stopped)), list[int]()
        while rank not in seen:
            seen.append(rank)
            rank = int(rank_of[self.stopped[rank]])
        return tuple(
            (one, str(text(self._needing(one))), int(rank_of[self.stopped[one]]), str(text(self.stopped[one])))
            for one in seen[seen.index(rank) :]
        )

    def _needing(self, rank: int) -> int:
        """The action of a stopped rank's group that needs what is missing."""
        first = self.cursor[rank]
        group = range(first, self.after[first])
        return next(one for one in group if self.stopped[rank] in self.producer[self.at[one] : self.at[one + 1]])


def _ends_of_groups(schedule: Schedule) -> list[int]:
    """For each action the place after its group, on the same rank."""
    first = ~schedule.atoms.fused
    first[schedule.offsets[:-1][np.diff(schedule.offsets) > 0]] = True
    starts = np.flatnonzero(first)
    return np.repeat(np.append(starts[1:], len(schedule)), np.diff(np.append(starts, len(schedule)))).tolist()
