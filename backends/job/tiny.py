"""A small decoder to try schedules on: attention with grouped heads and a gated MLP, in any number of stages."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from pipesim.backends.trees import Tree


@dataclass(frozen=True)
class Shape:
    """Sizes of the decoder."""

    layers: int = 8
    hidden: int = 64
    heads: int = 4
    ffn: int = 172
    vocabulary: int = 256
    positions: int = 1024


class Attention(nn.Module):
    """Causal attention, over the keys and values of earlier slices, too."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.heads = shape.heads
        self.qkv = nn.Linear(shape.hidden, 3 * shape.hidden, bias=False)
        self.out = nn.Linear(shape.hidden, shape.hidden, bias=False)

    def forward(self, x: Tensor, past: tuple[Tensor, Tensor] | None) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        batch, length, hidden = x.shape
        q, k, v = self.qkv(x).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4).unbind(0)
        if past is None:
            mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            k, v = torch.cat([past[0], k], 2), torch.cat([past[1], v], 2)
            seen = torch.ones(length, k.shape[2], dtype=torch.bool, device=x.device).tril(k.shape[2] - length)
            mixed = functional.scaled_dot_product_attention(q, k, v, attn_mask=seen)
        return self.out(mixed.transpose(1, 2).reshape(batch, length, hidden)), (k, v)


class Layer(nn.Module):
    """One transformer layer."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.RMSNorm(shape.hidden), nn.RMSNorm(shape.hidden)
        self.attention = Attention(shape)
        self.gate, self.up = (nn.Linear(shape.hidden, shape.ffn, bias=False) for _ in range(2))
        self.down = nn.Linear(shape.ffn, shape.hidden, bias=False)

    def forward(self, x: Tensor, past: tuple[Tensor, Tensor] | None) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        mixed, kept = self.attention(self.norm1(x), past)
        x = x + mixed
        normed = self.norm2(x)
        return x + self.down(functional.silu(self.gate(normed)) * self.up(normed)), kept


class TinyStage(nn.Module):
    """Some layers, after the embedding on the first stage, before the head on the last."""

    def __init__(self, shape: Shape, layers: int, *, first: bool, last: bool) -> None:
        super().__init__()
        self.tokens = nn.Embedding(shape.vocabulary, shape.hidden) if first else None
        self.positions = nn.Embedding(shape.positions, shape.hidden) if first else None
        self.layers = nn.ModuleList(Layer(shape) for _ in range(layers))
        self.norm = nn.RMSNorm(shape.hidden) if last else None
        self.head = nn.Linear(shape.hidden, shape.vocabulary, bias=False) if last else None

    def forward(self, x: Tensor) -> Tensor:
        return self.forward_slice(x, carry=None, slice=0)[0]

    def forward_slice(self, x: Tensor, *, carry: Tree, slice: int) -> tuple[Tensor, Tree]:
        """One slice; the carry has the keys and values of each layer, and how many positions went before."""
        before, past = carry if carry is not None else (0, [None] * len(self.layers))
        length = x.shape[1]
        if self.tokens is not None and self.positions is not None:
            x = self.tokens(x) + self.positions(torch.arange(before, before + length, device=x.device))
        kept = []
        for layer, layer_past in zip(self.layers, past, strict=True):
            x, found = layer(x, layer_past)
            kept.append(found)
        if self.norm is not None and self.head is not None:
            x = self.head(self.norm(x))
        return x, (before + length, kept)


def tiny_stage(
    shape: Shape, stage: int, stages: int, *, seed: int = 0, dtype: torch.dtype = torch.float32
) -> TinyStage:
    """Stage `stage` of `stages`, its weights given by the seed alone; the first stages have the odd layers."""
    layers = shape.layers // stages + (stage < shape.layers % stages)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed * 1009 + stage)
        return TinyStage(shape, layers, first=stage == 0, last=stage == stages - 1).to(dtype)


def next_token_loss(logits: Tensor, target: Tensor) -> Tensor:
    """Mean cross entropy, in no less than float32."""
    flat = logits.flatten(0, 1)
    return functional.cross_entropy(flat.to(torch.promote_types(flat.dtype, torch.float32)), target.flatten())
