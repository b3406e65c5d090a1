"""What every process of `pipesim run --layout` does: steps on a text, their losses, and what they took."""

from __future__ import annotations

import statistics
import sys
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import Any

import torch.distributed as dist

from pipesim.backends.elastic.loss_file import LossFile
from pipesim.backends.elastic.stop import StopRequest
from pipesim.backends.elastic.watch import Watch
from pipesim.backends.job.signals import Stopped, answer
from pipesim.backends.job.worker import Context
from pipesim.backends.measure.timelines import RankRecord
from pipesim.backends.parallel.lines import measure_lines
from pipesim.backends.parallel.report import measured_traffic
from pipesim.backends.parallel.traffic import Recorder
from pipesim.backends.training.progress import Progress
from pipesim.backends.training.steps import Steps
from pipesim.backends.training.task import Step, Trained, Training

_TIMED = 5  # of the last steps the one of median time is shown


def train(context: Context, task: Training) -> Trained | Stopped | None:
    """Run the steps that are left; the outcome, on rank 0; Stopped on all ranks after a signal.

    Raises CannotGoOn, OtherModel, TakenOver.
    """
    stop = StopRequest()
    with _watched(context, task, stop) as (watched, watch):
        return Trainer(watched, task, stop, watch).train()


@contextmanager
def _watched(context: Context, task: Training, stop: StopRequest) -> Iterator[tuple[Context, Watch | None]]:
    """Signals are taken and hangs seen, in a job that can begin again."""
    if task.keep is None:
        yield context, None
        return
    stop.listen()
    watch = Watch(task.program.text, stop, inner=context.board, hang_s=task.keep.hang_s)
    try:
        yield replace(context, board=watch), watch
    finally:
        watch.end()


class Trainer:
    """One process of a training job."""

    def __init__(
        self, context: Context, task: Training, stop: StopRequest | None = None, watch: Watch | None = None
    ) -> None:
        self.task, self.context, self.stop, self.watch = task, context, stop or StopRequest(), watch
        with self._off_duty():
            self.steps = Steps(context, task)
            self.progress = Progress(self.steps)
        self.done: list[Step] = []
        self._records: deque[RankRecord] = deque(maxlen=_TIMED)
        self._recorder = Recorder()

    def train(self) -> Trained | Stopped | None:
        """All steps that are left."""
        lines = _Lines(self.task, self.context.rank, self.progress.step)
        while self.progress.step < self.task.steps:
            if self.watch is not None:
                self.watch.step(self.progress.step)
            self.done.append(self._step(self.progress.step))
            lines.add(self.done[-1])
            with self._off_duty():
                signal = self.progress.done(lambda: self.stop.signal)
            if signal is not None:
                answer("stopped")
                return Stopped(signal, self.progress.step)
        with self._off_duty():
            self.progress.end()
            if self.task.save is not None:
                self.steps.save(self.task.save)
            return self._outcome()

    def _step(self, number: int) -> Step:
        counted = self.task.report and number == self.task.steps - 1 and len(self.done) > 0
        found = self.steps.run(number, self._recorder if counted else None)
        if not counted and self.steps.last_record is not None:
            self._records.append(self.steps.last_record)
        return found

    def _outcome(self) -> Trained | None:
        task, places = self.task, self.steps.places
        if not self.done:  # nothing was left to do
            return Trained([], [], None, {}) if dist.get_rank() == 0 else None
        everyone = _gathered(_median(list(self._records)))
        counted = task.report and len(self.done) > 1
        measured = measured_traffic(self._recorder.collectives) if counted else None
        all_measured = _gathered(measured)
        lines = measure_lines(places, self.context.device) if task.report else {}
        if everyone is None or all_measured is None:
            return None
        mine = places.pipeline
        found = [all_measured[rank] for rank in mine] if measured is not None else None
        return Trained(self.done, [everyone[rank] for rank in mine], found, lines)

    def _off_duty(self) -> Any:
        return nullcontext() if self.watch is None else self.watch.off_duty()


class _Lines:
    """Where steps are noted as they end: a line in a file, and now and then one for people; by rank 0 only."""

    def __init__(self, task: Training, rank: int, done: int) -> None:
        self._task, self._mine = task, rank == 0
        self._file = LossFile(task.metrics, done) if self._mine and task.metrics is not None else None

    def add(self, step: Step) -> None:
        """One step has ended."""
        if self._file is not None:
            self._file.add(step.line())
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
