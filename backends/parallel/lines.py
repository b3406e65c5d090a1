"""What a message of each dimension takes on the actual links: latency + bytes / bandwidth, measured."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
import torch.distributed as dist

from pipesim.backends.measure.links import fit_line
from pipesim.backends.parallel.places import Places

_SIZES = (1 << 10, 1 << 14, 1 << 18, 1 << 20)  # bytes
_ROUNDS = 7
_HALF = ("all-gather", "reduce-scatter")  # an all-reduce is one of each


@dataclass(frozen=True)
class Line:
    """Of an all-reduce among the members of a dimension, or of one message to the next pipeline rank."""

    latency_s: float
    bytes_per_s: float

    def seconds(self, operation: str, size_bytes: float) -> float:
        """Of one operation on so many bytes in whole."""
        share = 0.5 if operation in _HALF else 1.0
        return self.latency_s + share * size_bytes / self.bytes_per_s


def measure_lines(places: Places, device: torch.device) -> dict[str, Line]:
    """By dimension, where it has more than one member; all ranks call this and measure at the same time."""
    found: dict[str, Line] = {}
    for axis, word in (("tp", "tensor"), ("dp", "data")):
        group = places.group(axis)
        if group.size() > 1:
            found[word] = _line(partial(_sum, group), device)
    if places.layout.pp > 1:
        found["pipeline"] = _line(partial(_there_and_back, places), device, scale=0.5)
    return found


def _line(action: Callable[[torch.Tensor], object], device: torch.device, scale: float = 1.0) -> Line:
    seconds = []
    for size in _SIZES:
        data = torch.zeros(size // 4, device=device)
        dist.barrier()
        seconds.append(scale * _median(partial(action, data), device))
    return Line(*fit_line(_SIZES, seconds))


def _median(action: Callable[[], object], device: torch.device) -> float:
    times = []
    for _ in range(_ROUNDS):
        began = time.perf_counter()
        action()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        times.append(time.perf_counter() - began)
    return max(statistics.median(times[1:]), 1e-9)


def _sum(group: dist.ProcessGroup, data: torch.Tensor) -> None:
    dist.all_reduce(data, group=group)


def _there_and_back(places: Places, data: torch.Tensor) -> None:
    """Pairs of neighbours: an even pipeline rank sends first, the odd one after it answers."""
    mine = places.pp_rank
    other = mine + 1 if mine % 2 == 0 else mine - 1
    if other >= places.layout.pp:
        return
    peer = places.pipeline[other]
    if mine < other:
        dist.send(data, peer)
        dist.recv(data, peer)
    else:
        dist.recv(data, peer)
        dist.send(data, peer)
