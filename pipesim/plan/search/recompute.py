"""Which microbatches to recompute on which stages, where memory is short: they hold less, and take a forward more."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from pipesim.costs.costs import Costs, Floats
from pipesim.ir.action import Kind
from pipesim.ir.schedule import Schedule
from pipesim.plan.search.bounds import paths
from pipesim.plan.search.problem import FIT, Problem, Recompute
from pipesim.plan.search.search import Effort, Found, Report, Start, search
from pipesim.plan.search.setting import Prices

_QUICK = Effort(climbs=20, rounds=2, actions=4_000_000, moves=15_000, exact_s=0)
_CHANGES = 12  # of the best shares
_SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)


@dataclass(frozen=True, eq=False)
class Recomputing:
    """Costs of a schedule in which the backward of some (stages, microbatches) computes the forward again."""

    prices: Prices
    recomputed: np.ndarray

    def of(self, schedule: Schedule) -> Costs:
        """Raises what the prices raise."""
        costs = self.prices.of(schedule)
        kind = Kind.I if Kind.I in costs.seconds and Kind.W in costs.seconds else Kind.B
        again = self.recomputed * _column(costs.of_kind(Kind.F), costs.stages)
        return replace(
            costs, seconds={**costs.seconds, kind: (_column(costs.of_kind(kind), costs.stages) + again)[..., None]}
        )


def _column(values: Floats, stages: int) -> Floats:
    mean: Floats = values.reshape(len(values), -1).mean(axis=1)
    return np.broadcast_to(mean, (stages,))[:, None]


def by_microbatch(problem: Problem) -> np.ndarray:
    """(stages, microbatches): which are recomputed."""
    found = np.zeros((problem.stages, problem.microbatches), np.bool_)
    chains = problem.placement.chains
    for stage in range(problem.stages):
        count, chain = int(problem.counts[stage]), stage // problem.placement.length
        found[stage, chain::chains] = problem.recomputed[stage, :count]
    return found


def with_shares(problem: Problem, keep: float, *, seed: int, report: Report) -> tuple[Problem, list[Start]]:
    """The problem with the shares of recomputed microbatches under which a quick search does best, and what it found.

    keep: part of an activation that a recomputed microbatch keeps (the input of its stage).
    """
    random = np.random.default_rng(seed)
    keeps = np.full(problem.stages, keep)
    best = problem.with_recompute(None)
    found: Found | None = None

    def shares() -> Iterator[Floats]:
        yield from _first_shares(problem)
        for _ in range(_CHANGES):
            yield _changed(np.zeros(problem.stages) if best.recompute is None else best.recompute.share, random)

    for share in shares():
        tried = problem.with_recompute(Recompute(share, keeps) if share.any() else None)
        if (tried.smallest_limit > tried.memory.limit * FIT).any():
            continue
        made = search(tried, effort=_QUICK, seed=seed, report=report)
        if found is None or made.end_s < found.end_s:
            best, found = tried, made
        if made.interrupted:
            break
    return best, [] if found is None else [_as_start(found)]


def _as_start(found: Found) -> Start:
    return lambda microbatches: found.schedule


def _first_shares(problem: Problem) -> Iterator[Floats]:
    """The same share on all stages; or only on those where microbatches stay longest."""
    way = paths(problem)
    stays = way.gradient - way.forward
    for share in _SHARES:
        yield np.full(problem.stages, share)
    for part in (0.25, 0.5, 0.75):
        longest = stays >= np.quantile(stays, 1.0 - part)
        for share in (0.5, 1.0):
            yield np.where(longest, share, 0.0)


def _changed(share: Floats, random: np.random.Generator) -> Floats:
    """Another share on one stage, or on all up to one."""
    stage = int(random.integers(len(share)))
    made = share.copy()
    where = slice(0, stage + 1) if random.random() < 0.5 else slice(stage, stage + 1)
    made[where] = random.choice(_SHARES)
    return made
