"""Communication inside a stage's time: of tensor-, context- and expert-parallel groups."""

from __future__ import annotations

from collections.abc import Sequence

from pipesim.costs.clusters.fitted import slowdown_in_step
from pipesim.costs.communication.collectives import collective_seconds
from pipesim.costs.communication.p2p import p2p_seconds
from pipesim.costs.models.model import LayerKind
from pipesim.costs.times.parts import Part
from pipesim.costs.times.site import Site


def group_communication(site: Site, kind: LayerKind, products: Sequence[Part]) -> tuple[Part, ...]:
    """Of one layer and one microbatch on one rank; behind its products some of it may run."""
    return (*_tensor(site, products), *_context(site), *_expert(site, kind))


def vocabulary_communication(site: Site) -> list[Part]:
    """Of a vocabulary spread over pipeline stages, for one microbatch (2411.05288, section 4).

    The last stage's output goes to all ranks, the sums of softmax are all-reduced, and so is the gradient.
    """
    layout, cluster, members = site.layout, site.cluster, site.groups.pipeline
    if layout.vocabulary == "ends" or len(members) == 1:
        return []
    rows = layout.tokens * layout.number_format.activation_bytes
    size, sums = rows * site.model.hidden / layout.sequence_shards, 8.0 * layout.tokens
    once = collective_seconds(cluster, "broadcast", size, members)
    statistics = collective_seconds(cluster, "all_reduce", sums, members)
    back = collective_seconds(cluster, "all_reduce", size, members)
    return [Part("vocabulary sums", "vocabulary", once + statistics, back)]


def _tensor(site: Site, products: Sequence[Part]) -> tuple[Part, ...]:
    """Two all-reduces each way, or with sequence parallelism as many all-gather and reduce-scatter pairs.

    Some frameworks let the backward's reductions run behind the products of weight gradients, and its second gather
    of the input behind those of input gradients (2205.05198, section 4.2.2); then only gathers of gradients show.
    """
    layout, cluster, members = site.layout, site.cluster, site.groups.tensor
    if layout.tp == 1:
        return ()
    size = layout.tokens * site.model.hidden * layout.number_format.activation_bytes
    hides = site.habits.reduce_behind_weights
    behind = sum(part.weight_s for part in products if part.name in _SPLIT_BY_COLUMNS) if hides else 0.0
    if not layout.sequence_parallel:
        once = 2 * collective_seconds(cluster, "all_reduce", size, members) * in_step(site)
        return (Part("tensor-parallel all-reduce", "tensor", once, max(0.0, once - behind)),)
    gather = 2 * collective_seconds(cluster, "all_gather", size, members) * in_step(site)
    scatter = 2 * collective_seconds(cluster, "reduce_scatter", size, members) * in_step(site)
    shown = 1.0 - site.habits.tensor_overlap
    back = gather + max(0.0, scatter - behind)
    return (Part("tensor-parallel gather and scatter", "tensor", (gather + scatter) * shown, back * shown),)


_SPLIT_BY_COLUMNS = ("qkv", "query_up", "key_value_up", "mlp_up", "shared_up")
"""Products whose input gradients are summed over tensor-parallel ranks."""


def in_step(site: Site) -> float:
    """How much slower a tensor-parallel collective is than alone: its ranks arrive apart, and share their GPUs."""
    return slowdown_in_step(site.cluster.span(site.groups.tensor).node.link.kind)


def _context(site: Site) -> tuple[Part, ...]:
    """Ring attention: cp-1 rounds of keys and values, backward also of their gradients; or all-to-all, or gather."""
    model, layout, cluster, members = site.model, site.layout, site.cluster, site.groups.context
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


def _expert(site: Site, kind: LayerKind) -> tuple[Part, ...]:
    """Dispatch and combine of the tokens that visit experts, each way."""
    model, layout = site.model, site.layout
    if layout.ep == 1 or not kind.mixture or model.experts is None:
        return ()
    size = layout.tokens * model.experts.per_token * model.hidden * layout.number_format.activation_bytes
    once = 2 * collective_seconds(site.cluster, "all_to_all", size / layout.sequence_shards, site.groups.expert)
    return (Part("expert all-to-all", "expert", once, once),)
