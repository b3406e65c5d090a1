"""Fitted parameters, from `catalog/fitted.yaml`: what hardware reaches of what it promises."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from pipesim.costs.catalog_files import read_catalogue, unknown
from pipesim.costs.clusters.gpu import Gpu


@dataclass(frozen=True, kw_only=True)
class Derate:
    """What kernels of one GPU reach in a training step."""

    gemm: float
    """Rate of matrix products over the short-burst tables'."""
    narrow: float
    """The same in 8 and 4 bits."""
    attention: float
    """The same for fused attention."""
    memory: float
    """Share of the peak memory bandwidth."""
    floor_s: float
    """The shortest kernel, seconds."""

    def of_products(self, precision: str) -> float:
        """`gemm`, or `narrow` in 8 and 4 bits."""
        return self.narrow if precision in ("fp8", "fp4") else self.gemm


@dataclass(frozen=True, kw_only=True)
class Fabric:
    """What messages reach on one kind of link."""

    kind: str
    latency_s: float
    """Of one send/recv, seconds."""
    efficiency: float
    """Share of the bandwidth that a long send/recv reaches."""
    bus: float
    """Factor on the bus bandwidth in NCCL's model of collectives."""
    hops: float
    """Factor on the latencies of network hops in NCCL's model."""


@cache
def derate(gpu: Gpu) -> Derate:
    """Derates of a GPU: its own entry where it has one, else its architecture's, else the stand-in's."""
    table = read_catalogue("fitted.yaml")["gpus"]
    entry = next(table[key] for key in (gpu.key, gpu.architecture, gpu.like) if key in table)
    return Derate(
        gemm=entry["gemm"],
        narrow=entry.get("narrow", entry["gemm"]),
        attention=entry["attention"],
        memory=entry["memory"],
        floor_s=entry["floor_us"] * 1e-6,
    )


@cache
def fabric(kind: str) -> Fabric:
    """Parameters of one kind of link: "nvlink4", "infiniband", "efa", …"""
    table = read_catalogue("fitted.yaml")["fabrics"]
    if kind not in table:
        raise unknown("kind of link", kind, table)
    entry = table[kind]
    return Fabric(
        kind=kind,
        latency_s=entry["latency_us"] * 1e-6,
        efficiency=entry["efficiency"],
        bus=entry["bus"],
        hops=entry["hops"],
    )


def fabric_kinds() -> tuple[str, ...]:
    """Kinds of link that have parameters."""
    return tuple(read_catalogue("fitted.yaml")["fabrics"])


@cache
def slowdown_in_step(kind: str) -> float:
    """Time of a tensor-parallel collective in a training step over that alone, by kind of link in the node."""
    table = read_catalogue("fitted.yaml")["collectives"]["in_step"]
    return float(table.get(kind, table["other"]))


@cache
def loss_share() -> float:
    """Bytes that loss kernels move, of those that their code counts up to."""
    return float(read_catalogue("fitted.yaml")["loss"]["share"])
