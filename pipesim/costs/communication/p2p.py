"""How long a message from one device to another takes, alone on its way.

A line (latency + bytes / bandwidth) with the fitted parameters of the narrowest link, times measured over that
line, interpolated in size, where send/recv was measured on that kind of link. NCCL has no model of its own.
"""

from __future__ import annotations

from functools import lru_cache
from math import log

from pipesim.costs.catalog_files import KERNELS
from pipesim.costs.clusters.cluster import Cluster
from pipesim.costs.clusters.cluster_parts import wire
from pipesim.costs.kernel_tables import Axis, Grid

_RATE = {"nvlink3": 300e9, "nvlink4": 450e9, "infiniband": 50e9, "ethernet": 12.5e9}
"""Nominal bandwidth of the links on which each kind was measured."""


def p2p_seconds(cluster: Cluster, source: int, target: int, size_bytes: float) -> float:
    """Time of one send/recv of `size_bytes` between two devices."""
    if source == target or size_bytes <= 0:
        return 0.0
    route = cluster.route(source, target)
    line = route.latency_s + size_bytes / route.bytes_per_s
    ratios = _ratios().get(route.kind)
    return line if ratios is None else line * ratios.at(1, 1, size_bytes)


@lru_cache(maxsize=1)
def _ratios() -> dict[str, Grid]:
    """Measured over the line by kind of link."""
    lines = [line for line in (KERNELS / "send_recv.csv").read_text("utf-8").splitlines() if not line.startswith("#")]
    sizes = [int(text) for text in lines[0].split(",")[1:]]
    grids: dict[str, Grid] = {}
    for row in lines[1:]:
        kind, *cells = row.split(",")
        link = wire(kind, _RATE[kind])
        logs = [
            log(float(cell) * 1e-6 / (link.latency_s + size / link.reached_bytes_per_s))
            for size, cell in zip(sizes, cells, strict=True)
        ]
        grids[kind] = Grid((Axis.of([1]), Axis.of([1]), Axis.of(sizes)), tuple(logs))
    return grids
