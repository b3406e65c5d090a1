"""What holds for every size and cost of the families in which all microbatches go the same way."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from pipesim.costs.plain import plain_costs
from pipesim.engine.event import simulate
from pipesim.ir.check import check, check_program
from pipesim.ir.lower import lower
from pipesim.ir.memory import peak_activations
from pipesim.ir.program import COMM_POLICIES
from pipesim.ir.schedule import Schedule
from pipesim.schedules.constraints import Unsuitable
from pipesim.schedules.families_one_way import ONE_WAY
from pipesim.schedules.families_vee import VEE
from pipesim.schedules.family import Family, Setting
from pipesim.schedules.interleaved import group_size
from pipesim.schedules.v_auto import v_auto
from pipesim.schedules.zb_auto import zb_auto
from pipesim.schedules.zb_h1 import zb_h1
from tests.schedules.oracle import Run, run

_FIXED = [family for family in (*ONE_WAY, *VEE) if "memory_limit" not in family.options]
_TIMES = st.sampled_from([0.5, 1.0, 1.25, 2.0, 3.0])
_quickly = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))


@dataclass(frozen=True)
class _Made:
    family: Family
    setting: Setting
    schedule: Schedule

    def run(self, latency: float = 0.0) -> Run:
        return run(self.schedule, {"F": self.setting.F, "I": self.setting.I, "W": self.setting.W}, latency)


@st.composite
def _made(draw: st.DrawFn, *, equal: bool = False) -> _Made:
    family = draw(st.sampled_from(_FIXED))
    ranks, microbatches = draw(st.integers(1, 6)), draw(st.integers(1, 14))
    options: dict[str, Any] = {}
    if "virtual" in family.options:
        options["virtual"] = draw(st.integers(1, 3))
    if family.name == "gis":
        options["group"] = draw(st.integers(1, ranks))
    forward, input_grad, weight_grad = (1.0, 1.0, 1.0) if equal else (draw(_TIMES), draw(_TIMES), draw(_TIMES))
    try:
        schedule = family.build(ranks=ranks, microbatches=microbatches, **options)
    except Unsuitable:
        assume(False)
    size = options.get("group") or (
        group_size(family.name, ranks, microbatches, None) if "group" in family.options else 1
    )
    virtual = options.get("virtual", 2 if family in VEE else 1)
    setting = Setting(ranks, microbatches, virtual, size, F=forward, I=input_grad, W=weight_grad, C=draw(_TIMES) / 10)
    return _Made(family, setting, schedule)


@_quickly
@given(made=_made())
def test_orders_are_complete_and_run_in_every_lane(made: _Made) -> None:
    check(made.schedule)
    for comm in COMM_POLICIES:
        check_program(lower(made.schedule, comm=comm))


@_quickly
@given(made=_made())
def test_peak_activations_are_the_closed_form(made: _Made) -> None:
    assert made.family.peak is not None
    assume(made.family.peak_holds(made.setting))
    expected = [made.family.peak(made.setting, rank) for rank in range(made.setting.p)]
    assert peak_activations(made.schedule) == pytest.approx(expected)


@_quickly
@given(made=st.one_of(_made(), _made(equal=True)))
def test_makespans_and_spans_are_the_closed_forms(made: _Made) -> None:
    found = made.run()
    for form, value in ((made.family.makespan, found.makespan), (made.family.span, found.span)):
        if form is not None and form.holds(made.setting):
            assert value == pytest.approx(form.value(made.setting))


@_quickly
@given(made=_made())
def test_latency_adds_the_closed_form(made: _Made) -> None:
    makespan, latency, setting = made.family.makespan, made.family.latency, made.setting
    assume(makespan is not None and latency is not None)
    assert makespan is not None
    assert latency is not None
    assume(makespan.holds(setting) and latency.holds(setting) and setting.p > 1)
    assume(min(setting.F, setting.I + setting.W) >= 4 * setting.v * setting.C)  # hidden where it can be
    assert made.run(setting.C).makespan == pytest.approx(makespan.value(setting) + latency.value(setting))


@_quickly
@given(made=_made())
def test_no_step_is_shorter_than_its_work_or_than_one_microbatch_takes(made: _Made) -> None:
    setting, placement = made.setting, made.schedule.placement
    hops = sum(a != b for a, b in zip(placement.ranks_of_stages, placement.ranks_of_stages[1:], strict=False))
    way = setting.p * (setting.F + setting.I) + 2 * hops * setting.C
    makespan = made.run(setting.C).makespan
    assert makespan >= max(setting.m * setting.work, way) - 1e-9


@settings(max_examples=25, deadline=None)
@given(made=_made())
def test_the_engine_agrees_with_the_oracle(made: _Made) -> None:
    """Two programs that share no code but the schedule."""
    setting = made.setting
    costs = plain_costs({"F": setting.F, "I": setting.I, "W": setting.W, "C": setting.C}).of(made.schedule)
    timeline = simulate(lower(made.schedule), costs)
    expected = np.concatenate(made.run(setting.C).starts)
    assert timeline.start[timeline.program.action_ops] == pytest.approx(expected)


@st.composite
def _asked(draw: st.DrawFn) -> dict[str, Any]:
    return {
        "ranks": draw(st.integers(1, 4)),
        "microbatches": draw(st.integers(1, 6)),
        "memory_limit": draw(st.floats(1, 8)),
        "forward": draw(_TIMES),
        "input_grad": draw(_TIMES),
        "weight_grad": draw(st.one_of(_TIMES, st.just(0.0))),
        "latency": draw(st.one_of(_TIMES, st.just(0.0))) / 4,
    }


@settings(max_examples=12, deadline=None)
@given(asked=_asked(), build=st.sampled_from([zb_auto, v_auto]))
def test_orders_made_for_costs_keep_the_limit_and_run_in_every_lane(asked: dict[str, Any], build: Any) -> None:
    schedule = build(**asked)
    check(schedule, max_activations=asked["memory_limit"])
    for comm in COMM_POLICIES:
        check_program(lower(schedule, comm=comm))


@settings(max_examples=8, deadline=None)
@given(asked=_asked(), build=st.sampled_from([zb_auto, v_auto]), release=st.sampled_from([0.5, 1.0]))
def test_a_release_at_the_input_gradient_is_counted_as_the_peak_is(
    asked: dict[str, Any], build: Any, release: float
) -> None:
    schedule = build(**asked, input_release=release)
    check(schedule)
    rule: Any = {0.5: "half", 1.0: "at_input"}[release]
    assert peak_activations(schedule, rule).max() <= asked["memory_limit"] + 1e-9


@settings(max_examples=8, deadline=None)
@given(asked=_asked())
def test_zb_auto_is_never_longer_than_zb_h1_in_its_memory(asked: dict[str, Any]) -> None:
    asked["memory_limit"] = asked["ranks"]
    seconds = {"F": asked["forward"], "I": asked["input_grad"], "W": asked["weight_grad"]}
    fixed = zb_h1(ranks=asked["ranks"], microbatches=asked["microbatches"])
    found = run(zb_auto(**asked), seconds, asked["latency"])
    assert found.makespan <= run(fixed, seconds, asked["latency"]).makespan + 1e-9


@settings(max_examples=5, deadline=None)
@given(asked=_asked(), unit=st.sampled_from([1e-6, 1e-3, 1e6]))
def test_the_unit_of_time_does_not_matter(asked: dict[str, Any], unit: float) -> None:
    scaled = {word: asked[word] * unit for word in ("forward", "input_grad", "weight_grad", "latency")}
    seconds = {"F": asked["forward"], "I": asked["input_grad"], "W": asked["weight_grad"]}
    found = [run(zb_auto(**one), seconds, asked["latency"]).makespan for one in (asked, asked | scaled)]
    assert found[0] == pytest.approx(found[1])  # rounding may break ties of the orders themselves


@pytest.mark.parametrize("build", [zb_auto, v_auto])
def test_a_limit_that_is_none_is_no_limit(build: Any) -> None:
    schedule = build(ranks=3, microbatches=4, memory_limit=float("inf"))
    check(schedule, max_activations=4)


def test_times_of_each_stage_decide_too() -> None:
    """A last stage twice as long: the order for it is shorter than the one for equal stages."""
    uneven = [1.0, 1.0, 1.0, 2.0]
    sizes: dict[str, Any] = {"ranks": 4, "microbatches": 8, "memory_limit": 4}
    for_it = zb_auto(**sizes, forward=uneven, input_grad=uneven, weight_grad=uneven)
    for_equal = zb_auto(**sizes)
    costs = plain_costs({"F": uneven, "I": uneven, "W": uneven, "C": 0.0})
    times = [simulate(lower(made), costs.of(made)).makespan_s for made in (for_it, for_equal)]
    assert times[0] <= times[1]
