"""Training of a decoder that begins where the newest checkpoint ends, at any layout."""

from __future__ import annotations

import logging
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from pipesim.backends.batch import Microbatches, cut_batch
from pipesim.backends.checkpoint.restore import Found, find_newest, load_into
from pipesim.backends.checkpoint.saver import Checkpoints, Saver
from pipesim.backends.checkpoint.tensors import Held
from pipesim.backends.data.samples import Samples, samples_of
from pipesim.backends.data.tokens import built_in_text, load_tokenizer
from pipesim.backends.elastic.loss_file import LossFile
from pipesim.backends.elastic.stop import SIGNALS, Stopped, StopRequest
from pipesim.backends.elastic.watch import Watch
from pipesim.backends.job.sources import DTYPES
from pipesim.backends.job.worker import Context
from pipesim.backends.model.config import DecoderConfig
from pipesim.backends.parallel.decoders import decoder_loss, decoder_stages, decoder_ties, first_weights
from pipesim.backends.parallel.pipeline import ParallelOptions, ParallelPipeline
from pipesim.backends.parallel.places import Places, make_places, short
from pipesim.backends.parallel.rates import Rates
from pipesim.backends.parallel.updates import StepRules
from pipesim.backends.stage import StageOptions
from pipesim.costs.layouts.layout import Layout
from pipesim.errors import PipesimError
from pipesim.ir.program import Program

log = logging.getLogger("pipesim.elastic")


@dataclass(eq=False)
class CannotGoOn(PipesimError):
    """A checkpoint of a job that was another one."""

    what: str
    then: Any
    now: Any

    def __str__(self) -> str:
        return f"the checkpoint was written with {self.what} {self.then}, this job has {self.now}: give {self.then}"


@dataclass(frozen=True, kw_only=True)
class TrainTask:
    """A training job at one layout; what a restart may change is `program` and `layout`.

    steps: of the whole job, those before a restart too. samples: of one microbatch.
    text: None for the built-in one. losses: a file with a line a step. hang_s: longest time of one operation.
    """

    program: Program
    layout: Layout
    config: DecoderConfig
    steps: int
    samples: int = 1
    seq: int = 64
    seed: int = 0
    dtype: str = "fp32"
    rate: Rates = Rates(1e-3)
    clip_norm: float | None = 1.0
    split_backward: str = "graph"
    text: str | None = None
    tokenizer: str | None = None
    losses: Path | None = None
    checkpoints: Checkpoints | None = None
    hang_s: float = 60.0

    @property
    def global_batch(self) -> int:
        """Samples of one step."""
        return self.program.schedule.microbatches * self.samples * self.layout.dp


def train_on(context: Context, task: TrainTask) -> dict[int, float]:
    """Train to the end; the losses by step of this process. Raises Stopped after a signal, CannotGoOn, OtherModel."""
    stop = StopRequest()
    stop.listen()
    watch = Watch(task.program.text, stop, inner=context.board, hang_s=task.hang_s)
    try:
        return Trainer(replace(context, board=watch), task, stop).train(watch)
    finally:
        watch.end()


