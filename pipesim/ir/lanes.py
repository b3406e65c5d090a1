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
from itertools import pairwise

import numpy as np

from pipesim.ir.action import Kind
from pipesim.ir.atoms import Ints
from pipesim.ir.needs import Flow
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


_OF_KIND = {
    Kind.REDUCE: LaneKind.REDUCE,
    Kind.X: LaneKind.OUT,
    Kind.L: LaneKind.IN,
    Kind.SEND: LaneKind.SEND,
    Kind.RECV: LaneKind.RECV,
}
_FLOWS = len(Flow)
_OF_POLICY = {"pair": LaneKind.PAIR, "rank": LaneKind.RANK, "blocking": LaneKind.COMPUTE}


@dataclass(frozen=True, eq=False)
class Lanes:
    """Lane and batch of each operation.

    Operations of one batch start together, when all operations of the batch before it in their lane have
    ended; a lane's batches follow each other in program order. Fused pairs are batches, too. Batches are
    numbered lane by lane.
    """

    lane: Ints
    batch: Ints
    kind: Ints  # LaneKind of each lane
    rank: Ints  # rank of each lane
    peer: Ints  # the rank at the other end of each lane that has one (else its own)
    order: Ints  # operations, batch by batch

    @cached_property
    def batch_offsets(self) -> Ints:
        """Batch b has the operations `order[batch_offsets[b]:batch_offsets[b + 1]]`."""
        return _offsets(self.batch[self.order])

    @cached_property
    def lane_offsets(self) -> Ints:
        """Lane l has the batches lane_offsets[l] … lane_offsets[l + 1] - 1."""
        return _offsets(self.lane[self.order[self.batch_offsets[:-1]]])

    @cached_property
    def members(self) -> list[list[int]]:
        """Operations of each batch."""
        order = self.order.tolist()
        return [order[begin:end] for begin, end in pairwise(self.batch_offsets.tolist())]

    @cached_property
    def batches(self) -> list[range]:
        """Batches of each lane, in order."""
        return [range(begin, end) for begin, end in pairwise(self.lane_offsets.tolist())]


def _offsets(numbers: Ints) -> Ints:
    """Where each number begins in a sorted array that has all of 0 … its last."""
    if not len(numbers):
        return np.zeros(1, np.int32)
    changes = np.flatnonzero(numbers[1:] != numbers[:-1]) + 1
    return np.concatenate(([0], changes, [len(numbers)])).astype(np.int32)


def lanes(program: Program) -> Lanes:
    """Sort a program's operations into lanes by its policy."""
    of_kind = np.full(len(Kind), LaneKind.COMPUTE, np.int8)
    for kind, lane_kind in _OF_KIND.items():
        of_kind[kind] = lane_kind
    shared = _OF_POLICY.get(program.comm)
    if shared is not None:
        of_kind[[Kind.SEND, Kind.RECV]] = shared
    kinds, ranks = of_kind[program.ops.kind], program.ranks
    by_peer = np.isin(np.arange(len(LaneKind)), (LaneKind.SEND, LaneKind.RECV, LaneKind.PAIR))[kinds]
    code = (kinds.astype(np.int64) * ranks + program.rank) * ranks
    code += np.where(by_peer, program.peer, program.rank)
    code *= _FLOWS
    if shared is None:
        code += program.flow  # LOCAL, which is 0, for all but transfers
    codes, lane = renumber(code, len(LaneKind) * ranks**2 * _FLOWS)
    narrow = lane.astype(np.uint16) if len(codes) < 1 << 16 else lane  # numpy sorts these in linear time
    order = np.argsort(narrow, kind="stable").astype(np.int32)
    rest = codes // _FLOWS
    return Lanes(lane, _batches(program, lane, order), rest // ranks**2, rest // ranks % ranks, rest % ranks, order)


def renumber(code: Ints, below: int) -> tuple[Ints, Ints]:
    """The codes that occur, sorted, and for each element the place of its code among them."""
    if below > 8 * len(code) + (1 << 20):  # a table of all codes would be larger than what it is for
        codes, place = np.unique(code, return_inverse=True)
        return codes, place.astype(np.int32)
    occurs = np.zeros(below, np.bool_)
    occurs[code] = True
    codes = np.flatnonzero(occurs)
    places = np.empty(below, np.int32)
    places[codes] = np.arange(len(codes))
    return codes, places[code]


def _batches(program: Program, lane: Ints, order: Ints) -> Ints:
    """Number the batches, lane by lane in program order."""
    kind = program.ops.kind
    joined = program.ops.fused[order]
    if program.comm in ("rank", "blocking"):
        gap = np.cumsum(kind <= Kind.W)  # transfers between the same two computations are one batch
        transfers = (kind == Kind.SEND) | (kind == Kind.RECV)
        both = transfers[order][1:] & transfers[order][:-1]
        joined[1:] |= both & (gap[order][1:] == gap[order][:-1])
    joined[1:] &= lane[order][1:] == lane[order][:-1]
    batch = np.empty(len(program), np.int32)
    batch[order] = np.cumsum(~joined, dtype=np.int32) - 1
    return batch
