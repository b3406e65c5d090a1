"""A training step as numbers: what the search for a good order works on."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from pipesim.ir.action import Kind
from pipesim.ir.atoms import Atoms
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
    def columns(self) -> Columns:
        stages, ranks, freed = self.placement.stages, self.placement.ranks_of_stages, self.memory.input_release
        takes = (self.times.forward, self.times.input_grad, self.times.weight_grad)
        holds = [part * self.placement.share for part in (1.0, -freed, freed - 1.0)]
        found = Columns([], [], [], [], [], [], [])
        rows = [0] * self.placement.ranks
        for kind in range(len(KINDS)):
            for stage in range(stages):
                rank, row = ranks[stage], 1 << rows[ranks[stage]]
                rows[rank] += 1
                found.kind.extend([kind] * self.microbatches)
                found.rank.extend([rank] * self.microbatches)
                found.row.extend([row] * self.microbatches)
                found.takes.extend([takes[kind][stage]] * self.microbatches)
                found.holds.extend([holds[kind]] * self.microbatches)
        self._link(found)
        return found

    def _link(self, columns: Columns) -> None:
        """What each action needs: the schedule's own rule, for a chain of stages without slices."""
        for _ in range(len(self)):
            columns.needs.append([])
            columns.feeds.append([])
        stages, ranks = self.placement.stages, self.placement.ranks_of_stages
        for stage in range(stages):
            above, below = stage - 1, stage + 1
            sources = [
                ((0, stage), (0, above)),
                ((1, stage), (1, below) if below < stages else (0, stage)),
                ((2, stage), (1, stage)),
            ]
            for (kind, here), (needed, there) in sources:
                if there < 0:
                    continue
                lag = self.times.latency if ranks[here] != ranks[there] else 0.0
                for microbatch in range(self.microbatches):
                    needing, source = self.number(kind, here, microbatch), self.number(needed, there, microbatch)
                    columns.needs[needing].append((source, lag))
                    columns.feeds[source].append((needing, lag))

    def peak(self, orders: Orders) -> float:
        """Most activations any rank holds, in microbatches."""
        holds, most = self.columns.holds, 0.0
        for order in orders:
            held = 0.0
            for action in order:
                held += holds[action]
                most = max(most, held)
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
