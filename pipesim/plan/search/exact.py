"""The exact solver, for small cases: OR-Tools CP-SAT on intervals, warm-started, with the bound it has proven.

Times are whole multiples of a unit; where costs are none, durations and amounts are rounded down and limits up, so
that the bound holds for the true costs too. The occupation of channels by messages is left out, for the same reason.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from importlib import import_module
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipesim.costs.costs import Floats
from pipesim.ir.atoms import Ints
from pipesim.plan.search.arrays import Layout
from pipesim.plan.search.bounds import lower_bounds
from pipesim.plan.search.candidates import Candidate, candidate
from pipesim.plan.search.problem import F, I, Memory, Problem, W
from pipesim.plan.search.walking import time_order

MOST_ACTIONS = 600
_FINE = 1_000_000  # of the longest action is one unit, where no unit divides all durations
_LARGEST = 10**9
_NO_LIMIT = 1e15

cp_model: ModuleType | None
try:
    cp_model = import_module("ortools.sat.python.cp_model")
except ImportError:  # an extra: pip install 'pipesim[search]'
    cp_model = None


@dataclass(frozen=True, eq=False)
class Proof:
    """What the solver found: a lower bound in seconds, whether it is met, an order that is better (or None), and
    whether the user interrupted it."""

    bound_s: float
    optimal: bool
    better: Candidate | None
    interrupted: bool


def why_not(problem: Problem) -> str | None:
    """Why a problem is not given to the exact solver, None where it is."""
    if cp_model is None:
        return "OR-Tools is not installed: pip install 'pipesim[search]'"
    if problem.actions > MOST_ACTIONS:
        return f"{problem.actions} actions are too many for the exact solver, which takes up to {MOST_ACTIONS}"
    if problem.recompute is not None:
        return "recomputed microbatches differ from the others, which the exact solver does not know"
    return None


def solve(layout: Layout, best: Candidate, *, time_limit_s: float, seed: int, workers: int) -> Proof:
    """Look for a better order than `best`, and prove how much better one can be."""
    assert cp_model is not None
    whole, unit = _in_units(layout.problem)
    model = _Model(Layout(whole), cp_model)
    model.start_from(best.order)
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = time_limit_s
    solver.parameters.random_seed = seed
    solver.parameters.num_workers = workers
    status = solver.solve(model.model)
    optimal = status == cp_model.OPTIMAL
    found = None
    if status in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        found = candidate(layout, model.order(solver), "exact solver")
    late = solver.wall_time >= time_limit_s * 0.9
    bound_s = float(solver.best_objective_bound) * unit
    better = found if found is not None and found.end_s < best.end_s else None
    return Proof(bound_s, optimal, better, interrupted=not (optimal or late))


class _Model:
    """Start variables and constraints of a problem in whole units."""

    def __init__(self, layout: Layout, cp: Any) -> None:
        self.layout, self.cp, self.model = layout, cp, cp.CpModel()
        problem = layout.problem
        self.seconds = problem.seconds.astype(np.int64)
        horizon = int(problem.actions * self.seconds.max() + 2 * (problem.stages + 1) * problem.latency_s.max())
        self.start = {
            (kind, stage, place): self.model.new_int_var(0, horizon, f"{'FIW'[kind]}{stage}.{place}")
            for kind in range(problem.kinds)
            for stage in range(problem.stages)
            for place in range(int(problem.counts[stage]))
        }
        self.end_of_all = self.model.new_int_var(math.ceil(lower_bounds(problem).best_s - 1e-6), 2 * horizon, "end")
        self._order_of_needs()
        for rank in range(problem.ranks):
            self._one_at_a_time(rank)
            self._memory(rank)
        self.model.minimize(self.end_of_all)

    def end(self, kind: int, stage: int, place: int) -> Any:
        return self.start[kind, stage, place] + int(self.seconds[kind, stage])

    def _order_of_needs(self) -> None:
        problem = self.layout.problem
        lag = (problem.latency_s + problem.hold_s).astype(np.int64)
        length, rank = problem.placement.length, problem.rank_of
        for kind, stage, place in self.start:
            needs = [(kind, stage, place - 1, 0)] if place else []  # microbatches in turn
            if kind == W:
                needs.append((I, stage, place, 0))
            elif kind == I:
                needs.append((F, stage, place, 0))
            before = {F: stage - 1, I: stage + 1}.get(kind, stage)
            if kind != W and stage % length != (0 if kind == F else length - 1):
                hop = int(lag[kind, before]) if rank[before] != rank[stage] else 0
                needs.append((kind, before, place, hop))
            for other, where, which, hop in needs:
                self.model.add(self.start[kind, stage, place] >= self.end(other, where, which) + hop)

    def _one_at_a_time(self, rank: int) -> None:
        problem, intervals = self.layout.problem, []
        for (kind, stage, place), start in self.start.items():
            if problem.rank_of[stage] == rank:
                intervals.append(self.model.new_fixed_size_interval_var(start, int(self.seconds[kind, stage]), ""))
                tail = int(problem.tail_s[rank])
                self.model.add(self.end_of_all >= self.end(kind, stage, place) + tail)
        self.model.add_no_overlap(intervals)

    def _memory(self, rank: int) -> None:
        """Activations as intervals that share the limit: one part until the input gradient has ended, one until W."""
        problem, memory = self.layout.problem, self.layout.problem.memory
        stages = np.flatnonzero(problem.rank_of == rank)
        if (problem.counts * memory.take)[stages].sum() <= memory.limit[rank]:
            return
        intervals, demands = [], []
        last = W if problem.splits else I
        for stage in stages.tolist():
            early = int(memory.take[stage] * memory.part[stage]) if problem.splits else int(memory.take[stage])
            for kind, amount in ((I, early), (last, int(memory.take[stage]) - early)):
                for place in range(int(problem.counts[stage]) if amount else 0):
                    begin, end = self.start[F, stage, place], self.end(kind, stage, place)
                    size = self.model.new_int_var(0, int(_NO_LIMIT), "")
                    intervals.append(self.model.new_interval_var(begin, size, end, ""))
                    demands.append(amount)
        self.model.add_cumulative(intervals, demands, int(memory.limit[rank]))

    def start_from(self, order: Ints) -> None:
        """Hints, and the end that has to be met at least."""
        end, times = time_order(self.layout.actions, order)
        starts = np.rint(times.start.reshape(self.layout.shape)).astype(np.int64)
        for key, variable in self.start.items():
            self.model.add_hint(variable, int(starts[key]))
        self.model.add(self.end_of_all <= round(end))

    def order(self, solver: Any) -> Ints:
        """By start; where several start at once, those that take no time first, along their way."""
        layout, starts = self.layout, np.full(self.layout.shape, np.inf)
        for key, variable in self.start.items():
            starts[key] = solver.value(variable)
        takes, along, flat = layout.actions.seconds > 0, layout.along, starts.ravel()
        return np.concatenate([mine[np.lexsort((along[mine], takes[mine], flat[mine]))] for mine in layout.numbers])


def _in_units(problem: Problem) -> tuple[Problem, float]:
    """The problem in whole units of time and memory, and the seconds of a unit."""
    lag = problem.latency_s + problem.hold_s
    unit = _unit(np.concatenate([problem.seconds.ravel(), lag.ravel(), problem.tail_s]))
    memory = problem.memory
    grain = _unit(np.concatenate([memory.take * memory.part, memory.take * (1.0 - memory.part)]))
    whole = replace(
        problem,
        seconds=_floor(problem.seconds / unit),
        latency_s=_floor(lag / unit),
        hold_s=np.zeros_like(lag),
        tail_s=_floor(problem.tail_s / unit),
        memory=_whole_memory(memory, grain),
    )
    return whole, unit


def _whole_memory(memory: Memory, grain: float) -> Memory:
    early, late = _floor(memory.take * memory.part / grain), _floor(memory.take * (1.0 - memory.part) / grain)
    take = early + late
    limit = _floor(np.minimum(memory.limit / grain, _NO_LIMIT))
    return Memory(take, np.divide(early, take, out=np.zeros_like(take), where=take > 0) + 1e-15, limit)


def _floor(values: Floats) -> Floats:
    near = np.rint(values)
    floored: Floats = np.where(np.abs(values - near) < 1e-6, near, np.floor(values))
    return floored


def _unit(values: NDArray[np.float64]) -> float:
    """A unit that divides all values, or a small part of the largest."""
    largest = float(values.max())
    if largest <= 0:
        return 1.0
    parts = [Fraction(value / largest).limit_denominator(10_000) for value in np.unique(values).tolist()]
    scale = math.lcm(*(part.denominator for part in parts))
    exact = all(
        abs(float(part) - value / largest) < 1e-12 for part, value in zip(parts, np.unique(values), strict=True)
    )
    return largest / scale if exact and scale < _LARGEST else largest / _FINE
