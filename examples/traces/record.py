"""Trains a pipeline of torch.distributed.pipelining on four processes, one of them slow, and records a trace a rank.

torchrun --nproc-per-node 4 examples/traces/record.py FOLDER
"""

import gzip
import json
import sys
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.pipelining import PipelineStage, ScheduleInterleaved1F1B
from torch.profiler import ProfilerActivity, profile

RANKS, MICROBATCHES, WIDTH = 4, 8, 64
SLOW_RANK, SLOWER = 2, 2.5  # a GPU that runs hot, say


class Work(torch.autograd.Function):
    """Takes as long as a GPU would: 5 ms forward, 10 ms backward, so that four ranks run on two cores."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, slower: float) -> Tensor:
        ctx.slower = slower
        time.sleep(0.005 * slower)
        return x * 1.0

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        time.sleep(0.010 * ctx.slower)
        return gradients[0], None


class Block(nn.Module):
    def __init__(self, rank: int) -> None:
        super().__init__()
        self.linear, self.slower = nn.Linear(WIDTH, WIDTH), SLOWER if rank == SLOW_RANK else 1.0

    def forward(self, x: Tensor) -> Tensor:
        made: Tensor = Work.apply(self.linear(x), self.slower)
        return made


def main(folder: Path) -> None:
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    rank = dist.get_rank()
    numbers = (rank, rank + RANKS)
    stages = [PipelineStage(Block(rank), number, 2 * RANKS, torch.device("cpu")) for number in numbers]
    schedule = ScheduleInterleaved1F1B(stages, MICROBATCHES, loss_fn=nn.functional.mse_loss)
    first = [torch.randn(MICROBATCHES * 4, WIDTH)] if rank == 0 else []
    last = {"target": torch.randn(MICROBATCHES * 4, WIDTH)} if rank == RANKS - 1 else {}
    schedule.step(*first, **last)  # the first step allocates and connects
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        schedule.step(*first, **last)
    path = folder / f"rank{rank}.json"
    profiler.export_chrome_trace(str(path))
    shrink(path)
    dist.barrier()
    dist.destroy_process_group()


def shrink(path: Path) -> None:
    """Keep what a trace says of the pipeline, some kilobytes; whole traces are read just as well."""
    trace = json.loads(path.read_text())
    kept = {key: trace[key] for key in ("distributedInfo", "baseTimeNanoseconds")}
    kept["traceEvents"] = [event for event in trace["traceEvents"] if event.get("name", "").startswith("PP:")]
    with gzip.open(path.with_suffix(".json.gz"), "wt") as file:
        json.dump(kept, file)
    path.unlink()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
