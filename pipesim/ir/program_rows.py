"""A program from someone else's rows, transfers in the order in which they stand there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from pipesim.ir.action import Kind
from pipesim.ir.atoms import Atoms, Ints, concatenate
from pipesim.ir.check import BrokenSchedule
from pipesim.ir.lower import compress
from pipesim.ir.needs import Flow
from pipesim.ir.program import Comm, Program
from pipesim.ir.schedule import Schedule


def program_from_rows(
    schedule: Schedule, rows: Sequence[Atoms], flows: Sequence[Ints], *, comm: Comm = "edge"
) -> Program:
    """The program whose operations are `rows`, one a rank; the checker then finds what their order does.

    rows: the schedule's actions in its order, with SEND (stage of the producing action), RECV (stage of
        the needing one), REDUCE and STEP among them. flows: what each SEND and RECV carries.
    Raises BrokenSchedule where a transfer is missing, twice, of no use, or on the wrong side of its action.
    """
    ops, flow = concatenate(rows), np.concatenate(flows).astype(np.int8)
    offsets = np.cumsum([0, *map(len, rows)])
    rank = np.repeat(np.arange(len(rows), dtype=np.int32), np.diff(offsets))
    action_at = np.flatnonzero(ops.kind <= Kind.L)
    ends = _ends(schedule, ops, flow, rank, action_at)
    if ends.faults:
        raise BrokenSchedule(schedule.name, ends.faults)
    match, peer = np.arange(len(ops)), rank.copy()
    match[ends.send], match[ends.recv] = ends.recv, ends.send
    peer[ends.send], peer[ends.recv] = rank[ends.recv], rank[ends.send]
    edges = [(ends.recv, ends.consumer), (ends.producer, ends.send), *_tail(ops, rank)]
    need, need_offsets = compress(edges, len(ops))
    return Program(schedule, ops, offsets, flow, peer, match, need, need_offsets, comm)


@dataclass(frozen=True)
class _Ends:
    """Per message its four operations, and what is wrong with the transfers."""

    producer: Ints
    send: Ints
    recv: Ints
    consumer: Ints
    faults: tuple[str, ...]


def _ends(schedule: Schedule, ops: Atoms, flow: Ints, rank: Ints, action_at: Ints) -> _Ends:
    needs, on = schedule.dependencies, schedule.rank
    crosses = (needs.flow != Flow.LOCAL) & (on[needs.producer] != on[needs.consumer])
    producer, consumer = action_at[needs.producer[crosses]], action_at[needs.consumer[crosses]]
    carried = needs.flow[crosses]
    sends, double_sends = _find(ops, flow, rank, Kind.SEND)
    recvs, double_recvs = _find(ops, flow, rank, Kind.RECV)
    faults = [f"{_words(ops, op, flow)} stands twice on rank {rank[op]}" for op in (*double_sends, *double_recvs)]
    rows: list[tuple[int, int, int, int]] = []
    for giver, taker, what in zip(producer.tolist(), consumer.tolist(), carried.tolist(), strict=True):
        send = sends.pop(_key(ops, rank, giver, what), None)
        recv = recvs.pop(_key(ops, rank, taker, what), None)
        faults += _misplaced(ops, flow, rank, (giver, send, recv, taker))
        if send is not None and recv is not None:
            rows.append((giver, send, recv, taker))
    faults += [
        f"{_words(ops, op, flow)} on rank {rank[op]} carries what nobody needs there"
        for op in (*sends.values(), *recvs.values())
    ]
    columns = np.array(rows, np.int64).reshape(-1, 4).T
    return _Ends(columns[0], columns[1], columns[2], columns[3], tuple(faults))


_Key = tuple[int, int, int, int, int]


def _key(ops: Atoms, rank: Ints, op: int, flow: int) -> _Key:
    return (int(rank[op]), flow, int(ops.stage[op]), int(ops.microbatch[op]), int(ops.slice[op]))


def _find(ops: Atoms, flow: Ints, rank: Ints, kind: Kind) -> tuple[dict[_Key, int], list[int]]:
    """The transfers of this kind by what they carry, and those that stand there again."""
    found: dict[_Key, int] = {}
    again = []
    for op in np.flatnonzero(ops.kind == kind).tolist():
        key = _key(ops, rank, op, int(flow[op]))
        if key in found:
            again.append(op)
        found.setdefault(key, op)
    return found, again


def _misplaced(ops: Atoms, flow: Ints, rank: Ints, ends: tuple[int, int | None, int | None, int]) -> Iterator[str]:
    giver, send, recv, taker = ends
    made, used = ops.action(giver), ops.action(taker)
    if send is None:
        yield f"rank {rank[giver]} does not send the result of {made}, which {used} on rank {rank[taker]} needs"
    elif send < giver:
        yield f"{_words(ops, send, flow)} stands before {made}, whose result it sends"
    if recv is None:
        yield f"rank {rank[taker]} does not receive the result of {made}, which {used} needs"
    elif recv > taker:
        yield f"{_words(ops, recv, flow)} stands after {used}, which needs it"


def _words(ops: Atoms, op: int, flow: Ints) -> str:
    letter = {Flow.ACTIVATION: "F", Flow.GRADIENT: "B", Flow.TOKEN: "T", Flow.MOVE: "X"}.get(Flow(int(flow[op])), "")
    tail = f".{ops.slice[op]}" if ops.slice[op] else ""
    return f"{ops.stage[op]}{Kind(int(ops.kind[op])).name}_{letter}{ops.microbatch[op]}{tail}"


def _tail(ops: Atoms, rank: Ints) -> list[tuple[Ints, Ints]]:
    """A reduction waits for the last backward of its stage, a step for its rank's reductions and actions."""
    pairs: list[tuple[int, int]] = []
    gives = (ops.kind == Kind.B) | (ops.kind == Kind.W)
    for op in np.flatnonzero((ops.kind == Kind.REDUCE) | (ops.kind == Kind.STEP)).tolist():
        mine = rank == rank[op]
        waits = (
            gives & mine & (ops.stage == ops.stage[op])
            if ops.kind[op] == Kind.REDUCE
            else mine & (gives | (ops.kind == Kind.REDUCE))
        )
        pairs += [(other, op) for other in np.flatnonzero(waits).tolist()]
    columns = np.array(pairs, np.int64).reshape(-1, 2).T
    return [(columns[0], columns[1])]
