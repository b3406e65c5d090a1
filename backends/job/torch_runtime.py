"""The same schedule under torch's own pipelining runtime (2.13), for comparison.

Its runtime, file reader and step are private names of torch; this is the only file that touches them.
"""

from __future__ import annotations

import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.pipelining import PipelineStage, schedules

from pipesim.backends.job.train import Outcome, Task, all_ranks
from pipesim.backends.job.worker import Context
from pipesim.backends.pipeline import Modules, module_of
from pipesim.backends.stage import LossFunction
from pipesim.errors import PipesimError
from pipesim.ir.formats.torch_csv import dumps
from pipesim.ir.schedule import Schedule


@dataclass(eq=False)
class TorchCannot(PipesimError):
    """Something that torch's runtime does not do."""

    what: str
    instead: str

    def __str__(self) -> str:
        return f"--runtime torch cannot {self.what}: {self.instead}"


def require_runtime(name: str, task: Task) -> None:
    """Raises TorchCannot, and CannotExpress for a schedule that torch's files have no word for."""
    if name != "torch":
        raise TorchCannot(f"be {name!r}", "there are pipesim and torch")
    if task.source is None:
        raise TorchCannot("emulate stages", "give --model")
    dumps(task.program.schedule)


class TorchPipeline:
    """This rank's part of a schedule, run by torch."""

    def __init__(
        self, schedule: Schedule, modules: Modules, loss_fn: LossFunction, device: torch.device, rank: int
    ) -> None:
        placement = schedule.placement
        self.modules = {stage: module_of(modules, stage).to(device) for stage in placement.stages_of(rank)}
        stages = [PipelineStage(module, stage, placement.length, device) for stage, module in self.modules.items()]
        self._first = any(map(placement.is_first, self.modules))
        self._last = any(map(placement.is_last, self.modules))
        self.runtime: Any = schedules._PipelineScheduleRuntime(  # type: ignore[no-untyped-call]
            stages, schedule.microbatches, loss_fn=loss_fn, scale_grads=False
        )
        with tempfile.TemporaryDirectory(prefix="pipesim-torch-") as folder:
            path = Path(folder) / "schedule.csv"
            path.write_text(dumps(schedule))
            self.runtime._load_csv(str(path), format="compute_only")

    def step(self, inputs: Tensor, targets: Tensor) -> float:
        """One step; the sum of the losses of this rank. Gradients are sums over the microbatches."""
        losses: list[Tensor] = []
        self.runtime.step(*([inputs] if self._first else []), target=targets if self._last else None, losses=losses)
        return float(sum(float(loss.detach()) for loss in losses))


def train_with_torch(context: Context, task: Task) -> Outcome | None:
    """Run the steps under torch's runtime; step times and losses, on rank 0."""
    assert task.source is not None
    schedule = task.program.schedule
    modules = task.source.modules(schedule.placement.length)
    pipeline = TorchPipeline(schedule, modules, task.source.loss(), context.device, context.rank)
    weights = [weight for module in pipeline.modules.values() for weight in module.parameters()]
    optimizer = torch.optim.AdamW(weights, lr=task.lr) if task.lr else None
    mine: list[tuple[int, int, float]] = []
    for step in range(task.steps + 1):
        inputs, targets = task.source.batch(schedule.microbatches * task.samples, step)
        dist.barrier()
        begun = time.perf_counter_ns()
        loss = pipeline.step(inputs.to(context.device), targets.to(context.device))
        if optimizer is not None:
            for weight in weights:
                if weight.grad is not None:
                    weight.grad /= schedule.microbatches
            optimizer.step()
            optimizer.zero_grad()
        mine.append((begun, time.perf_counter_ns(), loss / schedule.microbatches))
    steps = list(zip(*all_ranks(mine[1:]), strict=True))
    if context.rank:
        return None
    step_s = [(max(end for _, end, _ in one) - min(begun for begun, _, _ in one)) * 1e-9 for one in steps]
    return Outcome([sum(loss for _, _, loss in one) for one in steps], step_s, [], None, {})
