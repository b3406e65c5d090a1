"""How `zb-auto` and `v-auto` compare with other heuristic searches: `python benchmarks/heuristics/run.py`.

Writes results.txt beside it: for every stored case the ratio of our makespan to theirs, within the same memory,
and how long the search took. The stored cases (source in tests/data/schedules/bars.json) are evaluated as ours:
an action starts when its rank is free and its needs have ended, C ago where on another rank.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from pipesim.ir.check import check
from pipesim.ir.memory import peak_activations
from pipesim.schedules.lookup import build
from tests.schedules.oracle import run

RESULTS = Path(__file__).with_name("results.txt")
BARS: dict[str, Any] = json.loads(
    (Path(__file__).parents[2] / "tests" / "data" / "schedules" / "bars.json").read_text()
)


def compare(case: dict[str, Any], release: float) -> tuple[float, float]:
    """Ratio of makespans, and CPU seconds of the search."""
    cost = BARS["costs"][case["cost"]]
    begun = time.process_time()
    schedule = build(
        case["family"], ranks=case["ranks"], microbatches=case["microbatches"], memory_limit=case["limit"],
        forward=cost["F"], input_grad=cost["I"], weight_grad=cost["W"], latency=cost["C"], input_release=release,
    )  # fmt: skip
    spent = time.process_time() - begun
    check(schedule)
    assert peak_activations(schedule, "half" if release else "at_weight").max() <= case["limit"]
    found = run(schedule, {kind: cost[kind] for kind in "FIW"}, cost["C"])
    return found.makespan / case["makespan"], spent


def main() -> None:
    ratios: dict[str, list[tuple[float, str]]] = defaultdict(list)
    slowest = 0.0
    for case in BARS["cases"]:
        kinds = {"memory freed half at I": 0.5, "memory freed at W": 0.0}
        if case["family"] == "v-auto":
            kinds = {f"bar {case['as']}": 0.0}
        for kind, release in kinds.items():
            ratio, spent = compare(case, release)
            slowest = max(slowest, spent)
            name = f"p={case['ranks']} m={case['microbatches']} limit={case['limit']} cost {case['cost']}"
            ratios[f"{case['family']}, {kind}"].append((ratio, name))
        print(case["family"], name, f"{ratio:.4f}", flush=True)
    text = report(ratios, slowest)
    print(text)
    RESULTS.write_text(text + "\n")


def report(ratios: dict[str, list[tuple[float, str]]], slowest: float) -> str:
    lines = [
        f"our makespan / theirs; slowest search {slowest:.1f} s of CPU; load {os.getloadavg()[0]:.1f} when measured"
    ]
    lines += [f"cost {place}: {cost}" for place, cost in enumerate(BARS["costs"])]
    lines.append(f"{'':38}  cases  longer   worst  median    best")
    for kind, rows in ratios.items():
        values = [ratio for ratio, _ in rows]
        middle = statistics.median(values)
        longer = sum(value > 1 + 1e-9 for value in values)
        lines.append(f"{kind:38}  {len(values):5}  {longer:6}  {max(values):.4f}  {middle:.4f}  {min(values):.4f}")
    for kind, rows in ratios.items():
        lines.append(f"\n{kind}")
        lines += [f"  {ratio:.4f}  {name}" for ratio, name in sorted(rows, reverse=True)]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
