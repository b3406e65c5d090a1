"""A rank's order from the orders of its forwards and of its backwards."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pipesim.ir.action import Kind
from pipesim.ir.atoms import Atoms, Ints


@dataclass(frozen=True, eq=False)
class Passes:
    """Stage and microbatch of each forward (or each backward) of a rank, in order."""

    stage: Ints
    microbatch: Ints

    def __len__(self) -> int:
        return len(self.microbatch)


def each_microbatch(stage: int, microbatches: int) -> Passes:
    """All microbatches through one stage, in order."""
    return Passes(np.full(microbatches, stage), np.arange(microbatches))


def weave(forwards: Passes, backwards: Passes, warmup: int, weight_delay: int | None = None) -> Atoms:
    """`warmup` forwards, then a forward and a backward in turn, then the backwards that are left.

    weight_delay: None for whole backwards; else each is an input gradient, and the weight gradient of the
        n-th follows the input gradient of the n-th after `weight_delay` others.
    """
    turn = np.arange(len(forwards))
    if weight_delay is None:
        return in_order((Kind.F, forwards, 2 * turn), (Kind.B, backwards, 2 * (turn + warmup) + 1))
    return in_order(
        (Kind.F, forwards, 3 * turn),
        (Kind.I, backwards, 3 * (turn + warmup) + 1),
        (Kind.W, backwards, 3 * (turn + warmup + weight_delay) + 2),
    )


def in_order(*parts: tuple[Kind, Passes, Ints]) -> Atoms:
    """All actions of (kind, passes, keys), sorted by keys, which are unique."""
    order = np.argsort(np.concatenate([key for _, _, key in parts]), kind="stable")
    return Atoms.of(
        np.repeat([kind for kind, _, _ in parts], [len(passes) for _, passes, _ in parts])[order],
        np.concatenate([passes.stage for _, passes, _ in parts])[order],
        np.concatenate([passes.microbatch for _, passes, _ in parts])[order],
    )
