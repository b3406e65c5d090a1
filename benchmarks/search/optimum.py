"""How far the heuristics are from the proven optimum: random costs, 2 to 4 ranks, 2 to 8 microbatches.

`python benchmarks/search/optimum.py [--cases 60] [--exact 60]` writes optimum.txt beside it. The exact solver
starts from the best order found; where it proves nothing in its time, the case is counted apart, with
the gap to the best of both bounds.
"""

from __future__ import annotations

import argparse
import statistics
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pipesim.ir.placement import linear, looped, vee
from pipesim.plan.search import exact
from pipesim.plan.search.arrays import Layout
from pipesim.plan.search.bounds import lower_bounds
from pipesim.plan.search.candidates import candidate
from pipesim.plan.search.orders import from_schedule
from pipesim.plan.search.problem import Memory, Problem
from pipesim.plan.search.search import Effort, search

RESULTS = Path(__file__).with_name("optimum.txt")


@dataclass(frozen=True)
class Row:
    """A case, what construction and the whole search found, what the solver proved, and seconds of both."""

    name: str
    constructed: float
    found: float
    bound: float
    optimal: bool
    search_s: float
    exact_s: float


def random_problem(seed: int) -> Problem:
    """Whole seconds from 5 to 30 for every stage and kind, any of a few limits and latencies."""
    draw = np.random.default_rng(seed)
    ranks, microbatches = int(draw.integers(2, 5)), int(draw.integers(2, 9))
    placement = (linear(ranks), vee(ranks), looped(ranks, 2))[int(draw.integers(3))]
    stages, share = placement.stages, placement.share
    limit = float(draw.choice([1.0, 1.5, 2.0, ranks / 2 + 1, ranks, 2 * ranks]))
    part, latency = float(draw.choice([0.0, 0.5, 1.0])), float(draw.choice([0, 1, 3]))
    memory = Memory(np.full(stages, share), np.full(stages, part), np.full(ranks, limit))
    seconds = draw.integers(5, 31, (3, stages)).astype(np.float64)
    lag = np.full((2, stages), latency)
    return Problem(placement, microbatches, True, seconds, lag, np.zeros_like(lag), memory, np.zeros(ranks))


def solved(seed: int, exact_s: float) -> Row:
    problem = random_problem(seed)
    kind, ranks = problem.placement.kind(), problem.ranks
    name = (
        f"{kind} p={ranks} m={problem.microbatches} limit={problem.memory.limit[0]:g} freed={problem.memory.part[0]:g}"
    )
    begun = time.perf_counter()
    constructed = search(problem, effort=Effort(rounds=0, exact_s=0)).end_s
    found = search(problem, effort=Effort(exact_s=0))
    search_s = time.perf_counter() - begun
    if found.optimal:
        return Row(name, constructed, found.end_s, found.end_s, True, search_s, 0.0)
    layout = Layout(problem)
    order = from_schedule(layout, found.schedule)
    assert order is not None
    start = candidate(layout, order, "search")
    assert start is not None
    begun = time.perf_counter()
    proof = exact.solve(layout, start, time_limit_s=exact_s, seed=0, workers=2)
    best = found.end_s if proof.better is None else proof.better.end_s
    bound = best if proof.optimal else max(proof.bound_s, lower_bounds(problem).best_s)
    return Row(name, constructed, found.end_s, bound, proof.optimal, search_s, time.perf_counter() - begun)


def summary(rows: list[Row]) -> list[str]:
    proven = [row for row in rows if row.optimal]
    lines = [f"{len(rows)} random cases, {len(proven)} with a proven optimum"]
    for word, gaps in (
        ("constructed", [row.constructed / row.bound - 1 for row in proven]),
        ("search", [row.found / row.bound - 1 for row in proven]),
    ):
        exactly = sum(gap < 1e-9 for gap in gaps)
        lines.append(
            f"{word:12} above the optimum: median {statistics.median(gaps):.2%}, mean {statistics.fmean(gaps):.2%}, "
            f"worst {max(gaps):.2%}; optimal in {exactly}"
        )
    seconds = [row.search_s for row in rows]
    lines.append(f"seconds of the search: median {statistics.median(seconds):.1f}, most {max(seconds):.1f}")
    return lines


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--cases", type=int, default=60)
    options.add_argument("--exact", type=float, default=60.0, help="seconds for each proof")
    given = options.parse_args()
    rows = []
    head = f"{'case':44}{'constructed':>12}{'search':>9}{'bound':>9}{'gap':>8}  proven  search s  exact s"
    print(head)
    lines = [head]
    for seed in range(given.cases):
        row = solved(seed, given.exact)
        rows.append(row)
        gap = row.found / row.bound - 1
        numbers = f"{row.constructed:12g}{row.found:9g}{row.bound:9g}{gap:8.2%}"
        lines.append(
            f"{row.name:44}{numbers}  {'yes' if row.optimal else 'no':>6}{row.search_s:10.1f}{row.exact_s:9.1f}"
        )
        print(lines[-1], flush=True)
    lines = [*summary(rows), "", *lines]
    print("\n".join(summary(rows)))
    RESULTS.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
