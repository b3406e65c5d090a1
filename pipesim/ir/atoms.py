"""Actions as columns: what a million actions cost little in."""

from __future__ import annotations

import builtins
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from pipesim.ir.action import Action, Kind, action_text

Ints = NDArray[np.integer]


@dataclass(frozen=True, eq=False)
class Atoms:
    """Actions as columns. `fused[i]` says that action i runs as one pair with action i-1."""

    kind: Ints
    stage: Ints
    microbatch: Ints
    slice: Ints
    fused: NDArray[np.bool_]

    @classmethod
    def of(
        cls,
        kind: Sequence[int] | Ints,
        stage: Sequence[int] | Ints | int,
        microbatch: Sequence[int] | Ints,
        slice: Sequence[int] | Ints | int = 0,
        fused: Sequence[bool] | NDArray[np.bool_] | bool = False,
    ) -> Atoms:
        """Columns from anything array-like; a single number stands for a whole column."""
        kinds = np.asarray(kind, np.int8)
        shape = kinds.shape
        return cls(
            kinds,
            np.broadcast_to(np.asarray(stage, np.int32), shape),
            np.asarray(microbatch, np.int32),
            np.broadcast_to(np.asarray(slice, np.int32), shape),
            np.broadcast_to(np.asarray(fused, np.bool_), shape),
        )

    @classmethod
    def of_groups(cls, groups: Iterable[Sequence[Action]]) -> Atoms:
        """Columns from groups of actions: one action, or a fused pair."""
        flat = [(*_numbers(action), place > 0) for group in groups for place, action in enumerate(group)]
        kind, stage, microbatch, slice_, fused = zip(*flat, strict=True) if flat else ((),) * 5
        return cls.of(
            kind,
            np.asarray(stage, np.int32),
            microbatch,
            np.asarray(slice_, np.int32),
            np.asarray(fused, np.bool_),
        )

    def __len__(self) -> int:
        return len(self.kind)

    def take(self, index: Ints | builtins.slice) -> Atoms:
        """The same columns at these places."""
        return Atoms(*(getattr(self, column.name)[index] for column in fields(self)))

    def action(self, index: int) -> Action:
        """One of them as an object."""
        return Action(
            Kind(int(self.kind[index])),
            int(self.stage[index]),
            int(self.microbatch[index]),
            int(self.slice[index]),
        )

    def texts(self) -> list[str]:
        """One text a group: `2F0`, and a fused pair as `2F3&5B1`."""
        found: list[str] = []
        columns = (self.kind, self.stage, self.microbatch, self.slice, self.fused)
        for kind, stage, microbatch, slice_, fused in zip(*(c.tolist() for c in columns), strict=True):
            text = action_text(kind, stage, microbatch, slice_)
            if fused:
                found[-1] += "&" + text
            else:
                found.append(text)
        return found


def concatenate(rows: Sequence[Atoms]) -> Atoms:
    """All rows, one after the other."""
    return Atoms(*(np.concatenate([getattr(row, column.name) for row in rows]) for column in fields(Atoms)))


def _numbers(action: Action) -> tuple[int, int, int, int]:
    return (action.kind, action.stage, action.microbatch, action.slice)
