"""The form of a message: types and shapes of its tensors and the tree they sit in; agreed in the first step."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from pipesim.backends.trees import Tree, flatten, unflatten
from pipesim.errors import PipesimError

MOST_TENSORS = 500


@dataclass(eq=False)
class MessageChanged(PipesimError):
    """A message that is not of the form that it had in the first step."""

    message: str
    number: int
    was: str
    now: str

    def __str__(self) -> str:
        return (
            f"{self.message}: tensor {self.number} is {self.now}, but it was {self.was} in the first step; "
            "shapes that change need --dynamic-shapes, types must stay"
        )


@dataclass(frozen=True)
class TensorForm:
    """Type and shape of one tensor, and whether a gradient comes back for it."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    requires_grad: bool

    def __str__(self) -> str:
        return f"{str(self.dtype).removeprefix('torch.')}{list(self.shape)}"


@dataclass(frozen=True)
class MessageForm:
    """Forms of the tensors (None for a gradient that is not there) and their tree."""

    tensors: tuple[TensorForm | None, ...]
    holes: Tree

    @property
    def size_bytes(self) -> int:
        """Bytes of one message of this form."""
        sizes = [torch.Size(form.shape).numel() * form.dtype.itemsize for form in self.tensors if form]
        return sum(sizes)

    def encode(self) -> bytes:
        return pickle.dumps(self)

    def empty(self, device: torch.device) -> list[Tensor | None]:
        """Buffers to receive into."""
        return [
            None if form is None else torch.empty(form.shape, dtype=form.dtype, device=device) for form in self.tensors
        ]

    def tree(self, tensors: Sequence[Tensor | None]) -> Tree:
        """The message as its producer gave it, ready to be differentiated."""
        for form, tensor in zip(self.tensors, tensors, strict=True):
            if form is not None and form.requires_grad and tensor is not None:
                tensor.requires_grad_()
        return unflatten(self.holes, tensors)

    def fit(
        self, tensors: Sequence[Tensor | None], text: str, *, device: torch.device, any_shape: bool
    ) -> list[Tensor | None]:
        """The tensors as this form has them: a missing gradient as zeros. Raises MessageChanged."""
        fitted: list[Tensor | None] = []
        for number, (form, given) in enumerate(zip(self.tensors, tensors, strict=True)):
            missing = form is not None and given is None
            tensor = torch.zeros(form.shape, dtype=form.dtype, device=device) if missing and form else given
            if not _fits(form, tensor, any_shape):
                raise MessageChanged(text, number, str(form), str(None if tensor is None else form_of(tensor)))
            fitted.append(tensor)
        return fitted


def _fits(form: TensorForm | None, tensor: Tensor | None, any_shape: bool) -> bool:
    if form is None or tensor is None:
        return form is None and tensor is None
    return form.dtype == tensor.dtype and (any_shape or form.shape == tuple(tensor.shape))


def form_of(tensor: Tensor) -> TensorForm:
    return TensorForm(tensor.dtype, tuple(tensor.shape), tensor.requires_grad)


def form_of_tree(tree: Tree) -> MessageForm:
    """Form of a stage's outputs."""
    tensors, holes = flatten(tree)
    return MessageForm(tuple(map(form_of, tensors)), holes)


def form_of_gradients(gradients: Sequence[Tensor | None]) -> MessageForm:
    """Form of the gradients of a stage's inputs."""
    forms = tuple(None if gradient is None else form_of(gradient) for gradient in gradients)
    return MessageForm(forms, None)


def decode(data: bytes) -> MessageForm:
    """Read what a peer of the same job encoded."""
    form = pickle.loads(data)
    assert isinstance(form, MessageForm)
    return form
