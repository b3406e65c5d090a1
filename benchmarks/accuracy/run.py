"""Predicted against measured training runs, by source.

    python benchmarks/accuracy/run.py [ROWS.jsonl]

Prints rows, median and 90th percentile of the absolute error of the step time, bias, Kendall's tau of the ranking of
layouts, and the error of memory; then their means, and beside them the trivial predictor; ratios between schedules;
and Calculon's figures.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from statistics import mean, median
from typing import Any

from benchmarks.accuracy.scores import Run, Score, by_source, schedule_ratios, scores
from benchmarks.accuracy.trivial import trivial_times
from pipesim.plan.predict import predict_row

DATA = Path(__file__).parents[2] / "tests" / "data"
ROWS = DATA / "training.jsonl"
CALCULON = {
    "korthikanti-2205.05198": "mean 3.7%, worst 8.9%",
    "vtrain-multi": "mean 15.4%, median 9.7%, p90 32% (109 rows)",
}
"""What Calculon reaches, with parameters of its own for the A100: on the same eight, and on all multi-node rows."""


def main(path: Path) -> None:
    rows = read(path)
    found = runs(rows)
    trivial = [Run(row, seconds) for row, seconds in zip(rows, trivial_times(rows), strict=True)]
    print_table(scores(found), {score.source: score for score in scores(trivial)})
    print_ratios(found)
    eight = runs(read(DATA / "korthikanti.jsonl"))
    print_beside_calculon(eight + [run for run in found if run.row["source_id"] in CALCULON])


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def runs(rows: list[dict[str, Any]]) -> list[Run]:
    made = [(row, predict_row(row)) for row in rows]
    return [Run(row, one.step_time_s, one.memory_gb) for row, one in made]


def print_table(found: list[Score], trivial: dict[str, Score]) -> None:
    print(
        f"{'source':26} {'rows':>5} {'median':>7} {'p90':>7} {'bias':>7} {'tau':>6} {'clear':>6} "
        f"{'memory':>7} | trivial, tau"
    )
    for one in found:
        other = trivial[one.source]
        print(
            f"{one.source:26} {one.rows:5} {one.median:7.1%} {one.p90:7.1%} {one.bias:+7.1%} {_text(one.tau, '6.2f')} "
            f"{_text(one.clear, '6.2f')} {_text(one.memory, '7.1%')} | {other.median:.1%} {_text(other.tau, '5.2f')}"
        )
    taus = [one.tau for one in found if one.tau is not None]
    clear = [one.clear for one in found if one.clear is not None]
    other_taus = [one.tau for one in trivial.values() if one.tau is not None]
    print(
        f"{'mean of sources':26} {sum(one.rows for one in found):5} {mean(one.median for one in found):7.1%} "
        f"{mean(one.p90 for one in found):7.1%} {'':7} {mean(taus):6.2f} {mean(clear):6.2f} {'':7} | "
        f"{mean(one.median for one in trivial.values()):.1%} {mean(other_taus):5.2f}"
    )


def print_ratios(found: list[Run]) -> None:
    for source in ("zb-2401.10241", "vocabpar-2411.05288"):
        off = schedule_ratios(run for run in found if run.row["source_id"] == source)
        if not off:
            continue
        print(f"\nratios of step time to plain 1F1B, {source}: median error {median(abs(o) for o, _ in off):.1%}")
        for name in sorted({name for _, name in off}):
            mine = [one for one, what in off if what == name]
            print(f"  {name:34} {len(mine):3}  median {median(mine):+.1%}, within {max(abs(one) for one in mine):.1%}")


def print_beside_calculon(found: list[Run]) -> None:
    print("\nbeside Calculon")
    for source, mine in by_source(found).items():
        errors = sorted(abs(run.error) for run in mine)
        print(
            f"  {source:24} {len(errors):3} rows: mean {mean(errors):.1%}, median {median(errors):.1%}, "
            f"p90 {errors[int(0.9 * (len(errors) - 1) + 0.5)]:.1%}, worst {errors[-1]:.1%} | Calculon "
            f"{CALCULON[source]}"
        )


def _text(value: float | None, form: str) -> str:
    return f"{'-':>{form.partition('.')[0]}}" if value is None else format(value, form)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else ROWS)
