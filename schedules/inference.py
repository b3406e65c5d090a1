"""Inference: a forward only, or decoding token by token (as in Pope et al. 2022, arXiv 2211.05102, section 3)."""

from __future__ import annotations

import numpy as np

from pipesim.ir.action import Kind
from pipesim.ir.atoms import Atoms
from pipesim.ir.placement import linear
from pipesim.ir.schedule import Schedule
from pipesim.schedules.constraints import require_counts


def forward_only(*, ranks: int, microbatches: int) -> Schedule:
    """Microbatches through the pipeline one after the other, nothing kept for a backward.

    This is prefill, scoring and evaluation: only the fill of the pipeline is lost.
    """
    require_counts("forward-only", ranks=ranks, microbatches=microbatches)
    order = np.arange(microbatches)
    rows = [Atoms.of(np.full(microbatches, Kind.F), rank, order) for rank in range(ranks)]
    return Schedule.of_rows("forward-only", linear(ranks), microbatches, rows)


def decode(*, ranks: int, microbatches: int, slices: int = 16) -> Schedule:
    """Groups of requests take turns, a token at a time.

    A group's next token enters the first rank when its last one has left the last rank, so one group
    keeps one rank busy: it takes as many groups as ranks to keep all of them so, and with more the ranks
    never wait.
    microbatches: groups. slices: tokens to generate for each.
    """
    require_counts("decode", ranks=ranks, microbatches=microbatches, slices=slices)
    token, group = np.divmod(np.arange(microbatches * slices), microbatches)
    rows = [Atoms.of(np.full(len(group), Kind.F), rank, group, token) for rank in range(ranks)]
    return Schedule.of_rows("decode", linear(ranks), microbatches, rows, slices=slices, slicing="autoregressive")
