"""Where everything of a timeline is drawn: rows, boxes, transfers and idle spans as columns of numbers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pipesim.idle import CAUSES, IdleSpans, critical_path, idle_spans
from pipesim.ir.action import Kind
from pipesim.ir.lanes import LaneKind
from pipesim.timeline import Timeline

Floats = NDArray[np.float64]
Ints = NDArray[np.integer]

# Of a row's height of 1, counted down from its middle; what is left is the gap between ranks.
_HALF = 0.43
STRIP_TOP, STRIP_BOTTOM = 0.25, 0.45  # transfer lanes, under a rank's boxes


@dataclass(frozen=True, eq=False)
class Bars:
    """Boxes: operation, rank, start and end in seconds, and the top and bottom within the row (0 is its middle).

    Rows are counted downwards, so `low` < `high` is from top to bottom.
    """

    op: Ints
    rank: Ints
    start: Floats
    end: Floats
    low: Floats
    high: Floats

    def __len__(self) -> int:
        return len(self.op)

    def take(self, mask: NDArray[np.bool_]) -> Bars:
        return Bars(*(getattr(self, name)[mask] for name in self.__dataclass_fields__))


def has_strip(timeline: Timeline) -> bool:
    """Whether any transfer takes time, so that lanes for them are worth their height."""
    beside = timeline.lanes.kind[timeline.lanes.lane] != LaneKind.COMPUTE
    return bool((timeline.end > timeline.start)[beside].any())


def compute_extent(timeline: Timeline) -> tuple[float, float]:
    """Top and bottom of the compute lane within a row."""
    return (-_HALF, STRIP_TOP - 0.02 if has_strip(timeline) else _HALF)


def compute_bars(timeline: Timeline) -> Bars:
    """All operations in compute lanes; the two of a fused pair share the height."""
    program = timeline.program
    in_lane = timeline.lanes.kind[timeline.lanes.lane] == LaneKind.COMPUTE
    op = np.flatnonzero(in_lane)
    second = program.ops.fused[op]
    first = np.zeros(len(op), np.bool_)
    first[:-1] = second[1:]
    low, high = compute_extent(timeline)
    middle = (low + high) / 2
    return Bars(
        op,
        program.rank[op],
        timeline.start[op],
        timeline.end[op],
        np.where(second, middle, low),
        np.where(first, middle, high),
    )


def transfer_bars(timeline: Timeline) -> Bars:
    """Transfers, reductions and activation moves, each lane of a rank a thin line under its boxes."""
    program, lanes = timeline.program, timeline.lanes
    beside = lanes.kind[lanes.lane] != LaneKind.COMPUTE
    op = np.flatnonzero(beside & (timeline.end > timeline.start))
    place, count = lane_places(timeline)
    thickness = (STRIP_BOTTOM - STRIP_TOP) / max(count, 3)
    top = STRIP_TOP + place[lanes.lane[op]] * thickness
    return Bars(op, program.rank[op], timeline.start[op], timeline.end[op], top, top + thickness * 0.85)


def lane_places(timeline: Timeline) -> tuple[Floats, int]:
    """Place of each lane among the lanes of its rank beside compute, and the most that a rank has."""
    lanes = timeline.lanes
    beside = np.flatnonzero(lanes.kind != LaneKind.COMPUTE)
    place, seen = np.zeros(len(lanes.kind)), np.zeros(timeline.ranks, np.int64)
    for lane in beside.tolist():
        place[lane] = seen[lanes.rank[lane]]
        seen[lanes.rank[lane]] += 1
    return place, int(seen.max(initial=0))


@dataclass(frozen=True, eq=False)
class Drawn:
    """A timeline with what is found out about it once and drawn in several places."""

    timeline: Timeline
    idle: IdleSpans
    critical: tuple[int, ...]


def drawn(timeline: Timeline) -> Drawn:
    return Drawn(timeline, shown_idle(timeline), tuple(critical_path(timeline)))


def shown_idle(timeline: Timeline) -> IdleSpans:
    """Idle spans by cause. The optimizer's own time is left out: it is a box of its own."""
    spans = idle_spans(timeline)
    shown = spans.cause != CAUSES.index("optimizer")
    return IdleSpans(spans.rank[shown], spans.begin[shown], spans.end[shown], spans.cause[shown])


def chunk_of_stage(timeline: Timeline) -> Ints:
    """Which of its rank's stages each stage is, in model order: 0 … v-1."""
    placement = timeline.program.schedule.placement
    seen = [0] * placement.ranks
    chunk = []
    for rank in placement.ranks_of_stages:
        chunk.append(seen[rank])
        seen[rank] += 1
    return np.asarray(chunk, np.int64)


def is_kind(timeline: Timeline, bars: Bars, kind: Kind) -> NDArray[np.bool_]:
    mask: NDArray[np.bool_] = timeline.program.ops.kind[bars.op] == kind
    return mask
