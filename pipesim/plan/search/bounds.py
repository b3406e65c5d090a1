"""Lower bounds on the last end: what no order can beat."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pipesim.costs.costs import Floats
from pipesim.plan.search.problem import FIT, F, I, Problem, W

Ints = NDArray[np.integer]


@dataclass(frozen=True)
class Bounds:
    """Seconds by reason.

    work: the busiest rank, from its first forward on. path: one microbatch through all stages and back.
    warm-up: what memory lets a rank do before its first gradient and after its last one. memory: what
    microbatches hold, and for how long at least. messages: the busiest channel. exact: proven by the exact solver.
    """

    seconds: Mapping[str, float]

    @property
    def best_s(self) -> float:
        return max(self.seconds.values())

    @property
    def reason(self) -> str:
        return max(self.seconds, key=lambda word: self.seconds[word])

    def with_proof(self, seconds: float) -> Bounds:
        """The same, and what the exact solver has proven."""
        return Bounds({**self.seconds, "exact": seconds})


@dataclass(frozen=True, eq=False)
class Paths:
    """By stage, seconds: least start of a forward and of an input gradient, and least time from the end of the latter
    to the last end."""

    forward: Floats
    gradient: Floats
    after: Floats


def lower_bounds(problem: Problem) -> Bounds:
    """Bounds by work, critical path and memory."""
    way = paths(problem)
    ranks = [rank for rank in range(problem.ranks) if problem.work_s[rank] > 0]
    return Bounds(
        {
            "work": max((_work(problem, way, rank) for rank in ranks), default=0.0),
            "path": float((way.gradient + problem.seconds[I] + way.after)[problem.counts > 0].max()),
            "warm-up": max((_warm_up(problem, way, rank) for rank in ranks), default=0.0),
            "memory": max((_stay(problem, way, rank) for rank in ranks), default=0.0),
            **({"messages": _messages(problem, way)} if problem.hold_s.any() else {}),
        }
    )


def paths(problem: Problem) -> Paths:
    """One microbatch alone, along each chain and back."""
    length, rank, seconds = problem.placement.length, problem.rank_of, problem.seconds
    message = problem.hold_s + problem.latency_s
    forward, gradient, after = (np.zeros(problem.stages) for _ in range(3))
    for stage in range(problem.stages):
        if stage % length:
            hop = message[F, stage - 1] if rank[stage] != rank[stage - 1] else 0.0
            forward[stage] = forward[stage - 1] + seconds[F, stage - 1] + hop
    for stage in reversed(range(problem.stages)):
        if stage % length == length - 1:
            gradient[stage] = forward[stage] + seconds[F, stage]
        else:
            hop = message[I, stage + 1] if rank[stage] != rank[stage + 1] else 0.0
            gradient[stage] = gradient[stage + 1] + seconds[I, stage + 1] + hop
    for stage in range(problem.stages):
        after[stage] = seconds[W, stage] + problem.tail_s[rank[stage]]
        if stage % length:
            hop = message[I, stage] if rank[stage] != rank[stage - 1] else 0.0
            after[stage] = max(after[stage], hop + seconds[I, stage - 1] + after[stage - 1])
    return Paths(forward, gradient, after)


def _of(problem: Problem, rank: int) -> Ints:
    return np.flatnonzero((problem.rank_of == rank) & (problem.counts > 0))


def _work(problem: Problem, way: Paths, rank: int) -> float:
    """A rank waits for its first forward, then works, then its optimizer runs."""
    return float(way.forward[_of(problem, rank)].min() + problem.work_s[rank] + problem.tail_s[rank])


def _warm_up(problem: Problem, way: Paths, rank: int) -> float:
    """Work and two idle times.

    Before its first gradient a rank can only do forwards, those it has room for. After its last one it can
    only do the weight gradients that it had room to put off.
    """
    stages, tail = _of(problem, rank), float(problem.tail_s[rank])
    take, room = _least(problem)[stages], float(problem.memory.limit[rank])
    counts, seconds = problem.counts[stages], problem.seconds[:, stages]
    ahead = _fill(counts, seconds[F], take, room)
    before = max(float(way.forward[stages].min()), float(way.gradient[stages].min()) - ahead)
    left = (1.0 - problem.memory.part[stages]) * take
    put_off = seconds[W].max() + _fill(counts, seconds[W], left, room - float(take.min()))
    after = max(0.0, float(way.after[stages].min()) - tail - put_off)
    return float(before + problem.work_s[rank] + after + tail)


def _fill(counts: Ints, seconds: Floats, take: Floats, room: float) -> float:
    """Most seconds of actions that fit `room`, where each holds `take`: at most `counts` of each, parts allowed."""
    if not seconds.any():
        return 0.0
    total, left = 0.0, room
    with np.errstate(over="ignore"):  # what holds nothing is worth most
        worth = seconds / np.maximum(take, 1e-300)
    for one in np.argsort(-worth):
        number = float(counts[one]) if take[one] <= 0 else min(float(counts[one]), max(0.0, left) / take[one])
        total += number * seconds[one]
        left -= number * take[one]
    least = float(take.min())
    whole = np.floor(room * FIT / least) * seconds.max() if least > 0 else np.inf
    return float(min(total, max(0.0, whole)))


def _stay(problem: Problem, way: Paths, rank: int) -> float:
    """Memory times time: what all microbatches hold, and what cannot be filled while a rank begins and ends."""
    stages = _of(problem, rank)
    take, part, seconds = _least(problem)[stages], problem.memory.part[stages], problem.seconds[:, stages]
    every = float((problem.counts[stages] * take).sum())
    limit = min(_reachable(float(problem.memory.limit[rank]), take, part), every)
    if limit <= 0:
        return 0.0
    stays = way.gradient[stages] - way.forward[stages] + seconds[I] + (1.0 - part) * seconds[W]
    area = float((problem.counts[stages] * take * stays).sum())
    given = np.concatenate([part * take, (1.0 - part) * take])
    lasting = np.concatenate([seconds[I], seconds[W]])[given > 0]
    up = _ramp(limit, float(take.max()), float(seconds[F].min()))
    down = _ramp(limit, float(given.max()), float(lasting.min()))
    # A ramp counts in full only in a span that is long enough for it.
    spans = [min((area + empty) / limit, lasts) for empty, lasts in (up, down, (up[0] + down[0], up[1] + down[1]))]
    return float(way.forward[stages].min() + problem.tail_s[rank] + max(area / limit, *spans))


def _messages(problem: Problem, way: Paths) -> float:
    """A channel waits for its first message, carries one after the other, and what the last one brings is done."""
    rank, length, seconds = problem.rank_of.tolist(), problem.placement.length, problem.seconds
    rest = way.gradient - way.forward + seconds[I] + way.after  # from the start of a forward on
    spans: dict[tuple[int, int, int], tuple[float, float, float]] = {}
    for stage in np.flatnonzero(problem.counts > 0).tolist():
        for kind, to, ends in ((F, stage + 1, length - 1), (I, stage - 1, 0)):
            if stage % length == ends or rank[stage] == rank[to]:
                continue
            sent = float(
                way.forward[stage] + seconds[F, stage] if kind == F else way.gradient[stage] + seconds[I, stage]
            )
            left = float(problem.latency_s[kind, stage] + (rest[to] if kind == F else seconds[I, to] + way.after[to]))
            key = (rank[stage], rank[to], kind)
            first, held, last = spans.get(key, (np.inf, 0.0, np.inf))
            held += float(problem.counts[stage] * problem.hold_s[kind, stage])
            spans[key] = (min(first, sent), held, min(last, left))
    return max((sum(span) for span in spans.values()), default=0.0)


def _least(problem: Problem) -> Floats:
    """The least that a microbatch holds on each stage."""
    if problem.recompute is None:
        return problem.memory.take
    return np.where(problem.recomputed.any(axis=1), problem.recompute.keep, 1.0) * problem.memory.take


def _reachable(limit: float, take: Floats, part: Floats) -> float:
    """The most that can be held within a limit, where all activations of the rank are alike."""
    alike = np.ptp(take) <= 1e-9 * take.max() and np.ptp(part) == 0.0 and part[0] in (0.0, 0.5, 1.0)
    if not alike or take[0] <= 0:
        return limit
    grain = float(take[0]) * (0.5 if part[0] == 0.5 else 1.0)
    return float(np.floor(limit * FIT / grain) * grain)


def _ramp(limit: float, step: float, seconds: float) -> tuple[float, float]:
    """Memory × seconds left empty while it fills by at most `step` in every `seconds`, and how long that takes."""
    steps = int(min(limit / step, 1e6))
    return seconds * (steps * limit - step * steps * (steps + 1) / 2), seconds * steps
