"""A job's tensors under names that no layout changes: weights as in the model's checkpoints, optimizer states."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from pipesim.backends.checkpoint.description import Description, dtype_name
from pipesim.errors import PipesimError

_WEIGHT, _OPTIMIZER, _BUFFER = "weight/", "optimizer/", "buffer/"


@dataclass(eq=False)
class OtherModel(PipesimError):
    """A checkpoint that does not fit the model."""

    name: str
    problem: str

    def __str__(self) -> str:
        return f"the checkpoint is of another model: {self.name} {self.problem}; give the model it was written with"


@dataclass(frozen=True)
class Held:
    """What this rank holds: modules and optimizers by stage of the schedule, of `length` stages of the model."""

    modules: Mapping[int, nn.Module]
    optimizers: Mapping[int, torch.optim.Optimizer]
    length: int

    def weights(self) -> dict[str, list[tuple[int, nn.Parameter]]]:
        """Places (stage and parameter) of every weight by name; more than one for twins and tied weights."""
        found: dict[str, list[tuple[int, nn.Parameter]]] = {}
        for stage, module in self.modules.items():
            for name, weight in _named(module, stage % self.length):
                found.setdefault(name, []).append((stage, weight))
        return found

    def states(self, stage: int, weight: nn.Parameter) -> dict[str, Any] | None:
        """The optimizer's state of a weight, to read or fill; None where nothing steps it."""
        optimizer = self.optimizers.get(stage)
        if optimizer is None or not any(one is weight for group in optimizer.param_groups for one in group["params"]):
            return None
        state: dict[str, Any] = optimizer.state[weight]
        return state


def _named(module: nn.Module, stage: int) -> Iterator[tuple[str, nn.Parameter]]:
    """By their names in the model's checkpoints where the module knows them, else by the stage's number."""
    names = getattr(module, "weights", None)
    if callable(names):
        yield from names().items()
    else:
        for name, weight in module.named_parameters():
            yield f"stage {stage}.{name}", weight


def tensors_of(held: Held) -> dict[str, Tensor]:
    """Everything to save."""
    found: dict[str, Tensor] = {}
    for name, places in held.weights().items():
        stage, weight = places[0]
        found[_WEIGHT + name] = weight.data
        for key, value in (held.states(stage, weight) or {}).items():
            if isinstance(value, Tensor):
                found[f"{_OPTIMIZER}{name}/{key}"] = value
    for stage, module in held.modules.items():
        for name, value in _buffers(module):
            found.setdefault(f"{_BUFFER}stage {stage % held.length}.{name}", value)
    return found


def make_room(held: Held, description: Description) -> dict[str, Tensor]:
    """Tensors of this rank to load into, by name; fresh optimizer states as the checkpoint has them.

    Raises OtherModel.
    """
    kinds: dict[str, list[str]] = {}
    for full in description.tensors:
        if full.startswith(_OPTIMIZER):
            name, _, key = full.removeprefix(_OPTIMIZER).rpartition("/")
            kinds.setdefault(name, []).append(key)
    room: dict[str, Tensor] = {}
    for name, places in held.weights().items():
        stage, weight = places[0]
        room[_WEIGHT + name] = weight.data
        states = held.states(stage, weight)
        for key in kinds.get(name, ()) if states is not None else ():
            full = f"{_OPTIMIZER}{name}/{key}"
            value = _fresh(weight, description.tensors[full].shape, description.tensors[full].torch_dtype)
            states[key] = room[full] = value  # type: ignore[index]
    for stage, module in held.modules.items():
        for name, value in _buffers(module):
            full = f"{_BUFFER}stage {stage % held.length}.{name}"
            if full in description.tensors:
                room.setdefault(full, value)
    _require(room, description)
    return room


def copy_to_twins(held: Held) -> None:
    """Give second places of a weight on this rank what the first has been given."""
    for places in held.weights().values():
        first = places[0][1]
        states = held.states(*places[0]) or {}
        for stage, weight in places[1:]:
            if weight is first:
                continue
            weight.data.copy_(first.data)
            own = held.states(stage, weight)
            if own is not None:
                own.update({key: value.clone() for key, value in states.items() if isinstance(value, Tensor)})


def _fresh(weight: nn.Parameter, shape: list[int], dtype: torch.dtype) -> Tensor:
    """Room for a state: like the weight, split as it is, or a number such as Adam's count of steps."""
    if shape == list(weight.shape):
        return torch.zeros_like(weight.data, dtype=dtype)
    return torch.zeros(shape, dtype=dtype)


def _buffers(module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Buffers that belong to a module's state."""
    weights = dict(module.named_parameters(remove_duplicate=False))
    for name, value in module.state_dict(keep_vars=True).items():
        if name not in weights and isinstance(value, Tensor):
            yield name, value


def _require(room: Mapping[str, Tensor], description: Description) -> None:
    for name, value in room.items():
        entry = description.tensors.get(name)
        shown = name.partition("/")[2]
        if entry is None:
            raise OtherModel(shown, "is not in it")
        if entry.shape != list(value.shape):
            raise OtherModel(shown, f"is {entry.shape} there and {list(value.shape)} here")
        if entry.torch_dtype != value.dtype:
            raise OtherModel(shown, f"is {entry.dtype} there and {dtype_name(value.dtype)} here")
