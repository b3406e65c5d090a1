"""How well the tables of matrix products are interpolated: each inner point predicted from its two neighbours.

    python benchmarks/kernels/run.py

For every table and axis: median and 90th-percentile error of the measured time against the log-log line between the
neighbouring points of that axis, of time over roofline time. In use the gaps are half as wide.
"""

from __future__ import annotations

import math
from statistics import median, quantiles

from pipesim.costs.catalog_files import KERNELS
from pipesim.costs.clusters.gpu import Gpu, find_gpu
from pipesim.costs.kernel_tables import Table, read_table

Key = tuple[int, int, int]


def main() -> None:
    print(f"{'table':18} {'m':>14} {'n':>14} {'k':>14}")
    for path in sorted(KERNELS.glob("gemm_*.csv")):
        _, name, precision = path.stem.split("_")
        table, gpu = read_table(path.stem), find_gpu(name)
        errors = [left_out(table, gpu, precision, axis) for axis in range(3)]
        cells = (f"{median(found):6.1%} {quantiles(found, n=10)[-1]:7.1%}" for found in errors)
        print(f"{path.stem:18} {' '.join(cells)}")


def left_out(table: Table, gpu: Gpu, precision: str, axis: int) -> list[float]:
    """Errors of all points that have a neighbour on both sides along one axis."""
    points = (table.first, table.second, table.columns)[axis]
    errors = []
    for key, seconds in table.seconds.items():
        place = points.index(key[axis])
        if 0 < place < len(points) - 1:
            low, high = (replaced(key, axis, points[place + step]) for step in (-1, 1))
            if low in table.seconds and high in table.seconds:
                part = math.log(key[axis] / low[axis]) / math.log(high[axis] / low[axis])
                ratios = [table.seconds[end] / roofline(gpu, precision, end) for end in (low, high)]
                guess = roofline(gpu, precision, key) * ratios[0] ** (1 - part) * ratios[1] ** part
                errors.append(abs(guess / seconds - 1))
    return errors


def roofline(gpu: Gpu, precision: str, key: Key) -> float:
    m, n, k = key
    width = 1 if precision == "fp8" else 2
    moved = width * (m * k + n * k) + 2 * m * n
    return 3e-6 + max(2 * m * n * k / gpu.peak(precision), moved / gpu.memory_bytes_per_s)


def replaced(key: Key, axis: int, value: int) -> Key:
    m, n, k = (value if place == axis else old for place, old in enumerate(key))
    return m, n, k


if __name__ == "__main__":
    main()
