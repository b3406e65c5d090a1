"""Any chain of layers cut into stages, by the rules that split decoders: even, given, or balanced by profile."""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from pipesim.backends.trees import Tree, flatten, unflatten
from pipesim.costs.layouts.split import balanced, even
from pipesim.errors import PipesimError

Rule = str | Sequence[int]  # even, balanced, or the number of layers of each stage


@dataclass(eq=False)
class CannotCut(PipesimError):
    """A model that does not come apart as asked."""

    problem: str
    works: str

    def __str__(self) -> str:
        return f"{self.problem}; {self.works}"


class Chain(nn.Module):
    """Layers one after the other; a tuple that one gives becomes the arguments of the next."""

    def __init__(self, layers: Sequence[nn.Module]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)

    def units(self) -> list[nn.Module]:
        """What is gathered and reduced together: each layer that has weights."""
        return [layer for layer in self.layers if any(True for _ in layer.parameters())]

    def forward(self, *x: Any) -> Any:
        for layer in self.layers:
            found = layer(*x)
            x = found if isinstance(found, tuple) else (found,)
        return x if len(x) > 1 else x[0]


def layers_of(model: nn.Module | Sequence[nn.Module], sample: Tree = None) -> list[nn.Module]:
    """The layers of a list, an `nn.Sequential`, or a module with one list of layers: what stands before the list
    in the module comes first, what stands after it last.

    sample: an input; if given, such a module is held to the chain of its layers. Raises CannotCut.
    """
    if not isinstance(model, nn.Module):
        return list(model)
    if isinstance(model, nn.Sequential):
        return list(model)
    lists = [child for child in model.children() if isinstance(child, nn.ModuleList | nn.ModuleDict | nn.Sequential)]
    if len(lists) != 1:
        raise CannotCut(
            f"{type(model).__name__} has {len(lists)} lists of layers",
            "give a module with one, an nn.Sequential, or a list of layers",
        )
    layers: list[nn.Module] = []
    for child in model.children():
        listed = list(child.values()) if isinstance(child, nn.ModuleDict) else child
        layers += listed if child is lists[0] else [child]  # type: ignore[arg-type]
    if sample is not None:
        _require_same(model, layers, sample)
    return layers


def _require_same(model: nn.Module, layers: Sequence[nn.Module], sample: Tree) -> None:
    given = sample if isinstance(sample, tuple) else (sample,)
    with torch.no_grad():
        whole, parts = flatten(model(*given))[0], flatten(Chain(layers)(*given))[0]
    same = len(whole) == len(parts) and all(
        one.shape == other.shape and torch.allclose(one, other, rtol=1e-4, atol=1e-6)
        for one, other in zip(whole, parts, strict=True)
    )
    if not same:
        raise CannotCut(
            f"the forward of {type(model).__name__} is not the chain of its layers",
            "give a list of modules that are called one after the other",
        )


def cut_layers(
    model: nn.Module | Sequence[nn.Module], stages: int, rule: Rule = "even", *, sample: Tree = None
) -> list[Chain]:
    """The stages. balanced: by the time each layer takes on `sample`. Raises CannotCut, BadLayout."""
    layers = layers_of(model, sample)
    counts = _counts(layers, stages, rule, sample)
    ends = [0, *itertools.accumulate(counts)]
    return [Chain(layers[begin:end]) for begin, end in itertools.pairwise(ends)]


def _counts(layers: Sequence[nn.Module], stages: int, rule: Rule, sample: Tree) -> Sequence[int]:
    if rule == "balanced":
        if sample is None:
            raise CannotCut("balanced stages without a sample", "give sample=, an input to time the layers on")
        return balanced(time_layers(layers, sample), stages)
    if rule == "even":
        if len(layers) < stages:
            raise CannotCut(f"{len(layers)} layers cannot fill {stages} stages", f"at most {len(layers)} stages work")
        return even(len(layers), stages)
    if isinstance(rule, str):
        raise CannotCut(f"no rule {rule!r}", "there are even and balanced, and numbers of layers such as (3, 5)")
    if len(rule) != stages or sum(rule) != len(layers) or min(rule) < 0:
        raise CannotCut(
            f"layers per stage {list(rule)} for {stages} stages of {len(layers)} layers",
            f"give {stages} numbers that add up to {len(layers)}",
        )
    return rule


def time_layers(layers: Sequence[nn.Module], sample: Tree, *, repeats: int = 5) -> tuple[float, ...]:
    """Seconds of forward and backward of each layer: the quickest of some runs."""
    best = [float("inf")] * len(layers)
    for _ in range(repeats):
        x: Tree = sample if isinstance(sample, tuple) else (sample,)
        for place, layer in enumerate(layers):
            tensors, holes = flatten(x)
            leaves = [tensor.detach().requires_grad_(tensor.is_floating_point()) for tensor in tensors]
            began = time.perf_counter()
            found = layer(*unflatten(holes, leaves))
            _differentiate(flatten(found)[0])
            best[place] = min(best[place], time.perf_counter() - began)
            x = found if isinstance(found, tuple) else (found,)
    for layer in layers:
        layer.zero_grad()
    return tuple(best)


def _differentiate(outputs: Sequence[Tensor]) -> None:
    wanted = [output for output in outputs if output.requires_grad]
    if wanted:
        torch.autograd.backward(wanted, [torch.ones_like(output) for output in wanted])
        _wait(wanted[0].device)


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
