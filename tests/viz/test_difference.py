"""Simulated against measured, action by action."""

from dataclasses import replace

import numpy as np
import pytest

from pipesim.timeline import Timeline
from pipesim.viz.difference import NothingInCommon, difference, lateness
from tests.viz.cases import timeline


def late_by(made: Timeline, seconds: float) -> Timeline:
    return replace(made, start=made.start + seconds, end=made.end + seconds, source="measured")


def test_lateness_is_the_difference_of_starts() -> None:
    one, other = timeline("1f1b", 4, 8), timeline("1f1b", 4, 8, jitter=0.1)
    found = lateness(one, other)
    boxes = one.program.is_compute
    np.testing.assert_array_equal(found.late_s[boxes], (other.start - one.start)[boxes])
    np.testing.assert_allclose(found.longer_s[boxes], (other.end - other.start - one.end + one.start)[boxes])
    assert np.isnan(found.late_s[~boxes]).all()


def test_another_order_of_the_same_actions_is_matched_by_action() -> None:
    one, other = timeline("gpipe", 4, 8), timeline("1f1b", 4, 8)
    found = lateness(one, other)
    at = {other.label(op): op for op in other.boxes.tolist()}
    mine = {one.label(op): op for op in one.boxes.tolist()}
    assert found.late_s[at["0B0"]] == other.start[at["0B0"]] - one.start[mine["0B0"]]


def test_clocks_that_start_elsewhere_are_aligned() -> None:
    one = timeline("1f1b", 4, 8)
    figure = difference(one, late_by(one, 5.0)).to_plotly_json()
    assert figure["layout"]["xaxis"]["range"][1] < 1.0
    row = figure["layout"]["meta"]["pipesim"]["table"]["rows"][0]
    assert row["label"] == "step time"
    assert row["texts"][2] == "0 %"


def test_two_schedules_without_a_common_action() -> None:
    one, other = timeline("1f1b", 2, 4), timeline("forward-only", 2, 4)
    ops = replace(other.program.ops, microbatch=other.program.ops.microbatch + 100)
    moved = replace(other, program=replace(other.program, ops=ops))
    with pytest.raises(NothingInCommon, match="1f1b and forward-only have no action in common"):
        lateness(one, moved)


@pytest.mark.parametrize("microbatches", [8, 64])
def test_the_figure_has_both_runs_and_their_difference(microbatches: int) -> None:
    one, other = timeline("1f1b", 8, microbatches), timeline("1f1b", 8, microbatches, jitter=0.1)
    figure = difference(one, replace(other, source="measured")).to_plotly_json()
    about = figure["layout"]["meta"]["pipesim"]
    assert [panel["axes"][1] for panel in about["panels"]] == ["y", "y2", "y3"]
    assert about["panels"][2]["values"]["scale"] > 0
    assert about["table"]["names"] == ["1f1b, simulated", "1f1b, measured", "difference"]
