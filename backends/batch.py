"""A batch cut into microbatches (and sequence slices), with the weight of each loss in the mean of all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from pipesim.backends.trees import Tree, flatten, unflatten
from pipesim.errors import PipesimError


@dataclass(eq=False)
class BatchTooSmall(PipesimError):
    """Fewer samples than microbatches, or fewer positions than slices."""

    what: str
    size: int
    parts: int

    def __str__(self) -> str:
        return f"{self.what} of {self.size} cannot be cut into {self.parts} parts: give at least {self.parts}"


@dataclass(eq=False)
class WrongWeights(PipesimError):
    """Weights of losses that are not one a microbatch, or do not add up to anything."""

    weights: tuple[float, ...]
    microbatches: int

    def __str__(self) -> str:
        return (
            f"{len(self.weights)} weights {self.weights} for {self.microbatches} microbatches: "
            f"give {self.microbatches} numbers, none below 0, not all 0"
        )


Weigh = Callable[[Tree], float]


@dataclass(frozen=True)
class Microbatches:
    """Inputs, targets and weights by microbatch and slice; the weights add up to 1."""

    inputs: Sequence[Sequence[Tree]]
    targets: Sequence[Sequence[Tree]]
    weights: Sequence[Sequence[float]]

    def __len__(self) -> int:
        return len(self.inputs)


def cut_batch(
    inputs: Tree,
    targets: Tree = None,
    *,
    microbatches: int,
    slices: int = 1,
    weights: Sequence[float] | Weigh | None = None,
) -> Microbatches:
    """Cut along dimension 0 into microbatches (as equal as they get) and along dimension 1 into slices.

    weights: how much the loss (a mean) of each microbatch counts: numbers, or a function of its targets such as
        the number of valid tokens; by default its number of samples (and positions), so that the sum over all is
        the mean over the batch.
    Raises BatchTooSmall, WrongWeights.
    """
    rows = _cut(inputs, microbatches, 0, "a batch")
    target_rows = _cut(targets, microbatches, 0, "a batch")
    cut_inputs = [_cut(row, slices, 1, "a sequence") for row in rows]
    cut_targets = [_cut(row, slices, 1, "a sequence") for row in target_rows]
    if callable(weights):
        raw = [[float(weights(part)) for part in row] for row in cut_targets]
    else:
        raw = [[float(_size(part, slices)) for part in row] for row in cut_inputs]
        if weights is not None:
            given = tuple(map(float, weights))
            if len(given) != microbatches:
                raise WrongWeights(given, microbatches)
            raw = [[weight * one / sum(row) for one in row] for weight, row in zip(given, raw, strict=True)]
    total = sum(map(sum, raw))
    if total <= 0 or min(map(min, raw)) < 0:
        raise WrongWeights(tuple(map(sum, raw)), microbatches)
    return Microbatches(cut_inputs, cut_targets, [[one / total for one in row] for row in raw])


def _cut(tree: Tree, parts: int, dimension: int, what: str) -> list[Tree]:
    if parts == 1:
        return [tree]
    tensors, holes = flatten(tree)
    columns = []
    for tensor in tensors:
        size = tensor.shape[dimension] if tensor.dim() > dimension else 0
        if size < parts:
            raise BatchTooSmall(what, size, parts)
        columns.append(torch.tensor_split(tensor, parts, dimension))
    return [unflatten(holes, [column[part] for column in columns]) for part in range(parts)]


def _size(part: Tree, slices: int) -> int:
    tensors: list[Tensor] = flatten(part)[0]
    if not tensors:
        return 1
    return tensors[0].shape[0] * (tensors[0].shape[1] if slices > 1 else 1)
