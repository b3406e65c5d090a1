"""The unit-time grid that papers draw: a row a rank, a column a unit of time."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pipesim.costs.costs import Costs
from pipesim.engine.choose import simulate
from pipesim.errors import PipesimError
from pipesim.ir.action import Kind
from pipesim.ir.lower import lower
from pipesim.ir.schedule import Schedule
from pipesim.timeline import Timeline

UNITS = {Kind.F: 1, Kind.I: 1, Kind.W: 1, Kind.B: 2}
_IDLE, _GOES_ON = ".", "-"
_MOST_CELLS = 1_000_000


@dataclass(eq=False)
class TooLargeGrid(PipesimError):
    """A grid that nobody would read."""

    def __str__(self) -> str:
        return f"a grid of more than {_MOST_CELLS} cells is not drawn; fewer microbatches show the same pattern"


def grid(schedule: Schedule) -> str:
    """The run with F, I and W of one unit each, a full B of two, and messages that take no time.

    An action of several units is written in its first column, `-` in the others; idle units are dots.
    Raises Deadlock, TooLargeGrid.
    """
    if sum(UNITS.get(Kind(kind), 0) for kind in schedule.atoms.kind.tolist()) > _MOST_CELLS:
        raise TooLargeGrid
    run = unit_run(schedule)
    columns = round(run.makespan_s)
    if columns * schedule.ranks > _MOST_CELLS:
        raise TooLargeGrid
    cells = [[_IDLE] * columns for _ in range(schedule.ranks)]
    alone = schedule.placement.stages == schedule.ranks
    for box in run.boxes.tolist():
        row, start, end = cells[int(run.program.rank[box])], round(run.start[box]), round(run.end[box])
        texts = [run.label(box).split("&")[0], *("&" + text for text in run.label(box).split("&")[1:])]
        shown = [text.lstrip("0123456789") if alone else text for text in texts]
        row[start:end] = [*shown, *[_GOES_ON] * (end - start - len(shown))]
    return _lines(cells)


def unit_run(schedule: Schedule) -> Timeline:
    """The schedule run in unit times."""
    ones = np.ones(schedule.placement.stages)
    seconds = {kind: units * ones for kind, units in UNITS.items()}
    return simulate(lower(schedule), Costs(schedule.placement.stages, seconds))


def _lines(cells: list[list[str]]) -> str:
    width = max((len(text) for row in cells for text in row), default=1)
    label = len(str(len(cells) - 1))
    head = (
        " " * label
        + " "
        + " ".join(f"{time if time % 5 == 0 else '':<{width}}" for time in range(len(cells[0]) if cells else 0))
    )
    rows = [f"{rank:>{label}} " + " ".join(f"{text:<{width}}" for text in row) for rank, row in enumerate(cells)]
    return "\n".join(line.rstrip() for line in [head, *rows])
