"""Copies measured collectives and send/recv into tests/data/collectives/measured.jsonl, one table a line.

Each line: the cluster and members that stand for where it was measured, sizes, seconds (from busbw where only
that was published), source, and `packed`: whether the product's own table is this one.

    python benchmarks/fit/collective_data.py hardware.json
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

OUT = Path(__file__).parents[2] / "tests" / "data" / "collectives" / "measured.jsonl"
NODES = {
    "V100-SXM2": "dgx-1-v100", "A100-SXM4-80GB": "dgx-a100", "H100-SXM5-80GB": "dgx-h100",
    "H200-SXM5-141GB": "dgx-h200", "B200-SXM-180GB": "dgx-b200", "GB200": "gb200-nvl72", "L40S": "l40s",
    "RTX PRO 6000 Server": "h100-pcie",
}  # fmt: skip
PACKED = {"A100-SXM4-80GB": "2.27.3", "L40S": "2.27.3"}
FABRICS = {
    "2x p4de": "aws-p4de", "2x p5": "aws-p5", "IB 8x400": "dgx-h100", "AWS p6-b200": "aws-p6-b200",
    "NVL72, one rack": "gb200-nvl72", "2 NVL72 racks": "gb200-nvl72", "20 NVL72 racks": "gb200-nvl72",
}  # fmt: skip
SEND_RECV = {
    ("A100-SXM4-80GB", "same node"): ("dgx-a100:1", 1),
    ("H100-SXM5-80GB", "same node"): ("dgx-h100:1", 1),
    ("H100-SXM5-80GB", "two nodes: one 400 Gb/s-class NIC (36 GB/s)"): ("dgx-h100:2", 8),
}


def main(path: Path) -> None:
    content = json.loads(path.read_text("utf-8"))
    lines = [line for table in content["comm_measured"] for line in collectives(table)]
    lines += [line for table in content["p2p_measured"] for line in send_recv(table)]
    OUT.write_text("".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines))
    print(f"{OUT}: {len(lines)} tables")


def collectives(table: dict[str, Any]) -> list[dict[str, Any]]:
    if "all_reduce_gbps" in table:
        return in_normal_use(table)
    if "busbw_by_nodes" in table:
        counts = [(int(nodes), bus) for nodes, bus in table["busbw_by_nodes"].items()]
        return [
            row(table, f"dgx-h100:{n}", "all_reduce", 8 * n, bus_seconds(table["bytes"], bus, 8 * n))
            for n, bus in counts
        ]
    if table.get("gpu") not in NODES or not isinstance(table.get("ranks"), int):
        return []
    ranks, nodes = table["ranks"], table["nodes"]
    name = next((name for start, name in FABRICS.items() if (table.get("fabric") or "").startswith(start)), None)
    name = name or NODES[table["gpu"]]
    if name == "gb200-nvl72":
        nodes = max(ranks // 72, 1)
    times = table.get("time_us")
    seconds = [t * 1e-6 for t in times] if times else bus_seconds(table["bytes"], table["busbw_gbps"], ranks)
    return [row(table, f"{name}:{nodes}", table["op"].replace("alltoall", "all_to_all"), ranks, seconds)]


def in_normal_use(table: dict[str, Any]) -> list[dict[str, Any]]:
    """A cluster's own statistics of 256 MB messages: one size, several operations and numbers of nodes."""
    lines = []
    for operation in ("all_reduce", "all_gather", "reduce_scatter"):
        for nodes, rate in zip(table["nodes"], table[f"{operation}_gbps"], strict=True):
            factor = 1.0 if operation == "all_reduce" else 0.5
            seconds = [factor * time for time in bus_seconds([256e6], [rate], 8 * nodes)]
            whole = table | {"bytes": [256_000_000], "gpu": "H100-SXM5-80GB"}
            lines.append(row(whole, f"aws-p5-busy:{nodes}", operation, 8 * nodes, seconds))
    return lines


def row(table: dict[str, Any], cluster: str, operation: str, ranks: int, seconds: list[float]) -> dict[str, Any]:
    gpu, nccl = table.get("gpu"), table.get("nccl")
    newest = PACKED.get(gpu, "2.29.2")
    return {
        "cluster": cluster, "operation": operation, "ranks": ranks, "gpu": gpu, "nccl": nccl,
        "packed": gpu == "V100-SXM2" or (nccl == newest and gpu != "GB200"),
        "about": table.get("fabric") or table.get("kind"),
        "bytes": table["bytes"], "seconds": [float(f"{s:.5g}") for s in seconds], "source": source(table),
    }  # fmt: skip


def send_recv(table: dict[str, Any]) -> list[dict[str, Any]]:
    found = SEND_RECV.get((table.get("gpu", ""), table.get("where", "")))
    if found is None:
        return []
    cluster, target = found
    whole = table | {"fabric": table["where"]}
    line = row(whole, cluster, "send_recv", 2, [time * 1e-6 for time in table["time_us"]])
    return [line | {"target": target, "packed": True}]


def bus_seconds(sizes: list[float], bus: list[float], ranks: int) -> list[float]:
    steps = 2 * (ranks - 1) / ranks
    return [size * steps / (rate * 1e9) if rate else 0.0 for size, rate in zip(sizes, bus, strict=True)]


def source(table: dict[str, Any]) -> str:
    origin = table["source"]
    return origin if isinstance(origin, str) else f"{origin['repo']} {origin.get('commit', '')[:7]} {origin['file']}"


if __name__ == "__main__":
    main(Path(sys.argv[1]))
