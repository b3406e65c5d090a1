"""Rotary position embeddings (Su et al. 2104.09864), with the stretching of Llama 3.1 and the linear one."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from pipesim.backends.model.config import Rope


def frequencies(rope: Rope, head_dim: int, device: torch.device) -> Tensor:
    """Radians a position, shape (head_dim / 2,), in float32 as other implementations have them."""
    exponents = torch.arange(0, head_dim, 2, dtype=torch.int64, device=device).float() / head_dim
    plain = 1.0 / (rope.theta**exponents)
    if rope.kind == "linear":
        return plain / rope.factor
    if rope.kind == "llama3":
        return _llama3(plain, rope)
    return plain


def _llama3(plain: Tensor, rope: Rope) -> Tensor:
    """Long waves are stretched by `factor`, short ones kept, those between blended."""
    wave = 2 * math.pi / plain
    longest = rope.original_positions / rope.low_freq_factor
    shortest = rope.original_positions / rope.high_freq_factor
    share = (rope.original_positions / wave - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor)
    blended = (1 - share) * plain / rope.factor + share * plain
    stretched = torch.where(wave > longest, plain / rope.factor, plain)
    return torch.where((wave <= longest) & (wave >= shortest), blended, stretched)


def tables(rope: Rope, head_dim: int, positions: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Cosine and sine of shape (*positions.shape, 1, head_dim): the last but one is for heads."""
    angles = positions[..., None].float() * frequencies(rope, head_dim, positions.device)
    whole = torch.cat([angles, angles], dim=-1)[..., None, :]
    return whole.cos().to(dtype), whole.sin().to(dtype)


def rotate(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    """x: (batch, sequence, heads, head_dim); the first and second half of each head make the pairs."""
    first, second = x.chunk(2, dim=-1)
    return x * cosine + torch.cat([-second, first], dim=-1) * sine
