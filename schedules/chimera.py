"""Chimera: replicas of the model down and up the ranks (Li, Hoefler 2021, arXiv 2107.06925)."""

from __future__ import annotations

import numpy as np

from pipesim.ir.placement import Placement
from pipesim.ir.schedule import Schedule
from pipesim.schedules.constraints import Unsuitable, require_counts, require_even_ranks
from pipesim.schedules.slots import there_and_back


def chimera(*, ranks: int, microbatches: int, pipes: int = 2) -> Schedule:
    """Send every second microbatch up the ranks, so that each direction works in the other one's bubbles.

    A microbatch enters either end at every second slot and turns around at the other end. As p is even, a
    rank sees down and up microbatches in slots of different parity, so they never meet, and the bubble is
    half that of 1F1B, for two copies of the weights. Units of p microbatches follow 2p slots apart, which
    is exactly their work; a last unit that is not full leaves slots empty (section 3.5 of the paper,
    "direct concatenation").
    pipes: replicas, half of them down and half up; those of one direction start p/f ranks apart.
    Raises Unsuitable for an odd number of ranks, or where p/2 is no multiple of f = pipes/2.
    """
    require_counts("chimera", ranks=ranks, microbatches=microbatches, pipes=pipes)
    require_even_ranks("chimera", ranks)
    _require_even_split(ranks, pipes)
    microbatch, place = (axis.ravel() for axis in np.mgrid[:microbatches, :ranks])
    unit, inside = np.divmod(microbatch, ranks)
    enters = 2 * ranks * unit + inside // pipes * 2
    placement = replicas(ranks, pipes)
    rows = there_and_back(
        placement, place + ranks * (inside % pipes), microbatch, enters + place, enters + 2 * ranks - 1 - place
    )
    return Schedule.of_rows("chimera", placement, microbatches, rows)


def replicas(ranks: int, pipes: int) -> Placement:
    """First those down the ranks, each starting 2p/pipes ranks after the one before; then their mirrors."""
    step = 2 * ranks // pipes
    down = [(stage + start) % ranks for start in range(0, ranks, step) for stage in range(ranks)]
    return Placement((*down, *(ranks - 1 - rank for rank in down)), chains=pipes)


def _require_even_split(ranks: int, pipes: int) -> None:
    works = [count for count in range(2, ranks + 1, 2) if ranks % count == 0]
    if pipes not in works:
        raise Unsuitable(
            "chimera",
            f"{pipes} pipes on {ranks} ranks",
            "half of the pipes must divide half of the ranks",
            " or ".join(map(str, sorted(works, key=lambda count: abs(count - pipes))[:3])),
        )
