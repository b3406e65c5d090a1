"""The search against stored heuristic schedules at each stored limit and cost set, and the zero-bubble paper's rows.

`python benchmarks/search/bars.py [--every 20]` writes bars.txt beside it. Where the usual effort misses a bar, a longer
search starts from V-Half, V-Min and ZB-V; what still misses it is listed.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pipesim.ir.placement import Placement, linear, vee
from pipesim.plan.search.problem import Memory, Problem
from pipesim.plan.search.search import Effort, Start, search
from pipesim.schedules.lookup import build

DATA = Path(__file__).parents[2] / "tests" / "data" / "search"
RESULTS = Path(__file__).with_name("bars.txt")
USUAL, LONGER = Effort(rounds=4, exact_s=0), Effort(climbs=1000, rounds=48, exact_s=0)


@dataclass(frozen=True)
class Bar:
    """What is to be met: its name, who reached it, and the makespan."""

    name: str
    source: str
    makespan: float
    problem: Problem


@dataclass(frozen=True)
class Row:
    """A bar and what the search found, its lower bound, and the seconds it took."""

    bar: Bar
    found: float
    bound: float
    spent_s: float

    @property
    def ratio(self) -> float:
        return self.found / self.bar.makespan


def problem_of(placement: Placement, microbatches: int, times: Sequence[float], limit: float, part: float) -> Problem:
    """times: F, I, W of a rank's whole share of a microbatch, and C; an input gradient frees `part` of it."""
    stages, share = placement.stages, placement.share
    seconds = np.asarray(times[:3])[:, None] * share * np.ones(stages)
    memory = Memory(np.full(stages, share), np.full(stages, part), np.full(placement.ranks, float(limit)))
    lag = np.full((2, stages), float(times[3]))
    return Problem(placement, microbatches, True, seconds, lag, np.zeros_like(lag), memory, np.zeros(placement.ranks))


def stored() -> Iterator[Bar]:
    data = json.loads((DATA / "bars.json").read_text())
    for word, ranks, microbatches, limit, part, cost, makespan, source in data["rows"]:
        times = [data["costs"][cost][key] for key in "FIWC"]
        placement = vee(ranks) if word == "vee" else linear(ranks)
        name = f"{word} p={ranks} m={microbatches} limit={limit:g} freed={part:g} " + "/".join(f"{t:g}" for t in times)
        yield Bar(name, source, makespan, problem_of(placement, microbatches, times, limit, part))


def paper() -> Iterator[Bar]:
    for row in json.loads((DATA / "zero_bubble.json").read_text())["rows"]:
        times = [row[key] for key in "FIWC"]
        for factor in (1, 2):
            makespan = row["makespan_ms"][f"ZB-{factor}p"]
            problem = problem_of(linear(row["ranks"]), row["microbatches"], times, factor * row["ranks"], 0.5)
            yield Bar(f"{row['model']} m={row['microbatches']}", f"ZB-{factor}p", makespan, problem)


def solved(bar: Bar) -> Row:
    begun = time.perf_counter()
    found = search(bar.problem, effort=USUAL)
    if found.end_s > bar.makespan * (1 + 1e-6):
        found = search(
            bar.problem, starts=_published(bar.problem), effort=LONGER, seed=1,
            report=lambda one: one.best_s > bar.makespan * (1 + 1e-6),
        )  # fmt: skip
    return Row(bar, found.end_s, found.bounds.best_s, time.perf_counter() - begun)


def _published(problem: Problem) -> list[Start]:
    names = ("v-half", "v-min", "zb-v") if problem.stages > problem.ranks else ("zb-h1", "zb-h2")
    return [
        lambda microbatches, name=name: build(name, ranks=problem.ranks, microbatches=microbatches) for name in names
    ]


def summary(title: str, rows: Sequence[Row]) -> Iterator[str]:
    """Ratios by who reached the bar; then every exception."""
    yield f"{title}: {len(rows)} limits and cost sets, {sum(row.spent_s for row in rows):.0f} s"
    yield f"{'bar of':10}{'cases':>7}{'better':>8}{'equal':>7}{'worse':>7}{'median':>9}{'best':>9}{'worst':>9}"
    for source in sorted({row.bar.source for row in rows}):
        ratios = [row.ratio for row in rows if row.bar.source == source]
        better, worse = sum(one < 1 - 1e-6 for one in ratios), sum(one > 1 + 1e-6 for one in ratios)
        counts = f"{len(ratios):7}{better:8}{len(ratios) - better - worse:7}{worse:7}"
        yield f"{source:10}{counts}{statistics.median(ratios):9.4f}{min(ratios):9.4f}{max(ratios):9.4f}"
    tight = sum(row.found <= row.bound * (1 + 1e-6) for row in rows)
    gaps = [row.found / row.bound - 1 for row in rows]
    yield f"lower bound met, so proven optimal: {tight}"
    yield f"gap to it: median {statistics.median(gaps):.2%}, most {max(gaps):.2%}"
    missed = [row for row in rows if row.ratio > 1 + 1e-6]
    yield "exceptions: " + ("none" if not missed else "")
    for row in missed:
        yield f"  {row.bar.name} ({row.bar.source}): {row.found:g} for {row.bar.makespan:g}, {row.ratio - 1:+.2%}"


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--every", type=int, default=1, help="only every n-th stored case")
    given = options.parse_args()
    lines = []
    for title, bars in (
        ("stored heuristic schedules", list(stored())[:: given.every]),
        ("zero-bubble paper", list(paper())),
    ):
        rows = []
        for bar in bars:
            rows.append(solved(bar))
            if rows[-1].ratio > 1 + 1e-6:
                print("  missed so far:", rows[-1].bar.name, rows[-1].bar.source, rows[-1].ratio, flush=True)
        lines += [*summary(title, rows), ""]
        if title == "zero-bubble paper":
            for row in rows:
                lines.append(
                    f"  {row.bar.name:12}{row.bar.source:7}{row.bar.makespan:10.2f} ms, search {row.found:9.2f}, ratio "
                    f"{row.ratio:.4f}, bound {row.bound:9.2f}"
                )
        print("\n".join(lines), flush=True)
    if given.every == 1:
        RESULTS.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
