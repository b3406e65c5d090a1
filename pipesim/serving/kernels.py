"""How long the kernels of a serving step take on one GPU, apart from starting them.

A matrix product with few rows reads its weights and little else: bytes over the bandwidth a GPU reaches. With many
rows it takes what training's products take (`costs/times/compute.py`), in the precision in which the GPU multiplies.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, lru_cache

from pipesim.costs.catalog_files import read_catalogue
from pipesim.costs.clusters.cluster import Cluster
from pipesim.costs.clusters.fitted import derate
from pipesim.costs.clusters.gpu import Gpu
from pipesim.costs.communication.collectives import collective_seconds
from pipesim.costs.times.compute import Attention, attention_seconds, gemm_seconds
from pipesim.serving.engine import AllReduce, one_shot_latency
from pipesim.serving.formats import WeightFormat

TABLE_ROWS = 256
"""Fewest rows that the measured tables have."""
SMALL_TILE = 16
"""Rows of the smallest tile of a product: fewer take as long."""
ONE_SHOT_BYTES = 1 << 20
"""Largest array that one-shot kernels reduce."""
ACTIVATION_BYTES = 2.0
_ATTENTION_SHARE = 0.4
"""Of the 16-bit peak that attention of single tokens reaches where it is bound by compute."""


@dataclass(frozen=True, kw_only=True)
class Reached:
    """What kernels reach when serving: of the peak bandwidth, and of the rates in the short-burst tables."""

    memory: float
    products: float
    attention: float


@cache
def reached(gpu: Gpu) -> Reached:
    """Of a GPU: its own entry where it has one, else its architecture's, else the stand-in's."""
    table = read_catalogue("serving.yaml")["gpus"]
    entry = next(table[key] for key in (gpu.key, gpu.architecture, gpu.like) if key in table)
    return Reached(memory=entry["memory"], products=entry["products"], attention=entry["attention"])


def memory_rate(gpu: Gpu) -> float:
    """Bytes per second that kernels reach of the GPU's memory bandwidth."""
    return gpu.memory_bytes_per_s * reached(gpu).memory


@lru_cache(maxsize=1 << 18)
def product_seconds(
    gpu: Gpu,
    rows: float,
    columns: int,
    inner: int,
    *,
    weights: WeightFormat,
    count: float = 1.0,
    share: float = 1.0,
    converted_bytes: float = 0.0,
) -> float:
    """Time of `count` products (rows, inner) x (inner, columns) with stored weights, in one kernel.

    share: of the tables' rate, where there are as many rows as in the tables. converted_bytes: moved for each weight
    where another kernel converts them first.
    """  # fmt: skip
    if rows <= 0 or count <= 0:
        return 0.0
    numbers = count * float(columns) * inner
    stored = converted_bytes if weights.weight_only and converted_bytes else weights.weight_bytes
    moved = numbers * stored + count * rows * (columns + inner) * ACTIVATION_BYTES
    slower = share if rows >= TABLE_ROWS else 1.0
    return max(moved / memory_rate(gpu), count * _multiplied(gpu, rows, columns, inner, weights) / slower)


def _multiplied(gpu: Gpu, rows: float, columns: int, inner: int, weights: WeightFormat) -> float:
    """Time of one product where its multiplications take longest, without the start of its kernel."""
    unit, least = weights.multiplies_in(gpu), max(rows, TABLE_ROWS)
    burst = gemm_seconds(gpu, round(least), columns, inner, precision=unit) * derate(gpu).gemm - derate(gpu).floor_s
    return max(0.0, burst) / reached(gpu).products * max(rows, SMALL_TILE) / max(least, SMALL_TILE)


def prompt_seconds(
    gpu: Gpu,
    kind: Attention,
    *,
    batch: int,
    heads: int,
    new: int,
    before: int,
    width: int,
    value: int,
    window: int | None,
) -> float:
    """Attention of `batch` pieces of prompts: a query sees what was before and half of what is new."""
    seconds = attention_seconds(
        gpu, batch=batch, heads=heads, seq_q=new, seq_k=new + (2 * before if kind == "flash" else before),
        head_dim=width, value_dim=value, window=window, kind=kind,
    )  # fmt: skip
    return seconds * derate(gpu).attention / reached(gpu).attention if kind == "flash" else seconds


def context_seconds(gpu: Gpu, size_bytes: float, flops: float) -> float:
    """Time to attend to cached keys and values of `size_bytes`, single new tokens (one a sequence)."""
    return max(size_bytes / memory_rate(gpu), flops / (_ATTENTION_SHARE * gpu.peak("fp16")))


def all_reduce_seconds(cluster: Cluster, size_bytes: float, members: tuple[int, ...], *, kind: AllReduce) -> float:
    """Time of one all-reduce; with one-shot kernels in one node the faster of those and NCCL."""
    if len(members) <= 1 or size_bytes <= 0:
        return 0.0
    seconds = collective_seconds(cluster, "all_reduce", size_bytes, members)
    span = cluster.span(members)
    if kind == "nccl" or span.nodes > 1 or size_bytes > ONE_SHOT_BYTES:
        return seconds
    latency = one_shot_latency() * collective_seconds(cluster, "all_reduce", 512.0, members)
    others = (len(members) - 1) * size_bytes / span.node.link.reached_bytes_per_s
    return min(seconds, latency + others)
