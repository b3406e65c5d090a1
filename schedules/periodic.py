"""Steady states: one microbatch's actions laid out so that a copy of them fits in every period.

This is modulo scheduling (of loops in compilers, Rau 1994). A microbatch passes a chain of forwards and
input gradients; each is placed in turn at a time when its rank, seen around a circle as long as the period,
is free. A beam search keeps the layouts whose activations live shortest. The building blocks of "Pipeline
Parallelism with Controllable Memory" (Qi et al. 2024, arXiv 2405.15362) are such layouts for equal times.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import NamedTuple

from pipesim.schedules.job import Job, Orders

_EPSILON = 1e-9
_LONGER = (1, 1.005, 1.01, 1.02, 1.03, 1.04, 1.05, 1.06, 1.08, 1.1, 1.12, 1.14, 1.17, 1.2, 1.24, 1.28, 1.33, 1.4, 1.5)
_MUCH_LONGER = (1.6, 1.7, 1.85, 2, 2.3, 2.6, 3, 3.5, 4, 5, 6, 8, 10, 13, 16, 20, 25, 32, 40)
_PERIODS = 2  # as many periods with a layout within the limit are enough
_OF_EACH = 2  # layouts of one kind

Interval = tuple[float, float]  # start, from 0 to the period, and end


@dataclass(frozen=True)
class Layout:
    """Starts of microbatch 0's F, I and W by stage; those of microbatch i are i periods later."""

    period: float
    starts: tuple[dict[int, float], dict[int, float], dict[int, float]]

    def orders(self, job: Job) -> Orders:
        """Every rank's actions sorted by start; of two that start at once the later kind first."""
        rows: list[list[tuple[float, int, int]]] = [[] for _ in range(job.placement.ranks)]
        for kind, starts in enumerate(self.starts):
            for stage, start in starts.items():
                rows[job.placement.ranks_of_stages[stage]] += [
                    (round(start + self.period * microbatch, 7), -kind, job.number(kind, stage, microbatch))
                    for microbatch in range(job.microbatches)
                ]
        return [[number for _, _, number in sorted(row)] for row in rows]

    def fits(self, job: Job) -> bool:
        """Whether the steady state keeps the memory limit."""
        enough = replace(job, microbatches=int(self.starts[2][0] / self.period) + 3)
        return enough.fits(self.orders(enough))


def layouts(job: Job, *, width: int = 16) -> Iterator[Layout]:
    """Layouts within the job's memory limit, those of the shortest periods first.

    width: of the beam.
    """
    fitting = 0
    least = max(1.0, _least_lifetimes(job) / job.memory.limit)
    for longer in (*_LONGER, *_MUCH_LONGER):
        found = [
            layout
            for joined in (True, False)
            for balanced in (True, False)
            for layout in _fitting(job, _Beam(job, least * longer, joined, balanced), width)
        ]
        yield from found
        fitting += bool(found)
        if fitting == _PERIODS:
            return


def _fitting(job: Job, beam: _Beam, width: int) -> list[Layout]:
    found: list[Layout] = []
    for layout in beam.search(width):
        if len(found) < _OF_EACH and layout.fits(job):
            found.append(layout)
    return found


def _chain(job: Job) -> list[tuple[int, int]]:
    """(kind, stage) of what a microbatch passes: all forwards, then all input gradients back."""
    stages = range(job.placement.stages)
    return [(0, stage) for stage in stages] + [(1, stage) for stage in reversed(stages)]


def _lag(job: Job, before: int, after: int) -> float:
    ranks = job.placement.ranks_of_stages
    return job.times.latency if ranks[before] != ranks[after] else 0.0


def _least_lifetimes(job: Job) -> float:
    """Microbatches × time that a rank's activations of one microbatch live at least, on the worst rank."""
    times, begun, lives = job.times, dict[int, float](), [0.0] * job.placement.ranks
    now, before = 0.0, 0
    for kind, stage in _chain(job):
        now += _lag(job, before, stage)
        if kind == 0:
            begun[stage] = now
            now += times.forward[stage]
        else:
            now += times.input_grad[stage]
            kept = now - begun[stage] + (1 - job.memory.input_release) * times.weight_grad[stage]
            lives[job.placement.ranks_of_stages[stage]] += kept * job.placement.share
        before = stage
    return max(lives)


class _State(NamedTuple):
    """The first actions of the chain placed; `lives`: activations × time so far, per rank."""

    cost: float
    now: float
    starts: tuple[float, ...]
    busy: tuple[tuple[Interval, ...], ...]
    lives: tuple[float, ...]


