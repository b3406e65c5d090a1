"""Stages that only wait as long as given and pass real tensors: schedules of many ranks on few cores."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from pipesim.backends.memory import HeldBytes, bytes_of
from pipesim.backends.trees import Tree, flatten
from pipesim.costs.costs import Costs, at
from pipesim.errors import PipesimError
from pipesim.ir.action import Kind

Gradients = list[Tensor | None]


@dataclass(eq=False)
class CannotEmulate(PipesimError):
    """Times that an emulated stage cannot keep."""

    what: str

    def __str__(self) -> str:
        return f"{self.what} cannot be emulated; give F and B, or F, I and W, e.g. F=20ms,I=20ms,W=10ms"


class EmulatedStage:
    """One stage that sleeps; its output is as large as its input."""

    def __init__(self, stage: int, costs: Costs, *, last: bool) -> None:
        if costs.pair_s is not None or costs.overlap:
            raise CannotEmulate("a fused pair's own time")
        self._seconds = {kind: costs.of_kind(kind) for kind in (Kind.F, Kind.B, Kind.I, Kind.W) if _given(costs, kind)}
        self._stage, self._last = np.array([stage]), last
        self._in_flight: dict[tuple[int, int], list[Tensor]] = {}

    def forward(
        self,
        key: tuple[int, int],
        inputs: Tree,
        *,
        target: Tree = None,
        weight: float = 1.0,
        slices: int = 1,
        split: bool = False,
        train: bool = True,
        version: int | None = None,
    ) -> Tree:
        begun = time.perf_counter()
        tensors = flatten(inputs)[0]
        if train:
            self._in_flight[key] = tensors
        outputs = torch.zeros(()) if self._last and train else tensors[0].detach().clone()
        self._sleep(Kind.F, key, begun)
        return outputs

    def backward(self, key: tuple[int, int], gradients: Gradients) -> Gradients:
        return self._gradients(Kind.B, key, self._in_flight.pop(key))

    def input_gradient(self, key: tuple[int, int], gradients: Gradients) -> Gradients:
        return self._gradients(Kind.I, key, self._in_flight[key])

    def weight_gradient(self, key: tuple[int, int]) -> None:
        begun = time.perf_counter()
        del self._in_flight[key]
        self._sleep(Kind.W, key, begun)

    def held_bytes(self) -> HeldBytes:
        return HeldBytes(sum(bytes_of(tensors) for tensors in self._in_flight.values()))

    def _gradients(self, kind: Kind, key: tuple[int, int], inputs: list[Tensor]) -> Gradients:
        begun = time.perf_counter()
        made: Gradients = [tensor.detach().clone() for tensor in inputs]
        self._sleep(kind, key, begun)
        return made

    def _sleep(self, kind: Kind, key: tuple[int, int], begun: float) -> None:
        seconds = float(at(self._seconds[kind], self._stage, np.array([key[0]]), np.array([key[1]]))[0])
        left = begun + seconds - time.perf_counter()
        if left > 0:
            time.sleep(left)


class EmulatedUpdates:
    """Reductions and steps that only wait."""

    steps = 0

    def __init__(self, costs: Costs) -> None:
        self._costs = costs

    def reduce(self, stage: int) -> None:
        if self._costs.reduce_s is not None:
            time.sleep(float(self._costs.reduce_s[stage]))

    def step(self, stages: Sequence[int]) -> None:
        if self._costs.optimizer_s is not None:
            time.sleep(float(self._costs.optimizer_s[list(stages)].sum()))


def _given(costs: Costs, kind: Kind) -> bool:
    return kind in costs.seconds or (kind == Kind.B and Kind.I in costs.seconds and Kind.W in costs.seconds)
