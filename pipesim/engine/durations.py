"""How long each operation of a program takes by itself; both engines start from these numbers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pipesim.costs.costs import Costs, Floats, WrongStages, at
from pipesim.costs.network import Route
from pipesim.ir.action import Kind
from pipesim.ir.program import Program


@dataclass(frozen=True, eq=False)
class Durations:
    """Per operation: seconds of an action or step, bytes of a transfer, and which route it takes.

    A fused pair has its whole time on both of its actions. Receives carry the bytes of their send.
    """

    seconds: Floats
    size_bytes: Floats
    route: np.ndarray  # index into routes
    routes: tuple[Route, ...]


def durations(program: Program, costs: Costs) -> Durations:
    """Raises NoCost, WrongStages."""
    require_stages(program, costs)
    route, routes = _routes(program, costs)
    return Durations(_seconds(program, costs), _sizes(program, costs), route, routes)


def require_stages(program: Program, costs: Costs) -> None:
    """Raises WrongStages unless the costs are for this many stages."""
    stages = program.schedule.placement.stages
    if costs.stages != stages:
        raise WrongStages("costs", costs.stages, stages)


def _seconds(program: Program, costs: Costs) -> Floats:
    ops = program.ops
    seconds = np.zeros(len(program))
    for kind in (Kind.F, Kind.B, Kind.I, Kind.W):
        mine = np.flatnonzero(ops.kind == kind)
        if len(mine):
            seconds[mine] = at(costs.of_kind(kind), ops.stage[mine], ops.microbatch[mine], ops.slice[mine])
    second = np.flatnonzero(ops.fused)
    if len(second):
        seconds[second] = seconds[second - 1] = _pair_seconds(program, costs, seconds, second)
    seconds[program.is_compute] += costs.host_s
    _tail_seconds(program, costs, seconds)
    return seconds


def _pair_seconds(program: Program, costs: Costs, seconds: Floats, second: np.ndarray) -> Floats:
    one, other = seconds[second - 1], seconds[second]
    if costs.pair_s is None:
        both: Floats = one + other - costs.overlap * np.minimum(one, other)
        return both
    ops = program.ops
    forward = np.where(ops.kind[second - 1] == Kind.F, second - 1, second)
    return at(costs.pair_s, ops.stage[forward], ops.microbatch[forward], ops.slice[forward])


def _tail_seconds(program: Program, costs: Costs, seconds: Floats) -> None:
    ops, placement = program.ops, program.schedule.placement
    if costs.reduce_s is not None:
        mine = ops.kind == Kind.REDUCE
        seconds[mine] = costs.reduce_s[ops.stage[mine]]
    if costs.optimizer_s is not None:
        mine = ops.kind == Kind.STEP
        if program.schedule.update_every is None:
            ranks = np.asarray(placement.ranks_of_stages)
            whole = np.bincount(ranks, weights=costs.optimizer_s, minlength=placement.ranks)
            seconds[mine] = whole[program.rank[mine]]
        else:
            seconds[mine] = costs.optimizer_s[ops.stage[mine]]


def _sizes(program: Program, costs: Costs) -> Floats:
    ops = program.ops
    sizes = np.zeros(len(program))
    sends = np.flatnonzero(ops.kind == Kind.SEND)
    for flow, values in costs.message_bytes.items():
        mine = sends[program.flow[sends] == flow]
        sizes[mine] = at(values, ops.stage[mine], ops.microbatch[mine], ops.slice[mine])
    moves = np.flatnonzero((ops.kind == Kind.X) | (ops.kind == Kind.L))
    if costs.held is not None and len(moves):
        sizes[moves] = costs.held.activation[ops.stage[moves]] / program.schedule.slices
    reductions = ops.kind == Kind.REDUCE
    if costs.reduce_bytes is not None:
        sizes[reductions] = costs.reduce_bytes[ops.stage[reductions]]
    receives = ops.kind == Kind.RECV
    sizes[receives] = sizes[program.match[receives]]
    return sizes


def _routes(program: Program, costs: Costs) -> tuple[np.ndarray, tuple[Route, ...]]:
    """Route of each operation: of a message by its two ranks, of a move to its refuge, of a reduction."""
    ops, network, ranks = program.ops, costs.network, program.ranks
    ways: list[Route] = [Route()]
    route = np.zeros(len(program), np.int64)
    transfers = np.isin(ops.kind, (Kind.SEND, Kind.RECV))
    pairs = program.rank.astype(np.int64) * ranks + program.peer
    receives = ops.kind == Kind.RECV
    pairs[receives] = program.peer[receives].astype(np.int64) * ranks + program.rank[receives]
    codes, inverse = np.unique(pairs[transfers], return_inverse=True)
    route[transfers] = inverse + 1
    ways += [network.route(int(code) // ranks, int(code) % ranks) for code in codes]
    for rank in range(ranks):
        mine = program.rank == rank
        for kinds, way in (
            ((Kind.X,), _refuge(program, costs, rank, out=True)),
            ((Kind.L,), _refuge(program, costs, rank, out=False)),
            ((Kind.REDUCE,), network.reduce.get(rank, Route())),
        ):
            chosen = mine & np.isin(ops.kind, kinds)
            if chosen.any():
                route[chosen] = len(ways)
                ways.append(way)
    return route, tuple(ways)


def _refuge(program: Program, costs: Costs, rank: int, *, out: bool) -> Route:
    refuge = program.schedule.refuge
    partner = refuge[rank] if refuge else None
    if partner is None:
        return costs.network.host
    return costs.network.route(rank, partner) if out else costs.network.route(partner, rank)
