"""From a placement, costs and a memory limit to the problem that is searched."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np

from pipesim.costs.costs import Costs, Floats
from pipesim.engine.choose import simulate
from pipesim.engine.contention import bandwidths
from pipesim.ir.action import Kind
from pipesim.ir.lower import lower
from pipesim.ir.memory import RELEASE_AT_INPUT, Release, peak_activations
from pipesim.ir.needs import Flow
from pipesim.ir.placement import Placement
from pipesim.ir.schedule import Schedule
from pipesim.plan.search.limit import BadLimit, Limit
from pipesim.plan.search.orders import serial
from pipesim.plan.search.problem import FIT, F, I, LimitTooSmall, Memory, NothingTakesTime, Problem, Recompute


class Prices(Protocol):
    """Where costs come from: plain numbers, a costs file, an estimate."""

    def of(self, schedule: Schedule) -> Costs:
        """Costs of a schedule. Raises WrongStages for one with another number of stages."""
        ...


@dataclass(frozen=True, eq=False)
class Setting:
    """What is searched.

    limit: None for the one that the costs know, or none. release: when activations are given back, where they are
    counted in microbatches. margin: (ranks,) of the limit that is left free. keep: part of an activation that a
    microbatch keeps whose forward is computed again, None where none may be.
    """

    placement: Placement
    microbatches: int
    prices: Prices
    limit: Limit | None = None
    release: Release = "at_weight"
    margin: Floats = field(default_factory=lambda: np.zeros(1))
    keep: float | None = None

    def problem(self) -> Problem:
        """Raises NoCost, WrongStages, NothingTakesTime, LimitTooSmall, BadLimit."""
        costs = self.prices.of(serial(self.placement, 2 * self.placement.chains))
        splits = Kind.I in costs.seconds and Kind.W in costs.seconds
        seconds = np.zeros((3, self.placement.stages))
        for row, kind in enumerate((Kind.F, Kind.I, Kind.W) if splits else (Kind.F, Kind.B)):
            seconds[row] = _by_stage(costs.of_kind(kind), costs.stages) + costs.host_s
        tail = np.zeros(self.placement.stages) if costs.optimizer_s is None else costs.optimizer_s
        tail = np.bincount(self.placement.ranks_of_stages, tail, self.placement.ranks).astype(np.float64)
        latency, hold = _messages(self.placement, costs)
        memory, needed = self._memory(costs)
        problem = Problem(self.placement, self.microbatches, splits, seconds, latency, hold, memory, tail)
        if not problem.period_s > 0.0:
            raise NothingTakesTime
        self._require_room(problem, needed)
        return problem

    def _memory(self, costs: Costs) -> tuple[Memory, Floats]:
        """Memory of the problem, and what each rank needs in all for one microbatch, in the unit of the limit."""
        stages, ranks = self.placement.stages, self.placement.ranks
        held, unlimited = costs.held, np.full(ranks, np.inf)
        known = None if held is None else held.limit
        if (self.limit is not None and self.limit.unit == "bytes") or (self.limit is None and known is not None):
            if held is None:
                raise BadLimit(str(self.limit), "the costs know no bytes, so only microbatches can be counted")
            limit = known if self.limit is None else np.full(ranks, self.limit.value)
            assert limit is not None
            alone = simulate(lower(serial(self.placement, 2 * self.placement.chains)), costs).memory
            assert alone is not None
            memory = Memory(held.activation, held.released_at_input, unlimited)
            others = alone.peak - _of_one_microbatch(self.placement, memory.take)
            return replace(memory, limit=limit - others - self.margin), alone.peak
        take = np.full(stages, self.placement.share)
        limit = unlimited if self.limit is None else np.full(ranks, self.limit.value)
        part = np.full(stages, RELEASE_AT_INPUT[self.release])
        return Memory(take, part, limit), _of_one_microbatch(self.placement, take)

    def _require_room(self, problem: Problem, needed: Floats) -> None:
        whole = problem.smallest_limit
        if self.keep is not None:
            ones = np.ones(problem.stages)
            problem = problem.with_recompute(Recompute(ones, self.keep * ones))
            needed = needed + np.minimum(problem.smallest_limit - whole, 0.0)
        short = np.minimum(problem.smallest_limit, whole) - problem.memory.limit * FIT
        if short.max() > 0:
            rank = int(short.argmax())
            limit = self.limit or Limit(float((needed - short)[rank]), "bytes")
            raise LimitTooSmall(str(limit), rank, str(Limit(float((needed + self.margin).max()), limit.unit)))

    def over(self, schedule: Schedule, peak_bytes: Floats | None) -> Floats:
        """By how much each rank passes the limit, (ranks,); at most 0 where it fits."""
        if self.limit is not None and self.limit.unit == "microbatches":
            return peak_activations(schedule, self.release) - self.limit.value * FIT
        held = self.prices.of(schedule).held
        known = None if held is None else held.limit
        limit = known if self.limit is None else np.full(schedule.ranks, self.limit.value)
        if limit is None or peak_bytes is None:
            return np.full(schedule.ranks, -np.inf)
        return peak_bytes - limit * FIT

    def peak_bytes(self, schedule: Schedule) -> Floats | None:
        """Most bytes each rank holds, with messages under way; None where the costs know none."""
        memory = simulate(lower(schedule), self.prices.of(schedule)).memory
        return None if memory is None else memory.peak


def _of_one_microbatch(placement: Placement, take: Floats) -> Floats:
    """(ranks,): what one microbatch holds on all stages of a rank, of the chain that holds most."""
    chains = np.split(np.arange(placement.stages), placement.chains)
    ranks = np.asarray(placement.ranks_of_stages)
    each = [np.bincount(ranks[stages], weights=take[stages], minlength=placement.ranks) for stages in chains]
    most: Floats = np.max(each, axis=0)
    return most


def _by_stage(values: Floats, stages: int) -> Floats:
    """Seconds or bytes of each stage, the mean over its microbatches."""
    mean: Floats = values.reshape(len(values), -1).mean(axis=1)
    return np.broadcast_to(mean, (stages,))


def _messages(placement: Placement, costs: Costs) -> tuple[Floats, Floats]:
    """(2, stages): latency of the messages of each stage, and seconds each holds its channel."""
    ranks, length = placement.ranks_of_stages, placement.length
    latency, hold = np.zeros((2, placement.stages)), np.zeros((2, placement.stages))
    for row, flow, step, ends in ((F, Flow.ACTIVATION, 1, length - 1), (I, Flow.GRADIENT, -1, 0)):
        sizes = np.zeros(placement.stages)
        if flow in costs.message_bytes:
            sizes = _by_stage(costs.message_bytes[flow], placement.stages)
        for stage in range(placement.stages):
            if stage % length != ends and ranks[stage] != ranks[stage + step]:
                route = costs.network.route(ranks[stage], ranks[stage + step])
                latency[row, stage] = route.latency_s
                hold[row, stage] = sizes[stage] / bandwidths([route], costs.network)[0]
    return latency, hold
