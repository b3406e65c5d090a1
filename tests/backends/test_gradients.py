"""Gradients and losses of every family equal those of one process, over gloo."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
import torch
import torch.distributed as dist

from pipesim.backends.pipeline import Pipeline, PipelineOptions
from pipesim.ir.lower import lower
from pipesim.ir.program import Comm
from pipesim.schedules.catalogue import FAMILIES
from pipesim.schedules.constraints import Unsuitable
from pipesim.schedules.lookup import build
from tests.backends.group import run_group
from tests.backends.models import build_batch, build_stages, cross_entropy, run_alone

pytestmark = pytest.mark.slow

STEPS = 3


def cases(ranks: int) -> list[tuple[str, int, dict[str, Any]]]:
    """Families that train synchronously, with a few numbers of microbatches and options."""
    found = []
    for name, family in FAMILIES.items():
        if not (family.synchronous and family.trains) or name in ("bpipe", "terapipe", "seq1f1b"):
            continue
        for microbatches in sorted({1, 3, 4, 2 * ranks}):
            options = {key: 2 for key in ("virtual",) if key in family.options}
            try:
                build(name, ranks=ranks, microbatches=microbatches, **options)
            except Unsuitable:
                continue
            found.append((name, microbatches, options))
    return found


def model(length: int, microbatches: int) -> list[torch.nn.Module]:
    """Stages with dropout; embedding and head are one weight where the microbatches are odd."""
    return build_stages(length, dropout=0.2, tied=microbatches % 2 == 1)


@cache
def alone(length: int, microbatches: int) -> tuple[list[float], list[list[torch.Tensor]]]:
    """Losses of each step, and the weights of each stage after them, of one process."""
    stages = model(length, microbatches)
    optimizer = optimize(list(dict.fromkeys(weight for stage in stages for weight in stage.parameters())))
    batch = build_batch(microbatches)
    losses = []
    for step in range(STEPS):
        losses.append(run_alone(stages, batch, step=step))
        optimizer.step()
        optimizer.zero_grad()
    return losses, [list(stage.parameters()) for stage in stages]


def optimize(weights: list[torch.nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.SGD(weights, lr=0.1, momentum=0.9)


def train(name: str, ranks: int, microbatches: int, options: dict[str, Any], comm: Comm) -> float:
    """Largest relative error of the losses of a few steps, and of the weights after them."""
    schedule = build(name, ranks=ranks, microbatches=microbatches, **options)
    length = schedule.placement.length
    pipeline = Pipeline(
        lower(schedule, comm=comm),
        model(length, microbatches),
        loss_fn=cross_entropy,
        options=PipelineOptions(optimizer=optimize),
    )
    losses, weights = alone(length, microbatches)
    batch = build_batch(microbatches)
    worst = 0.0
    for expected in losses:
        loss = torch.tensor(pipeline.step(batch).loss, dtype=torch.float64)
        dist.all_reduce(loss)
        worst = max(worst, abs(float(loss) - expected) / expected)
    for stage, module in pipeline.modules.items():
        for one, other in zip(module.parameters(), weights[stage % length], strict=True):
            worst = max(worst, float(((one - other).abs().max() / other.abs().max()).detach()))
    return worst


def train_all(ranks: int, which: list[tuple[str, int, dict[str, Any]]], comm: Comm) -> dict[str, float]:
    return {f"{name} {m} {options}": train(name, ranks, m, options, comm) for name, m, options in which}


@pytest.mark.parametrize("comm", ["edge", "blocking"])
@pytest.mark.parametrize("ranks", [2, 4])
def test_every_family_trains_as_one_process(ranks: int, comm: Comm) -> None:
    which = cases(ranks)
    assert {"1f1b", "interleaved", "chimera", "dualpipe-v"} <= {name for name, _, _ in which}
    for found in run_group(ranks, train_all, ranks, which, comm):
        assert {case: worst for case, worst in found.items() if not worst < 1e-9} == {}
