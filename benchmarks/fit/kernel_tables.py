"""Packs measured kernel times into the compact tables under pipesim/costs/kernels.

Input: a folder with gemm/GPU_PRECISION.csv (m,n,k,us,…) and attention/GPU_fwd_bf16.csv (batch_size, isl, num_heads,
num_key_value_heads, head_dim, us, …), exported from the performance database of ai-dynamo/aiconfigurator 095f58a
(Apache-2.0). Output: one grid a file; attention as the median over key/value heads and batch of equal
batch x heads, since those move it by 4 to 14 % only.

    python benchmarks/fit/kernel_tables.py FOLDER
"""

from __future__ import annotations

import csv
import sys
from collections import defaultdict
from pathlib import Path
from statistics import median

OUT = Path(__file__).parents[2] / "pipesim" / "costs" / "kernels"
SOURCE = "ai-dynamo/aiconfigurator 095f58a (Apache-2.0), systems/data, TensorRT-LLM"


def main(folder: Path) -> None:
    for path in sorted((folder / "gemm").glob("*.csv")):
        gpu, precision = path.stem.rsplit("_", 1)
        pack_gemm(path, OUT / f"gemm_{gpu.split('-')[0].lower()}_{precision.replace('bfloat16', 'bf16')}.csv", gpu)
    for path in sorted((folder / "attention").glob("*.csv")):
        gpu = path.stem.split("_")[0]
        pack_attention(path, OUT / f"attention_{gpu.split('-')[0].lower()}_bf16.csv", gpu)


def pack_gemm(path: Path, out: Path, gpu: str) -> None:
    times = {(int(r["m"]), int(r["n"]), int(r["k"])): float(r["us"]) for r in rows(path)}
    ks = sorted({k for _, _, k in times})
    lines = [f"# {gpu}: microseconds of an (m, n, k) product, columns k. {SOURCE}", "m,n," + ",".join(map(str, ks))]
    for m, n in sorted({(m, n) for m, n, _ in times}):
        lines.append(f"{m},{n}," + ",".join(f"{times[m, n, k]:.4g}" if (m, n, k) in times else "" for k in ks))
    out.write_text("\n".join(lines) + "\n")


def pack_attention(path: Path, out: Path, gpu: str) -> None:
    groups: dict[tuple[int, int, int], list[float]] = defaultdict(list)
    for r in rows(path):
        key = int(r["head_dim"]), int(r["isl"]), int(r["batch_size"]) * int(r["num_heads"])
        groups[key].append(float(r["us"]))
    heads = sorted({h for _, _, h in groups})
    lines = [
        f"# {gpu}: microseconds of causal fused attention, forward, columns batch x heads. {SOURCE}",
        "head_dim,seq," + ",".join(map(str, heads)),
    ]
    for dim, seq in sorted({(d, s) for d, s, _ in groups}):
        cells = (f"{median(groups[dim, seq, h]):.4g}" if (dim, seq, h) in groups else "" for h in heads)
        lines.append(f"{dim},{seq}," + ",".join(cells))
    out.write_text("\n".join(lines) + "\n")


def rows(path: Path) -> list[dict[str, str]]:
    with path.open() as file:
        return list(csv.DictReader(file))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
