"""Copies sustained times of matrix products into tests/data/kernels/sustained.csv.

    python benchmarks/fit/sustained_data.py hardware.json

From MooreThreads/SimuMax 4dcaae5 (A100 PCIe and B200, the shapes of training layers in all three directions),
Azure/AI-benchmarking-guide 8fd0c6e (A100 SXM after 10,000 warm-up runs) and LLMCompass (A100 SXM).
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

OUT = Path(__file__).parents[2] / "tests" / "data" / "kernels" / "sustained.csv"
SIMUMAX = {"a100_pcie": "a100-pcie", "b200_bf16_ceperm": "b200-sxm"}
DIRECTION = {"TN": "forward", "NN": "input", "NT": "weight"}


def main(path: Path) -> None:
    other = json.loads(path.read_text("utf-8"))["gemm_other"]
    lines = ["gpu,source,direction,batch,m,n,k,us"]
    for name, gpu in SIMUMAX.items():
        peak = other["simumax"][name]["peak_tflops"]
        for shape, efficiency in other["simumax"][name]["efficiency_by_shape"].items():
            lines += simumax(gpu, shape, efficiency * float(peak))
    for product in other["azure"]["A100-SXM4-80GB"]["gemm"]:
        lines.append(row("a100-sxm", "azure", "forward", 1, product["mnk"], product["tflops"]))
    for product in other["llmcompass_a100"]:
        lines.append(row("a100-sxm", "llmcompass", "forward", 1, product["mnk"], product["tflops"]))
    OUT.parent.mkdir(parents=True, exist_ok=True)
    OUT.write_text("\n".join(lines) + "\n")
    print(f"{OUT}: {len(lines) - 1} products")


def simumax(gpu: str, shape: str, tflops: float) -> list[str]:
    """One line, where the product is a plain one in bf16."""
    given = dict(part.split("=") for part in shape.split(", "))
    batch, *mnk = (int(given[name]) for name in "bmnk")
    if given["out_dtype"] not in ("bf16", "fp32") or not tflops:
        return []
    return [row(gpu, "simumax", DIRECTION[given["layout"]], batch, mnk, tflops)]


def row(gpu: str, source: str, direction: str, batch: int, mnk: list[Any], tflops: float) -> str:
    m, n, k = mnk
    return f"{gpu},{source},{direction},{batch},{m},{n},{k},{2 * batch * m * n * k / tflops * 1e-6:.5g}"


if __name__ == "__main__":
    main(Path(sys.argv[1]))
