"""Figures of a timeline: bubbles by three definitions, idle time by cause, memory, throughput.

bubble_fraction   idle compute time / (ranks × makespan)
bubble_ratio      idle compute time / compute time: what the bubble adds to the ideal (Megatron-LM)
span_bubble_rate  (largest span of a rank - its work) / that span, where a span runs from the rank's first
                  start to its last end, so that start skew is not counted (zero-bubble papers, 2401.10241)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipesim.costs.costs import Costs, Work
from pipesim.idle import CAUSES, attribute_idle
from pipesim.ir.memory import peak_activations
from pipesim.timeline import Timeline

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class RankMetrics:
    """The same figures for each rank, every array (ranks,)."""

    busy_s: Floats
    span_s: Floats
    bubble_fraction: Floats
    bubble_ratio: Floats
    span_bubble_rate: Floats
    idle_s: Mapping[str, Floats]


@dataclass(frozen=True, eq=False)
class Metrics:
    """Seconds, bytes and fractions of one step.

    makespan_s ends with the last compute action, step_time_s with reduction and optimizer.
    idle_s: by cause, summed over ranks; with the busy time it adds up to ranks × step time.
    peak_activations: most microbatches of activations each rank holds. peak_memory_bytes: where known.
    exposed_comm_s: communication that compute waits for, mean over ranks, by dimension.
    """

    makespan_s: float
    step_time_s: float
    bubble_fraction: float
    bubble_ratio: float
    span_bubble_rate: float
    idle_s: Mapping[str, float]
    peak_activations: Floats
    peak_memory_bytes: Floats | None
    fits: bool | None
    exposed_comm_s: Mapping[str, float]
    tokens_per_s: float | None
    tokens_per_s_per_gpu: float | None
    flops_per_gpu: float | None
    mfu: float | None
    per_rank: RankMetrics

    def _repr_html_(self) -> str:
        """How a notebook shows it; drawing is loaded when it is asked for."""
        return str(import_module("pipesim.viz.notebook").metrics_html(self))

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values; what is not known is left out."""
        found: dict[str, Any] = {}
        for name in self.__dataclass_fields__:
            if name != "per_rank" and getattr(self, name) is not None:
                found[name] = _plain(getattr(self, name))
        found["per_rank"] = {name: _plain(getattr(self.per_rank, name)) for name in RankMetrics.__dataclass_fields__}
        return found


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, Mapping):
        return {key: _plain(one) for key, one in value.items()}
    return value


def summarize(timeline: Timeline, costs: Costs | None = None) -> Metrics:
    """All figures of a timeline. `costs` adds throughput (its `work`) and tensor-parallel communication."""
    boxes = timeline.boxes
    rank = timeline.program.rank[boxes]
    took = timeline.end[boxes] - timeline.start[boxes]
    busy: Floats = np.bincount(rank, weights=took, minlength=timeline.ranks).astype(np.float64)
    first, last = _first_and_last(timeline)
    span = last - first
    makespan = timeline.makespan_s
    idle = makespan - busy
    widest = int(np.argmax(span))
    causes = attribute_idle(timeline, busy)
    memory = timeline.memory
    per_rank = RankMetrics(busy, span, _over(idle, makespan), _over(idle, busy), _over(span - busy, span), causes)
    return Metrics(
        makespan_s=makespan,
        step_time_s=timeline.step_time_s,
        bubble_fraction=float(_over(idle.sum(), timeline.ranks * makespan)),
        bubble_ratio=float(_over(idle.sum(), busy.sum())),
        span_bubble_rate=float(per_rank.span_bubble_rate[widest]),
        idle_s={cause: float(causes[cause].sum()) for cause in CAUSES},
        peak_activations=peak_activations(timeline.program.schedule),
        peak_memory_bytes=None if memory is None else memory.peak,
        fits=None if memory is None else memory.fits,
        exposed_comm_s=_exposed(timeline, causes, costs),
        per_rank=per_rank,
        **_throughput(timeline.step_time_s, None if costs is None else costs.work),
    )


def _over(value: Any, whole: Any) -> Any:
    """A quotient that is 0 where nothing was done."""
    return np.divide(value, whole, out=np.zeros(np.shape(value)), where=np.asarray(whole) != 0)


def _first_and_last(timeline: Timeline) -> tuple[Floats, Floats]:
    """Start of the first and end of the last compute action of each rank."""
    boxes = timeline.boxes
    rank = timeline.program.rank[boxes]
    first, last = np.full(timeline.ranks, np.inf), np.zeros(timeline.ranks)
    np.minimum.at(first, rank, timeline.start[boxes])
    np.maximum.at(last, rank, timeline.end[boxes])
    return np.where(np.isinf(first), 0.0, first), last


def _exposed(timeline: Timeline, causes: Mapping[str, Floats], costs: Costs | None) -> dict[str, float]:
    found = {
        "pipeline": float((causes["message"] + causes["send"]).mean()),
        "data": float(causes["gradient_sync"].mean()),
    }
    if costs is not None and costs.tensor_comm_s:
        ops, total = timeline.program.ops, 0.0
        for kind, seconds in costs.tensor_comm_s.items():
            mine = ops.kind == kind
            total += float(np.broadcast_to(seconds, (costs.stages,))[ops.stage[mine]].sum())
        found["tensor"] = total / timeline.program.schedule.slices / timeline.ranks
    return found


def _throughput(step_time_s: float, work: Work | None) -> dict[str, float | None]:
    if work is None or step_time_s == 0:
        return {"tokens_per_s": None, "tokens_per_s_per_gpu": None, "flops_per_gpu": None, "mfu": None}
    tokens, flops = work.tokens / step_time_s, work.model_flops / step_time_s / work.gpus
    return {
        "tokens_per_s": tokens,
        "tokens_per_s_per_gpu": tokens / work.gpus,
        "flops_per_gpu": flops,
        "mfu": flops / work.peak_flops,
    }
