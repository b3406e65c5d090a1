"""Searches for the order of least step time: constructs, improves, proves."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from pipesim.errors import PipesimError
from pipesim.ir.schedule import Schedule
from pipesim.plan.search import exact
from pipesim.plan.search.arrays import Layout
from pipesim.plan.search.bounds import Bounds, lower_bounds
from pipesim.plan.search.candidates import Candidate, Pool, candidate
from pipesim.plan.search.construct import constructions, one_at_a_time
from pipesim.plan.search.improve import annealed
from pipesim.plan.search.orders import from_schedule, to_schedule
from pipesim.plan.search.periodic import extended, find_window, short_problem
from pipesim.plan.search.problem import Problem

_SAME = 1e-9
_MOST_ACTIONS = 20_000  # orders up to this are annealed in full too
# Rounds of annealing: stride (0: action by action), first temperature in microbatches' time, and which of the best
# orders to start from.
_ROUNDS = (
    (1, 0.1, 0), (2, 0.1, 0), (0, 0.05, 0), (4, 0.1, 0), (0, 0.02, 0), (1, 0.3, 1),
    (2, 0.1, 1), (0, 0.1, 1), (3, 0.1, 2), (0, 0.05, 0), (2, 0.3, 0), (0, 0.2, 0),
)  # fmt: skip


@dataclass(frozen=True)
class Effort:
    """How much is tried.

    climbs: changes of patterns. rounds: of annealing; actions: timed in each, at most; moves: tried in each, at most.
    exact_s: for the exact solver, 0 to leave it out. workers: its threads. The result is the same in every run, unless
    a time limit or the exact solver's ends it.
    """

    climbs: int = 300
    rounds: int = 12
    actions: int = 50_000_000
    moves: int = 150_000
    exact_s: float = 10.0
    workers: int = min(8, os.cpu_count() or 1)


@dataclass(frozen=True)
class Progress:
    """How far a search is: what it does, the best end and the bound so far, seconds spent."""

    phase: str
    best_s: float
    bound_s: float
    spent_s: float

    @property
    def gap(self) -> float:
        """By what part the best is above the bound."""
        return self.best_s / self.bound_s - 1.0 if self.bound_s > 0 else 0.0


@dataclass(frozen=True, eq=False)
class Found:
    """The best order.

    end_s: of its last action and tail. origin: what it was made of. notes: what was left out and why.
    """

    schedule: Schedule
    end_s: float
    bounds: Bounds
    origin: str
    interrupted: bool
    spent_s: float
    notes: tuple[str, ...] = ()

    @property
    def gap(self) -> float:
        """By what part it can be above the optimum at most."""
        return max(0.0, self.end_s / self.bounds.best_s - 1.0)

    @property
    def optimal(self) -> bool:
        """Whether it is proven that there is no better one."""
        return self.gap <= 1e-6


Report = Callable[[Progress], bool]
Start = Callable[[int], Schedule]


def search(
    problem: Problem,
    *,
    starts: Sequence[Start] = (),
    effort: Effort | None = None,
    seed: int = 0,
    report: Report = lambda progress: True,
) -> Found:
    """The best order found for a problem whose limit can be met.

    starts: published orders to start from, so that the result is never worse than those that fit: from a number of
        microbatches to a schedule, as fewer are searched than there are many of.
    report: called often; the search ends when it gives False. A KeyboardInterrupt ends it too: the best is kept.
    """
    run = _Run(problem, effort or Effort(), seed, report)
    interrupted = False
    try:
        run.to_the_end(starts)
    except KeyboardInterrupt:
        interrupted = True
    except _Enough:
        pass  # what was found is in the pool
    best = run.pool.best
    return Found(
        to_schedule(run.layout, best.order, "search"), best.end_s, run.bounds, best.origin, interrupted,
        run.spent_s, tuple(run.notes),
    )  # fmt: skip


class _Enough(Exception):
    """The bound is met, or whoever reads the reports has enough."""


@dataclass
class _Run:
    """A search under way."""

    problem: Problem
    effort: Effort
    seed: int
    report: Report
    notes: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.begun = time.monotonic()
        self.layout, self.pool, self.bounds = Layout(self.problem), Pool(), lower_bounds(self.problem)
        self.work = Layout(short_problem(self.problem))
        self.regular = Pool()  # orders of the work layout that repeat something
        for layout, pool in ((self.layout, self.pool), (self.work, self.regular)):
            pool.offer(one_at_a_time(layout))

    @property
    def spent_s(self) -> float:
        return time.monotonic() - self.begun

    @property
    def is_short(self) -> bool:
        """Whether fewer microbatches are searched than there are."""
        return self.work.problem.microbatches < self.problem.microbatches

    def to_the_end(self, starts: Sequence[Start]) -> None:
        layouts = (self.layout, self.work) if self.is_short else (self.layout,)
        for layout in layouts:
            self._take("published", (_given(start, layout) for start in starts))
        self._take("constructing", constructions(self.work, climbs=self.effort.climbs, seed=self.seed))
        for turn in range(self.effort.rounds):
            if turn == len(_ROUNDS):
                self._prove()
            self._take("improving", self._round(turn), regular=_ROUNDS[turn % len(_ROUNDS)][0] > 0)
        if self.effort.rounds <= len(_ROUNDS):
            self._prove()

    def _take(self, phase: str, made: Iterator[Candidate | None], regular: bool = True) -> None:
        """Take in what is made. Raises _Enough."""
        for one in made:
            if one is not None:
                full = len(one.order) == self.layout.offsets[-1]
                new = self.regular.offer(one) if regular and not (full and self.is_short) else True
                if new:
                    self.pool.offer(one if full else self._extended(one))
            if not self._goes_on(phase):
                raise _Enough

    def _goes_on(self, phase: str) -> bool:
        best = self.pool.best.end_s
        wanted = self.report(Progress(phase, best, self.bounds.best_s, self.spent_s))
        return wanted and best > self.bounds.best_s * (1.0 + _SAME)

    def _extended(self, one: Candidate) -> Candidate | None:
        """A solution for fewer microbatches repeated for all."""
        window = one.window or find_window(self.work, one.order)
        return None if window is None else extended(self.work, one.order, window, self.layout, one.origin)

    def _round(self, turn: int) -> Iterator[Candidate]:
        """Anneal a periodic order by every n-th microbatch, or the best order action by action."""
        stride, hot, which = _ROUNDS[turn % len(_ROUNDS)]
        layout, pool = self.work, self.regular
        if not stride and (not self.is_short or (turn % 2 and self.layout.problem.actions <= _MOST_ACTIONS)):
            layout, pool = self.layout, self.pool
        start = pool.kept[which % len(pool.kept)]
        if not stride and layout is not self.layout:
            start = replace(start, window=find_window(layout, start.order))
        iterations = min(self.effort.moves, self.effort.actions // len(start.order))
        return annealed(
            layout, start, hot=hot, iterations=iterations, seed=self.seed + 1000 * turn, stride=stride
        )  # fmt: skip

    def _prove(self) -> None:
        """Ask the exact solver, where the problem is small enough."""
        reason = exact.why_not(self.problem) if self.effort.exact_s > 0 else "the exact solver was not asked"
        if reason is not None:
            self.notes.append(f"bound not proven tight: {reason}")
            return
        found = exact.solve(
            self.layout, self.pool.best, time_limit_s=self.effort.exact_s, seed=self.seed, workers=self.effort.workers,
            goes_on=lambda: self._goes_on("exact solver"),
        )  # fmt: skip
        self.pool.offer(found.better)
        self.bounds = self.bounds.with_proof(found.bound_s)
        if found.interrupted:
            raise KeyboardInterrupt
        if not self._goes_on("exact solver"):
            raise _Enough


def _given(start: Start, layout: Layout) -> Candidate | None:
    """A published order as a candidate; None where there is none for so many microbatches, or it does not fit."""
    try:
        schedule = start(layout.problem.microbatches)
    except PipesimError:
        return None
    order = from_schedule(layout, schedule)
    return None if order is None else candidate(layout, order, schedule.name)
