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


@pytest.mark.parametrize("case", [case for case in _CASES if not case["orders"]], ids=_name)
def test_chimera_with_part_of_a_unit_is_never_slower_than_its_public_generator(case: dict[str, Any]) -> None:
    schedule = _build(case)
    check(schedule)
    assert all(_run(schedule, row).makespan_s <= row["makespan"] + 1e-9 for row in case["eval"])
    assert peak_activations(schedule).max() <= max(case["peak"])
