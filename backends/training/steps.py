"""One process's part of a training job: its pipeline, and steps one by one."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from pipesim.backends.batch import Microbatches, cut_batch
from pipesim.backends.huggingface.export import export
from pipesim.backends.job.worker import Context
from pipesim.backends.measure.clocks import clock_offset_ns
from pipesim.backends.measure.timelines import RankRecord, record
from pipesim.backends.model.loss import count_targets
from pipesim.backends.parallel.pipeline import ParallelOptions, ParallelPipeline
from pipesim.backends.parallel.places import Places, make_places
from pipesim.backends.parallel.sources import COMPUTE, DecoderSource, checkpoint_names
from pipesim.backends.parallel.updates import StepRules
from pipesim.backends.training.task import Step, Training
from pipesim.backends.trees import Tree, flatten, unflatten


class Steps:
    """The pipeline of a job in this process; all processes of the job make one, and step together."""

    def __init__(self, context: Context, task: Training) -> None:
        self.context, self.task = context, task
        self.places: Places = make_places(task.layout, context.device.type)
        stages = task.program.schedule.placement.length
        parts = task.source.parts(self.places, stages, context.device)
        self.pipeline = ParallelPipeline(
            task.program,
            self.places,
            parts.build,
            loss_fn=parts.loss,
            device=context.device,
            options=ParallelOptions(
                stage=task.stage,
                rules=StepRules(self._optimizer, task.clip_norm, task.overlap),
                compute_dtype=COMPUTE.get(task.source.dtype),
                ties=parts.ties,
                watch=task.watch,
                board=context.board,
            ),
        )
        self.offset_ns = clock_offset_ns()
        self.last_record: RankRecord | None = None

    def _optimizer(self, weights: Any) -> torch.optim.Optimizer:
        return torch.optim.AdamW(weights, lr=self.task.rates.peak, weight_decay=self.task.weight_decay)

    def batches(self, step: int) -> list[Microbatches]:
        """The rounds of a step (from 0) that this rank's pipeline runs, their weights of the whole job."""
        task = self.task
        count = task.program.schedule.microbatches
        inputs, targets = task.source.batch(task.global_batch, step)
        whole = cut_batch(
            _to(inputs, self.context.device),
            _to(targets, self.context.device),
            microbatches=task.global_batch // task.samples,
            slices=task.program.schedule.slices,
            weights=count_targets if isinstance(task.source, DecoderSource) else None,
        )
        first = self.places.dp_rank * task.rounds * count
        starts = [first + number * count for number in range(task.rounds)]
        return [
            Microbatches(
                whole.inputs[start : start + count],
                whole.targets[start : start + count],
                whole.weights[start : start + count],
            )
            for start in starts
        ]

    def run(self, step: int, recorder: AbstractContextManager[Any] | None = None) -> Step:
        """One step (from 0); all ranks know its loss. recorder: entered around what the step itself does."""
        rate = self.task.rates.at(step)
        for optimizer in self.pipeline.updates.optimizers.values():
            for group in optimizer.param_groups:
                group["lr"] = rate
        began = time.perf_counter_ns()
        rounds = self.batches(step)
        with recorder or nullcontext():
            result = self.pipeline.step(rounds)
        loss = self.pipeline.job_loss(result.loss)
        seconds = (time.perf_counter_ns() - began) * 1e-9
        self.last_record = record(self.pipeline.runner, result, began + self.offset_ns, self.offset_ns, 0)
        tokens = self.task.global_batch * self.task.source.tokens
        return Step(step + 1, loss, rate, self.pipeline.updates.norm, seconds, tokens / seconds)

    def save(self, folder: str) -> None:
        """Write the weights in Hugging Face's format; all ranks call this. Raises CannotWrite."""
        assert isinstance(self.task.source, DecoderSource)
        writes = self.places.dp_rank == 0 and self.places.tp_rank == 0
        export(folder, self.task.source.config, checkpoint_names(self.pipeline.modules), writes=writes)


def _to(tree: Tree, device: torch.device) -> Tree:
    tensors, holes = flatten(tree)
    return unflatten(holes, [tensor.to(device) for tensor in tensors])
