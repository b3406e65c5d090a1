"""Orders, times and peaks of the families that go one way equal those of other public implementations."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from pipesim.ir.check import check
from pipesim.ir.memory import peak_activations
from pipesim.ir.schedule import Schedule
from pipesim.schedules.lookup import build
from tests.schedules.oracle import Run, run

_DATA = Path(__file__).parents[1] / "data" / "schedules"
_REFERENCE: dict[str, Any] = json.loads((_DATA / "one_way.json").read_text())
_PUBLISHED: dict[str, Any] = json.loads((_DATA / "zero_bubble.json").read_text())


def _name(case: dict[str, Any]) -> str:
    options = "-".join(f"{key}{value}" for key, value in case["options"].items())
    return f"{case['family']}-p{case['ranks']}-m{case['microbatches']}-{options}"


def _build(case: dict[str, Any]) -> Schedule:
    return build(case["family"], ranks=case["ranks"], microbatches=case["microbatches"], **case["options"])


@pytest.mark.parametrize("case", _REFERENCE["cases"], ids=_name)
def test_orders_times_and_peaks_equal_the_reference(case: dict[str, Any]) -> None:
    schedule = _build(case)
    check(schedule)
    text = "\n".join(" ".join(order) for order in schedule.orders)
    assert hashlib.sha256(text.encode()).hexdigest()[:16] == case["orders"], text
    assert peak_activations(schedule) == pytest.approx(case["peak"])
    for cost, (makespan, span) in zip(_REFERENCE["costs"], case["runs"], strict=True):
        found = _run(schedule, cost)
        assert (found.makespan, found.span) == pytest.approx((makespan, span), abs=1e-5)


@pytest.mark.parametrize("row", _REFERENCE["latency"], ids=_name)
def test_makespan_grows_with_latency_as_in_the_reference(row: dict[str, Any]) -> None:
    schedule = _build(row)
    times = {latency: run(schedule, {"F": 1, "I": 1, "W": 1}, latency).makespan for latency in (0.0, 0.001, 0.25)}
    assert times[0.0] == pytest.approx(row["makespan"])
    assert (times[0.001] - times[0.0]) / 0.001 == pytest.approx(row["slope"])
    assert times[0.25] == pytest.approx(row["makespan_quarter"])


@pytest.mark.parametrize("row", _PUBLISHED["table5"], ids=lambda row: f"{row['model']}-m{row['m']}")
def test_bubble_rates_of_fixed_orders_are_those_of_table_5(row: dict[str, Any]) -> None:
    """The published column of interleaved 1F1B leaves out dependencies, so that one is compared as recomputed."""
    families = {"1F1B": ("1f1b", {}), "ZB-H1": ("zb-h1", {}), "ZB-H2": ("zb-h2", {})}
    found = {column: _rate(name, row, row, **options) for column, (name, options) in families.items()}
    assert found == pytest.approx({column: row["published"][column] for column in families}, abs=5.1e-5)
    assert _rate("interleaved", row, row, virtual=row["virtual"]) == pytest.approx(
        row["recomputed"]["1F1B-I"], abs=1e-6
    )


@pytest.mark.parametrize("row", _PUBLISHED["table8"], ids=lambda row: f"m{row['m']}")
def test_bubble_rates_of_fixed_orders_are_those_of_table_8(row: dict[str, Any]) -> None:
    of_stage = {kind: 2 * row[kind] for kind in "FIW"} | {"C": row["C"]}
    families = {"1F1B": "1f1b", "ZB-H1": "zb-h1", "ZB-H2": "zb-h2"}
    found = {column: _rate(name, row, of_stage) for column, name in families.items()}
    assert found == pytest.approx({column: row["published"][column] for column in families}, abs=5.1e-5)
    assert _rate("interleaved", row, of_stage, virtual=2) == pytest.approx(row["interleaved"], abs=1e-6)


def _run(schedule: Schedule, cost: dict[str, float]) -> Run:
    return run(schedule, {kind: cost[kind] for kind in "FIW"}, cost["C"])


def _rate(name: str, row: dict[str, Any], cost: dict[str, float], **options: int) -> float:
    """Bubble of the zero-bubble papers: what the longest span of a rank is longer than its work, over the span."""
    span = _run(build(name, ranks=row["p"], microbatches=row["m"], **options), cost).span
    return 1 - row["m"] * sum(cost[kind] for kind in "FIW") / span
