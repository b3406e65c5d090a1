"""Where stages sit: stage -> rank, and which stages hold the same weights."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property


@dataclass(frozen=True)
class Placement:
    """Rank of each stage.

    The model is a chain of `length` stages. A bidirectional schedule holds the whole model more than
    once (`chains` = 2): stages 0 … length-1 are one replica, length … 2·length-1 the next, stage `s`
    and stage `s + length` have the same weights, and a microbatch runs through one chain only.
    """

    ranks_of_stages: tuple[int, ...]
    chains: int = 1

    @property
    def stages(self) -> int:
        """Number of stages over all chains."""
        return len(self.ranks_of_stages)

    @cached_property
    def ranks(self) -> int:
        """Number of ranks."""
        return max(self.ranks_of_stages) + 1

    @property
    def length(self) -> int:
        """Number of stages that one microbatch passes."""
        return self.stages // self.chains

    @property
    def share(self) -> float:
        """Part of a rank's whole share of one microbatch that one stage is: 1/v with v stages a rank."""
        return self.ranks / self.length

    def is_first(self, stage: int) -> bool:
        return stage % self.length == 0

    def is_last(self, stage: int) -> bool:
        return stage % self.length == self.length - 1

    def stages_of(self, rank: int) -> tuple[int, ...]:
        """Stages on a rank, in model order."""
        return tuple(stage for stage, holder in enumerate(self.ranks_of_stages) if holder == rank)

    def replicas_of(self, stage: int) -> tuple[int, ...]:
        """All stages with the weights of `stage`, itself among them."""
        return tuple(stage % self.length + chain * self.length for chain in range(self.chains))

    def kind(self) -> str:
        """A word for people: linear, looped, vee, wave, bidirectional or custom."""
        if self.chains > 1:
            return "bidirectional"
        virtual = self.stages // self.ranks
        for word, made in (
            ("linear", looped(self.ranks, 1)),
            ("looped", looped(self.ranks, virtual)),
            ("vee", wave(self.ranks, 2)),
            ("wave", wave(self.ranks, virtual)),
        ):
            if made == self:
                return word
        return "custom"


def linear(ranks: int) -> Placement:
    """Stage s on rank s."""
    return Placement(tuple(range(ranks)))


def looped(ranks: int, virtual: int) -> Placement:
    """Stage s on rank s mod p (interleaved; Narayanan et al. 2104.04473, section 2.2)."""
    return Placement(tuple(range(ranks)) * virtual)


def wave(ranks: int, virtual: int) -> Placement:
    """Down the ranks, up again, and so on; with 2 stages a rank this is the V of the V-schedules."""
    down = tuple(range(ranks))
    return Placement(sum((down[::-1] if turn % 2 else down for turn in range(virtual)), ()))


def vee(ranks: int) -> Placement:
    """Stage s on rank s going down and on rank 2p-1-s coming back (Qi et al. 2401.10241, section 6)."""
    return wave(ranks, 2)


def bidirectional(ranks: int) -> Placement:
    """One replica down the ranks and one up (Chimera, DualPipe): stage s on rank s, its twin on p-1-s."""
    down = tuple(range(ranks))
    return Placement(down + down[::-1], chains=2)
