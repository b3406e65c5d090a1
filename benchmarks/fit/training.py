"""Fits what kernels sustain, attention kernels and host times to measured training runs.

    python benchmarks/fit/training.py [--hold-out SOURCE,SOURCE] [--rounds 3] [--rows 60]

From the values in pipesim/costs/catalog/fitted.yaml on: each round takes the derivative of every row's log step time by
every parameter, and moves the parameters to the least mean over sources of the mean absolute error (iteratively
reweighted least squares, with a pull towards the present values). With --hold-out it fits to the other sources and
prints the error on those too. Prints the values; fitted.yaml is written by hand.
"""

from __future__ import annotations

import argparse
import importlib
import json
from collections import defaultdict
from dataclasses import dataclass
from math import log
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from pipesim.costs.catalog_files import read_catalogue
from pipesim.costs.clusters.gpu import find_gpu
from pipesim.costs.layouts.frameworks import closest_framework
from pipesim.plan.predict import predict_row

DATA = Path(__file__).parents[2] / "tests" / "data"
FILES = ("training.jsonl", "korthikanti.jsonl")


@dataclass(frozen=True)
class Parameter:
    """path: where it is in fitted.yaml. unit: by so much its pull allows it to move in a round."""

    path: str
    least: float
    most: float
    unit: float

    def concerns(self, row: dict[str, Any]) -> bool:
        """Whether a row's prediction can depend on it."""
        section, key, *rest = self.path.split(".")
        if section == "loss":
            return True
        gpu = find_gpu(row["gpu"])
        if section == "gpus":
            return key in (gpu.key, gpu.architecture)
        if section == "frameworks":
            return closest_framework(row["framework"]).name == key
        if section == "collectives":
            return int(row["tp"]) > 1 and rest[-1] == gpu.link.kind
        return rest[-1] == gpu.like and rest[0] in str(row.get("attention"))


PARAMETERS = (
    Parameter("collectives.in_step.nvlink3", 0.8, 2.5, 0.3),
    Parameter("collectives.in_step.nvlink4", 0.8, 2.5, 0.3),
    Parameter("collectives.in_step.nvlink5", 0.8, 2.5, 0.3),
    Parameter("gpus.ampere.gemm", 0.75, 1.0, 0.1),
    Parameter("gpus.ampere.attention", 0.7, 1.3, 0.2),
    Parameter("gpus.ampere.memory", 0.6, 0.9, 0.1),
    Parameter("gpus.hopper.gemm", 0.75, 1.0, 0.1),
    Parameter("gpus.hopper.narrow", 0.75, 1.1, 0.1),
    Parameter("gpus.hopper.attention", 0.7, 1.1, 0.2),
    Parameter("gpus.hopper.memory", 0.6, 0.92, 0.1),
    Parameter("gpus.blackwell.gemm", 0.6, 0.85, 0.1),
    Parameter("gpus.blackwell.attention", 0.7, 1.1, 0.2),
    Parameter("gpus.volta.gemm", 0.7, 1.0, 0.1),
    Parameter("gpus.volta.memory", 0.6, 0.9, 0.1),
    Parameter("loss.share", 0.4, 1.0, 0.2),
    Parameter("attention.kinds.triton.ampere", 0.4, 1.0, 0.2),
    Parameter("attention.kinds.flash1.ampere", 0.3, 0.8, 0.2),
    Parameter("attention.kinds.flash2.hopper", 0.4, 1.0, 0.2),
    Parameter("frameworks.megatron-deepspeed.layer_us", 800, 1600, 200),
    Parameter("frameworks.nanotron.layer_us", 1500, 2800, 300),
    Parameter("frameworks.megatron-core.layer_us", 300, 2500, 300),
    Parameter("frameworks.nemo.message_us", 0, 600, 100),
    Parameter("frameworks.megatron-lm.message_us", 0, 3000, 600),
    Parameter("frameworks.megatron-deepspeed.message_us", 0, 6000, 600),
    Parameter("frameworks.nanotron.message_us", 0, 6000, 600),
    Parameter("frameworks.aleph-alpha-scaling.message_us", 0, 6000, 600),
    Parameter("frameworks.nanotron.step_ms", 0, 100, 15),
    Parameter("frameworks.aleph-alpha-scaling.step_ms", 0, 1000, 150),
    Parameter("frameworks.megatron-deepspeed.step_ms", 0, 100, 15),
)
_STEP = 0.15  # of a unit, for derivatives
_RIDGE = 0.002
_SMOOTH = 0.02  # errors below count as if squared
_CLIP = 0.35
_CACHED = {
    "times.compute": ("gemm_seconds", "attention_seconds", "memory_seconds"),
    "clusters.fitted": ("derate", "fabric", "slowdown_in_step", "loss_share"),
    "times.habits": ("habits_of",),
    "clusters.row_cluster": ("_cluster",),
}

