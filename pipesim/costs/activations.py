"""Bytes that one layer stores between its forward and its backward, tensor by tensor.

With LayerNorm, GELU, dropout and one head per key this adds up to the formulas of Korthikanti et al.
(2205.05198): s·b·h·(34 + 5·a·s/h) without parallelism (eq. 1), s·b·h·(10 + 24/t + 5·a·s/(h·t)) with tensor
parallelism (eq. 2), s·b·h/t·(34 + 5·a·s/h) with sequence parallelism (eq. 4), 34·s·b·h/t with selective
recomputation (eq. 6) and 2·s·b·h with full. Grouped-query attention, gated MLPs, flash attention, latent
attention and experts follow by the same rule: what a backward reads is stored once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from pipesim.costs.layouts.flops import attention, expert_tokens, gemms
from pipesim.costs.layouts.frameworks import closest_framework
from pipesim.costs.layouts.layout import Layout
from pipesim.costs.models.model import LayerKind, Model


@dataclass(frozen=True)
class Stored:
    """One stored tensor of a layer."""

    name: str
    part: str
    """What recomputing drops it: "core_attention", "norms", "mlp_activation", "mlp" or "layer"."""
    bytes: float
    for_weights: bool = False
    """An input of a matrix product: needed until the weight gradient, the others until the input gradient."""


@dataclass(frozen=True)
class ActivationBytes:
    """What one microbatch holds on one rank.

    stored: from its forward until its backward (or input gradient); kept: from the input gradient until the
    weight gradient (inputs and output gradients of matrix products; in the zero-bubble paper 32·s·b·h of
    34·s·b·h + 5·a·s²·b, 2401.10241, table 1); working: on top, only while a backward runs.
    """

    stored: float
    kept: float
    working: float

    def __add__(self, other: ActivationBytes) -> ActivationBytes:
        """Of two parts one after the other: stored bytes add up, the larger working set counts."""
        return ActivationBytes(self.stored + other.stored, self.kept + other.kept, max(self.working, other.working))

    @property
    def released_at_input(self) -> float:
        """Share of the stored bytes given back at the input gradient, from 0 to 1."""
        return max(0.0, 1.0 - self.kept / self.stored) if self.stored else 0.0


NOTHING = ActivationBytes(0.0, 0.0, 0.0)


@lru_cache(maxsize=65536)
def layer_activations(model: Model, layout: Layout, kind: LayerKind, *, recompute: bool = True) -> ActivationBytes:
    """Of one layer and one microbatch; `recompute=False` for a layer that recomputation leaves out."""
    tensors = layer_tensors(model, layout, kind)
    mode = layout.recompute if recompute else "none"
    everything = sum(tensor.bytes for tensor in tensors)
    inputs = sum(tensor.bytes for tensor in tensors if tensor.for_weights)
    gradients = layout.number_format.activation_bytes * sum(g.m * g.n * g.count for g in gemms(model, layout, kind))
    working = _working(model, layout, kind)
    if mode == "full":
        layer_input = _row(model, layout)
        return ActivationBytes(layer_input, inputs + gradients, working + everything - layer_input)
    if mode == "selective":
        dropped = sum(tensor.bytes for tensor in tensors if tensor.part in layout.recompute_modules)
        return ActivationBytes(everything - dropped, inputs + gradients, working + dropped)
    return ActivationBytes(everything, inputs + gradients, working)


def layer_tensors(model: Model, layout: Layout, kind: LayerKind) -> tuple[Stored, ...]:
    """All that the backward of one layer reads, when nothing is recomputed."""
    attend = _latent_tensors if model.latent else _attention_tensors
    tensors = [*_norm_tensors(model, layout), *attend(model, layout), *_core_tensors(model, layout, kind)]
    if kind.mixture:
        return (*tensors, *_mixture_tensors(model, layout))
    return (*tensors, *_mlp_tensors(model, layout, layout.tokens, model.ffn / layout.tp))


def _row(model: Model, layout: Layout) -> float:
    """Bytes of the residual stream on this rank."""
    return layout.number_format.activation_bytes * layout.tokens * model.hidden / layout.sequence_shards


def _product_input(layout: Layout, numbers: float) -> float:
    return layout.number_format.matrix_input_bytes * numbers


def _norm_tensors(model: Model, layout: Layout) -> Iterator[Stored]:
    """Inputs of the norms, their outputs (inputs of matrix products), and dropout masks of one byte."""
    row, numbers = _row(model, layout), layout.tokens * model.hidden / layout.sequence_shards
    for index in range(model.norms_per_layer):
        yield Stored(f"norm {index} input", "layer", row)
    for name in ("attention input", "mlp input")[: model.norms_per_layer]:
        yield Stored(name, "norms", _product_input(layout, numbers), for_weights=True)
    if model.dropout:
        yield Stored("attention dropout mask", "layer", numbers)
        yield Stored("mlp dropout mask", "layer", numbers)


def _attention_tensors(model: Model, layout: Layout) -> Iterator[Stored]:
    size = layout.number_format.activation_bytes * layout.tokens
    queries = model.query_width / layout.tp
    keys = max(1, model.kv_heads / layout.tp) * model.head_dim
    yield Stored("queries", "layer", size * queries)
    yield Stored("keys and values", "layer", size * 2 * keys)
    if model.qk_norm != "none":
        yield Stored("queries and keys before their norm", "layer", size * (queries + keys))


def _latent_tensors(model: Model, layout: Layout) -> Iterator[Stored]:
    latent = model.latent
    assert latent is not None
    size, own = layout.number_format.activation_bytes * layout.tokens, layout.tokens / layout.sequence_shards
    ranks = latent.query_rank + latent.key_value_rank
    heads = model.heads / layout.tp
    yield Stored("latents before their norm", "layer", size / layout.sequence_shards * (ranks + latent.rope_dim))
    yield Stored("latents", "norms", _product_input(layout, own * ranks), for_weights=True)
    yield Stored("queries", "layer", size * model.query_width / layout.tp)
    yield Stored("keys", "layer", size * heads * (latent.nope_dim + latent.rope_dim))
    yield Stored("values", "layer", size * heads * latent.value_dim)


def _core_tensors(model: Model, layout: Layout, kind: LayerKind) -> Iterator[Stored]:
    """Softmax, its dropout mask and result where the scores are stored; row sums where they are not."""
    shape = attention(model, layout, kind)
    rows = shape.batch * shape.heads * shape.seq_q
    if layout.attention == "flash":
        yield Stored("softmax row sums", "layer", 4.0 * rows)
    else:
        size = layout.number_format.activation_bytes
        each = 2 * size + 1 if model.dropout else size
        yield Stored("softmax", "core_attention", each * rows * shape.seq_k)
    output = layout.tokens * model.value_width / layout.tp
    yield Stored("attention output", "layer", _product_input(layout, output), for_weights=True)


def _mlp_tensors(model: Model, layout: Layout, tokens: float, width: float) -> Iterator[Stored]:
    size = layout.number_format.activation_bytes * tokens * width
    yield Stored("mlp inner", "mlp", size * (2 if model.gated_mlp else 1))
    if model.gated_mlp and not closest_framework(layout.framework).fused_mlp:
        yield Stored("mlp gate after activation", "mlp_activation", size)
    product_input = _product_input(layout, tokens * width)
    yield Stored("mlp output input", "mlp_activation", product_input, for_weights=True)


def _mixture_tensors(model: Model, layout: Layout) -> Iterator[Stored]:
    """Router, tokens as sent to the local experts, the experts' inner tensors and results."""
    experts = model.experts
    assert experts is not None
    own = layout.tokens / layout.sequence_shards
    yield Stored("router scores", "layer", 2 * 4.0 * own * experts.count)
    if experts.shared_ffn:
        yield from _mlp_tensors(model, layout, layout.tokens, experts.shared_ffn / layout.tp)
    routed = expert_tokens(model, layout) * experts.count / layout.ep
    numbers = routed * model.hidden
    yield Stored("expert input", "mlp", _product_input(layout, numbers), for_weights=True)
    yield from _mlp_tensors(model, layout, routed, experts.ffn / layout.expert_shards)
    yield Stored("expert output", "mlp", layout.number_format.activation_bytes * numbers)


def _working(model: Model, layout: Layout, kind: LayerKind) -> float:
    """The largest matrix product's output, its gradient and its input's gradient, at full sequence."""
    size = layout.number_format.activation_bytes
    largest = max(size * g.count * g.m * (g.n + g.k) for g in gemms(model, layout, kind))
    return largest + 2 * size * layout.tokens * model.hidden
