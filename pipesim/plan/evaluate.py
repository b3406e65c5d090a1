"""What one choice comes to: its schedule built, priced and simulated."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Literal

import numpy as np

from pipesim.costs.costs import Costs, Floats
from pipesim.costs.estimate import Estimate, estimate, typical_times
from pipesim.costs.layouts.layout import BadLayout, Layout
from pipesim.engine import direct, fast
from pipesim.ir.action import Kind
from pipesim.ir.lower import lower
from pipesim.ir.program import Program
from pipesim.ir.schedule import Schedule
from pipesim.plan.mixed import arranged, fitted, looks_right, slowest_first
from pipesim.plan.request import Request
from pipesim.plan.space import Choice, layout_of
from pipesim.schedules.catalogue import FAMILIES
from pipesim.schedules.constraints import Unsuitable

Verdict = Literal["fits", "too large", "slower", "unsuitable"]


@dataclass(frozen=True)
class Outcome:
    """What became of a choice. Seconds and bytes are known as far as they had to be."""

    choice: Choice
    verdict: Verdict
    step_time_s: float = float("inf")
    peak_bytes: float = float("inf")

    @property
    def rank(self) -> tuple[Any, ...]:
        """Sorts by step time; of equals the simpler layout first, always in the same order."""
        choice, core = self.choice, self.choice.core
        return (
            self.step_time_s, core.recompute != "none", choice.zero, core.tp, core.cp, core.ep, choice.pp,
            choice.virtual or 1, not core.sequence_parallel, core.micro_batch, choice.schedule, str(choice.split),
            core.recompute,
        )  # fmt: skip


def evaluate(request: Request, choice: Choice, slowest_s: float = float("inf")) -> Outcome:
    """Simulate a choice, unless its memory or its time (more than `slowest_s`) rule it out before the end."""
    try:
        schedule, made = priced(request, choice)
    except (Unsuitable, BadLayout):
        return Outcome(choice, "unsuitable")
    costs, limit = made.costs, _limits(request, made.costs)
    least = order_bytes(schedule, costs)
    if (least > limit).any():
        return Outcome(choice, "too large", peak_bytes=float(least.max()))
    if request.comm == "edge" and direct.can_walk(schedule, costs):
        step_s = direct.step(schedule, costs, reduce=reduces(choice), clip=True).step_time_s
        if step_s > slowest_s:
            return Outcome(choice, "slower", step_s, float(least.max()))
    timeline = fast.simulate(lowered(request, choice, schedule), costs)
    assert timeline.memory is not None
    peak = timeline.memory.peak
    fits = bool((peak <= limit).all())
    verdict: Verdict = "too large" if not fits else "slower" if timeline.step_time_s > slowest_s else "fits"
    return Outcome(choice, verdict, timeline.step_time_s, float(peak.max()))


def _limits(request: Request, costs: Costs) -> Floats:
    """Most that each rank may hold."""
    assert costs.held is not None
    assert costs.held.limit is not None
    most = float("inf") if request.max_memory_bytes is None else request.max_memory_bytes
    limits: Floats = np.minimum(costs.held.limit, most)
    return limits


def priced(request: Request, choice: Choice, *, contention: bool = False) -> tuple[Schedule, Estimate]:
    """The schedule of a choice and the costs of running it. Raises Unsuitable, BadLayout."""
    layout, nodes = placed(request, choice)
    cluster = arranged(request.cluster, nodes)
    if request.is_mixed and not looks_right(cluster, choice.pp):
        raise BadLayout("a stage whose first GPU is not its slowest", "other degrees, or nodes in another order")
    offered = typical_times(request.model, cluster, layout) if "forward" in FAMILIES[choice.schedule].options else {}
    schedule = built(choice.schedule, choice.pp, layout.microbatches, choice.virtual, tuple(offered.items()))
    return schedule, estimate(request.model, cluster, layout, schedule.placement, contention=contention)


def placed(request: Request, choice: Choice) -> tuple[Layout, tuple[int, ...]]:
    """The layout of a choice, and the order of the cluster's nodes it wants. Raises BadLayout."""
    layout = layout_of(request, choice)
    if not request.is_mixed:
        return layout, ()
    if choice.split != "fitted":
        return layout, slowest_first(request.cluster)
    fit = fitted(request, choice)
    if fit is None:
        raise BadLayout(f"no split of {request.model.layers} layers", "fits these nodes")
    return replace(layout, split=fit.layers), fit.nodes


@lru_cache(maxsize=64)
def built(
    name: str, ranks: int, microbatches: int, virtual: int | None, times: tuple[tuple[str, float], ...]
) -> Schedule:
    """A family's schedule; `times` are for those that build for the actual costs. Raises Unsuitable."""
    options: dict[str, Any] = dict(times) if virtual is None else {"virtual": virtual, **dict(times)}
    return FAMILIES[name].build(ranks=ranks, microbatches=microbatches, **options)


def reduces(choice: Choice) -> bool:
    """Whether gradients are reduced over data-parallel replicas."""
    return choice.dp * choice.core.cp > 1


def lowered(request: Request, choice: Choice, schedule: Schedule) -> Program:
    return lower(schedule, comm=request.comm, reduce=reduces(choice), clip=True)


def order_bytes(schedule: Schedule, costs: Costs) -> Floats:
    """What each rank holds by the order of its actions alone: states, activations, and the working space of
    each action, but no messages. A timeline holds no less."""
    held = costs.held
    assert held is not None
    atoms = schedule.atoms
    change = _changes(schedule, costs)
    kind = atoms.kind
    gives = (kind == Kind.B) | (kind == Kind.I) | (kind == Kind.W)
    before = np.cumsum(change) - np.where(gives, change, 0.0)  # while an action runs, what it frees is still there
    working = np.where(kind == Kind.W, 0.0, held.workspace[atoms.stage])
    states = held.weights + held.gradients + held.optimizer
    placement = schedule.placement
    static = held.overhead + np.bincount(placement.ranks_of_stages, weights=states, minlength=placement.ranks)
    peaks = []
    for rank, (begin, end) in enumerate(zip(schedule.offsets[:-1], schedule.offsets[1:], strict=True)):
        start = 0.0 if begin == 0 else float(np.sum(change[:begin]))
        peaks.append(static[rank] + float((before[begin:end] - start + working[begin:end]).max(initial=0.0)))
    return np.array(peaks)


def _changes(schedule: Schedule, costs: Costs) -> Floats:
    """Activation bytes that each action takes, or (negative) frees."""
    held, atoms = costs.held, schedule.atoms
    assert held is not None
    size = held.activation[atoms.stage] / schedule.slices
    part = held.released_at_input[atoms.stage]
    kind = atoms.kind
    taken = np.where(kind == Kind.F, size, 0.0)
    freed = np.select([kind == Kind.B, kind == Kind.I, kind == Kind.W], [size, part * size, (1 - part) * size], 0.0)
    changes: Floats = taken - freed
    return changes
