"""A schedule lowered: sends and receives, gradient reduction and optimizer steps made explicit.

Both the simulator and the executor walk a `Program`, so a simulated and a real run do the same things
in the same order.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np

from pipesim.ir.action import Kind, action_text
from pipesim.ir.atoms import Atoms, Ints
from pipesim.ir.needs import Flow
from pipesim.ir.schedule import Schedule

Comm = Literal["edge", "pair", "rank", "blocking"]
COMM_POLICIES: tuple[Comm, ...] = ("edge", "pair", "rank", "blocking")

_LETTER = {Flow.ACTIVATION: "F", Flow.GRADIENT: "B", Flow.TOKEN: "T", Flow.MOVE: "X"}


@dataclass(frozen=True, eq=False)
class Program:
    """Per rank the ordered operations; an operation is its index in the flat columns.

    flow, peer: of a SEND or RECV, what it carries and the rank at the other end (else LOCAL and itself).
    match: the RECV of a SEND and the SEND of a RECV (else itself).
    needs: operations of any rank that must end first, beside the order of its lane; compressed rows:
        those of operation i are need[need_offsets[i]:need_offsets[i+1]].
    comm: the lane policy the order was made for.
    """

    schedule: Schedule
    ops: Atoms
    offsets: Ints
    flow: Ints
    peer: Ints
    match: Ints
    need: Ints
    need_offsets: Ints
    comm: Comm = "edge"

    @property
    def ranks(self) -> int:
        return len(self.offsets) - 1

    def __len__(self) -> int:
        return len(self.ops)

    @cached_property
    def rank(self) -> Ints:
        """Rank of each operation."""
        return np.repeat(np.arange(self.ranks, dtype=np.int32), np.diff(self.offsets))

    @cached_property
    def is_compute(self) -> np.ndarray:
        """Which operations are F, B, I or W."""
        return self.ops.kind <= Kind.W

    @cached_property
    def action_ops(self) -> Ints:
        """The operation of each action of the schedule, in the schedule's order."""
        return np.flatnonzero(self.ops.kind <= Kind.L)

    def needs_of(self, op: int) -> Ints:
        return self.need[self.need_offsets[op] : self.need_offsets[op + 1]]

    def row(self, rank: int) -> range:
        """The operations of one rank, in order."""
        return range(int(self.offsets[rank]), int(self.offsets[rank + 1]))

    def text(self, op: int) -> str:
        """As in torch's schedule files: `2F0`, `2SEND_F0`, `3RECV_F0`, `2REDUCE_GRAD`, `STEP`."""
        kind, stage, microbatch, slice_ = (
            int(getattr(self.ops, column)[op]) for column in ("kind", "stage", "microbatch", "slice")
        )
        if kind in (Kind.SEND, Kind.RECV):
            tail = f".{slice_}" if slice_ else ""
            return f"{stage}{Kind(kind).name}_{_LETTER[Flow(int(self.flow[op]))]}{microbatch}{tail}"
        if kind == Kind.REDUCE:
            return f"{stage}REDUCE_GRAD"
        if kind == Kind.STEP:
            return "STEP"
        return action_text(kind, stage, microbatch, slice_)
