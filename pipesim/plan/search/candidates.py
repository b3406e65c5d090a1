"""Orders that a search has found, and the best few of them."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from pipesim.ir.atoms import Ints
from pipesim.plan.search.arrays import Layout
from pipesim.plan.search.walking import fits, time_order

_SAME = 1e-9


@dataclass(frozen=True, eq=False)
class Window:
    """By rank the places of the order from begins (in) to ends (out) that repeat every `microbatches` (of a chain)."""

    begins: Ints
    ends: Ints
    microbatches: int

    def segments(self, layout: Layout) -> Ints:
        """By place of the order: 0 before the window, 1 in it, 2 after it."""
        place, counts = np.arange(layout.offsets[-1]), np.diff(layout.offsets)
        begun = place >= np.repeat(self.begins, counts)
        return begun.astype(np.int64) + (place >= np.repeat(self.ends, counts))


@dataclass(frozen=True, eq=False)
class Candidate:
    """An order of action numbers, rank after rank, when it ends with its tail, and where it comes from.

    window: the part of it that may be repeated for more microbatches, if that is known already.
    """

    end_s: float
    order: Ints
    origin: str
    window: Window | None = None


def candidate(layout: Layout, order: Ints, origin: str) -> Candidate | None:
    """An order with its end; None where it cannot be run or does not fit the limit."""
    if not fits(layout.actions, order):
        return None
    end_s = float(time_order(layout.actions, order)[0])
    return Candidate(end_s, order, origin) if np.isfinite(end_s) else None


@dataclass
class Pool:
    """The best candidates, each with another end: of several that end alike the first stays."""

    most: int = 8
    kept: list[Candidate] = field(default_factory=list)

    def offer(self, one: Candidate | None) -> bool:
        """Take a candidate in; whether it is among the best."""
        if one is None or any(abs(one.end_s - other.end_s) <= _SAME * one.end_s for other in self.kept):
            return False
        self.kept = sorted([*self.kept, one], key=lambda each: each.end_s)[: self.most]
        return one in self.kept

    @property
    def best(self) -> Candidate:
        return self.kept[0]
