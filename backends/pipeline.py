"""One process of a pipeline job: a schedule, the stages that are on this rank, and steps to run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
import torch.distributed as dist
from torch import nn

from pipesim.backends.batch import Microbatches
from pipesim.backends.execute.plan import Plan, make_plan
from pipesim.backends.execute.runner import AnyStage, AnyUpdates, Board, Runner, StepResult
from pipesim.backends.execute.timer import timer_for
from pipesim.backends.execute.transport import Transport, Wires
from pipesim.backends.execute.update import OptimizerFactory, Updates
from pipesim.backends.execute.wiring import Tie, channel_groups, find_ties, share
from pipesim.backends.stage import LossFunction, Stage, StageOptions
from pipesim.backends.versions import Versions
from pipesim.ir.action import Kind
from pipesim.ir.lower import lower
from pipesim.ir.program import Program
from pipesim.ir.schedule import Schedule

Modules = Sequence[nn.Module] | Callable[[int], nn.Module]


@dataclass(frozen=True)
class PipelineOptions:
    """How a job runs.

    optimizer: makes the optimizer of a stage; None only accumulates gradients.
    ties: parameters that are one weight; found by identity where all modules are given.
    dynamic_shapes: shapes may differ from microbatch to microbatch.
    watch: note when each transfer is over (a thread a channel); else only when it was waited for.
    weigh_memory: note the bytes held after each action.
    board: where this rank shows what it is at. strict: see `make_plan`.
    """

    stage: StageOptions = field(default_factory=StageOptions)
    optimizer: OptimizerFactory | None = None
    ties: Sequence[Tie] = ()
    dynamic_shapes: bool = False
    watch: bool = False
    weigh_memory: bool = False
    board: Board | None = None
    strict: bool = False


class Pipeline:
    """This process's part of a pipeline; the process group must be there already.

    modules: the stages of the model in order, or a function that makes one (the same on all ranks).
    """

    def __init__(
        self,
        program: Program,
        modules: Modules,
        *,
        loss_fn: LossFunction | None,
        device: torch.device | None = None,
        options: PipelineOptions | None = None,
    ) -> None:
        self.program, self.rank = program, dist.get_rank()
        self.device = device or torch.device("cpu")
        self.options = options or PipelineOptions()
        placement = program.schedule.placement
        self.modules = {
            stage: module_of(modules, stage % placement.length).to(self.device)
            for stage in placement.stages_of(self.rank)
        }
        ties = self.options.ties or (find_ties(modules) if isinstance(modules, Sequence) else ())
        shared = share(placement, self.rank, self.modules, ties)
        stage_options = self.options.stage
        if self.options.weigh_memory:
            stage_options = replace(stage_options, track_memory=True)
        stale = program.schedule.update_every is not None
        self.stages = {
            stage: Stage(
                module,
                stage % placement.length,
                placement.length,
                loss_fn,
                stage_options,
                versions=Versions(module) if stale else None,
            )
            for stage, module in self.modules.items()
        }
        self.updates = Updates(self.stages, self.options.optimizer, shared.replicas, shared.ties)
        self._training = make_runner(
            make_plan(program, self.rank, strict=self.options.strict),
            self.stages,
            self.updates,
            self.device,
            self.options,
        )
        self._evaluating: Runner | None = None

    def step(self, batch: Microbatches) -> StepResult:
        """One training step on a batch; every rank gets the same one (or the parts that its stages use)."""
        for module in self.modules.values():
            module.train()
        return self._training.run(batch)

    def evaluate(self, batch: Microbatches) -> StepResult:
        """Forwards only, in the schedule's order; the outputs (or losses) are on the last stage's rank."""
        if self._evaluating is None:
            plan = make_plan(lower(forwards_of(self.program.schedule)), self.rank)
            self._evaluating = make_runner(plan, self.stages, None, self.device, self.options)
        for module in self.modules.values():
            module.eval()
        return self._evaluating.run(batch)

    @property
    def runner(self) -> Runner:
        """The walk of the training program."""
        return self._training


def make_runner(
    plan: Plan,
    stages: Mapping[int, AnyStage],
    updates: AnyUpdates | None,
    device: torch.device,
    options: PipelineOptions,
) -> Runner:
    """A runner with wires of its own."""
    wires = Wires(device, channel_groups(plan, device), options.dynamic_shapes, options.watch)
    return Runner(
        plan,
        stages,
        Transport(wires),
        updates,
        timer_for(device),
        board=options.board,
        weigh_memory=options.weigh_memory,
    )


def forwards_of(schedule: Schedule) -> Schedule:
    """The schedule without its backwards: what evaluation runs."""
    keep = np.flatnonzero(schedule.atoms.kind == Kind.F)
    atoms = schedule.atoms.take(keep)
    offsets = np.searchsorted(keep, schedule.offsets)
    alone = replace(atoms, fused=np.zeros(len(atoms), np.bool_))
    return replace(schedule, name=f"{schedule.name} (forwards)", atoms=alone, offsets=offsets, update_every=None)


def module_of(modules: Modules, stage: int) -> nn.Module:
    """One stage of the model."""
    return modules[stage] if isinstance(modules, Sequence) else modules(stage)
