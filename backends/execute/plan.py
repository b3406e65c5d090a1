"""What one rank does in one step, made ready: computations, the transfers around them, and updates.

Read off the `Program`; nothing here knows of schedule families.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from pipesim.backends.execute.settled import settled_sends
from pipesim.errors import PipesimError
from pipesim.ir.action import MOVES, Kind
from pipesim.ir.lanes import lanes
from pipesim.ir.needs import Flow
from pipesim.ir.program import Program

AHEAD = 2  # receives posted on a channel before they are needed, so that transfers overlap compute


@dataclass(eq=False)
class CannotRun(PipesimError):
    """A program that the executor does not run."""

    what: str
    instead: str

    def __str__(self) -> str:
        return f"{self.what} can only be simulated: {self.instead}"


@dataclass(frozen=True, slots=True)
class Message:
    """One transfer, seen from either end.

    op: of this rank's SEND or RECV. tag: the same at both ends, and no other message has it.
    stage, next_stage: the producing and the consuming stage; slice: the consumer's.
    """

    op: int
    tag: int
    flow: Flow
    source: int
    target: int
    stage: int
    next_stage: int
    microbatch: int
    slice: int
    text: str

    @property
    def channel(self) -> tuple[int, int, int]:
        """Messages of one channel keep their order."""
        return (self.source, self.target, self.flow)


@dataclass(frozen=True, slots=True)
class Act:
    """One action: what it works on, and where its input comes from and its result goes to.

    receive: the message it waits for, if its input comes from another rank. send: the message it makes.
    split: of a forward, whether its backward comes in halves.
    """

    op: int
    kind: Kind
    stage: int
    microbatch: int
    slice: int
    split: bool
    receive: Message | None
    send: Message | None


@dataclass(frozen=True, slots=True)
class Compute:
    """One action, or a fused pair; afterwards the sends `settled` are known to be over."""

    acts: tuple[Act, ...]
    settled: tuple[Message, ...]


@dataclass(frozen=True, slots=True)
class Transfers:
    """Transfers to start together; `wait`: and to be waited for here."""

    receives: tuple[Message, ...]
    sends: tuple[Message, ...]
    wait: bool


@dataclass(frozen=True, slots=True)
class Update:
    """Reduce a stage's gradients over its replicas, or step the optimizers of these stages."""

    op: int
    kind: Kind
    stages: tuple[int, ...]


Task = Compute | Transfers | Update


@dataclass(frozen=True)
class Plan:
    """The tasks of one rank, in order."""

    program: Program
    rank: int
    tasks: tuple[Task, ...]
    channels: tuple[tuple[int, int, int], ...]  # of all ranks, in one order for all


def make_plan(program: Program, rank: int, *, strict: bool = False) -> Plan:
    """Raises CannotRun, and Deadlock where the program cannot end.

    strict: every transfer where the program has it, waited for at both ends, however that ends: what a
    program does whose channels disagree about their order.
    """
    require_runnable(program)
    building = _Building(program, rank)
    if strict:
        tasks = tuple(building.in_place(wait=True, together=False))
    elif program.comm == "edge":
        tasks = tuple(building.hoisted())
    else:
        tasks = tuple(building.in_place(wait=program.comm == "blocking", together=True))
    return Plan(program, rank, tasks, _channels(program))


def require_runnable(program: Program) -> None:
    """Raises CannotRun for a program with operations that are simulation-only."""
    if np.isin(program.ops.kind, MOVES).any():
        raise CannotRun("moving activations (X and L)", "leave --offload out, or take another schedule")


def _channels(program: Program) -> tuple[tuple[int, int, int], ...]:
    sends = np.flatnonzero(program.ops.kind == Kind.SEND)
    triples = zip(program.rank[sends].tolist(), program.peer[sends].tolist(), program.flow[sends].tolist(), strict=True)
    return tuple(sorted(set(triples)))


