"""Ranks stand where they are simulated; another number of processes says which layouts would fit."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from pipesim.backends.parallel.clip import share_of
from pipesim.backends.parallel.places import WrongWorld, check_layout, fitting, grid
from pipesim.backends.parallel.rates import BadRates, Rates
from pipesim.costs.layouts.groups import rank_groups
from pipesim.costs.layouts.layout import BadLayout, Layout


@pytest.mark.parametrize("order", ["tp-cp-ep-dp-pp", "pp-dp-tp-cp-ep", "dp-tp-pp-ep-cp"])
def test_the_mesh_has_the_simulators_groups(order: str) -> None:
    layout = Layout(pp=2, dp=3, tp=4, global_batch=3, rank_order=order)
    places = grid(layout)
    for axis, dimension in (("pp", 0), ("dp", 1), ("tp", 2)):
        lines = places.swapaxes(dimension, 2).reshape(-1, places.shape[dimension])
        assert sorted(map(tuple, lines.tolist())) == sorted(map(tuple, rank_groups(layout, axis).tolist()))


def test_a_wrong_number_of_processes_names_layouts_that_fit() -> None:
    layout = Layout(pp=2, tp=2, dp=2, global_batch=2)
    with pytest.raises(WrongWorld) as raised:
        check_layout(layout, 4)
    assert str(raised.value) == (
        "layout pp=2,tp=2,dp=2 is for 8 processes, there are 4; "
        "with 4: pp=2,tp=2,dp=1 or pp=1,tp=2,dp=2 or pp=2,tp=1,dp=2"
    )
    assert fitting(layout, 1) == ("pp=1,tp=1,dp=1",)


def test_what_is_only_simulated_is_refused() -> None:
    with pytest.raises(BadLayout, match="cp=2 can only be simulated"):
        check_layout(Layout(cp=2), 2)


def test_rates_rise_and_fall() -> None:
    rates = Rates(1.0, warmup=2, shape="linear", steps=6, least=0.5)
    assert [rates.at(step) for step in range(7)] == [0.5, 1.0, 1.0, 0.875, 0.75, 0.625, 0.5]
    assert Rates(1.0, shape="cosine", steps=4, least=0.0).at(2) == pytest.approx(0.5)
    assert Rates(0.1).at(99) == 0.1
    with pytest.raises(BadRates, match="there are constant, linear, cosine"):
        Rates(1.0, shape="wavy")  # type: ignore[arg-type]


def test_a_plain_weight_counts_once_over_its_copies() -> None:
    assert share_of(nn.Parameter(torch.ones(2)), {"dp": 4, "tp": 2}) == 1 / 8
