"""Orders of action numbers as schedules, and schedules as orders."""

from __future__ import annotations

import numpy as np

from pipesim.ir.action import Kind
from pipesim.ir.atoms import Atoms, Ints
from pipesim.ir.placement import Placement
from pipesim.ir.schedule import Schedule
from pipesim.plan.search.arrays import Layout
from pipesim.plan.search.problem import F, I, Problem, W


def serial(placement: Placement, microbatches: int) -> Schedule:
    """Each microbatch alone down its chain and up; the next one waits in its buffer."""
    rows: list[list[str]] = [[] for _ in range(placement.ranks)]
    for microbatch in range(microbatches):
        chain = microbatch % placement.chains
        stages = range(chain * placement.length, (chain + 1) * placement.length)
        for kind, order in (("F", stages), ("B", stages[::-1])):
            for stage in order:
                rows[placement.ranks_of_stages[stage]].append(f"{stage}{kind}{microbatch}")
    return Schedule.of_texts("one at a time", placement, microbatches, rows)


def to_schedule(layout: Layout, order: Ints, name: str) -> Schedule:
    """An order, rank after rank, as a schedule; the microbatches of several chains take turns."""
    problem, (_, stages, most) = layout.problem, layout.shape
    kind, rest = np.divmod(order, stages * most)
    stage, place = np.divmod(rest, most)
    microbatch = place * problem.placement.chains + stage // problem.placement.length
    kinds = np.asarray([Kind.F, Kind.I if problem.splits else Kind.B, Kind.W])
    atoms = Atoms.of(kinds[kind], stage, microbatch)
    return Schedule(name, problem.placement, problem.microbatches, atoms, layout.offsets)


def from_schedule(layout: Layout, schedule: Schedule) -> Ints | None:
    """A schedule of the same placement as an order; None where it has actions of another kind.

    A whole B becomes I and W one after the other where the problem splits backwards; of a fused pair what stands
    first comes first. Microbatches are numbered by when each stage takes them.
    """
    if not _alike(schedule, layout.problem):
        return None
    kinds, stages = _split(schedule) if layout.problem.splits else _whole(schedule)
    by_rank = np.argsort(layout.problem.rank_of[stages], kind="stable")
    kind_stage = (kinds * layout.problem.stages + stages)[by_rank]
    return numbered(layout, kind_stage) if len(kind_stage) == layout.offsets[-1] else None


def numbered(layout: Layout, kind_stage: Ints) -> Ints:
    """Action numbers from kind · stages + stage of each action of an order: microbatches in turn."""
    order = np.argsort(kind_stage, kind="stable")
    grouped = kind_stage[order]
    begins = np.concatenate([[True], grouped[1:] != grouped[:-1]])
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order)) - np.maximum.accumulate(np.where(begins, np.arange(len(order)), 0))
    return kind_stage * layout.shape[2] + place


def _alike(schedule: Schedule, problem: Problem) -> bool:
    same = schedule.placement == problem.placement and schedule.microbatches == problem.microbatches
    plain = schedule.slices == 1 and schedule.update_every is None and schedule.trains
    if not same or not plain or int(schedule.atoms.kind.max()) > Kind.W:
        return False
    forward = schedule.atoms.kind == Kind.F
    passing = np.bincount(schedule.atoms.stage[forward], minlength=problem.stages)
    return bool((passing == problem.counts).all()) and (problem.splits or not schedule.splits_backward)


def _split(schedule: Schedule) -> tuple[Ints, Ints]:
    kind, stage = schedule.atoms.kind.astype(np.int64), schedule.atoms.stage.astype(np.int64)
    times = np.where(kind == Kind.B, 2, 1)
    kinds = np.repeat(np.asarray([F, I, I, W])[kind], times)
    second = np.concatenate([[False], np.diff(np.repeat(np.arange(len(kind)), times)) == 0])
    return np.where(second, W, kinds), np.repeat(stage, times)


def _whole(schedule: Schedule) -> tuple[Ints, Ints]:
    return np.where(schedule.atoms.kind == Kind.F, F, I), schedule.atoms.stage.astype(np.int64)
