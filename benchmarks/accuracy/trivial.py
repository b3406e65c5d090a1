"""The trivial predictor that a simulator has to beat.

FLOPs over one efficiency a GPU type (fitted), times the closed-form bubble, times 4/3 for full recompute; no
communication.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from statistics import mean, median
from typing import Any

from pipesim.costs.clusters.gpu import find_gpu
from pipesim.costs.layouts.flops import model_flops
from pipesim.costs.models.model import Model

Row = Mapping[str, Any]


def trivial_times(rows: Iterable[Row]) -> list[float]:
    """Seconds of each row's step, with the efficiency of each GPU type that has the least mean of source medians."""
    rows = list(rows)
    ideal = [_ideal_seconds(row) for row in rows]
    reached: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for row, seconds in zip(rows, ideal, strict=True):
        reached[row["gpu"]][row["source_id"]].append(seconds / row["measured"]["step_time_s"])
    best = {gpu: _best_efficiency(list(sources.values())) for gpu, sources in reached.items()}
    return [seconds / best[row["gpu"]] for row, seconds in zip(rows, ideal, strict=True)]


def _best_efficiency(sources: list[list[float]]) -> float:
    def error(efficiency: float) -> float:
        return mean(median(abs(one / efficiency - 1) for one in source) for source in sources)

    return min((step / 200 for step in range(2, 200)), key=error)


def _ideal_seconds(row: Row) -> float:
    model = Model.from_fields(row)
    flops = model_flops(model, tokens=row["global_batch"] * row["seq"], seq=row["seq"])
    again = 4 / 3 if "full" in str(row.get("recompute")) else 1.0
    m = max(1, row["global_batch"] // (row["dp"] * row["micro_batch"]))
    bubble = (row["pp"] - 1) / (m * row.get("vp", 1))
    return flops * again * (1 + bubble) / (row["num_gpus"] * find_gpu(row["gpu"]).peak("fp16"))
