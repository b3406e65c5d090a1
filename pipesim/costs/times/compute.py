"""How long a GPU's kernels take: matrix products, attention, and work bound by memory.

A matrix product takes its roofline time times a measured ratio: the ratio is interpolated (log-log, in m, n and
k) in a table of measured times of that GPU, or of the nearest architecture that has one, so tile and wave
quantisation, split-k and the rest of what a library does are in it. What a table measures in a short burst is
divided by the share of it that a GPU sustains (`catalog/fitted.yaml`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Literal, NamedTuple

from pipesim.costs.catalog_files import KERNELS, read_catalogue
from pipesim.costs.clusters.fitted import derate
from pipesim.costs.clusters.gpu import Gpu, find_gpu, precision_name
from pipesim.costs.kernel_tables import Grid, grid, read_table

Attention = Literal["flash", "flash1", "flash2", "triton", "fused-softmax", "unfused", "torch"]
"""A fused kernel (the vendor's best, or an older one), or separate kernels: softmax and mask in one, in three, or in
as many as plain torch code takes with its softmax in fp32."""
Direction = Literal["forward", "backward"]

TILE = 128
"""Rows and columns that a thread block computes at once; a partial tile costs a whole one."""

_BYTES = {"fp32": 4.0, "tf32": 4.0, "fp16": 2.0, "bf16": 2.0, "fp8": 1.0, "fp4": 0.5}
_MEASURED = {"ampere": "a100", "hopper": "h100", "blackwell": "b200", "ada": "l40s"}
_OWN = {"h200-sxm": "h200", "gb200": "gb200", "gb300": "gb200"}
_REFERENCE = {
    "a100": "a100-sxm", "h100": "h100-sxm", "h200": "h200-sxm", "b200": "b200-sxm", "gb200": "gb200", "l40s": "l40s"
}  # fmt: skip


@lru_cache(maxsize=1 << 17)
def gemm_seconds(
    gpu: Gpu, m: int, n: int, k: int, *, precision: str = "bf16", batch: int = 1, accumulate: bool = False
) -> float:
    """Time of `batch` products (m, k) x (k, n) in one kernel, operands in `precision`.

    `accumulate` adds the result to an fp32 matrix, as a weight gradient does.
    """
    if min(m, n, k, batch) <= 0:
        return 0.0
    name = precision_name(precision)
    reached = derate(gpu)
    product = _Product(_tiles(m), _tiles(n), k, batch, _BYTES[name], accumulate)
    seconds = _roofline(product, gpu.peak(name), gpu.memory_bytes_per_s, reached.floor_s)
    if accumulate:
        seconds /= read_catalogue("fitted.yaml")["weight_gradient"]["rate"]
    return seconds * _gemm_ratio(gpu, name, m * batch, n, k) / reached.of_products(name)


@lru_cache(maxsize=1 << 16)
def attention_seconds(
    gpu: Gpu,
    *,
    batch: int,
    heads: int,
    seq_q: int,
    seq_k: int,
    head_dim: int,
    value_dim: int | None = None,
    causal: bool = True,
    window: int | None = None,
    kind: Attention = "flash",
    direction: Direction = "forward",
    dropout: bool = False,
    precision: str = "fp16",
) -> float:
    """Time of attention over `heads` query heads of one device.

    Causal with seq_q < seq_k is one device's balanced share of a longer sequence (context parallelism): a query
    sees half of the keys on average. `window` is the number of keys a query sees at most. `precision` is that of
    separate products; a fused kernel runs in 16 bits, bf16 and fp16 at one rate.
    """
    rows = batch * heads * seq_q
    if rows <= 0 or seq_k <= 0:
        return 0.0
    keys = keys_per_query(seq_k, causal=causal, window=window)
    dims = head_dim + (value_dim or head_dim)
    if kind in _SOFTMAX:
        return _separate(gpu, batch * heads, (seq_q, seq_k, head_dim), kind, direction, dropout, precision)
    flops = 2.0 * rows * keys * dims
    table = read_catalogue("fitted.yaml")["attention"]
    rate = _attention_rate(gpu, rows, keys, dims / 2) * derate(gpu).attention * table["kinds"][kind].get(gpu.like, 1.0)
    if direction == "backward":
        flops, rate = flops * table["backward_flops"], rate * table["backward_rate"]
    return max(derate(gpu).floor_s, float(flops / rate))


@lru_cache(maxsize=1 << 16)
def memory_seconds(gpu: Gpu, size_bytes: float, *, kernels: int = 1) -> float:
    """Time of kernels that read and write `size_bytes` together and compute little."""
    if size_bytes <= 0:
        return 0.0
    reached = derate(gpu)
    return kernels * reached.floor_s + size_bytes / (gpu.memory_bytes_per_s * reached.memory)


def keys_per_query(seq_k: int, *, causal: bool, window: int | None = None) -> float:
    """Keys that a query sees on average: all, half of them, or at most `window`."""
    if not causal:
        return float(min(seq_k, window or seq_k))
    if window is None or window >= seq_k:
        return seq_k / 2
    return window - window * window / (2 * seq_k)


@cache
def kernel_table(gpu: Gpu, precision: str = "bf16") -> str:
    """Name of the measured table that prices this GPU's products: "gemm_h100_bf16"."""
    measured = _measured(gpu)
    name = f"gemm_{measured}_{'fp8' if precision_name(precision) in ('fp8', 'fp4') else 'bf16'}"
    return name if (KERNELS / f"{name}.csv").exists() else f"gemm_{measured}_bf16"


def _measured(gpu: Gpu) -> str:
    return _OWN.get(gpu.key) or _MEASURED[gpu.like]


def _tiles(size: int) -> int:
    return -(-size // TILE) * TILE


class _Product(NamedTuple):
    """So many products (m, k) x (k, n) in one kernel, `width` bytes an operand."""

    m: int
    n: int
    k: int
    batch: int
    width: float
    accumulate: bool


def _roofline(product: _Product, peak: float, memory: float, floor: float) -> float:
    m, n, k, batch, width, accumulate = product
    written = 8.0 if accumulate else max(width, 2.0)  # read and write fp32; fp8 products give bf16
    size = batch * (width * (m * k + n * k) + written * m * n)
    return floor + max(2.0 * batch * m * n * k / peak, size / memory)


@lru_cache(maxsize=1 << 16)
def _gemm_ratio(gpu: Gpu, precision: str, m: int, n: int, k: int) -> float:
    return _gemm_grid(kernel_table(gpu, precision)).at(m, n, k)


@cache
def _gemm_grid(name: str) -> Grid:
    _, measured, precision = name.split("_")
    gpu = find_gpu(_REFERENCE[measured])
    peak, memory, floor, width = gpu.peak(precision), gpu.memory_bytes_per_s, derate(gpu).floor_s, _BYTES[precision]
    return grid(read_table(name), lambda m, n, k: _roofline(_Product(m, n, k, 1, width, False), peak, memory, floor))


def _attention_rate(gpu: Gpu, rows: float, keys: float, dim: float) -> float:
    """FLOP/s of the causal problem with as many query rows and as many keys per query."""
    seq = 2.0 * keys
    measured = _measured(gpu).replace("gb200", "b200")  # the same chip; only the B200 was measured
    reference = find_gpu(_REFERENCE[measured])
    return _attention_grid(measured).at(dim, seq, rows / seq) * gpu.peak("fp16") / reference.peak("fp16")


@cache
def _attention_grid(measured: str) -> Grid:
    times = grid(
        read_table(f"attention_{measured}_bf16"), lambda dim, seq, heads: 2.0 * heads * seq * seq * dim, extend=True
    )
    return Grid(times.axes, tuple(-value for value in times.logs))


_SOFTMAX = {"fused-softmax": (4.0, 6.0, 1), "unfused": (12.0, 14.0, 3), "torch": (26.0, 38.0, 5)}
"""Bytes an element of the scores that scale, mask and softmax move forward and backward in 16 bits; kernels."""


def _separate(
    gpu: Gpu,
    matrices: int,
    shape: tuple[int, int, int],
    kind: Attention,
    direction: Direction,
    dropout: bool,
    precision: str,
) -> float:
    """Scores, softmax (with dropout) and context as separate kernels over the whole square, causal or not."""
    seq_q, seq_k, dim = shape
    forward_bytes, backward_bytes, kernels = _SOFTMAX[kind]
    products = [(seq_q, seq_k, dim), (seq_q, dim, seq_k)]
    moved = forward_bytes
    if direction == "backward":
        products += [(seq_k, dim, seq_q), (seq_k, dim, seq_q)]
        moved = backward_bytes
    if dropout:  # reads and writes 2 bytes, and a mask of 1
        moved, kernels = moved + 5.0, kernels + 1
    return memory_seconds(gpu, moved * matrices * seq_q * seq_k, kernels=kernels) + math.fsum(
        gemm_seconds(gpu, m, n, k, precision=precision, batch=matrices) for m, n, k in products
    )


@dataclass(frozen=True, kw_only=True)
class Kernels:
    """How a GPU's products are priced, for the catalogue."""

    table: str
    measured_on: str


def kernels(gpu: Gpu) -> Kernels:
    """Which table prices a GPU and which GPU it was measured on."""
    return Kernels(table=kernel_table(gpu), measured_on=find_gpu(_REFERENCE[_measured(gpu)]).name)
