"""Fill a stage's weights from a checkpoint, reading of each tensor only what this rank holds."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, Shard

from pipesim.backends.huggingface.folder import BadCheckpoint, Folder, open_folder
from pipesim.backends.memory import local

_LAYER = re.compile(r"model\.layers\.(\d+)\.")
_COMPUTED = ("rotary_emb.inv_freq",)  # old checkpoints hold what follows from the configuration
_MOST_NAMES = 5


def stored_weights(path: str | Path) -> Callable[[Mapping[str, nn.Parameter]], None]:
    """What fills weights, by their names, from a checkpoint. Raises CannotRead, BadCheckpoint."""
    folder = open_folder(path)
    return lambda weights: fill(folder, weights)


def fill(folder: Folder, weights: Mapping[str, nn.Parameter]) -> None:
    """Read every weight. Raises BadCheckpoint for missing, unknown and mismatched tensors, by name."""
    missing = [name for name in weights if name not in folder.file_of]
    if missing:
        raise BadCheckpoint(str(folder.path), f"it lacks {_some(missing)}")
    unknown = [name for name in folder.file_of if _unused(name, weights)]
    if unknown:
        raise BadCheckpoint(str(folder.path), f"the model has no {_some(unknown)}; its config.json is another model's")
    for file in sorted({folder.file_of[name] for name in weights}):
        with folder.opened(file) as opened:
            for name, weight in weights.items():
                if folder.file_of[name] == file:
                    _read(folder, opened, name, weight)


def _unused(name: str, weights: Mapping[str, nn.Parameter]) -> bool:
    """Whether a tensor belongs to a layer of this stage, which does not know it."""
    found = _LAYER.match(name)
    if found is None or name in weights or name.endswith(_COMPUTED):
        return False
    return any(other.startswith(found[0]) for other in weights)


def _read(folder: Folder, opened: Any, name: str, weight: nn.Parameter) -> None:
    stored = opened.get_slice(name)
    shape = tuple(stored.get_shape())
    if shape != tuple(weight.shape):
        raise BadCheckpoint(str(folder.path), f"{name} is {list(shape)}, the model's is {list(weight.shape)}")
    with torch.no_grad():
        local(weight.data).copy_(_part(stored, weight))


def _part(stored: Any, weight: nn.Parameter) -> Tensor:
    """What this rank holds of a tensor that is split over tp alone."""
    if not isinstance(weight, DTensor):
        return whole(stored)
    (placement,) = weight.placements
    if not isinstance(placement, Shard):
        return whole(stored)
    size = weight.shape[placement.dim] // weight.device_mesh.size()
    first = weight.device_mesh.get_local_rank() * size
    found: Tensor = stored[first : first + size] if placement.dim == 0 else stored[:, first : first + size]
    return found


def whole(stored: Any) -> Tensor:
    """All of a stored tensor."""
    found: Tensor = stored[:]
    return found


def _some(names: list[str]) -> str:
    rest = len(names) - _MOST_NAMES
    return ", ".join(names[:_MOST_NAMES]) + (f" and {rest} more" if rest > 0 else "")
