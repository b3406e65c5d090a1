"""Tensors in tuples, lists and dicts: flattened to a list and put back."""

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor

Tree = Any  # a Tensor, a tuple, list or dict of trees, or any other value, which counts as structure


class _Hole:
    """Where a tensor was."""

    def __repr__(self) -> str:
        return "tensor"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Hole)

    def __hash__(self) -> int:
        return hash(_Hole)


HOLE = _Hole()


def flatten(tree: Tree) -> tuple[list[Tensor], Tree]:
    """The tensors of a tree in order (dicts in their own order), and the tree with holes in their place."""
    tensors: list[Tensor] = []

    def take(tensor: Tensor) -> Tree:
        tensors.append(tensor)
        return HOLE

    return tensors, _map(tree, _is_tensor, take)


def unflatten(holes: Tree, tensors: Sequence[Tensor | None]) -> Tree:
    """The tree again, with these in the holes."""
    rest = iter(tensors)
    return _map(holes, _is_hole, lambda _: next(rest))


def _is_tensor(part: Tree) -> bool:
    return isinstance(part, Tensor)


def _is_hole(part: Tree) -> bool:
    return isinstance(part, _Hole)


def _map(part: Tree, found: Callable[[Tree], bool], change: Callable[[Tree], Tree]) -> Tree:
    """The tree with every part that is `found` changed."""
    # A function of the module, not a closure that names itself: such a circle would hold the tensors.
    if found(part):
        return change(part)
    if isinstance(part, dict):
        return {key: _map(value, found, change) for key, value in part.items()}
    if isinstance(part, tuple) and hasattr(part, "_fields"):
        return type(part)(*(_map(value, found, change) for value in part))
    if isinstance(part, tuple | list):
        return type(part)(_map(value, found, change) for value in part)
    return part
