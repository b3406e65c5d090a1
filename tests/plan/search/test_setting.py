"""Limits in microbatches and bytes, what costs mean for a problem, and placements as people write them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from pipesim.costs.costs import Costs, NoCost, StageBytes, WrongStages
from pipesim.costs.network import Network, Route
from pipesim.costs.plain import parse_costs
from pipesim.engine.choose import simulate
from pipesim.ir.action import Kind
from pipesim.ir.lower import lower
from pipesim.ir.needs import Flow
from pipesim.ir.placement import Placement, linear, looped, vee, wave
from pipesim.plan.search.find import find_order
from pipesim.plan.search.limit import BadLimit, Limit, parse_limit
from pipesim.plan.search.placements import BadPlacement, placement_of, usual
from pipesim.plan.search.problem import LimitTooSmall
from pipesim.plan.search.search import Effort
from pipesim.plan.search.setting import Setting
from pipesim.units import BadQuantity
from tests.plan.search.problems import Fixed

GB = 1e9


def in_bytes(stages: int, limit: float | None = None) -> Costs:
    """Stages of 1, 2, 1, 2 … GB of activations a microbatch, 8 GB of weights and states, messages of 0.1 GB."""
    ones = np.ones(stages)
    activation = np.resize([1.0, 2.0], stages) * GB
    held = StageBytes(
        2 * GB * ones, 2 * GB * ones, 4 * GB * ones, activation, 0.5 * ones, 0.25 * GB * ones, np.zeros(stages),
        None if limit is None else limit * ones,
    )  # fmt: skip
    return Costs(
        stages,
        dict.fromkeys((Kind.F, Kind.I, Kind.W), ones),
        message_bytes={Flow.ACTIVATION: 0.1 * GB * ones, Flow.GRADIENT: 0.1 * GB * ones},
        network=Network(default=Route(0.01, 10 * GB)),
        held=held,
    )


@pytest.mark.parametrize(
    ("text", "limit"),
    [
        ("4mb", Limit(4, "microbatches")),
        (" 2.5 mb", Limit(2.5, "microbatches")),
        ("3", Limit(3, "microbatches")),
        ("60GB", Limit(60e9, "bytes")),
        ("80GiB", Limit(80 * 2**30, "bytes")),
    ],
)
def test_limits_as_people_write_them(text, limit):
    assert parse_limit(text) == limit


@pytest.mark.parametrize("text", ["0mb", "-1", "infmb", "nan", "many", "", "60 parsecs"])
def test_limits_that_are_none(text):
    with pytest.raises((BadLimit, BadQuantity)) as caught:
        parse_limit(text)
    assert "limit" in str(caught.value)


@pytest.mark.parametrize(
    "limit", [Limit(2.5, "microbatches"), *(Limit(size, "bytes") for size in (61_237_000_001, 33_445_001, 1_001, 1e30))]
)
def test_a_limit_reads_back_as_no_less(limit):
    again = parse_limit(str(limit))
    assert limit.value <= again.value <= limit.value * 1.01
    assert again.unit == limit.unit


def test_a_limit_in_microbatches_that_cannot_be_met_says_which_can():
    setting = Setting(vee(4), 8, parse_costs("F=1,I=1,W=1"), Limit(0.9, "microbatches"))
    with pytest.raises(LimitTooSmall) as caught:
        setting.problem()
    assert str(caught.value) == (
        "memory limit 0.9mb: rank 0 cannot hold the activations of one microbatch; "
        "the smallest limit that can be met is 1mb"
    )
    Setting(vee(4), 8, parse_costs("F=1,I=1,W=1"), Limit(1, "microbatches")).problem()


def test_a_limit_in_bytes_that_cannot_be_met_says_which_can():
    with pytest.raises(LimitTooSmall) as caught:
        Setting(linear(4), 8, Fixed(in_bytes(4)), Limit(9 * GB, "bytes")).problem()
    assert caught.value.rank in (1, 3)
    smallest = parse_limit(caught.value.smallest)
    result = find_order(Setting(linear(4), 8, Fixed(in_bytes(4)), smallest), effort=Effort(0, 0, exact_s=0))
    assert result.best.fits
    with pytest.raises(LimitTooSmall):
        Setting(linear(4), 8, Fixed(in_bytes(4)), Limit(smallest.value - 0.1 * GB, "bytes")).problem()


@pytest.mark.parametrize("limit", [11.0, 12.5, 14.0, 17.0])
def test_the_simulated_peak_stays_within_a_limit_in_bytes(limit):
    costs = in_bytes(4)
    setting = Setting(linear(4), 8, Fixed(costs), Limit(limit * GB, "bytes"))
    result = find_order(setting, effort=Effort(30, 2, exact_s=0))
    memory = simulate(lower(result.best.schedule), costs).memory
    assert memory is not None
    assert (memory.peak <= limit * GB).all()
    assert result.best.fits
    assert result.best.peak_bytes is not None
    np.testing.assert_allclose(result.best.peak_bytes, memory.peak)


def test_the_limit_of_the_costs_is_taken_where_none_is_given():
    problem = Setting(linear(4), 8, Fixed(in_bytes(4, 14 * GB))).problem()
    assert (problem.memory.limit < 6.1 * GB).all()
    assert np.isinf(Setting(linear(4), 8, Fixed(in_bytes(4))).problem().memory.limit).all()


def test_bytes_need_costs_that_know_some():
    with pytest.raises(BadLimit, match="the costs know no bytes"):
        Setting(linear(4), 8, parse_costs("F=1,I=1,W=1"), Limit(GB, "bytes")).problem()


def test_costs_as_a_problem():
    problem = Setting(linear(4), 8, Fixed(in_bytes(4)), Limit(3, "microbatches"), "half").problem()
    assert problem.seconds.tolist() == [[1.0] * 4] * 3
    assert problem.latency_s.tolist() == [[0.01, 0.01, 0.01, 0], [0, 0.01, 0.01, 0.01]]
    np.testing.assert_allclose(problem.hold_s, problem.latency_s)  # 0.1 GB at 10 GB/s
    assert problem.memory.take.tolist() == [1.0] * 4
    assert problem.memory.part.tolist() == [0.5] * 4
    assert problem.memory.limit.tolist() == [3.0] * 4


def test_costs_for_other_stages_or_without_backwards():
    with pytest.raises(WrongStages):
        Setting(linear(4), 8, parse_costs("F=1:1,I=1:1,W=1:1")).problem()
    with pytest.raises(NoCost):
        Setting(linear(4), 8, parse_costs("F=1")).problem()


@pytest.mark.parametrize(
    ("text", "ranks", "virtual", "placement"),
    [
        ("linear", 3, None, linear(3)),
        ("vee", 3, None, vee(3)),
        ("loop", 3, 4, looped(3, 4)),
        ("wave", 2, 3, wave(2, 3)),
        ("0,1,1,0", 2, None, Placement((0, 1, 1, 0))),
    ],
)
def test_placements_as_people_write_them(text, ranks, virtual, placement):
    assert placement_of(text, ranks=ranks, virtual=virtual) == placement


def test_placements_from_files(tmp_path: Path):
    numbers = tmp_path / "ranks.json"
    numbers.write_text(json.dumps([0, 1, 1, 0, 0]))
    assert placement_of(str(numbers), ranks=2, virtual=None) == Placement((0, 1, 1, 0, 0))
    orders = tmp_path / "orders.txt"
    orders.write_text("0F0 0B0\n1F0 1B0\n")
    assert placement_of(str(orders), ranks=2, virtual=None) == linear(2)


@pytest.mark.parametrize(
    ("text", "virtual", "reason"),
    [
        ("vee", 3, "2 stages a rank"),
        ("0,1,3", None, "rank 2 has no stage"),
        ("0,1,2", None, "it has 3 ranks, 2 were asked for"),
        ("0,1,1,0", 3, "it has 4 stages"),
        ("circle", None, "there is no such word"),
    ],
)
def test_placements_that_cannot_be_had(text, virtual, reason):
    with pytest.raises(BadPlacement, match=reason):
        placement_of(text, ranks=2, virtual=virtual)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[0, 1", "not JSON"),
        ("[" * 100_000, "not JSON"),  # RecursionError
        ("[0, 1, 99999999999999999999]", "rank 2 has no stage"),  # counted up to it
        ("[0, 1.5]", "whole numbers"),
        ("[true, false]", "whole numbers"),
        ("[]", "whole numbers"),
    ],
)
def test_files_that_hold_no_placement(tmp_path: Path, text: str, reason: str):
    file = tmp_path / "ranks.json"
    file.write_text(text)
    with pytest.raises(BadPlacement, match=reason):
        placement_of(str(file), ranks=2, virtual=None)


def test_what_is_tried_when_none_is_asked_for():
    assert usual(ranks=4, virtual=None) == (linear(4), vee(4), looped(4, 2))
    assert usual(ranks=4, virtual=1) == (linear(4),)
    assert usual(ranks=4, virtual=3) == (wave(4, 3), looped(4, 3))
