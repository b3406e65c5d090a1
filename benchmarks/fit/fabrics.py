"""Fits `bus` and `hops` of each kind of network to measured collectives that cross nodes.

    python benchmarks/fit/fabrics.py

Prints, for each kind, the pair with the least mean over tables of the median absolute error; the values go into
pipesim/costs/catalog/fitted.yaml. Two parameters a kind, no others.
"""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import product
from pathlib import Path
from statistics import mean, median
from typing import Any

from pipesim.costs.clusters.cluster_catalogue import load_cluster
from pipesim.costs.communication.collectives import group_of
from pipesim.costs.communication.nccl import Ring, fastest

DATA = Path(__file__).parents[2] / "tests" / "data" / "collectives" / "measured.jsonl"
HOPS = (1, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10, 12, 15, 20, 25, 30, 35, 40)
BUS = (0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 1.0)


def main() -> None:
    kinds: dict[str, list[dict[str, Any]]] = {}
    for line in DATA.read_text("utf-8").splitlines():
        table = json.loads(line)
        cluster = load_cluster(table["cluster"])
        if len(cluster.nodes) > 1 and table["operation"] != "send_recv" and cluster.gpu.key != "gb200":
            kinds.setdefault(cluster.nodes[0].port.kind, []).append(table)
    for kind, tables in kinds.items():
        scored = sorted((score(tables, hops, bus), hops, bus) for hops, bus in product(HOPS, BUS))
        error, hops, bus = scored[0]
        print(f"{kind}: bus: {bus}, hops: {hops}   error {error:.1%} over {len(tables)} tables; next {scored[1]}")


def score(tables: list[dict[str, Any]], hops: float, bus: float) -> float:
    """Mean over tables of the median absolute error."""
    return mean(median(errors(table, group(table, hops, bus))) for table in tables)


def errors(table: dict[str, Any], ring: Ring) -> list[float]:
    cells = [cell for cell in zip(table["bytes"], table["seconds"], strict=True) if cell[1] > 0]
    return [abs(fastest(table["operation"], size, ring).seconds / seconds - 1) for size, seconds in cells]


def group(table: dict[str, Any], hops: float, bus: float) -> Ring:
    """The measured group with other parameters of its network."""
    cluster = load_cluster(table["cluster"])
    ring = group_of(cluster, range(table["ranks"]))
    return replace(ring, hops=hops, net_bytes_per_s=ring.net_bytes_per_s / cluster.nodes[0].port.bus * bus)


if __name__ == "__main__":
    main()
