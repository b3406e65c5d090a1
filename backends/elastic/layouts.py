"""Which layout a job has on the processes that are left."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import log2
from typing import TypeVar

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
            "give one with --layout"
        )


def choose_layout(given: Sequence[Layout], processes: int, make: Callable[[Layout], Made]) -> tuple[Layout, Made]:
    """The first given layout for so many processes, or the one most like the first given that can be made.

    make: a job of a layout; raises a PipesimError where model, batch or schedule do not allow it.
    A given layout that fits the processes and cannot be made is an error of its own. Raises NoLayout.
    """
    for layout in given:
        if layout.gpus == processes:
            return layout, make(layout)
    tried, why = [], "none has that product"
    for layout in alike(given[0], processes):
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
        try:
            yield replace(layout, pp=pp, tp=tp, dp=dp, sequence_parallel=layout.sequence_parallel and tp > 1)
        except PipesimError:  # a batch that does not divide
            continue
