"""Builds a cluster from a preset with a count ("dgx-h100:8"), a YAML or TOML file, or a few numbers."""

from __future__ import annotations

import re
from pathlib import Path

from pipesim.costs.catalog_files import read_catalogue, unknown
from pipesim.costs.clusters.cluster import Cluster, Node
from pipesim.costs.clusters.cluster_parts import BadCluster, cluster_of, node_of, wire
from pipesim.costs.clusters.gpu import Gpu, find_gpu

_COUNT = re.compile(r"(?P<nodes>\d{1,18})(x(?P<gpus>\d{1,18}))?", re.ASCII)
MOST_NODES = 1_000_000


def cluster_names() -> tuple[str, ...]:
    """Names of the presets: every node of the catalogue, and the clusters that mix levels."""
    content = read_catalogue("clusters.yaml")
    return (*content["nodes"], *content["clusters"])


def load_cluster(text: str | Path) -> Cluster:
    """Cluster of "NAME" (one node), "NAME:NODES", "NAME:NODESxGPUS" (so many GPUs of each node), or a file.

    A file ends in .yaml, .yml or .toml; `docs/describing-clusters.md` describes it.
    """
    if Path(text).suffix in (".yaml", ".yml", ".toml"):
        from pipesim.costs.clusters.cluster_schema import read_cluster_file  # pydantic is slow to import

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
    _check_nodes(name, nodes)
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
    _check_nodes(device.key, nodes)
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


def _check_nodes(name: str, nodes: int) -> None:
    """Raises BadCluster for a list of nodes that would not fit in memory."""
    if nodes > MOST_NODES:
        raise BadCluster(repr(f"{name}:{nodes}"), f"may have at most {MOST_NODES} nodes, e.g. {name}:8")
