"""Holds predicted inference to every measured row: error by source, and whether layouts are ranked as measured.

    python benchmarks/serving/run.py [--rows]

Sources are documents. A row with several figures counts each. Layouts are ranked where a source has the same model,
engine, batch and lengths on several numbers of GPUs or splits: Kendall's tau over pairs that differ by more than 2 %.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from itertools import combinations
from pathlib import Path
from statistics import mean, median
from typing import Any

from pipesim.serving.rows import predict_inference

DATA = Path(__file__).parents[2] / "tests" / "data" / "serving" / "inference.jsonl"
NOISE = 0.02
Row = dict[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", action="store_true", help="Every row, too.")
    every_row = parser.parse_args().rows
    errors: dict[str, list[float]] = defaultdict(list)
    groups: dict[tuple[object, ...], list[tuple[float, float]]] = defaultdict(list)
    for line in DATA.read_text().splitlines():
        row = json.loads(line)
        predicted = predict_inference(row)
        for key, measured in row["measured"].items():
            errors[source_of(row)].append(predicted[key] / measured - 1)
            groups[(source_of(row), *case(row), key)].append((predicted[key], measured))
            if every_row:
                print(
                    f"{row['id']:60} {key:26} {measured:10.4g} {predicted[key]:10.4g} {errors[source_of(row)][-1]:+.1%}"
                )
    print(f"{'source':70} figures  median error  bias")
    for source, found in errors.items():
        print(f"{source:70} {len(found):7}  {median(map(abs, found)):12.1%}  {median(found):+.1%}")
    print(f"mean of the medians: {mean(median(map(abs, found)) for found in errors.values()):.1%}")
    print(f"ranking of layouts: tau = {tau(groups.values()):.3f}")


def case(row: Row) -> tuple[object, ...]:
    """What stays the same where only the layout differs."""
    return tuple(row.get(name) for name in ("model", "gpu", "engine", "precision", "batch", "input_len", "output_len"))


def tau(groups: Any) -> float:
    """Kendall's tau over all pairs within groups."""
    agree = differ = 0
    for pairs in groups:
        for (p, m), (q, n) in combinations(pairs, 2):
            if abs(m / n - 1) > NOISE:
                agree += (p > q) == (m > n)
                differ += (p > q) != (m > n)
    return (agree - differ) / max(1, agree + differ)


def source_of(row: Row) -> str:
    """Document that a row is from."""
    words = row["source"].split()
    return words[0] if words[0].startswith("http") else f"{words[0]} {words[2]}"


if __name__ == "__main__":
    main()
