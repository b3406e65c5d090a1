"""A decoder's stages on this rank: built without memory, split over tp, filled with first or stored weights."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import nn

from pipesim.backends.execute.wiring import Tie
from pipesim.backends.model.config import DecoderConfig
from pipesim.backends.model.initial import initialize
from pipesim.backends.model.loss import spread_loss, token_loss
from pipesim.backends.model.stage import EMBEDDING, HEAD, DecoderStage, build_stage, stages_of
from pipesim.backends.parallel.places import Places, of_stages
from pipesim.backends.parallel.tensor import check_tensor_parallel, part_of, split_tensors
from pipesim.backends.stage import LossFunction
from pipesim.costs.layouts.layout import Layout

Fill = Callable[[Mapping[str, nn.Parameter]], None]
"""Writes values into a stage's weights, by their names in a checkpoint."""


def first_weights(config: DecoderConfig, seed: int) -> Fill:
    """Values that follow from the seed and the name."""
    return lambda weights: initialize(weights, seed=seed, std=config.init_std, part=part_of)


def decoder_stages(
    config: DecoderConfig,
    places: Places,
    stages: int,
    *,
    fill: Fill,
    dtype: torch.dtype = torch.float32,
    compute_dtype: torch.dtype | None = None,
    device: torch.device | None = None,
    gather_logits: bool = False,
) -> Callable[[int], DecoderStage]:
    """What makes a stage of the model on this rank. Raises BadLayout."""
    layout = of_stages(places.layout, stages)
    check_tensor_parallel(config.model, layout)
    held = stages_of(config, layout, stages)

    def build(stage: int) -> DecoderStage:
        made = build_stage(config, layout, held[stage], dtype)
        made.compute_in(compute_dtype)
        if layout.tp > 1:
            split_tensors(made, places.mesh["tp"], layout, gather_logits=gather_logits)
        made.to_empty(device=device or torch.device("cpu"))
        made.tie()  # `to_empty` makes two of one
        fill(made.weights())
        return made

    return build


def decoder_ties(config: DecoderConfig, layout: Layout, stages: int) -> Sequence[Tie]:
    """Embedding and head, where they are one weight on two stages."""
    held = stages_of(config, of_stages(layout, stages), stages)
    first = next(number for number, stage in enumerate(held) if stage.embedding)
    last = next(number for number, stage in enumerate(held) if stage.head)
    if not config.model.tied_embeddings or first == last:
        return ()
    return (((first, EMBEDDING), (last, HEAD)),)


def decoder_loss(places: Places) -> LossFunction:
    """Mean cross entropy of the next token."""
    return spread_loss(places.mesh["tp"]) if places.layout.tp > 1 else token_loss
