"""How far a job is, in memory and on the disk: it begins where the newest checkpoint ends, at any layout."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import torch
import torch.distributed as dist

from pipesim.backends.checkpoint.folder import TakenOver
from pipesim.backends.checkpoint.restore import Found, find_newest, load_into
from pipesim.backends.checkpoint.saver import Saver
from pipesim.backends.checkpoint.tensors import Held
from pipesim.backends.job.signals import ASK
from pipesim.backends.parallel.places import short
from pipesim.backends.training.steps import Steps
from pipesim.errors import PipesimError

log = logging.getLogger("pipesim.training")


@dataclass(eq=False)
class CannotGoOn(PipesimError):
    """A checkpoint of a job that was another one."""

    what: str
    then: Any
    now: Any

    def __str__(self) -> str:
        return f"the checkpoint was written with {self.what} {self.then}, this job has {self.now}: give {self.then}"


class Progress:
    """The steps that are done. `step`: how many."""

    def __init__(self, steps: Steps) -> None:
        self.steps, self.task, self.step = steps, steps.task, 0
        pipeline = steps.pipeline
        self.held = Held(pipeline.modules, pipeline.updates.optimizers, self.task.program.schedule.placement.length)
        self.saver: Saver | None = None
        if self.task.keep is not None:
            self.saver = Saver(self.held, self.task.keep.checkpoints)
            found = find_newest(self.task.keep.checkpoints.root)
            if found is not None:
                self.restore(found)

    def restore(self, found: Found) -> None:
        """Go on from a checkpoint. Raises CannotGoOn, OtherModel."""
        state = found.description.state
        for what, now in self._same().items():
            if state.get(what) != now:
                raise CannotGoOn(what, state.get(what), now)
        load_into(self.held, found)
        self.step = found.description.step
        for stage in self.steps.pipeline.stages.values():
            stage.step = self.step
        self.steps.pipeline.updates.steps = self.step
        restore_generators(state, self.steps.context.device)
        if self.saver is not None:
            self.saver.saved = self.step
        if dist.get_rank() == 0:
            log.info("step %d: going on from %s at %s", self.step, found.place.name, short(self.task.layout))

    def state(self) -> dict[str, Any]:
        """All that a checkpoint has beside tensors. Data and dropout follow from seeds and the step."""
        task = self.task
        return self._same() | {
            "step": self.step,
            "samples_seen": self.step * task.global_batch,
            "schedule": task.program.schedule.name,
            "layout": short(task.layout),
            "rate": asdict(task.rates) | {"now": task.rates.at(self.step)},
            **generators(self.steps.context.device),
        }

    def _same(self) -> dict[str, Any]:
        """What makes the data order, and so may not change."""
        source = self.task.source
        return {
            "global_batch": self.task.global_batch,
            "seq": source.tokens,
            "seed": source.seed,
            "dtype": source.dtype,
        }

    def done(self, asked: Callable[[], int]) -> str | None:
        """One more step is done: a checkpoint where one is due. The name of a signal that any rank was asked by.

        Raises TakenOver.
        """
        self.step += 1
        if self.saver is None:
            return None
        mine = [int(self.saver.due(self.step)), int(asked()), int(self.saver.taken_over())]
        everyone = torch.tensor(mine, device=self.steps.context.device)
        dist.all_reduce(everyone, dist.ReduceOp.MAX, async_op=True).wait()
        due, number, taken_over = everyone.tolist()
        if taken_over:
            raise TakenOver(str(self.saver.rules.root))
        if due or number:
            self.saver.save(self.step, self.state())
        if number:
            self.saver.wait()
        return next((one.name for one in ASK if one == number), None)

    def end(self) -> None:
        """Write what the last checkpoint does not have."""
        if self.saver is not None:
            self.saver.save(self.step, self.state())
            self.saver.wait()


def generators(device: torch.device) -> dict[str, str]:
    """States of torch's random numbers, of the CPU and of the GPU in use."""
    found = {"generator": torch.get_rng_state()}
    if device.type == "cuda":
        found["cuda_generator"] = torch.cuda.get_rng_state(device)
    return {name: state.numpy().tobytes().hex() for name, state in found.items()}


def restore_generators(state: dict[str, Any], device: torch.device) -> None:
    """Give them back; a checkpoint from another kind of device has none of a GPU."""
    torch.set_rng_state(_bytes(state["generator"]))
    if device.type == "cuda" and "cuda_generator" in state:
        torch.cuda.set_rng_state(_bytes(state["cuda_generator"]), device)


def _bytes(text: str) -> torch.Tensor:
    return torch.frombuffer(bytearray.fromhex(text), dtype=torch.uint8)
