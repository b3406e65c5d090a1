"""The tensors that autograd saves in a forward: held where they can be let go early and weighed.

A graph keeps every saved tensor until its last node has run. A split backward needs most of them for the
input gradient only, so they pass through `SavedTensors` (public `saved_tensors_hooks`), which drops what the
input gradient has read before the weight gradient runs.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass

from torch import Tensor
from torch.autograd.graph import Node, saved_tensors_hooks

from pipesim.errors import PipesimError


@dataclass(eq=False)
class SavedTensorChanged(PipesimError):
    """Something wrote into a tensor that a backward still needs."""

    shape: tuple[int, ...]

    def __str__(self) -> str:
        return (
            f"a tensor of shape {self.shape} saved for the backward was changed in place after its use: "
            "write to a copy instead, e.g. x = x + 1 in place of x += 1"
        )


class Slot:
    """One saved tensor: whether a backward has read it, whether it stays, and the version it had."""

    __slots__ = ("keep", "read", "tensor", "version")

    def __init__(self, tensor: Tensor) -> None:
        # A tensor that carries its graph would keep that graph alive in a circle no collector sees.
        self.tensor: Tensor | None = tensor if tensor.is_leaf else tensor.detach()
        self.version = tensor._version
        self.read = False
        self.keep = False


class SavedTensors:
    """Everything one forward saved, through the hooks that are on during that forward."""

    def __init__(self) -> None:
        self._slots: list[Slot] = []

    def hooks(self) -> AbstractContextManager[None]:
        """Context in which autograd saves its tensors here."""
        return saved_tensors_hooks(self._pack, _unpack)

    def _pack(self, tensor: Tensor) -> Slot:
        slot = Slot(tensor)
        self._slots.append(slot)
        return slot

    def release_read(self) -> None:
        """Drop what was read since the forward, but for what is marked to be kept."""
        for slot in self._slots:
            if slot.read and not slot.keep:
                slot.tensor = None
        self._slots = [slot for slot in self._slots if slot.tensor is not None]

    def unread(self) -> None:
        """Forget what was read so far: the next `release_read` counts from here."""
        for slot in self._slots:
            slot.read = False

    def tensors(self) -> Iterator[Tensor]:
        """What is held now."""
        return (slot.tensor for slot in self._slots if slot.tensor is not None)


def _unpack(slot: Slot) -> Tensor:
    tensor = slot.tensor
    assert tensor is not None, "a saved tensor was released before its last use"
    if tensor._version != slot.version:
        raise SavedTensorChanged(tuple(tensor.shape))
    slot.read = True
    return tensor


def saved_by(node: Node) -> list[object]:
    """What a node of the graph saved: tensors, or what saved-tensor hooks made of them (`Slot` for ours).

    Through the attributes `_raw_saved_*`, described in torch's notes on autograd mechanics.
    """
    kind = node.name()
    names = _saved_names.get(kind)
    if names is None:
        names = tuple(name for name in dir(node) if name.startswith("_raw_saved_"))
        _saved_names[kind] = names
    return [getattr(node, name).data for name in names]


_saved_names: dict[str, tuple[str, ...]] = {}  # kinds of nodes have the same attributes for good
