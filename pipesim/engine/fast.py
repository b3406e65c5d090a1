"""The fast engine: the reference engine's timeline as one compiled sweep over fixed-order lanes.

Whatever one transfer can do to another one through a link they share is beyond it; it says so.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from pipesim.costs.costs import Costs, Floats
from pipesim.engine.contention import bandwidths, require_room
from pipesim.engine.durations import Durations, durations
from pipesim.engine.held import memory_trace
from pipesim.engine.rows import edge_lanes, walk_rows
from pipesim.engine.sweep import OWN, RECV, SEND, Structure, Times, sweep
from pipesim.ir.action import Kind
from pipesim.ir.atoms import Ints
from pipesim.ir.lanes import LaneKind, Lanes, lanes
from pipesim.ir.order import require_progress
from pipesim.ir.program import Program
from pipesim.timeline import Timeline

_NOBODY_ASKS = np.zeros(0, np.int32)


def simulate(program: Program, costs: Costs, timing: Durations | None = None) -> Timeline:
    """When each operation of a program runs. Raises Deadlock, NoCost, WrongStages, SharedLinks.

    timing: times to take instead of those the costs give.
    """
    timing = durations(program, costs) if timing is None else timing
    parts = holds(program, timing, costs)
    start, end = along_rows(program, *parts) or Sweeper(program).run(*parts)
    require_room(program, timing, costs.network, start, end)
    memory = memory_trace(program, costs, start, end)
    return Timeline(program, start, end, memory=memory, source="simulated")


def along_rows(program: Program, hold_s: Floats, then_s: Floats) -> tuple[Floats, Floats] | None:
    """Start and end of each operation, where rows can be walked in their own order: see `rows`."""
    if program.comm != "edge":
        return None
    start, end = np.full(len(program), np.nan), np.full(len(program), np.nan)
    ended = walk_rows(
        program.offsets, roles(program), program.ops.fused, *edge_lanes(program), program.match,
        program.need_offsets, program.need, hold_s, then_s, start, end,
    )  # fmt: skip
    return (start, end) if ended == len(program) else None


def roles(program: Program) -> Ints:
    """Of each operation OWN, SEND or RECV."""
    of_kind = np.full(len(Kind), OWN, np.int8)
    of_kind[Kind.SEND], of_kind[Kind.RECV] = SEND, RECV
    return of_kind[program.ops.kind]


def holds(program: Program, timing: Durations, costs: Costs) -> tuple[Floats, Floats]:
    """Seconds each operation takes in two parts, as `sweep` wants them, at the bandwidth it has when alone.

    Of a transfer its bytes and then its latency, which holds no piped lane; of anything else its fixed time
    and then its bytes: the reference engine's order of adding, so that both round alike.
    """
    rate = bandwidths(timing.routes, costs.network)
    bytes_s = timing.size_bytes / rate[timing.route]
    transfers = program.ops.kind >= Kind.SEND
    transfers &= program.ops.kind <= Kind.RECV
    fixed_s = timing.seconds + timing.latency_s
    return np.where(transfers, bytes_s, fixed_s), np.where(transfers, timing.latency_s, bytes_s)


@dataclass(frozen=True, eq=False)
class Sweeper:
    """A program made ready to be swept any number of times."""

    program: Program

    @cached_property
    def lanes(self) -> Lanes:
        return lanes(self.program)

    @cached_property
    def structure(self) -> Structure:
        """What the sweep walks along."""
        program, lanes = self.program, self.lanes
        return Structure(
            lanes.lane_offsets,
            lanes.batch_offsets,
            lanes.order,
            np.isin(lanes.kind, (LaneKind.SEND, LaneKind.RECV)),
            lanes.lane,
            roles(program),
            program.match,
            program.need_offsets,
            program.need,
        )

    def run(self, hold_s: Floats, then_s: Floats, cause: Ints = _NOBODY_ASKS) -> tuple[Floats, Floats]:
        """Start and end of each operation; `cause` is filled as `Times` says. Raises Deadlock."""
        start, end = np.full(len(self.program), np.nan), np.full(len(self.program), np.nan)
        if sweep(self.structure, Times(hold_s, then_s, start, end, cause)) < len(self.program):
            require_progress(self.lanes, self.program)  # says who waits for whom
        return start, end
