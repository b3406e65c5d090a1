"""Gradients and losses of every family equal those of one process, over gloo."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.distributed as dist

from pipesim.backends.pipeline import Pipeline, PipelineOptions
from pipesim.ir.lower import lower
from pipesim.schedules.catalogue import FAMILIES
from pipesim.schedules.constraints import Unsuitable
from pipesim.schedules.lookup import build
from tests.backends.group import run_group
from tests.backends.models import build_batch, build_stages, cross_entropy, run_alone

STEPS = 3


def cases(ranks: int) -> list[tuple[str, int, dict[str, Any]]]:
    """Families that train synchronously, with a few numbers of microbatches and options."""
    found = []
    for name, family in FAMILIES.items():
        if not (family.synchronous and family.trains) or name in ("bpipe", "terapipe", "seq1f1b"):
            continue
        for microbatches in (1, 3, 4, 2 * ranks):
            options = {key: 2 for key in ("virtual",) if key in family.options}
            try:
                build(name, ranks=ranks, microbatches=microbatches, **options)
            except Unsuitable:
                continue
            found.append((name, microbatches, options))
    return found


def train(name: str, ranks: int, microbatches: int, options: dict[str, Any], comm: str) -> dict[str, float]:
    """Largest relative errors of gradients after one step, and of weights after a few."""
    schedule = build(name, ranks=ranks, microbatches=microbatches, **options)
    length = schedule.placement.length
    pipeline = Pipeline(
        lower(schedule, comm=comm),
        build_stages(length, dropout=0.2),
        loss_fn=cross_entropy,
        options=PipelineOptions(optimizer=lambda weights: torch.optim.SGD(weights, lr=0.1, momentum=0.9)),
    )
    alone = build_stages(length, dropout=0.2)
    optimizer = torch.optim.SGD([p for stage in alone for p in stage.parameters()], lr=0.1, momentum=0.9)
    batch = build_batch(microbatches)
    worst = {"loss": 0.0, "weights": 0.0}
    for step in range(STEPS):
        loss = torch.tensor(pipeline.step(batch).loss, dtype=torch.float64)
        dist.all_reduce(loss)
        expected = run_alone(alone, batch, step=step)
        optimizer.step()
        optimizer.zero_grad()
        worst["loss"] = max(worst["loss"], abs(float(loss) - expected) / expected)
    for stage, module in pipeline.modules.items():
        for one, other in zip(module.parameters(), alone[stage % length].parameters(), strict=True):
            error = float((one - other).abs().max() / other.abs().max())
            worst["weights"] = max(worst["weights"], error)
    return worst


def train_all(ranks: int, which: list[tuple[str, int, dict[str, Any]]], comm: str) -> dict[str, dict[str, float]]:
    return {f"{name} {m} {options}": train(name, ranks, m, options, comm) for name, m, options in which}


@pytest.mark.parametrize("ranks", [2, 4])
def test_every_family_trains_as_one_process(ranks: int) -> None:
    which = cases(ranks)
    for found in run_group(ranks, train_all, ranks, which, "edge"):
        wrong = {case: worst for case, worst in found.items() if max(worst.values()) > 1e-9}
        assert wrong == {}
