"""Routes between the pipeline ranks of one replica."""

from __future__ import annotations

from collections.abc import Sequence

from pipesim.costs.clusters.cluster import Cluster
from pipesim.costs.communication.p2p import p2p_seconds
from pipesim.costs.network import Link, Network, Route

_HOST_SHARE = 0.8  # of the host link's nominal bandwidth that pinned copies reach (estimate)


def pipeline_network(
    cluster: Cluster, devices: Sequence[int], message_bytes: float, *, host_s: float = 0.0, contention: bool = True
) -> Network:
    """Routes between the devices of one pipeline.

    Every device of a node sends at the same time in its own pipeline, so where devices share a network
    port a transfer gets its part of it. The bandwidth is that which a message of this size was measured
    to reach. host_s: what the framework adds to the latency of each message.
    """
    links: dict[str, Link] = {}
    order: dict[str, int] = {}
    routes = {}
    for source, first in enumerate(devices):
        for target, second in enumerate(devices):
            if source != target:
                routes[source, target] = _route(cluster, first, second, message_bytes, links, order, host_s, contention)
    return Network(routes=routes, host=_host(cluster, devices[0]), links=tuple(links.values()))


def _route(
    cluster: Cluster,
    first: int,
    second: int,
    size: float,
    links: dict[str, Link],
    order: dict[str, int],
    host_s: float,
    contention: bool,
) -> Route:
    way = cluster.route(first, second)
    seconds = p2p_seconds(cluster, first, second, size)
    reached = size / (seconds - way.latency_s) if seconds > way.latency_s else way.bytes_per_s
    share = 1.0
    if way.level != "node":
        node = cluster.node_of(first)
        share = min(1.0, node.ports / node.gpus)
    latency_s = way.latency_s + host_s
    if not contention:
        return Route(latency_s, min(reached, way.bytes_per_s * share))
    for link in way.links:
        if link.name not in links:
            order[link.name] = len(links)
            links[link.name] = Link(link.name, link.bytes_per_s * share)
    return Route(latency_s, min(reached, way.bytes_per_s * share), tuple(order[link.name] for link in way.links))


def _host(cluster: Cluster, device: int) -> Route:
    rate = cluster.gpu_of(device).host_bytes_per_s
    return Route(10e-6, rate * _HOST_SHARE)
