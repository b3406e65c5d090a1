"""What holds for every size and cost of the families in two directions, with slices, moves or odd steps."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from pipesim.costs.costs import StageBytes
from pipesim.costs.plain import plain_costs
from pipesim.engine.event import simulate
from pipesim.ir.check import check
from pipesim.ir.lower import lower
from pipesim.ir.memory import peak_activations
from pipesim.ir.program import COMM_POLICIES
from pipesim.ir.schedule import Schedule
from pipesim.ir.versions import staleness, versions_kept, weights_used
from pipesim.schedules.bpipe import activation_bound, bpipe
from pipesim.schedules.families_special import SPECIAL
from pipesim.schedules.families_two_way import TWO_WAY
from pipesim.schedules.family import Family, Setting
from pipesim.schedules.offload import with_offload

_ALL = (*TWO_WAY, *SPECIAL)


@dataclass(frozen=True)
class _Made:
    family: Family
    setting: Setting
    schedule: Schedule

    def run(self) -> float:
        x = self.setting
        costs = plain_costs({"F": x.F, "I": x.I, "W": x.W, "C": x.C})
        return simulate(lower(self.schedule), costs.of(self.schedule)).makespan_s


@st.composite
def _sizes(draw: st.DrawFn, family: Family) -> tuple[int, int, dict[str, Any]]:
    ranks = draw(st.integers(1, 6))
    microbatches = draw(st.integers(1, 12))
    options: dict[str, Any] = {}
    if family.name in ("chimera", "dualpipe"):
        ranks += ranks % 2
    if family.name in ("dualpipe", "dualpipe-v"):
        microbatches = 2 * ranks + 2 * (microbatches // 2)
    if "virtual" in family.options:
        options["virtual"] = draw(st.sampled_from([2, 4]))
    if "slices" in family.options:
        options["slices"] = draw(st.integers(1, 4))
    if "update_every" in family.options:
        options["update_every"] = ranks + draw(st.integers(0, 2))
        microbatches = options["update_every"] * draw(st.integers(1, 3))
    return ranks, microbatches, options


@st.composite
def _cases(draw: st.DrawFn, latency: bool = False) -> _Made:
    family = draw(st.sampled_from(_ALL))
    ranks, microbatches, options = draw(_sizes(family))
    times = st.sampled_from([0.5, 1.0, 1.25, 2.0, 3.0])
    setting = Setting(
        ranks,
        microbatches,
        v=options.get("virtual", 1),
        s=options.get("slices", 1),
        n=options.get("update_every", ranks),
        F=draw(times),
        I=draw(times),
        W=draw(times),
        C=draw(st.sampled_from([0.05, 0.3, 2.0])) if latency else 0.0,
    )
    return _Made(family, setting, family.build(ranks=ranks, microbatches=microbatches, **options))


@given(_cases())
def test_the_checker_passes_and_no_lanes_deadlock(made: _Made) -> None:
    for comm in COMM_POLICIES:
        check(made.schedule, comm=comm)


@given(_cases())
def test_peaks_are_the_closed_form(made: _Made) -> None:
    assert made.family.peak is not None
    expected = [made.family.peak(made.setting, rank) for rank in range(made.setting.p)]
    assert peak_activations(made.schedule) == pytest.approx(expected)


@settings(suppress_health_check=[HealthCheck.filter_too_much])
@given(_cases())
def test_makespans_are_the_closed_form(made: _Made) -> None:
    form = made.family.makespan
    assert form is not None
    assume(form.holds(made.setting))
    assert made.run() == pytest.approx(form.value(made.setting))


@settings(suppress_health_check=[HealthCheck.filter_too_much])
@given(_cases(latency=True))
def test_latency_adds_its_closed_form(made: _Made) -> None:
    makespan, latency = made.family.makespan, made.family.latency
    assume(latency is not None and makespan is not None)
    assert makespan is not None
    assert latency is not None
    assume(makespan.holds(made.setting) and latency.holds(made.setting))
    assert made.run() == pytest.approx(makespan.value(made.setting) + latency.value(made.setting))


@given(_cases(latency=True))
def test_nothing_runs_faster_than_its_work_or_its_longest_chain(made: _Made) -> None:
    x, trains = made.setting, made.family.trains
    work = x.m * (x.work if trains else x.F)
    chain = x.p * (x.F + x.I if trains else x.F) / x.s  # one slice of one microbatch there and back
    hops = (2 if trains else 1) * (x.p - 1) * x.C
    assert made.run() >= max(work, chain + hops) - 1e-9


@given(_cases())
def test_versions_and_staleness_are_the_closed_forms(made: _Made) -> None:
    family, x = made.family, made.setting
    ranks = range(x.p)
    if family.versions is None or family.staleness is None:
        assert set(versions_kept(made.schedule).tolist()) == {1}
        assert not staleness(made.schedule).any()
    else:
        assert versions_kept(made.schedule).tolist() == [family.versions(x, rank) for rank in ranks]
        assert staleness(made.schedule).tolist() == [family.staleness(x, rank) for rank in ranks]


def test_a_backward_runs_with_the_weights_of_its_forward() -> None:
    pipedream = next(family for family in SPECIAL if family.name == "pipedream")
    schedule = pipedream.build(ranks=2, microbatches=4)
    used = dict(zip(schedule.atoms.texts(), weights_used(schedule).tolist(), strict=True))
    assert {text: used[text] for text in ("0F0", "0F1", "0F2", "0F3", "0B2", "0B3", "1F3", "1B3")} == {
        "0F0": 0,
        "0F1": 0,
        "0F2": 1,
        "0F3": 2,
        "0B2": 1,
        "0B3": 2,
        "1F3": 3,
        "1B3": 3,
    }


@given(_cases(), st.sampled_from([0.25, 0.5, 1.0]), st.integers(1, 3))
def test_offload_never_holds_more_and_stays_correct(made: _Made, share: float, ahead: int) -> None:
    assume(made.family.trains and made.family.name != "bpipe")
    moved = with_offload(made.schedule, share=share, ahead=ahead)
    for comm in COMM_POLICIES:
        check(moved, comm=comm)
    assert (peak_activations(moved) <= peak_activations(made.schedule) + 1e-9).all()
    away = int((moved.atoms.kind == 4).sum())
    assert away <= share * (made.schedule.atoms.kind == 0).sum() + made.setting.p


@settings(max_examples=20)
@given(st.integers(2, 10), st.integers(1, 24), st.sampled_from([(1.0, 1.0), (1.0, 2.0), (2.0, 1.0)]))
def test_bpipe_stays_within_its_bound_with_guests_counted(
    ranks: int, microbatches: int, times: tuple[float, float]
) -> None:
    schedule = bpipe(ranks=ranks, microbatches=microbatches)
    none = np.zeros(ranks)
    held = StageBytes(none, none, none, np.ones(ranks), none, none, none)  # activations of one byte
    costs = replace(plain_costs({"F": times[0], "B": times[1]}).of(schedule), held=held)
    memory = simulate(lower(schedule), costs).memory
    assert memory is not None
    assert memory.peak.max() <= activation_bound(ranks)
