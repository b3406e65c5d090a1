"""What a model runs on: nodes of GPUs, and nested levels of network between them.

Devices are numbered node by node. Two devices of one node talk over the node's own link; two of different
nodes over their network ports and over every level up to the first that holds both. Each hop names the
links it shares, so that an engine can divide their bandwidth.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import accumulate

from pipesim.costs.clusters.gpu import Gpu
from pipesim.costs.network import Link
from pipesim.errors import PipesimError


@dataclass(eq=False)
class NoSuchDevice(PipesimError):
    """A device index outside the cluster."""

    device: int
    cluster: str
    devices: int

    def __str__(self) -> str:
        return f"cluster {self.cluster} has devices 0 to {self.devices - 1}, not {self.device}"


@dataclass(eq=False)
class MixedGpus(PipesimError):
    """One GPU asked for where nodes differ."""

    cluster: str
    gpus: tuple[str, ...]

    def __str__(self) -> str:
        return f"cluster {self.cluster} mixes {', '.join(self.gpus)}; say which device's GPU is meant"


@dataclass(frozen=True, kw_only=True)
class Wire:
    """One kind of link and what messages reach on it."""

    kind: str
    """Key of `fabrics` in `catalog/fitted.yaml`: "nvlink4", "infiniband", …"""
    bytes_per_s: float
    """Nominal, one direction."""
    latency_s: float
    """Of one send/recv, seconds."""
    efficiency: float
    """Share of the bandwidth that a long send/recv reaches."""
    bus: float
    """Factor on the bus bandwidth in NCCL's model of collectives."""
    hops: float
    """Factor on the hop latencies in NCCL's model of collectives."""

    @property
    def reached_bytes_per_s(self) -> float:
        """What a long send/recv gets."""
        return self.bytes_per_s * self.efficiency


@dataclass(frozen=True, kw_only=True, eq=False)
class Node:
    """Some GPUs of one kind with a link among them and ports to the network."""

    name: str
    gpu: Gpu
    gpus: int
    link: Wire
    """Between devices of the node; bandwidth of one device."""
    port: Wire
    """One network port."""
    ports: int
    """Ports used by `gpus / ports` devices each; never more than `gpus`."""

    @property
    def network_bytes_per_s(self) -> float:
        """All ports together, one direction, nominal."""
        return self.ports * self.port.bytes_per_s


@dataclass(frozen=True, kw_only=True)
class Level:
    """One level of network above the node."""

    name: str
    nodes: int
    """Nodes in one group of this level."""
    uplink: Wire
    """From one group of the level below (at the lowest level: a node) into this level, its whole capacity."""
    flow_bytes_per_s: float
    """The most that one transfer gets."""


@dataclass(frozen=True, kw_only=True)
class DeviceRoute:
    """The way from one device to another: time of a message alone on it = latency_s + bytes / bytes_per_s."""

    level: str
    """Name of the widest level crossed: "node", "network", …"""
    kind: str
    """Kind of the slowest link on the way."""
    latency_s: float
    bytes_per_s: float
    links: tuple[Link, ...]
    """What it shares with other messages, with the bandwidth that all of them together reach."""


@dataclass(frozen=True, kw_only=True)
class Span:
    """Where the members of a group sit, as far as a collective's time depends on it."""

    ranks: int
    nodes: int
    """Nodes that hold a member."""
    per_node: int
    """Most members in one node."""
    level: int
    """Index in `Cluster.levels` of the lowest level that holds all; -1: one node."""
    node: Node
    """The slowest node among them."""
    bytes_per_s: float
    """Into the network for all members of one node together, when every device of the node does the same."""
    bus: float
    """`Wire.bus` of the worst link between nodes; 1 inside one node."""
    hops: float
    """`Wire.hops` of the worst link between nodes; 1 inside one node."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Cluster:
    """Nodes in order, and the levels of network above them, lowest first; the last one holds all nodes."""

    name: str
    nodes: tuple[Node, ...]
    levels: tuple[Level, ...]

    @cached_property
    def starts(self) -> tuple[int, ...]:
        """First device of each node, and the number of devices at the end."""
        return (0, *accumulate(node.gpus for node in self.nodes))

    @property
    def devices(self) -> int:
        """GPUs in all nodes together."""
        return self.starts[-1]

    @cached_property
    def gpus(self) -> tuple[Gpu, ...]:
        """The kinds of GPU in it, each once, in order of appearance."""
        return tuple(dict.fromkeys(node.gpu for node in self.nodes))

    @property
    def gpu(self) -> Gpu:
        """Its GPU, where all nodes have the same one."""
        if len(self.gpus) > 1:
            raise MixedGpus(self.name, tuple(gpu.name for gpu in self.gpus))
        return self.gpus[0]

    def node_index(self, device: int) -> int:
        """Index of the node that holds `device`."""
        if not 0 <= device < self.devices:
            raise NoSuchDevice(device, self.name, self.devices)
        return bisect_right(self.starts, device) - 1

    def node_of(self, device: int) -> Node:
        """The node that holds `device`."""
        return self.nodes[self.node_index(device)]

    def gpu_of(self, device: int) -> Gpu:
        """The GPU that `device` is."""
        return self.node_of(device).gpu

    def level_of(self, first_node: int, second_node: int) -> int:
        """Index of the lowest level that holds both nodes; -1 where they are one node."""
        if first_node == second_node:
            return -1
        return next(
            index for index, level in enumerate(self.levels) if first_node // level.nodes == second_node // level.nodes
        )

    def route(self, source: int, target: int) -> DeviceRoute:
        """The way of a message from one device to another."""
        return _route(self, source, target)

    def span(self, members: Iterable[int]) -> Span:
        """Where a group's members sit."""
        return _span(self, tuple(members))


