"""Knows the last backward of a stage in a step, in which finished gradients may be reduced at once."""

from __future__ import annotations

from collections import Counter
from typing import Any, Protocol

from pipesim.backends.execute.runner import Gradients
from pipesim.backends.memory import HeldBytes
from pipesim.backends.parallel.reduce import Replicated
from pipesim.backends.parallel.sharded import Sharded
from pipesim.backends.stage import Stage
from pipesim.backends.trees import Tree
from pipesim.ir.action import Kind
from pipesim.ir.program import Program


class Holding(Protocol):
    """Says whether gradients are only accumulated."""

    hold: bool


def count_backwards(program: Program) -> Counter[int]:
    """Whole backwards of each stage in one run of the program."""
    ops = program.ops
    return Counter(ops.stage[ops.kind == Kind.B].tolist())


class Last:
    """A stage whose reduction is told before its last backward."""

    def __init__(self, stage: Stage, reduction: Replicated | Sharded | None, backwards: int, updates: Holding) -> None:
        self.stage, self._reduction, self._backwards, self._updates = stage, reduction, backwards, updates
        self._left = 0

    def begin(self) -> None:
        """A run of the program begins."""
        self._left = self._backwards

    def forward(self, key: tuple[int, int], inputs: Tree, **options: Any) -> Tree:
        return self.stage.forward(key, inputs, **options)

    def backward(self, key: tuple[int, int], gradients: Gradients) -> Gradients:
        self._left -= 1
        if self._left == 0 and self._reduction is not None and not self._updates.hold:
            self._reduction.before_last_backward()
        return self.stage.backward(key, gradients)

    def input_gradient(self, key: tuple[int, int], gradients: Gradients) -> Gradients:
        return self.stage.input_gradient(key, gradients)

    def weight_gradient(self, key: tuple[int, int]) -> None:
        self.stage.weight_gradient(key)

    def held_bytes(self) -> HeldBytes:
        return self.stage.held_bytes()
