"""Problems to search, from plain numbers or at random."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from pipesim.costs.costs import Costs
from pipesim.costs.network import Network, Route
from pipesim.ir.action import Kind
from pipesim.ir.needs import Flow
from pipesim.ir.placement import Placement, bidirectional, linear, looped, vee, wave
from pipesim.ir.schedule import Schedule
from pipesim.plan.search.problem import Memory, Problem
from pipesim.plan.search.setting import Setting


@dataclass(frozen=True, eq=False)
class Fixed:
    """The same costs whatever the schedule."""

    costs: Costs

    def of(self, schedule: Schedule) -> Costs:
        return self.costs


def plain(
    placement: Placement,
    microbatches: int,
    times: tuple[float, ...] = (1, 1, 1, 0),
    limit: float = np.inf,
    part: float = 0.0,
) -> Problem:
    """F, I, W and C of a rank's whole share; the limit in microbatches; `part` of one is freed by its I."""
    stages, ranks, share = placement.stages, placement.ranks, placement.share
    seconds = np.asarray(times[:3], np.float64)[:, None] * share * np.ones(stages)
    memory = Memory(np.full(stages, share), np.full(stages, part), np.full(ranks, float(limit)))
    lag = np.full((2, stages), float(times[3]))
    return Problem(placement, microbatches, True, seconds, lag, np.zeros_like(lag), memory, np.zeros(ranks))


def random_placement(draw: np.random.Generator, *, most_ranks: int) -> Placement:
    ranks = int(draw.integers(1, most_ranks + 1))
    anyhow = Placement((*range(ranks), *draw.integers(0, ranks, 3).tolist()))
    places = [linear(ranks), vee(ranks), looped(ranks, 2), wave(ranks, 3), bidirectional(ranks), anyhow]
    return places[int(draw.integers(len(places)))]


def random_costs(draw: np.random.Generator, placement: Placement) -> Costs:
    """Whole seconds, some of no time; messages of any latency, some of which hold their channel."""
    stages, ranks = placement.stages, placement.ranks
    low = int(draw.integers(0, 2))
    kinds = (Kind.F, Kind.I, Kind.W) if draw.random() < 0.8 else (Kind.F, Kind.B)
    sizes = draw.integers(0, 5, stages) * (draw.random() < 0.5) * 1.0
    routes = {(one, other): Route(float(draw.integers(0, 6)), 1.0) for one in range(ranks) for other in range(ranks)}
    return Costs(
        stages,
        {kind: draw.integers(low, 31, stages).astype(np.float64) for kind in kinds},
        message_bytes={Flow.ACTIVATION: sizes, Flow.GRADIENT: sizes[::-1]},
        network=Network(routes=routes),
        optimizer_s=draw.integers(0, 9, stages).astype(np.float64) if draw.random() < 0.3 else None,
        host_s=float(draw.integers(0, 2)),
    )


def random_problem(seed: int, *, most_ranks: int = 4, most_microbatches: int = 8) -> tuple[Problem, Costs]:
    """Any placement and costs, activations of any size, and a limit that can just be met, is larger, or is none."""
    draw = np.random.default_rng(seed)
    placement = random_placement(draw, most_ranks=most_ranks)
    costs = random_costs(draw, placement)
    problem = Setting(placement, int(draw.integers(1, most_microbatches + 1)), Fixed(costs)).problem()
    take, part = draw.uniform(0.1, 2.0, placement.stages), draw.choice([0.0, 0.3, 0.5, 1.0], placement.stages)
    problem = replace(problem, memory=Memory(take, part, problem.memory.limit))
    return problem.with_limit(problem.smallest_limit + draw.choice([0.0, 0.5, 1.0, 3.0, np.inf])), costs


def small_problem(seed: int, *, most_ranks: int = 4, most_microbatches: int = 8) -> Problem:
    """Two to four ranks with one or two stages, whole seconds from 5 to 30, limits from half a microbatch more than
    the least to none: what the exact solver is asked to prove."""
    draw = np.random.default_rng(seed)
    ranks, microbatches = int(draw.integers(2, most_ranks + 1)), int(draw.integers(2, most_microbatches + 1))
    placement = (linear(ranks), vee(ranks), looped(ranks, 2))[int(draw.integers(3))]
    limit = float(draw.choice([1.0, 1.5, 2.0, ranks / 2 + 1, ranks, 2 * ranks]))
    made = plain(
        placement, microbatches, (1, 1, 1, float(draw.choice([0, 1, 3]))), limit, float(draw.choice([0, 0.5, 1]))
    )
    return replace(made, seconds=draw.integers(5, 31, (3, placement.stages)).astype(np.float64))
