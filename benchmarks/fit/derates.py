"""How much of the short-burst tables in pipesim/costs/kernels matrix products sustain, by GPU and direction.

    python benchmarks/fit/derates.py

Prints measured over modelled rate (1 = the burst table) for sustained products of at least 10 GFLOP; the medians
go into pipesim/costs/catalog/fitted.yaml.
"""

from __future__ import annotations

import csv
from collections import defaultdict
from pathlib import Path
from statistics import median, quantiles

from pipesim.costs.clusters.fitted import derate
from pipesim.costs.clusters.gpu import find_gpu
from pipesim.costs.times.compute import gemm_seconds

DATA = Path(__file__).parents[2] / "tests" / "data" / "kernels" / "sustained.csv"


def main() -> None:
    found: dict[tuple[str, str, str], list[float]] = defaultdict(list)
    with DATA.open() as file:
        for row in csv.DictReader(file):
            batch, m, n, k = (int(row[name]) for name in ("batch", "m", "n", "k"))
            if 2 * batch * m * n * k < 1e10:
                continue
            gpu = find_gpu(row["gpu"])
            accumulate = row["direction"] == "weight"
            modelled = gemm_seconds(gpu, m, n, k, batch=batch, accumulate=accumulate) * derate(gpu).gemm
            found[row["gpu"], row["source"], row["direction"]].append(modelled / (float(row["us"]) * 1e-6))
    for key, ratios in found.items():
        tenths = quantiles(ratios, n=10)
        print(
            f"{' '.join(key):30} {len(ratios):4} products: {median(ratios):.3f} ({tenths[0]:.2f} to {tenths[-1]:.2f})"
        )


if __name__ == "__main__":
    main()
