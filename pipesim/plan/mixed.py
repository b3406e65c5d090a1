"""Clusters of different nodes: which nodes hold which stages, and how many layers each stage gets.

A stage's block is the GPUs of all its replicas, tensor- and context-parallel ranks, which sit together. They wait
for each other, so a block is as fast as its slowest GPU; nodes are ordered so that a block has as few kinds as can
be and its slowest GPU first, which the estimate looks at.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, islice, permutations

import numpy as np

from pipesim.costs.clusters.cluster import Cluster, Node
from pipesim.costs.communication.p2p import p2p_seconds
from pipesim.costs.layouts.frameworks import closest_framework
from pipesim.costs.memory import message_bytes
from pipesim.plan.bounds import held, times_on
from pipesim.plan.partition import NoPartition, Partition, Problem, partition
from pipesim.plan.request import Request
from pipesim.plan.space import Choice, layout_of

_MOST_ORDERS = 60  # of nodes that hold several stages each
_MOST_FREE = 50_000  # states of the dynamic programme that finds the order, too


@dataclass(frozen=True)
class Fit:
    """The order of the cluster's nodes, and the layers of each stage."""

    nodes: tuple[int, ...]
    layers: tuple[int, ...]
    step_s: float


def arranged(cluster: Cluster, nodes: Sequence[int]) -> Cluster:
    """The same cluster with its nodes in another order; as it is where none is given."""
    if not nodes:
        return cluster
    return replace(cluster, nodes=tuple(cluster.nodes[index] for index in nodes))


def slowest_first(cluster: Cluster) -> tuple[int, ...]:
    """Nodes of one kind together, those of slow GPUs first; as they are where the network has several levels, in
    which their places matter."""
    if len(cluster.levels) > 1:
        return ()
    return tuple(
        sorted(range(len(cluster.nodes)), key=lambda index: (_speed(cluster.nodes[index]), cluster.nodes[index].name))
    )


def _speed(node: Node) -> float:
    return float(node.gpu.peak("bf16"))


def blocks(cluster: Cluster, stages: int) -> list[tuple[Node, ...]]:
    """The nodes that hold each stage's GPUs, whole or in part."""
    size = cluster.devices // stages
    return [
        tuple(cluster.nodes[index] for index in range(
            cluster.node_index(stage * size), cluster.node_index((stage + 1) * size - 1) + 1
        ))
        for stage in range(stages)
    ]  # fmt: skip


def looks_right(cluster: Cluster, stages: int) -> bool:
    """Whether the first GPU of each block, which stands for the block, is its slowest."""
    return all(_speed(block[0]) == min(map(_speed, block)) for block in blocks(cluster, stages))


def fitted(request: Request, choice: Choice) -> Fit | None:
    """The best order of nodes and split of layers for a choice with a stage a rank; None where none fits."""
    best: Fit | None = None
    for nodes, free in _orders(request.cluster, choice.pp):
        found = _fit(request, choice, nodes, free)
        if found is not None and (best is None or found.step_s < best.step_s):
            best = found
    return best


def _orders(cluster: Cluster, stages: int) -> Iterator[tuple[tuple[int, ...], bool]]:
    """Orders of nodes to try, and whether blocks may still change places within each."""
    usual = slowest_first(cluster) or tuple(range(len(cluster.nodes)))
    size = cluster.devices // stages
    whole = len(cluster.levels) <= 1 and all(_boundaries(cluster, usual, size))
    states = np.prod([count + 1 for count in Counter(map(_kind, blocks(arranged(cluster, usual), stages))).values()])
    if whole and states <= _MOST_FREE:
        yield usual, True
        return
    yield usual, False
    if len(cluster.levels) <= 1:
        yield usual[::-1], False
        by_kind = [tuple(group) for _, group in groupby(usual, key=lambda index: cluster.nodes[index].name)]
        for order in islice(permutations(by_kind), _MOST_ORDERS):
            yield tuple(index for group in order for index in group), False


def _boundaries(cluster: Cluster, nodes: Sequence[int], size: int) -> Iterator[bool]:
    """Of each boundary between blocks, whether it is one between nodes."""
    starts = set(arranged(cluster, nodes).starts)
    return (place in starts for place in range(0, cluster.devices, size))


def _kind(block: tuple[Node, ...]) -> tuple[tuple[str, int], ...]:
    return tuple(sorted(Counter(node.name for node in block).items()))


def _fit(request: Request, choice: Choice, nodes: tuple[int, ...], free: bool) -> Fit | None:
    cluster = arranged(request.cluster, nodes)
    if not looks_right(cluster, choice.pp):
        return None
    kinds = [_kind(block) for block in blocks(cluster, choice.pp)]
    names = list(dict.fromkeys(kinds))
    order = tuple(names.index(kind) for kind in kinds)
    try:
        found = partition(_problem(replace(request, cluster=cluster), choice, order, free))
    except NoPartition:
        return None
    return Fit(_nodes_of(cluster, nodes, found, order, choice.pp), found.layers, found.step_s)


def _nodes_of(
    cluster: Cluster, nodes: tuple[int, ...], found: Partition, order: tuple[int, ...], stages: int
) -> tuple[int, ...]:
    """The nodes in the order of the stages that were found; blocks of one kind keep theirs."""
    if found.kinds == order:
        return nodes
    size = cluster.devices // stages
    waiting: dict[int, list[range]] = {}
    for stage, kind in enumerate(order):
        first, last = cluster.node_index(stage * size), cluster.node_index((stage + 1) * size - 1)
        waiting.setdefault(kind, []).append(range(first, last + 1))
    return tuple(nodes[index] for kind in found.kinds for index in waiting[kind].pop(0))


def _problem(request: Request, choice: Choice, order: tuple[int, ...], free: bool) -> Problem:
    """What the dynamic programme has to know; kinds are numbered by their first block."""
    cluster, size = request.cluster, request.cluster.devices // choice.pp
    first = [order.index(kind) * size for kind in range(max(order) + 1)]
    layout = layout_of(request, choice)
    least = [times_on(request, choice.core, device) for device in first]
    bytes_of = held(request, choice)
    framework = closest_framework(request.framework)
    message = message_bytes(request.model, layout)
    limits = np.array([
        min(node.gpu.memory_bytes for node in blocks(cluster, choice.pp)[order.index(kind)])
        for kind in range(len(first))
    ], np.float64)  # fmt: skip
    if request.max_memory_bytes is not None:
        limits = np.minimum(limits, request.max_memory_bytes)
    return Problem(
        seconds=np.array([one.layers.sum(axis=1) for one in least]),
        first_s=np.array([one.embedding.sum() for one in least]),
        last_s=np.array([one.head.sum() for one in least]),
        hop_s=np.array([[2 * _hop(cluster, one, other, message) for other in first] for one in first]),
        count=np.bincount(order),
        microbatches=layout.microbatches,
        state_bytes=bytes_of.layers[:, 0],
        stored_bytes=bytes_of.layers[:, 1],
        end_bytes=np.array([bytes_of.embedding, bytes_of.head]),
        limit_bytes=(limits - framework.overhead_bytes) / (1 + framework.fragments) - bytes_of.working,
        order=() if free else order,
    )


def _hop(cluster: Cluster, one: int, other: int, message: float) -> float:
    return p2p_seconds(cluster, one, other, message) if one != other else 0.0
