"""Packs measured collective and send/recv times into pipesim/costs/kernels/{collectives,send_recv}.csv.

Input: hardware.json with `comm_measured` and `p2p_measured` as collected from ai-dynamo/aiconfigurator 095f58a
(Apache-2.0; nccl-tests, one node), VIA-Research/vTrain f8dda84 (V100) and microsoft/vidur 7d47513 (send/recv). Of
several NCCL versions the newest is kept; the others, and GB200 (up to 4 ranks only), stay out and judge the result.

    python benchmarks/fit/collective_tables.py hardware.json
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

OUT = Path(__file__).parents[2] / "pipesim" / "costs" / "kernels"
GPUS = {
    "V100-SXM2": "v100", "A100-SXM4-80GB": "a100", "H100-SXM5-80GB": "h100", "H200-SXM5-141GB": "h200",
    "B200-SXM-180GB": "b200", "RTX PRO 6000 Server": "pcie", "L40S": "l40s",
}  # fmt: skip
SEND_RECV = {
    ("A100-SXM4-80GB", "same node"): "nvlink3",
    ("H100-SXM5-80GB", "same node"): "nvlink4",
    ("H100-SXM5-80GB", "two nodes: one 400 Gb/s-class NIC (36 GB/s)"): "infiniband",
    ("A100-SXM4-80GB", "two nodes: cloud Ethernet-class network (7.8 GB/s), not HDR"): "ethernet",
}


def main(path: Path) -> None:
    content = json.loads(path.read_text("utf-8"))
    kept: dict[tuple[str, str, int], dict[str, Any]] = {}
    for table in content["comm_measured"]:
        if not one_node_table(table):
            continue
        key = GPUS[table["gpu"]], table["op"].replace("alltoall", "all_to_all"), table["ranks"]
        if key not in kept or version(table) > version(kept[key]):
            kept[key] = table
    sizes = sorted({size for table in kept.values() for size in table["bytes"]})
    lines = [
        "# Microseconds by bytes of the array (nccl-tests' size), one node.",
        "# ai-dynamo/aiconfigurator 095f58a (Apache-2.0), systems/data; v100: VIA-Research/vTrain f8dda84",
        "measured,operation,ranks," + ",".join(map(str, sizes)),
    ]
    for (gpu, operation, ranks), table in sorted(kept.items()):
        times = dict(zip(table["bytes"], table["time_us"], strict=True))
        lines.append(f"{gpu},{operation},{ranks}," + ",".join(f"{times[s]:g}" if s in times else "" for s in sizes))
    (OUT / "collectives.csv").write_text("\n".join(lines) + "\n")
    (OUT / "send_recv.csv").write_text("\n".join(send_recv(content["p2p_measured"])) + "\n")


def one_node_table(table: dict[str, Any]) -> bool:
    packed = table.get("nccl") is not None or table.get("gpu") == "V100-SXM2"
    return packed and table.get("gpu") in GPUS and table.get("nodes") == 1 and "time_us" in table


def version(table: dict[str, Any]) -> tuple[int, ...]:
    return tuple(int(part) for part in (table.get("nccl") or "0").split("."))


def send_recv(tables: list[dict[str, Any]]) -> list[str]:
    found = {SEND_RECV[t["gpu"], t["where"]]: t for t in tables if (t.get("gpu"), t.get("where")) in SEND_RECV}
    sizes = found["nvlink4"]["bytes"]
    return [
        "# Microseconds of torch send/recv by bytes.",
        "# microsoft/vidur 7d47513, data/profiling/network/*_dgx/send_recv.csv",
        "kind," + ",".join(map(str, sizes)),
        *(f"{kind}," + ",".join(f"{time:g}" for time in table["time_us"]) for kind, table in sorted(found.items())),
    ]


if __name__ == "__main__":
    main(Path(sys.argv[1]))
