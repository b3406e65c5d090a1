"""Data parallelism: reduction of gradients, sharded optimizer, gathering of sharded weights, and what overlaps."""

from __future__ import annotations

from collections.abc import Sequence

from pipesim.costs.cluster import Cluster
from pipesim.costs.collectives import collective_seconds
from pipesim.costs.compute import memory_seconds
from pipesim.costs.gpu import Gpu
from pipesim.costs.group_comm import Groups
from pipesim.costs.habits import Habits
from pipesim.costs.layout import Layout
from pipesim.costs.memory import stage_parameters
from pipesim.costs.model import Model
from pipesim.costs.parts import Part
from pipesim.costs.split import StageLayers

_ADAM_BYTES = 42.0  # weight, gradient, both moments read, three written, in fp32; 16-bit weight; norm and zeros
_BUCKETS = 8.0  # of an overlapped reduction the last of so many buckets is left when the backward ends


def reduction_seconds(
    model: Model,
    layout: Layout,
    cluster: Cluster,
    groups: Groups,
    stage: StageLayers,
    habits: Habits,
    backward_s: float,
) -> float:
    """Gradient reduction of one stage that is left after its last backward, which took `backward_s`.

    One all-reduce, or with sharded optimizer states a reduce-scatter. With ZeRO-3 it is part of every backward.
    """
    if len(groups.data) == 1 or layout.zero_stage == 3:
        return 0.0
    held = stage_parameters(model, layout, stage)
    size = (held.dense + held.experts) * (habits.reduce_bytes or layout.number_format.gradient_bytes)
    operation = "all_reduce" if layout.zero_stage == 0 else "reduce_scatter"
    seconds = collective_seconds(cluster, operation, size, groups.data)
    return max(seconds / _BUCKETS, seconds - backward_s) if habits.reduce_overlap else seconds


def optimizer_seconds(
    model: Model,
    layout: Layout,
    cluster: Cluster,
    gpu: Gpu,
    groups: Groups,
    stage: StageLayers,
    habits: Habits,
    forward_s: float,
) -> float:
    """Optimizer step of one stage on its shard, and gathering of the new weights that the next forward cannot hide."""
    held = stage_parameters(model, layout, stage)
    sharded = layout.zero_stage >= 1
    dense_shards = layout.dp * layout.cp if sharded else 1
    expert_shards = layout.expert_data if sharded else 1
    step = memory_seconds(gpu, _ADAM_BYTES * (held.dense / dense_shards + held.experts / expert_shards))
    if not sharded or layout.zero_stage == 3 or len(groups.data) == 1:
        return step
    size = (held.dense + held.experts) * layout.number_format.weight_bytes
    gather = collective_seconds(cluster, "all_gather", size, groups.data)
    return step + (max(gather / _BUCKETS, gather - forward_s) if habits.gather_overlap else gather)


def gathered_weights(
    model: Model, layout: Layout, cluster: Cluster, groups: Groups, stage: StageLayers, parts: Sequence[Part]
) -> list[Part]:
    """ZeRO-3: weights are gathered before each forward and backward, gradients scattered behind it.

    Each gather runs behind the layer before, so what shows is what takes longer than the work, and one layer's gather.
    """
    if layout.zero_stage < 3 or len(groups.data) == 1:
        return []
    held = stage_parameters(model, layout, stage)
    count, numbers = held.dense + held.experts, layout.number_format
    gather = collective_seconds(cluster, "all_gather", count * numbers.activation_bytes, groups.data)
    scatter = collective_seconds(cluster, "reduce_scatter", count * numbers.weight_bytes, groups.data)
    first = 1 / max(1, stage.layers)
    forward = max(gather * first, gather - sum(part.forward_s for part in parts))
    both = gather + scatter
    backward = max(both * first, both - sum(part.backward_s for part in parts))
    return [Part("weight gather and gradient scatter", "data", forward, backward)]
