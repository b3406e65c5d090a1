"""State that passes from one sequence slice to the next, and its gradients, which pass back."""

from typing import Any, Protocol

from torch import Tensor

from pipesim.backends.trees import Tree, flatten, unflatten


class SlicedModule(Protocol):
    """A stage whose sequence comes in slices.

    Attention keeps the keys and values of earlier slices: they go on as `carry` in the forward, and their
    gradients come back in the backward, which runs from the last slice to the first. The carry is any tree
    of tensors; the first slice gets None. What the last slice gives is dropped.
    """

    def forward_slice(self, *inputs: Any, carry: Tree, slice: int) -> tuple[Tree, Tree]:
        """Outputs of one slice, and the carry for the next."""
        ...


class Carries:
    """What one stage carries, per microbatch."""

    def __init__(self) -> None:
        self._forward: dict[int, tuple[list[Tensor], Tree]] = {}
        self._backward: dict[int, list[Tensor | None]] = {}

    def enter(self, microbatch: int, slice_: int, *, train: bool) -> tuple[list[Tensor], Tree]:
        """The carry of the slice before, as leaves of this one's graph."""
        if slice_ == 0:
            return [], None
        tensors, holes = self._forward[microbatch]
        if train:
            tensors = [tensor.detach().requires_grad_(tensor.requires_grad) for tensor in tensors]
        return tensors, holes

    def leave(self, microbatch: int, slice_: int, carry: Tree, *, slices: int) -> list[Tensor]:
        """Keep the carry for the next slice; the tensors whose gradients will come back."""
        if slice_ == slices - 1:
            self._forward.pop(microbatch, None)
            return []
        self._forward[microbatch] = flatten(carry)
        return self._forward[microbatch][0]

    def give_gradients(self, microbatch: int, gradients: list[Tensor | None]) -> None:
        """From the backward of a slice, for the slice before."""
        self._backward[microbatch] = gradients

    def take_gradients(self, microbatch: int) -> list[Tensor | None]:
        """What the backward of the slice after has given."""
        return self._backward.pop(microbatch)

    def clear(self) -> None:
        """Drop everything."""
        self._forward.clear()
        self._backward.clear()


def call_slice(
    module: Any, args: tuple[Tree, ...], named: dict[str, Tree], carry: Tree, slice_: int
) -> tuple[Tree, Tree]:
    """Outputs and carry of one slice of a `SlicedModule`."""
    found: tuple[Tree, Tree] = module.forward_slice(*args, **named, carry=carry, slice=slice_)
    return found


def carry_tree(holes: Tree, tensors: list[Tensor]) -> Tree:
    """The carry as the module gave it."""
    return None if holes is None else unflatten(holes, tensors)
