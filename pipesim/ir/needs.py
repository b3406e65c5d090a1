"""The one definition of "depends on": what an action needs before it may start.

The checker, the lowering, both engines, the search and the executor all read this file and no other.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from pipesim.ir.action import Kind
from pipesim.ir.atoms import Atoms, Ints

Slicing = Literal["causal", "autoregressive"]


class Flow(IntEnum):
    """What passes from the needed action to the needing one; a message where they are on two ranks."""

    LOCAL = 0  # nothing that could cross ranks
    ACTIVATION = 1
    GRADIENT = 2
    TOKEN = 3
    MOVE = 4  # an activation to its refuge or back


class Role(IntEnum):
    """What is needed, whichever kind gives it."""

    FORWARD = 0
    GRADIENT = 1  # of a stage's input: B or I
    EVICTED = 2
    LOADED = 3
    WEIGHTS = 4  # the last of a stage's backward: B or W


ROLES_OF_KIND: dict[Kind, tuple[Role, ...]] = {
    Kind.F: (Role.FORWARD,),
    Kind.B: (Role.GRADIENT, Role.WEIGHTS),
    Kind.I: (Role.GRADIENT,),
    Kind.W: (Role.WEIGHTS,),
    Kind.X: (Role.EVICTED,),
    Kind.L: (Role.LOADED,),
}


@dataclass(frozen=True)
class Shape:
    """What the rule has to know of a schedule: stages a microbatch passes, slices, and what slices wait for."""

    length: int
    slices: int = 1
    slicing: Slicing = "causal"


@dataclass(frozen=True)
class Rule:
    """`who` (a mask) needs `role` of (stage, microbatch, slice); an optional one only if it is there."""

    who: NDArray[np.bool_]
    role: Role
    stage: Ints
    microbatch: Ints
    slice: Ints
    flow: Flow
    optional: bool = False


def rules(shape: Shape, atoms: Atoms) -> Iterator[Rule]:
    """The dependency rule itself."""
    kind, stage, microbatch, slice_ = atoms.kind, atoms.stage, atoms.microbatch, atoms.slice
    forward = kind == Kind.F
    backward = (kind == Kind.B) | (kind == Kind.I)
    place = stage % shape.length
    first, last = place == 0, place == shape.length - 1

    yield Rule(forward & ~first, Role.FORWARD, stage - 1, microbatch, slice_, Flow.ACTIVATION)
    yield Rule(backward & ~last, Role.GRADIENT, stage + 1, microbatch, slice_, Flow.GRADIENT)
    yield Rule(backward, Role.FORWARD, stage, microbatch, slice_, Flow.LOCAL)
    yield Rule(kind == Kind.W, Role.GRADIENT, stage, microbatch, slice_, Flow.LOCAL)
    if shape.slices > 1 and shape.slicing == "causal":
        later = slice_ < shape.slices - 1
        yield Rule(forward & (slice_ > 0), Role.FORWARD, stage, microbatch, slice_ - 1, Flow.LOCAL)
        yield Rule(backward & later, Role.GRADIENT, stage, microbatch, slice_ + 1, Flow.LOCAL)
    if shape.slices > 1 and shape.slicing == "autoregressive":
        end = stage + shape.length - 1
        yield Rule(forward & first & (slice_ > 0), Role.FORWARD, end, microbatch, slice_ - 1, Flow.TOKEN)
    if ((kind == Kind.X) | (kind == Kind.L)).any():
        yield Rule(kind == Kind.X, Role.FORWARD, stage, microbatch, slice_, Flow.LOCAL)
        yield Rule(kind == Kind.L, Role.EVICTED, stage, microbatch, slice_, Flow.LOCAL)
        yield Rule(backward, Role.LOADED, stage, microbatch, slice_, Flow.LOCAL, optional=True)


@dataclass(frozen=True)
class Dependencies:
    """Needs as edges between actions (indices into the schedule's columns), and the needs nobody meets."""

    consumer: Ints
    producer: Ints
    flow: Ints
    unmet: tuple[tuple[int, Role, int, int, int], ...]  # consumer, role, stage, microbatch, slice


def dependencies(shape: Shape, stages: int, microbatches: int, atoms: Atoms) -> Dependencies:
    """All needs of all actions. Where an action stands twice, the last one counts (the checker refuses those)."""
    table = _Table(stages, microbatches, shape.slices, atoms)
    consumers, producers, flows, unmet = [], [], [], []
    for rule in rules(shape, atoms):
        who = np.flatnonzero(rule.who)
        found = table.find(rule.role, rule.stage[who], rule.microbatch[who], rule.slice[who])
        there = found >= 0
        consumers.append(who[there].astype(np.int32))
        producers.append(found[there])
        flows.append(np.full(int(there.sum()), rule.flow, np.int8))
        if not rule.optional:
            missing = who[~there]
            unmet += [
                (
                    int(index),
                    rule.role,
                    int(rule.stage[index]),
                    int(rule.microbatch[index]),
                    int(rule.slice[index]),
                )
                for index in missing
            ]
    return Dependencies(np.concatenate(consumers), np.concatenate(producers), np.concatenate(flows), tuple(unmet))


class _Table:
    """Where each role of each (stage, microbatch, slice) is done; -1 inside for nowhere."""

    def __init__(self, stages: int, microbatches: int, slices: int, atoms: Atoms) -> None:
        self._shape = (stages, microbatches, slices)
        self._place: dict[Role, Ints] = {}
        inside = _inside(self._shape, atoms.stage, atoms.microbatch, atoms.slice)
        key = self._key(atoms.stage, atoms.microbatch, atoms.slice)
        for kind, roles in ROLES_OF_KIND.items():
            index = np.flatnonzero((atoms.kind == kind) & inside)
            for role in roles if len(index) else ():
                if role not in self._place:
                    self._place[role] = np.full(stages * microbatches * slices, -1, np.int32)
                self._place[role][key[index]] = index

    def _key(self, stage: Ints, microbatch: Ints, slice_: Ints) -> Ints:
        _, microbatches, slices = self._shape
        return (stage.astype(np.int64) * microbatches + microbatch) * slices + slice_

    def find(self, role: Role, stage: Ints, microbatch: Ints, slice_: Ints) -> Ints:
        if role not in self._place:
            return np.full(len(stage), -1, np.int32)
        inside = _inside(self._shape, stage, microbatch, slice_)
        key = np.where(inside, self._key(stage, microbatch, slice_), 0)
        return np.where(inside, self._place[role][key], -1)


def _inside(shape: tuple[int, int, int], stage: Ints, microbatch: Ints, slice_: Ints) -> NDArray[np.bool_]:
    stages, microbatches, slices = shape
    return (
        (stage >= 0)
        & (stage < stages)
        & (microbatch >= 0)
        & (microbatch < microbatches)
        & (slice_ >= 0)
        & (slice_ < slices)
    )
