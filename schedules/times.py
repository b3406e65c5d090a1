"""The times that cost-aware families build for, and the memory they may use."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from numbers import Real

from pipesim.ir.placement import Placement
from pipesim.schedules.constraints import Unsuitable

Seconds = float | Sequence[float]  # of a rank's whole share of a microbatch; a list: of each stage, as it is

_SHORTEST, _LONGEST = 1e-5, 1e5  # units an action takes at least, if any, and a message at most


@dataclass(frozen=True)
class Times:
    """Per stage the time of a forward, an input gradient and a weight gradient, and that of a message.

    The unit is what the busiest rank computes for one microbatch, so that decisions do not depend on units. What is
    far shorter, or a message far longer, is taken for as much as sums of times still show: lost in rounding, it would
    let an action begin before what it needs.
    """

    forward: tuple[float, ...]
    input_grad: tuple[float, ...]
    weight_grad: tuple[float, ...]
    latency: float


def stage_times(
    family: str, placement: Placement, forward: Seconds, input_grad: Seconds, weight_grad: Seconds, latency: float
) -> Times:
    """Times per stage. Raises Unsuitable for a list of another length and for what is no time."""
    given = {"forward": forward, "input_grad": input_grad, "weight_grad": weight_grad}
    columns = [_per_stage(family, word, value, placement) for word, value in given.items()]
    if not _is_number(latency) or not (math.isfinite(latency) and latency >= 0):
        raise Unsuitable(family, f"latency {latency}", "it is a time", "0 or more seconds")
    work = [0.0] * placement.ranks
    for stage, rank in enumerate(placement.ranks_of_stages):
        work[rank] += sum(column[stage] for column in columns)
    unit = max(work)
    forwards, inputs, weights = (tuple(_units(value, unit) for value in column) for column in columns)
    return Times(forwards, inputs, weights, min(latency / unit, _LONGEST))


def _units(seconds: float, unit: float) -> float:
    return max(seconds / unit, _SHORTEST) if seconds else 0.0


def _per_stage(family: str, word: str, value: Seconds, placement: Placement) -> list[float]:
    stages, may_be_none = placement.stages, word == "weight_grad"
    if isinstance(value, Real):
        column = [float(value) * placement.share] * stages
    else:
        column = list(value) if isinstance(value, Iterable) else [value]
    if not all(_is_number(one) and math.isfinite(one) and (one > 0 or (one == 0 and may_be_none)) for one in column):
        least = "0 or more" if may_be_none else "more than 0"
        raise Unsuitable(family, f"{word} {value}", "each is a time", f"{least} seconds")
    if len(column) != stages:
        raise Unsuitable(family, f"{len(column)} values of {word}", f"it has {stages} stages", f"{stages} values")
    return column


def _is_number(value: object) -> bool:
    return isinstance(value, Real)


@dataclass(frozen=True)
class Memory:
    """How many microbatches of activations a rank may hold, and how much of one an input gradient frees."""

    limit: float
    input_release: float = 0.0


def memory_of(family: str, limit: float, input_release: float) -> Memory:
    """Raises Unsuitable for a limit under one microbatch and a part that is none."""
    if not (_is_number(limit) and limit >= 1):
        raise Unsuitable(family, f"memory_limit {limit}", "a rank must hold a microbatch", "1 or more")
    if not (_is_number(input_release) and 0 <= input_release <= 1):
        raise Unsuitable(
            family,
            f"input_release {input_release}",
            "it is the part of an activation that its input gradient frees",
            "0 (all is held until the weight gradient) to 1",
        )
    return Memory(limit, input_release)
