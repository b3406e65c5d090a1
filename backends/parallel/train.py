"""What every process of `pipesim run --layout` does: steps on a text, their losses, and what they took."""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from pipesim.backends.batch import Microbatches, cut_batch
from pipesim.backends.huggingface.export import export
from pipesim.backends.job.worker import Context
from pipesim.backends.measure.clocks import clock_offset_ns
from pipesim.backends.measure.timelines import RankRecord, record
from pipesim.backends.model.loss import count_targets
from pipesim.backends.parallel.lines import Line, measure_lines
from pipesim.backends.parallel.pipeline import ParallelOptions, ParallelPipeline
from pipesim.backends.parallel.places import Places, make_places
from pipesim.backends.parallel.rates import Rates
from pipesim.backends.parallel.report import Measured, measured_traffic
from pipesim.backends.parallel.sources import COMPUTE, DecoderSource, ParallelSource, checkpoint_names
from pipesim.backends.parallel.traffic import Recorder
from pipesim.backends.parallel.updates import StepRules
from pipesim.backends.stage import StageOptions
from pipesim.backends.trees import Tree, flatten, unflatten
from pipesim.costs.layouts.layout import Layout
from pipesim.ir.program import Program

_TIMED = 5  # of the last steps the one of median time is shown


@dataclass(frozen=True)
class Training:
    """A training run.

    samples: of one microbatch. rounds: runs of the program whose gradients add up to one step.
    metrics: a file that gets a line a step. save: a folder for the weights in Hugging Face's format.
    overlap: gradients are reduced behind other work. report: count every collective of the last step.
    """

    program: Program
    layout: Layout
    source: ParallelSource
    rates: Rates
    steps: int = 50
    samples: int = 1
    rounds: int = 1
    weight_decay: float = 0.01
    clip_norm: float | None = 1.0
    stage: StageOptions = StageOptions()
    overlap: bool = True
    watch: bool = True
    report: bool = True
    metrics: str | None = None
    save: str | None = None
    progress: bool = True


@dataclass(frozen=True)
class Step:
    """What is known of one step, by all ranks."""

    step: int
    loss: float
    lr: float
    grad_norm: float | None
    step_s: float
    tokens_per_s: float

    def line(self) -> str:
        """As JSON."""
        return json.dumps({key: value for key, value in asdict(self).items() if value is not None})


@dataclass(frozen=True)
class Trained:
    """What rank 0 knows after a run.

    records: of one of the last steps, by rank of pipeline 0. measured: traffic of the last step, by pipeline rank.
    lines: of each dimension, what a message takes.
    """

    steps: list[Step]
    records: list[RankRecord]
    measured: list[Measured] | None
    lines: Mapping[str, Line]


class TrainingRun:
    """A run in one process: its pipeline, and steps one by one."""

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
        task, layout = self.task, self.places.layout
        count = task.program.schedule.microbatches
        inputs, targets = task.source.batch(layout.dp * task.rounds * count * task.samples, step)
        whole = cut_batch(
            _to(inputs, self.context.device),
            _to(targets, self.context.device),
            microbatches=layout.dp * task.rounds * count,
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

    def step(self, step: int, recorder: AbstractContextManager[Any] | None = None) -> Step:
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
        tokens = self.places.layout.dp * len(rounds) * len(rounds[0]) * self.task.samples * self.task.source.tokens
        return Step(step + 1, loss, rate, self.pipeline.updates.norm, seconds, tokens / seconds)

    def save(self, folder: str) -> None:
        """Write the weights in Hugging Face's format; all ranks call this. Raises CannotWrite."""
        assert isinstance(self.task.source, DecoderSource)
        writes = self.places.dp_rank == 0 and self.places.tp_rank == 0
        export(folder, self.task.source.config, checkpoint_names(self.pipeline.modules), writes=writes)


def train_parallel(context: Context, task: Training) -> Trained | None:
    """Run the steps; the outcome, on rank 0."""
    run = TrainingRun(context, task)
    steps: list[Step] = []
    records: deque[RankRecord] = deque(maxlen=_TIMED)
    recorder = Recorder()
    with _Metrics(task, context.rank) as noted:
        for step in range(task.steps):
            counted = task.report and step == task.steps - 1 and step > 0
            steps.append(run.step(step, recorder if counted else None))
            if not counted and run.last_record is not None:
                records.append(run.last_record)
            noted(steps[-1])
    if task.save is not None:
        run.save(task.save)
    everyone = _gathered(_median(list(records)))
    measured = measured_traffic(recorder.collectives) if task.report and task.steps > 1 else None
    all_measured = _gathered(measured)
    lines = measure_lines(run.places, context.device) if task.report else {}
    if everyone is None or all_measured is None:
        return None
    mine = run.places.pipeline
    found = [all_measured[rank] for rank in mine] if measured is not None else None
    return Trained(steps, [everyone[rank] for rank in mine], found, lines)


class _Metrics:
    """Where steps are noted as they end: a line in a file, and now and then one for people; on rank 0 only."""

    def __init__(self, task: Training, rank: int) -> None:
        self._task, self._mine = task, rank == 0
        self._file: Any = None

    def __enter__(self) -> Callable[[Step], None]:
        if self._mine and self._task.metrics is not None:
            self._file = Path(self._task.metrics).open("w")
        return self._note

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()

    def _note(self, step: Step) -> None:
        if self._file is not None:
            self._file.write(step.line() + "\n")
            self._file.flush()
        every = max(1, self._task.steps // 10)
        if self._mine and self._task.progress and (step.step % every == 0 or step.step == 1):
            norm = "" if step.grad_norm is None else f"  norm {step.grad_norm:.3f}"
            text = f"step {step.step}/{self._task.steps}  loss {step.loss:.4f}{norm}  {step.tokens_per_s:,.0f} tokens/s"
            print(text, file=sys.stderr, flush=True)


def _median(records: list[RankRecord]) -> RankRecord:
    """Of the same step on all ranks: the one in which rank 0 took the median time."""
    took = [max(one.end.values(), default=one.began) - one.began for one in records]
    place = [took.index(statistics.median_low(took))]
    dist.broadcast_object_list(place, 0)
    return records[place[0]]


def _gathered(mine: Any) -> list[Any] | None:
    found: list[Any] | None = [None] * dist.get_world_size() if dist.get_rank() == 0 else None
    dist.gather_object(mine, found, dst=0)
    return found


def _to(tree: Tree, device: torch.device) -> Tree:
    tensors, holes = flatten(tree)
    return unflatten(holes, [tensor.to(device) for tensor in tensors])
