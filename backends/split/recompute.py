"""Activation checkpointing whose weight gradients can wait.

torch's own checkpoint computes a block's forward again for every backward that enters it, so a weight
gradient on its own would compute it once more; `Recompute` computes it once, at the input gradient, and keeps
what the weights need until theirs.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.utils.checkpoint import get_device_states, set_device_states

from pipesim.backends.split.later import Later, defer, deferring
from pipesim.backends.split.saved import SavedTensors
from pipesim.backends.split.strategies import by_graph, graph_of, whole
from pipesim.backends.trees import Tree, flatten, unflatten

Numerics = Callable[[], AbstractContextManager[object]]


class Recompute(nn.Module):
    """A module that keeps its inputs only, and runs again when its gradient is asked for."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The module's own forward."""
        return recompute(self.module, *args, **kwargs)


def recompute(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """`function(*args, **kwargs)`, a module or a part of one, of which only the inputs are kept."""
    if not torch.is_grad_enabled():
        return function(*args, **kwargs)
    tensors, holes = flatten((args, kwargs))
    run = _Run(function, holes, _same_numerics(tensors))
    want = torch.empty(0, requires_grad=True)  # its weights need a backward even if no input does
    outputs = _Recomputed.apply(run, want, *tensors)  # type: ignore[no-untyped-call]
    return unflatten(run.output_holes, outputs)


class _Run:
    """One call of a function, to be made again under the same numerics."""

    def __init__(self, function: Callable[..., Any], holes: Tree, numerics: Numerics):
        self.function = function
        self.holes = holes
        self.numerics = numerics
        self.output_holes: Tree = None

    def __call__(self, tensors: tuple[Tensor, ...]) -> list[Tensor]:
        args, kwargs = unflatten(self.holes, tensors)
        outputs, self.output_holes = flatten(self.function(*args, **kwargs))
        return outputs


def _same_numerics(tensors: list[Tensor]) -> Numerics:
    """The random state and the autocast of now, to be entered again."""
    state = torch.get_rng_state()
    devices, states = get_device_states(*tensors)
    kinds = {"cpu", *(tensor.device.type for tensor in tensors)}
    autocasts = [
        (kind, torch.get_autocast_dtype(kind), torch.is_autocast_enabled(kind))
        for kind in kinds
        if torch.amp.is_autocast_available(kind)
    ]

    def enter() -> AbstractContextManager[object]:
        stack = ExitStack()
        stack.enter_context(torch.random.fork_rng(devices))
        torch.set_rng_state(state)
        set_device_states(devices, states)
        for kind, dtype, enabled in autocasts:
            stack.enter_context(torch.autocast(kind, dtype=dtype, enabled=enabled))
        return stack

    return enter


class _Recomputed(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, run: _Run, want: Tensor, *tensors: Tensor) -> tuple[Tensor, ...]:
        ctx.run = run
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*tensors)
        outputs = run(tensors)
        ctx.mark_non_differentiable(*(out for out in outputs if not out.is_floating_point()))
        return tuple(outputs)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        saved: tuple[Tensor, ...] = ctx.saved_tensors
        inputs = [tensor.detach().requires_grad_(tensor.requires_grad) for tensor in saved]
        split = deferring()
        memory = SavedTensors() if split else None
        with ctx.run.numerics(), torch.enable_grad(), ExitStack() as stack:
            if memory is not None:
                stack.enter_context(memory.hooks())
            outputs = ctx.run(tuple(inputs))
        later = (by_graph if split else whole)(graph_of(outputs, inputs, memory), gradients)
        if split:
            defer(later, lambda: _held(later, memory))
        return (None, None, *(tensor.grad for tensor in inputs))


def _held(later: Later, memory: SavedTensors | None) -> list[Tensor]:
    return [*later.tensors(), *(memory.tensors() if memory is not None else ())]
