"""Data parallelism: reduction of gradients, sharded optimizer, gathering of sharded weights, and what overlaps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pipesim.costs.communication.collectives import collective_seconds
from pipesim.costs.layouts.split import StageLayers
from pipesim.costs.memory import stage_parameters
from pipesim.costs.times.compute import memory_seconds
from pipesim.costs.times.parts import Part
from pipesim.costs.times.site import Site

_ADAM_BYTES = 42.0  # weight, gradient, both moments read, three written, in fp32; 16-bit weight; norm and zeros
_BUCKETS = 8.0  # of an overlapped reduction the last of so many buckets is left when the backward ends


@dataclass(frozen=True)
class Update:
    """Seconds at the end of a step on one stage: what its backward and the next forward cannot hide."""

    reduce_s: float
    optimizer_s: float
    gather_s: float


def update(site: Site, stage: StageLayers, *, forward_s: float, backward_s: float) -> Update:
    """Reduction of gradients, optimizer step on its shard, gathering of the new weights, of one stage.

    One all-reduce, or with a sharded optimizer a reduce-scatter and an all-gather; with ZeRO-3 both are part of
    every forward and backward. forward_s, backward_s: of one microbatch, behind which they may run.
    """
    layout, habits, members = site.layout, site.habits, site.groups.data
    held = stage_parameters(site.model, layout, stage)
    count = held.dense + held.experts
    sharded = layout.zero_stage >= 1
    shards = (layout.dp * layout.cp, layout.expert_data) if sharded else (1, 1)
    optimizer = memory_seconds(site.gpu, _ADAM_BYTES * (held.dense / shards[0] + held.experts / shards[1]))
    optimizer += habits.step_host_s / layout.virtual
    if len(members) == 1 or layout.zero_stage == 3:
        return Update(0.0, optimizer, 0.0)
    gradients = count * (habits.reduce_bytes or layout.number_format.gradient_bytes)
    reduce = collective_seconds(site.cluster, "reduce_scatter" if sharded else "all_reduce", gradients, members)
    weights = count * layout.number_format.weight_bytes
    gather = collective_seconds(site.cluster, "all_gather", weights, members) if sharded else 0.0
    return Update(
        max(reduce / _BUCKETS, reduce - backward_s) if habits.reduce_overlap else reduce,
        optimizer,
        max(gather / _BUCKETS, gather - forward_s) if habits.gather_overlap else gather,
    )


def gathered_weights(site: Site, stage: StageLayers, parts: Sequence[Part]) -> list[Part]:
    """ZeRO-3: weights are gathered before each forward and backward, gradients scattered behind it.

    Each gather runs behind the layer before, so what shows is what takes longer than the work, and one layer's gather.
    """
    members = site.groups.data
    if site.layout.zero_stage < 3 or len(members) == 1:
        return []
    held, numbers = stage_parameters(site.model, site.layout, stage), site.layout.number_format
    count = held.dense + held.experts
    gather = collective_seconds(site.cluster, "all_gather", count * numbers.activation_bytes, members)
    scatter = collective_seconds(site.cluster, "reduce_scatter", count * numbers.weight_bytes, members)
    first = 1 / max(1, stage.layers)
    forward = max(gather * first, gather - sum(part.forward_s for part in parts))
    both = gather + scatter
    backward = max(both * first, both - sum(part.backward_s for part in parts))
    return [Part("weight gather and gradient scatter", "data", forward, backward)]
