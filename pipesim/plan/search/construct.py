"""Orders made from nothing: list schedules and repeating patterns of many spacings, and a climb among these."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from pipesim.costs.costs import Floats
from pipesim.ir.atoms import Ints
from pipesim.plan.search.arrays import Layout
from pipesim.plan.search.bounds import paths
from pipesim.plan.search.candidates import Candidate, candidate
from pipesim.plan.search.listing import Rules, list_schedule
from pipesim.plan.search.orders import from_schedule, serial
from pipesim.plan.search.patterns import Pattern, changed, starting_patterns
from pipesim.plan.search.problem import F, I, W

_PATIENCE = (0.0, 0.3, 1.0)
_CLIMBERS = 4  # patterns that are changed further


@dataclass(frozen=True, eq=False)
class _Tried:
    pattern: Pattern
    end_s: float


def one_at_a_time(layout: Layout) -> Candidate | None:
    """Each microbatch alone through all stages and back: what fits any limit that can be met."""
    order = from_schedule(layout, serial(layout.problem.placement, layout.problem.microbatches))
    return None if order is None else candidate(layout, order, "one at a time")


def constructions(layout: Layout, *, climbs: int, seed: int) -> Iterator[Candidate]:
    """Orders of the starting patterns, then of `climbs` changes of the best ones.

    A pattern gives an order as it is, if that fits the limit, and orders of list schedules that follow it.
    """
    random = np.random.default_rng(seed)
    tried: list[_Tried] = []
    for pattern in starting_patterns(layout.problem):
        found = list(_orders(layout, pattern, _PATIENCE, (True, False)))
        tried.append(_Tried(pattern, min((one.end_s for one in found), default=np.inf)))
        yield from found
    yield from _gradients_first(layout)
    for _ in range(climbs):
        tried = sorted(tried, key=lambda one: one.end_s)[:_CLIMBERS]
        pattern = changed(tried[random.integers(len(tried))].pattern, layout.problem, random)
        rules = (float(random.choice(_PATIENCE)),), (bool(random.random() < 0.5),)
        found = list(_orders(layout, pattern, *rules))
        tried.append(_Tried(pattern, min((one.end_s for one in found), default=np.inf)))
        yield from found


def _orders(
    layout: Layout, pattern: Pattern, patience: tuple[float, ...], promote: tuple[bool, ...]
) -> Iterator[Candidate]:
    times = pattern.priority(layout.stages)
    straight = candidate(layout, by_time(layout, times), "pattern")
    if straight is not None:
        yield straight
    for waits in patience:
        for urgent in promote:
            yield from _listed(layout, Rules(times, waits, urgent), "list along a pattern")


def _gradients_first(layout: Layout) -> Iterator[Candidate]:
    """Whatever brings a gradient on goes first, weight gradients fill the gaps."""
    way, turn = paths(layout.problem), np.arange(layout.shape[2]) * layout.problem.period_s
    times = np.zeros(layout.shape)
    times[F], times[W] = way.forward[:, None] + turn, turn
    last = float(times.max())
    times[I] = turn - last
    times[W] += 2 * last
    for waits in _PATIENCE:
        yield from _listed(layout, Rules(times, waits, True), "gradients first")


def _listed(layout: Layout, rules: Rules, origin: str) -> Iterator[Candidate]:
    order, starts = np.zeros(layout.offsets[-1], np.int64), np.zeros(layout.shape)
    end_s = float(list_schedule(layout.stages, rules, starts, order, layout.offsets))
    if np.isfinite(end_s):
        yield Candidate(end_s, order, origin)


def by_time(layout: Layout, times: Floats) -> Ints:
    """The actions of each rank in the order of their times (3, stages, most); at one time along their way."""
    flat, along = times.ravel(), layout.along
    return np.concatenate([mine[np.lexsort((along[mine], flat[mine]))] for mine in layout.numbers])
