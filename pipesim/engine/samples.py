"""Many steps with times drawn anew for each: how much they vary, and which rank or link decides them."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from pipesim.costs.costs import Costs, Floats
from pipesim.engine import event
from pipesim.engine.compiled import compiled
from pipesim.engine.contention import SharedLinks, require_room
from pipesim.engine.durations import Durations, durations
from pipesim.engine.fast import Sweeper, holds
from pipesim.engine.noise import BadNoise, Noise, jittered, slowed
from pipesim.engine.sweep import NONE
from pipesim.idle import critical_path
from pipesim.ir.action import Kind
from pipesim.ir.atoms import Ints
from pipesim.ir.program import Program

_THREADS = 8  # the compiled sweep and numpy let each other run
_MOST = 1_000_000


@dataclass(frozen=True)
class Spread:
    """Mean and percentiles of one figure."""

    mean: float
    p5: float
    p50: float
    p95: float

    @classmethod
    def of(cls, values: Floats) -> Spread:
        return cls(float(values.mean()), *(float(part) for part in np.percentile(values, (5, 50, 95))))


@dataclass(frozen=True, eq=False)
class Samples:
    """What each sampled step came to. n samples, `places` being the ranks and then the links in use.

    step_time_s, makespan_s: (n,). bubble_fraction: (n, ranks), idle part of the makespan.
    critical_s: (n, places), seconds of the step's critical path that were spent there.
    """

    step_time_s: Floats
    makespan_s: Floats
    bubble_fraction: Floats
    critical_s: Floats
    places: tuple[str, ...]
    exact: bool  # False: some steps needed the reference engine, as transfers shared links

    @property
    def step_time(self) -> Spread:
        return Spread.of(self.step_time_s)

    @property
    def bubble_of_ranks(self) -> tuple[Spread, ...]:
        return tuple(Spread.of(column) for column in self.bubble_fraction.T)

    @property
    def critical_part(self) -> Mapping[str, float]:
        """Mean part of the step time that the critical path spends at each place."""
        part = (self.critical_s / self.step_time_s[:, None]).mean(axis=0)
        return dict(zip(self.places, part.tolist(), strict=True))

    @property
    def critical_often(self) -> Mapping[str, float]:
        """Part of the samples in which a rank, and in which a link, has the longest stretch of the path."""
        ranks = self.bubble_fraction.shape[1]
        often = np.zeros(len(self.places))
        for group in (slice(0, ranks), slice(ranks, None)):
            mine = self.critical_s[:, group]
            if mine.shape[1]:
                found = np.bincount(mine.argmax(axis=1)[mine.max(axis=1) > 0], minlength=mine.shape[1])
                often[group] = found / len(mine)
        return dict(zip(self.places, often.tolist(), strict=True))

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {
            "samples": len(self.step_time_s),
            "step_time_s": vars(self.step_time),
            "bubble_fraction_of_ranks": [vars(spread) for spread in self.bubble_of_ranks],
            "critical_part": dict(self.critical_part),
            "critical_often": dict(self.critical_often),
        }


def sample(program: Program, costs: Sequence[Costs], noise: Noise, *, samples: int = 1000, seed: int = 0) -> Samples:
    """Simulate a step that often, each with its own draw; the same seed gives the same figures.

    costs: of one step after the other, and from the start again (steps whose microbatches differ in length).
    Raises BadNoise, Deadlock, NoCost, WrongStages.
    """
    if not 1 <= samples <= _MOST:
        raise BadNoise(f"{samples} samples", f"from 1 to {_MOST}, e.g. 1000")
    timings = [slowed(program, durations(program, one), noise) for one in costs]
    run = _Run(Sweeper(program), costs, timings, noise, *_places(program))
    first = run.step((seed, 0))  # by itself: threads would all prepare the sweep
    with ThreadPoolExecutor(min(_THREADS, os.cpu_count() or 1)) as pool:
        rows = [first, *pool.map(run.step, ((seed, index) for index in range(1, samples)))]
    step, makespan, bubble, critical, exact = zip(*rows, strict=True)
    return Samples(np.array(step), np.array(makespan), np.array(bubble), np.array(critical), run.places, all(exact))


def _places(program: Program) -> tuple[Ints, tuple[str, ...]]:
    """Of each operation where it happens, and the names: first all ranks, then each link in use."""
    place = program.rank.astype(np.int64)
    sends = np.flatnonzero(program.ops.kind == Kind.SEND)
    pair = program.rank[sends].astype(np.int64) * program.ranks + program.peer[sends]
    pairs, index = np.unique(pair, return_inverse=True)
    place[sends] = place[program.match[sends]] = program.ranks + index
    links = [f"link {one // program.ranks}-{one % program.ranks}" for one in pairs.tolist()]
    return place, (*(f"rank {rank}" for rank in range(program.ranks)), *links)


@dataclass(frozen=True, eq=False)
class _Run:
    sweeper: Sweeper
    costs: Sequence[Costs]
    timings: Sequence[Durations]
    noise: Noise
    place: Ints  # of each operation
    places: tuple[str, ...]

    @cached_property
    def boxes(self) -> Ints:
        program = self.sweeper.program
        return np.flatnonzero(program.is_compute & ~program.ops.fused)

    def step(self, seed: tuple[int, int]) -> tuple[float, float, Floats, Floats, bool]:
        """Step time, makespan, bubble of each rank, critical seconds of each place, and whether the fast
        engine could say so; of the sample that has this seed."""
        program, boxes, turn = self.sweeper.program, self.boxes, seed[1] % len(self.costs)
        timing = jittered(program, self.timings[turn], self.noise, np.random.default_rng(seed))
        start, end, critical, exact = self._swept(timing, self.costs[turn])
        makespan = float(end[boxes].max(initial=0.0))
        bubble = np.ones(program.ranks)
        np.subtract.at(bubble, program.rank[boxes], (end[boxes] - start[boxes]) / (makespan or 1.0))
        return float(end.max(initial=0.0)), makespan, bubble, critical, exact

    def _swept(self, timing: Durations, costs: Costs) -> tuple[Floats, Floats, Floats, bool]:
        program, critical = self.sweeper.program, np.zeros(len(self.places))
        cause = np.full(len(program), NONE, np.int32)
        start, end = self.sweeper.run(*holds(program, timing, costs), cause)
        try:
            require_room(program, timing, costs.network, start, end)
        except SharedLinks:
            timeline = event.simulate(program, costs, timing)
            path = critical_path(timeline)
            np.add.at(critical, self.place[path], timeline.end[path] - timeline.start[path])
            return timeline.start, timeline.end, critical, False
        if len(program):
            _trace(start, end, cause, self.place, critical)
        return start, end, critical, True


@compiled
def _trace(start: Floats, end: Floats, cause: Ints, place: Ints, critical: Floats) -> None:
    """Walk back from the last end through what let each operation start; add up where the time went."""
    op = np.argmax(end)
    while True:
        critical[place[op]] += end[op] - start[op]
        if cause[op] == op:
            return
        op = cause[op]
