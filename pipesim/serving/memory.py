"""What serving holds on a GPU: weights, buffers of a step, and the key/value cache in what is left."""

from __future__ import annotations

from dataclasses import dataclass

from pipesim.costs.layouts.flops import padded_vocab
from pipesim.costs.layouts.layout import Layout
from pipesim.costs.layouts.split import StageLayers
from pipesim.costs.memory import layer_rank_parameters
from pipesim.costs.models.model import Model
from pipesim.errors import PipesimError
from pipesim.serving.deployment import Deployment

CONTEXT_BYTES = 1.0 * 2**30
"""CUDA context, libraries and communication buffers of one process."""
_WIDE = 2.0  # bytes of what stays in 16 bits


@dataclass(eq=False)
class ModelTooLarge(PipesimError):
    """Weights leave no room for a cache."""

    model: str
    gpu: str
    needs_bytes: float
    has_bytes: float
    ways: str

    def __str__(self) -> str:
        return (
            f"{self.model} does not fit: a GPU would hold {self.needs_bytes / 2**30:.1f} GiB of weights and buffers, "
            f"and {self.gpu} has {self.has_bytes / 2**30:.1f} GiB; {self.ways}"
        )


@dataclass(frozen=True, kw_only=True)
class StageMemory:
    """Bytes on one GPU of a stage."""

    weights: float
    buffers: float
    """Activations of a step, logits, CUDA context."""
    token: float
    """Cache of one token."""
    cache: float
    """What all cached tokens may take."""


def memory_of(deployment: Deployment) -> tuple[StageMemory, ...]:
    """Memory of each stage. Raises ModelTooLarge."""
    found = tuple(_stage(deployment, index, stage) for index, stage in enumerate(deployment.stages))
    for index, stage in enumerate(found):
        gpu = deployment.cluster.gpu_of(deployment.devices(index)[0])
        if stage.cache < stage.token * deployment.block_tokens:
            needs = stage.weights + stage.buffers
            raise ModelTooLarge(deployment.model.name, gpu.name, needs, gpu.memory_bytes, _ways(deployment, needs))
    return found


def blocks_of(deployment: Deployment) -> int:
    """Blocks of cache that every stage has room for."""
    return min(int(stage.cache // (stage.token * deployment.block_tokens)) for stage in memory_of(deployment))


def largest_batch(deployment: Deployment, tokens: int) -> int:
    """Most requests of so many tokens each, prompt and output, whose caches fit at once."""
    return blocks_of(deployment) // -(-tokens // deployment.block_tokens)


def _stage(deployment: Deployment, index: int, stage: StageLayers) -> StageMemory:
    model, engine = deployment.model, deployment.engine
    gpu = deployment.cluster.gpu_of(deployment.devices(index)[0])
    weights = weight_bytes(deployment, stage)
    buffers = CONTEXT_BYTES + _buffer_bytes(deployment, stage)
    room = gpu.memory_bytes - weights - buffers
    token = stage.layers * layer_token_bytes(model, deployment.tp, deployment.cache_bytes)
    return StageMemory(weights=weights, buffers=buffers, token=token, cache=max(0.0, room) * engine.cache_share)


def weight_bytes(deployment: Deployment, stage: StageLayers) -> float:
    """Weights of one stage on one rank: layers in their format, embedding and output layer in 16 bits."""
    model, layout = deployment.model, Layout(tp=deployment.tp)
    kinds = model.kinds()[stage.first : stage.first + stage.layers]
    layers = [layer_rank_parameters(model, layout, kind) for kind in kinds]
    numbers = sum(layer.dense + layer.experts for layer in layers)
    tied = model.tied_embeddings and stage.embedding > 0 and stage.head > 0
    tables = max(stage.embedding, stage.head) if tied else stage.embedding + stage.head
    table = padded_vocab(model, layout) * (model.embedding_width or model.hidden) / deployment.tp
    wide = max(_WIDE, deployment.weights.weight_bytes)
    return numbers * deployment.weights.weight_bytes + tables * table * wide


def layer_token_bytes(model: Model, tp: int, number_bytes: float) -> float:
    """Cache of one token in one layer on one rank: keys and values of its heads, or the latent, which all hold."""
    if model.latent is not None:
        return (model.latent.key_value_rank + model.latent.rope_dim) * number_bytes
    return 2 * max(1.0, model.kv_heads / tp) * model.head_dim * number_bytes


def _buffer_bytes(deployment: Deployment, stage: StageLayers) -> float:
    """Activations of the widest layer for a full step, twice, and logits in fp32 of a full batch."""
    model, tokens = deployment.model, deployment.most_tokens
    widest = max(2 * model.ffn, model.query_width + 2 * model.key_value_width) / deployment.tp
    logits = 4.0 * deployment.most_requests * model.vocab if stage.head else 0.0
    return 2 * _WIDE * tokens * (widest + 2 * model.hidden) + logits


def _ways(deployment: Deployment, needs: float) -> str:
    gpu = deployment.cluster.gpus[0]
    parts = deployment.tp * deployment.pp
    enough = next((n for n in (2, 4, 8, 16, 32, 64) if needs * parts / n < 0.9 * gpu.memory_bytes and n > parts), None)
    split = f"about {enough} GPUs a replica hold it (more --tp or --pp)" if enough else "split it over more GPUs"
    narrower = deployment.weights.weight_bytes > 1
    return split + (", or take --weights fp8 or int4" if narrower else "")
