"""Annealing in slices short enough for progress and for an interrupt."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from pipesim.plan.search.annealing import Cooling, anneal
from pipesim.plan.search.arrays import Layout
from pipesim.plan.search.candidates import Candidate

_SLICE = 10_000_000  # actions timed in one slice, some tenths of a second
_IMPROVED = ", improved"
_COLD = 0.1  # part of the first temperature that is left at the end


def annealed(
    layout: Layout, start: Candidate, *, hot: float, iterations: int, seed: int, stride: int = 0
) -> Iterator[Candidate]:
    """Improve an order; after each slice the best one met in it.

    hot: the first temperature as a part of the time between microbatches. stride: n to change every n-th microbatch
    alike; 0 to change one at a time, where no action enters or leaves the window of the order.
    """
    assert start.window is None or not stride
    actions, order, best = layout.actions, start.order.copy(), start.order.copy()
    segment = np.zeros(len(order), np.int64) if start.window is None else start.window.segments(layout)
    slices = max(1, round(iterations * len(order) / _SLICE))
    origin = start.origin if start.origin.endswith(_IMPROVED) else start.origin + _IMPROVED
    temperature = hot * layout.problem.period_s
    random = np.random.default_rng(seed)
    for _ in range(slices):
        cooler = temperature * _COLD ** (1.0 / slices)
        cooling = Cooling(stride, max(1, iterations // slices), temperature, cooler)
        end_s = float(anneal(actions, cooling, random, order, best, segment))
        temperature = cooler
        yield Candidate(end_s, best.copy(), origin, start.window)
