"""Which layers each stage holds: rules that frameworks use, and the exact best balance."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from pipesim.costs.layouts.flops import head_flops_per_token, layer_flops_per_token
from pipesim.costs.layouts.layout import ENDS_ARE_LAYERS, BadLayout, Layout
from pipesim.costs.models.model import Model

Counts = tuple[int, ...]


@dataclass(frozen=True)
class StageLayers:
    """What one stage of the model holds."""

    first: int
    """Number of its first layer."""
    layers: int
    embedding: float = 0.0
    """Share of the token embedding: 1 on the stage that holds it whole."""
    head: float = 0.0
    """Share of the output layer and loss."""


@dataclass(frozen=True)
class SplitCosts:
    """What each layer costs, in any unit, for the rules that balance."""

    layers: tuple[float, ...]
    embedding: float = 0.0
    head: float = 0.0

    def whole(self) -> list[float]:
        """Cost of each layer, with the embedding's on the first one, and of the head as one more piece, if any."""
        costs = list(self.layers)
        costs[0] += self.embedding
        return [*costs, self.head] if self.head else costs


@lru_cache(maxsize=65536)
def split_layers(model: Model, layout: Layout, costs: SplitCosts | None = None) -> tuple[StageLayers, ...]:
    """Layers of each stage of the model, in model order, by `layout.split`.

    `costs` are for the rule "balanced"; without them FLOPs are balanced.
    """
    counts = layers_per_stage(model, layout, costs)
    ends = np.concatenate([[0], np.cumsum(counts)])
    last = len(counts) - 1
    if layout.split == "cost-threshold":
        last = by_threshold(costs or nanotron_costs(model), layout.stages)[1]
    spread = 1 / len(counts) if layout.vocabulary != "ends" else None
    return tuple(
        StageLayers(
            first=int(ends[stage]),
            layers=count,
            embedding=spread if spread is not None else float(stage == 0),
            head=spread if spread is not None else float(stage == last),
        )
        for stage, count in enumerate(counts)
    )


def layers_per_stage(model: Model, layout: Layout, costs: SplitCosts | None = None) -> Counts:
    """Number of layers of each stage."""
    layout.check_model(model)
    rule, stages = layout.split, layout.stages
    if isinstance(rule, tuple):
        return rule
    if rule == "even":
        return even(model.layers, stages)
    if rule in ENDS_ARE_LAYERS:
        return ends_count_as_layers(model.layers, stages)
    if costs is not None and len(costs.layers) != model.layers:
        raise BadLayout(f"{len(costs.layers)} layer costs for {model.layers} layers", f"give {model.layers} numbers")
    if rule == "cost-threshold":
        return by_threshold(costs or nanotron_costs(model), stages)[0]
    whole = (costs or flops_costs(model, layout)).whole()
    counts = balanced(whole, stages)
    return (*counts[:-1], counts[-1] - len(whole) + model.layers)  # the last stage may hold the head alone


def even(layers: int, stages: int) -> Counts:
    """As equal as can be; what remains goes one each to the first stages (DeepSpeed's uniform partition)."""
    share, rest = divmod(layers, stages)
    return tuple(share + (stage < rest) for stage in range(stages))


def ends_count_as_layers(layers: int, stages: int) -> Counts:
    """Embedding and output layer count as a layer each, so that first and last stage hold one fewer.

    The zero-bubble paper's layers = k · stages − 2 (2401.10241), Llama 3's 126 layers on 128 places
    (2407.21783), Megatron-LM's `--account-for-embedding-in-pipeline-split` with `-loss-`, and DeepSpeed's
    partition "type:transformer|embedding" with tied embeddings.
    """
    if stages == 1:
        return (layers,)
    counts = list(even(layers + 2, stages))
    counts[0] -= 1
    counts[-1] -= 1
    return tuple(counts)


def balanced(costs: Sequence[float], stages: int) -> Counts:
    """The contiguous split whose slowest stage is fastest; of those the one most even (least sum of squares).

    Exact, by dynamic programming over (stage, layers so far); each stage holds at least one.
    """
    layers = len(costs)
    if stages > layers:
        raise BadLayout(f"{layers} layers cannot fill {stages} stages", f"at most {layers} stages work")
    before = np.concatenate([[0.0], np.cumsum(np.asarray(costs, dtype=float))])
    work = before[None, :] - before[:, None]  # [start, end]
    work[np.tril_indices(layers + 1)] = np.inf
    slowest = work[0].copy()
    for _ in range(stages - 1):
        slowest = np.maximum(slowest[:, None], work).min(axis=0)
    limit = slowest[layers] * (1 + 1e-12)
    squares = np.where(work <= limit, work, np.inf) ** 2
    best, choices = squares[0].copy(), []
    for _ in range(stages - 1):
        total = best[:, None] + squares
        choices.append(total.argmin(axis=0))
        best = total.min(axis=0)
    return _counts_of(choices, layers)


def _counts_of(choices: list[np.ndarray[tuple[int, ...], np.dtype[np.intp]]], layers: int) -> Counts:
    counts, end = [], layers
    for choice in reversed(choices):
        start = int(choice[end])
        counts.append(end - start)
        end = start
    return (*[end], *counts[::-1])


def by_threshold(costs: SplitCosts, stages: int) -> tuple[Counts, int]:
    """Fill a stage until the cost so far reaches its share of the total, as nanotron does (models/base.py).

    The block that reaches a threshold stays on its stage, so the last stages may hold few layers or none.
    Returns layers per stage and the stage of the output layer, which is a block of its own.
    """
    total = sum(costs.layers) + costs.head
    counts, so_far, stage = [0] * stages, 0.0, 0
    for cost in costs.layers:
        so_far += cost
        counts[stage] += 1
        if so_far >= total * (stage + 1) / stages and stage < stages - 1:
            stage += 1
    return tuple(counts), stage


def nanotron_costs(model: Model) -> SplitCosts:
    """nanotron's own block costs: weights of attention (as if not grouped) and MLP, and of the head."""
    layer = model.hidden * (4 * model.heads * model.head_dim + 3 * model.ffn)
    return SplitCosts((float(layer),) * model.layers, 0.0, float(model.vocab * model.hidden))


def flops_costs(model: Model, layout: Layout) -> SplitCosts:
    """FLOPs of each layer and, where it is on the last stage, of the head."""
    layers = tuple(layer_flops_per_token(model, kind, layout.seq) for kind in model.kinds())
    head = float(head_flops_per_token(model)) if layout.vocabulary == "ends" else 0.0
    return SplitCosts(layers, 0.0, head)


def split_note(model: Model, layout: Layout) -> str | None:
    """A sentence when stages hold different numbers of layers, for reports; None when all are equal."""
    counts = layers_per_stage(model, layout)
    if len(set(counts)) == 1:
        return None
    rule = layout.split if isinstance(layout.split, str) else "given"
    return f"{model.layers} layers on {len(counts)} stages are uneven ({rule}): {', '.join(map(str, counts))}"
