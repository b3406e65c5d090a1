"""Costs that hold everything at once, for tests that compare engines."""

from __future__ import annotations

from typing import Any

import numpy as np

from pipesim.costs.costs import Costs, StageBytes
from pipesim.costs.network import Link, Network, Route
from pipesim.ir.action import Kind
from pipesim.ir.needs import Flow
from pipesim.ir.schedule import Schedule


def random_costs(schedule: Schedule, seed: int, *, links: tuple[Link, ...] = (), **given: Any) -> Costs:
    """Every array and route at random; with links, every route between two ranks crosses one of them."""
    draw = np.random.default_rng(seed)
    stages, ranks = schedule.placement.stages, schedule.ranks
    shapes = [(stages,), (stages, 1, schedule.slices), (stages, schedule.microbatches, schedule.slices)]

    def array() -> np.ndarray:
        return draw.uniform(0.1, 2.0, shapes[draw.integers(len(shapes))])

    def route(*, crossing: tuple[int, ...] = ()) -> Route:
        rate = draw.choice([np.inf, draw.uniform(0.5, 4.0)])
        return Route(draw.choice([0.0, draw.uniform(0.0, 3.0)]), rate, crossing)

    def per_stage() -> np.ndarray:
        return draw.uniform(0.1, 1.0, stages)

    pairs = [(one, other) for one in range(ranks) for other in range(ranks) if one != other]
    network = Network(
        route(),
        {pair: route(crossing=(index % len(links),) if links else ()) for index, pair in enumerate(pairs)},
        route(),
        {rank: route() for rank in range(ranks)},
        links,
    )
    held = StageBytes(*(per_stage() for _ in range(6)), overhead=draw.uniform(0.1, 1.0, ranks))
    values: dict[str, Any] = {
        "seconds": {kind: array() for kind in (Kind.F, Kind.I, Kind.W)},
        "pair_s": array() if draw.integers(2) else None,
        "overlap": draw.uniform(0.0, 1.0),
        "message_bytes": {flow: array() for flow in (Flow.ACTIVATION, Flow.GRADIENT, Flow.TOKEN, Flow.MOVE)},
        "network": network,
        "reduce_bytes": per_stage(),
        "reduce_s": per_stage(),
        "optimizer_s": per_stage(),
        "host_s": draw.choice([0.0, 0.05]),
        "held": held,
    }
    return Costs(stages, **(values | given))
