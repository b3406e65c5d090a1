"""Exact parameter counts, by component, and per rank under tensor and expert parallelism.

What is counted is what the published checkpoints hold: weights, biases, norms and learned positions.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

from pipesim.costs.models.model import LayerKind, Model


@dataclass(frozen=True, kw_only=True)
class LayerParameters:
    """Parameters of one layer. `attention` and `mlp` are what tensor parallelism splits, biases included."""

    attention: int
    mlp: int
    """The dense MLP, or the shared experts."""
    experts: int
    """All routed experts."""
    router: int
    replicated: int
    """Low-rank projections of latent attention, which every tensor-parallel rank holds."""
    norms: int

    @property
    def total(self) -> int:
        """All of the layer."""
        return sum(getattr(self, field.name) for field in fields(self))


@dataclass(frozen=True, kw_only=True)
class Parameters:
    """Parameters of a whole model."""

    embedding: int
    positions: int
    attention: int
    mlp: int
    experts: int
    router: int
    norms: int
    head: int
    """0 with tied embeddings."""
    total: int
    active: int
    """What one token visits: all but the routed experts that it skips."""


def layer_parameters(model: Model, kind: LayerKind) -> LayerParameters:
    """Parameters of a layer of this kind."""
    experts = model.experts if kind.mixture else None
    split, replicated, latent_norms = _attention(model)
    norm = model.hidden * (2 if model.norm == "layer" else 1)
    return LayerParameters(
        attention=split,
        mlp=_mlp(model, experts.shared_ffn if experts else model.ffn),
        experts=experts.count * _mlp(model, experts.ffn) if experts else 0,
        router=_router(model) if experts else 0,
        replicated=replicated,
        norms=model.norms_per_layer * norm + latent_norms + _qk_norms(model),
    )


def _attention(model: Model) -> tuple[int, int, int]:
    """Parameters split by heads, replicated ones, and those of the latent norms."""
    latent = model.latent
    if latent is None:
        qkv = model.query_width + 2 * model.key_value_width
        biases = qkv * model.qkv_bias + model.hidden * model.output_bias
        return model.hidden * (qkv + model.value_width) + biases, 0, 0
    source = latent.query_rank or model.hidden
    key_value_up = latent.key_value_rank * model.heads * (latent.nope_dim + latent.value_dim)
    up = source * model.query_width + key_value_up
    down = model.hidden * (latent.query_rank + latent.key_value_rank + latent.rope_dim)
    output = model.value_width * model.hidden + model.hidden * model.output_bias
    return up + output, down, latent.query_rank + latent.key_value_rank


def _mlp(model: Model, width: int) -> int:
    if not width:
        return 0
    inner = 2 if model.gated_mlp else 1
    biases = (inner * width + model.hidden) if model.mlp_bias else 0
    return (inner + 1) * model.hidden * width + biases


def _router(model: Model) -> int:
    experts = model.experts
    assert experts is not None
    return model.hidden * (experts.count + experts.shared_gate) + experts.count * experts.router_bias


def _qk_norms(model: Model) -> int:
    if model.qk_norm == "none":
        return 0
    return 2 * model.head_dim if model.qk_norm == "head" else model.query_width + model.key_value_width


def embedding_parameters(model: Model) -> int:
    """Token embedding, with the projections of an embedding narrower than the model (OPT-350m)."""
    if not model.embedding_width:
        return model.vocab * model.hidden
    return model.vocab * model.embedding_width + 2 * model.embedding_width * model.hidden


def head_parameters(model: Model) -> int:
    """Output layer, whether or not it shares the embedding's weights."""
    return model.vocab * (model.embedding_width or model.hidden)


def parameters(model: Model) -> Parameters:
    """Exact counts of the whole model (without multi-token-prediction layers)."""
    per_layer = [layer_parameters(model, kind) for kind in model.kinds()]
    norm = model.hidden * (2 if model.norm == "layer" else 1)
    embedding, positions = embedding_parameters(model), model.position_rows * model.hidden
    head = 0 if model.tied_embeddings else head_parameters(model)
    ends = norm * (model.final_norm + model.embedding_norm)
    total = embedding + positions + head + ends + sum(layer.total for layer in per_layer)
    routed = sum(layer.experts for layer in per_layer)
    skipped = routed - routed * model.experts.per_token // model.experts.count if model.experts else 0
    return Parameters(
        embedding=embedding,
        positions=positions,
        attention=sum(layer.attention + layer.replicated for layer in per_layer),
        mlp=sum(layer.mlp for layer in per_layer),
        experts=routed,
        router=sum(layer.router for layer in per_layer),
        norms=ends + sum(layer.norms for layer in per_layer),
        head=head,
        total=total,
        active=total - skipped,
    )
