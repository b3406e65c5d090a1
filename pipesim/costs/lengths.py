"""Microbatches of different lengths: what each of them costs, from the costs of one of a given length."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from pipesim.costs.costs import Costs, Floats
from pipesim.costs.estimate import Estimate
from pipesim.errors import PipesimError
from pipesim.files import read_text
from pipesim.ir.action import Kind
from pipesim.ir.placement import Placement

_MOST_BYTES = 1 << 28
_LONGEST = 1e9


@dataclass(eq=False)
class BadLengths(PipesimError):
    """A file of lengths that cannot be read, or that is for other microbatches."""

    path: str
    reason: str

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}; expected a line a step, on it the tokens of each microbatch"


def read_lengths(path: Path, *, microbatches: int) -> Floats:
    """Tokens of each microbatch, (steps, microbatches). Raises BadLengths, CannotRead.

    A line is a step: its numbers parted by blanks or commas. A file with one number a line is one step.
    """
    lines = [
        line.split("#")[0].replace(",", " ").split() for line in read_text(path, at_most_bytes=_MOST_BYTES).splitlines()
    ]
    rows = [line for line in lines if line]
    if len(rows) == microbatches > 1 and all(len(row) == 1 for row in rows):
        rows = [[row[0] for row in rows]]
    if not rows:
        raise BadLengths(str(path), "no numbers in it")
    for number, row in enumerate(rows, 1):
        if len(row) != microbatches:
            raise BadLengths(str(path), f"step {number} has {len(row)} lengths for {microbatches} microbatches")
    try:
        lengths = np.asarray(rows, np.float64)
    except ValueError as error:
        raise BadLengths(str(path), str(error)) from None
    if not ((lengths > 0) & (lengths <= _LONGEST)).all():
        wrong = lengths[~((lengths > 0) & (lengths <= _LONGEST))][0]
        raise BadLengths(str(path), f"{wrong:g} is no length: more than 0, at most {_LONGEST:g}")
    return lengths


def with_lengths(
    costs: Costs, lengths: Floats, *, usual: float, attention: Mapping[Kind, Floats] | None = None
) -> Costs:
    """Costs in which microbatch i has lengths[i] tokens, from costs of microbatches of `usual` tokens.

    Time and message grow with the length, the attention part of the time with its square.
    attention: that part, 0 … 1, by kind and stage; None for none.
    """
    ratio = (lengths / usual)[None, :, None]

    def grown(kind: Kind, seconds: Floats) -> Floats:
        part = np.zeros(costs.stages) if attention is None or kind not in attention else attention[kind]
        share = part[:, None, None]
        return _whole(seconds) * ((1 - share) * ratio + share * ratio**2)

    return replace(
        costs,
        seconds={kind: grown(kind, seconds) for kind, seconds in costs.seconds.items()},
        pair_s=None if costs.pair_s is None else _whole(costs.pair_s) * ratio,
        message_bytes={flow: _whole(size) * ratio for flow, size in costs.message_bytes.items()},
    )


def attention_part(estimate: Estimate, placement: Placement) -> dict[Kind, Floats]:
    """The part of each stage's time that attention between tokens takes, by kind; each (stages,)."""
    found = {}
    for kind, names in _TIMES.items():
        whole = np.array([sum(getattr(part, name) for part in stage for name in names) for stage in estimate.parts])
        mine = np.array(
            [
                sum(getattr(part, name) for part in stage if part.group == "attention" for name in names)
                for stage in estimate.parts
            ]
        )
        part = np.divide(mine, whole, out=np.zeros_like(whole), where=whole > 0)
        found[kind] = np.tile(part, placement.chains)
    return found


_TIMES = {
    Kind.F: ("forward_s",),
    Kind.I: ("input_s",),
    Kind.W: ("weight_s",),
    Kind.B: ("input_s", "weight_s"),
}


def _whole(values: Floats) -> Floats:
    return values.reshape(values.shape + (1,) * (3 - values.ndim))
