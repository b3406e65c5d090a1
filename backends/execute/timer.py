"""Stamps of moments: the host's clock on a CPU, events on a GPU, which cost no synchronisation."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, Protocol

import torch


class Timer(Protocol):
    """Marks moments during a step; afterwards says when they were."""

    def start(self) -> None:
        """Begin a step."""
        ...

    def mark(self) -> Any:
        """This moment, for the work that was issued so far."""
        ...

    def nanoseconds(self, marks: Sequence[Any]) -> list[int]:
        """The moments on this process's `perf_counter_ns`; waits for the device once."""
        ...


class HostTimer:
    """`perf_counter_ns`, which all processes of one host share."""

    def start(self) -> None:
        """Nothing to do."""

    mark = staticmethod(time.perf_counter_ns)

    def nanoseconds(self, marks: Sequence[Any]) -> list[int]:
        return list(marks)


class CudaTimer:
    """Events on the current stream, taken from a pool, read once a step against an anchor."""

    def __init__(self) -> None:
        self._pool: list[torch.cuda.Event] = []
        self._used = 0
        self._anchor = _event()
        self._anchor_ns = 0

    def start(self) -> None:
        self._used = 0
        torch.cuda.synchronize()
        self._anchor.record()
        self._anchor.synchronize()
        self._anchor_ns = time.perf_counter_ns()

    def mark(self) -> torch.cuda.Event:
        if self._used == len(self._pool):
            self._pool.append(_event())
        event = self._pool[self._used]
        self._used += 1
        event.record()
        return event

    def nanoseconds(self, marks: Sequence[Any]) -> list[int]:
        torch.cuda.synchronize()
        return [self._anchor_ns + round(self._anchor.elapsed_time(mark) * 1e6) for mark in marks]


def _event() -> torch.cuda.Event:
    return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]


def timer_for(device: torch.device) -> Timer:
    """The timer of a device."""
    return CudaTimer() if device.type == "cuda" else HostTimer()
