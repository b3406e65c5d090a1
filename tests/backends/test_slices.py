"""Sequence slices: keys and values pass from slice to slice, their gradients back; equal to whole sequences."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist

from pipesim.backends.batch import cut_batch
from pipesim.backends.job.tiny import Shape, next_token_loss, tiny_stage
from pipesim.backends.pipeline import Pipeline
from pipesim.backends.stage import Stage
from pipesim.ir.lower import lower
from pipesim.schedules.lookup import build
from tests.backends.group import run_group

SHAPE = Shape(layers=4, hidden=16, heads=2, ffn=24, vocabulary=13, positions=32)
TOKENS = torch.randint(13, (6, 10), generator=torch.Generator().manual_seed(0))
INPUTS, TARGETS = TOKENS[:, :-1], TOKENS[:, 1:]


def stages(count: int) -> list[torch.nn.Module]:
    return [tiny_stage(SHAPE, stage, count, dtype=torch.float64) for stage in range(count)]


def whole_sequences(count: int) -> tuple[float, list[list[torch.Tensor]]]:
    """Loss and gradients of one process that never cuts a sequence."""
    model = stages(count)
    x = INPUTS
    for stage in model:
        x = stage(x)
    loss = next_token_loss(x, TARGETS)
    loss.backward()
    return float(loss.detach()), [[weight.grad for weight in stage.parameters()] for stage in model]


@pytest.mark.parametrize("split", [False, True])
def test_one_stage_of_slices_has_the_gradients_of_whole_sequences(split: bool) -> None:
    stage = Stage(stages(1)[0], 0, 1, next_token_loss)
    batch = cut_batch(INPUTS, TARGETS, microbatches=2, slices=3)
    loss = 0.0
    for microbatch in range(2):
        for slice_ in range(3):
            weight = batch.weights[microbatch][slice_]
            found = stage.forward(
                (microbatch, slice_),
                batch.inputs[microbatch][slice_],
                target=batch.targets[microbatch][slice_],
                weight=weight,
                slices=3,
                split=split,
            )
            loss += float(found.detach()) * weight
    for microbatch in range(2):
        for slice_ in (2, 1, 0):
            if split:
                stage.input_gradient((microbatch, slice_), [])
            else:
                stage.backward((microbatch, slice_), [])
        for slice_ in (0, 1, 2) if split else ():
            stage.weight_gradient((microbatch, slice_))
    expected, gradients = whole_sequences(1)
    assert loss == pytest.approx(expected, rel=1e-12)
    for weight, other in zip(stage.parameters(), gradients[0], strict=True):
        torch.testing.assert_close(weight.grad, other, rtol=1e-9, atol=1e-12)


def train(ranks: int) -> dict[str, float]:
    """Largest relative error of gradients and loss, by schedule."""
    model = stages(ranks)
    x = INPUTS
    for stage in model:
        x = stage(x)
    expected = next_token_loss(x, TARGETS)
    expected.backward()
    found = {}
    for name, microbatches, slices in (("seq1f1b", 3, 2), ("seq1f1b", 2, 4), ("terapipe", 2, 3), ("terapipe", 1, 4)):
        schedule = build(name, ranks=ranks, microbatches=microbatches, slices=slices)
        pipeline = Pipeline(lower(schedule), stages(ranks), loss_fn=next_token_loss)
        batch = cut_batch(INPUTS, TARGETS, microbatches=microbatches, slices=slices)
        loss = torch.tensor(pipeline.step(batch).loss, dtype=torch.float64)
        dist.all_reduce(loss)
        worst = abs(float(loss) / float(expected.detach()) - 1)
        for stage, module in pipeline.modules.items():
            for one, other in zip(module.parameters(), model[stage].parameters(), strict=True):
                assert one.grad is not None
                assert other.grad is not None
                worst = max(worst, float((one.grad - other.grad).abs().max() / other.grad.abs().max()))
        found[f"{name} {microbatches} × {slices}"] = worst
    return found


@pytest.mark.parametrize("ranks", [2, 4])
def test_sliced_schedules_have_the_gradients_of_whole_sequences(ranks: int) -> None:
    for found in run_group(ranks, train, ranks):
        assert {case: worst for case, worst in found.items() if not worst < 1e-9} == {}
