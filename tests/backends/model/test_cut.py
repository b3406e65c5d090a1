"""Any chain of layers cut into stages: even, given, balanced by profile."""

from __future__ import annotations

import time

import pytest
import torch
from torch import Tensor, nn

from pipesim.backends.model.cut import CannotCut, cut_layers, layers_of


class Listed(nn.Module):
    """A list of layers between two others."""

    def __init__(self, *, backwards: bool = False) -> None:
        super().__init__()
        self.first = nn.Embedding(7, 4)
        self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(3))
        self.last = nn.Linear(4, 2)
        self.backwards = backwards

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        for layer in reversed(self.layers) if self.backwards else self.layers:
            x = layer(x)
        found: Tensor = self.last(x)
        return found


class Slow(nn.Module):
    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.seconds = seconds

    def forward(self, x: Tensor) -> Tensor:
        time.sleep(self.seconds)
        return x * 2


TOKENS = torch.tensor([[0, 3, 6]])


def test_stages_of_a_module_with_a_list_compute_what_it_does() -> None:
    torch.manual_seed(0)
    model = Listed()
    stages = cut_layers(model, 3, sample=TOKENS)
    assert [len(stage.layers) for stage in stages] == [2, 2, 1]
    x = TOKENS
    for stage in stages:
        x = stage(x)
    assert torch.equal(x, model(TOKENS))
    assert [weight for stage in stages for weight in stage.parameters()] == list(model.parameters())


def test_a_list_or_a_sequential_is_its_layers() -> None:
    layers = [nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 2)]
    assert layers_of(layers) == layers_of(nn.Sequential(*layers)) == layers
    assert [list(stage.layers) for stage in cut_layers(layers, 2, (1, 2))] == [layers[:1], layers[1:]]


def test_balanced_by_the_time_each_layer_takes() -> None:
    layers = [Slow(0.03), Slow(0.01), Slow(0.01), Slow(0.01)]
    stages = cut_layers(layers, 2, "balanced", sample=torch.ones(1))
    assert [len(stage.layers) for stage in stages] == [1, 3]


@pytest.mark.parametrize(
    ("stages", "rule", "message"),
    [
        (9, "even", "5 layers cannot fill 9 stages; at most 5 stages work"),
        (2, (1, 2), r"layers per stage \[1, 2\] for 2 stages of 5 layers; give 2 numbers that add up to 5"),
        (2, "fair", "no rule 'fair'; there are even and balanced"),
        (2, "balanced", "balanced stages without a sample"),
    ],
)
def test_what_cannot_be_cut_says_why(stages: int, rule: str | tuple[int, ...], message: str) -> None:
    with pytest.raises(CannotCut, match=message):
        cut_layers(Listed(), stages, rule)


def test_a_forward_that_is_no_chain_is_noticed() -> None:
    with pytest.raises(CannotCut, match="the forward of Listed is not the chain of its layers"):
        cut_layers(Listed(backwards=True), 2, sample=TOKENS)
    with pytest.raises(CannotCut, match="Linear has 0 lists of layers"):
        cut_layers(nn.Linear(2, 2), 2)
