"""Orders written down as a timetable: every action has a unit-time slot, and no rank has two in one."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from pipesim.ir.action import Kind
from pipesim.ir.atoms import Atoms, Ints
from pipesim.ir.placement import Placement


def there_and_back(
    placement: Placement, stage: Ints, microbatch: Ints, forward_slot: Ints, backward_slot: Ints
) -> list[Atoms]:
    """A row a rank: for each (stage, microbatch) a forward and a full backward, in the order of their slots."""
    kind = np.repeat([Kind.F, Kind.B], len(stage))
    stages, slot = np.tile(stage, 2), np.concatenate([forward_slot, backward_slot])
    rank = np.asarray(placement.ranks_of_stages)[stages]
    order = np.lexsort((slot, rank))
    every = Atoms.of(kind, stages, np.tile(microbatch, 2)).take(order)
    cuts = [0, *np.cumsum(np.bincount(rank, minlength=placement.ranks)).tolist()]
    return [every.take(slice(start, end)) for start, end in pairwise(cuts)]