@lru_cache(maxsize=1 << 16)
def _route(cluster: Cluster, source: int, target: int) -> DeviceRoute:
    start, end = cluster.node_index(source), cluster.node_index(target)
    if start == end:
        wire = cluster.nodes[start].link
        rate = wire.reached_bytes_per_s
        ends = Link(name=f"gpu{source}/out", bytes_per_s=rate), Link(name=f"gpu{target}/in", bytes_per_s=rate)
        return DeviceRoute(level="node", kind=wire.kind, latency_s=wire.latency_s, bytes_per_s=rate, links=ends)
    top = cluster.level_of(start, end)
    wires = [cluster.nodes[start].port, cluster.nodes[end].port]
    links = [_port(cluster, start, source, "out"), _port(cluster, end, target, "in")]
    rates = [wire.reached_bytes_per_s for wire in wires]
    for below, level in zip(cluster.levels[:top], cluster.levels[1 : top + 1], strict=True):
        wires.append(level.uplink)
        rates.append(level.flow_bytes_per_s * level.uplink.efficiency)
        links.append(_uplink(below, level, start // below.nodes, "out"))
        links.append(_uplink(below, level, end // below.nodes, "in"))
    rate = min(*rates, *(link.bytes_per_s for link in links))
    return DeviceRoute(
        level=cluster.levels[top].name,
        kind=wires[rates.index(min(rates))].kind,
        latency_s=max(wire.latency_s for wire in wires),
        bytes_per_s=rate,
        links=tuple(links),
    )


def _port(cluster: Cluster, node_index: int, device: int, way: str) -> Link:
    node = cluster.nodes[node_index]
    port = (device - cluster.starts[node_index]) * node.ports // node.gpus
    return Link(name=f"node{node_index}/port{port}/{way}", bytes_per_s=node.port.reached_bytes_per_s)


def _uplink(below: Level, level: Level, group: int, way: str) -> Link:
    return Link(name=f"{below.name}{group}/uplink/{way}", bytes_per_s=level.uplink.reached_bytes_per_s)


@lru_cache(maxsize=1 << 14)
def _span(cluster: Cluster, members: tuple[int, ...]) -> Span:
    counts: dict[int, int] = {}
    for member in members:
        index = cluster.node_index(member)
        counts[index] = counts.get(index, 0) + 1
    top = cluster.level_of(min(counts), max(counts))
    nodes = {index: cluster.nodes[index] for index in counts}
    shares = [node.network_bytes_per_s * counts[index] / node.gpus for index, node in nodes.items()]
    wires = [node.port for node in nodes.values()]
    for below, level in zip(cluster.levels[: max(top, 0)], cluster.levels[1 : top + 1], strict=True):
        gpus_below = sum(node.gpus for node in cluster.nodes[: below.nodes])
        shares.append(level.uplink.bytes_per_s * max(counts.values()) / gpus_below)
        wires.append(level.uplink)
    return Span(
        ranks=len(members),
        nodes=len(counts),
        per_node=max(counts.values()),
        level=top,
        node=min(nodes.values(), key=lambda node: node.link.bytes_per_s),
        bytes_per_s=min(shares),
        bus=min(wire.bus for wire in wires) if top >= 0 else 1.0,
        hops=max(wire.hops for wire in wires) if top >= 0 else 1.0,
    )
