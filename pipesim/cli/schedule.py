"""`pipesim schedule NAME`: the per-rank orders, as text, grid, JSON or file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from pipesim.cli.options.outputs import Json
from pipesim.cli.options.schedule import Name, ScheduleOptions, schedule_from_options
from pipesim.errors import PipesimError
from pipesim.ir.formats import write_schedule
from pipesim.ir.formats.json_format import dumps


@dataclass(eq=False)
class TwoShapes(PipesimError):
    """Asked for two kinds of output at once."""

    def __str__(self) -> str:
        return "--grid and --json are two outputs; give one of them"


def schedule(
    name: Name,
    given: ScheduleOptions,
    show_grid: Annotated[bool, typer.Option("--grid", help="The unit-time grid that papers draw.")] = False,
    as_json: Json = False,
    out: Annotated[Path | None, typer.Option("--out", help="Write to a .json, .csv (PyTorch's) or .txt file.")] = None,
    transfers: Annotated[bool, typer.Option("--transfers", help="With sends and receives (in a .csv).")] = False,
) -> None:
    """Print the orders of a schedule: a line a rank, stage, kind and microbatch of each action.

    Example: pipesim schedule zb-h1 -p 4 -m 8 --grid
    """
    if show_grid and as_json:
        raise TwoShapes
    made = schedule_from_options(name, given)
    if out is not None:
        write_schedule(made, out, transfers=transfers)
    if as_json:
        print(dumps(made), end="")
    elif show_grid:
        from pipesim.cli.views.grid import grid  # the engine takes its time to import

        print(grid(made))
    elif out is None:
        print(made)
