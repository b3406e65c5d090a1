"""Bytes that each stage and rank holds: weights, gradients, optimizer, activations, buffers.

State bytes per parameter are those of `precision.py`, sharded by ZeRO stage over the ranks that hold the same
weights (2205.05198 keeps 16-20 bytes; ZeRO: 1910.02054).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from pipesim.costs.activations import NOTHING, ActivationBytes, layer_activations
from pipesim.costs.layouts.flops import padded_vocab
from pipesim.costs.layouts.frameworks import Framework, closest_framework
from pipesim.costs.layouts.layout import Layout
from pipesim.costs.layouts.split import StageLayers
from pipesim.costs.models.model import LayerKind, Model
from pipesim.costs.models.params import layer_parameters


@dataclass(frozen=True)
class StageParameters:
    """Parameters of one stage on one rank: those with all tensor-parallel peers, and those of experts."""

    dense: float
    experts: float

    def __add__(self, other: StageParameters) -> StageParameters:
        return StageParameters(self.dense + other.dense, self.experts + other.experts)


@dataclass(frozen=True)
class StateBytes:
    """Bytes that live through the whole step."""

    weights: float
    gradients: float
    optimizer: float

    @property
    def total(self) -> float:
        """All of them."""
        return self.weights + self.gradients + self.optimizer


@dataclass(frozen=True)
class StageMemory:
    """What one stage holds on one rank: states once, activations per microbatch in flight."""

    states: StateBytes
    activations: ActivationBytes


@lru_cache(maxsize=65536)
def layer_rank_parameters(model: Model, layout: Layout, kind: LayerKind) -> StageParameters:
    """Parameters of one layer on one rank. Key/value heads are copied where there are fewer than tp."""
    layer = layer_parameters(model, kind)
    copied = max(0.0, layout.tp / model.kv_heads - 1) if model.latent is None else 0.0
    copies = copied * 2 * model.hidden * model.key_value_width / layout.tp
    split = (layer.attention + layer.mlp) / layout.tp
    experts = layer.experts / (layout.ep * layout.expert_shards)
    return StageParameters(split + copies + layer.router + layer.replicated + layer.norms, experts)


def stage_parameters(model: Model, layout: Layout, stage: StageLayers) -> StageParameters:
    """Parameters of a stage on one rank, embedding and head included.

    With tied embeddings the last stage holds a copy of the embedding of its own, unless it has it anyway.
    """
    total = StageParameters(0.0, 0.0)
    kinds = model.kinds()
    for layer in range(stage.first, stage.first + stage.layers):
        total += layer_rank_parameters(model, layout, kinds[layer])
    shards = layout.tp if layout.vocabulary_over_tp else 1
    table = padded_vocab(model, layout) * (model.embedding_width or model.hidden) / shards
    tied = model.tied_embeddings and stage.embedding > 0 and stage.head > 0
    tables = max(stage.embedding, stage.head) if tied else stage.embedding + stage.head
    positions = model.position_rows * model.hidden * stage.embedding
    return total + StageParameters(tables * table + positions, 0.0)


def state_bytes(layout: Layout, parameters: StageParameters) -> StateBytes:
    """Weights, gradients and optimizer states of a rank's parameters under the layout's ZeRO stage."""
    numbers = layout.number_format
    twice = closest_framework(layout.framework).half_gradients and numbers.gradient_bytes > numbers.weight_bytes
    half = numbers.weight_bytes if twice else 0.0
    each = (numbers.weight_bytes, numbers.gradient_bytes + half, numbers.optimizer_bytes)
    sharded_from = (3, 2, 1)
    dense = _sharded(layout.zero_stage, layout.dp * layout.cp, each, sharded_from)
    experts = _sharded(layout.zero_stage, layout.expert_data, each, sharded_from)
    weights, gradients, optimizer = (
        parameters.dense * d + parameters.experts * e for d, e in zip(dense, experts, strict=True)
    )
    return StateBytes(weights, gradients, optimizer)


def _sharded(stage: int, replicas: int, each: tuple[float, ...], sharded_from: tuple[int, ...]) -> tuple[float, ...]:
    return tuple(size / replicas if stage >= least else size for size, least in zip(each, sharded_from, strict=True))


def stage_memory(model: Model, layout: Layout, stage: StageLayers) -> StageMemory:
    """States and activations of one stage on one rank."""
    states = state_bytes(layout, stage_parameters(model, layout, stage))
    activations = _gathered(model, layout, stage_activations(model, layout, stage))
    return StageMemory(states, activations)


def stage_activations(model: Model, layout: Layout, stage: StageLayers) -> ActivationBytes:
    """What one microbatch holds on one stage, embedding and head included."""
    kinds = model.kinds()
    recomputed = stage.layers if layout.recompute_layers is None else layout.recompute_layers
    total = NOTHING
    for index in range(stage.layers):
        kind = kinds[stage.first + index]
        total += layer_activations(model, layout, kind, recompute=index < recomputed)
    return total + _ends(model, layout, stage)


def _ends(model: Model, layout: Layout, stage: StageLayers) -> ActivationBytes:
    """Dropout mask of the embedding; final norm, logits and loss of the head (2205.05198, section 4.3).

    A vocabulary spread over stages works on two microbatches at a time (2411.05288), in step with the last
    stage: its logits do not wait for this stage's own backward.
    """
    own = layout.tokens * model.hidden / layout.sequence_shards
    numbers, framework = layout.number_format, closest_framework(layout.framework)
    embedding = own * stage.embedding if model.dropout else 0.0
    if not stage.head:
        return ActivationBytes(embedding, 0.0, 0.0)
    shards = layout.tp if layout.vocabulary_over_tp else 1
    logits = layout.tokens * padded_vocab(model, layout) * stage.head / shards
    inputs = (numbers.activation_bytes + numbers.matrix_input_bytes) * own
    if layout.vocabulary != "ends":
        return ActivationBytes(embedding, 0.0, 2 * (inputs + framework.logits_bytes * logits))
    stored = framework.stored_logits_bytes * logits
    kept = numbers.matrix_input_bytes * own + numbers.activation_bytes * logits
    return ActivationBytes(embedding + inputs + stored, kept, framework.logits_bytes * logits - stored)


def _gathered(model: Model, layout: Layout, activations: ActivationBytes) -> ActivationBytes:
    """With ZeRO-3 two layers' weights are whole at a time: the one at work and the one being fetched."""
    if layout.zero_stage < 3:
        return activations
    largest = max(
        parameters.dense + parameters.experts
        for parameters in (layer_rank_parameters(model, layout, kind) for kind in set(model.kinds()))
    )
    gathered = 2 * largest * layout.number_format.activation_bytes
    return replace(activations, working=activations.working + gathered)


