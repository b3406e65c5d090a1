"""A small model as stages of uneven size, and its single-process run."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from pipesim.backends.batch import Microbatches, cut_batch
from pipesim.backends.randomness import seeded
from tests.backends.modules import WIDTH, Block

VOCABULARY = 11


def cross_entropy(logits: Tensor, target: Tensor) -> Tensor:
    return F.cross_entropy(logits.flatten(0, 1), target.flatten())


def build_stages(count: int, *, tied: bool = False, dropout: float = 0.0) -> list[nn.Module]:
    """A transformer of `count` stages in float64, of one or two blocks, with embedding and head."""
    torch.manual_seed(7)
    stages: list[nn.Module] = []
    embedding = nn.Embedding(VOCABULARY, WIDTH)
    head = nn.Linear(WIDTH, VOCABULARY, bias=False)
    if tied:
        head.weight = embedding.weight
    for stage in range(count):
        layers: list[nn.Module] = [Block(), *([Block()] if stage % 3 == 1 else []), nn.Dropout(dropout)]
        if stage == 0:
            layers.insert(0, embedding)
        if stage == count - 1:
            layers += [nn.LayerNorm(WIDTH), head]
        stages.append(nn.Sequential(*layers))
    return [stage.double() for stage in stages]


def build_batch(microbatches: int, *, slices: int = 1) -> Microbatches:
    """A batch whose microbatches are of uneven size."""
    generator = torch.Generator().manual_seed(3)
    tokens = torch.randint(VOCABULARY, (microbatches * 2 - microbatches // 2, 5), generator=generator)
    return cut_batch(tokens[:, :-1], tokens[:, 1:], microbatches=microbatches, slices=slices)


def run_alone(stages: Sequence[nn.Module], batch: Microbatches, *, step: int = 0, seed: int = 0) -> float:
    """Forward and backward of all microbatches in one process; gradients accumulate in the stages."""
    total = 0.0
    for microbatch in range(len(batch)):
        x = batch.inputs[microbatch][0]
        for place, stage in enumerate(stages):
            with seeded(seed, step, place, microbatch, 0):
                x = stage(x)
        loss = cross_entropy(x, batch.targets[microbatch][0]) * batch.weights[microbatch][0]
        loss.backward()
        total += float(loss.detach())
    return total


def gradients(stages: Sequence[nn.Module]) -> list[dict[str, Tensor]]:
    """Gradients of each stage by name."""
    return [
        {name: weight.grad for name, weight in stage.named_parameters() if weight.grad is not None} for stage in stages
    ]
