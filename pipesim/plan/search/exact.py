"""The exact solver, for small cases: OR-Tools CP-SAT on intervals, warm-started, with the bound it has proven.

Times are whole multiples of a unit; where costs are none, durations and amounts are rounded down and limits up, so
that the bound holds for the true costs too. Messages may overtake each other in a channel, for the same reason.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from fractions import Fraction
from importlib import import_module
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipesim.costs.costs import Floats
from pipesim.ir.atoms import Ints
from pipesim.plan.search.arrays import NONE, Layout
from pipesim.plan.search.bounds import lower_bounds
from pipesim.plan.search.candidates import Candidate, candidate
from pipesim.plan.search.problem import F, I, Memory, Problem, W
from pipesim.plan.search.walking import time_order

MOST_ACTIONS = 600
_FINE = 10_000_000  # of the longest action is one unit, where no unit divides all durations
_LARGEST = 10**9
_NO_LIMIT = 1e15
_ASK_EVERY_S = 0.1

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


def solve(
    layout: Layout,
    best: Candidate,
    *,
    time_limit_s: float,
    seed: int,
    workers: int,
    goes_on: Callable[[], bool] = lambda: True,
) -> Proof:
    """Look for a better order than `best`, and prove how much better one can be.

    goes_on: asked often; False ends it early.
    """
    assert cp_model is not None
    whole, unit = _in_units(layout.problem)
    model = _Model(Layout(whole), cp_model)
    model.start_from(best.order)
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = time_limit_s
    solver.parameters.random_seed = seed
    solver.parameters.num_workers = workers
    solver.parameters.catch_sigint_signal = False  # it would take Ctrl-C away from Python for good
    status, interrupted = _solved(solver, model.model, goes_on)
    found = None
    if status in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        found = candidate(layout, model.order(solver), "exact solver")
    better = found if found is not None and found.end_s < best.end_s else None
    bound_s = max(0.0, float(solver.best_objective_bound)) * unit
    return Proof(bound_s, status == cp_model.OPTIMAL, better, interrupted)


def _solved(solver: Any, model: Any, goes_on: Callable[[], bool]) -> tuple[Any, bool]:
    """Status of a solver that runs beside us, as no signal reaches Python inside it, and whether Ctrl-C ended it."""
    with ThreadPoolExecutor(max_workers=1) as threads:
        status = threads.submit(solver.solve, model)
        try:
            while not wait([status], _ASK_EVERY_S).done:
                if not goes_on():
                    solver.stop_search()
        except KeyboardInterrupt:
            solver.stop_search()
            return status.result(), True
        return status.result(), False


class _Model:
    """Start variables and constraints of a problem in whole units."""

    def __init__(self, layout: Layout, cp: Any) -> None:
        self.layout, self.cp, self.model = layout, cp, cp.CpModel()
        problem = layout.problem
        self.seconds = problem.seconds.astype(np.int64)
        lag = int((problem.latency_s + problem.hold_s).max())
        self.horizon = horizon = problem.actions * (int(self.seconds.max()) + lag) + lag
        self.messages: dict[int, list[Any]] = {}  # by channel
        self.start = {
            (kind, stage, place): self.model.new_int_var(0, horizon, f"{'FIW'[kind]}{stage}.{place}")
            for kind in range(problem.kinds)
            for stage in range(problem.stages)
            for place in range(int(problem.counts[stage]))
        }
        self.end_of_all = self.model.new_int_var(math.ceil(lower_bounds(problem).best_s - 1e-6), 2 * horizon, "end")
        self.arrival = {key: self._arrival(*key) for key in self.start if key[0] != W and self._leaves(*key[:2])}
        self._order_of_needs()
        self._one_message_at_a_time()
        for rank in range(problem.ranks):
            self._one_at_a_time(rank)
            self._memory(rank)
        self.model.minimize(self.end_of_all)

    def end(self, kind: int, stage: int, place: int) -> Any:
        return self.start[kind, stage, place] + int(self.seconds[kind, stage])

    def _leaves(self, kind: int, stage: int) -> bool:
        """Whether the action sends a message to another rank."""
        return bool(self.layout.stages.channel[kind, stage] != NONE)

    def _arrival(self, kind: int, stage: int, place: int) -> Any:
        """When a message is there; where it holds its channel for a time, a variable."""
        latency, hold = (int(each[kind, stage]) for each in (self.layout.stages.latency, self.layout.stages.hold))
        end = self.end(kind, stage, place)
        if not hold:
            return end + latency
        sent = self.model.new_int_var(0, self.horizon, "")
        self.model.add(sent >= end)
        channel = int(self.layout.stages.channel[kind, stage])
        self.messages.setdefault(channel, []).append(self.model.new_fixed_size_interval_var(sent, hold, ""))
        return sent + hold + latency

    def _order_of_needs(self) -> None:
        length = self.layout.problem.placement.length
        for (kind, stage, place), start in self.start.items():
            needs = [self.end(kind, stage, place - 1)] if place else []  # microbatches in turn
            if kind in (I, W):
                needs.append(self.end(kind - 1, stage, place))
            before = {F: stage - 1, I: stage + 1}.get(kind, stage)
            if kind != W and stage % length != (0 if kind == F else length - 1):
                needs.append(self.arrival.get((kind, before, place), self.end(kind, before, place)))
            for needed in needs:
                self.model.add(start >= needed)

    def _one_message_at_a_time(self) -> None:
        for messages in self.messages.values():
            self.model.add_no_overlap(messages)

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
    times = (problem.seconds, problem.latency_s, problem.hold_s, problem.tail_s)
    unit = _unit(np.concatenate([each.ravel() for each in times]))
    memory = problem.memory
    grain = _unit(np.concatenate([memory.take * memory.part, memory.take * (1.0 - memory.part)]))
    whole = replace(
        problem,
        seconds=_floor(problem.seconds / unit),
        latency_s=_floor(problem.latency_s / unit),
        hold_s=_floor(problem.hold_s / unit),
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
