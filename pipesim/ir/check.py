"""The checker: is a schedule complete, placed as it says, and free of deadlock?"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pipesim.errors import PipesimError
from pipesim.ir.action import Action, Kind
from pipesim.ir.atoms import Ints
from pipesim.ir.lanes import lanes
from pipesim.ir.lower import lower
from pipesim.ir.memory import peak_activations
from pipesim.ir.needs import Flow, Role
from pipesim.ir.order import Deadlock, require_progress, unit_starts
from pipesim.ir.program import Comm, Program
from pipesim.ir.schedule import Schedule

Flags = NDArray[np.bool_]

_SHOWN = 5  # faults printed in one message


@dataclass(eq=False)
class BrokenSchedule(PipesimError):
    """What is wrong with a schedule, one sentence a fault."""

    name: str
    faults: tuple[str, ...]

    def __str__(self) -> str:
        shown = "; ".join(self.faults[:_SHOWN])
        rest = len(self.faults) - _SHOWN
        return f"schedule {self.name} is broken: {shown}" + (f"; and {rest} more" if rest > 0 else "")


def check(schedule: Schedule, *, comm: Comm = "edge", max_activations: float | None = None) -> None:
    """Raise unless the schedule is complete, correctly placed, runnable and within its limit.

    max_activations: most activations (in microbatches) a rank may hold at once.
    Raises BrokenSchedule with the faults, or Deadlock with the cycle of waits.
    """
    faults = [*_bounds(schedule)]
    if not faults:
        faults = [*_placement(schedule), *_completeness(schedule), *_fused(schedule), *_unmet(schedule)]
    if faults:
        raise BrokenSchedule(schedule.name, tuple(faults))
    unit_starts(schedule)
    if comm != "edge":
        check_program(lower(schedule, comm=comm))
    if max_activations is not None:
        over = [
            f"rank {rank} holds {held:g} microbatches of activations, {max_activations:g} are allowed"
            for rank, held in enumerate(peak_activations(schedule).tolist())
            if held > max_activations + 1e-9
        ]
        if over:
            raise BrokenSchedule(schedule.name, tuple(over))


def check_program(program: Program) -> None:
    """Raise unless channels agree on their order and every rank runs to its end under rendezvous sends.

    Raises BrokenSchedule where the two sides of a channel disagree, Deadlock with the cycle of waits.
    """
    faults = tuple(_channels(program))
    if faults:
        raise BrokenSchedule(program.schedule.name, faults)
    require_progress(lanes(program), program)


def _bounds(schedule: Schedule) -> list[str]:
    atoms, faults = schedule.atoms, []
    for word, values, limit in (
        ("stage", atoms.stage, schedule.placement.stages),
        ("microbatch", atoms.microbatch, schedule.microbatches),
        ("slice", atoms.slice, schedule.slices),
    ):
        for index in np.flatnonzero((values < 0) | (values >= limit))[:_SHOWN]:
            faults.append(f"{atoms.action(int(index))}: {word} {int(values[index])} is not below {limit}")
    if schedule.ranks != schedule.placement.ranks:
        faults.append(f"{schedule.ranks} rows for {schedule.placement.ranks} ranks")
    return faults + _stages(schedule)


def _stages(schedule: Schedule) -> list[str]:
    placement = schedule.placement
    idle = sorted(set(range(placement.ranks)) - set(placement.ranks_of_stages))
    faults = [f"rank {rank} holds no stage" for rank in idle]
    if placement.stages % placement.chains:
        faults.append(f"{placement.stages} stages are not {placement.chains} replicas of equal length")
    return faults


def _placement(schedule: Schedule) -> list[str]:
    expected = np.asarray(schedule.placement.ranks_of_stages)[schedule.atoms.stage]
    return [
        f"{schedule.atoms.action(int(index))} is on rank {int(schedule.rank[index])}, "
        f"but its stage is placed on rank {int(expected[index])}"
        for index in np.flatnonzero(expected != schedule.rank)
    ]


def _counts(schedule: Schedule, kind: Kind) -> Ints:
    """How often each (stage, microbatch, slice) has this kind; shape (stages, microbatches, slices)."""
    atoms = schedule.atoms
    mine = atoms.kind == kind
    shape = (schedule.placement.stages, schedule.microbatches, schedule.slices)
    flat = np.ravel_multi_index((atoms.stage[mine], atoms.microbatch[mine], atoms.slice[mine]), shape)
    return np.bincount(flat, minlength=int(np.prod(shape))).reshape(shape)


def _completeness(schedule: Schedule) -> list[str]:
    counts = {kind: _counts(schedule, kind) for kind in (Kind.F, Kind.B, Kind.I, Kind.W, Kind.X, Kind.L)}
    passes = _passed(schedule, counts[Kind.F])
    faults = [
        f"microbatch {microbatch} passes {chains} of the {schedule.placement.chains} replicas of the model, not one"
        for microbatch, chains in enumerate(passes.any(axis=(1, 3)).sum(axis=0).tolist())
        if chains != 1
    ]
    due = np.broadcast_to(passes.any(axis=(1, 3), keepdims=True), passes.shape).reshape(counts[Kind.F].shape)
    faults += _wrong(schedule, Kind.F, counts[Kind.F], due, "forward")
    if schedule.trains:
        full, split, weights = counts[Kind.B], counts[Kind.I], counts[Kind.W]
        both = np.argwhere((full > 0) & ((split > 0) | (weights > 0)))
        faults += [f"stage {s}, microbatch {m}{_slice(schedule, c)} has a B and also an I or W" for s, m, c in both]
        whole = due & (split == 0) & (weights == 0)
        faults += _wrong(schedule, Kind.B, full, whole, "backward (B, or I and W)")
        faults += _wrong(schedule, Kind.I, split, due & (weights > 0) & (full == 0), "input gradient")
        faults += _wrong(schedule, Kind.W, weights, due & (split > 0) & (full == 0), "weight gradient")
    moved = (counts[Kind.X] > 0) | (counts[Kind.L] > 0)
    faults += _wrong(schedule, Kind.X, counts[Kind.X], moved, "eviction")
    faults += _wrong(schedule, Kind.L, counts[Kind.L], moved, "load")
    return faults


def _passed(schedule: Schedule, forwards: Ints) -> Flags:
    """Whether a microbatch has any forward there; shape (chains, stages of a chain, microbatches, slices)."""
    placement = schedule.placement
    return (forwards > 0).reshape(placement.chains, placement.length, schedule.microbatches, schedule.slices)


def _slice(schedule: Schedule, slice_: int) -> str:
    return f", slice {slice_}" if schedule.slices > 1 else ""


def _wrong(schedule: Schedule, kind: Kind, counts: Ints, due: Flags, word: str) -> list[str]:
    faults = []
    for stage, microbatch, slice_ in np.argwhere(counts != due.astype(int)):
        action = Action(kind, int(stage), int(microbatch), int(slice_))
        times, expected = int(counts[stage, microbatch, slice_]), int(due[stage, microbatch, slice_])
        if times == 0:
            faults.append(f"{action} is missing: each {word} must be there once")
        elif expected == 0:
            faults.append(f"{action} is there, but its microbatch has no {word} to do on this stage")
        else:
            faults.append(f"{action} is there {times} times")
    return faults


def _fused(schedule: Schedule) -> list[str]:
    atoms, faults = schedule.atoms, []
    begins = set(schedule.offsets.tolist())
    for at in np.flatnonzero(atoms.fused).tolist():
        if at in begins:
            faults.append(f"{atoms.action(at)} is fused with nothing")
            continue
        kinds = sorted(int(kind) for kind in atoms.kind[at - 1 : at + 1])
        if atoms.fused[at - 1] or kinds[0] != Kind.F or kinds[1] not in (Kind.B, Kind.I, Kind.W):
            faults.append(f"{atoms.action(at - 1)}&{atoms.action(at)}: a fused pair is one forward and one backward")
    return faults


def _unmet(schedule: Schedule) -> list[str]:
    words = {Role.FORWARD: "forward", Role.GRADIENT: "gradient", Role.EVICTED: "eviction", Role.LOADED: "load"}
    return [
        f"{schedule.atoms.action(consumer)} needs the {words[Role(role)]} of stage {stage}, microbatch {microbatch}"
        f"{_slice(schedule, slice_)}, which nobody does"
        for consumer, role, stage, microbatch, slice_ in schedule.dependencies.unmet
    ]


def _channels(program: Program) -> list[str]:
    """Where the sends of a channel and the receives at its other end are not in the same order."""
    ops, faults = program.ops, []
    sends = np.flatnonzero(ops.kind == Kind.SEND)
    channel = (program.rank[sends].astype(np.int64) * program.ranks + program.peer[sends]) * len(Flow)
    order = np.argsort(channel + program.flow[sends], kind="stable")
    sends, channel = sends[order], (channel + program.flow[sends])[order]
    received = program.match[sends]
    wrong = np.flatnonzero((channel[1:] == channel[:-1]) & (received[1:] <= received[:-1]))
    for at in wrong.tolist():
        first, second = int(sends[at]), int(sends[at + 1])
        faults.append(
            f"rank {int(program.rank[first])} sends {program.text(first)} before {program.text(second)}, but rank "
            f"{int(program.peer[first])} receives {program.text(int(program.match[second]))} first"
        )
    return faults


__all__ = ["BrokenSchedule", "Deadlock", "check", "check_program"]
