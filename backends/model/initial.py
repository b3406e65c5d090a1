"""First weights that follow from a seed and each weight's name, whatever the layout."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn

from pipesim.backends.memory import local
from pipesim.backends.randomness import mix

Part = Callable[[nn.Parameter, Tensor], Tensor]  # of a whole value, what this rank holds of that weight


def initialize(weights: Mapping[str, nn.Parameter], *, seed: int, std: float, part: Part) -> None:
    """Norms 1, biases 0, all else normal. One whole weight at a time is in memory."""
    for name, weight in weights.items():
        if name.endswith("norm.weight"):
            whole = torch.ones(weight.shape)
        elif name.endswith(".bias"):
            whole = torch.zeros(weight.shape)
        else:
            generator = torch.Generator().manual_seed(mix(seed, zlib.crc32(name.encode())))
            whole = torch.empty(weight.shape).normal_(0.0, std, generator=generator)
        with torch.no_grad():
            local(weight.data).copy_(part(weight, whole))
