"""Repeating patterns: when each action of one microbatch runs, if another microbatch follows every period.

A period as a table of each rank in which no two actions may overlap: an action goes to the first free place after what
it needs and a delay (modulo scheduling; Rau 1994). The delays decide how far microbatches are apart and so how
much is held: V-Min, V-Half and ZB-V are such patterns (Qi et al. 2024, arXiv 2405.15362).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pipesim.costs.costs import Floats
from pipesim.engine.compiled import compiled
from pipesim.plan.search.arrays import Stages
from pipesim.plan.search.problem import F, I, Problem, W

_SAME = 1e-9  # part of the period by which equal times may differ


@dataclass(frozen=True, eq=False)
class Pattern:
    """Seconds between microbatches, and the delay of each action (3, stages) after what it needs."""

    period_s: float
    delay_s: Floats

    def starts(self, stages: Stages) -> Floats:
        """When each action of the first microbatch of each chain runs, (3, stages)."""
        starts = np.zeros(self.delay_s.shape)
        _place(stages, _Table(self.period_s, self.delay_s), starts)
        return starts

    def priority(self, stages: Stages) -> Floats:
        """When each action of each microbatch runs, (3, stages, most)."""
        turn = np.arange(stages.seconds.shape[2]) * self.period_s
        return self.starts(stages)[:, :, None] + turn

    def with_delay(self, kind: int, stages: NDArray[np.integer], delay_s: float) -> Pattern:
        """Another delay for a kind on some stages."""
        delays = self.delay_s.copy()
        delays[kind, stages] = delay_s
        return replace(self, delay_s=delays)


class _Table(NamedTuple):
    period: float
    delay: Floats


def shortest_period_s(problem: Problem) -> float:
    """Seconds of the busiest rank for one microbatch of each chain: no pattern repeats sooner."""
    each = problem.seconds.sum(axis=0)
    return float(np.bincount(problem.rank_of, weights=each, minlength=problem.ranks).max())


@compiled
def _place(fixed: Stages, table: _Table, starts: Floats) -> None:
    """Fill in the starts of the actions of one microbatch of each chain, in the order it passes them."""
    length, kinds, rank_of, seconds = fixed.length, fixed.kinds, fixed.rank_of, fixed.seconds
    latency, hold, channel = fixed.latency, fixed.hold, fixed.channel
    ranks, total = len(fixed.at) - 1, len(rank_of)
    taken, begins, ends = np.zeros(ranks, np.int64), np.zeros((ranks, 3 * total)), np.zeros((ranks, 3 * total))
    for step in range(kinds * total):
        chain, turn = step // (kinds * length), step % (kinds * length)
        kind, depth = turn // length, turn % length
        stage = chain * length + (depth if kind == F else length - 1 - depth)
        ready, before, source = 0.0, kind, stage
        if kind == W or (kind == I and depth == 0):
            before = kind - 1
        elif depth > 0:
            source = stage - 1 if kind == F else stage + 1
        if kind != F or depth > 0:
            ready = starts[before, source] + seconds[before, source, 0]
            if source != stage and channel[before, source] >= 0:
                ready += hold[before, source] + latency[before, source]
        rank, takes = rank_of[stage], seconds[kind, stage, 0]
        begin = _first_free(
            begins[rank, : taken[rank]],
            ends[rank, : taken[rank]],
            ready + table.delay[kind, stage],
            takes,
            table.period,
        )
        starts[kind, stage], begins[rank, taken[rank]], ends[rank, taken[rank]] = begin, begin, begin + takes
        taken[rank] += 1


@compiled
def _first_free(begins: Floats, ends: Floats, ready: float, takes: float, period: float) -> float:
    """First time from `ready` on at which nothing of `takes` seconds overlaps what is there, modulo the period."""
    at, moved, tries = ready, True, 0
    while moved and tries < 2 * len(begins):
        moved, tries = False, tries + 1
        for other in range(len(begins)):
            length = ends[other] - begins[other]
            ahead = (at - begins[other]) % period  # since the other one began
            if period - ahead < _SAME * period:
                ahead = 0.0
            if ahead < length - _SAME * period:
                at, moved = at + length - ahead, True
            elif period - ahead < takes - _SAME * period:
                at, moved = at + period - ahead + length, True
    return at


def starting_patterns(problem: Problem) -> list[Pattern]:
    """Patterns of a few spacings, the same for a whole run of stages over the ranks."""
    return [*_stretched(problem), *_in_slots(problem)]


def _stretched(problem: Problem) -> Iterator[Pattern]:
    """Forwards some time behind each other, gradients back as soon as they can."""
    shortest, runs = shortest_period_s(problem), _runs(problem)
    unit = shortest / (3 * problem.stages / problem.ranks)
    for stretch in (1.0, 1.05, 1.15, 1.3, 1.5):
        for first, second in product((0.0, 0.5, 1.0, 2.0, 3.0), (0.0, 0.5, 1.0, 2.0) if runs.any() else (0.0,)):
            for later in (0.0, 1.0, 4.0):
                delays = np.zeros((3, problem.stages))
                delays[F] = np.where(runs % 2 == 0, first, second) * unit
                delays[W] = later * shortest
                yield Pattern(shortest * stretch, delays)


def _in_slots(problem: Problem) -> Iterator[Pattern]:
    """All actions in slots of one length, in which the longest and a message fit: what V-Min, V-Half and ZB-V are.

    From stage to stage a microbatch goes on after so many slots, in both directions.
    """
    hop = (problem.latency_s + problem.hold_s).max()
    slot = float(problem.seconds.max() + hop)
    shortest, runs = shortest_period_s(problem), _runs(problem)
    slots = 3 * problem.stages / problem.ranks
    for period in (slot * slots, *(shortest * stretch for stretch in (1.0, 1.1, 1.2, 1.35, 1.5, 1.75))):
        for first, second in ((1, 1), (2, 1), (1, 2), (2, 2), (3, 1), (4, 2)):
            for length in (slot, period / slots):
                spacing = np.where(runs % 2 == 0, first, second) * length
                delays = np.zeros((3, problem.stages))
                delays[:W] = np.maximum(0.0, spacing - problem.seconds[:W] - hop)
                yield Pattern(max(period, shortest), delays)


def changed(pattern: Pattern, problem: Problem, random: np.random.Generator) -> Pattern:
    """A neighbour: another period, or another delay of one kind on one stage or on a run of them."""
    shortest = shortest_period_s(problem)
    if random.random() < 0.25:
        stretch = pattern.period_s / shortest * float(np.exp(random.normal(0.0, 0.06)))
        return replace(pattern, period_s=shortest * max(1.0, stretch))
    runs = _runs(problem)
    alone = random.random() < 0.5
    stages = np.atleast_1d(random.integers(problem.stages)) if alone else np.flatnonzero(runs == random.choice(runs))
    kind = int(random.integers(problem.kinds))
    unit = shortest / (3 * problem.stages / problem.ranks)
    step = float(random.choice([-1.0, -0.5, -0.2, 0.2, 0.5, 1.0])) * unit * (6.0 if kind == W else 1.0)
    delay = 0.0 if random.random() < 0.2 else float(pattern.delay_s[kind, stages[0]]) + step
    return pattern.with_delay(kind, stages, max(0.0, delay))


def _runs(problem: Problem) -> NDArray[np.integer]:
    """Of each stage, how often its microbatches have been over all ranks before."""
    runs: NDArray[np.integer] = np.arange(problem.stages) % problem.placement.length // problem.ranks
    return runs
