"""A problem as flat arrays for compiled code.

An action's number is (kind · stages + stage) · most + its place among the microbatches of its chain.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from pipesim.costs.costs import Floats
from pipesim.ir.atoms import Ints
from pipesim.plan.search.problem import F, I, Problem, W

NONE = -1  # inside compiled code only

Number = TypeVar("Number", bound=np.generic)


class Stages(NamedTuple):
    """What list scheduling reads; arrays by stage unless said otherwise.

    at: (ranks + 1,) into `stages`, the stages by rank in the order microbatches reach them; place: of a stage
    among those of its rank. seconds: (3, stages, most). latency, hold, channel: (2, stages) of messages, NONE
    for the channel where none is sent. take: (stages, most); taken: its sums so far, (stages, most + 1).
    reserve: by place in `stages`, room for one microbatch of that stage and of each deeper one of its rank.
    at_once: (stages, most) whether a weight gradient must follow its input gradient.
    """

    length: int
    kinds: int
    counts: Ints
    rank_of: Ints
    at: Ints
    stages: Ints
    place: Ints
    seconds: Floats
    latency: Floats
    hold: Floats
    channel: Ints
    channels: int
    take: Floats
    taken: Floats
    part: Floats
    reserve: Floats
    limit: Floats
    tail: Floats
    at_once: NDArray[np.bool_]


class Actions(NamedTuple):
    """What walks over given orders read; arrays by action number, except offsets, limit, tail and outgoing by rank.

    remote: the action whose message it needs; local: the one of a neighbouring stage on its own rank that it
    needs; own: the one of its own stage that it needs; NONE for none. change: what it adds to its rank's memory.
    kind_stage: its number without its microbatch. outgoing: channels of the rank that a message holds for a time.
    """

    offsets: Ints
    remote: Ints
    local: Ints
    own: Ints
    seconds: Floats
    channel: Ints
    channels: int
    hold: Floats
    latency: Floats
    change: Floats
    kind_stage: Ints
    at_once: NDArray[np.bool_]
    limit: Floats
    tail: Floats
    outgoing: Ints


@dataclass(frozen=True, eq=False)
class Layout:
    """The arrays of a problem."""

    problem: Problem

    @property
    def shape(self) -> tuple[int, int, int]:
        return (3, self.problem.stages, int(self.problem.counts.max()))

    @cached_property
    def offsets(self) -> Ints:
        """(ranks + 1,): where each rank's order begins."""
        problem = self.problem
        each = np.bincount(problem.rank_of, weights=problem.counts * problem.kinds, minlength=problem.ranks)
        return np.concatenate([[0], np.cumsum(each.astype(np.int64))])

    @cached_property
    def numbers(self) -> list[Ints]:
        """Per rank the numbers of its actions."""
        problem, (_, _, most) = self.problem, self.shape
        every = np.arange(np.prod(self.shape)).reshape(self.shape)[: problem.kinds]
        there = np.arange(most) < problem.counts[:, None]
        mine = [(problem.rank_of == rank)[:, None] & there for rank in range(problem.ranks)]
        return [every[:, mask].ravel() for mask in mine]

    @cached_property
    def along(self) -> Ints:
        """By action, how far along its way a microbatch is: down the stages, up them, and weight gradients last."""
        length = self.problem.placement.length
        depth = np.arange(self.problem.stages) % length
        way = np.stack([depth, 2 * length - depth, np.full(self.problem.stages, 3 * length)])
        return np.broadcast_to(way[:, :, None], self.shape).ravel()

    @cached_property
    def stages(self) -> Stages:
        problem = self.problem
        length, stages = problem.placement.length, np.arange(problem.stages)
        order = np.lexsort((stages, stages % length, problem.rank_of))
        at = np.concatenate([[0], np.cumsum(np.bincount(problem.rank_of, minlength=problem.ranks))])
        place = np.empty(problem.stages, np.int64)
        place[order] = stages - at[problem.rank_of[order]]
        channel, channels = _channels(problem)
        take = self._take
        return Stages(
            length, problem.kinds, problem.counts, problem.rank_of, at, order, place, self._seconds,
            problem.latency_s, problem.hold_s, channel, channels, take,
            np.concatenate([np.zeros((problem.stages, 1)), np.cumsum(take, axis=1)], axis=1),
            self._part, _reserve(take.max(axis=1), at, order), self._limit, problem.tail_s, problem.recomputed,
        )  # fmt: skip

    @cached_property
    def actions(self) -> Actions:
        problem, shape = self.problem, self.shape
        length, stage = problem.placement.length, np.arange(problem.stages)
        number = np.arange(np.prod(shape)).reshape(shape)
        remote, local, own = (np.full(shape, NONE) for _ in range(3))
        own[I], own[W] = number[F], number[I]
        crosses = np.zeros((2, problem.stages), np.bool_)
        for kind, here, before in (
            (F, stage[stage % length > 0], stage[stage % length > 0] - 1),
            (I, stage[stage % length < length - 1], stage[stage % length < length - 1] + 1),
        ):
            far = problem.rank_of[here] != problem.rank_of[before]
            remote[kind, here[far]] = number[kind, before[far]]
            local[kind, here[~far]] = number[kind, before[~far]]
            crosses[kind, before[far]] = True
        channel, channels = self.stages.channel, self.stages.channels
        part = self._part[:, None]
        change = np.stack([self._take, -part * self._take, -(1.0 - part) * self._take])
        return Actions(
            self.offsets, remote.ravel(), local.ravel(), own.ravel(), self._seconds.ravel(),
            _by_action(np.where(crosses, channel, NONE), shape, NONE), channels,
            _by_action(problem.hold_s, shape, 0.0), _by_action(problem.latency_s, shape, 0.0),
            change.ravel(), np.repeat(np.arange(3 * problem.stages), shape[2]),
            np.repeat(problem.recomputed[None] & problem.splits, 3, axis=0).ravel(), self._limit, problem.tail_s,
            _outgoing(problem, channel),
        )  # fmt: skip

    @cached_property
    def _seconds(self) -> Floats:
        problem = self.problem
        seconds = np.broadcast_to(problem.seconds[:, :, None], self.shape).copy()
        seconds[I] += problem.seconds[F][:, None] * problem.recomputed
        return seconds

    @cached_property
    def _take(self) -> Floats:
        problem = self.problem
        keep = np.ones(problem.stages) if problem.recompute is None else problem.recompute.keep
        take: Floats = problem.memory.take[:, None] * np.where(problem.recomputed, keep[:, None], 1.0)
        return np.ascontiguousarray(take)

    @cached_property
    def _part(self) -> Floats:
        return self.problem.memory.part if self.problem.splits else np.ones(self.problem.stages)

    @cached_property
    def _limit(self) -> Floats:
        limit: Floats = self.problem.memory.limit - self.problem.spare
        return limit


