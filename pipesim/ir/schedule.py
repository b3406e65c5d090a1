"""A schedule: which rank does what, in which order. Immutable data, stored as arrays."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from importlib import import_module
from typing import Any

import numpy as np

from pipesim.ir.action import Action, Kind, parse_group
from pipesim.ir.atoms import Atoms, Ints, concatenate
from pipesim.ir.needs import Dependencies, Shape, Slicing, dependencies
from pipesim.ir.placement import Placement


@dataclass(frozen=True, eq=False)
class Schedule:
    """Per rank the ordered compute actions.

    slices: sequence slices a microbatch is cut into (1: none).
    slicing: what slice k waits for. `causal`: its stage's slice k-1 forward (keys and values) and k+1
        backward (their gradients). `autoregressive`: slice k is token k, which enters the first stage
        when token k-1 has left the last.
    update_every: None for one optimizer step after all microbatches (synchronous); n for a step of a
        stage after every n of its backwards (PipeDream: 1).
    refuge: where `X` moves an activation, per rank: another rank, or None for host memory.
    """

    name: str
    placement: Placement
    microbatches: int
    atoms: Atoms
    offsets: Ints  # (ranks + 1,): rank r's actions are offsets[r] … offsets[r+1]
    slices: int = 1
    slicing: Slicing = "causal"
    update_every: int | None = None
    refuge: tuple[int | None, ...] = ()

    @classmethod
    def of_rows(
        cls, name: str, placement: Placement, microbatches: int, rows: Sequence[Atoms], **more: Any
    ) -> Schedule:
        """One `Atoms` a rank."""
        offsets = np.cumsum([0, *map(len, rows)])
        return cls(name, placement, microbatches, concatenate(rows), offsets, **more)

    @classmethod
    def of_texts(
        cls, name: str, placement: Placement, microbatches: int, orders: Sequence[Iterable[str]], **more: Any
    ) -> Schedule:
        """Per rank texts such as `2F0` or `2F3&5B1`. Raises MalformedAction."""
        rows = [Atoms.of_groups(parse_group(text) for text in order) for order in orders]
        return cls.of_rows(name, placement, microbatches, rows, **more)

    @property
    def ranks(self) -> int:
        return len(self.offsets) - 1

    def __len__(self) -> int:
        return len(self.atoms)

    @cached_property
    def rank(self) -> Ints:
        """Rank of each action."""
        return np.repeat(np.arange(self.ranks, dtype=np.int32), np.diff(self.offsets))

    def row(self, rank: int) -> Atoms:
        """The actions of one rank, in order."""
        return self.atoms.take(slice(int(self.offsets[rank]), int(self.offsets[rank + 1])))

    def rows(self) -> Iterator[Atoms]:
        return (self.row(rank) for rank in range(self.ranks))

    @cached_property
    def orders(self) -> list[list[str]]:
        """Per rank the texts of its actions, fused pairs joined by `&`."""
        return [row.texts() for row in self.rows()]

    @cached_property
    def trains(self) -> bool:
        """Whether it has backward actions at all."""
        return bool((self.atoms.kind != Kind.F).any())

    @cached_property
    def splits_backward(self) -> bool:
        """Whether input and weight gradients are separate actions."""
        return bool((self.atoms.kind == Kind.I).any())

    def _repr_html_(self) -> str:
        """How a notebook shows it; drawing is loaded when it is asked for."""
        return str(import_module("pipesim.viz.notebook").schedule_html(self))

    def renamed(self, name: str) -> Schedule:
        return replace(self, name=name)

    @property
    def shape(self) -> Shape:
        """What the dependency rule has to know of a schedule beside its actions."""
        return Shape(self.placement.length, self.slices, self.slicing)

    @cached_property
    def dependencies(self) -> Dependencies:
        """What each action needs, as arrays."""
        return dependencies(self.shape, self.placement.stages, self.microbatches, self.atoms)

    def needs(self, action: Action) -> tuple[Action, ...]:
        """The actions that must end before this one may start. Raises KeyError if it is not in the schedule."""
        same = np.ones(len(self), np.bool_)
        for column in ("kind", "stage", "microbatch", "slice"):
            same &= getattr(self.atoms, column) == getattr(action, column)
        found = np.flatnonzero(same)
        if not len(found):
            raise KeyError(action)
        producers = self.dependencies.producer[self.dependencies.consumer == found[0]]
        return tuple(self.atoms.action(int(producer)) for producer in producers)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Schedule):
            return NotImplemented
        return (
            self.placement,
            self.microbatches,
            self.slices,
            self.slicing,
            self.update_every,
            self.refuge,
        ) == (
            other.placement,
            other.microbatches,
            other.slices,
            other.slicing,
            other.update_every,
            other.refuge,
        ) and self.orders == other.orders

    __hash__ = None  # type: ignore[assignment]

    def __str__(self) -> str:
        """A line a rank; the stage is left out where every rank has one."""
        alone = self.placement.stages == self.ranks
        return "\n".join(
            " ".join(text.lstrip("0123456789") if alone else text for text in order) for order in self.orders
        )
