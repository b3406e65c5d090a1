"""Weight versions of asynchronous schedules: which one an action runs with, how many are kept, how old.

Version 0 is what training starts from, version u+1 what the u-th optimizer step of the stage makes of u.
With a step after every backward (PipeDream), a forward takes the newest version there is, and its backward
the same one (weight stashing). With a step every n > 1 microbatches (PipeDream-2BW), batch t takes version
max(t-1, 0) on every stage: the newest one that is ready before any of its forwards.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pipesim.ir.action import Kind
from pipesim.ir.atoms import Ints
from pipesim.ir.schedule import Schedule


def weights_used(schedule: Schedule) -> Ints:
    """Version of the weights that each action runs with, in the schedule's order; all 0 if synchronous."""
    every, atoms = schedule.update_every, schedule.atoms
    if every is None:
        return np.zeros(len(schedule), np.int64)
    if every > 1:
        return np.maximum(atoms.microbatch.astype(np.int64) // every - 1, 0)
    used = np.zeros(len(schedule), np.int64)
    for stage in range(schedule.placement.stages):
        mine = np.flatnonzero(atoms.stage == stage)
        kind, which = atoms.kind[mine], atoms.microbatch[mine]
        steps = np.cumsum(_gives(kind)) // schedule.slices
        taken = np.zeros(schedule.microbatches, np.int64)
        taken[which[kind == Kind.F][::-1]] = steps[kind == Kind.F][::-1]  # the first slice decides
        used[mine] = taken[which]
    return used


def versions_kept(schedule: Schedule) -> Ints:
    """Most weight versions of each stage that its rank holds at once, shape (stages,)."""
    return np.array([_most_at_once(schedule, stage) for stage in range(schedule.placement.stages)])


def staleness(schedule: Schedule) -> Ints:
    """Most optimizer steps between the weights a gradient was computed with and those it is applied to.

    Shape (stages,); 0 everywhere if the schedule is synchronous.
    """
    every, atoms = schedule.update_every, schedule.atoms
    found = np.zeros(schedule.placement.stages, np.int64)
    if every is None:
        return found
    used = weights_used(schedule)
    for stage in range(schedule.placement.stages):
        gives = np.flatnonzero((atoms.stage == stage) & _gives(atoms.kind))
        applied = np.arange(len(gives)) // (every * schedule.slices)
        found[stage] = np.max(applied - used[gives], initial=0)
    return found


def _gives(kind: Ints) -> NDArray[np.bool_]:
    """Which actions complete a microbatch's gradient of the weights."""
    return np.isin(kind, (Kind.B, Kind.W))


def _most_at_once(schedule: Schedule, stage: int) -> int:
    """A version is kept until it is replaced and nothing runs with it any more."""
    every, atoms = schedule.update_every, schedule.atoms
    if every is None:
        return 1
    mine = np.flatnonzero(atoms.stage == stage)
    used = weights_used(schedule)[mine]
    made = np.flatnonzero(_gives(atoms.kind[mine]))[every * schedule.slices - 1 :: every * schedule.slices]
    versions = len(made) + 1
    last_use = np.full(versions, -1)
    np.maximum.at(last_use, np.minimum(used, versions - 1), np.arange(len(mine)))
    starts = np.concatenate([[-1], made])
    ends = np.maximum(np.concatenate([made, [len(mine)]]), last_use)
    change = np.concatenate([np.ones(versions), -np.ones(versions)])
    order = np.lexsort((change, np.concatenate([starts, ends])))  # what is let go goes first
    return int(np.cumsum(change[order]).max())
