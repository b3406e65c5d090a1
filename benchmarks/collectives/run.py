"""Predicted against measured times of NCCL's collectives and send/recv, table by table.

    python benchmarks/collectives/run.py [--held-out]

A table marked `own` is the one the product interpolates, so its error is rounding; the others are held out:
other NCCL versions, clouds and numbers of ranks, and everything that crosses nodes.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from statistics import median
from typing import Any

from pipesim.costs.clusters.cluster_catalogue import load_cluster
from pipesim.costs.communication.collectives import collective_seconds
from pipesim.costs.communication.p2p import p2p_seconds

DATA = Path(__file__).parents[2] / "tests" / "data" / "collectives" / "measured.jsonl"


def predicted(table: dict[str, Any], size: float) -> float:
    """Our seconds for one cell of a table."""
    cluster = load_cluster(table["cluster"])
    if table["operation"] == "send_recv":
        return p2p_seconds(cluster, 0, table["target"], size)
    return collective_seconds(cluster, table["operation"], size, range(table["ranks"]))


def errors(table: dict[str, Any]) -> list[float]:
    """Relative error of every cell that was measured, signed."""
    cells = zip(table["bytes"], table["seconds"], strict=True)
    return [predicted(table, size) / seconds - 1 for size, seconds in cells if seconds > 0]


def tables() -> list[dict[str, Any]]:
    """Every measured table."""
    return [json.loads(line) for line in DATA.read_text("utf-8").splitlines()]


def main(held_out_only: bool) -> None:
    print(f"{'cluster':16} {'operation':14} ranks    NCCL        median   worst    bias  about")
    medians: dict[bool, list[float]] = {True: [], False: []}
    for table in tables():
        found = errors(table)
        error = median(map(abs, found))
        medians[table["packed"]].append(error)
        if table["packed"] and held_out_only:
            continue
        print(
            f"{table['cluster']:16} {table['operation']:14} {table['ranks']:5} {table['nccl'] or '-':>7} "
            f"{'own' if table['packed'] else '':5} {error:7.1%} {max(map(abs, found)):7.1%} {median(found):+7.1%}  "
            f"{table['about'][:60]}"
        )
    for packed, what in ((True, "own tables"), (False, "held out")):
        found = medians[packed]
        good = sum(error <= 0.15 for error in found)
        print(f"{what}: {len(found)} tables, {good} within 15 % at the median, worst {max(found):.1%}")


if __name__ == "__main__":
    main("--held-out" in sys.argv)
