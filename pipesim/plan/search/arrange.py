"""Which stage on which rank: swaps of two stages' ranks, each tried by a quick search."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from pipesim.ir.placement import Placement
from pipesim.plan.search.bounds import lower_bounds
from pipesim.plan.search.problem import LimitTooSmall
from pipesim.plan.search.search import Effort, Report, Start, search
from pipesim.plan.search.setting import Setting

_QUICK = Effort(climbs=20, rounds=2, actions=4_000_000, moves=15_000, exact_s=0)
_SWAPS = 60


def arranged(setting: Setting, *, seed: int, report: Report) -> tuple[Setting, Start]:
    """The setting with the placement that does best after random swaps, and the order found for it.

    What a bound rules out is not searched.
    Raises what `Setting.problem` raises for the placement to begin with.
    """
    random = np.random.default_rng(seed)
    best, found = setting, search(setting.problem(), effort=_QUICK, seed=seed, report=report)
    for _ in range(_SWAPS):
        if found.interrupted:
            break
        tried = replace(best, placement=_swapped(best.placement, random))
        try:
            problem = tried.problem()
        except LimitTooSmall:
            continue
        if lower_bounds(problem).best_s < found.end_s:
            made = search(problem, effort=_QUICK, seed=seed, report=report)
            if made.end_s < found.end_s * (1.0 - 1e-9):
                best, found = tried, made
    return best, lambda microbatches: found.schedule


def _swapped(placement: Placement, random: np.random.Generator) -> Placement:
    """Two stages on each other's ranks."""
    ranks = list(placement.ranks_of_stages)
    one, two = random.choice(len(ranks), 2, replace=False).tolist() if len(ranks) > 1 else (0, 0)
    ranks[one], ranks[two] = ranks[two], ranks[one]
    return replace(placement, ranks_of_stages=tuple(ranks))
