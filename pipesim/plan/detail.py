"""A found choice in full: its figures, where its time goes, and what it loses to another one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pipesim.costs.estimate import Estimate
from pipesim.costs.layouts.layout import Layout
from pipesim.engine import fast
from pipesim.engine.choose import simulate
from pipesim.ir.schedule import Schedule
from pipesim.metrics import Metrics, summarize
from pipesim.plan.evaluate import Outcome, lowered, priced
from pipesim.plan.request import Request
from pipesim.plan.space import Choice

_OF_GROUP = {
    "matmul": "products",
    "attention": "attention",
    "memory": "memory-bound work",
    "recompute": "recompute",
    "host": "host",
    "tensor": "tensor-parallel communication",
    "context": "context-parallel communication",
    "expert": "expert-parallel communication",
    "data": "weight gathering",
}
_OF_CAUSE = {
    "warm_up": "bubble",
    "producer": "bubble",
    "cool_down": "bubble",
    "message": "pipeline communication",
    "send": "pipeline communication",
    "gradient_sync": "gradient reduction",
    "optimizer": "optimizer",
}
USEFUL = ("products", "attention", "memory-bound work")
REMEDY = {
    "bubble": "more microbatches or virtual stages",
    "recompute": "memory: more sharding, smaller micro-batches",
    "tensor-parallel communication": "a smaller tp",
    "context-parallel communication": "a smaller cp",
    "expert-parallel communication": "a smaller ep",
    "weight gathering": "larger micro-batches, or less sharding",
    "pipeline communication": "fewer virtual stages or a faster network",
    "gradient reduction": "more microbatches a step, fewer replicas",
    "optimizer": "a sharded optimizer",
    "host": "larger micro-batches",
}


@dataclass(frozen=True, eq=False)
class Detail:
    """One choice of the ranking.

    spent: seconds of the step by what they go to, mean over ranks; they add up to the step time.
    shared_step_time_s: the step time with links shared by transfers, from the reference engine.
    """

    choice: Choice
    layout: Layout
    schedule: Schedule
    estimate: Estimate
    figures: Metrics
    peak_bytes: float
    spent: Mapping[str, float]
    shared_step_time_s: float | None = None

    @property
    def step_time_s(self) -> float:
        return self.figures.step_time_s

    @property
    def communication_part(self) -> float:
        """Part of the step time that is communication which nothing hides."""
        found = sum(value for name, value in self.spent.items() if "communication" in name or "weight" in name)
        return (found + self.spent["gradient reduction"]) / self.step_time_s

    @property
    def loss(self) -> str:
        """What takes most of the time beside the useful work."""
        losses = {name: value for name, value in self.spent.items() if name not in USEFUL}
        return max(losses, key=losses.__getitem__)

    @property
    def limit(self) -> str:
        """The largest loss and its part of the step time."""
        return f"{self.loss} {self.spent[self.loss] / self.step_time_s:.1%}"

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values."""
        layout = self.layout
        degrees = ("tp", "pp", "dp", "cp", "ep", "virtual", "micro_batch", "zero_stage", "recompute")
        return {
            "schedule": self.choice.schedule,
            **{name: getattr(layout, name) for name in degrees},
            "sequence_parallel": layout.sequence_parallel,
            "microbatches": layout.microbatches,
            "layers_per_stage": [stage.layers for stage in self.estimate.stages],
            "step_time_s": self.step_time_s,
            "shared_step_time_s": self.shared_step_time_s,
            "tokens_per_s_per_gpu": self.figures.tokens_per_s_per_gpu,
            "mfu": self.figures.mfu,
            "bubble_fraction": self.figures.bubble_fraction,
            "peak_memory_bytes": self.peak_bytes,
            "communication_part": self.communication_part,
            "spent_s": dict(self.spent),
            "limit": self.limit,
        }


def detail(request: Request, outcome: Outcome, *, shared: bool = False) -> Detail:
    """Simulate a choice once more and look at all of it; `shared` also with links that transfers share."""
    choice = outcome.choice
    schedule, made = priced(request, choice)
    timeline = fast.simulate(lowered(request, choice, schedule), made.costs)
    figures = summarize(timeline, made.costs)
    assert timeline.memory is not None
    contended = _shared(request, choice) if shared else None
    peak = float(timeline.memory.peak.max())
    return Detail(choice, made.layout, schedule, made, figures, peak, _spent(made, figures), contended)


def _shared(request: Request, choice: Choice) -> float:
    schedule, made = priced(request, choice, contention=True)
    return simulate(lowered(request, choice, schedule), made.costs).step_time_s


def _spent(made: Estimate, figures: Metrics) -> dict[str, float]:
    ranks = len(figures.per_rank.busy_s)
    spent = dict.fromkeys([*_OF_GROUP.values(), *_OF_CAUSE.values()], 0.0)
    for stage in made.parts:
        for part in stage:
            spent[_OF_GROUP[part.group]] += part.total_s * made.layout.microbatches / ranks
    work = sum(spent.values())
    busy = float(np.mean(figures.per_rank.busy_s))
    if work:  # fused pairs that overlap take less than the sum of their parts
        spent = {name: value * busy / work for name, value in spent.items()}
    for cause, seconds in figures.idle_s.items():
        spent[_OF_CAUSE[cause]] += seconds / ranks
    return spent


def difference(one: Detail, other: Detail) -> str:
    """What `other` loses against `one`, and what it wins back, in words."""
    change = {name: other.spent[name] - one.spent[name] for name in one.spent}
    lost, won = max(change, key=change.__getitem__), min(change, key=change.__getitem__)
    slower = other.step_time_s - one.step_time_s
    if slower < 1e-6 * one.step_time_s:
        return "as fast"
    words = [f"+{slower / one.step_time_s:.1%}: {_signed(change[lost], one.step_time_s)} {lost}"]
    if change[won] < -1e-3 * one.step_time_s:
        words.append(f"{_signed(change[won], one.step_time_s)} {won}")
    return ", ".join(words)


def _signed(seconds: float, whole_s: float) -> str:
    return f"{seconds / whole_s:+.1%}"


def layers_text(layers: Sequence[int]) -> str:
    """`10 x 8`, or the numbers themselves where they differ."""
    if len(set(layers)) == 1:
        return f"{layers[0]} x {len(layers)}"
    return ",".join(map(str, layers))
