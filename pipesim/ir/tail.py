"""What follows the actions of a step: gradient reductions and optimizer steps, and what they wait for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pipesim.ir.action import Kind
from pipesim.ir.atoms import Atoms, Ints, concatenate
from pipesim.ir.schedule import Schedule

Edges = tuple[Ints, Ints]  # what is needed, and what needs it


@dataclass(frozen=True, eq=False)
class Tail:
    """Reductions and then optimizer steps, each on a rank behind one of its actions."""

    ops: Atoms
    behind: Ints  # the action each stands behind
    rank: Ints
    waits: Edges  # actions, and the tail operations that wait for them
    chained: Edges  # reductions, and the steps that wait for them

    @property
    def reductions(self) -> int:
        """How many reductions there are."""
        return int((self.ops.kind == Kind.REDUCE).sum())


def tail(schedule: Schedule, *, reduce: bool, clip: bool) -> Tail:
    """The tail of a schedule; nothing behind one that has forwards only.

    reduce: whether gradients are reduced over data-parallel replicas; replicas of a stage in the pipeline
        itself are reduced in any case. clip: whether a synchronous step waits for the reductions of all ranks.
    """
    ends, edges = _complete(schedule) if schedule.trains else (np.zeros(0, np.int64), _no_edges())
    idle, twins = _idle_replicas(schedule, ends)
    if not (reduce or schedule.placement.chains > 1):
        reductions = ends[:0]
    else:
        reductions = ends
    count = len(reductions) + len(idle)
    action, point = edges
    waits = [edges, (twins[0], len(reductions) + twins[1])] if count else []
    if schedule.update_every is None:
        last = schedule.offsets[1:] - 1 if schedule.trains else ends
        first_stage = np.unique(schedule.placement.ranks_of_stages, return_index=True)[1][: len(last)]
        steps = Atoms.of(np.full(len(last), Kind.STEP), first_stage, np.full(len(last), schedule.microbatches - 1))
    else:
        last, steps = ends, _ops(schedule, Kind.STEP, ends)
        waits += [(action, count + point)]
    rank_of = np.asarray(schedule.placement.ranks_of_stages)
    behind = np.concatenate([reductions, schedule.offsets[1:][rank_of[idle]] - 1, last])
    rank = schedule.rank[behind]
    at_once = Atoms.of(np.full(len(idle), Kind.REDUCE), idle, np.full(len(idle), schedule.microbatches - 1))
    return Tail(
        concatenate([_ops(schedule, Kind.REDUCE, reductions), at_once, steps]),
        behind,
        rank,
        _joined(waits),
        _chained(rank[:count], rank[count:], clip) if schedule.update_every is None else _each(count),
    )


def _complete(schedule: Schedule) -> tuple[Ints, Edges]:
    """The actions that complete a stage's gradients, stage by stage, and which actions each such point
    waits for: the action itself and those of the stage's replicas at their same turn."""
    atoms, placement = schedule.atoms, schedule.placement
    gives = np.flatnonzero((atoms.kind == Kind.B) | (atoms.kind == Kind.W))
    stage = atoms.stage[gives]
    order = np.argsort(stage, kind="stable")
    gives, count = gives[order], np.bincount(stage, minlength=placement.stages)
    first = np.cumsum(count) - count
    every = np.maximum(count, 1) if schedule.update_every is None else schedule.update_every * schedule.slices
    points = count // every
    at = np.repeat(np.arange(placement.stages), points)
    turn = np.arange(len(at)) - np.repeat(np.cumsum(points) - points, points)
    ends = gives[first[at] + (turn + 1) * np.broadcast_to(every, count.shape)[at] - 1]
    found = [(ends, np.arange(len(ends)))]
    for chain in range(placement.chains):
        twin = at % placement.length + chain * placement.length
        there = np.flatnonzero((twin != at) & (turn < points[twin]))
        twin_first = np.cumsum(points) - points
        found.append((ends[twin_first[twin[there]] + turn[there]], there))
    return ends, _joined(found)


def _idle_replicas(schedule: Schedule, ends: Ints) -> tuple[Ints, Edges]:
    """Stages that no microbatch passes while a replica of theirs is trained, and what their reduction waits for.

    They have no gradient of their own but take the sum, or their weights would fall behind.
    """
    length = schedule.placement.length
    done = schedule.atoms.stage[ends]
    unused = np.setdiff1d(np.arange(schedule.placement.stages), done)
    idle = unused[np.isin(unused % length, done % length)] if schedule.update_every is None else unused[:0]
    actions, points = np.nonzero((done % length)[:, None] == (idle % length)[None, :])
    return idle, (ends[actions], points)


def _ops(schedule: Schedule, kind: Kind, ends: Ints) -> Atoms:
    atoms = schedule.atoms.take(ends)
    return Atoms.of(np.full(len(ends), kind), atoms.stage, atoms.microbatch)


def _chained(reducing: Ints, stepping: Ints, clip: bool) -> Edges:
    """Reductions to steps, of ranks given for both: to the step of the same rank, or to all steps."""
    count, steps = len(reducing), len(stepping)
    if clip:
        return np.tile(np.arange(count), steps), count + np.repeat(np.arange(steps), count)
    step_of = np.zeros(int(stepping.max(initial=0)) + 1, np.int64)
    step_of[stepping] = np.arange(steps)
    return np.arange(count), count + step_of[reducing]


def _each(count: int) -> Edges:
    """Each reduction to the step at the same place in its list."""
    return np.arange(count), count + np.arange(count)


def _joined(edges: Sequence[Edges]) -> Edges:
    found = [_no_edges(), *edges]
    return np.concatenate([edge[0] for edge in found]), np.concatenate([edge[1] for edge in found])


def _no_edges() -> Edges:
    return np.zeros(0, np.int64), np.zeros(0, np.int64)
