"""Where the time of a stage goes: each piece of work as forward, input gradient and weight gradient.

Matrix products by shape, attention, work bound by memory, tensor-, context- and expert-parallel communication, and the
host where the GPU waits for it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import lru_cache

from pipesim.costs.cluster import Cluster
from pipesim.costs.compute import attention_seconds, gemm_seconds
from pipesim.costs.flops import AttentionShape, Gemm, attention, gemms, head_gemm
from pipesim.costs.gpu import Gpu
from pipesim.costs.group_comm import Groups, group_communication
from pipesim.costs.habits import Habits
from pipesim.costs.layout import Layout
from pipesim.costs.memory_bound import embedding, loss, memory_bound
from pipesim.costs.model import LayerKind, Model
from pipesim.costs.parts import Part, add_up
from pipesim.costs.sharded import gathered_weights
from pipesim.costs.split import StageLayers


def stage_parts(
    model: Model, layout: Layout, cluster: Cluster, gpu: Gpu, groups: Groups, stage: StageLayers, habits: Habits
) -> tuple[Part, ...]:
    """All work of one stage for one microbatch, pieces of the same name added up; recompute is its own piece."""
    kinds = model.kinds()[stage.first : stage.first + stage.layers]
    recomputed = stage.layers if layout.recompute_layers is None else layout.recompute_layers
    parts: list[Part] = []
    for kind, count in Counter(kinds).items():
        layer = layer_parts(model, layout, cluster, gpu, groups, kind, habits)
        parts += [part.times(count) for part in layer]
        again = Counter(kinds[:recomputed])[kind]
        if layout.recompute != "none" and again:
            parts.append(_recompute(layer, layout).times(again))
    if stage.embedding:
        parts += embedding(model, layout, gpu, stage.embedding, habits)
    if stage.head:
        parts += _head(model, layout, gpu, stage.head, habits)
    parts = list(add_up(parts))
    parts += gathered_weights(model, layout, cluster, groups, stage, parts)
    return (*parts, *_host(parts, layout, stage, min(recomputed, stage.layers), habits))


@lru_cache(maxsize=65536)
def layer_parts(
    model: Model, layout: Layout, cluster: Cluster, gpu: Gpu, groups: Groups, kind: LayerKind, habits: Habits
) -> tuple[Part, ...]:
    """All work of one layer for one microbatch on one rank, without recompute."""
    return (
        *(product(gpu, gemm, layout.number_format.matrix, habits) for gemm in gemms(model, layout, kind)),
        _attention(gpu, attention(model, layout, kind), layout, model.dropout),
        *memory_bound(model, layout, gpu, kind, habits),
        *group_communication(model, layout, cluster, groups, kind, habits),
    )


def product(gpu: Gpu, gemm: Gemm, form: str, habits: Habits) -> Part:
    """A product in the number format `form`, its input gradient (m, k, n), and its weight gradient (n, k, m), added to an fp32 matrix if fused.

    Equal products of several experts run as one grouped kernel.
    """
    fused = habits.accumulation == "fused"

    def seconds(m: int, n: int, k: int, accumulate: bool = False) -> float:
        return gemm_seconds(gpu, m, n, k, precision=form, batch=gemm.count, accumulate=accumulate)

    return Part(
        gemm.name,
        "matmul",
        seconds(gemm.m, gemm.n, gemm.k),
        seconds(gemm.m, gemm.k, gemm.n),
        seconds(gemm.n, gemm.k, gemm.m, accumulate=fused),
    )


def _attention(gpu: Gpu, shape: AttentionShape, layout: Layout, dropout: bool) -> Part:
    def seconds(backward: bool) -> float:
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
            kind=layout.fused_attention if layout.attention == "flash" else layout.attention,
            direction="backward" if backward else "forward",
            dropout=dropout,
            precision="fp32" if layout.number_format.matrix == "fp32" else "fp16",
        )

    return Part("attention", "attention", seconds(False), seconds(True))


_REPEATED = {
    "core_attention": ("attention",),
    "norms": ("norms",),
    "mlp_activation": ("activation function",),
    "mlp": ("mlp_up", "mlp_down", "activation function"),
}


def _recompute(layer: Sequence[Part], layout: Layout) -> Part:
    """What the backward repeats of the forward; in full, all of it; selectively, the modules named."""
    if layout.recompute == "full":
        return Part("recompute", "recompute", 0.0, sum(part.forward_s for part in layer))
    names = {name for module in layout.recompute_modules for name in _REPEATED[module]}
    flash = layout.attention == "flash"  # repeats its scores inside its own backward anyway
    again = sum(part.forward_s for part in layer if part.name in names and not (flash and part.name == "attention"))
    return Part("recompute", "recompute", 0.0, again)


def _head(model: Model, layout: Layout, gpu: Gpu, share: float, habits: Habits) -> list[Part]:
    """Output layer, in 16 bits where the others have fewer, and the loss over its logits."""
    form = layout.number_format.matrix
    made = product(gpu, head_gemm(model, layout, share=share), "bf16" if form in ("fp8", "fp4") else form, habits)
    return [made, loss(model, layout, gpu, share, habits)]


def _host(parts: Sequence[Part], layout: Layout, stage: StageLayers, recomputed: int, habits: Habits) -> list[Part]:
    """What is left of the host's time when the GPU has done its work: it queues kernels while the GPU runs."""
    once = habits.layer_host_s * (stage.layers + stage.embedding + stage.head)
    again = habits.layer_host_s * recomputed if layout.recompute == "full" else 0.0
    forward = max(0.0, once - sum(part.forward_s for part in parts))
    backward = max(0.0, once + again - sum(part.backward_s for part in parts))
    messages = habits.message_host_s if layout.pp > 1 else 0.0
    return [Part("host", "host", forward + messages, backward + messages)]
