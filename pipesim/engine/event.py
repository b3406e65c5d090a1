"""The reference engine: a SimPy process per lane of each rank, and links that transfers share."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import numpy as np
import simpy

from pipesim.costs.costs import Costs
from pipesim.engine.durations import Durations, durations
from pipesim.engine.held import memory_trace
from pipesim.engine.links import FairLinks
from pipesim.ir.action import Kind
from pipesim.ir.lanes import LaneKind, lanes
from pipesim.ir.order import require_progress
from pipesim.ir.program import Program
from pipesim.timeline import Timeline

Process = Generator[simpy.Event, Any, None]


def simulate(program: Program, costs: Costs, timing: Durations | None = None) -> Timeline:
    """When each operation of a program runs. Raises Deadlock, NoCost, WrongStages.

    timing: times to take instead of those the costs give.
    """
    run = _Run(program, costs, durations(program, costs) if timing is None else timing)
    run.env.run()
    if np.isnan(run.end).any():
        require_progress(run.lanes, program)  # says who waits for whom
    return Timeline(
        program,
        run.start,
        run.end,
        memory=memory_trace(program, costs, run.start, run.end),
        source="simulated",
    )


class _Run:
    """One simulation: the state that its processes share."""

    def __init__(self, program: Program, costs: Costs, timing: Durations) -> None:
        self.program, self.env = program, simpy.Environment()
        self.network = FairLinks(self.env, costs.network.links)
        self.seconds, self.sizes = timing.seconds.tolist(), timing.size_bytes.tolist()
        self.latency = timing.latency_s.tolist()
        self.routes = [timing.routes[index] for index in timing.route.tolist()]
        self.kind, self.match = program.ops.kind.tolist(), program.match.tolist()
        self.need, self.need_at = program.need.tolist(), program.need_offsets.tolist()
        self.start, self.end = np.full(len(program), np.nan), np.full(len(program), np.nan)
        self.posted = [self.env.event() for _ in range(len(program))]
        self.ended = [self.env.event() for _ in range(len(program))]
        self.lanes = lanes(program)
        members = self.lanes.members
        for lane, batches in enumerate(self.lanes.batches):
            piped = self.lanes.kind[lane] in (LaneKind.SEND, LaneKind.RECV)
            self.env.process(self._lane([members[batch] for batch in batches], piped))

    def _lane(self, batches: list[list[int]], piped: bool) -> Process:
        """Work through a lane: all needs of a batch, then all its operations at once."""
        for batch in batches:
            for op in batch:
                for needed in self.need[self.need_at[op] : self.need_at[op + 1]]:
                    if not self.ended[needed].triggered:
                        yield self.ended[needed]
            first = self.kind[batch[0]]
            if first <= Kind.W:
                yield from self._compute(batch)
            elif len(batch) == 1:
                yield from self._operate(batch[0], piped)
            else:
                yield self.env.all_of([self.env.process(self._operate(op, piped)) for op in batch])

    def _compute(self, batch: list[int]) -> Process:
        begun = self.env.now
        yield self.env.timeout(self.seconds[batch[0]])
        for op in batch:
            self._record(op, begun)

    def _operate(self, op: int, piped: bool) -> Process:
        """One operation that is not compute."""
        kind = self.kind[op]
        if kind == Kind.SEND:
            yield from self._send(op, piped)
        elif kind == Kind.RECV:
            self.posted[op].succeed()
            if not piped:
                yield self.ended[op]
        else:
            yield from self._alone(op)

    def _send(self, op: int, piped: bool) -> Process:
        """A rendezvous: begins when the receive is posted. With a lane to itself an edge does not hold its
        lanes for the latency, nor for a receive posted ahead, so that messages follow each other on the way."""
        receive, latency = self.match[op], self.latency[op]
        if not self.posted[receive].triggered:
            yield self.posted[receive]
        begun = self.env.now
        yield from self._move(op)
        if not piped:
            yield self.env.timeout(latency)
            self._record(op, begun)
            self._record(receive, begun)
            return
        self._record(op, begun)
        arrival = self.env.timeout(latency)
        arrival.callbacks.append(lambda _: self._record(receive, begun))

    def _move(self, op: int) -> Process:
        moved = self.network.transfer(self.routes[op], self.sizes[op])
        if not moved.triggered or moved.callbacks is not None:
            yield moved

    def _alone(self, op: int) -> Process:
        """A reduction, an optimizer step or an activation move: its own time, then its bytes."""
        begun = self.env.now
        fixed = self.seconds[op] + self.latency[op]
        if fixed:
            yield self.env.timeout(fixed)
        yield from self._move(op)
        self._record(op, begun)

    def _record(self, op: int, begun: float) -> None:
        self.start[op], self.end[op] = begun, self.env.now
        self.ended[op].succeed()
