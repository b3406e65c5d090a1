"""At stored limits and cost sets no longer than stored heuristic schedules; all of them: benchmarks/search/bars.txt."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pipesim.ir.check import check
from pipesim.ir.memory import Release, peak_activations
from pipesim.ir.placement import linear, vee
from pipesim.plan.search.problem import Problem
from pipesim.plan.search.search import Effort, search
from pipesim.schedules.lookup import build
from tests.plan.search.problems import plain
from tests.schedules.oracle import run

_DATA = Path(__file__).parents[2] / "data" / "search"
_BARS: dict[str, Any] = json.loads((_DATA / "bars.json").read_text())
_ROWS = json.loads((_DATA / "zero_bubble.json").read_text())["rows"]
_RELEASE: dict[float, Release] = {0.0: "at_weight", 0.5: "half"}
_EVERY = 11  # of the stored rows one


def _cases() -> list[Any]:
    rows = _BARS["rows"][::_EVERY]
    return [
        pytest.param(*row, id="-".join(map(str, row[:6])), marks=[] if row[1] * row[2] <= 16 else [pytest.mark.slow])
        for row in rows
    ]


def _reached(problem: Problem, bar: float, starts: list[Any] | None = None) -> Any:
    """A search that ends when the bar is met."""
    effort = Effort(rounds=36, exact_s=0)
    return search(problem, starts=starts or [], effort=effort, report=lambda one: one.best_s > bar * (1 + 1e-6))


@pytest.mark.parametrize(("word", "ranks", "microbatches", "limit", "freed", "cost", "makespan", "source"), _cases())
def test_no_longer_than_a_stored_schedule(word, ranks, microbatches, limit, freed, cost, makespan, source):
    seconds = _BARS["costs"][cost]
    placement = vee(ranks) if word == "vee" else linear(ranks)
    problem = plain(placement, microbatches, tuple(seconds[key] for key in "FIWC"), limit, freed)
    found = _reached(problem, makespan)
    check(found.schedule)
    assert peak_activations(found.schedule, _RELEASE[freed]).max() <= limit + 1e-9
    timed = run(found.schedule, {kind: seconds[kind] for kind in "FIW"}, seconds["C"])
    assert timed.makespan == pytest.approx(found.end_s)
    assert timed.makespan <= makespan * (1 + 1e-6)
    assert found.bounds.best_s <= makespan * (1 + 1e-6), "a lower bound above a schedule that there is"


@pytest.mark.slow
@pytest.mark.parametrize("row", _ROWS, ids=lambda row: f"{row['model']}-m{row['microbatches']}")
@pytest.mark.parametrize("factor", [1, 2])
def test_no_longer_than_the_automatic_schedules_of_the_zero_bubble_paper(row, factor):
    times = tuple(row[key] for key in "FIWC")
    problem = plain(linear(row["ranks"]), row["microbatches"], times, factor * row["ranks"], 0.5)
    bar = row["makespan_ms"][f"ZB-{factor}p"]
    assert _reached(problem, bar).end_s <= bar * (1 + 1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("times", [(1, 1, 1, 0), (10, 12, 8, 1)], ids=["equal", "unequal"])
@pytest.mark.parametrize(("family", "limit"), [("zb-v", 8), ("v-half", 5), ("v-min", 4)])
def test_no_longer_than_fixed_orders_of_the_v_in_as_much_memory(family, limit, times):
    made = build(family, ranks=8, microbatches=24)
    assert peak_activations(made).max() <= limit
    bar = run(made, dict(zip("FIW", times, strict=False)), times[3]).makespan
    assert _reached(plain(vee(8), 24, times, limit), bar).end_s <= bar * (1 + 1e-6)
