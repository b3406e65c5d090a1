"""Fits what serving engines add to the kernels' time, in pipesim/costs/catalog/serving.yaml, to measured rows.

    python benchmarks/fit/serving.py [--rounds 2]

One parameter after the other is tried at a few factors; what lowers the error on every second row is kept and
printed: the mean over pairs of source and engine of the mean |log(predicted / measured)|. The other rows judge the
result. Nothing is written: the values go into the catalogue by hand, rounded.
"""

from __future__ import annotations

import argparse
import json
import math
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from statistics import mean
from typing import Any

from pipesim.costs.catalog_files import read_catalogue
from pipesim.serving import build, engine, kernels, rows

DATA = Path(__file__).parents[2] / "tests" / "data" / "serving" / "inference.jsonl"
FACTORS = (0.5, 0.7, 0.85, 1.15, 1.4, 2.0)
FREE: dict[str, tuple[str, ...]] = {
    "faster-transformer": ("sequence_us", "step_us"),
    "deepspeed-inference": ("layer_us", "sequence_us"),
    "gpt-fast": ("step_us",),
    "trt-llm-static": ("step_us",),
    "trt-llm": ("step_us", "sequence_us"),
    "megatron-lm": ("layer_us", "products"),
}
SHARED = (
    ("kernel_us", "launched"),
    ("kernel_us", "graph"),
    ("one_shot_latency",),
    *(("gpus", name, "products") for name in ("ampere", "hopper", "blackwell", "rtx-pro-6000")),
)
Row = dict[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=2)
    rounds = parser.parse_args().rounds
    every = [json.loads(line) for line in DATA.read_text().splitlines()]
    fitted, judged = every[0::2], every[1::2]
    print(f"before: {score(fitted):.4f} on fitted rows, {score(judged):.4f} on the others")
    for _ in range(rounds):
        for path in SHARED:
            improve(read_catalogue("serving.yaml"), path, fitted)
        for name, keys in FREE.items():
            own = [row for row in fitted if engine.closest_engine(row["engine"]).name == name]
            for key in keys:
                improve(read_catalogue("serving.yaml")["engines"][name], (key,), own, label=name)
    print(f"after: {score(fitted):.4f} on fitted rows, {score(judged):.4f} on the others")


def improve(table: dict[str, Any], path: tuple[str, ...], among: list[Row], *, label: str = "") -> None:
    """Keep the factor on one value that lowers the error most."""
    for key in path[:-1]:
        table = table[key]
    key, start = path[-1], table.get(path[-1], 1.0)
    best, found = score(among), start
    for factor in FACTORS:
        table[key] = start * factor
        error = score(among)
        if error < best - 1e-4:
            best, found = error, table[key]
    table[key] = found
    print(f"{label} {'.'.join(path)}: {found:.4g}   error {best:.4f}", flush=True)


def score(among: Iterable[Row]) -> float:
    """Mean over pairs of source and engine."""
    for found in (engine.find_engine, build.instance_of, kernels.reached, kernels.product_seconds):
        found.cache_clear()
    errors: dict[tuple[str, str], list[float]] = defaultdict(list)
    for row in among:
        predicted = rows.predict_inference(row)
        for key, measured in row["measured"].items():
            errors[source_of(row), row["engine"][:12]].append(abs(math.log(predicted[key] / measured)))
    return mean(mean(found) for found in errors.values())


def source_of(row: Row) -> str:
    """Document that a row is from."""
    words = row["source"].split()
    return words[0] if words[0].startswith("http") else f"{words[0]} {words[2]}"


if __name__ == "__main__":
    main()
