"""Bytes each rank holds over time, from the start and end of its operations."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pipesim.costs.costs import Costs, Floats, StageBytes
from pipesim.ir.action import Kind
from pipesim.ir.needs import Flow
from pipesim.ir.program import Program
from pipesim.ir.versions import versions_kept
from pipesim.timeline import MemoryTrace

_FREED, _TAKEN = 0, 1  # at one moment, what is freed goes first


@dataclass(frozen=True, eq=False)
class _Changes:
    """Bytes taken (or, negative, freed) by a rank at a moment."""

    rank: np.ndarray
    time_s: Floats
    change: Floats


def memory_trace(program: Program, costs: Costs, start: Floats, end: Floats) -> MemoryTrace | None:
    """Memory of each rank over time; None where the costs hold no bytes.

    Weights, gradients, optimizer state and overheads are there from the start. A forward takes its
    activations at its start, a backward gives them back at its end. Received messages count from the
    start of their transfer until they are used, sent ones from their production until they are gone.
    A stage of an asynchronous schedule keeps several versions of its weights; a rank may keep activations
    for another one.
    """
    held = costs.held
    if held is None:
        return None
    parts = [_activations(program, held, start, end), _workspace(program, held, start, end)]
    parts += [*_buffers(program, costs, start, end), _guests(program, held, start, end)]
    rank = np.concatenate([part.rank for part in parts])
    time = np.concatenate([part.time_s for part in parts])
    change = np.concatenate([part.change for part in parts])
    some = change != 0
    rank, time, change = rank[some], time[some], change[some]
    order = np.lexsort((np.where(change < 0, _FREED, _TAKEN), time, rank))
    base = static_bytes(program, held)
    offsets = np.concatenate([[0], np.cumsum(np.bincount(rank, minlength=program.ranks))])
    return MemoryTrace(base, offsets, time[order], change[order], held.limit)


def static_bytes(program: Program, held: StageBytes) -> Floats:
    """Bytes each rank holds all the time, shape (ranks,)."""
    placement = program.schedule.placement
    versions = versions_kept(program.schedule)  # more than one in asynchronous schedules
    by_stage = held.weights * versions + held.gradients + held.optimizer
    by_rank = np.bincount(placement.ranks_of_stages, weights=by_stage, minlength=placement.ranks)
    total: Floats = by_rank + held.overhead
    return total


def _activations(program: Program, held: StageBytes, start: Floats, end: Floats) -> _Changes:
    ops, share = program.ops, 1.0 / program.schedule.slices
    sign = {Kind.F: 1.0, Kind.L: 1.0, Kind.B: -1.0, Kind.X: -1.0, Kind.I: -1.0, Kind.W: -1.0}
    ranks, times, changes = [], [], []
    for kind, factor in sign.items():
        mine = np.flatnonzero(ops.kind == kind)
        if kind == Kind.F and not program.schedule.trains:  # nothing is kept for a backward
            continue
        stage = ops.stage[mine]
        part = {Kind.I: held.released_at_input, Kind.W: 1.0 - held.released_at_input}.get(kind)
        size = held.activation[stage] * (1.0 if part is None else part[stage])
        ranks.append(program.rank[mine])
        times.append((start if factor > 0 else end)[mine])
        changes.append(factor * share * size)
    if not ranks:
        return _Changes(np.zeros(0, np.int64), np.zeros(0), np.zeros(0))
    return _Changes(np.concatenate(ranks), np.concatenate(times), np.concatenate(changes))


def _guests(program: Program, held: StageBytes, start: Floats, end: Floats) -> _Changes:
    """Activations that a rank keeps for another one, from the start of their way there to the end of that back."""
    ops, refuge = program.ops, program.schedule.refuge or (None,) * program.ranks
    away, back = np.flatnonzero(ops.kind == Kind.X), np.flatnonzero(ops.kind == Kind.L)
    away, back = (
        moves[np.lexsort((ops.slice[moves], ops.microbatch[moves], ops.stage[moves]))] for moves in (away, back)
    )
    host = np.array([-1 if to is None else to for to in refuge], np.int64)[program.rank[away]] if len(away) else away
    there = host >= 0
    size = held.activation[ops.stage[away[there]]] / program.schedule.slices
    return _interval(host[there], start[away[there]], end[back[there]], size)


def _workspace(program: Program, held: StageBytes, start: Floats, end: Floats) -> _Changes:
    mine = np.flatnonzero(program.is_compute & (program.ops.kind != Kind.W))
    return _interval(program.rank[mine], start[mine], end[mine], held.workspace[program.ops.stage[mine]])


def _interval(rank: np.ndarray, begin: Floats, finish: Floats, size: Floats) -> _Changes:
    return _Changes(np.concatenate([rank, rank]), np.concatenate([begin, finish]), np.concatenate([size, -size]))


def _buffers(program: Program, costs: Costs, start: Floats, end: Floats) -> list[_Changes]:
    ops = program.ops
    consumer = np.full(len(program), -1)
    needing = np.repeat(np.arange(len(program)), np.diff(program.need_offsets))
    consumer[program.need] = needing
    sends = np.flatnonzero(ops.kind == Kind.SEND)
    receives = program.match[sends]
    stage = ops.stage[sends]
    size = np.zeros(len(sends))
    for flow, values in costs.message_bytes.items():
        mine = program.flow[sends] == flow
        whole = np.broadcast_to(values.reshape(len(values), -1)[:, 0], (costs.stages,))
        size[mine] = whole[stage[mine]]
    produced = end[program.need[program.need_offsets[sends]]]
    used = np.where(program.flow[receives] == Flow.ACTIVATION, start[consumer[receives]], end[consumer[receives]])
    return [
        _interval(program.rank[sends], produced, end[sends], size),
        _interval(program.rank[receives], start[receives], used, size),
    ]
