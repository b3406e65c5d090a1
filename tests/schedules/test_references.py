"""Orders, times and peaks equal those of other public implementations (source in each case of the data)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipesim.costs.plain import plain_costs
from pipesim.engine.event import simulate
from pipesim.ir.check import check
from pipesim.ir.lower import lower
from pipesim.ir.memory import peak_activations
from pipesim.ir.schedule import Schedule
from pipesim.schedules.lookup import build
from pipesim.timeline import Timeline

_DATA = Path(__file__).parents[1] / "data" / "schedules" / "two_way_and_slices.json"
_CASES: list[dict[str, Any]] = json.loads(_DATA.read_text())["cases"]


def _name(case: dict[str, Any]) -> str:
    return f"{case['family']}-p{case['ranks']}-m{case['microbatches']}-{case['options']}"


def _build(case: dict[str, Any]) -> Schedule:
    return build(case["family"], ranks=case["ranks"], microbatches=case["microbatches"], **case["options"])


def _run(schedule: Schedule, row: dict[str, Any]) -> Timeline:
    costs = {key: row[key] for key in ("F", "B", "I", "W", "C", "FB") if key in row}
    return simulate(lower(schedule), plain_costs(costs).of(schedule))


def _idle(run: Timeline) -> np.ndarray:
    boxes = run.boxes
    busy = np.bincount(run.program.rank[boxes], weights=(run.end - run.start)[boxes], minlength=run.ranks)
    return run.makespan_s - busy


@pytest.mark.parametrize("case", [case for case in _CASES if case["orders"]], ids=_name)
def test_orders_times_and_peaks_equal_the_reference(case: dict[str, Any]) -> None:
    schedule = _build(case)
    check(schedule)
    assert [order.split() for order in case["orders"]] == schedule.orders
    assert peak_activations(schedule) == pytest.approx(case["peak"])
    for row in case["eval"]:
        run = _run(schedule, row)
        assert run.makespan_s == pytest.approx(row["makespan"])
        if "idle" in row:
            assert _idle(run) == pytest.approx(row["idle"])


@pytest.mark.parametrize(
    ("family", "ranks", "microbatches", "makespan", "slope", "with_latency"),
    [
        ("dualpipe-v", 4, 8, 27.0, 16.0, 32.0),
        ("dualpipe-v", 4, 16, 51.0, 28.0, 59.0),
        ("dualpipe-v", 8, 16, 55.0, 40.0, 68.0),
        ("dualpipe-v", 8, 32, 103.0, 68.0, 123.0),
        ("dualpipe", 4, 8, 26.0, 9.0, 28.25),
        ("dualpipe", 4, 16, 50.0, 15.0, 53.75),
        ("dualpipe", 8, 16, 54.0, 23.0, 59.75),
        ("dualpipe", 8, 32, 102.0, 37.0, 111.25),
        ("chimera", 4, 8, 30.0, 11.0, 32.75),
        ("chimera", 4, 16, 58.0, 19.0, 62.75),
        ("chimera", 8, 16, 66.0, 31.0, 73.75),
    ],
)
def test_makespan_grows_with_latency_as_in_the_reference(
    family: str, ranks: int, microbatches: int, makespan: float, slope: float, with_latency: float
) -> None:
    """F = I = W = 1; the slope is that of very small latencies (the sources of the stored cases, replayed)."""
    schedule = build(family, ranks=ranks, microbatches=microbatches)
    times = {latency: _run(schedule, {"F": 1.0, "I": 1.0, "W": 1.0, "C": latency}).makespan_s
             for latency in (0.0, 0.001, 0.25)}  # fmt: skip
    assert times[0.0] == pytest.approx(makespan)
    assert (times[0.001] - times[0.0]) / 0.001 == pytest.approx(slope)
    assert times[0.25] == pytest.approx(with_latency)


@pytest.mark.parametrize("case", [case for case in _CASES if not case["orders"]], ids=_name)
def test_chimera_with_part_of_a_unit_is_never_slower_than_its_public_generator(case: dict[str, Any]) -> None:
    schedule = _build(case)
    check(schedule)
    assert all(_run(schedule, row).makespan_s <= row["makespan"] + 1e-9 for row in case["eval"])
    assert peak_activations(schedule).max() <= max(case["peak"])
