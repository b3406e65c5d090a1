"""What differs between serving engines: kernels of a layer, host overhead, collectives, batching rules.

The numbers are in `costs/catalog/serving.yaml`; `benchmarks/fit/serving.py` fits the overheads.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Literal

from pipesim.costs.catalog_files import read_catalogue, unknown

AllReduce = Literal["nccl", "one-shot"]


@dataclass(frozen=True, kw_only=True)
class Engine:
    """One serving engine's habits. Times are seconds."""

    name: str
    kernels: int
    """Of one layer, without collectives."""
    graph: bool
    """Decode steps are captured in CUDA graphs."""
    layer_s: float
    step_s: float
    sequence_s: float
    """What the host adds to a layer, to a step, and to each sequence in a step."""
    all_reduce: AllReduce
    attention: Literal["flash", "fused-softmax", "unfused"]
    """Kernels of a prompt's attention."""
    products: float
    """Share of the measured tables' rate that long matrix products reach."""
    converted_bytes: float
    """Moved for each weight of a weight-only format that a kernel of its own converts; 0: converted in place."""
    cache_share: float
    """Of the memory that weights and buffers leave."""
    reserves: bool
    """Admits a request only when its whole output fits, so that nothing is ever preempted."""
    batch: int
    """Most sequences in one step."""
    tokens: int
    """Most new tokens in one step."""
    in_turn: bool
    """Pipeline stages run one after the other on one batch, never on several at once."""

    @property
    def kernel_s(self) -> float:
        """Start and end of a kernel of a decode step."""
        return kernel_seconds(graph=self.graph)


def kernel_seconds(*, graph: bool) -> float:
    """What a kernel takes beyond its bytes and products, in a CUDA graph or launched by itself."""
    return float(read_catalogue("serving.yaml")["kernel_us"]["graph" if graph else "launched"]) * 1e-6


def one_shot_latency() -> float:
    """Latency of a one-shot all-reduce over that of NCCL's smallest message."""
    return float(read_catalogue("serving.yaml")["one_shot_latency"])


@cache
def find_engine(name: str) -> Engine:
    """Engine of the catalogue by name. Raises UnknownName."""
    engines = read_catalogue("serving.yaml")["engines"]
    key = name.strip().lower()
    if key not in engines:
        raise unknown("serving engine", name, engines)
    entry = engines[key]
    return Engine(
        name=key,
        kernels=entry["kernels"],
        graph=entry["graph"],
        layer_s=entry["layer_us"] * 1e-6,
        step_s=entry["step_us"] * 1e-6,
        sequence_s=entry["sequence_us"] * 1e-6,
        all_reduce=entry["all_reduce"],
        attention=entry["attention"],
        products=entry.get("products", 1.0),
        converted_bytes=entry.get("converted_bytes", 0.0),
        cache_share=entry["cache_share"],
        reserves=entry["reserves"],
        batch=entry["batch"],
        tokens=entry["tokens"],
        in_turn=entry.get("in_turn", False),
    )


def closest_engine(text: str, *, default: str = "vllm") -> Engine:
    """The engine that a free text means: the longest of their words that is in it."""
    low = text.lower()
    engines = read_catalogue("serving.yaml")["engines"]
    found = [(len(word), name) for name, entry in engines.items() for word in entry["words"] if word in low]
    return find_engine(max(found)[1] if found else default)
