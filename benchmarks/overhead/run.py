"""Step time of the same stages and schedule under torch 2.13's pipelining runtime and under ours.

Both run in the same processes, step by step in turn, so that whatever slows the machine slows both. Prints a
row a schedule: median step of each, the median of the ratios of neighbouring steps, the ratio of the CPU time of
all processes, and ours per action.
Usage: python benchmarks/overhead/run.py [--ranks 4] [--steps 30] [--schedules 1f1b,...]
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from pipesim.backends.batch import cut_batch
from pipesim.backends.job.local import run_local
from pipesim.backends.job.tiny import Shape, next_token_loss, tiny_stage
from pipesim.backends.job.torch_runtime import TorchPipeline
from pipesim.backends.job.worker import Context
from pipesim.backends.pipeline import Pipeline, PipelineOptions
from pipesim.backends.stage import StageOptions
from pipesim.ir.lower import lower
from pipesim.schedules.lookup import build

SCHEDULES = ("1f1b", "interleaved", "interleaved-zb", "zb-v", "dualpipe-v")


@dataclass(frozen=True)
class Row:
    """Seconds of one schedule, on rank 0."""

    name: str
    actions: int
    ours_s: list[float]
    torch_s: list[float]
    ours_cpu_s: float
    torch_cpu_s: float

    @property
    def ratio(self) -> float:
        return statistics.median(one / other for one, other in zip(self.ours_s, self.torch_s, strict=True))


class Empty(nn.Module):
    """A stage that does next to nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.scale


def square(x: Tensor, y: Tensor) -> Tensor:
    return (x - y).square().mean()


def measure(context: Context, name: str, microbatches: int, steps: int, kind: str) -> Row:
    """Steps of both runtimes in turn."""
    options: dict[str, Any] = {"virtual": 2} if name in ("interleaved", "interleaved-zb") else {}
    schedule = build(name, ranks=context.ranks, microbatches=microbatches, **options)
    length = schedule.placement.length
    shape = Shape(layers=length, hidden=64, heads=4, ffn=172)

    def modules() -> list[nn.Module]:
        return [Empty() if kind == "empty" else tiny_stage(shape, stage, length) for stage in range(length)]

    loss = square if kind == "empty" else next_token_loss
    stage = StageOptions(seed=None)
    ours = Pipeline(lower(schedule), modules(), loss_fn=loss, options=PipelineOptions(stage=stage))
    theirs = TorchPipeline(schedule, modules(), loss, context.device, context.rank)
    if kind == "empty":
        inputs = targets = torch.zeros(microbatches, 16)
    else:
        tokens = torch.randint(shape.vocabulary, (microbatches, 33))
        inputs, targets = tokens[:, :-1], tokens[:, 1:]
    batch = cut_batch(inputs, targets, microbatches=microbatches)
    found: dict[str, list[float]] = {"ours": [], "theirs": []}
    cpu = torch.zeros(2, dtype=torch.float64)
    for step in range(steps + 2):
        for who, run in (("ours", lambda: ours.step(batch)), ("theirs", lambda: theirs.step(inputs, targets))):
            dist.barrier()
            begun, used = time.perf_counter(), time.process_time()
            run()
            if step > 1:
                cpu[int(who == "theirs")] += (time.process_time() - used) / steps
            dist.barrier()
            if step > 1:
                found[who].append(time.perf_counter() - begun)
    dist.all_reduce(cpu)
    return Row(name, len(schedule), found["ours"], found["theirs"], *cpu.tolist())


def _rows(given: argparse.Namespace) -> Iterator[tuple[str, Row]]:
    for kind in given.stages.split(","):
        for name in given.schedules.split(","):
            yield kind, run_local(given.ranks, measure, name, given.microbatches, given.steps, kind)[0]


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--ranks", type=int, default=4)
    options.add_argument("--microbatches", type=int, default=16)
    options.add_argument("--steps", type=int, default=30)
    options.add_argument("--schedules", default=",".join(SCHEDULES))
    options.add_argument("--stages", default="decoder,empty")
    options.add_argument("--json", action="store_true")
    given = options.parse_args()
    if given.json:
        rows = list(_rows(given))
        print(json.dumps([asdict(row) | {"ratio": row.ratio, "stages": kind} for kind, row in rows]))
        return
    print(f"{given.ranks} processes, {given.microbatches} microbatches, gloo, {torch.get_num_threads()} cores")
    columns = ("stages", "ours ms", "torch ms", "ours/torch", "CPU ratio", "µs/action")
    print(f"{'schedule':16}" + "".join(f"{column:>12}" for column in columns))
    for kind, row in _rows(given):
        ours, theirs = (statistics.median(one) * 1e3 for one in (row.ours_s, row.torch_s))
        cpu, each = row.ours_cpu_s / row.torch_cpu_s, row.ours_cpu_s / row.actions * 1e6
        print(f"{row.name:16}{kind:>12}{ours:12.1f}{theirs:12.1f}{row.ratio:12.2f}{cpu:12.2f}{each:12.0f}", flush=True)


if __name__ == "__main__":
    main()