class _Beam:
    """One search. joined: each weight gradient directly after its input gradient, else in any gap.
    balanced: keep the states with the least memory on the worst rank, else on all."""

    def __init__(self, job: Job, period: float, joined: bool, balanced: bool) -> None:
        self.job, self.period, self.joined, self.balanced = job, period, joined, balanced
        self.chain, self.ranks = _chain(job), job.placement.ranks_of_stages
        self.share = job.placement.share
        weights = job.times.weight_grad
        held = [job.placement.stages_of(rank) for rank in range(job.placement.ranks)]
        self.pieces = [(len(stages), max(weights[stage] for stage in stages)) for stages in held]
        self.to_place = [2 * len(stages) for stages in held]
        self.open = [0] * job.placement.ranks

    def search(self, width: int) -> Iterator[Layout]:
        """Complete layouts, best first."""
        ranks = self.job.placement.ranks
        states = [_State(0.0, 0.0, (), ((),) * ranks, (0.0,) * ranks)]
        before = 0
        for kind, stage in self.chain:
            lag = _lag(self.job, before, stage)
            grown = [one for state in states for one in self._grow(state, kind, stage, state.now + lag)]
            states = sorted(grown, key=lambda state: (state.cost, state.now))[:width]
            rank = self.ranks[stage]
            self.to_place[rank] -= 1
            self.open[rank] += 1 if kind == 0 else -1
            before = stage
        return map(self._layout, states)

    def _grow(self, state: _State, kind: int, stage: int, earliest: float) -> Iterator[_State]:
        """The action at the earliest time, or next to what its rank already does."""
        times, rank, busy = self.job.times, self.ranks[stage], state.busy[self.ranks[stage]]
        takes, weight = (times.forward, times.input_grad)[kind][stage], times.weight_grad[stage]
        own = takes if kind == 0 else (1 - self.job.memory.input_release) * weight
        needs = takes + weight if kind == 1 and self.joined else takes
        for start in self._places(busy, earliest, weight):
            if not self._free(busy, start, needs):
                continue
            place = start % self.period
            mine = (*busy, (place, place + needs))
            if not self.joined and self.to_place[rank] == 1 and not self._weights_fit(rank, mine):
                continue
            lives = self._lives(state, rank, start + takes - state.now, own)
            if max(lives) <= self.job.memory.limit * self.period + _EPSILON:
                cost = max(lives) + 1e-3 * sum(lives) if self.balanced else sum(lives)
                others = (*state.busy[:rank], mine, *state.busy[rank + 1 :])
                yield _State(cost, start + takes, (*state.starts, start), others, lives)

    def _places(self, busy: tuple[Interval, ...], earliest: float, weight: float) -> list[float]:
        found = [earliest]
        for _, end in busy:
            after = end + (earliest - end) // self.period * self.period
            if after < earliest - _EPSILON:
                after += self.period
            found.append(after)
            if not self.joined:
                found.append(after + weight)  # with room for a weight gradient before it
        return found

    def _free(self, busy: tuple[Interval, ...], start: float, takes: float) -> bool:
        if takes > self.period + _EPSILON:
            return False
        for begin, end in busy:
            ahead = (begin - start) % self.period
            if ahead > self.period - _EPSILON:
                ahead = 0.0
            if ahead < takes - _EPSILON or ahead + end - begin > self.period + _EPSILON:
                return False
        return True

    def _weights_fit(self, rank: int, busy: tuple[Interval, ...]) -> bool:
        """Whether the gaps have room for the rank's weight gradients, each in one piece."""
        pieces, longest = self.pieces[rank]
        if longest == 0:
            return True
        intervals = sorted(busy)
        around = [*intervals, (intervals[0][0] + self.period, 0.0)]
        gaps = [after[0] - before[1] for before, after in pairwise(around)]
        return sum(int((gap + _EPSILON) / longest) for gap in gaps) >= pieces

    def _lives(self, state: _State, rank: int, passed: float, own: float) -> tuple[float, ...]:
        return tuple(
            lives + self.share * (opened * passed + (own if one == rank else 0.0))
            for one, (lives, opened) in enumerate(zip(state.lives, self.open, strict=True))
        )

    def _layout(self, state: _State) -> Layout:
        starts: tuple[dict[int, float], dict[int, float]] = ({}, {})
        for (kind, stage), start in zip(self.chain, state.starts, strict=True):
            starts[kind][stage] = start
        weights = self._weights(starts[1], state.busy)
        return Layout(self.period, (*starts, weights))

    def _weights(self, gradients: dict[int, float], busy: tuple[tuple[Interval, ...], ...]) -> dict[int, float]:
        """Each weight gradient in the first gap after its input gradient; where there is none, directly after."""
        times, intervals, found = self.job.times, [list(mine) for mine in busy], dict[int, float]()
        for stage, start in sorted(gradients.items(), key=lambda item: item[1]):
            ready, mine = start + times.input_grad[stage], intervals[self.ranks[stage]]
            takes = times.weight_grad[stage]
            found[stage] = ready
            if not self.joined:
                places = sorted(self._places(tuple(mine), ready, 0.0))
                found[stage] = next((at for at in places if self._free(tuple(mine), at, takes)), ready)
                mine.append((found[stage] % self.period, found[stage] % self.period + takes))
        return found
