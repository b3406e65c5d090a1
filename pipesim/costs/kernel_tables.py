"""Measured kernel times as grids, from the CSV files in `kernels/` (packed by `benchmarks/fit/kernel_tables.py`)."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pipesim.costs.catalog_files import KERNELS


@dataclass(frozen=True, eq=False)
class Axis:
    """Increasing positions of a grid, looked up on a log scale."""

    logs: tuple[float, ...]
    extend: bool = False
    """Below its first point: go on along the first segment, not flat."""

    @staticmethod
    def of(points: Sequence[float], *, extend: bool = False) -> Axis:
        """An axis through `points`."""
        return Axis(tuple(math.log(point) for point in points), extend)

    def locate(self, value: float) -> tuple[int, float]:
        """Index of the point below `value` and how far towards the next, 0 to 1; flat outside."""
        log = math.log(value)
        if len(self.logs) == 1:
            return 0, 0.0
        index = min(max(bisect_right(self.logs, log) - 1, 0), len(self.logs) - 2)
        part = (log - self.logs[index]) / (self.logs[index + 1] - self.logs[index])
        return index, min(max(part, 0.0), 1.0) if not self.extend else min(part, 1.0)


@dataclass(frozen=True, eq=False)
class Grid:
    """A positive quantity over three axes, interpolated in log-log space."""

    axes: tuple[Axis, Axis, Axis]
    logs: tuple[float, ...]
    """Logarithms of the values, the last axis fastest."""

    def at(self, x: float, y: float, z: float) -> float:
        """Value at a point: trilinear in the logarithms."""
        (i, a), (j, b), (k, c) = self.axes[0].locate(x), self.axes[1].locate(y), self.axes[2].locate(z)
        rows, columns = len(self.axes[1].logs), len(self.axes[2].logs)
        total = 0.0  # a single-point axis has part 0 and so never reaches for a second one
        for di, wa in ((0, 1 - a), (1, a)):
            if not wa:
                continue
            for dj, wb in ((0, 1 - b), (1, b)):
                if not wb:
                    continue
                base = ((i + di) * rows + j + dj) * columns + k
                total += wa * wb * ((1 - c) * self.logs[base] + (c * self.logs[base + 1] if c else 0.0))
        return math.exp(total)


@dataclass(frozen=True, eq=False)
class Table:
    """One CSV file: seconds by two row keys and one column key; some cells are missing."""

    first: tuple[int, ...]
    second: tuple[int, ...]
    columns: tuple[int, ...]
    seconds: dict[tuple[int, int, int], float]


def read_table(name: str) -> Table:
    """The table in `kernels/NAME.csv`."""
    lines = [line for line in (KERNELS / f"{name}.csv").read_text("utf-8").splitlines() if not line.startswith("#")]
    columns = tuple(int(text) for text in lines[0].split(",")[2:])
    seconds: dict[tuple[int, int, int], float] = {}
    for line in lines[1:]:
        first, second, *cells = line.split(",")
        for column, cell in zip(columns, cells, strict=True):
            if cell:
                seconds[int(first), int(second), column] = float(cell) * 1e-6
    return Table(
        first=tuple(sorted({key[0] for key in seconds})),
        second=tuple(sorted({key[1] for key in seconds})),
        columns=columns,
        seconds=seconds,
    )


def grid(table: Table, scale: Callable[[int, int, int], float], *, extend: bool = False) -> Grid:
    """The table's times over `scale` as a grid; a hole takes the value before it, in its row or the row before."""
    logs: list[float] = []
    for first in table.first:
        last = next(_log(table, scale, key) for key in table.seconds if key[0] == first)
        for second in table.second:
            for column in table.columns:
                key = (first, second, column)
                last = _log(table, scale, key) if key in table.seconds else last
                logs.append(last)
    first_axis = Axis.of(table.first)
    return Grid((first_axis, Axis.of(table.second, extend=extend), Axis.of(table.columns, extend=extend)), tuple(logs))


def _log(table: Table, scale: Callable[[int, int, int], float], key: tuple[int, int, int]) -> float:
    return math.log(table.seconds[key] / scale(*key))
