"""What one step of one pipeline stage takes: new tokens of decoding sequences and of prompts, together.

A step is priced as a sum: a table over the number of new tokens (matrix products, collectives, elementwise work and
the start of kernels), a table over the number of rows that the output layer sees, the cached tokens that decoding
sequences read, and the attention of each piece of a prompt.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from pipesim.costs.clusters.cluster import Cluster
from pipesim.costs.clusters.gpu import Gpu
from pipesim.costs.layouts.flops import gemms, padded_vocab
from pipesim.costs.layouts.layout import Layout
from pipesim.costs.layouts.split import StageLayers
from pipesim.costs.models.model import LayerKind, Model
from pipesim.serving.engine import Engine
from pipesim.serving.formats import WEIGHTS, WeightFormat
from pipesim.serving.kernels import (
    ACTIVATION_BYTES,
    all_reduce_seconds,
    context_seconds,
    memory_rate,
    product_seconds,
    prompt_seconds,
)

Floats = NDArray[np.float64]
_STEP = 1.08  # between the points at which tables are computed
_ROUND = 16  # pieces of prompts are priced to so many tokens


@dataclass(frozen=True, kw_only=True, eq=False)
class Place:
    """Where a stage runs and how: one rank of it stands for all."""

    cluster: Cluster
    devices: tuple[int, ...]
    """Of its tensor-parallel ranks."""
    weights: WeightFormat
    cache_bytes: float
    """Of one cached number."""
    engine: Engine

    @property
    def gpu(self) -> Gpu:
        """The GPU of its ranks."""
        return self.cluster.gpu_of(self.devices[0])

    @property
    def tp(self) -> int:
        """Tensor-parallel degree."""
        return len(self.devices)


@dataclass(frozen=True, kw_only=True, eq=False)
class StageCosts:
    """Prices of one stage. Arrays are indexed by a count, from 0 to the largest that a step may have."""

    tokens_s: Floats
    """Of a step with so many new tokens, in a CUDA graph where the engine captures decode steps."""
    comm_s: Floats
    """The part of it that is tensor-parallel communication."""
    rows_s: Floats
    """Of output layer and sampling, for so many sequences; zeros where the stage has no output layer."""
    cached_s: float
    """Of one cached token that a decoding sequence reads, in layers that attend to everything."""
    windows: tuple[tuple[int, float], ...]
    """Windows of the other layers, and seconds of one cached token in them."""
    prompts: tuple[tuple[int, int, int, int | None], ...]
    """Attention of prompts: layers, query heads, head width, window."""
    value_dim: int
    place: Place

    def seconds(
        self,
        *,
        tokens: int,
        sequences: int = 0,
        cached: float = 0.0,
        rows: int = 0,
        pieces: Sequence[tuple[int, int]] = (),
    ) -> float:
        """Time of a step of `tokens` new tokens.

        sequences: those that decode, one token each. cached: tokens in their caches together. rows: sequences whose
        next token is sampled. pieces: (tokens before, new tokens) of each piece of a prompt.
        """  # fmt: skip
        time = self.tokens_s[tokens] + self.rows_s[rows] + cached * self.cached_s
        if sequences:
            for window, each in self.windows:
                time += min(cached, sequences * window) * each
        if pieces:  # one kernel for all of them: they share the GPU as a batch does
            batch = 1 << (len(pieces) - 1).bit_length()
            for before, new in pieces:
                time += self.prompt_seconds(before, new, batch) / batch
        return float(time)

    def prompt_seconds(self, before: int, new: int, batch: int = 1) -> float:
        """Attention of `batch` pieces of prompts of equal length."""
        total = 0.0
        for layers, heads, width, window in self.prompts:
            total += layers * _prompt(
                self.place.gpu, self.place.engine.attention, batch=batch, heads=heads, new=_rounded(new),
                before=_rounded(before), width=width, value=self.value_dim, window=window,
            )  # fmt: skip
        return total


def _rounded(tokens: int) -> int:
    return tokens if tokens < _ROUND else -(-tokens // _ROUND) * _ROUND


_prompt = lru_cache(maxsize=1 << 16)(prompt_seconds)


def stage_costs(model: Model, stage: StageLayers, place: Place, *, most_tokens: int, most_rows: int) -> StageCosts:
    """Prices of the layers of one stage for steps of at most so many new tokens and sampled sequences."""
    kinds = Counter(model.kinds()[stage.first : stage.first + stage.layers])
    points = _points(most_tokens)
    tables = [_layers_at(model, kinds, place, stage, int(point)) for point in points]
    every = np.arange(most_tokens + 1)
    engine = place.engine
    starts = stage.layers * (engine.kernels * engine.kernel_s + engine.layer_s)
    tokens_s = np.interp(every, points, [work + comm for work, comm in tables]) + starts
    comm_s = np.interp(every, points, [comm for _, comm in tables])
    windows = Counter[int]()
    for kind, count in kinds.items():
        if kind.window is not None:
            windows[kind.window] += count
    cached = _cached_seconds(model, place)
    return StageCosts(
        tokens_s=tokens_s,
        comm_s=comm_s,
        rows_s=_rows(model, stage, place, most_rows),
        cached_s=cached * sum(count for kind, count in kinds.items() if kind.window is None),
        windows=tuple((window, cached * count) for window, count in windows.items()),
        prompts=_prompts(model, kinds, place.tp),
        value_dim=model.latent.value_dim if model.latent else model.head_dim,
        place=place,
    )


def _points(most: int) -> Floats:
    """Counts at which a table is computed: all small ones, then a factor apart."""
    points, value = [1.0], 1.0
    while value < most:
        value = min(float(most), max(value + 1, round(value * _STEP)))
        points.append(value)
    return np.array(points)


def _layers_at(
    model: Model, kinds: Counter[LayerKind], place: Place, stage: StageLayers, tokens: int
) -> tuple[float, float]:
    """Seconds of all layers without attention, and of their collectives, for so many new tokens."""
    work = sum(count * _layer(model, kind, place, tokens) for kind, count in kinds.items())
    size = tokens * model.hidden * ACTIVATION_BYTES
    once = all_reduce_seconds(place.cluster, size, place.devices, kind=place.engine.all_reduce)
    return work, once * (2 * sum(kinds.values()) + (stage.embedding > 0))


def _layer(model: Model, kind: LayerKind, place: Place, tokens: int) -> float:
    """Matrix products and elementwise work of one layer."""
    total, experts, engine = 0.0, model.experts, place.engine
    for gemm in gemms(model, Layout(tp=place.tp, seq=tokens), kind):
        rows, count = float(gemm.m), float(gemm.count)
        if kind.mixture and experts is not None and gemm.name.startswith("expert"):
            count = experts.count * (1 - (1 - experts.per_token / experts.count) ** tokens)
            rows = tokens * experts.per_token / count
        total += product_seconds(
            place.gpu, rows, gemm.n, gemm.k, weights=place.weights, count=count,
            share=engine.products, converted_bytes=engine.converted_bytes,
        )  # fmt: skip
    return total + tokens * _moved(model, kind, place.tp) / memory_rate(place.gpu)


def _moved(model: Model, kind: LayerKind, tp: int) -> float:
    """Bytes per token of norms with residuals (read two, write two), rotary and activation function."""
    ffn = model.ffn if not kind.mixture or model.experts is None else model.experts.ffn * model.experts.per_token
    heads = model.query_width + 2 * model.key_value_width
    norms = 4 * model.norms_per_layer * model.hidden
    return ACTIVATION_BYTES * (norms + 2 * heads / tp + (3 if model.gated_mlp else 2) * ffn / tp)


def _cached_seconds(model: Model, place: Place) -> float:
    """Of one cached token in one layer on one rank."""
    latent, heads = model.latent, model.heads // place.tp
    if latent is None:
        size = 2 * max(1, model.kv_heads // place.tp) * model.head_dim * place.cache_bytes
        return context_seconds(place.gpu, size, 4.0 * heads * model.head_dim)
    width = latent.key_value_rank + latent.rope_dim  # one for all heads, kept by every rank
    return context_seconds(place.gpu, width * place.cache_bytes, 2.0 * heads * (width + latent.key_value_rank))


def _prompts(model: Model, kinds: Counter[LayerKind], tp: int) -> tuple[tuple[int, int, int, int | None], ...]:
    width = model.latent.nope_dim + model.latent.rope_dim if model.latent else model.head_dim
    windows: Counter[int | None] = Counter()
    for kind, count in kinds.items():
        windows[kind.window] += count
    return tuple((count, model.heads // tp, width, window) for window, count in windows.items())


def _rows(model: Model, stage: StageLayers, place: Place, most: int) -> Floats:
    """Output layer in 16 bits, logits gathered, read and written in fp32, and what the host does a sequence."""
    if not stage.head:
        return np.zeros(most + 1)
    columns = padded_vocab(model, Layout(tp=place.tp)) // place.tp
    points = _points(most)
    rate = memory_rate(place.gpu)
    values = [
        product_seconds(place.gpu, float(rows), columns, model.hidden, weights=WEIGHTS["bf16"])
        + rows * model.vocab * 16.0 / rate
        + rows * place.engine.sequence_s
        for rows in points
    ]
    table: Floats = np.interp(np.arange(most + 1), points, values) + place.engine.step_s
    table[0] = place.engine.step_s
    return table
