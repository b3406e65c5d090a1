"""Latency and bandwidth of the links between ranks: messages there and back, and collectives by size."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.distributed as dist

SIZES = (1 << 10, 1 << 14, 1 << 18, 1 << 20, 1 << 22)  # bytes
_ROUNDS = 12


@dataclass(frozen=True)
class LinkTimes:
    """Seconds of one message (half a round trip) and of an all-reduce over all ranks, by size in bytes."""

    send_s: dict[int, float]
    all_reduce_s: dict[int, float]

    def line(self) -> tuple[float, float]:
        """Latency in seconds and bandwidth in bytes/s of the line through the messages (least squares)."""
        return fit_line(list(self.send_s), list(self.send_s.values()))


def fit_line(sizes: Sequence[float], seconds: Sequence[float]) -> tuple[float, float]:
    """latency + bytes / bandwidth, each point weighted by 1/time² so that small messages count as large ones."""
    size, took = np.asarray(sizes, np.float64), np.asarray(seconds, np.float64)
    terms = np.stack([1 / took, size / took], axis=1)
    (latency, per_byte), *_ = np.linalg.lstsq(terms, np.ones(len(size)), rcond=None)
    return max(float(latency), 0.0), 1 / max(float(per_byte), 1e-15)


def measure_links(device: torch.device) -> LinkTimes:
    """Time ranks 0 and 1, and all together; every rank must call it. The same on all ranks."""
    sends: dict[int, float] = {}
    reductions: dict[int, float] = {}
    for size in SIZES if dist.get_world_size() > 1 else ():
        data = torch.zeros(size // 4, device=device)
        dist.barrier()
        sends[size] = _median(lambda data=data: _there_and_back(data)) / 2 if dist.get_rank() < 2 else 0.0
        dist.barrier()
        reductions[size] = _median(lambda data=data: _reduce(data))
    found = [LinkTimes(sends, reductions)]
    dist.broadcast_object_list(found, 0)
    return found[0]


def _median(action: object) -> float:
    assert callable(action)
    times = []
    for _ in range(_ROUNDS):
        begun = time.perf_counter()
        action()
        times.append(time.perf_counter() - begun)
    return statistics.median(times[2:])


def _there_and_back(data: torch.Tensor) -> None:
    other = 1 - dist.get_rank()
    answer = torch.empty_like(data)
    receive = dist.irecv(answer, other)
    assert receive is not None
    if dist.get_rank() == 0:
        dist.send(data, other)
        receive.wait()
    else:
        receive.wait()
        dist.send(data, other)
    if data.device.type == "cuda":
        torch.cuda.synchronize()


def _reduce(data: torch.Tensor) -> None:
    dist.all_reduce(data)
    if data.device.type == "cuda":
        torch.cuda.synchronize()
