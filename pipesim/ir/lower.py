"""Lowering: from a schedule to a program whose sends and receives cannot deadlock.

Each channel (ordered pair of ranks, one flow) carries its messages in the order they are produced, and
the receiver posts its receives in that same order: right for NCCL, which pairs operations by order, and
for gloo, which pairs them by tag. A receive stands before the first action that needs it or any later
message of its channel.

With a lane per directed edge that is enough, as no compute waits for a send. Lanes shared by several
channels (`pair`, `rank`, `blocking`) can lock up; there the just-in-time order is kept if it is proven
free of deadlock, and otherwise all transfers are put into one global order, that of a run in which every
action takes one unit, which cannot deadlock in any lane.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pipesim.ir.action import Kind
from pipesim.ir.atoms import Atoms, Ints, concatenate
from pipesim.ir.lanes import lanes
from pipesim.ir.needs import Flow
from pipesim.ir.order import progress, unit_starts
from pipesim.ir.program import Comm, Program
from pipesim.ir.schedule import Schedule
from pipesim.ir.tail import Tail, tail

_RECV, _ACTION, _SEND, _REDUCE, _STEP = range(5)  # order of operations around one action


@dataclass(frozen=True)
class _Messages:
    """Messages between ranks, sorted by channel and in it by production."""

    producer: Ints
    consumer: Ints
    flow: Ints
    channel: Ints

    def __len__(self) -> int:
        return len(self.producer)


def lower(schedule: Schedule, *, comm: Comm = "edge", reduce: bool = False, clip: bool = False) -> Program:
    """Make sends, receives, gradient reductions and optimizer steps explicit.

    reduce: whether gradients are reduced over data-parallel replicas; the two directions of a
        bidirectional schedule are reduced in any case.
    clip: whether the optimizer step waits for all ranks (global gradient norm).
    Raises Deadlock if the schedule's own order cannot be run.
    """
    messages = _messages(schedule)
    program = _assemble(schedule, messages, _just_in_time(schedule, messages), comm, reduce, clip)
    if comm == "edge" or not progress(lanes(program), program).stuck:
        return program
    return _assemble(schedule, messages, _one_global_order(schedule, messages), comm, reduce, clip)


def lower_in_one_order(schedule: Schedule, *, reduce: bool = False) -> Program:
    """As `lower`, with all transfers in one global order, that of a unit-time run: right for any lanes.

    Raises Deadlock if the schedule's own order cannot be run.
    """
    messages = _messages(schedule)
    return _assemble(schedule, messages, _one_global_order(schedule, messages), "rank", reduce, False)


def _messages(schedule: Schedule) -> _Messages:
    needs, rank = schedule.dependencies, schedule.rank
    crosses = (needs.flow != Flow.LOCAL) & (rank[needs.producer] != rank[needs.consumer])
    producer, consumer, flow = needs.producer[crosses], needs.consumer[crosses], needs.flow[crosses]
    channel = (rank[producer].astype(np.int64) * schedule.ranks + rank[consumer]) * len(Flow) + flow
    order = np.argsort(channel * len(schedule) + producer, kind="stable")
    return _Messages(producer[order], consumer[order], flow[order], channel[order])


def _groups(schedule: Schedule) -> Ints:
    """Group of each action, counted over all ranks; a fused pair is one group."""
    starts = ~schedule.atoms.fused
    return np.cumsum(starts) - 1


@dataclass(frozen=True)
class _Slots:
    """For each send and each receive: the group before which (receive) or after which (send) it stands."""

    send: Ints
    receive: Ints
    key: Ints  # order among the operations of one slot


def _just_in_time(schedule: Schedule, messages: _Messages) -> _Slots:
    group = _groups(schedule)
    wanted = group[messages.consumer].astype(np.int64)
    segment = np.cumsum(np.diff(messages.channel, prepend=messages.channel[:1]) != 0)
    span = np.int64(len(schedule) + 1)
    receive = np.minimum.accumulate((wanted + segment * span)[::-1])[::-1] - segment * span
    return _Slots(group[messages.producer], receive, np.arange(len(messages)))


def _one_global_order(schedule: Schedule, messages: _Messages) -> _Slots:
    starts = unit_starts(schedule)
    group = _groups(schedule)
    head = np.flatnonzero(~schedule.atoms.fused)
    ends_at = (starts + 1)[messages.producer]
    key = np.empty(len(messages), np.int64)
    key[np.lexsort((messages.producer, ends_at))] = np.arange(len(messages))
    rank_of_group, start_of_group = schedule.rank[head], starts[head]
    to = schedule.rank[messages.consumer]
    receive = np.empty(len(messages), np.int64)
    send = np.empty(len(messages), np.int64)
    for rank in range(schedule.ranks):
        mine = np.flatnonzero(rank_of_group == rank)
        here = to == rank
        receive[here] = mine[0] + np.searchsorted(start_of_group[mine], ends_at[here], side="left")
    send[:] = group[messages.producer]
    return _Slots(send, receive, key)


def _assemble(schedule: Schedule, messages: _Messages, slots: _Slots, comm: Comm, reduce: bool, clip: bool) -> Program:
    """Merge actions, sends, receives, reductions and steps into one order a rank."""
    end = tail(schedule, reduce=reduce, clip=clip)
    group, rank, atoms = _groups(schedule), schedule.rank, schedule.atoms
    count, of = len(messages), messages
    row = np.concatenate([rank, rank[of.producer], rank[of.consumer], end.rank])
    # A receive placed "before group g" shares the gap with the sends after group g-1 of its rank.
    gap = np.concatenate([2 * group + 1, 2 * slots.send + 2, 2 * slots.receive, 2 * group[end.behind] + 2])
    phase = np.repeat([_ACTION, _SEND, _RECV, _REDUCE, _STEP], _counts(len(atoms), count, end)).astype(np.int8)
    if comm != "edge":  # one order for both directions: sends after group g-1 and receives before g, by key
        phase[len(atoms) : len(atoms) + 2 * count] = _SEND
    key = np.concatenate([np.arange(len(atoms)), slots.key, slots.key, np.arange(len(end.rank))])
    place, order = _sorted(row, gap, phase, key)

    action_at, send_at, recv_at, tail_at = np.split(place, np.cumsum([len(atoms), count, count]))
    ops = concatenate(
        [
            atoms,
            _columns(atoms, of.producer, Kind.SEND),
            _columns(atoms, of.consumer, Kind.RECV),
            end.ops,
        ]
    ).take(order)
    peer = np.concatenate([rank, rank[of.consumer], rank[of.producer], end.rank])[order]
    flow = np.concatenate([np.zeros(len(atoms), np.int8), of.flow, of.flow, np.zeros(len(end.rank), np.int8)])
    match = np.arange(len(order), dtype=np.int32)
    match[send_at], match[recv_at] = recv_at, send_at

    edges = [(recv_at, action_at[of.consumer]), (action_at[of.producer], send_at), *_move_edges(schedule, action_at)]
    edges += [(action_at[end.waits[0]], tail_at[end.waits[1]]), (tail_at[end.chained[0]], tail_at[end.chained[1]])]
    need, need_offsets = compress(edges, len(order))
    offsets = np.concatenate([[0], np.cumsum(np.bincount(row, minlength=schedule.ranks))])
    return Program(schedule, ops, offsets, flow[order], peer, match, need, need_offsets, comm)


def _counts(actions: int, messages: int, end: Tail) -> list[int]:
    return [actions, messages, messages, end.reductions, len(end.ops) - end.reductions]


def _sorted(row: Ints, gap: Ints, phase: Ints, key: Ints) -> tuple[Ints, Ints]:
    """Place of each operation when sorted by these, first things first, and the operation at each place."""
    # Gaps grow from row to row, but for one that two rows share: so much tells them apart.
    whole = ((gap.astype(np.int64) + row) * (_STEP + 1) + phase) * (int(key.max(initial=0)) + 1) + key
    order = np.argsort(whole, kind="stable").astype(np.int32)  # merges what is sorted in parts
    place = np.empty(len(order), np.int32)
    place[order] = np.arange(len(order), dtype=np.int32)
    return place, order


def _columns(atoms: Atoms, index: Ints, kind: Kind) -> Atoms:
    return Atoms.of(np.full(len(index), kind), atoms.stage[index], atoms.microbatch[index], atoms.slice[index])


def _move_edges(schedule: Schedule, action_at: Ints) -> list[tuple[Ints, Ints]]:
    """Activation moves run beside compute: they wait for their needs, a load also for its place in the order."""
    atoms, needs = schedule.atoms, schedule.dependencies
    loads = np.flatnonzero(atoms.kind == Kind.L)
    if not len(loads):
        return []
    moves = np.isin(atoms.kind, (Kind.X, Kind.L))
    beside = moves[needs.consumer] | moves[needs.producer]
    compute = np.where(atoms.kind <= Kind.W, np.arange(len(atoms)), -1)
    before = np.maximum.accumulate(compute)[loads]
    return [
        (action_at[needs.producer[beside]], action_at[needs.consumer[beside]]),
        (action_at[before], action_at[loads]),
    ]


def compress(edges: list[tuple[Ints, Ints]], ops: int) -> tuple[Ints, Ints]:
    """Edges (needed, needing) as compressed rows by the needing operation."""
    needed = np.concatenate([edge[0] for edge in edges])
    needing = np.concatenate([edge[1] for edge in edges])
    order = np.argsort(needing, kind="stable")
    offsets = np.concatenate([[0], np.cumsum(np.bincount(needing, minlength=ops))])
    return needed[order].astype(np.int32), offsets.astype(np.int32)
