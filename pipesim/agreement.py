"""How well two timelines of one program agree: a predicted and a measured one."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from pipesim.ir.action import COMPUTE
from pipesim.timeline import Floats, Timeline

_MOST_PAIRS = 2_000_000


@dataclass(frozen=True)
class Agreement:
    """Seconds and fractions; an error is predicted / measured - 1.

    measured_s: median step. kinds: mean seconds of each kind, predicted and measured; rank_busy likewise.
    same_order: of the pairs of actions of any two ranks that both timelines start at different times, the part
    whose order is the same. end_error_s: mean absolute error of the actions' ends.
    """

    title: str
    source: str
    predicted_s: float
    measured_s: float
    step_time_error: float
    predicted_bubble: float
    measured_bubble: float
    kinds: dict[str, tuple[float, float]]
    rank_busy: list[tuple[float, float]]
    same_order: float
    end_error_s: float

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values."""
        return asdict(self)


def agree(predicted: Timeline, measured: Timeline, *, step_s: Sequence[float] | None = None) -> Agreement:
    """Compare; `step_s`: the measured step times, of which the median counts (else the timeline's own)."""
    program = measured.program
    schedule = program.schedule
    took = statistics.median(step_s) if step_s else measured.step_time_s
    boxes = measured.boxes
    return Agreement(
        f"{schedule.name}: {schedule.ranks} ranks, {schedule.microbatches} microbatches",
        measured.source,
        predicted.step_time_s,
        took,
        predicted.step_time_s / took - 1,
        _bubble(predicted),
        _bubble(measured),
        _kinds(predicted, measured),
        list(zip(_busy(predicted).tolist(), _busy(measured).tolist(), strict=True)),
        same_order(predicted.start[boxes], measured.start[boxes]),
        float(np.abs(predicted.end[boxes] - measured.end[boxes]).mean()),
    )


def _busy(timeline: Timeline) -> Floats:
    boxes = timeline.boxes
    took = timeline.end[boxes] - timeline.start[boxes]
    busy: Floats = np.bincount(timeline.program.rank[boxes], weights=took, minlength=timeline.ranks).astype(np.float64)
    return busy


def _bubble(timeline: Timeline) -> float:
    return 1 - float(_busy(timeline).sum()) / (timeline.ranks * timeline.makespan_s)


def _kinds(predicted: Timeline, measured: Timeline) -> dict[str, tuple[float, float]]:
    boxes = measured.boxes
    kind = measured.program.ops.kind[boxes]
    paired = np.isin(boxes + 1, np.flatnonzero(measured.program.ops.fused))
    found = {}
    for name, mine in (
        *((one.name, (kind == one) & ~paired) for one in COMPUTE),
        ("fused pair", paired),
    ):
        if mine.any():
            one, other = (
                float((timeline.end[boxes] - timeline.start[boxes])[mine].mean()) for timeline in (predicted, measured)
            )
            found[name] = (one, other)
    return found


def same_order(one: Floats, other: Floats) -> float:
    """The part of all pairs that is ordered alike in both; pairs that either has at the same time do not count."""
    count = len(one)
    if count * count > _MOST_PAIRS:
        keep = np.linspace(0, count - 1, int(_MOST_PAIRS**0.5)).astype(int)
        one, other = one[keep], other[keep]
    first = np.sign(np.subtract.outer(one, one))
    second = np.sign(np.subtract.outer(other, other))
    counted = (first != 0) & (second != 0)
    return float((first == second)[counted].mean()) if counted.any() else 1.0
