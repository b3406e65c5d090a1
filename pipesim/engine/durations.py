"""How long each operation of a program takes by itself; both engines start from these numbers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pipesim.costs.costs import Costs, Floats, WrongStages, at
from pipesim.costs.network import Route
from pipesim.ir.action import Kind
from pipesim.ir.atoms import Atoms, Ints
from pipesim.ir.program import Program
from pipesim.ir.schedule import Schedule


@dataclass(frozen=True, eq=False)
class Durations:
    """Per operation: seconds of an action or step, bytes of a transfer, its latency and which route it takes.

    A fused pair has its whole time on both of its actions. Receives carry the bytes of their send.
    """

    seconds: Floats
    size_bytes: Floats
    latency_s: Floats
    route: Ints  # index into routes
    routes: tuple[Route, ...]


def durations(program: Program, costs: Costs) -> Durations:
    """Raises NoCost, WrongStages."""
    require_stages(program.schedule, costs)
    route, routes = _routes(program, costs)
    seconds = action_seconds(program.ops, costs)
    seconds += tail_seconds(program.ops, program.rank, program.schedule, costs)
    latency_s = np.asarray([way.latency_s for way in routes])[route]
    return Durations(seconds, _sizes(program, costs), latency_s, route, routes)


def require_stages(schedule: Schedule, costs: Costs) -> None:
    """Raises WrongStages unless the costs are for this many stages."""
    stages = schedule.placement.stages
    if costs.stages != stages:
        raise WrongStages("costs", costs.stages, stages)


def action_seconds(ops: Atoms, costs: Costs) -> Floats:
    """Seconds of each action, host time included; 0 of what is no compute. Raises NoCost."""
    seconds = np.zeros(len(ops))
    for kind in (Kind.F, Kind.B, Kind.I, Kind.W):
        mine = np.flatnonzero(ops.kind == kind)
        if len(mine):
            seconds[mine] = at(costs.of_kind(kind), ops.stage[mine], ops.microbatch[mine], ops.slice[mine])
    second = np.flatnonzero(ops.fused)
    if len(second):
        seconds[second] = seconds[second - 1] = _pair_seconds(ops, costs, seconds, second)
    if costs.host_s:
        seconds[ops.kind <= Kind.W] += costs.host_s
    return seconds


def _pair_seconds(ops: Atoms, costs: Costs, seconds: Floats, second: Ints) -> Floats:
    one, other = seconds[second - 1], seconds[second]
    if costs.pair_s is None:
        both: Floats = one + other - costs.overlap * np.minimum(one, other)
        return both
    forward = np.where(ops.kind[second - 1] == Kind.F, second - 1, second)
    return at(costs.pair_s, ops.stage[forward], ops.microbatch[forward], ops.slice[forward])


def tail_seconds(ops: Atoms, rank: Ints, schedule: Schedule, costs: Costs) -> Floats:
    """Fixed seconds of gradient reductions and optimizer steps; 0 of anything else."""
    seconds, placement = np.zeros(len(ops)), schedule.placement
    if costs.reduce_s is not None:
        mine = np.flatnonzero(ops.kind == Kind.REDUCE)
        seconds[mine] = costs.reduce_s[ops.stage[mine]]
    if costs.optimizer_s is not None:
        mine = np.flatnonzero(ops.kind == Kind.STEP)
        if schedule.update_every is None:
            ranks = np.asarray(placement.ranks_of_stages)
            whole = np.bincount(ranks, weights=costs.optimizer_s, minlength=placement.ranks)
            seconds[mine] = whole[rank[mine]]
        else:
            seconds[mine] = costs.optimizer_s[ops.stage[mine]]
    return seconds


def _sizes(program: Program, costs: Costs) -> Floats:
    ops = program.ops
    sizes = np.zeros(len(program))
    sends = np.flatnonzero(ops.kind == Kind.SEND)
    sizes[sends] = message_sizes(ops.take(sends), program.flow[sends], costs)
    moves = np.flatnonzero((ops.kind == Kind.X) | (ops.kind == Kind.L))
    if costs.held is not None and len(moves):
        sizes[moves] = costs.held.activation[ops.stage[moves]] / program.schedule.slices
    if costs.reduce_bytes is not None:
        reductions = np.flatnonzero(ops.kind == Kind.REDUCE)
        sizes[reductions] = costs.reduce_bytes[ops.stage[reductions]]
    sizes[program.match[sends]] = sizes[sends]
    return sizes


def message_sizes(senders: Atoms, flow: Ints, costs: Costs) -> Floats:
    """Bytes of the message that each of these operations sends."""
    sizes = np.zeros(len(senders))
    for which, values in costs.message_bytes.items():
        mine = np.flatnonzero(flow == which)
        sizes[mine] = at(values, senders.stage[mine], senders.microbatch[mine], senders.slice[mine])
    return sizes


def _routes(program: Program, costs: Costs) -> tuple[Ints, tuple[Route, ...]]:
    """Route of each operation: of a message by its two ranks, of a move to its refuge, of a reduction."""
    kind, network, ranks = program.ops.kind, costs.network, program.ranks
    route = np.zeros(len(program), np.int32)
    sends = np.flatnonzero(kind == Kind.SEND)
    pair = program.rank[sends].astype(np.int64) * ranks + program.peer[sends]
    codes = np.flatnonzero(np.bincount(pair))
    route[sends] = route[program.match[sends]] = np.searchsorted(codes, pair) + 1
    ways = [Route(), *(network.route(int(code) // ranks, int(code) % ranks) for code in codes)]
    for which in (Kind.X, Kind.L, Kind.REDUCE):
        mine = np.flatnonzero(kind == which)
        users, place = np.unique(program.rank[mine], return_inverse=True)
        route[mine] = len(ways) + place
        ways += [_own_route(program, costs, int(rank), which) for rank in users]
    return route, tuple(ways)


def _own_route(program: Program, costs: Costs, rank: int, kind: Kind) -> Route:
    """Way of a rank's gradient reduction, or of its activations to their refuge and back."""
    if kind == Kind.REDUCE:
        return costs.network.reduce.get(rank, Route())
    refuge = program.schedule.refuge
    partner = refuge[rank] if refuge else None
    if partner is None:
        return costs.network.host
    return costs.network.route(rank, partner) if kind == Kind.X else costs.network.route(partner, rank)