def message_bytes(model: Model, layout: Layout) -> float:
    """Of one activation (or its gradient) from stage to stage, as one tensor-parallel rank sends it.

    With sequence parallelism each rank sends its own part; so it does without, in a framework that scatters.
    """
    scatters = closest_framework(layout.framework).scatters_messages
    parts = layout.tp if scatters else layout.sequence_shards
    return layout.number_format.activation_bytes * layout.tokens * model.hidden / parts


@dataclass(frozen=True)
class RankMemory:
    """Peak of one rank, in bytes."""

    states: StateBytes
    activations: float
    working: float
    buffers: float

    @property
    def allocated(self) -> float:
        """What the framework's allocator counts at its peak (torch.cuda.max_memory_allocated)."""
        return self.states.total + self.activations + self.working + self.buffers

    def on_device(self, framework: Framework) -> float:
        """With fragments, CUDA context and communication buffers: what must fit on the GPU."""
        return self.allocated * (1 + framework.fragments) + framework.overhead_bytes

    def reported(self, framework: Framework) -> float:
        """What a published figure of this framework counts."""
        return self.on_device(framework) if framework.reports == "device" else self.allocated


def rank_memory(stages: Sequence[StageMemory], in_flight: Sequence[float], *, message: float = 0.0) -> RankMemory:
    """Peak of a rank that holds `stages`, with so many microbatches of each in flight at the peak.

    `message` bytes are held twice for each direction: one being sent, one received.
    """
    states = StateBytes(
        sum(stage.states.weights for stage in stages),
        sum(stage.states.gradients for stage in stages),
        sum(stage.states.optimizer for stage in stages),
    )
    pairs = zip(stages, in_flight, strict=True)
    activations = sum(stage.activations.stored * count for stage, count in pairs)
    working = max((stage.activations.working for stage in stages), default=0.0)
    return RankMemory(states, activations, working, 2 * message)
