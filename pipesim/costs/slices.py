"""Where to cut a sequence so that every slice costs the same."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from pipesim.errors import PipesimError


@dataclass(eq=False)
class TooFewTokens(PipesimError):
    """A sequence that cannot be cut into so many slices."""

    tokens: int
    slices: int

    def __str__(self) -> str:
        return f"{self.tokens} tokens cannot be cut into {self.slices} slices: give 1 to {self.tokens} slices"


def equal_work_lengths(tokens: int, slices: int, *, linear: float, attention: float) -> tuple[int, ...]:
    """Tokens of each slice such that all take the same time, as near as whole tokens allow.

    A token costs `linear` seconds, and `attention` seconds for each token before it (causal attention), so
    the first x tokens cost linear·x + attention·x²/2, and cut k is where that is k/s of the whole (the
    computation-wise partition of Seq1F1B, arXiv 2406.03488). Raises TooFewTokens.
    """
    if not 1 <= slices <= tokens:
        raise TooFewTokens(tokens, slices)
    turn = np.arange(1, slices)
    if linear == attention == 0:
        linear = 1.0
    until = turn / slices * (linear * tokens + attention * tokens**2 / 2)
    cuts = np.rint(2 * until / (linear + np.sqrt(linear**2 + 2 * attention * until))).astype(np.int64)
    cuts = np.maximum.accumulate(np.maximum(cuts, turn) - turn) + turn  # every slice has a token
    cuts = np.minimum(cuts, tokens - slices + turn)
    return tuple(end - start for start, end in pairwise([0, *cuts.tolist(), tokens]))
