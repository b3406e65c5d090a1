"""Offsets between the clocks of ranks, by ping-pong.

The processes of one host share `perf_counter_ns`, so among them the offset is within the error of the
measurement and is taken as 0; between hosts it can be anything.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Sequence

import torch
import torch.distributed as dist

Clock = Callable[[], int]
ROUNDS = 20


def clock_offset_ns(*, clock: Clock = time.perf_counter_ns, rounds: int = ROUNDS, same_host: bool = True) -> int:
    """Nanoseconds to add to this rank's clock to have rank 0's; every rank must call it.

    same_host: take clocks of processes on one host for one clock.
    """
    hosts: list[str] = [""] * dist.get_world_size()
    dist.all_gather_object(hosts, socket.gethostname())
    offset = 0
    for rank in range(1, dist.get_world_size()):
        if same_host and hosts[rank] == hosts[0]:
            continue
        if dist.get_rank() == 0:
            _answer(rank, clock, rounds)
        elif dist.get_rank() == rank:
            offset = estimate_offset(_ask(clock, rounds))
    return offset


def estimate_offset(samples: Sequence[tuple[int, int, int]]) -> int:
    """Offset from (asked at, answered at on the other clock, heard at): that of the quickest round trip.

    The answer was given between the asking and the hearing; half-way is off by at most half the round trip
    (Cristian 1989).
    """
    asked, answered, heard = min(samples, key=lambda sample: sample[2] - sample[0])
    return answered - (asked + heard) // 2


def _device() -> torch.device:
    return torch.device("cuda" if dist.get_backend() == "nccl" else "cpu")


def _ask(clock: Clock, rounds: int) -> list[tuple[int, int, int]]:
    message = torch.zeros(1, dtype=torch.int64, device=_device())
    samples = []
    for _ in range(rounds):
        asked = clock()
        dist.send(message, 0)
        dist.recv(message, 0)
        answered = int(message.item())
        samples.append((asked, answered, clock()))
    return samples


def _answer(rank: int, clock: Clock, rounds: int) -> None:
    message = torch.zeros(1, dtype=torch.int64, device=_device())
    for _ in range(rounds):
        dist.recv(message, rank)
        message.fill_(clock())
        dist.send(message, rank)