@dataclass
class _Building:
    """The pieces that a rank's tasks are made from."""

    program: Program
    rank: int
    sends_of: dict[int, Message] = field(default_factory=dict)  # by the operation of their action
    receives_of: dict[int, Message] = field(default_factory=dict)
    messages: dict[int, Message] = field(default_factory=dict)  # by their own operation

    def __post_init__(self) -> None:
        program = self.program
        kind = program.ops.kind
        for op in program.row(self.rank):
            if kind[op] == Kind.SEND:
                self.messages[op] = self._message(op, op, int(program.match[op]))
                self.sends_of[int(program.needs_of(op)[0])] = self.messages[op]
            elif kind[op] == Kind.RECV:
                self.messages[op] = self._message(op, int(program.match[op]), op)
            elif kind[op] <= Kind.W:
                for needed in program.needs_of(op).tolist():
                    if kind[needed] == Kind.RECV:
                        self.receives_of[op] = self.messages[needed]
        stage, microbatch, slice_ = program.ops.stage, program.ops.microbatch, program.ops.slice
        self.split = {(int(stage[op]), int(microbatch[op]), int(slice_[op])) for op in np.flatnonzero(kind == Kind.I)}

    def _message(self, op: int, send: int, receive: int) -> Message:
        program = self.program
        return Message(
            op,
            send,
            Flow(int(program.flow[send])),
            int(program.rank[send]),
            int(program.rank[receive]),
            int(program.ops.stage[send]),
            int(program.ops.stage[receive]),
            int(program.ops.microbatch[send]),
            int(program.ops.slice[receive]),
            program.text(op),
        )

    def _act(self, op: int) -> Act:
        ops = self.program.ops
        place = (int(ops.stage[op]), int(ops.microbatch[op]), int(ops.slice[op]))
        return Act(
            op, Kind(int(ops.kind[op])), *place, place in self.split, self.receives_of.get(op), self.sends_of.get(op)
        )

    def _update(self, op: int) -> Update:
        ops, schedule = self.program.ops, self.program.schedule
        kind, stage = Kind(int(ops.kind[op])), int(ops.stage[op])
        if kind == Kind.STEP and schedule.update_every is None:
            return Update(op, kind, schedule.placement.stages_of(self.rank))
        return Update(op, kind, (stage,))

    def _groups(self) -> Iterator[list[int]]:
        """Computations and updates in order; a fused pair is one group."""
        ops = self.program.ops
        group: list[int] = []
        for op in self.program.row(self.rank):
            if ops.kind[op] in (Kind.SEND, Kind.RECV):
                continue
            if group and not ops.fused[op]:
                yield group
                group = []
            group.append(op)
        if group:
            yield group

    def hoisted(self) -> Iterator[Task]:
        """Sends right after their computation, receives `AHEAD` of theirs: nothing waits but for its input."""
        receives = _Receives([message for message in self.messages.values() if message.target == self.rank])
        settled = settled_sends(self.program, self.rank)
        before: list[Message] = []  # receives that the program has before the next computation
        groups = {group[0]: group for group in self._groups()}
        for op in self.program.row(self.rank):
            if op in self.messages and self.messages[op].target == self.rank:
                before.append(self.messages[op])
            if op not in groups:
                continue
            if self.program.ops.kind[op] > Kind.W:
                yield self._update(op)
                continue
            due = receives.due(before)
            if due:
                yield Transfers(due, (), wait=False)
            before = []
            acts = tuple(map(self._act, groups[op]))
            yield Compute(acts, tuple(self.messages[send] for send in settled.get(op, ())))
            more = receives.after(acts)
            sends = tuple(act.send for act in acts if act.send is not None)
            if more or sends:
                yield Transfers(more, sends, wait=False)

    def in_place(self, *, wait: bool, together: bool) -> Iterator[Task]:
        """Every transfer where the program has it, in the program's batches or one by one."""
        program = self.program
        batch = lanes(program).batch if together else np.arange(len(program))
        pending: list[int] = []

        def flush() -> Iterator[Task]:
            if pending:
                found = [self.messages[op] for op in pending]
                yield Transfers(
                    tuple(message for message in found if message.target == self.rank),
                    tuple(message for message in found if message.source == self.rank),
                    wait=wait,
                )
                pending.clear()

        groups = {group[0]: group for group in self._groups()}
        for op in program.row(self.rank):
            if op in self.messages:
                if pending and batch[pending[-1]] != batch[op]:
                    yield from flush()
                pending.append(op)
            elif op in groups:
                yield from flush()
                if program.ops.kind[op] > Kind.W:
                    yield self._update(op)
                else:
                    yield Compute(tuple(map(self._act, groups[op])), ())
        yield from flush()


class _Receives:
    """Which receives to post when: in the channel's order, `AHEAD` of what has been used."""

    def __init__(self, messages: list[Message]) -> None:
        self._queues: dict[tuple[int, int, int], deque[Message]] = defaultdict(deque)
        for message in messages:
            self._queues[message.channel].append(message)
        self._posted: set[int] = set()
        self._first = tuple(message for queue in self._queues.values() for message in self._next(queue, AHEAD))

    def due(self, messages: Sequence[Message]) -> tuple[Message, ...]:
        """What has to be posted now so that these are; in the first call also the first ones of each channel."""
        found, self._first = list(self._first), ()
        for message in messages:
            queue = self._queues[message.channel]
            while message.op not in self._posted:
                found += self._next(queue, 1)
        return tuple(found)

    def after(self, acts: Sequence[Act]) -> tuple[Message, ...]:
        """What takes the places of the messages that these have used."""
        used = [act.receive.channel for act in acts if act.receive is not None]
        return tuple(message for channel in used for message in self._next(self._queues[channel], 1))

    def _next(self, queue: deque[Message], count: int) -> list[Message]:
        found = [queue.popleft() for _ in range(min(count, len(queue)))]
        self._posted |= {message.op for message in found}
        return found
