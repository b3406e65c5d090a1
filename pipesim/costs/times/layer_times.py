"""Where the time of a stage goes: each piece of work as forward, input gradient and weight gradient.

Matrix products by shape, attention, work bound by memory, tensor-, context- and expert-parallel communication, and the
host where the GPU waits for it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from pipesim.costs.layouts.flops import AttentionShape, Gemm, attention, gemms, head_gemm
from pipesim.costs.layouts.layout import Layout
from pipesim.costs.layouts.split import StageLayers
from pipesim.costs.models.model import LayerKind
from pipesim.costs.times.compute import Direction, attention_seconds, gemm_seconds
from pipesim.costs.times.group_comm import group_communication, vocabulary_communication
from pipesim.costs.times.memory_bound import embedding, loss, memory_bound
from pipesim.costs.times.parts import Part, add_up
from pipesim.costs.times.sharded import gathered_weights
from pipesim.costs.times.site import Site


def stage_parts(site: Site, stage: StageLayers) -> tuple[Part, ...]:
    """All work of one stage for one microbatch, pieces of the same name added up; recompute is its own piece."""
    layout = site.layout
    kinds = site.model.kinds()[stage.first : stage.first + stage.layers]
    recomputed = stage.layers if layout.recompute_layers is None else min(layout.recompute_layers, stage.layers)
    again = Counter(kinds[:recomputed])
    parts: list[Part] = []
    for kind, count in Counter(kinds).items():
        layer = layer_parts(site, kind)
        parts += [part.times(count) for part in layer]
        if layout.recompute != "none" and again[kind]:
            parts.append(_recompute(layer, layout).times(again[kind]))
    if stage.embedding:
        parts += embedding(site, stage.embedding)
    if stage.head:
        parts += _head(site, stage.head)
    parts = list(add_up(parts))
    parts += gathered_weights(site, stage, parts)
    return (*parts, _host(site, stage, recomputed, parts))


def layer_parts(site: Site, kind: LayerKind) -> tuple[Part, ...]:
    """All work of one layer for one microbatch on one rank, without recompute."""
    model, layout = site.model, site.layout
    products = [product(site, gemm, layout.number_format.matrix) for gemm in gemms(model, layout, kind)]
    return (
        *products,
        _attention(site, attention(model, layout, kind)),
        *memory_bound(site, kind),
        *group_communication(site, kind, products),
    )


def product(site: Site, gemm: Gemm, form: str) -> Part:
    """A product in the number format `form`, its input gradient (m, k, n), and its weight gradient (n, k, m).

    That is added to an fp32 matrix where a framework fuses this. Equal products of several experts are one kernel.
    """
    fused = site.habits.accumulation == "fused"

    def seconds(m: int, n: int, k: int, accumulate: bool = False) -> float:
        return gemm_seconds(site.gpu, m, n, k, precision=form, batch=gemm.count, accumulate=accumulate)

    return Part(
        gemm.name,
        "matmul",
        seconds(gemm.m, gemm.n, gemm.k),
        seconds(gemm.m, gemm.k, gemm.n),
        seconds(gemm.n, gemm.k, gemm.m, accumulate=fused),
    )


def _attention(site: Site, shape: AttentionShape) -> Part:
    layout = site.layout
    kernel = layout.attention_kernel if layout.attention == "flash" or layout.attention_kernel == "torch" else None

    def seconds(direction: Direction) -> float:
        return attention_seconds(
            site.gpu,
            batch=shape.batch,
            heads=shape.heads,
            seq_q=shape.seq_q,
            seq_k=shape.seq_k,
            head_dim=shape.head_dim,
            value_dim=shape.value_dim,
            causal=shape.causal,
            window=shape.window,
            kind=kernel or layout.attention,
            direction=direction,
            dropout=site.model.dropout,
            precision="fp32" if layout.number_format.matrix == "fp32" else "fp16",
        )

    return Part("attention", "attention", seconds("forward"), seconds("backward"))


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


def _head(site: Site, share: float) -> list[Part]:
    """Output layer, in 16 bits where the others have fewer, and the loss over its logits."""
    form = site.layout.number_format.matrix
    gemm = head_gemm(site.model, site.layout, share=share)
    made = product(site, gemm, "bf16" if form in ("fp8", "fp4") else form)
    return [made, loss(site, share), *vocabulary_communication(site)]


def _host(site: Site, stage: StageLayers, recomputed: int, parts: Sequence[Part]) -> Part:
    """What is left of the host's time when the GPU has done its work: it queues kernels while the GPU runs.

    It runs ahead from one action to the next, so only both directions together count.
    """
    each = site.habits.layer_host_s
    forward = each * (stage.layers + stage.embedding + stage.head)
    backward = forward + (each * recomputed if site.layout.recompute == "full" else 0.0)
    left = max(0.0, forward + backward - sum(part.total_s for part in parts))
    share = forward / (forward + backward) if left else 0.0
    return Part("host", "host", left * share, left * (1 - share))
