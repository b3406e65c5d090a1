"""Random valid schedules run to their end: none deadlocks, none mixes tensors up."""

from __future__ import annotations

import random
import time

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn

from pipesim.backends.batch import cut_batch
from pipesim.backends.pipeline import Pipeline
from pipesim.ir.action import Action, Kind
from pipesim.ir.atoms import Atoms
from pipesim.ir.check import check, check_program
from pipesim.ir.lower import lower
from pipesim.ir.placement import Placement
from pipesim.ir.program import Comm
from pipesim.ir.schedule import Schedule
from tests.backends.group import run_group

RANKS, TRIALS = 4, 100


def random_schedule(seed: int) -> Schedule:
    """Stages placed at random, backwards split at random, any action that is ready next."""
    draw = random.Random(seed)
    ranks = [*range(RANKS), *draw.choices(range(RANKS), k=draw.randint(0, 4))]
    draw.shuffle(ranks)
    placement = Placement(tuple(ranks))
    microbatches = draw.randint(1, 6)
    split = {(s, m): draw.random() < 0.5 for s in range(placement.stages) for m in range(microbatches)}
    rows: list[list[Action]] = [[] for _ in range(RANKS)]
    done: set[Action] = set()
    left = {Action(Kind.F, stage, m) for stage, m in split}
    for (stage, m), halves in split.items():
        left |= {Action(kind, stage, m) for kind in ((Kind.I, Kind.W) if halves else (Kind.B,))}
    while left:
        ready = sorted(action for action in left if _ready(action, placement.stages, split, done))
        action = draw.choice(ready)
        rows[placement.ranks_of_stages[action.stage]].append(action)
        done.add(action)
        left.remove(action)
    atoms = [Atoms.of_groups([[action] for action in row]) for row in rows]
    return Schedule.of_rows(f"random {seed}", placement, microbatches, atoms)


def _ready(action: Action, stages: int, split: dict[tuple[int, int], bool], done: set[Action]) -> bool:
    stage, m = action.stage, action.microbatch
    if action.kind == Kind.F:
        return stage == 0 or Action(Kind.F, stage - 1, m) in done
    if action.kind == Kind.W:
        return Action(Kind.I, stage, m) in done
    after = stage + 1
    behind = after == stages or Action(Kind.I if split[after, m] else Kind.B, after, m) in done
    return Action(Kind.F, stage, m) in done and behind


class Add(nn.Module):
    """Adds a number of its own: a sum of all of them comes out where every tensor went where it should."""

    def __init__(self, stage: int) -> None:
        super().__init__()
        self.own = nn.Parameter(torch.tensor(float(10**stage), dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.own


def run_all(comm: Comm) -> list[tuple[str, float, float]]:
    found = []
    for seed in range(TRIALS):
        schedule = random_schedule(seed)
        program = lower(schedule, comm=comm)
        stages = [Add(stage) for stage in range(schedule.placement.stages)]
        pipeline = Pipeline(program, stages, loss_fn=lambda x, y: (x * y).sum())
        numbers = torch.arange(1.0, schedule.microbatches + 1, dtype=torch.float64)[:, None]
        batch = cut_batch(numbers, numbers, microbatches=schedule.microbatches)
        for _ in range(2):
            loss = torch.tensor(pipeline.step(batch).loss, dtype=torch.float64)
        dist.all_reduce(loss)
        added = sum(float(10**stage) for stage in range(schedule.placement.stages))
        expected = float(((numbers + added) * numbers).mean())
        found.append((schedule.name, float(loss), expected))
        for module in pipeline.modules.values():  # two steps of d loss / d own, the mean of x
            assert abs(float(module.own.grad) / (2 * float(numbers.mean())) - 1) < 1e-12, schedule.name
    return found


@pytest.mark.slow
def test_a_hundred_random_schedules_end() -> None:
    schedules = [random_schedule(seed) for seed in range(TRIALS)]
    for schedule in schedules:
        check(schedule)
        check_program(lower(schedule))
    assert len({str(schedule) for schedule in schedules}) == TRIALS
    begun = time.monotonic()
    for found in run_group(RANKS, run_all, "edge"):
        assert len(found) == TRIALS
        assert {name: (loss, expected) for name, loss, expected in found if abs(loss / expected - 1) > 1e-12} == {}
    assert time.monotonic() - begun < 60
