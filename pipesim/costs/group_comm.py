"""Communication inside a stage's time: of tensor-, context- and expert-parallel groups."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pipesim.costs.cluster import Cluster
from pipesim.costs.collectives import collective_seconds
from pipesim.costs.habits import Habits
from pipesim.costs.layout import Layout
from pipesim.costs.model import LayerKind, Model
from pipesim.costs.p2p import p2p_seconds
from pipesim.costs.parts import Part


@dataclass(frozen=True)
class Groups:
    """Devices of the tensor-, context-, expert- and data-parallel group of one rank (data: with context)."""

    tensor: tuple[int, ...]
    context: tuple[int, ...]
    expert: tuple[int, ...]
    data: tuple[int, ...] = ()


def group_communication(
    model: Model, layout: Layout, cluster: Cluster, groups: Groups, kind: LayerKind, habits: Habits
) -> tuple[Part, ...]:
    """Of one layer and one microbatch on one rank."""
    return (
        *_tensor(model, layout, cluster, groups.tensor, habits),
        *_context(model, layout, cluster, groups.context),
        *_expert(model, layout, cluster, groups.expert, kind),
    )


def _tensor(model: Model, layout: Layout, cluster: Cluster, members: Sequence[int], habits: Habits) -> tuple[Part, ...]:
    """Two all-reduces each way, or with sequence parallelism as many all-gather and reduce-scatter pairs.

    Then the backward also gathers the inputs again for the weight gradients (2205.05198, section 4.2.2), which hides
    behind the products of the input gradients.
    """
    if layout.tp == 1:
        return ()
    size = layout.tokens * model.hidden * layout.number_format.activation_bytes
    shown = 1.0 - habits.tensor_overlap
    if not layout.sequence_parallel:
        once = 2 * collective_seconds(cluster, "all_reduce", size, members)
        return (Part("tensor-parallel all-reduce", "tensor", once, once),)
    gather = collective_seconds(cluster, "all_gather", size, members)
    scatter = collective_seconds(cluster, "reduce_scatter", size, members)
    once = 2 * (gather + scatter) * shown
    return (Part("tensor-parallel gather and scatter", "tensor", once, once),)


def _context(model: Model, layout: Layout, cluster: Cluster, members: Sequence[int]) -> tuple[Part, ...]:
    """Ring attention: cp-1 rounds of keys and values, backward also of their gradients; or all-to-all, or gather."""
    if layout.cp == 1:
        return ()
    width = layout.number_format.activation_bytes
    keys_values = 2 * layout.tokens * model.key_value_width * width / layout.tp
    if layout.context_comm == "ring":
        once = (layout.cp - 1) * p2p_seconds(cluster, members[0], members[1], keys_values)
        return (Part("context-parallel ring", "context", once, 2 * once),)
    if layout.context_comm == "all-gather":
        once = collective_seconds(cluster, "all_gather", keys_values * layout.cp, members)
        back = collective_seconds(cluster, "reduce_scatter", keys_values * layout.cp, members)
        return (Part("context-parallel all-gather", "context", once, once + back),)
    heads = layout.tokens * (model.query_width * 2) * width / layout.tp + keys_values
    once = collective_seconds(cluster, "all_to_all", heads, members)
    return (Part("context-parallel all-to-all", "context", once, once),)


def _expert(
    model: Model, layout: Layout, cluster: Cluster, members: Sequence[int], kind: LayerKind
) -> tuple[Part, ...]:
    """Dispatch and combine of the tokens that visit experts, each way."""
    if layout.ep == 1 or not kind.mixture or model.experts is None:
        return ()
    size = layout.tokens * model.experts.per_token * model.hidden * layout.number_format.activation_bytes
    once = 2 * collective_seconds(cluster, "all_to_all", size / layout.sequence_shards, members)
    return (Part("expert all-to-all", "expert", once, once),)
