"""Clusters from entries as catalogues and files write them: links, nodes, levels of network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from math import inf
from typing import Any

from pipesim.costs.clusters.cluster import Cluster, Level, Node, Wire
from pipesim.costs.clusters.fitted import fabric
from pipesim.costs.clusters.gpu import Gpu, find_gpu
from pipesim.errors import PipesimError

MAX_DEVICES = 1 << 20


@dataclass(eq=False)
class BadCluster(PipesimError):
    """A cluster that cannot be built from what was given."""

    source: str
    problem: str

    def __str__(self) -> str:
        return f"cluster {self.source}: {self.problem}"


def wire(kind: str, bytes_per_s: float, **given: float | None) -> Wire:
    """A link of one kind with the fitted parameters of that kind, save those `given`."""
    values = {name: value for name, value in asdict(fabric(kind)).items() if name != "kind"}
    values |= {name: value for name, value in given.items() if value is not None}
    return Wire(kind=kind, bytes_per_s=bytes_per_s, **values)


def node_of(name: str, entry: Mapping[str, Any], *, gpus: int | None = None, gpu: Gpu | None = None) -> Node:
    """A `Node` from an entry written as in `clusters.yaml`, `gpus` of its GPUs used."""
    device = gpu or find_gpu(entry["gpu"])
    have = entry["gpus"]
    used = have if gpus is None else gpus
    if not 1 <= used <= have:
        raise BadCluster(repr(name), f"a node has {have} GPUs, so 1 to {have} of them can be used, not {used}")
    total = entry["nics"] * entry["nic_gbit_per_s"] / 8 * 1e9
    ports = min(entry["nics"], used)  # a GPU's several NICs act as one port; unused GPUs leave theirs to the others
    link_rate = entry.get("link_gb_per_s")
    return Node(
        name=name,
        gpu=device,
        gpus=used,
        link=wire(
            entry.get("link_kind") or device.link.kind,
            link_rate * 1e9 if link_rate else device.link.bytes_per_s,
            latency_s=_seconds(entry.get("link_latency_us")),
            efficiency=entry.get("link_efficiency"),
        ),
        port=wire(
            entry["network"],
            total * (used / have if used < have else 1) / ports,
            latency_s=_seconds(entry.get("latency_us")),
            efficiency=entry.get("efficiency"),
        ),
        ports=ports,
    )


def cluster_of(name: str, nodes: list[Node], levels: Sequence[Mapping[str, Any]] | None = None) -> Cluster:
    """A cluster of `nodes` under `levels`, written as in `clusters.yaml`; without any, one flat network."""
    if not nodes:
        raise BadCluster(repr(name), "needs at least 1 node, e.g. dgx-h100:1")
    if sum(node.gpus for node in nodes) > MAX_DEVICES:
        raise BadCluster(repr(name), f"more than {MAX_DEVICES} GPUs")
    built = _levels(repr(name), nodes, levels or [{"name": "network"}])
    return Cluster(name=name, nodes=tuple(nodes), levels=tuple(built))


def _levels(source: str, nodes: list[Node], entries: Sequence[Mapping[str, Any]]) -> list[Level]:
    built: list[Level] = []
    for entry in entries:
        below = built[-1].nodes if built else 1
        size = min(entry.get("nodes") or len(nodes), len(nodes))
        if size % below and size < len(nodes):
            raise BadCluster(source, f"level {entry['name']}: {size} nodes are not whole groups of {below}")
        built.append(_level(entry, size, below, nodes[0]))
    if built[-1].nodes < len(nodes):
        top = built[-1]
        rule = "leave out its 'nodes' to hold all"
        raise BadCluster(source, f"the last level {top.name} holds {top.nodes} of {len(nodes)} nodes; {rule}")
    return built


def _level(entry: Mapping[str, Any], size: int, below: int, node: Node) -> Level:
    per_node = entry.get("gbit_per_s_per_node")
    node_rate = per_node / 8 * 1e9 if per_node else node.network_bytes_per_s
    capacity = entry.get("gbit_per_s")
    return Level(
        name=entry["name"],
        nodes=size,
        uplink=wire(
            entry.get("kind") or node.port.kind,
            capacity / 8 * 1e9 if capacity else node_rate * below,
            latency_s=_seconds(entry.get("latency_us")),
            efficiency=entry.get("efficiency"),
        ),
        flow_bytes_per_s=node_rate if per_node else inf,
    )


def _seconds(microseconds: float | None) -> float | None:
    return None if microseconds is None else microseconds * 1e-6
