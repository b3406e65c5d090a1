"""Work bound by memory: norms, residual sums, activation functions, rotary embedding, copies, loss, embedding.

Each kernel is priced by the bytes that it reads and writes; how many kernels there are depends on what a framework
fuses. Counts below are bytes per number in 16 bits, forward and backward.
"""

from __future__ import annotations

from pipesim.costs.clusters.fitted import loss_share
from pipesim.costs.layouts.flops import expert_tokens, gemms, padded_vocab
from pipesim.costs.memory import layer_rank_parameters
from pipesim.costs.models.model import LayerKind
from pipesim.costs.times.compute import memory_seconds
from pipesim.costs.times.habits import ACCUMULATION_BYTES
from pipesim.costs.times.parts import Part
from pipesim.costs.times.site import Site

_NORM = (4.0, 10.0)  # backward: gradients of input and of weights are two kernels
_EAGER_NORM = (36.0, 68.0)  # to fp32, square, mean, scale, to 16 bits, times weight; then all of it backwards
_RESIDUAL = (6.0, 6.0)  # the sum; where it branched, its two gradients are added
_DROPOUT = (1.0, 5.0)  # a mask written; gradient and mask read, result written
_ACTIVATION = (4.0, 6.0)  # per number of the inner width: GELU
_GATED = (6.0, 10.0)
_EAGER_GATED = (10.0, 26.0)  # silu, times; two products, silu, two halves put together
_ROTARY = (4.0, 4.0)
_EAGER_ROTARY = (24.0, 24.0)  # halves swapped and joined, two products, a sum
_COPY = (4.0, 4.0)
_BIAS = 2.0  # backward: a column sum of the gradient


def memory_bound(site: Site, kind: LayerKind) -> tuple[Part, ...]:
    """Of one layer and one microbatch on one rank."""
    model, layout, gpu, habits = site.model, site.layout, site.gpu, site.habits
    scale = layout.number_format.activation_bytes / 2
    own = layout.tokens * model.hidden / layout.sequence_shards * scale

    def part(name: str, numbers: float, each: tuple[float, float], kernels: tuple[int, int]) -> Part:
        forward, backward = (
            memory_seconds(gpu, numbers * size, kernels=count) for size, count in zip(each, kernels, strict=True)
        )
        return Part(name, "memory", forward, backward)

    norms = model.norms_per_layer
    eager_norm = layout.eager_norm and model.norm == "rms"
    residual = _plus(_RESIDUAL, _DROPOUT) if model.dropout else _RESIDUAL
    found = [
        part(
            "norms",
            norms * own,
            _EAGER_NORM if eager_norm else _NORM,
            (7 * norms, 12 * norms) if eager_norm else (norms, 2 * norms),
        ),
        part("residuals", 2 * own, residual, (2, 4 if model.dropout else 2)),
        _activation(site, kind, scale),
        *_around_attention(site, scale),
    ]
    if layout.number_format.matrix in _CASTS:
        found.append(_casts(site, kind))
    if model.mlp_bias:
        outputs = scale * sum(gemm.m * gemm.n * gemm.count for gemm in gemms(model, layout, kind))
        found.append(part("bias gradients", outputs, (0.0, _BIAS), (0, 4)))
    if habits.accumulation != "fused":
        held = layer_rank_parameters(model, layout, kind)
        size = ACCUMULATION_BYTES[habits.accumulation] * (held.dense + held.experts)
        found.append(Part("gradient accumulation", "memory", 0.0, 0.0, memory_seconds(gpu, size, kernels=8)))
    return tuple(found)


_CASTS: dict[str, tuple[float, float]] = {"fp8": (2.0, 4.0), "fp4": (4.0, 8.0)}
"""Per input of a product, written in few bits and once more transposed; per gradient of its output, read too."""


def _casts(site: Site, kind: LayerKind) -> Part:
    model, layout, gpu = site.model, site.layout, site.gpu
    forward, backward = _CASTS[layout.number_format.matrix]
    products = gemms(model, layout, kind)
    inputs, outputs = sum(g.m * g.k * g.count for g in products), sum(g.m * g.n * g.count for g in products)
    count = len(products)
    return Part(
        "casts",
        "memory",
        memory_seconds(gpu, forward * inputs, kernels=count),
        memory_seconds(gpu, backward * outputs, kernels=count),
    )


def _plus(one: tuple[float, float], other: tuple[float, float]) -> tuple[float, float]:
    return one[0] + other[0], one[1] + other[1]


def _activation(site: Site, kind: LayerKind, scale: float) -> Part:
    model, layout, habits = site.model, site.layout, site.habits
    experts = model.experts if kind.mixture else None
    if experts is None:
        numbers = layout.tokens * model.ffn / layout.tp
    else:
        numbers = expert_tokens(model, layout) * experts.count / layout.ep * experts.ffn / layout.expert_shards
        numbers += layout.tokens * experts.shared_ffn / layout.tp
    each, kernels = _ACTIVATION, (1, 1)
    if model.gated_mlp:
        each, kernels = (_GATED, (1, 1)) if habits.fused else (_EAGER_GATED, (2, 5))
    forward, backward = (
        memory_seconds(site.gpu, numbers * scale * b, kernels=k) for b, k in zip(each, kernels, strict=True)
    )
    return Part("activation function", "memory", forward, backward)


def _around_attention(site: Site, scale: float) -> list[Part]:
    """Rotary embedding of queries and keys, and copies of these, values and result in another order."""
    model, layout, gpu, habits = site.model, site.layout, site.gpu, site.habits
    inputs = layout.tokens * (model.query_width + model.key_value_width) / layout.tp * scale
    everything = inputs + layout.tokens * (model.value_width + model.key_value_width) / layout.tp * scale
    found = []
    if model.positions == "rotary":
        each, kernels = (_ROTARY, 2) if habits.fused else (_EAGER_ROTARY, 10)
        forward, backward = (memory_seconds(gpu, inputs * size, kernels=kernels) for size in each)
        found.append(Part("rotary", "memory", forward, backward))
    copies = habits.copies if layout.attention == "flash" else 0.25  # separate kernels: only the result is copied
    if copies:
        forward, backward = (memory_seconds(gpu, copies * everything * size, kernels=4) for size in _COPY)
        found.append(Part("copies", "memory", forward, backward))
    return found


def embedding(site: Site, share: float) -> list[Part]:
    """Rows read; gradient rows added; with accumulation in kernels of their own, the whole table once more."""
    model, layout, gpu, habits = site.model, site.layout, site.gpu, site.habits
    if not share:
        return []
    rows = layout.tokens * model.hidden * layout.number_format.activation_bytes * share
    shards = layout.tp if layout.vocabulary_over_tp else 1
    table = padded_vocab(model, layout) * model.hidden * share / shards
    again = 2.0 + (ACCUMULATION_BYTES[habits.accumulation] or 10.0)  # zeros, then as any gradient
    return [
        Part(
            "embedding",
            "memory",
            memory_seconds(gpu, 2 * rows),
            0.0,
            memory_seconds(gpu, 4 * rows + again * table, kernels=3),
        )
    ]


def loss(site: Site, share: float) -> Part:
    """Softmax and cross-entropy over the logits of one microbatch, at the share of the counted bytes that runs take."""
    layout = site.layout
    shards = layout.tp if layout.vocabulary_over_tp else 1
    logits = layout.tokens * padded_vocab(site.model, layout) * share / shards
    forward, backward = (memory_seconds(site.gpu, loss_share() * size * logits, kernels=6) for size in site.habits.loss)
    return Part("loss", "memory", forward, backward)