class Trainer:
    """One process of a training job."""

    def __init__(self, context: Context, task: TrainTask, stop: StopRequest | None = None) -> None:
        self.task, self.device, self.stop = task, context.device, stop or StopRequest()
        self.places = make_places(task.layout, context.device.type)
        self.data = _samples(task)
        self.pipeline = _pipeline(task, self.places, context)
        self.held = Held(
            self.pipeline.modules, self.pipeline.updates.optimizers, task.program.schedule.placement.length
        )
        self.step = 0
        self.saver = None
        if task.checkpoints is not None:
            self.saver = Saver(self.held, task.checkpoints)
            found = find_newest(task.checkpoints.root)
            if found is not None:
                self.restore(found)
        first = dist.get_rank() == 0 and task.losses is not None
        self.losses = LossFile(task.losses, self.step) if first and task.losses is not None else None

    def train(self, watch: Watch | None = None) -> dict[int, float]:
        """All steps that are left; the losses by step."""
        losses = {}
        while self.step < self.task.steps:
            number = self.step
            if watch is not None:
                watch.step(number)
            losses[number] = self._one_step()
        if self.saver is not None:
            self.saver.save(self.step, self.state())
            self.saver.wait()
        return losses

    def _one_step(self) -> float:
        self._set_rate()
        result = self.pipeline.step([self.batch(self.step)])
        number, self.step = self.step, self.step + 1
        due = self.saver is not None and self.saver.due(self.step)
        loss, stopped, due = self._agree(result.loss, due)
        if self.losses is not None:
            self.losses.add(number, loss=loss)
        if self.saver is not None and (due or stopped):
            self.saver.save(self.step, self.state())
        if stopped:
            if self.saver is not None:
                self.saver.wait()
            raise Stopped(next(one.name for one in SIGNALS if one == stopped), self.step)
        return loss

    def batch(self, step: int) -> Microbatches:
        """This replica's part of the step's samples."""
        task, layout = self.task, self.task.layout
        inputs, targets = self.data.batch(step, task.global_batch)
        mine = slice(
            *(task.global_batch * part // layout.dp for part in (self.places.dp_rank, self.places.dp_rank + 1))
        )
        schedule = task.program.schedule
        cut = cut_batch(
            inputs[mine].to(self.device),
            targets[mine].to(self.device),
            microbatches=schedule.microbatches,
            slices=schedule.slices,
        )
        return replace(cut, weights=[[weight / layout.dp for weight in row] for row in cut.weights])

    def state(self) -> dict[str, Any]:
        """All that a checkpoint has beside tensors. Random numbers and data follow from seeds and the step."""
        task = self.task
        return {
            "step": self.step,
            "samples_seen": self.step * task.global_batch,
            "global_batch": task.global_batch,
            "seq": task.seq,
            "seed": task.seed,
            "dtype": task.dtype,
            "schedule": task.program.schedule.name,
            "layout": short(task.layout),
            "rate": asdict(task.rate) | {"now": task.rate.at(self.step)},
            "generator": torch.get_rng_state().numpy().tobytes().hex(),
        }

    def restore(self, found: Found) -> None:
        """Go on from a checkpoint. Raises CannotGoOn, OtherModel."""
        state, task = found.description.state, self.task
        for what, now in (
            ("global_batch", task.global_batch), ("seq", task.seq), ("seed", task.seed), ("dtype", task.dtype),
        ):  # fmt: skip
            if state.get(what) != now:
                raise CannotGoOn(what, state.get(what), now)
        load_into(self.held, found)
        self.step = found.description.step
        for stage in self.pipeline.stages.values():
            stage.step = self.step
        self.pipeline.updates.steps = self.step
        torch.set_rng_state(torch.frombuffer(bytearray.fromhex(state["generator"]), dtype=torch.uint8))
        if self.saver is not None:
            self.saver.saved = self.step
        if dist.get_rank() == 0:
            log.info("step %d: going on from %s at %s", self.step, found.place.name, short(task.layout))

    def _set_rate(self) -> None:
        rate = self.task.rate.at(self.step)
        for optimizer in self.pipeline.updates.optimizers.values():
            for group in optimizer.param_groups:
                group["lr"] = rate

    def _agree(self, loss: float, due: bool) -> tuple[float, int, bool]:
        """The job's loss, the signal that any rank has got, and whether a checkpoint is due: one reduction."""
        mine = loss if self.places.tp_rank == 0 else 0.0
        total = torch.tensor([mine, float(due)], dtype=torch.float64, device=self.device)
        signal_ = torch.tensor([self.stop.signal], device=self.device)
        works = [
            dist.all_reduce(total, async_op=True),
            dist.all_reduce(signal_, dist.ReduceOp.MAX, async_op=True),
        ]
        for work in works:
            work.wait()
        return float(total[0]), int(signal_), bool(total[1])


def _samples(task: TrainTask) -> Samples:
    text = task.text if task.text is not None else built_in_text()
    model = task.config.model
    return samples_of(
        text, load_tokenizer(task.tokenizer), seq=task.seq, seed=task.seed, model=model.name, rows=model.vocab
    )


def _pipeline(task: TrainTask, places: Places, context: Context) -> ParallelPipeline:
    length = task.program.schedule.placement.length
    dtype = DTYPES[task.dtype]
    mixed = dtype == torch.bfloat16  # weights stay in float32
    build = decoder_stages(
        task.config,
        places,
        length,
        fill=first_weights(task.config, task.seed),
        dtype=torch.float32 if mixed else dtype,
        compute_dtype=dtype if mixed else None,
        device=context.device,
    )
    rules = StepRules(lambda weights: torch.optim.AdamW(weights, lr=task.rate.peak), clip_norm=task.clip_norm)
    return ParallelPipeline(
        task.program,
        places,
        build,
        loss_fn=decoder_loss(places),
        device=context.device,
        options=ParallelOptions(
            stage=StageOptions(strategy=task.split_backward, seed=task.seed),
            rules=rules,
            compute_dtype=dtype if mixed else None,
            ties=decoder_ties(task.config, task.layout, length),
            board=context.board,
        ),
    )
