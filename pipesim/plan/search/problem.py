"""The compact problem that schedule search works on: placement, seconds, messages and memory of each stage.

Microbatches of one chain are alike, so at every stage each kind may take them in order: renaming microbatches
makes any order so without moving a single start. An order is therefore one of kinds and stages only.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from pipesim.costs.costs import Floats
from pipesim.errors import PipesimError
from pipesim.ir.atoms import Ints
from pipesim.ir.placement import Placement

F, I, W = range(3)  # noqa: E741 - rows of arrays by kind; I stands for a whole B where backwards are not split
FIT = 1.0 + 1e-9  # sums of activations may pass a limit by rounding


@dataclass(eq=False)
class LimitTooSmall(PipesimError):
    """A memory limit that no order can meet."""

    limit: str
    rank: int
    smallest: str

    def __str__(self) -> str:
        return (
            f"memory limit {self.limit}: rank {self.rank} cannot hold the activations of one microbatch; "
            f"the smallest limit that can be met is {self.smallest}"
        )


@dataclass(eq=False)
class NothingTakesTime(PipesimError):
    """Costs under which all orders are alike."""

    def __str__(self) -> str:
        return "nothing takes time, so all orders are alike: give at least one of F, I, W or B above 0 s"


@dataclass(frozen=True, eq=False)
class Memory:
    """What actions hold on their rank, in any unit that `limit` (ranks,) has too.

    take: (stages,) from the start of a forward; part: (stages,) of that given back at the end of the input
    gradient, the rest at the end of the weight gradient.
    """

    take: Floats
    part: Floats
    limit: Floats


@dataclass(frozen=True, eq=False)
class Recompute:
    """A part of each stage's microbatches keeps less and computes its forward again before its backward.

    share: (stages,) 0 … 1, spread evenly over the microbatches; keep: (stages,) part of the activation kept.
    While a backward runs, its whole activation is there; its weight gradient follows at once.
    """

    share: Floats
    keep: Floats


@dataclass(frozen=True, eq=False)
class Problem:
    """Stages, microbatches and costs.

    splits: backwards are I and W, not one B. seconds: (3, stages) of F, I (or B) and W.
    latency_s, hold_s: (2, stages) of the message that leaves a stage with an activation (row F) or a gradient
    (row I): a channel holds it for `hold_s`, then it is `latency_s` on its way.
    tail_s: (ranks,) after a rank's last action, such as its optimizer.
    """

    placement: Placement
    microbatches: int
    splits: bool
    seconds: Floats
    latency_s: Floats
    hold_s: Floats
    memory: Memory
    tail_s: Floats
    recompute: Recompute | None = None

    @property
    def ranks(self) -> int:
        return self.placement.ranks

    @property
    def stages(self) -> int:
        return self.placement.stages

    @property
    def kinds(self) -> int:
        """Kinds of actions: F, I and W, or F and B."""
        return 3 if self.splits else 2

    @cached_property
    def counts(self) -> Ints:
        """Microbatches that pass each stage; those of a bidirectional placement are dealt out in turn."""
        chains = self.placement.chains
        each = [len(range(chain, self.microbatches, chains)) for chain in range(chains)]
        return np.repeat(np.asarray(each, np.int64), self.placement.length)

    @property
    def actions(self) -> int:
        return int(self.counts.sum()) * self.kinds

    @cached_property
    def rank_of(self) -> Ints:
        """Rank of each stage."""
        return np.asarray(self.placement.ranks_of_stages, np.int64)

    @cached_property
    def recomputed(self) -> np.ndarray:
        """(stages, most microbatches of a chain): which actions are recomputed."""
        most = np.arange(int(self.counts.max()))
        share = np.zeros(self.stages) if self.recompute is None else self.recompute.share
        return np.asarray(np.floor((most + 1) * share[:, None] + 1e-9) > np.floor(most * share[:, None] + 1e-9))

    @cached_property
    def work_s(self) -> Floats:
        """Seconds of compute of each rank."""
        there = np.arange(self.recomputed.shape[1]) < self.counts[:, None]
        again = (self.recomputed & there).sum(axis=1) * self.seconds[F]
        each = self.seconds.sum(axis=0) * self.counts + again
        return np.bincount(self.rank_of, weights=each, minlength=self.ranks).astype(np.float64)

    @cached_property
    def period_s(self) -> float:
        """Seconds between microbatches if the busiest rank never waits."""
        return float(self.work_s.max()) / self.microbatches

    @cached_property
    def smallest_limit(self) -> Floats:
        """(ranks,): what a rank must hold at least, the activations of one microbatch on all of its stages."""
        kept = np.where(self.counts > 0, self.memory.take if self.recompute is None else self._kept(), 0.0)
        chains = kept.reshape(self.placement.chains, -1)
        ranks = self.rank_of.reshape(chains.shape)
        each = [np.bincount(rank, weights=take, minlength=self.ranks) for rank, take in zip(ranks, chains, strict=True)]
        whole: Floats = np.max(each, axis=0) + self.spare
        return whole

    @cached_property
    def spare(self) -> Floats:
        """(ranks,): room for what the backward of a recomputed microbatch brings back."""
        room = np.zeros(self.ranks)
        if self.recompute is not None:
            back = np.where(self.recomputed.any(axis=1), (1.0 - self.recompute.keep) * self.memory.take, 0.0)
            np.maximum.at(room, self.rank_of, back)
        return room

    def _kept(self) -> Floats:
        assert self.recompute is not None
        kept: Floats = np.where(self.recomputed.all(axis=1), self.recompute.keep, 1.0) * self.memory.take
        return kept

    def with_microbatches(self, microbatches: int) -> Problem:
        return replace(self, microbatches=microbatches)

    def with_limit(self, limit: Floats) -> Problem:
        return replace(self, memory=replace(self.memory, limit=limit))

    def with_recompute(self, recompute: Recompute | None) -> Problem:
        return replace(self, recompute=recompute)
