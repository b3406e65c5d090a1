"""Fits what kernels sustain, attention kernels and host times to measured training runs.

    python benchmarks/fit/training.py [--hold-out SOURCE,SOURCE] [--rounds 2]

Coordinate search over the parameters below, from the values in pipesim/costs/catalog/fitted.yaml; the score is the mean
over sources of the mean absolute error in log time, each error counted up to 0.35. With --hold-out it fits on the
other sources and prints the error on those too. Prints the values; writing them into fitted.yaml is done by hand.
"""

from __future__ import annotations

import argparse
import importlib
import json
from collections import defaultdict
from collections.abc import Mapping
from math import log
from pathlib import Path
from statistics import mean, median
from typing import Any

from pipesim.costs.catalog_files import read_catalogue
from pipesim.plan.predict import predict_row

ROWS = Path(__file__).parents[2] / "tests" / "data" / "training.jsonl"
PARAMETERS: dict[str, tuple[float, float]] = {
    # path in fitted.yaml: smallest and largest value tried
    "gpus.ampere.gemm": (0.8, 1.0),
    "gpus.ampere.attention": (0.8, 1.3),
    "gpus.ampere.memory": (0.6, 0.9),
    "gpus.hopper.gemm": (0.8, 1.0),
    "gpus.hopper.attention": (0.7, 1.1),
    "gpus.hopper.memory": (0.6, 0.95),
    "gpus.blackwell.gemm": (0.6, 0.85),
    "gpus.volta.gemm": (0.7, 1.0),
    "gpus.volta.memory": (0.6, 0.9),
    "attention.kinds.triton.ampere": (0.3, 1.0),
    "attention.kinds.flash1.ampere": (0.3, 0.8),
    "attention.kinds.flash2.hopper": (0.4, 1.0),
    "frameworks.megatron-deepspeed.layer_us": (800, 1500),
    "frameworks.nanotron.layer_us": (1500, 2600),
    "frameworks.megatron-core.layer_us": (300, 2500),
    "frameworks.megatron-lm.message_us": (0, 1500),
    "frameworks.megatron-deepspeed.message_us": (0, 1500),
    "frameworks.nanotron.message_us": (0, 3000),
    "frameworks.nanotron.step_ms": (0, 60),
    "frameworks.aleph-alpha-scaling.message_us": (0, 3000),
}
MOST_A_SOURCE = 60
_CLIP = 0.35
_CACHED = {
    "compute": ("gemm_seconds", "attention_seconds", "memory_seconds"),
    "fitted": ("derate", "fabric"),
    "habits": ("habits_of",),
    "layer_times": ("layer_parts",),
    "row_cluster": ("_cluster",),
}

Rows = dict[str, list[dict[str, Any]]]


def main() -> None:
    given = argparse.ArgumentParser()
    given.add_argument("--hold-out", default="")
    given.add_argument("--rounds", type=int, default=2)
    given.add_argument("--only", default="")
    options = given.parse_args()
    held = set(options.hold_out.split(",")) - {""}
    sources = load()
    fitting = {source: rows for source, rows in sources.items() if source not in held}
    names = [name for name in PARAMETERS if any(part in name for part in options.only.split(","))]
    best = score(fitting)
    print(f"start: {best:.4f}")
    for _ in range(options.rounds):
        for name in names:
            best = improve(name, fitting, best)
    for name in names:
        print(f"{name}: {value(name):.4g}")
    for source, rows in sources.items():
        print(f"{source:26} {'held out' if source in held else 'fitted':9} {describe(rows)}")


def load() -> Rows:
    """Up to so many rows of each source, evenly picked."""
    found: Rows = defaultdict(list)
    for line in ROWS.read_text("utf-8").splitlines():
        row = json.loads(line)
        found[row["source_id"]].append(row)
    return {source: rows[:: -(-len(rows) // MOST_A_SOURCE)] for source, rows in found.items()}


def improve(name: str, sources: Rows, best: float) -> float:
    """Move one parameter while it helps, with ever smaller steps."""
    low, high = PARAMETERS[name]
    step = (high - low) / 8
    while step > (high - low) / 40:
        moved = False
        for direction in (step, -step):
            old = value(name)
            put(name, min(max(old + direction, low), high))
            found = score(sources)
            if found < best - 1e-5:
                best, moved = found, True
                break
            put(name, old)
        if not moved:
            step /= 2
    print(f"  {name} {value(name):.4g}: {best:.4f}", flush=True)
    return best


def score(sources: Rows) -> float:
    """Mean over sources of the mean absolute error in log time."""
    return mean(mean(min(abs(error), _CLIP) for error in errors(rows)) for rows in sources.values())


def errors(rows: list[dict[str, Any]]) -> list[float]:
    return [log(predict_row(row).step_time_s / row["measured"]["step_time_s"]) for row in rows]


def describe(rows: list[dict[str, Any]]) -> str:
    found = errors(rows)
    return f"median {median(abs(error) for error in found):.1%}, bias {median(found):+.1%}"


def value(name: str) -> float:
    table, key = _place(name)
    return float(table.get(key, 1.0))


def put(name: str, new: float) -> None:
    """Change a parameter for this process, and forget what was computed with the old one."""
    table, key = _place(name)
    table[key] = new
    for module, functions in _CACHED.items():
        for function in functions:
            getattr(importlib.import_module(f"pipesim.costs.{module}"), function).cache_clear()


def _place(name: str) -> tuple[dict[str, Any], str]:
    *path, key = name.split(".")
    table: Any = read_catalogue("fitted.yaml")
    for part in path:
        table = table[part]
    assert isinstance(table, Mapping)
    return table, key  # type: ignore[return-value]


if __name__ == "__main__":
    main()
