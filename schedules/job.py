"""A training step as numbers: what the search for a good order works on."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import NamedTuple

import numpy as np

from pipesim.ir.action import Kind
from pipesim.ir.atoms import Atoms
from pipesim.ir.needs import Shape, dependencies
from pipesim.ir.placement import Placement
from pipesim.ir.schedule import Schedule
from pipesim.schedules.times import Memory, Times

KINDS = (Kind.F, Kind.I, Kind.W)
Orders = list[list[int]]  # per rank the numbers of its actions
Edge = tuple[int, float]  # the other action, and how long its message takes


class Columns(NamedTuple):
    """What the search looks up of each action, by its number."""

    kind: list[int]  # 0 F, 1 I, 2 W
    rank: list[int]
    row: list[int]  # which of its rank's (kind, stage) rows it belongs to, as a bit
    takes: list[float]
    holds: list[float]  # change of the activations its rank holds, in microbatches
    needs: list[list[Edge]]
    feeds: list[list[Edge]]


@dataclass(frozen=True)
class Job:
    """All F, I and W of m microbatches; action (kind, stage, microbatch) has the number that `number` says."""

    placement: Placement
    microbatches: int
    times: Times
    memory: Memory

    def number(self, kind: int, stage: int, microbatch: int) -> int:
        return (kind * self.placement.stages + stage) * self.microbatches + microbatch

    def __len__(self) -> int:
        return len(KINDS) * self.placement.stages * self.microbatches

    @cached_property
    def changes(self) -> list[float]:
        """By kind, what an action adds to the activations of its rank, in microbatches."""
        freed = self.memory.input_release
        return [part * self.placement.share for part in (1.0, -freed, freed - 1.0)]

    @cached_property
    def columns(self) -> Columns:
        stages, count = self.placement.stages, self.microbatches
        per_kind = zip(
            range(len(KINDS)),
            (self.times.forward, self.times.input_grad, self.times.weight_grad),
            self.changes,
            strict=True,
        )
        found = Columns([], [], [], [], [], *self._edges())
        for kind, takes, change in per_kind:
            for stage in range(stages):
                rank = self.placement.ranks_of_stages[stage]
                mine = self.placement.stages_of(rank)
                found.kind.extend([kind] * count)
                found.rank.extend([rank] * count)
                found.row.extend([1 << (kind * len(mine) + mine.index(stage))] * count)
                found.takes.extend([takes[stage]] * count)
                found.holds.extend([change] * count)
        return found

    def _edges(self) -> tuple[list[list[Edge]], list[list[Edge]]]:
        """What each action needs and feeds, by the schedule's own rule."""
        stages, count = self.placement.stages, self.microbatches
        stage = np.tile(np.repeat(np.arange(stages), count), len(KINDS))
        atoms = Atoms.of(np.repeat(KINDS, stages * count), stage, np.tile(np.arange(count), len(KINDS) * stages))
        found = dependencies(Shape(self.placement.length), stages, count, atoms)
        rank = np.asarray(self.placement.ranks_of_stages)[stage]
        lags = np.where(rank[found.producer] != rank[found.consumer], self.times.latency, 0.0)
        needs: list[list[Edge]] = [[] for _ in range(len(self))]
        feeds: list[list[Edge]] = [[] for _ in range(len(self))]
        for source, needing, lag in zip(found.producer.tolist(), found.consumer.tolist(), lags.tolist(), strict=True):
            needs[needing].append((source, lag))
            feeds[source].append((needing, lag))
        return needs, feeds

    def peak(self, orders: Orders) -> float:
        """Most activations any rank holds, in microbatches."""
        of_kind, changes, most = self.placement.stages * self.microbatches, self.changes, 0.0
        for order in orders:
            held = list(accumulate(changes[action // of_kind] for action in order))
            most = max(most, max(held, default=0.0))
        return most

    def fits(self, orders: Orders) -> bool:
        return self.peak(orders) <= self.memory.limit + 1e-9

    def numbers(self, schedule: Schedule) -> Orders:
        """The orders of a schedule of the same size."""
        kinds = {kind: place for place, kind in enumerate(KINDS)}
        return [
            [
                self.number(kinds[Kind(kind)], stage, microbatch)
                for kind, stage, microbatch in zip(
                    row.kind.tolist(), row.stage.tolist(), row.microbatch.tolist(), strict=True
                )
            ]
            for row in schedule.rows()
        ]

    def schedule(self, name: str, orders: Orders) -> Schedule:
        """Orders as a schedule."""
        count, stages = self.microbatches, self.placement.stages
        rows = [
            Atoms.of(
                [KINDS[action // count // stages] for action in order],
                [action // count % stages for action in order],
                [action % count for action in order],
            )
            for order in orders
        ]
        return Schedule.of_rows(name, self.placement, count, rows)
