"""The `Cluster` of one row of a table of runs: GPU, nodes and network, matched leniently."""

from __future__ import annotations

from functools import lru_cache

from pipesim.costs.clusters.cluster import Cluster
from pipesim.costs.clusters.cluster_catalogue import MOST_NODES, plain_cluster
from pipesim.costs.clusters.cluster_parts import BadCluster
from pipesim.costs.clusters.gpu import Gpu, find_gpu
from pipesim.costs.rows import Row, count_of, words_of

_FABRICS = (
    ("efa", "efa-busy"),  # a cluster in use; idle ones are `efa` in cluster files
    ("roce", "roce"),
    ("omni", "omni-path"),
    ("opa", "omni-path"),
    ("ethernet", "ethernet"),
    ("tcp", "ethernet"),
    ("infiniband", "infiniband"),
    ("ib", "infiniband"),
)
_NODE_GBIT_PER_S = {"volta": 400.0, "ampere": 1600.0, "hopper": 3200.0, "blackwell": 3200.0}
"""The vendor's own 8-GPU node: 4 x 100, 8 x 200, 8 x 400, 8 x 400 Gb/s."""
_RACK = 72
_MOST_GPUS = 8 * MOST_NODES
_SLOWEST_GBIT, _FASTEST_GBIT = 1e-3, 1e9


def cluster_of_row(row: Row) -> tuple[Cluster, dict[str, object]]:
    """The cluster, and what the row did not say of it. Raises UnknownName for a GPU, BadRow and BadCluster for
    numbers."""
    assumed: dict[str, object] = {}
    gpu = find_gpu(str(row.get("gpu") or ""))
    gpus = count_of(row, "num_gpus", _degrees(row))
    if gpus > _MOST_GPUS:
        raise BadCluster("of the row", f"num_gpus={gpus} must be at most {_MOST_GPUS}")
    fabric = words_of(row, "fabric")
    per_node = count_of(row, "gpus_per_node", _RACK if gpu.key.startswith("gb") else 8)
    if row.get("gpus_per_node") is None:
        assumed["gpus_per_node"] = per_node
    if "nvlink-domain" in fabric:
        domain = "".join(letter for letter in fabric.partition("domain")[2] if letter.isdecimal())
        per_node = max(per_node, int(domain or _RACK))
    per_node = min(per_node, gpus)
    while gpus % per_node:  # a node that is not full
        per_node -= 1
    nodes = gpus // per_node
    kind = next((kind for word, kind in _FABRICS if word in fabric), None)
    rate = row.get("node_network_gbit_s")
    known = isinstance(rate, int | float) and not isinstance(rate, bool) and rate > 0
    if isinstance(rate, int | float) and known and not _SLOWEST_GBIT <= rate <= _FASTEST_GBIT:
        raise BadCluster("of the row", f"node_network_gbit_s={rate} must be {_SLOWEST_GBIT:g} to {_FASTEST_GBIT:g}")
    whole = _usual(gpu, per_node)
    if isinstance(rate, int | float) and known:
        whole = rate * max(1.0, per_node / count_of(row, "gpus_per_node", per_node))
    if nodes > 1 and kind is None:
        assumed["fabric"] = "infiniband"
    if nodes > 1 and not known:
        assumed["node_network_gbit_s"] = whole
    return _cluster(gpu, nodes, per_node, kind or "infiniband", whole), assumed


def _usual(gpu: Gpu, per_node: int) -> float:
    return _NODE_GBIT_PER_S.get(gpu.architecture, 400.0) * per_node / 8


def _degrees(row: Row) -> int:
    total = 1
    for axis in ("tp", "pp", "dp", "cp"):
        total *= count_of(row, axis, 1)
    return total


@lru_cache(maxsize=1024)
def _cluster(gpu: Gpu, nodes: int, per_node: int, kind: str, gbit_per_s: float) -> Cluster:
    """One object for equal clusters, so that what is cached by cluster is found again."""
    return plain_cluster(gpu, nodes=nodes, gpus_per_node=per_node, network=kind, node_gbit_per_s=gbit_per_s)
