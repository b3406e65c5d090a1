"""Activations a rank holds: counted along its own order, so no clock is needed."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from pipesim.ir.action import Kind
from pipesim.ir.schedule import Schedule

Release = Literal["at_weight", "half", "at_input"]
RELEASE_AT_INPUT: dict[Release, float] = {"at_weight": 0.0, "half": 0.5, "at_input": 1.0}


def activation_changes(schedule: Schedule, release: Release = "at_weight") -> NDArray[np.float64]:
    """Change of the activations held by its rank at each action, in microbatches.

    A forward (or a load) takes, a backward (or an eviction) gives back; of a split backward the input
    gradient gives back the part named by `release` and the weight gradient the rest. One microbatch
    through all of a rank's stages of one chain counts 1.
    """
    at_input = RELEASE_AT_INPUT[release]
    change = np.zeros(len(Kind))
    change[[Kind.F, Kind.L]] = 1.0
    change[[Kind.B, Kind.X]] = -1.0
    change[Kind.I], change[Kind.W] = -at_input, at_input - 1.0
    return change[schedule.atoms.kind] * (schedule.placement.share / schedule.slices)


def peak_activations(schedule: Schedule, release: Release = "at_weight") -> NDArray[np.float64]:
    """Most activations each rank holds at once, in microbatches; shape (ranks,).

    A forward-only schedule keeps nothing after its forward: its peak is one stage's share. In a fused
    pair the forward takes before the backward gives back.
    """
    if not schedule.trains:
        return np.full(schedule.ranks, schedule.placement.share / schedule.slices)
    changes = activation_changes(schedule, release)
    peaks = [
        np.max(np.cumsum(changes[start:end]), initial=0.0)
        for start, end in zip(schedule.offsets[:-1], schedule.offsets[1:], strict=True)
    ]
    return np.asarray(peaks)
