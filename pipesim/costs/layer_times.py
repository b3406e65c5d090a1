"""Where the time of a stage goes: each piece of work as forward, input gradient and weight gradient.

Matrix products by shape, attention, work bound by memory, and tensor-, context- and expert-parallel
communication. Overlap of communication with compute is not assumed: what overlaps is said by the caller.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from pipesim.costs.cluster import Cluster
from pipesim.costs.collectives import collective_seconds
from pipesim.costs.compute import attention_seconds, gemm_seconds, memory_seconds
from pipesim.costs.flops import AttentionShape, Gemm, attention, expert_tokens, gemms, head_gemm, padded_vocab
from pipesim.costs.gpu import Gpu
from pipesim.costs.layout import Layout
from pipesim.costs.model import LayerKind, Model
from pipesim.costs.p2p import p2p_seconds
from pipesim.costs.split import StageLayers


@dataclass(frozen=True)
class Part:
    """Seconds of one piece of work for one microbatch on one rank."""

    name: str
    group: str  # matmul, attention, memory, tensor, context, expert
    forward_s: float
    input_s: float
    weight_s: float

    @property
    def total_s(self) -> float:
        return self.forward_s + self.input_s + self.weight_s

    def times(self, count: float) -> Part:
        return Part(self.name, self.group, self.forward_s * count, self.input_s * count, self.weight_s * count)


COMMUNICATION = ("tensor", "context", "expert")


@dataclass(frozen=True)
class Groups:
    """Devices of the tensor-, context- and expert-parallel group of one rank."""

    tensor: tuple[int, ...]
    context: tuple[int, ...]
    expert: tuple[int, ...]


def stage_parts(
    model: Model, layout: Layout, cluster: Cluster, gpu: Gpu, groups: Groups, stage: StageLayers
) -> tuple[Part, ...]:
    """All work of one stage for one microbatch, pieces of the same name added up; recompute is its own piece."""
    kinds = model.kinds()
    recomputed = stage.layers if layout.recompute_layers is None else layout.recompute_layers
    parts: list[Part] = []
    for index in range(stage.layers):
        layer = layer_parts(model, layout, cluster, gpu, groups, kinds[stage.first + index])
        parts += layer
        if layout.recompute != "none" and index < recomputed:
            parts.append(_recompute(layer, layout))
    parts += _embedding(model, layout, gpu, stage.embedding) + _head(model, layout, gpu, stage.head)
    return add_up(parts)


def add_up(parts: Iterable[Part]) -> tuple[Part, ...]:
    """One part a name, in order of appearance."""
    found: dict[str, Part] = {}
    for part in parts:
        old = found.get(part.name)
        found[part.name] = (
            part
            if old is None
            else Part(
                part.name,
                part.group,
                old.forward_s + part.forward_s,
                old.input_s + part.input_s,
                old.weight_s + part.weight_s,
            )
        )
    return tuple(found.values())


@lru_cache(maxsize=65536)
def layer_parts(
    model: Model, layout: Layout, cluster: Cluster, gpu: Gpu, groups: Groups, kind: LayerKind
) -> tuple[Part, ...]:
    """All work of one layer for one microbatch on one rank, without recompute."""
    return (
        *(_product(gpu, gemm, layout) for gemm in gemms(model, layout, kind)),
        _attention(gpu, attention(model, layout, kind), layout),
        *_memory_bound(model, layout, gpu, kind),
        *_tensor(model, layout, cluster, groups.tensor),
        *_context(model, layout, cluster, groups.context),
        *_expert(model, layout, cluster, groups.expert, kind),
    )


def _product(gpu: Gpu, gemm: Gemm, layout: Layout) -> Part:
    """A product, its input gradient (m, k, n), and its weight gradient (n, k, m) added to an fp32 matrix."""
    form = layout.number_format.matrix
    one = (
        gemm_seconds(gpu, gemm.m, gemm.n, gemm.k, precision=form),
        gemm_seconds(gpu, gemm.m, gemm.k, gemm.n, precision=form),
        gemm_seconds(gpu, gemm.n, gemm.k, gemm.m, precision=form, accumulate=True),
    )
    return Part(gemm.name, "matmul", *(seconds * gemm.count for seconds in one))


def _attention(gpu: Gpu, shape: AttentionShape, layout: Layout) -> Part:
    def seconds(direction: str) -> float:
        return attention_seconds(
            gpu,
            batch=shape.batch,
            heads=shape.heads,
            seq_q=shape.seq_q,
            seq_k=shape.seq_k,
            head_dim=shape.head_dim,
            value_dim=shape.value_dim,
            causal=shape.causal,
            window=shape.window,
            kind="flash" if layout.attention == "flash" else "unfused",
            direction="forward" if direction == "forward" else "backward",
        )

    return Part("attention", "attention", seconds("forward"), seconds("backward"), 0.0)


def _memory_bound(model: Model, layout: Layout, gpu: Gpu, kind: LayerKind) -> tuple[Part, ...]:
    """Norms, residual sums, rotary embedding and activation function, by bytes read and written.

    A norm reads and writes its rows, backward reads two and writes one; a residual sum reads two and
    writes one; the gated activation reads two and writes one, backward reads three and writes two.
    """
    width = layout.number_format.activation_bytes
    rows = layout.tokens * model.hidden * width
    own = rows / layout.sequence_shards
    mlp_tokens = expert_tokens(model, layout) if kind.mixture else layout.tokens
    experts = model.experts
    inner = experts.ffn if kind.mixture and experts is not None else model.ffn
    shards = layout.expert_shards if kind.mixture else layout.tp
    mlp = mlp_tokens * inner * width / shards
    heads = layout.tokens * (model.query_width + model.key_value_width) * width / layout.tp
    norms = model.norms_per_layer
    reads = 3 if model.gated_mlp else 2
    dropout = 5 * own / width if model.dropout else 0.0

    def moved(size: float, kernels: int = 1) -> float:
        return memory_seconds(gpu, size, kernels=kernels)

    found = [
        Part("norms", "memory", moved(2 * norms * own, norms), moved(3 * norms * own, norms), 0.0),
        Part("residuals", "memory", moved(6 * own + 2 * dropout, 2), moved(2 * own + 2 * dropout, 2), 0.0),
        Part("activation function", "memory", moved(reads * mlp), moved((2 * reads - 1) * mlp), 0.0),
    ]
    if model.positions == "rotary":
        found.append(Part("rotary", "memory", moved(2 * heads, 2), moved(2 * heads, 2), 0.0))
    return tuple(found)


def _tensor(model: Model, layout: Layout, cluster: Cluster, members: Sequence[int]) -> tuple[Part, ...]:
    """Two all-reduces each way, or with sequence parallelism as many all-gather and reduce-scatter pairs.

    Then the backward also gathers the input again for the weight gradient (2205.05198, section 4.2.2).
    """
    if layout.tp == 1:
        return ()
    size = layout.tokens * model.hidden * layout.number_format.activation_bytes
    if not layout.sequence_parallel:
        once = 2 * collective_seconds(cluster, "all_reduce", size, members)
        return (Part("tensor-parallel all-reduce", "tensor", once, once, 0.0),)
    gather = collective_seconds(cluster, "all_gather", size, members)
    scatter = collective_seconds(cluster, "reduce_scatter", size, members)
    return (Part("tensor-parallel gather and scatter", "tensor", 2 * (gather + scatter), 2 * (gather + scatter), 0.0),)


def _context(model: Model, layout: Layout, cluster: Cluster, members: Sequence[int]) -> tuple[Part, ...]:
    """Ring attention: cp-1 rounds of keys and values, backward also of their gradients; or all-to-all, or gather."""
    if layout.cp == 1:
        return ()
    width = layout.number_format.activation_bytes
    keys_values = 2 * layout.tokens * model.key_value_width * width / layout.tp
    if layout.context_comm == "ring":
        once = (layout.cp - 1) * p2p_seconds(cluster, members[0], members[1], keys_values)
        return (Part("context-parallel ring", "context", once, 2 * once, 0.0),)
    if layout.context_comm == "all-gather":
        once = collective_seconds(cluster, "all_gather", keys_values * layout.cp, members)
        back = collective_seconds(cluster, "reduce_scatter", keys_values * layout.cp, members)
        return (Part("context-parallel all-gather", "context", once, once + back, 0.0),)
    heads = layout.tokens * (model.query_width * 2) * width / layout.tp + keys_values
    once = collective_seconds(cluster, "all_to_all", heads, members)
    return (Part("context-parallel all-to-all", "context", once, once, 0.0),)


def _expert(
    model: Model, layout: Layout, cluster: Cluster, members: Sequence[int], kind: LayerKind
) -> tuple[Part, ...]:
    """Dispatch and combine of the tokens that visit experts, each way."""
    if layout.ep == 1 or not kind.mixture or model.experts is None:
        return ()
    size = layout.tokens * model.experts.per_token * model.hidden * layout.number_format.activation_bytes
    once = 2 * collective_seconds(cluster, "all_to_all", size / layout.sequence_shards, members)
    return (Part("expert all-to-all", "expert", once, once, 0.0),)


def _recompute(layer: Sequence[Part], layout: Layout) -> Part:
    """What the backward repeats of the forward; in full, all of it; selectively, the modules named."""
    if layout.recompute == "full":
        return Part("recompute", "recompute", 0.0, sum(part.forward_s for part in layer), 0.0)
    repeated = {
        "core_attention": ("attention",),
        "norms": ("norms",),
        "mlp_activation": ("activation function",),
        "mlp": ("mlp_up", "mlp_down", "activation function"),
    }
    names = {name for module in layout.recompute_modules for name in repeated[module]}
    flash = layout.attention == "flash"  # repeats its scores inside its own backward anyway
    again = sum(part.forward_s for part in layer if part.name in names and not (flash and part.name == "attention"))
    return Part("recompute", "recompute", 0.0, again, 0.0)


def _embedding(model: Model, layout: Layout, gpu: Gpu, share: float) -> list[Part]:
    if not share:
        return []
    rows = layout.tokens * model.hidden * layout.number_format.activation_bytes * share
    return [Part("embedding", "memory", memory_seconds(gpu, 2 * rows), 0.0, memory_seconds(gpu, 3 * rows))]


def _head(model: Model, layout: Layout, gpu: Gpu, share: float) -> list[Part]:
    """Output layer, and the loss over its logits: read and written in fp32 about four times, backward twice."""
    if not share:
        return []
    shards = layout.tp if layout.vocabulary_over_tp else 1
    logits = layout.tokens * padded_vocab(model, layout) * share / shards
    product = _product(gpu, head_gemm(model, layout, share=share), layout)
    loss = Part("loss", "memory", memory_seconds(gpu, 16 * logits, kernels=4), memory_seconds(gpu, 6 * logits), 0.0)
    return [Part("head", "matmul", product.forward_s, product.input_s, product.weight_s), loss]
