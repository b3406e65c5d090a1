"""Activation offload to host memory, as an option of any schedule (Wan et al. 2025, arXiv 2503.01328)."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from pipesim.ir.action import MOVES, Kind
from pipesim.ir.atoms import Atoms, Ints, concatenate
from pipesim.ir.schedule import Schedule
from pipesim.schedules.constraints import Unsuitable, require_counts

_LOAD, _ACTION, _EVICT = range(3)  # order around one group of actions


def with_offload(schedule: Schedule, *, share: float = 1.0, ahead: int = 1) -> Schedule:
    """The same order with activations moved to the host after their forward and back before their backward.

    Stages whose activations wait longest go first, as each saves most memory for the same transfer (the
    selective offload of the paper); one whose backward comes too soon to be worth a round trip stays. A
    load is started `ahead` actions before its backward, so that it runs beside them. The transfers have
    lanes of their own.
    share: part of each rank's activations to move, at most.
    Raises Unsuitable.
    """
    require_counts("offload", ahead=ahead)
    if not 0 <= share <= 1:
        raise Unsuitable("offload", f"share {share:g}", "it is a part of the activations", "a number from 0 to 1")
    if not schedule.trains:
        raise Unsuitable("offload", schedule.name, "it keeps no activations", "a schedule that trains")
    if np.isin(schedule.atoms.kind, MOVES).any():
        raise Unsuitable("offload", schedule.name, "it moves activations already", "1f1b or another without moves")
    waits = _waits(schedule)
    chosen = np.concatenate([_longest(schedule, waits, rank, share, ahead) for rank in range(schedule.ranks)])
    if not len(chosen):
        return schedule
    return _moved(schedule, waits, chosen, ahead)


def with_moves(schedule: Schedule, forwards: Ints, *, ahead: int = 1) -> Schedule:
    """The same order with the activations of these forwards (places in its columns) moved to the host and back.

    A load is started `ahead` actions before its backward, which must come later than that.
    """
    waits = _waits(schedule)
    return _moved(schedule, waits, np.searchsorted(waits.forward, forwards), ahead)


@dataclass(frozen=True)
class _Waits:
    """Per activation its forward action, and the groups (counted over all ranks) of forward and backward."""

    group: Ints  # of each action
    forward: Ints
    starts: Ints
    ends: Ints


def _waits(schedule: Schedule) -> _Waits:
    atoms = schedule.atoms
    group = np.cumsum(~atoms.fused) - 1
    key = (atoms.stage.astype(np.int64) * schedule.microbatches + atoms.microbatch) * schedule.slices + atoms.slice
    forward = np.flatnonzero(atoms.kind == Kind.F)
    backward = np.flatnonzero((atoms.kind == Kind.B) | (atoms.kind == Kind.I))
    order = np.argsort(key[backward])
    found = backward[order[np.searchsorted(key[backward], key[forward], sorter=order)]]
    return _Waits(group, forward, group[forward], group[found])


def _longest(schedule: Schedule, waits: _Waits, rank: int, share: float, ahead: int) -> Ints:
    """Which activations of a rank to move: stage by stage, those that wait longest first, evenly over time."""
    mine = np.flatnonzero(schedule.rank[waits.forward] == rank)
    wait, stage = (waits.ends - waits.starts)[mine], schedule.atoms.stage[waits.forward[mine]]
    left = round(share * len(mine))
    chosen = [np.zeros(0, np.int64)]
    for which in sorted(np.unique(stage), key=lambda one: -np.median(wait[stage == one])):
        worth = mine[(stage == which) & (wait >= ahead + 2)]  # at least one action runs while it is away
        count = min(left, len(worth))
        chosen.append(worth[(2 * np.arange(count) + 1) * len(worth) // (2 * max(count, 1))])
        left -= count
    return np.sort(np.concatenate(chosen))


def _moved(schedule: Schedule, waits: _Waits, chosen: Ints, ahead: int) -> Schedule:
    atoms = schedule.atoms
    away = atoms.take(waits.forward[chosen])
    rank = schedule.rank[waits.forward[chosen]]
    count = len(chosen)
    group = np.concatenate([waits.group, waits.starts[chosen], waits.ends[chosen] - ahead])
    phase = np.repeat([_ACTION, _EVICT, _LOAD], [len(atoms), count, count])
    among = np.concatenate([np.arange(len(atoms)), waits.starts[chosen], waits.ends[chosen]])
    order = np.lexsort((among, phase, group))
    merged = concatenate([atoms, _moves(away, Kind.X), _moves(away, Kind.L)]).take(order)
    ranks = np.concatenate([schedule.rank, rank, rank])
    offsets = np.concatenate([[0], np.cumsum(np.bincount(ranks, minlength=schedule.ranks))])
    return replace(
        schedule, name=f"{schedule.name}+offload", atoms=merged, offsets=offsets, refuge=(None,) * schedule.ranks
    )


def _moves(away: Atoms, kind: Kind) -> Atoms:
    return Atoms.of(np.full(len(away), kind), away.stage, away.microbatch, away.slice)