Rows = list[dict[str, Any]]
Floats = np.ndarray


def main() -> None:
    given = argparse.ArgumentParser()
    given.add_argument("--hold-out", default="")
    given.add_argument("--rounds", type=int, default=3)
    given.add_argument("--rows", type=int, default=60, help="of each source, evenly picked")
    given.add_argument("--start", default="", help="PATH=VALUE,... to start from")
    given.add_argument("--only", default="", help="parameters that have one of these texts in their path")
    options = given.parse_args()
    held = set(options.hold_out.split(",")) - {""}
    rows = load(options.rows)
    fitting = [row for row in rows if row["source_id"] not in held]
    chosen = [one for one in PARAMETERS if any(part in one.path for part in options.only.split(","))]
    for part in filter(None, options.start.split(",")):
        path, _, number = part.partition("=")
        put(next(one for one in PARAMETERS if one.path == path), float(number))
    for _ in range(options.rounds):
        moved = fit_round(fitting, chosen)
        print(f"mean over sources of the mean absolute error: {moved:.4f}", flush=True)
    for one in chosen:
        print(f"{one.path}: {value(one):.4g}")
    for source in dict.fromkeys(row["source_id"] for row in rows):
        mine = errors([row for row in rows if row["source_id"] == source])
        print(
            f"{source:26} {'held out' if source in held else 'fitted':9} "
            f"median {np.median(np.abs(mine)):.1%}, bias {median(mine):+.1%}"
        )


def load(most: int) -> Rows:
    """Up to so many rows of each source, evenly picked."""
    found: dict[str, Rows] = defaultdict(list)
    for line in "".join((DATA / name).read_text("utf-8") for name in FILES).splitlines():
        row = json.loads(line)
        found[row["source_id"]].append(row)
    return [row for rows in found.values() for row in rows[:: -(-len(rows) // most)]]


def fit_round(rows: Rows, chosen: list[Parameter]) -> float:
    """Move all parameters once; the score before."""
    start = errors(rows)
    slopes = np.zeros((len(rows), len(chosen)))
    for column, one in enumerate(chosen):
        here = [index for index, row in enumerate(rows) if one.concerns(row)]
        old = value(one)
        step = _STEP * one.unit * (-1 if old + _STEP * one.unit > one.most else 1)
        put(one, old + step)
        slopes[here, column] = (errors([rows[index] for index in here]) - start[here]) / (step / one.unit)
        put(one, old)
    counts: dict[str, int] = defaultdict(int)
    for row in rows:
        counts[row["source_id"]] += 1
    weights = np.array([1 / counts[row["source_id"]] for row in rows]) / len(counts)
    moves = solve(start, slopes, weights, chosen)
    for one, move in zip(chosen, moves, strict=True):
        put(one, value(one) + move * one.unit)
    return float(np.sum(weights * np.minimum(np.abs(start), _CLIP)))


def solve(start: Floats, slopes: Floats, weights: Floats, chosen: list[Parameter]) -> Floats:
    """Moves, in units, to the least weighted sum of absolute errors within the bounds."""
    low = np.array([(one.least - value(one)) / one.unit for one in chosen])
    high = np.array([(one.most - value(one)) / one.unit for one in chosen])
    moves = np.zeros(len(chosen))
    for _ in range(60):
        left = start + slopes @ moves
        each = weights / np.maximum(np.abs(left), _SMOOTH) * (np.abs(left) < 2 * _CLIP)
        matrix = slopes.T @ (each[:, None] * slopes) + _RIDGE * np.eye(len(chosen))
        target = -slopes.T @ (each * start)
        moves = np.clip(0.5 * moves + 0.5 * np.linalg.solve(matrix, target), np.maximum(low, -1), np.minimum(high, 1))
    return moves


def errors(rows: Rows) -> Floats:
    """Log of predicted over measured step time."""
    return np.array([log(predict_row(row).step_time_s / row["measured"]["step_time_s"]) for row in rows])


def value(one: Parameter) -> float:
    table, key = _place(one)
    return float(table.get(key, 1.0))


def put(one: Parameter, new: float) -> None:
    """Change a parameter for this process, and forget what was computed with the old one."""
    table, key = _place(one)
    table[key] = new
    for module, functions in _CACHED.items():
        for function in functions:
            getattr(importlib.import_module(f"pipesim.costs.{module}"), function).cache_clear()


def _place(one: Parameter) -> tuple[dict[str, Any], str]:
    *path, key = one.path.split(".")
    table: Any = read_catalogue("fitted.yaml")
    for part in path:
        table = table[part]
    return table, key


if __name__ == "__main__":
    main()
