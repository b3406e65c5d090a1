"""V-Half (Qi et al. 2024, arXiv 2405.15362, section 3)."""

from __future__ import annotations

from pipesim.ir.schedule import Schedule
from pipesim.schedules.building_block import Block, from_block
from pipesim.schedules.constraints import require_counts


def v_half(*, ranks: int, microbatches: int) -> Schedule:
    """The V shape with about half the activations of 1F1B, and about half its bubble, for equal times.

    Going down, passes are two slots apart from rank to rank, coming up one. So rank 0's first stage keeps an
    activation for about half the time that it would at the memory of ZB-V, and each other rank as much: its
    stages are nearer to the turns of the V. Built for F = I = W; `v-auto` builds for other times.
    """
    require_counts("v-half", ranks=ranks, microbatches=microbatches)
    return from_block("v-half", ranks, microbatches, _block)


def _block(ranks: int) -> Block:
    turn = 3 if ranks % 2 == 0 else 0  # slots that even p needs for the passes of a rank not to meet
    return [
        (2 * rank, 3 * ranks - rank - 2, 3 * ranks + turn + 2 * rank - 1, 6 * ranks + turn - rank - 2)
        for rank in range(ranks)
    ]
