"""How long `pipesim predict` takes for ten thousand rows on two processes (at most five minutes are asked for).

    python benchmarks/accuracy/speed.py [COUNT]

Rows are those of tests/data/training.jsonl with batch, sequence, vocabulary and layers drawn anew, so that hardly two
are alike and nothing computed for one serves another.
"""

from __future__ import annotations

import json
import random
import sys
import time
from pathlib import Path
from typing import Any

from pipesim.plan.batch import predict_lines

ROWS = Path(__file__).parents[2] / "tests" / "data" / "training.jsonl"


def main(count: int) -> None:
    lines = [json.dumps(row) for row in varied(count)]
    begin = time.perf_counter()
    found = list(predict_lines(lines, workers=2))
    took = time.perf_counter() - begin
    wrong = sum("error" in one for one in found)
    print(f"{count} rows in {took:.0f} s, {1e3 * took / count:.1f} ms a row on two processes; {wrong} with an error")


def varied(count: int) -> list[dict[str, Any]]:
    draw = random.Random(7)
    rows = [json.loads(line) for line in ROWS.read_text("utf-8").splitlines()]
    made = []
    for number in range(count):
        row = dict(draw.choice(rows), id=number)
        row["global_batch"] *= draw.choice((1, 2, 3, 4))
        row["seq"] = min(row["seq"] * draw.choice((1, 2)), 131072)
        row["vocab"] += 128 * draw.randrange(100)
        row["layers"] += row["pp"] * row.get("vp", 1) * draw.randrange(3)
        row.pop("measured")
        made.append(row)
    return made


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 10_000)
