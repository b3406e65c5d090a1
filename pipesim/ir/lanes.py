"""Lanes: the queues in which a rank's operations run one after the other.

Frameworks differ in which transfers queue behind which, and the same order then takes a different time:
`edge` a lane per directed edge and flow, `pair` one lane per pair of ranks (both directions queue behind
each other), `rank` one lane of batched operations per rank, `blocking` transfers inside the compute lane.
Reductions and activation moves have lanes of their own under every policy.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property

import numpy as np

from pipesim.ir.action import Kind
from pipesim.ir.atoms import Ints
from pipesim.ir.program import Program


class LaneKind(IntEnum):
    COMPUTE = 0
    SEND = 1
    RECV = 2
    PAIR = 3
    RANK = 4
    REDUCE = 5
    OUT = 6
    IN = 7


_OF_KIND = {Kind.REDUCE: LaneKind.REDUCE, Kind.X: LaneKind.OUT, Kind.L: LaneKind.IN,
            Kind.SEND: LaneKind.SEND, Kind.RECV: LaneKind.RECV}
_OF_POLICY = {"pair": LaneKind.PAIR, "rank": LaneKind.RANK, "blocking": LaneKind.COMPUTE}


@dataclass(frozen=True, eq=False)
class Lanes:
    """Lane and batch of each operation.

    Operations of one batch start together, when all operations of the batch before it in their lane have
    ended; a lane's batches follow each other in program order. Fused pairs are batches, too.
    """

    lane: Ints
    batch: Ints
    kind: Ints  # LaneKind of each lane
    rank: Ints  # rank of each lane
    peer: Ints  # the rank at the other end of each lane that has one (else its own)

    @cached_property
    def members(self) -> list[list[int]]:
        """Operations of each batch."""
        order = np.argsort(self.batch, kind="stable")
        cuts = np.cumsum(np.bincount(self.batch))[:-1]
        return [part.tolist() for part in np.split(order, cuts)]

    @cached_property
    def batches(self) -> list[list[int]]:
        """Batches of each lane, in order."""
        first = np.unique(self.batch, return_index=True)[1]
        found: list[list[int]] = [[] for _ in self.kind]
        for batch, lane in enumerate(self.lane[first].tolist()):
            found[lane].append(batch)
        return found


def lanes(program: Program) -> Lanes:
    """Sort a program's operations into lanes by its policy."""
    kinds = np.zeros(len(program), np.int64)
    for kind, lane_kind in _OF_KIND.items():
        kinds[program.ops.kind == kind] = lane_kind
    transfers = (program.ops.kind == Kind.SEND) | (program.ops.kind == Kind.RECV)
    shared = _OF_POLICY.get(program.comm)
    if shared is not None:
        kinds[transfers] = shared
    by_peer = np.isin(kinds, (LaneKind.SEND, LaneKind.RECV, LaneKind.PAIR))
    peer = np.where(by_peer, program.peer, program.rank)
    flow = np.where(by_peer & (kinds != LaneKind.PAIR), program.flow, 0)
    code = ((kinds * program.ranks + program.rank) * program.ranks + peer) * 8 + flow
    codes, lane = np.unique(code, return_inverse=True)
    rest = codes // 8
    return Lanes(
        lane, _batches(program, lane, transfers), rest // program.ranks**2, rest // program.ranks % program.ranks,
        rest % program.ranks,
    )


def _batches(program: Program, lane: Ints, transfers: Ints) -> Ints:
    """Number the batches, lane by lane in program order."""
    order = np.argsort(lane, kind="stable")
    joined = program.ops.fused[order].copy()
    if program.comm in ("rank", "blocking"):
        gap = np.cumsum(program.ops.kind <= Kind.W)  # transfers between the same two computations are one batch
        both = transfers[order][1:] & transfers[order][:-1]
        joined[1:] |= both & (gap[order][1:] == gap[order][:-1])
    joined[1:] &= lane[order][1:] == lane[order][:-1]
    batch = np.empty(len(program), np.int64)
    batch[order] = np.cumsum(~joined) - 1
    return batch
