"""What every process of `pipesim run` does: steps on real or emulated stages, each of them timed."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.distributed as dist

from pipesim.backends.batch import Microbatches, cut_batch
from pipesim.backends.execute.plan import make_plan
from pipesim.backends.execute.runner import Runner
from pipesim.backends.job.emulate import EmulatedStage, EmulatedUpdates
from pipesim.backends.job.sources import Source
from pipesim.backends.job.worker import Context
from pipesim.backends.measure.clocks import clock_offset_ns
from pipesim.backends.measure.timelines import RankRecord, gather, timed_step
from pipesim.backends.pipeline import Pipeline, PipelineOptions, make_runner
from pipesim.backends.stage import StageOptions
from pipesim.backends.trees import Tree, flatten, unflatten
from pipesim.costs.costs import Costs
from pipesim.ir.program import Program

EMULATED_FLOATS = 1024  # of an emulated message


@dataclass(frozen=True)
class Task:
    """A run: steps of a program on a model's stages, or on emulated ones.

    steps: timed ones, after one that is not. samples: of one microbatch.
    lr: of AdamW; 0 only accumulates gradients. watch: note when each transfer is over.
    strict: transfers exactly as the program has them, for one that the checker refuses.
    """

    program: Program
    source: Source | None = None
    emulate: Costs | None = None
    steps: int = 5
    samples: int = 1
    lr: float = 1e-3
    stage: StageOptions = StageOptions()
    dynamic_shapes: bool = False
    watch: bool = True
    strict: bool = False
    weigh_memory: bool = True


@dataclass(frozen=True)
class Outcome:
    """What rank 0 knows after a run.

    losses, step_s: by step. records: of the step of median time, by rank. weighed: of the step in which bytes
    were noted, if asked for. message_bytes: by the operation that sends.
    """

    losses: list[float]
    step_s: list[float]
    records: list[RankRecord]
    weighed: list[RankRecord] | None
    message_bytes: dict[int, int]


def train(context: Context, task: Task) -> Outcome | None:
    """Run the steps; the outcome, on rank 0."""
    job = Job(context, task)
    job.step(0)  # forms of messages, self-checks and allocations are of the first step only
    mine = [job.timed(step) for step in range(1, task.steps + 1)]
    return job.outcome(mine)


class Job:
    """The runner of a task on this rank, and its data."""

    def __init__(self, context: Context, task: Task) -> None:
        self.task, self.device = task, context.device
        self.offset_ns = clock_offset_ns()
        self.schedule = task.program.schedule
        options = PipelineOptions(
            stage=task.stage,
            optimizer=(lambda weights: torch.optim.AdamW(weights, lr=task.lr)) if task.lr else None,
            dynamic_shapes=task.dynamic_shapes,
            watch=task.watch,
            board=context.board,
            strict=task.strict,
        )
        self.pipeline: Pipeline | None = None
        if task.emulate is not None:
            self.runner = self._emulated(task.emulate, context, options)
            return
        assert task.source is not None
        self.pipeline = Pipeline(
            task.program,
            task.source.modules(self.schedule.placement.length),
            loss_fn=task.source.loss(),
            device=context.device,
            options=options,
        )
        self.runner = self.pipeline.runner

    def _emulated(self, costs: Costs, context: Context, options: PipelineOptions) -> Runner:
        placement = self.schedule.placement
        stages = {
            stage: EmulatedStage(stage, costs, last=placement.is_last(stage))
            for stage in placement.stages_of(context.rank)
        }
        plan = make_plan(self.task.program, context.rank, strict=self.task.strict)
        return make_runner(plan, stages, EmulatedUpdates(costs), context.device, options)

    def batch(self, step: int) -> Microbatches:
        """The batch of a step, cut up."""
        count, slices = self.schedule.microbatches, self.schedule.slices
        if self.task.source is None:
            zeros = torch.zeros(count, slices, EMULATED_FLOATS // slices)
            return cut_batch(zeros, zeros[:, :, :1], microbatches=count, slices=slices)
        inputs, targets = self.task.source.batch(count * self.task.samples, step)
        return cut_batch(_to(inputs, self.device), _to(targets, self.device), microbatches=count, slices=slices)

    def step(self, step: int) -> None:
        self.runner.run(self.batch(step))

    def all_message_bytes(self) -> dict[int, int]:
        """Bytes of every message of the program, by the operation that sends."""
        ranks = all_ranks(self.runner.transport.message_bytes())
        return {op: size for rank in ranks for op, size in rank.items()}

    def timed(self, step: int) -> RankRecord:
        """One step of all ranks, begun together."""
        return timed_step(self.runner, self.batch(step), offset_ns=self.offset_ns, base_bytes=self.base_bytes())

    def outcome(self, mine: list[RankRecord]) -> Outcome | None:
        """Everything on rank 0; of the steps, the one of median time in full."""
        weighed = gather(self._weigh(len(mine) + 1)) if self.task.weigh_memory else None
        return _gathered(mine, weighed, self.all_message_bytes())

    def _weigh(self, step: int) -> RankRecord:
        """A step that notes bytes: saved tensors are kept where they can be weighed."""
        if self.pipeline is not None:
            for stage in self.pipeline.stages.values():
                stage.options = replace(stage.options, track_memory=True)
        self.runner.weigh_memory = True
        return self.timed(step)

    def base_bytes(self) -> int:
        """Bytes of this rank's weights, gradients and optimizer state."""
        if self.pipeline is None:
            return 0
        weights = [weight for stage in self.pipeline.stages.values() for weight in stage.module.parameters()]
        size = sum(weight.nbytes * (2 if weight.requires_grad else 1) for weight in weights)
        for optimizer in self.pipeline.updates.optimizers.values():
            for state in optimizer.state.values():
                size += sum(value.nbytes for value in state.values() if isinstance(value, torch.Tensor))
        return size


def _to(tree: Tree, device: torch.device) -> Tree:
    tensors, holes = flatten(tree)
    return unflatten(holes, [tensor.to(device) for tensor in tensors])


def _gathered(
    mine: list[RankRecord], weighed: list[RankRecord] | None, message_bytes: dict[int, int]
) -> Outcome | None:
    """Everything on rank 0; of the steps, the one of median time in full."""
    steps = all_ranks([(each.began, max(each.end.values(), default=each.began), each.loss) for each in mine])
    by_step = [[rank[step] for rank in steps] for step in range(len(mine))]
    step_s = [(max(end for _, end, _ in one) - min(begun for begun, _, _ in one)) * 1e-9 for one in by_step]
    records = gather(mine[step_s.index(statistics.median_low(step_s))])
    if records is None:
        return None
    losses = [sum(loss for _, _, loss in one) for one in by_step]
    return Outcome(losses, step_s, records, weighed, message_bytes)


def all_ranks(mine: Any) -> list[Any]:
    """Every rank's value, on all ranks."""
    found = [mine] * dist.get_world_size()
    dist.all_gather_object(found, mine)
    return found
