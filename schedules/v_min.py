"""V-Min (Qi et al. 2024, arXiv 2405.15362, section 3)."""

from __future__ import annotations

from pipesim.ir.schedule import Schedule
from pipesim.schedules.building_block import Block, from_block
from pipesim.schedules.constraints import require_counts


def v_min(*, ranks: int, microbatches: int) -> Schedule:
    """The V shape with about a third of the activations of 1F1B, the least there can be, for equal times.

    Every pass directly follows the one before, so activations live no longer than they must. There is nothing
    to give either: where times differ, or messages take time, every rank waits in every period. `v-auto` builds
    for such times.
    """
    require_counts("v-min", ranks=ranks, microbatches=microbatches)
    return from_block("v-min", ranks, microbatches, _block)


def _block(ranks: int) -> Block:
    turn = 2 if ranks % 3 == 0 else 0  # slots that p divisible by 3 needs for the passes of a rank not to meet
    return [(rank, 2 * ranks - rank - 1, 2 * ranks + turn + rank, 4 * ranks + turn - rank - 1) for rank in range(ranks)]
