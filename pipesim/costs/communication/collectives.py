"""How long a collective takes among devices of a cluster.

NCCL's own model (`nccl.py`) says which algorithm and protocol run and about how long. Inside a node it is
multiplied by measured over modelled time, interpolated in size and number of ranks (log-log), where a table of
that link was measured; over the network by one bandwidth factor and one latency factor a kind of fabric. The
members' places in the cluster decide which links they use.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import cache, lru_cache
from itertools import pairwise
from math import log

from pipesim.costs.catalog_files import KERNELS
from pipesim.costs.clusters.cluster import Cluster, Node, Span
from pipesim.costs.clusters.cluster_parts import wire
from pipesim.costs.clusters.gpu import Gpu, find_gpu
from pipesim.costs.communication.nccl import Choice, Operation, Ring, fastest
from pipesim.costs.kernel_tables import Axis, Grid

OPERATIONS: tuple[Operation, ...] = (
    "all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "reduce"
)  # fmt: skip

_BUS_SHARE = 0.8
"""Of NVLink's nominal bandwidth in NCCL's channels: 240 of 300, 360 of 450, 720 of 900 GB/s."""

_GPU = {
    "v100": "v100-sxm", "a100": "a100-sxm", "h100": "h100-sxm", "h200": "h200-sxm", "b200": "b200-sxm"
}  # fmt: skip
_BY_LINK = {
    "nvlink2": "v100", "nvlink3": "a100", "nvlink4": "h100", "nvlink5": "b200", "pcie": "pcie", "pcie-staged": "l40s"
}  # fmt: skip
_ARCHITECTURES = ("volta", "ampere", "hopper", "blackwell")


def collective_seconds(cluster: Cluster, operation: Operation, size_bytes: float, members: Iterable[int]) -> float:
    """Time of one collective among `members` (device indices), alone on its links.

    `size_bytes` is nccl-tests' size: of all-reduce and broadcast the array, of all-gather the gathered and of
    reduce-scatter the whole input array, of all-to-all what one rank holds. Every other device of the members'
    nodes is taken to do the same in its own group, so a group gets its share of the nodes' network ports.
    """
    return collective(cluster, operation, size_bytes, members).seconds


def collective(cluster: Cluster, operation: Operation, size_bytes: float, members: Iterable[int]) -> Choice:
    """The same with the algorithm and protocol that NCCL would pick."""
    span = cluster.span(members)
    if span.ranks <= 1 or size_bytes <= 0:
        return Choice(seconds=0.0, algorithm="none", protocol="none")
    return _collective(operation, float(size_bytes), _ring(span), _table_of(span))


def group_of(cluster: Cluster, members: Iterable[int]) -> Ring:
    """The group as NCCL sees it: where its ranks sit and what its links carry."""
    return _ring(cluster.span(members))


@lru_cache(maxsize=1 << 16)
def _collective(operation: Operation, size: float, ring: Ring, table: str | None) -> Choice:
    choice = fastest(operation, size, ring)
    if table is None:
        return choice
    ratios = _ratios(table).get("all_gather" if operation in ("broadcast", "reduce") else operation)
    return choice if ratios is None else replace(choice, seconds=choice.seconds * ratios.at(1, ring.ranks, size))


def _ring(span: Span) -> Ring:
    node = span.node
    return Ring(
        ranks=span.ranks,
        nodes=span.nodes,
        per_node=span.per_node,
        architecture=_architecture(node.gpu),
        nvlink=not node.link.kind.startswith("pcie"),
        bus_bytes_per_s=node.link.bytes_per_s * _BUS_SHARE * node.link.bus * _mesh_share(span) / _slower(span),
        net_bytes_per_s=span.bytes_per_s * span.bus if span.nodes > 1 else 0.0,
        hops=span.hops,
    )


def _slower(span: Span) -> float:
    """How much slower than the model a long all-reduce inside the node is, for groups of several nodes."""
    table = _measured(span.node)
    if span.nodes == 1 or span.per_node == 1 or table is None:
        return 1.0
    return _ratios(table)["all_reduce"].at(1, span.per_node, 1e12)


def _mesh_share(span: Span) -> float:
    """Part of a GPU's links that leads to other members: in a full mesh (AMD's xGMI) each leads to one neighbour."""
    node = span.node
    return (span.per_node - 1) / (node.gpus - 1) if node.link.kind.startswith("xgmi") and span.per_node > 1 else 1.0


def _architecture(gpu: Gpu) -> str:
    """Whose constants of NCCL stand for a GPU; of those without in-switch reduction for other vendors' ones."""
    if gpu.link.kind.startswith("xgmi"):
        return "ampere"
    return next((name for name in (gpu.architecture, gpu.like) if name in _ARCHITECTURES), "ampere")


def _table_of(span: Span) -> str | None:
    """Which measured table corrects a group inside one node."""
    if span.nodes > 1:
        return None
    return _measured(span.node)


def _measured(node: Node) -> str | None:
    own = next((name for name, key in _GPU.items() if key == node.gpu.key), None)
    table = _BY_LINK.get(node.link.kind)
    return own if own in _ratio_names() and table is not None and table != "l40s" else table


@lru_cache(maxsize=1)
def _ratio_names() -> frozenset[str]:
    return frozenset(name for name, _ in _measured_times())


@cache
def _ratios(table: str) -> dict[str, Grid]:
    """Measured over modelled time by operation, over ranks and size."""
    return {operation: _ratio_grid(table, operation) for name, operation in _measured_times() if name == table}


def _ratio_grid(table: str, operation: str) -> Grid:
    rows = _measured_times()[table, operation]
    sizes = sorted(set.intersection(*(set(row) for row in rows.values())))
    logs = [
        log(rows[ranks][size] / fastest(operation, size, _reference(table, ranks)).seconds)  # type: ignore[arg-type]
        for ranks in sorted(rows)
        for size in sizes
    ]
    return Grid((Axis.of([1]), Axis.of(sorted(rows)), Axis.of(sizes)), tuple(logs))


def _reference(table: str, ranks: int) -> Ring:
    """The group on which a table was measured."""
    if table in ("pcie", "l40s"):
        architecture = "blackwell" if table == "pcie" else "ampere"
        link = wire("pcie", 63e9) if table == "pcie" else wire("pcie-staged", 32e9)
    else:
        gpu = find_gpu(_GPU[table])
        architecture, link = _architecture(gpu), wire(gpu.link.kind, gpu.link.bytes_per_s)
    return Ring(
        ranks=ranks,
        nodes=1,
        per_node=ranks,
        architecture=architecture,
        nvlink=not link.kind.startswith("pcie"),
        bus_bytes_per_s=link.bytes_per_s * _BUS_SHARE * link.bus,
        net_bytes_per_s=0.0,
    )


@lru_cache(maxsize=1)
def _measured_times() -> dict[tuple[str, str], dict[int, dict[int, float]]]:
    """Seconds by table and operation, ranks, and bytes; a larger message bounds a smaller one, which cuts outliers."""
    lines = [line for line in (KERNELS / "collectives.csv").read_text("utf-8").splitlines() if not line.startswith("#")]
    sizes = [int(text) for text in lines[0].split(",")[3:]]
    times: dict[tuple[str, str], dict[int, dict[int, float]]] = {}
    for line in lines[1:]:
        table, operation, ranks, *cells = line.split(",")
        row = {size: float(cell) * 1e-6 for size, cell in zip(sizes, cells, strict=True) if cell}
        for smaller, larger in reversed(list(pairwise(row))):
            row[smaller] = min(row[smaller], row[larger])
        times.setdefault((table, operation), {})[int(ranks)] = row
    return times
