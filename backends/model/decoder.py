"""The layers of a decoder: RMSNorm, attention with rotary positions and grouped keys, gated MLP.

Names of parameters are those of Hugging Face checkpoints. Nothing here knows of parallelism: attention finds the
number of its heads in the width of what its projections give, which is a part of them under tensor parallelism.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from pipesim.backends.model.cache import LayerCache
from pipesim.backends.model.config import DecoderConfig
from pipesim.backends.model.rotary import rotate
from pipesim.backends.split.recompute import recompute

_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "silu": functional.silu,
    "gelu": functional.gelu,
    "gelu_pytorch_tanh": lambda x: functional.gelu(x, approximate="tanh"),
    "gelu_new": lambda x: functional.gelu(x, approximate="tanh"),
    "relu": functional.relu,
}


@dataclass(frozen=True)
class Where:
    """What attention has to know beside its input.

    cosine, sine: of the positions. mask: (…, queries, keys) True where a query may look; None: all up to itself.
    caches: by layer, keys and values of what went before, to be continued.
    """

    cosine: Tensor
    sine: Tensor
    mask: Tensor | None = None
    caches: dict[int, LayerCache] | None = None


@dataclass(frozen=True)
class Checkpointing:
    """Which parts of a layer keep their inputs only: `layer`, or of core_attention, norms, mlp_activation, mlp."""

    parts: frozenset[str] = frozenset()

    def run(self, part: str, function: Callable[..., Any], *args: Any, **named: Any) -> Any:
        """The function's result, computed again in the backward if this part is."""
        return recompute(function, *args, **named) if part in self.parts else function(*args, **named)


class RmsNorm(nn.Module):
    """Root-mean-square norm (Zhang and Sennrich 1910.07467), computed in no less than float32."""

    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        if x.dtype == self.weight.dtype and x.dtype.itemsize >= 4:
            return functional.rms_norm(x, self.weight.shape, self.weight, self.eps)
        return functional.rms_norm(x.float(), self.weight.shape, self.weight.float(), self.eps).to(x.dtype)


class Attention(nn.Module):
    """Grouped-query attention (Ainslie et al. 2305.13245)."""

    kv_heads_used: slice | None = None
    """Of the key/value heads that this rank computes those that its queries need, if not all."""

    def __init__(self, config: DecoderConfig, number: int, checkpointing: Checkpointing) -> None:
        super().__init__()
        model = config.model
        self.number, self.head_dim, self.checkpointing = number, model.head_dim, checkpointing
        self.window = model.kind(number).window
        self.q_proj = nn.Linear(model.hidden, model.query_width, bias=model.qkv_bias)
        self.k_proj = nn.Linear(model.hidden, model.key_value_width, bias=model.qkv_bias)
        self.v_proj = nn.Linear(model.hidden, model.key_value_width, bias=model.qkv_bias)
        self.o_proj = nn.Linear(model.value_width, model.hidden, bias=model.output_bias)
        if model.qk_norm == "head":
            self.q_norm = RmsNorm(model.head_dim, config.norm_eps)
            self.k_norm = RmsNorm(model.head_dim, config.norm_eps)
        self.norms_heads = model.qk_norm == "head"

    def forward(self, x: Tensor, *, where: Where) -> Tensor:
        q, k, v = (self._heads(project(x)) for project in (self.q_proj, self.k_proj, self.v_proj))
        if self.kv_heads_used is not None:
            k, v = k[:, :, self.kv_heads_used], v[:, :, self.kv_heads_used]
        if self.norms_heads:
            q, k = self.q_norm(q), self.k_norm(k)
        q, k = rotate(q, where.cosine, where.sine), rotate(k, where.cosine, where.sine)
        mask = where.mask
        if where.caches is not None:
            k, v = where.caches[self.number].extend(k, v)
        if self.window is not None and k.shape[1] > self.window:
            mask = _windowed(mask, q.shape[1], k.shape[1], self.window, q.device)
        mixed = self.checkpointing.run("core_attention", _attend, q, k, v, mask)
        found: Tensor = self.o_proj(mixed)
        return found

    def _heads(self, x: Tensor) -> Tensor:
        return x.view(*x.shape[:-1], -1, self.head_dim)


def _attend(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
    """(batch, sequence, heads, head_dim) each; the result with heads side by side."""
    q, k, v = (part.transpose(1, 2) for part in (q, k, v))
    alone = mask is None and q.shape[2] == 1
    mixed = functional.scaled_dot_product_attention(
        q, k, v, attn_mask=mask, is_causal=mask is None and not alone, enable_gqa=q.shape[1] != k.shape[1]
    )
    return mixed.transpose(1, 2).flatten(2)


def _windowed(mask: Tensor | None, queries: int, keys: int, window: int, device: torch.device) -> Tensor:
    """A mask in which each query also looks back less than `window` positions."""
    at = torch.arange(keys - queries, keys, device=device)[:, None]
    key = torch.arange(keys, device=device)[None, :]
    near = (key <= at) & (key > at - window)
    return near if mask is None else mask & near


class Mlp(nn.Module):
    """Gated: down(activation(gate) · up)."""

    def __init__(self, config: DecoderConfig, checkpointing: Checkpointing) -> None:
        super().__init__()
        model = config.model
        self.gate_proj = nn.Linear(model.hidden, model.ffn, bias=model.mlp_bias)
        self.up_proj = nn.Linear(model.hidden, model.ffn, bias=model.mlp_bias)
        self.down_proj = nn.Linear(model.ffn, model.hidden, bias=model.mlp_bias)
        self.activation, self.checkpointing = _ACTIVATIONS[model.activation], checkpointing

    def forward(self, x: Tensor) -> Tensor:
        inner = self.checkpointing.run("mlp_activation", self._gated, self.gate_proj(x), self.up_proj(x))
        found: Tensor = self.down_proj(inner)
        return found

    def _gated(self, gate: Tensor, up: Tensor) -> Tensor:
        return self.activation(gate) * up


class Layer(nn.Module):
    """One layer; `number` in the whole model."""

    def __init__(self, config: DecoderConfig, number: int, checkpointing: Checkpointing) -> None:
        super().__init__()
        self.checkpointing = checkpointing
        self.input_layernorm = RmsNorm(config.model.hidden, config.norm_eps)
        self.self_attn = Attention(config, number, checkpointing)
        self.post_attention_layernorm = RmsNorm(config.model.hidden, config.norm_eps)
        self.mlp = Mlp(config, checkpointing)

    def forward(self, x: Tensor, where: Where) -> Tensor:
        found: Tensor = self.checkpointing.run("layer", self._whole, x, where)
        return found

    def _whole(self, x: Tensor, where: Where) -> Tensor:
        run = self.checkpointing.run
        x = x + self.self_attn(run("norms", self.input_layernorm, x), where=where)
        widened: Tensor = run("mlp", self.mlp, run("norms", self.post_attention_layernorm, x))
        return x + widened
