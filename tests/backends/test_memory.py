"""Bytes of saved tensors on each rank, measured in a run, against the simulator's."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from pipesim.backends.batch import cut_batch
from pipesim.backends.measure.timelines import gather, timed_step
from pipesim.backends.pipeline import Pipeline, PipelineOptions
from pipesim.ir.lower import lower
from pipesim.ir.memory import peak_activations
from pipesim.schedules.catalogue import FAMILIES
from pipesim.schedules.constraints import Unsuitable
from pipesim.schedules.lookup import build
from tests.backends.group import run_group

pytestmark = pytest.mark.slow

WIDTH, POSITIONS, SAMPLES = 32, 2, 4


class Even(nn.Module):
    """Every stage saves the same: the input and the weight of one product."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x)

    def forward_slice(self, x: Tensor, *, carry: None, slice: int) -> tuple[Tensor, None]:
        return self.linear(x), None


ACTIVATION = WIDTH * POSITIONS * SAMPLES * 4  # bytes of the input


def cases(ranks: int) -> list[tuple[str, int, dict[str, Any]]]:
    found = []
    for name, family in FAMILIES.items():
        if not family.trains or name == "bpipe":
            continue
        for microbatches in (ranks, 3 * ranks):
            options: dict[str, Any] = {key: 2 for key in ("virtual", "slices") if key in family.options}
            try:
                build(name, ranks=ranks, microbatches=microbatches, **options)
            except Unsuitable:
                continue
            found.append((name, microbatches, options))
    return found


def measure(ranks: int) -> dict[str, tuple[list[float], list[float]] | None]:
    """By schedule, each rank's peak in microbatches: measured, and by the order alone; on rank 0."""
    found: dict[str, tuple[list[float], list[float]] | None] = {}
    for name, microbatches, options in cases(ranks):
        schedule = build(name, ranks=ranks, microbatches=microbatches, **options)
        program = lower(schedule)
        pipeline = Pipeline(
            program,
            [Even() for _ in range(schedule.placement.length)],
            loss_fn=lambda x, y: x.sum(),
            options=PipelineOptions(weigh_memory=True),
        )
        data = torch.zeros(microbatches * SAMPLES, POSITIONS, WIDTH)
        batch = cut_batch(data, data, microbatches=microbatches, slices=schedule.slices)
        pipeline.step(batch)
        records = gather(timed_step(pipeline.runner, batch))
        if records is not None:
            share = schedule.placement.share
            peaks = [max(held.saved for held in each.held.values()) / ACTIVATION * share for each in records]
            found[f"{name} {microbatches}"] = (peaks, peak_activations(schedule).tolist())
    return found


@pytest.mark.parametrize("ranks", [2, 4])
def test_peak_of_saved_tensors_is_the_simulated_one(ranks: int) -> None:
    found = run_group(ranks, measure, ranks)[0]
    assert len(found) > 10
    wrong = {name: both for name, both in found.items() if both is not None and both[0] != both[1]}
    assert wrong == {}
