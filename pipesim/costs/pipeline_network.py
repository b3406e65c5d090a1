"""Routes between the pipeline ranks of one replica, and the reduction of gradients over replicas."""

from __future__ import annotations

from collections.abc import Sequence

from pipesim.costs.cluster import Cluster
from pipesim.costs.collectives import collective_seconds
from pipesim.costs.groups import rank_groups
from pipesim.costs.layout import Layout
from pipesim.costs.network import Link, Network, Route
from pipesim.costs.p2p import p2p_seconds

_HOST_SHARE = 0.8  # of the host link's nominal bandwidth that pinned copies reach (estimate)


def pipeline_network(
    cluster: Cluster, layout: Layout, devices: Sequence[int], message_bytes: float, *, contention: bool = True
) -> Network:
    """Routes between the devices of one pipeline.

    Every device of a node sends at the same time in its own pipeline, so where devices share a network
    port a transfer gets its part of it. The bandwidth is that which a message of this size was measured
    to reach.
    """
    links: dict[str, Link] = {}
    order: dict[str, int] = {}
    routes = {}
    for source, first in enumerate(devices):
        for target, second in enumerate(devices):
            if source != target:
                routes[source, target] = _route(cluster, first, second, message_bytes, links, order, contention)
    return Network(routes=routes, host=_host(cluster, devices[0]), links=tuple(links.values()))


def _route(
    cluster: Cluster,
    first: int,
    second: int,
    size: float,
    links: dict[str, Link],
    order: dict[str, int],
    contention: bool,
) -> Route:
    way = cluster.route(first, second)
    seconds = p2p_seconds(cluster, first, second, size)
    reached = size / (seconds - way.latency_s) if seconds > way.latency_s else way.bytes_per_s
    share = 1.0
    if way.level != "node":
        node = cluster.node_of(first)
        share = min(1.0, node.ports / node.gpus)
    if not contention:
        return Route(way.latency_s, min(reached, way.bytes_per_s * share))
    for link in way.links:
        if link.name not in links:
            order[link.name] = len(links)
            links[link.name] = Link(link.name, link.bytes_per_s * share)
    return Route(way.latency_s, min(reached, way.bytes_per_s * share), tuple(order[link.name] for link in way.links))


def _host(cluster: Cluster, device: int) -> Route:
    rate = cluster.gpu_of(device).host_bytes_per_s
    return Route(10e-6, rate * _HOST_SHARE)


def gradient_sync_seconds(
    cluster: Cluster, layout: Layout, device: int, parameters: float, gradient_bytes: float, weight_bytes: float
) -> float:
    """Reduction of one stage's gradients over its data-parallel group.

    Without a sharded optimizer one all-reduce; with one (ZeRO 1 and up) a reduce-scatter of gradients and
    an all-gather of weights. ZeRO-3's gathers inside the step are part of the stage's time elsewhere.
    """
    groups = rank_groups(layout, "dp", "cp")
    members = tuple(int(member) for member in groups[(groups == device).any(axis=1)][0])
    if len(members) == 1:
        return 0.0
    if layout.zero_stage == 0:
        return collective_seconds(cluster, "all_reduce", parameters * gradient_bytes, members)
    scatter = collective_seconds(cluster, "reduce_scatter", parameters * gradient_bytes, members)
    return scatter + collective_seconds(cluster, "all_gather", parameters * weight_bytes, members)
