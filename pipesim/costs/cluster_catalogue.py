"""Builds a cluster from a preset with a count ("dgx-h100:8"), a YAML or TOML file, or a few numbers."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from math import inf
from pathlib import Path
from typing import Any

from pipesim.costs.catalog_files import read_catalogue, unknown
from pipesim.costs.cluster import Cluster, Level, Node, Wire
from pipesim.costs.fitted import fabric
from pipesim.costs.gpu import Gpu, find_gpu
from pipesim.errors import PipesimError

_COUNT = re.compile(r"(?P<nodes>\d+)(x(?P<gpus>\d+))?")
MAX_DEVICES = 1 << 20


@dataclass(eq=False)
class BadCluster(PipesimError):
    """A cluster that cannot be built from what was given."""

    source: str
    problem: str

    def __str__(self) -> str:
        return f"cluster {self.source}: {self.problem}"


def cluster_names() -> tuple[str, ...]:
    """Names of the presets: every node of the catalogue, and the clusters that mix levels."""
    content = read_catalogue("clusters.yaml")
    return (*content["nodes"], *content["clusters"])


def load_cluster(text: str | Path) -> Cluster:
    """Cluster of "NAME" (one node), "NAME:NODES", "NAME:NODESxGPUS" (so many GPUs of each node), or a file.

    A file ends in .yaml, .yml or .toml; `docs/clusters.md` describes it.
    """
    if Path(text).suffix in (".yaml", ".yml", ".toml"):
        from pipesim.costs.cluster_schema import read_cluster_file  # pydantic is slow to import

        return read_cluster_file(Path(text))
    name, colon, count = str(text).strip().partition(":")
    match = _COUNT.fullmatch(count) if colon else _COUNT.fullmatch("1")
    if match is None:
        rule = "the count after ':' is of nodes, e.g. dgx-h100:8, or dgx-h100:8x4 for 4 GPUs of each"
        raise BadCluster(repr(text), rule)
    return preset(name.lower(), nodes=int(match["nodes"]), gpus=int(match["gpus"]) if match["gpus"] else None)


def preset(name: str, *, nodes: int, gpus: int | None = None) -> Cluster:
    """`nodes` nodes of a preset, `gpus` of each where not all are used."""
    content = read_catalogue("clusters.yaml")
    if name in content["nodes"]:
        node = node_of(name, content["nodes"][name], gpus=gpus)
        label = f"{name}:{nodes}" if gpus is None else f"{name}:{nodes}x{gpus}"
        return cluster_of(label, [node] * nodes)
    if name not in content["clusters"]:
        raise unknown("cluster", name, cluster_names())
    entry = content["clusters"][name]
    node = node_of(entry["node"], content["nodes"][entry["node"]], gpus=gpus)
    return cluster_of(f"{name}:{nodes}", [node] * nodes, entry["levels"])


def plain_cluster(
    gpu: Gpu | str,
    *,
    nodes: int,
    gpus_per_node: int,
    network: str = "infiniband",
    node_gbit_per_s: float,
    ports: int | None = None,
) -> Cluster:
    """Equal nodes from a few numbers; `node_gbit_per_s` is a node's whole network, one direction."""
    device = find_gpu(gpu) if isinstance(gpu, str) else gpu
    ports = min(ports or gpus_per_node, gpus_per_node)
    node = Node(
        name=device.key,
        gpu=device,
        gpus=gpus_per_node,
        link=wire(device.link.kind, device.link.bytes_per_s),
        port=wire(network, node_gbit_per_s / 8 * 1e9 / ports),
        ports=ports,
    )
    return cluster_of(f"{device.key} {nodes}x{gpus_per_node}", [node] * nodes)


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
