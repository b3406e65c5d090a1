"""Which layout a job has on the processes that are left."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import log2
from typing import Any, TypeVar

import torch
import torch.distributed as dist

from pipesim.backends.parallel.places import short
from pipesim.costs.layouts.layout import Layout
from pipesim.errors import PipesimError

Made = TypeVar("Made")


@dataclass(eq=False)
class NoLayout(PipesimError):
    """No layout for so many processes."""

    processes: int
    tried: tuple[str, ...]
    why: str

    def __str__(self) -> str:
        return (
            f"no layout for {self.processes} processes among {', '.join(self.tried)} (the last: {self.why}): "
            "give one with --fallback"
        )


def choose_layout(
    given: Sequence[Layout], others: Iterable[Layout], processes: int, make: Callable[[Layout], Made]
) -> tuple[Layout, Made]:
    """The first given layout for so many processes, or the first other one that can be made.

    make: a job of a layout; raises a PipesimError where model, batch or schedule do not allow it.
    A given layout that fits the processes and cannot be made is an error of its own. Raises NoLayout.
    """
    for layout in given:
        if layout.gpus == processes:
            return layout, make(layout)
    tried, why = [], "none has that product"
    for layout in others:
        tried.append(short(layout))
        try:
            return layout, make(layout)
        except PipesimError as error:
            why = str(error)
    raise NoLayout(processes, tuple(tried[:8]), why)


def alike(layout: Layout, processes: int) -> Iterator[Layout]:
    """Layouts of pp, tp and dp for so many processes, the most like the given one first."""
    found = []
    for pp in range(1, processes + 1):
        for tp in range(1, processes // pp + 1):
            if processes % (pp * tp) == 0:
                dp = processes // (pp * tp)
                changed = (pp != layout.pp) + (tp != layout.tp) + (dp != layout.dp)
                far = abs(log2(pp / layout.pp)) + abs(log2(tp / layout.tp))
                found.append((changed, far, pp, tp, dp))
    for _, _, pp, tp, dp in sorted(found):
        counted = not isinstance(layout.split, str) and pp != layout.pp  # layers of another number of stages
        split = "balanced" if counted else layout.split
        sequence_parallel = layout.sequence_parallel and tp > 1
        try:
            yield replace(layout, pp=pp, tp=tp, dp=dp, split=split, sequence_parallel=sequence_parallel)
        except PipesimError:  # a batch that does not divide
            continue


def agreed(make: Callable[[], Made]) -> Made:
    """What rank 0 makes, on all ranks: a choice by simulated times may fall another way on another machine.

    Raises what `make` raises, on all ranks.
    """
    said: list[Any] = [None, None]
    if dist.get_rank() == 0:
        try:
            said[0] = make()
        except PipesimError as error:
            said[1] = error
    dist.broadcast_object_list(said)
    if said[1] is not None:
        raise said[1]
    made: Made = said[0]
    return made


def gpu_name(device: torch.device) -> str | None:
    """What this process's GPU is called; None on a CPU."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else None
