"""The norm of all gradients of a job, each weight counted once, and gradients cut down to it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import DTensor

from pipesim.backends.memory import local
from pipesim.backends.parallel.places import counted_as


def share_of(weight: nn.Parameter, sizes: Mapping[str, int]) -> float:
    """What a rank's part counts, so that over the dimensions of these `sizes` every number counts once."""
    split: set[str] = set()
    if isinstance(weight, DTensor):
        names = weight.device_mesh.mesh_dim_names or ()
        split = {name for name, placement in zip(names, weight.placements, strict=True) if not placement.is_replicate()}
    share = 1.0
    for name, size in sizes.items():
        share /= 1 if name in split else size
    return share


def total_norm(weights: Iterable[tuple[nn.Parameter, float]], device: torch.device) -> float:
    """2-norm over all ranks of the job; each weight comes with what it counts. One all-reduce of one number."""
    squares = torch.zeros(1, dtype=torch.float64, device=device)
    for weight, share in weights:
        if weight.grad is not None and share:
            squares += share * local(weight.grad).double().square().sum()
    with counted_as("job"):
        dist.all_reduce(squares)
    return float(squares.sqrt())


def scale_to(weights: Iterable[nn.Parameter], norm: float, most: float) -> None:
    """Scale gradients so that their norm is at most `most`, as torch's `clip_grad_norm_` does."""
    factor = min(1.0, most / (norm + 1e-6))
    for weight in weights:
        if weight.grad is not None:
            local(weight.grad).mul_(factor)
