"""Asynchronous schedules train as one process does that follows the same rule of stale weights."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from pipesim.backends.pipeline import Pipeline, PipelineOptions
from pipesim.ir.action import Kind
from pipesim.ir.lower import lower
from pipesim.ir.order import unit_starts
from pipesim.ir.schedule import Schedule
from pipesim.schedules.lookup import build
from tests.backends.group import run_group
from tests.backends.models import build_batch, build_stages, cross_entropy

pytestmark = pytest.mark.slow

CASES = [
    ("pipedream", 2, 5, {}),
    ("pipedream", 4, 6, {}),
    ("pipedream-2bw", 2, 8, {}),
    ("pipedream-2bw", 4, 12, {"update_every": 6}),
]


def optimize(weights: list[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.SGD(weights, lr=0.1, momentum=0.5)


def emulate(schedule: Schedule) -> list[nn.Module]:
    """One process: actions one after the other in an order that the schedule allows.

    A forward runs on a copy of its stage, the backward goes through that copy, and its gradient is applied to
    the stage itself. PipeDream copies the newest weights, PipeDream-2BW those of two batches before.
    """
    stages = build_stages(schedule.placement.length)
    optimizers = [optimize(list(stage.parameters())) for stage in stages]
    every = schedule.update_every
    assert every is not None
    history = [[copy.deepcopy(stage)] for stage in stages]
    batch = build_batch(schedule.microbatches)
    done = [0] * len(stages)
    kept: dict[tuple[int, int], tuple[Tensor, Tensor, nn.Module]] = {}
    outputs: dict[tuple[int, int], Tensor] = {}
    gradients: dict[tuple[int, int], Tensor] = {}
    for index in np.argsort(unit_starts(schedule), kind="stable").tolist():
        action = schedule.atoms.action(index)
        stage, microbatch = action.stage, action.microbatch
        if action.kind == Kind.F:
            version = -1 if every == 1 else max(0, microbatch // every - 1)
            used = copy.deepcopy(history[stage][version])
            x = batch.inputs[microbatch][0] if stage == 0 else outputs[stage - 1, microbatch].detach()
            x = x.requires_grad_(stage > 0)
            y = used(x)
            if stage == len(stages) - 1:
                y = cross_entropy(y, batch.targets[microbatch][0]) * batch.weights[microbatch][0]
            kept[stage, microbatch], outputs[stage, microbatch] = (x, y, used), y
            continue
        x, y, used = kept.pop((stage, microbatch))
        y.backward(gradients.pop((stage + 1, microbatch), None))
        if stage:
            assert x.grad is not None
            gradients[stage, microbatch] = x.grad
        for weight, twin in zip(stages[stage].parameters(), used.parameters(), strict=True):
            assert twin.grad is not None
            weight.grad = twin.grad if weight.grad is None else weight.grad + twin.grad
        done[stage] += 1
        if done[stage] % every == 0:
            optimizers[stage].step()
            optimizers[stage].zero_grad()
            history[stage].append(copy.deepcopy(stages[stage]))
    return stages


def train(name: str, ranks: int, microbatches: int, options: dict[str, Any]) -> float:
    schedule = build(name, ranks=ranks, microbatches=microbatches, **options)
    pipeline = Pipeline(
        lower(schedule),
        build_stages(schedule.placement.length),
        loss_fn=cross_entropy,
        options=PipelineOptions(optimizer=optimize),
    )
    pipeline.step(build_batch(microbatches))
    worst, expected = 0.0, emulate(schedule)
    for stage, module in pipeline.modules.items():
        for one, other in zip(module.parameters(), expected[stage].parameters(), strict=True):
            worst = max(worst, float(((one - other).abs().max() / other.abs().max()).detach()))
    return worst


def train_all(ranks: int) -> list[float]:
    return [train(*case) for case in CASES if case[1] == ranks]


def test_stale_weights_are_those_of_the_rule() -> None:
    for ranks in (2, 4):
        for found in run_group(ranks, train_all, ranks):
            assert max(found) < 1e-9, found
