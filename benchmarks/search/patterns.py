"""Is it the bound or the order that is weak on a V with little memory? The best pattern that there is, by CP-SAT.

A pattern runs every action of a microbatch some whole number of seconds after those of the microbatch before; F/I/W/C
are 10/12/8/1 a rank. Periods of whole seconds are tried one after the other, until one is possible or time is over.
`python benchmarks/search/patterns.py [--quick]` writes patterns.txt beside it.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

from ortools.sat.python import cp_model

from pipesim.costs.plain import parse_costs
from pipesim.ir.placement import vee
from pipesim.plan.search.bounds import lower_bounds
from pipesim.plan.search.limit import Limit
from pipesim.plan.search.search import Effort, search
from pipesim.plan.search.setting import Setting

RESULTS = Path(__file__).with_name("patterns.txt")
SECONDS = {"F": 5, "I": 6, "W": 4}  # of one of the two stages of a rank
HOP = 1
MOST_PERIODS = 60  # that a microbatch is under way
CASES = [(4, 2, 30), (4, 3, 30), (8, 3, 38), (8, 4, 30)]  # ranks, limit in microbatches, first period


@dataclass(eq=False)
class Pattern:
    """Start of each action as a place in the period and a number of periods."""

    ranks: int
    limit: int
    period: int

    def __post_init__(self) -> None:
        self.model = cp_model.CpModel()
        self.stages = 2 * self.ranks
        self.at = {(kind, stage): self._moment() for kind in "FIW" for stage in range(self.stages)}
        self.ends = {stage: self._moment() for stage in range(self.stages)}
        self._along_the_way()
        for rank in range(self.ranks):
            self._one_at_a_time(rank)
            self._within_the_limit(rank)

    def is_possible(self, time_limit_s: float) -> bool | None:
        """None where that takes too long to say."""
        solver = cp_model.CpSolver()
        solver.parameters.max_time_in_seconds, solver.parameters.num_workers = time_limit_s, 2
        status = solver.solve(self.model)
        return {cp_model.OPTIMAL: True, cp_model.FEASIBLE: True, cp_model.INFEASIBLE: False}.get(status)

    def _moment(self) -> tuple[Any, Any]:
        return self.model.new_int_var(0, self.period - 1, ""), self.model.new_int_var(0, MOST_PERIODS, "")

    def _start(self, kind: str, stage: int) -> Any:
        place, turn = self.at[kind, stage]
        return place + self.period * turn

    def _hop(self, stage: int) -> int:
        """To the next stage, or back."""
        return HOP if stage + 1 != self.ranks else 0

    def _along_the_way(self) -> None:
        last = self.stages - 1
        for stage in range(self.stages):
            if stage < last:
                hop = self._hop(stage)
                self.model.add(self._start("F", stage + 1) >= self._start("F", stage) + SECONDS["F"] + hop)
                self.model.add(self._start("I", stage) >= self._start("I", stage + 1) + SECONDS["I"] + hop)
            self.model.add(self._start("W", stage) >= self._start("I", stage) + SECONDS["I"])
            place, turn = self.ends[stage]
            self.model.add(place + self.period * turn == self._start("W", stage) + SECONDS["W"])
        self.model.add(self._start("F", 0) == 0)
        self.model.add(self._start("I", last) >= self._start("F", last) + SECONDS["F"])

    def _one_at_a_time(self, rank: int) -> None:
        mine = [(kind, stage) for kind in "FIW" for stage in (rank, self.stages - 1 - rank)]
        for one, two in combinations(mine, 2):
            first = self.model.new_bool_var("")
            for before, after, chosen in ((one, two, first), (two, one, ~first)):
                ends = self.at[before][0] + SECONDS[before[0]]
                self.model.add(ends <= self.at[after][0]).only_enforce_if(chosen)
                ends = self.at[after][0] + SECONDS[after[0]]
                self.model.add(ends <= self.at[before][0] + self.period).only_enforce_if(chosen)

    def _within_the_limit(self, rank: int) -> None:
        """When a forward starts: activations taken by then, less those given back, in halves of a microbatch."""
        mine = (rank, self.stages - 1 - rank)
        for stage in mine:
            held = []
            for other in mine:
                held += [self.ends[other][1] - self.at["F", other][1]]
                held += [1 if other == stage else self._by(self.at["F", other][0], self.at["F", stage][0])]
                held += [-self._by(self.ends[other][0], self.at["F", stage][0])]
            self.model.add(sum(held) <= 2 * self.limit)

    def _by(self, one: Any, other: Any) -> Any:
        """Whether one place of the period is not behind another one."""
        found = self.model.new_bool_var("")
        self.model.add(one <= other).only_enforce_if(found)
        self.model.add(one > other).only_enforce_if(~found)
        return found


def rows(cases: list[tuple[int, int, int]], time_limit_s: float) -> Iterator[str]:
    """By case: seconds a microbatch by bound, of the best pattern, and of the search in the middle of a step."""
    yield f"{'p':>3}{'limit':>7}{'bound':>8}{'best pattern':>15}{'search':>9}"
    for ranks, limit, period in cases:
        possible: bool | None = False
        while not possible and possible is not None:
            possible = Pattern(ranks, limit, period).is_possible(time_limit_s)
            period += not possible and possible is not None
        best = f"{period}" if possible else f"{period} or more"
        searched, bound = _by_microbatch(ranks, limit)
        yield f"{ranks:3}{limit:7}{bound:8.2f}{best:>15}{searched:9.2f}"


def _by_microbatch(ranks: int, limit: int) -> tuple[float, float]:
    """What a microbatch more costs, by the search and by the bound."""
    prices, ends = parse_costs("F=10s,I=12s,W=8s,C=1s"), []
    counts = (12 * ranks, 24 * ranks)
    for count in counts:
        problem = Setting(vee(ranks), count, prices, Limit(limit, "microbatches")).problem()
        ends.append((search(problem, effort=Effort(exact_s=0)).end_s, lower_bounds(problem).best_s))
    more = counts[1] - counts[0]
    return (ends[1][0] - ends[0][0]) / more, (ends[1][1] - ends[0][1]) / more


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--quick", action="store_true", help="the first case, nothing written")
    given = options.parse_args()
    lines = []
    for line in rows(CASES[:1] if given.quick else CASES, 20 if given.quick else 100):
        lines.append(line)
        print(line, flush=True)
    if not given.quick:
        RESULTS.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
