"""Long runs are extended from shorter ones: equal to timing them whole."""

from dataclasses import replace

import numpy as np
import pytest

from pipesim.costs.costs import Costs, StageBytes
from pipesim.costs.network import Network, Route
from pipesim.ir.action import Kind
from pipesim.ir.needs import Flow
from pipesim.plan.row_schedule import RowSchedule
from pipesim.plan.timing import timed

PLANS = [
    RowSchedule("1f1b", 4, 1, 1, "edge"),
    RowSchedule("1f1b", 4, 1, 1, "blocking"),
    RowSchedule("1f1b", 1, 1, 1, "edge"),
    RowSchedule("gpipe", 3, 1, 1, "blocking"),
    RowSchedule("interleaved", 4, 1, 3, "edge"),
    RowSchedule("interleaved", 4, 1, 2, "rank"),
    RowSchedule("zb-1p", 4, 1, 1, "edge"),
    RowSchedule("zb-2p", 4, 1, 1, "edge"),
    RowSchedule("zb-v", 4, 1, 2, "edge"),
    RowSchedule("v-half", 4, 1, 2, "edge"),
]


def costs(plan: RowSchedule, seed: int) -> Costs:
    """Uneven stages, the last one slowest."""
    count = plan.placement.stages
    draw = np.random.default_rng(seed)
    forward, back, weight = (draw.uniform(0.9, 1.1, count) * scale for scale in (1.0, 1.1, 0.8))
    forward[-1] *= 1.4
    ones = np.ones(count)
    held = StageBytes(ones, ones, ones, ones, 0.5 * ones, 0.1 * ones, np.zeros(plan.ranks))
    return Costs(
        count,
        {Kind.F: forward, Kind.I: back, Kind.W: weight, Kind.B: back + weight},
        message_bytes=dict.fromkeys((Flow.ACTIVATION, Flow.GRADIENT), ones),
        network=Network(Route(0.02, 50.0)),
        reduce_s=0.3 * ones,
        optimizer_s=0.1 * ones,
        held=held,
    )


@pytest.mark.parametrize("plan", PLANS, ids=lambda plan: f"{plan.family} {plan.comm} {plan.virtual}")
@pytest.mark.parametrize("more", [4, 9])
def test_an_extended_run_equals_the_whole_one(plan: RowSchedule, more: int, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = replace(
        plan, microbatches=(6 + more) * plan.ranks + (0 if "interleaved" in plan.family else plan.ranks // 2)
    )
    prices = costs(plan, more)
    extended = timed(plan, prices, reduce=True)
    monkeypatch.setattr("pipesim.plan.timing._ROUNDS", 1000)
    whole = timed(plan, prices, reduce=True)
    assert extended.step_s == pytest.approx(whole.step_s, rel=2e-3)
    assert extended.makespan_s == pytest.approx(whole.makespan_s, rel=2e-3)
    np.testing.assert_allclose(extended.busy_s, whole.busy_s, rtol=1e-9)
    np.testing.assert_allclose(extended.peak_bytes, whole.peak_bytes, rtol=0.05)


def test_messages_and_reduction_that_take_no_time_show_nothing() -> None:
    plan = RowSchedule("1f1b", 4, 8, 1, "edge")
    prices = costs(plan, 1)
    free = replace(prices, network=Network(), reduce_s=np.zeros(4))
    assert timed(plan, free, reduce=True).messages_s == pytest.approx(0.0)
    assert timed(plan, free, reduce=True).sync_s == pytest.approx(0.0)
    assert timed(plan, prices, reduce=True).messages_s > 0
    assert timed(plan, prices, reduce=True).sync_s == pytest.approx(0.3)


def test_zero_bubble_steps_follow_each_other_without_a_flush() -> None:
    """As in 2401.10241, section 4: a step takes as long as the busiest rank, start skew is not counted."""
    plan = RowSchedule("zb-2p", 4, 16, 1, "edge")
    ones = np.ones(4)
    even = replace(
        costs(plan, 1),
        seconds={Kind.F: ones, Kind.I: ones, Kind.W: ones},
        network=Network(),
        reduce_s=0 * ones,
        optimizer_s=0 * ones,
    )
    found = timed(plan, even, reduce=False)
    assert found.step_s == pytest.approx(3 * 16)
    assert found.makespan_s > found.step_s
