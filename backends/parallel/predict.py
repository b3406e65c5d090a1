"""A run predicted from its own parts: each action's measured time, each message by the measured lines."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from pipesim.backends.parallel.lines import Line
from pipesim.costs.communication.traffic import backward_sums, forward_sums, reductions
from pipesim.costs.costs import Costs, Floats
from pipesim.costs.layouts.layout import Layout
from pipesim.costs.layouts.split import split_layers
from pipesim.costs.models.model import Model
from pipesim.costs.network import Network, Route
from pipesim.engine.choose import simulate
from pipesim.ir.action import Kind
from pipesim.ir.needs import Flow
from pipesim.timeline import Timeline

_NO_TIME = Line(0.0, float("inf"))


def predicted(measured: Timeline, model: Model, layout: Layout, lines: Mapping[str, Line]) -> tuple[Timeline, Costs]:
    """The same program simulated, and the costs it was simulated with.

    Computation takes the mean of what was measured, by stage and kind; messages, tensor-parallel sums within it
    and gradient reductions take what the lines say.
    """
    program = measured.program
    placement = program.schedule.placement
    layout = replace(layout, virtual=placement.length // placement.ranks)
    held = [split_layers(model, layout)[stage % placement.length] for stage in range(placement.stages)]
    tensor, data = lines.get("tensor", _NO_TIME), lines.get("data", _NO_TIME)
    forward = np.array([sum(tensor.seconds(*sent) for sent in forward_sums(model, layout, one)) for one in held])
    backward = np.array([sum(tensor.seconds(*sent) for sent in backward_sums(model, layout, one)) for one in held])
    first = np.array([placement.is_first(stage) for stage in range(placement.stages)])
    message = layout.number_format.activation_bytes * layout.tokens * model.hidden / layout.sequence_shards
    line = lines.get("pipeline", _NO_TIME)
    costs = Costs(
        placement.stages,
        {kind: _means(measured, kind) for kind in (Kind.F, Kind.B, Kind.I, Kind.W)},
        tensor_comm_s={
            Kind.F: forward,
            Kind.B: backward,
            Kind.I: np.where(first, 0.0, backward),
            Kind.W: np.where(first, backward, 0.0),
        },
        message_bytes={flow: np.full(placement.stages, message) for flow in (Flow.ACTIVATION, Flow.GRADIENT)},
        network=Network(Route(line.latency_s, line.bytes_per_s)),
        reduce_s=np.array([sum(data.seconds(*sent) for sent in reductions(model, layout, one)) for one in held]),
        optimizer_s=_means(measured, Kind.STEP),
    )
    return simulate(program, costs), costs


def _means(timeline: Timeline, kind: Kind) -> Floats:
    """Mean seconds of a kind by stage; 0 where there is none."""
    ops = timeline.program.ops
    mine = np.flatnonzero(ops.kind == kind)
    stages = timeline.program.schedule.placement.stages
    count = np.maximum(np.bincount(ops.stage[mine], minlength=stages), 1)
    found: Floats = np.bincount(ops.stage[mine], timeline.end[mine] - timeline.start[mine], minlength=stages) / count
    return found
