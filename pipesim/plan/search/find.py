"""The best order for a setting, beside what published families make of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from pipesim.ir.action import Kind
from pipesim.ir.check import check
from pipesim.ir.schedule import Schedule
from pipesim.plan.search.bounds import Bounds, lower_bounds
from pipesim.plan.search.orders import serial
from pipesim.plan.search.problem import LimitTooSmall, Problem
from pipesim.plan.search.recompute import Recomputing, by_microbatch, with_shares
from pipesim.plan.search.rivals import Rival, priced, times_of
from pipesim.plan.search.search import Effort, Found, Report, Start, search
from pipesim.plan.search.setting import Setting

_TRIES = 8  # with more and more of the limit left free for messages


@dataclass(frozen=True, eq=False)
class Result:
    """What was found, and what it was compared with.

    best: the schedule with its times. found: the search itself. rivals: published families, the fastest that fit first.
    recomputed: (stages, microbatches) whose backward computes the forward again; no columns where none may.
    """

    setting: Setting
    best: Rival
    found: Found
    rivals: tuple[Rival, ...]
    recomputed: np.ndarray

    @property
    def gap(self) -> float:
        """By what part the best can be above the optimum of its placement, at most."""
        bound = self.found.bounds.best_s
        return max(0.0, self.best.step_time_s / bound - 1.0) if bound > 0 else 0.0

    @property
    def best_rival(self) -> Rival | None:
        """The fastest family that fits the limit on this placement, with whole microbatches that are not moved."""
        return next((one for one in self.rivals if one.fits and alike(one.schedule, self.setting)), None)


def find_order(
    setting: Setting,
    *,
    others: Sequence[Rival] = (),
    starts: Sequence[Start] = (),
    effort: Effort | None = None,
    seed: int = 0,
    report: Report = lambda progress: True,
) -> Result:
    """Search from `starts` and from the families among `others` that fit.

    Raises LimitTooSmall, BadLimit, NoCost, WrongStages.
    """
    known = [*starts, *(_from_rival(one) for one in others if one.fits and one.schedule.placement == setting.placement)]
    tries = _Tries(known, effort, seed, report)
    setting, problem, found, best = tries.within_the_limit(setting)
    check(found.schedule)
    for one in others:  # a family may do what the search cannot, such as fused pairs that overlap
        if one.fits and alike(one.schedule, setting) and (one.step_time_s < best.step_time_s or not best.fits):
            best = replace(one, name=f"search ({one.name})")
    recomputed = by_microbatch(problem) if best.name == "search" else np.zeros((problem.stages, 0), np.bool_)
    return Result(setting, best, found, tuple(others), recomputed)


def _from_rival(one: Rival) -> Start:
    """What is built already, or the same family for another number of microbatches."""
    return lambda count: one.schedule if one.start is None or count == one.schedule.microbatches else one.start(count)


@dataclass(frozen=True, eq=False)
class _Tries:
    """Searches with more and more of the limit left free for messages, until what was found fits."""

    known: Sequence[Start]
    effort: Effort | None
    seed: int
    report: Report

    def within_the_limit(self, setting: Setting) -> tuple[Setting, Problem, Found, Rival]:
        whole = problem = setting.problem()
        known = self.known
        for turn in range(_TRIES):
            if setting.keep is not None:
                problem, more = with_shares(problem, setting.keep, seed=self.seed, report=self.report)
                known = [*more, *self.known]
            found = search(problem, starts=known, effort=self.effort, seed=self.seed, report=self.report)
            if setting.keep is not None:
                found = replace(found, bounds=_of_any_share(whole, setting.keep))
            if problem.recompute is not None:  # its memory is counted by the search alone
                return setting, problem, found, _recomputing(setting, problem, found)
            best = priced("search", found.schedule, setting)
            over = np.maximum(setting.over(best.schedule, best.peak_bytes), 0.0)
            if not over.any() or found.interrupted:
                break
            setting = replace(setting, margin=setting.margin + over * 2**turn)
            try:
                problem = setting.problem()
            except LimitTooSmall:
                break
        if not best.fits:
            best = priced("search", serial(setting.placement, setting.microbatches), setting)
        if setting.margin.any() and setting.keep is None:  # what has been proven is proven for less memory
            found = replace(found, bounds=lower_bounds(whole))
        return setting, problem, found, best


def _of_any_share(problem: Problem, keep: float) -> Bounds:
    """Bounds whatever is recomputed: no forward runs twice, and yet each activation is as small as one that is kept."""
    return lower_bounds(replace(problem, memory=replace(problem.memory, take=keep * problem.memory.take)))


def _recomputing(setting: Setting, problem: Problem, found: Found) -> Rival:
    costs = Recomputing(setting.prices, by_microbatch(problem)).of(found.schedule)
    makespan_s, step_time_s = times_of(found.schedule, costs)
    return Rival("search", found.schedule, makespan_s, step_time_s, True)


def alike(schedule: Schedule, setting: Setting) -> bool:
    """Whether a schedule runs whole microbatches on the same placement and moves no activation away."""
    moves = int(schedule.atoms.kind.max(initial=0)) > Kind.W
    return schedule.placement == setting.placement and schedule.slices == 1 and not moves
