"""The end of a step under all parallelism: sums over replicas, tensor parts, tied weights; norm; optimizers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch.distributed.tensor import DTensor

from pipesim.backends.execute.update import OptimizerFactory
from pipesim.backends.parallel.clip import scale_to, share_of, total_norm
from pipesim.backends.parallel.reduce import Bucket, Replicated, complete_over_tensor
from pipesim.backends.parallel.sharded import Sharded
from pipesim.backends.stage import Stage

Mark = Callable[[], Any]


@dataclass
class StageWeights:
    """One stage of this rank: its module, and how its gradients are reduced (None: nobody else has them).

    counted: what its weights count in the norm beside their parts: 1 / replicas in the pipeline itself.
    """

    stage: Stage
    module: nn.Module
    reduction: Replicated | Sharded | None
    counted: float = 1.0

    def trained(self) -> dict[str, nn.Parameter]:
        """Its parameters by name."""
        return {name: weight for name, weight in self.module.named_parameters() if weight.requires_grad}


@dataclass
class TiedHere:
    """This rank's places of one weight that several stages share, as (stage, name), and who else has it."""

    places: tuple[tuple[int, str], ...]
    group: Any
    counted: tuple[int, str]  # the one place of the job whose gradient counts in the norm


@dataclass(frozen=True)
class StepRules:
    """What a step does with complete gradients.

    optimizer: None leaves the gradients where they are. overlap: reductions run behind other work.
    """

    optimizer: OptimizerFactory | None = None
    clip_norm: float | None = None
    overlap: bool = True


@dataclass
class ParallelUpdates:
    """Reductions and steps of this rank's stages. hold: accumulate on, this round is not the step's last."""

    stages: Mapping[int, StageWeights]
    rules: StepRules
    sizes: Mapping[str, int]  # of the dimensions dp and tp
    ties: Sequence[TiedHere]
    mark: Mark
    device: torch.device
    steps: int = 0
    hold: bool = False
    norm: float | None = None
    reduced: dict[int, tuple[Any, Any]] = field(default_factory=dict)  # by stage, marks of begin and end
    stepped: Any = None  # mark at which the optimizers could begin

    def __post_init__(self) -> None:
        self.optimizers: dict[int, torch.optim.Optimizer] = {}
        for number, one in self.stages.items():
            if self.rules.optimizer is not None and one.trained():
                self.optimizers[number] = self.rules.optimizer(_alike(one.trained().values()))
        self._tied = [Bucket([], tie.group) for tie in self.ties]
        self._begun: dict[int, Any] = {}

    def reduce(self, stage: int) -> None:
        """Start a stage's reduction; without overlap finish it, too. Twins of one rank wait for each other."""
        reduction = self.stages[stage].reduction
        if self.hold or reduction is None or (isinstance(reduction, Replicated) and reduction.twins):
            return
        self._begin(stage)
        if not self.rules.overlap and self.stages[stage].counted == 1.0:
            self._end(stage)

    def step(self, stages: Sequence[int]) -> None:
        """Finish all sums, cut the gradients down, step the optimizers."""
        if self.hold:
            return
        for number in stages:
            if number not in self._begun and number not in self.reduced:
                self._begin(number)
        for number in list(self._begun):
            self._end(number)
        for tie, bucket in zip(self.ties, self._tied, strict=True):
            bucket.weights = [tuple(self.stages[number].module.get_parameter(name) for number, name in tie.places)]
            bucket.begin()
            bucket.end()
        self.stepped = self.mark()
        if self.rules.clip_norm is not None:
            self.norm = total_norm(self._counted(), self.device)
            for one in self.stages.values():
                scale_to(one.trained().values(), self.norm, self.rules.clip_norm)
        for number in stages:
            self._step(number)

    def begin_step(self) -> None:
        """Forget the marks of the step before."""
        self.reduced.clear()
        self._begun.clear()

    def _begin(self, number: int) -> None:
        self._begun.setdefault(number, self.mark())
        reduction = self.stages[number].reduction
        if isinstance(reduction, Replicated):
            reduction.begin()
        elif reduction is not None:
            reduction.reduce()

    def _end(self, number: int) -> None:
        one = self.stages[number]
        if isinstance(one.reduction, Replicated):
            one.reduction.end()
        if not isinstance(one.reduction, Sharded):  # which has done it already
            complete_over_tensor(one.trained().values())
        self.reduced[number] = (self._begun.pop(number), self.mark())

    def _counted(self) -> list[tuple[nn.Parameter, float]]:
        """Weights with what they count in the norm."""
        tied = {place: float(place == tie.counted) for tie in self.ties for place in tie.places}
        return [
            (weight, share_of(weight, self.sizes) * tied.get((number, name), one.counted))
            for number, one in self.stages.items()
            for name, weight in one.trained().items()
        ]

    def _step(self, number: int) -> None:
        if number in self.optimizers:
            self.optimizers[number].step()
            self.optimizers[number].zero_grad()
        self.stages[number].stage.step += 1


def _alike(weights: Any) -> Any:
    """Groups for an optimizer, whose kernels take tensors of one kind: plain ones, or those of one mesh."""
    groups: dict[Any, list[nn.Parameter]] = {}
    for weight in weights:
        kind = weight.device_mesh if isinstance(weight, DTensor) else None
        groups.setdefault(kind, []).append(weight)
    return [{"params": found} for found in groups.values()]
