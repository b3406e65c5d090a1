"""What happened when, simulated or measured: one type for both."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from importlib import import_module
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from pipesim.ir.lanes import LaneKind, Lanes, lanes
from pipesim.ir.program import Program

Floats = NDArray[np.float64]
Source = Literal["simulated", "measured", "emulated", "imported"]


@dataclass(frozen=True, eq=False)
class MemoryTrace:
    """Bytes held by each rank over time.

    base: (ranks,) bytes held all the time. Rank r's changes are offsets[r] … offsets[r+1] of `time_s`
    and `change_bytes`, ordered in time. limit: (ranks,) of the device, if known.
    """

    base: Floats
    offsets: NDArray[np.integer]
    time_s: Floats
    change_bytes: Floats
    limit: Floats | None = None

    def curve(self, rank: int) -> tuple[Floats, Floats]:
        """Times and the bytes held from each time on; the first point is time 0."""
        mine = slice(int(self.offsets[rank]), int(self.offsets[rank + 1]))
        times = np.concatenate([[0.0], self.time_s[mine]])
        return times, self.base[rank] + np.concatenate([[0.0], np.cumsum(self.change_bytes[mine])])

    @cached_property
    def peak(self) -> Floats:
        """Most bytes each rank holds at once, shape (ranks,)."""
        return np.asarray([self.curve(rank)[1].max() for rank in range(len(self.base))])

    @property
    def fits(self) -> bool | None:
        """Whether every rank stays within its limit; None where no limit is known."""
        return None if self.limit is None else bool((self.peak <= self.limit).all())


@dataclass(frozen=True, eq=False)
class Timeline:
    """Start and end, in seconds, of every operation of a program.

    A transfer's start is when both sides were ready. Fused pairs have one time on both their actions.
    facts: whatever its maker wants kept (model, cluster, layout, host …), plain JSON values.
    """

    program: Program
    start: Floats
    end: Floats
    memory: MemoryTrace | None = None
    source: Source = "simulated"
    facts: dict[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.program.schedule.name

    @property
    def ranks(self) -> int:
        return self.program.ranks

    @cached_property
    def lanes(self) -> Lanes:
        return lanes(self.program)

    @cached_property
    def boxes(self) -> NDArray[np.integer]:
        """Operations in compute lanes that take a place of their own: the second of a fused pair has none."""
        return np.flatnonzero(self.program.is_compute & ~self.program.ops.fused)

    @property
    def makespan_s(self) -> float:
        """From 0 to the end of the last compute action."""
        return float(self.end[self.boxes].max(initial=0.0))

    @property
    def step_time_s(self) -> float:
        """From 0 to the end of everything, gradient reduction and optimizer step included."""
        return float(self.end.max(initial=0.0))

    def _repr_html_(self) -> str:
        """How a notebook shows it; drawing is loaded when it is asked for."""
        return str(import_module("pipesim.viz.notebook").timeline_html(self))

    def label(self, box: int) -> str:
        """Text of an operation; of a fused pair both actions."""
        after = box + 1
        pair = after < len(self.program) and bool(self.program.ops.fused[after])
        return self.program.text(box) + (f"&{self.program.text(after)}" if pair else "")

    def lane_name(self, lane: int) -> str:
        """`compute`, `send to 3`, `receive from 1`, …"""
        kind, peer = LaneKind(int(self.lanes.kind[lane])), int(self.lanes.peer[lane])
        return {
            LaneKind.COMPUTE: "compute",
            LaneKind.SEND: f"send to {peer}",
            LaneKind.RECV: f"receive from {peer}",
            LaneKind.PAIR: f"transfers with {peer}",
            LaneKind.RANK: "transfers",
            LaneKind.REDUCE: "gradient reduction",
            LaneKind.OUT: "activations out",
            LaneKind.IN: "activations in",
        }[kind]
