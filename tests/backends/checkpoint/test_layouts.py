"""A checkpoint of one layout goes on at others: the same bits after loading, the same losses after that."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pipesim.backends.checkpoint.restore import find_newest
from pipesim.backends.training.train import Trainer
from tests.backends.elastic.tasks import context, keep, losses_of, task_at, whole_weights
from tests.backends.group import run_group

pytestmark = pytest.mark.slow

SAVED, STEPS = 4, 6
LAYOUTS = {
    4: [(4, 1, 1, "1f1b"), (4, 1, 1, "zb-v"), (2, 2, 1, "zb-v")],
    2: [(1, 2, 1, "1f1b"), (2, 1, 1, "zb-v")],
    1: [(1, 1, 1, "1f1b"), (1, 1, 1, "zb-v")],
}


def save(roots: dict[str, Path]) -> dict[str, dict[str, str]]:
    """Checkpoints at 2×1×2, plain and sharded; digests of what this rank held then."""
    held = {}
    for name, root in roots.items():
        trainer = Trainer(
            context(),
            task_at(2, 1, 2, steps=SAVED, keep=keep(root), zero_stage=3 if name == "sharded" else 0),
        )
        trainer.train()
        held[name] = whole_weights(trainer)
    return held


def go_on(roots: dict[str, Path], layouts: list[tuple[int, int, int, str]]) -> list[Any]:
    """By checkpoint and layout: the step, digests right after loading, and the losses that follow."""
    found = []
    for root in roots.values():
        for pp, tp, dp, schedule in layouts:
            trainer = Trainer(context(), task_at(pp, tp, dp, schedule=schedule, steps=STEPS))
            newest = find_newest(root)
            assert newest is not None
            trainer.progress.restore(newest)
            found.append((trainer.progress.step, whole_weights(trainer), losses_of(trainer)))
    return found


def uninterrupted() -> dict[int, float]:
    return losses_of(Trainer(context(), task_at(1, 1, 1, steps=STEPS)))


@pytest.fixture(scope="module")
def roots(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return {name: tmp_path_factory.mktemp(name) for name in ("plain", "sharded")}


@pytest.fixture(scope="module")
def saved(roots: dict[str, Path]) -> dict[str, dict[str, str]]:
    ranks = run_group(4, save, roots)
    return {name: {key: value for rank in ranks for key, value in rank[name].items()} for name in roots}


@pytest.fixture(scope="module")
def alone() -> dict[int, float]:
    found: dict[int, float] = run_group(1, uninterrupted)[0]
    return found


@pytest.mark.parametrize("processes", LAYOUTS)
def test_another_layout(
    processes: int, roots: dict[str, Path], saved: dict[str, dict[str, str]], alone: dict[int, float]
) -> None:
    ranks = run_group(processes, go_on, roots, LAYOUTS[processes])
    cases = [(name, layout) for name in roots for layout in LAYOUTS[processes]]
    for number, (name, layout) in enumerate(cases):
        held = {key: value for rank in ranks for key, value in rank[number][1].items()}
        assert saved[name] == held, layout
        for step, _, losses in (rank[number] for rank in ranks):
            assert step == SAVED
            assert losses == pytest.approx({key: alone[key] for key in range(SAVED + 1, STEPS + 1)}, rel=1e-9), layout
