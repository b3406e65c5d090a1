"""The end of a step: gradients summed over those who hold the same weights, then the optimizers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from pipesim.backends.stage import Stage

OptimizerFactory = Callable[[list[nn.Parameter]], torch.optim.Optimizer]


@dataclass(frozen=True)
class Sharing:
    """Parameters that are one weight in several places, whose gradients have to be summed.

    copies: one list of parameters for each place on this rank, in the same order everywhere.
    group: all ranks that hold it; None if only this one does.
    """

    copies: tuple[tuple[nn.Parameter, ...], ...]
    group: dist.ProcessGroup | None = None


@dataclass
class _Sum:
    """A sum under way: a flat tensor per type, of all gradients and, at its end, who has one."""

    sharing: Sharing
    flat: dict[torch.dtype, Tensor]
    works: list[Any] = field(default_factory=list)


@dataclass
class Updates:
    """Reductions and optimizer steps of one rank's stages.

    optimizer: makes the optimizer of a stage's parameters; None accumulates gradients and steps nothing.
    replicas: by stage, the weights that other stages hold too and that the program reduces.
    ties: weights that different stages of the model share (embedding and head), summed before the step.
    """

    stages: Mapping[int, Stage]
    optimizer: OptimizerFactory | None = None
    replicas: Mapping[int, Sharing] = field(default_factory=dict)
    ties: Sequence[Sharing] = ()

    def __post_init__(self) -> None:
        self._running: dict[int, _Sum] = {}  # by the identity of their sharing
        self.optimizers = self._optimizers()
        self.steps = 0  # optimizer steps that each stage has made

    def _optimizers(self) -> dict[int, torch.optim.Optimizer]:
        """One a stage; a parameter of several stages of this rank belongs to the first of them."""
        taken: set[int] = set()
        made: dict[int, torch.optim.Optimizer] = {}
        for number, stage in self.stages.items():
            own = [weight for weight in stage.parameters() if id(weight) not in taken]
            taken |= set(map(id, own))
            if own and self.optimizer is not None:
                made[number] = self.optimizer(own)
        return made

    def reduce(self, stage: int) -> None:
        """Begin to sum a stage's gradients over its replicas, if all that this rank holds are complete."""
        sharing = self.replicas.get(stage)
        if sharing is not None and len(sharing.copies) == 1:
            self._begin(sharing)

    def step(self, stages: Sequence[int]) -> None:
        """Finish the sums, add up tied weights, step the optimizers of these stages."""
        for stage in stages:
            if stage in self.replicas:  # one that no microbatch has passed has no reduction of its own
                self._begin(self.replicas[stage])
        for running in self._running.values():
            _end(running)
        self._running.clear()
        for sharing in self.ties:
            _end(_begin(sharing))
        for stage in stages:
            self._step(stage)

    def _begin(self, sharing: Sharing) -> None:
        if id(sharing) not in self._running:
            self._running[id(sharing)] = _begin(sharing)

    def _step(self, number: int) -> None:
        stage = self.stages[number]
        if number in self.optimizers:
            self.optimizers[number].step()
            self.optimizers[number].zero_grad()
        if stage.versions is not None:
            stage.versions.stepped()
        stage.step += 1


def _begin(sharing: Sharing) -> _Sum:
    """Sum this rank's copies and start the sum over ranks."""
    running = _Sum(sharing, {})
    for dtype, places in _by_type(sharing).items():
        parts = [_sum([copy[place] for copy in sharing.copies]) for place in places]
        here = torch.tensor([float(part is not None) for part in parts], dtype=dtype)
        first = sharing.copies[0]
        filled = [
            torch.zeros_like(first[place]).flatten() if part is None else part.flatten()
            for place, part in zip(places, parts, strict=True)
        ]
        flat = torch.cat([*filled, here.to(filled[0].device)])
        running.flat[dtype] = flat
        if sharing.group is not None:
            running.works.append(dist.all_reduce(flat, group=sharing.group, async_op=True))
    return running


def _end(running: _Sum) -> None:
    """Wait for a sum and put it in every copy; a weight that nobody has a gradient for keeps None."""
    for work in running.works:
        work.wait()
    first = running.sharing.copies[0]
    for dtype, places in _by_type(running.sharing).items():
        flat = running.flat[dtype]
        parts = torch.split(flat, [*(first[place].numel() for place in places), len(places)])
        for place, total, there in zip(places, parts[:-1], parts[-1].tolist(), strict=True):
            if there:
                for copy in running.sharing.copies:
                    copy[place].grad = total.view_as(copy[place]).clone()


def _by_type(sharing: Sharing) -> dict[torch.dtype, list[int]]:
    """Places of the trained parameters, by type."""
    found: dict[torch.dtype, list[int]] = {}
    for place, weight in enumerate(sharing.copies[0]):
        if weight.requires_grad:
            found.setdefault(weight.dtype, []).append(place)
    return found


def _sum(copies: Sequence[nn.Parameter]) -> Tensor | None:
    gradients = [weight.grad for weight in dict.fromkeys(copies) if weight.grad is not None]
    if not gradients:
        return None
    total = gradients[0]
    for gradient in gradients[1:]:
        total = total + gradient
    return total