def _channels(problem: Problem) -> tuple[Ints, int]:
    """Channel of the messages of each flow that leave each stage: one for each directed pair of ranks and flow."""
    length, rank = problem.placement.length, problem.rank_of.tolist()
    channel = np.full((2, problem.stages), NONE, np.int64)
    known: dict[tuple[int, int, int], int] = {}
    for stage in range(problem.stages):
        for kind, target, ends in ((F, stage + 1, length - 1), (I, stage - 1, 0)):
            if stage % length != ends and rank[stage] != rank[target]:
                channel[kind, stage] = known.setdefault((rank[stage], rank[target], kind), len(known))
    return channel, len(known)


def _outgoing(problem: Problem, channel: Ints) -> Ints:
    """By rank, how many channels its messages hold for a time."""
    found = {
        (int(problem.rank_of[stage]), int(channel[kind, stage]))
        for kind, stage in zip(*np.nonzero((channel != NONE) & (problem.hold_s > 0)), strict=True)
    }
    return np.bincount([rank for rank, _ in found], minlength=problem.ranks).astype(np.int64)


def _reserve(most: Floats, at: Ints, order: Ints) -> Floats:
    need = most[order]
    parts = [np.cumsum(need[begin:end][::-1])[::-1] for begin, end in pairwise(at.tolist())]
    return np.concatenate(parts)


def _by_action(values: NDArray[Number], shape: tuple[int, int, int], nothing: float) -> NDArray[Number]:
    """From (2, stages) of F and I to every action."""
    full = np.full(shape, nothing, values.dtype)
    full[:2] = values[:, :, None]
    return full.ravel()
